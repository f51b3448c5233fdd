"""The command `gate`: GO, NO-GO or INCONCLUSIVE, for a pipeline that must decide."""

import json
from pathlib import Path

import click

from evaluator.cli.options import FOLDER, UserPath
from evaluator.cli.terminal import draw

FILE = UserPath(dir_okay=False)

EXIT_CODES = {"GO": 0, "NO-GO": 1, "INCONCLUSIVE": 2}
MISTAKE_IN_GATE = 3


@click.command()
@click.argument("run", type=FOLDER)
@click.option(
    "--against", "base", required=True, type=FOLDER, metavar="BASE", help="Folder of the run to compare with."
)
@click.option("--policy", required=True, type=FILE, help="TOML file: metric, margin, alpha, datasets (docs/gate.md).")
@click.option("--json", "as_json", is_flag=True, help="Print the decision and its tests as JSON.")
@click.option("--junit", type=FILE, help="Also write the checks as JUnit XML.")
def gate(run: Path, base: Path, policy: Path, as_json: bool, junit: Path | None) -> int:
    """Decide whether RUN is tolerably close to BASE, both output folders of `evaluator run`.

    Exit codes: 0 for GO, 1 for NO-GO, 2 for INCONCLUSIVE, 3 for a mistake. BASE may be of the same model, with another
    engine, dtype or version. The runs must have equal prompts.
    """
    from evaluator.compare.gate import read_policy
    from evaluator.compare.gate_texts import gate_lines
    from evaluator.compare.gate_texts import junit as junit_xml
    from evaluator.files.json_files import to_builtins
    from evaluator.files.whole import write_bytes
    from evaluator.run.compare import gate as decide

    decided = draw(decide(run, base, read_policy(policy)))
    if junit is not None:
        write_bytes(junit, junit_xml(decided))
    click.echo(
        json.dumps(to_builtins(decided), indent=2, ensure_ascii=False) if as_json else "\n".join(gate_lines(decided))
    )
    return EXIT_CODES[decided.outcome]
