"""The commands `compare`, `board` and `gate`: several runs, many runs, and one run against another."""

from pathlib import Path

import click

from evaluator.cli.options import FILE, FOLDER, UserPath
from evaluator.cli.terminal import draw, echo, echo_json
from evaluator.errors import ConfigError


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=FOLDER)
@click.option("--out", required=True, type=FOLDER, help="Folder for tables (Parquet) and a page.")
@click.option(
    "--margin",
    type=float,
    metavar="0<X<1",
    help="Of accuracy, such as 0.02: also test which models and methods are no worse than others by it, or equivalent.",
)
@click.option(
    "--against", type=FOLDER, metavar="BASE", help="Compare every RUN with this one, and not with each other."
)
def compare(runs: tuple[Path, ...], out: Path, margin: float | None, against: Path | None) -> None:
    """Compare the models of several runs, output folders of `evaluator run`.

    Writes accuracies and their paired differences, scaling with the number of parameters, rank correlations between
    measures and between models and, for the suite pvi, how far models agree about PVI. The runs must have the same
    queries; runs of one model in several settings (shots, instruction, label names, chat template) are compared as
    models are. The last line says which is best, and whether that is shown.
    """
    from evaluator.run.compare import compare as compare_runs

    if margin is not None and not 0 < margin < 1:
        raise ConfigError(f"--margin must be above 0 and below 1, got {margin}.")
    compared = draw(compare_runs(runs, out, margin, against))
    written = f"Tables: {out / 'tables'}", f"Page: {compared.page}"
    echo(*(f"Note: {note}" for note in compared.notes), *written, *compared.answer.splitlines())


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=FOLDER)
@click.option("--out", required=True, type=FOLDER, help="Folder for the page, JSON, CSV and Every Eval Ever.")
def board(folders: tuple[Path, ...], out: Path) -> None:
    """Put all measured runs in DIR... and below on one page, with ranks as ranges.

    Ranks are those that paired tests leave, among runs that answer the same prompts; runs that cannot be compared share
    no ranking. Writing again after runs were added keeps the links to the others.
    """
    from evaluator.runs.board import board as write_board

    written = draw(write_board(folders, out))
    echo(*(f"Left out: {reason}" for reason in written.left_out), err=True)
    echo(f"Runs: {written.n_runs}", f"Page: {written.page}")


EXIT_CODES = {"GO": 0, "NO-GO": 1, "INCONCLUSIVE": 2}
MISTAKE_IN_GATE = 3


@click.command()
@click.argument("run", type=UserPath())
@click.option("--against", "base", type=FOLDER, metavar="BASE", help="Folder of the run to compare with.")
@click.option("--policy", type=FILE, help="TOML file: metric, margin, alpha, datasets (docs/gate.md).")
@click.option("--watch", "log", type=UserPath(), metavar="LOG", help="Instead: later answers, a table or a run.")
@click.option("--thresholds", type=FILE, help="With --watch: file of `evaluator threshold`, or RUN/thresholds.json.")
@click.option("--json", "as_json", is_flag=True, help="Print the decision and its tests as JSON.")
@click.option("--junit", type=FILE, help="Also write the checks as JUnit XML.")
def gate(run: Path, as_json: bool, **given: Path | None) -> int:
    """Decide whether RUN is tolerably close to BASE, both output folders of `evaluator run`.

    Exit codes: 0 for GO, 1 for NO-GO, 2 for INCONCLUSIVE, 3 for a mistake. BASE may be of the same model, with another
    engine, dtype, version or setting. The runs must have the same queries.

    With --watch: whether LOG has drifted, in errors against what thresholds promised or, without labels, in answers to
    RUN's inputs asked again. Exit codes: 0 for no drift shown, 1 for an alarm, 2 for a mistake. May be run after every
    new answer: a false alarm is ever raised with a probability of at most 5%.
    """
    from evaluator.compare.gate import gate_lines, read_policy
    from evaluator.compare.gate import junit as junit_xml
    from evaluator.files.whole import write_bytes
    from evaluator.run.compare import gate as decide
    from evaluator.runs.watch import watch

    base, policy, log, junit = (given[name] for name in ("base", "policy", "log", "junit"))
    if log is not None:
        if base or policy or junit:
            raise ConfigError("--watch takes --thresholds and --json alone: leave out --against, --policy and --junit.")
        watched = watch(run, log, given["thresholds"])
        echo_json(watched) if as_json else echo(watched.reason)
        return int(watched.is_alarm)
    if base is None or policy is None or given["thresholds"]:
        raise ConfigError("gate takes --against BASE and --policy FILE, or --watch LOG with --thresholds FILE.")
    decided = draw(decide(run, base, read_policy(policy)))
    if junit is not None:
        write_bytes(junit, junit_xml(decided))
    echo_json(decided) if as_json else echo(*gate_lines(decided))
    return EXIT_CODES[decided.outcome]
