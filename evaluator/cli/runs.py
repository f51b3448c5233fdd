"""Commands about existing runs, and about models without a run.

`list`, `show`, `clean`, `verify`, `export`, `receipt` and `threshold` work on runs; `compare`, `board` and `gate`
compare runs with each other. `doctor` and `coherence` examine a model.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from evaluator.cli.options import (
    FILE,
    FOLDER,
    ListingCommand,
    UserPath,
    one_model,
    options_of,
    require_apart,
    run_folder,
)
from evaluator.cli.terminal import draw, echo, echo_json
from evaluator.config import DEFINITIONS, CoherenceOptions, ModelConfig, ReceiptConfig, ThresholdOptions, from_options
from evaluator.errors import ConfigError
from evaluator.files.json_files import to_builtins, write_record
from evaluator.files.whole import size_text, write_bytes
from evaluator.redaction import csv_text

EXISTING_FOLDER = UserPath(exists=True, file_okay=False)


@click.command("list")
@click.argument("folder", metavar="[DIR]", type=EXISTING_FOLDER, default=".")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def list_runs(folder: Path, as_json: bool) -> None:
    """List the runs in DIR and below it; the current folder if left out."""
    from evaluator.runs.state import find_runs, how_far, run_state

    states = [run_state(out) for out in find_runs(folder)]
    if as_json:
        echo_json({"runs": states})
        return
    if not states:
        echo(f"No runs in {folder}.")
    width = max((len(state.folder) for state in states), default=0)
    for state in states:
        what = ", ".join(filter(None, (" ".join(state.suites), state.model)))
        echo(f"{state.folder:{width}}  {how_far(state):24}  {size_text(state.run_bytes):>10}  {what}".rstrip())


@click.command()
@click.argument("out", metavar="DIR", type=EXISTING_FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def show(out: Path, as_json: bool) -> None:
    """Show what the run in DIR is and how far it is, also while another process works on it."""
    from evaluator.runs.state import run_state, state_lines

    state = run_state(out)
    echo_json(state) if as_json else echo(*state_lines(state))


@click.command()
@click.argument("folder", metavar="[DIR]", type=EXISTING_FOLDER, default=".")
@click.option("--yes", is_flag=True, help="Delete what is listed; without this option, it is only listed.")
@click.option("--cache", is_flag=True, help="Also the cache of converted datasets, which is filled again on demand.")
@click.option(
    "--gone", is_flag=True, help="Also what only runs used that are not found: they count as removed, not as moved."
)
@click.option("--json", "as_json", is_flag=True, help="Print every file and folder as JSON.")
def clean(folder: Path, yes: bool, cache: bool, gone: bool, as_json: bool) -> None:
    """List what can be deleted in DIR and below it, and the space that it frees; with --yes, delete it.

    Prompts, tokens and scores that no run refers to, logs of replicas, and what killed processes left half written. No
    run loses anything that it needs, and a folder with a file that this program has not written stays.
    """
    from evaluator.runs.clean import clean as remove
    from evaluator.runs.clean import removable

    found = (remove if yes else removable)(folder, cache=cache, gone=gone)
    if as_json:
        rows = [{"kind": one.kind, "path": str(one.path), "bytes": one.n_bytes} for one in found.removable]
        echo_json({"removed": yes, "bytes": found.n_bytes, "removable": rows, "kept": found.kept})
        return
    echo(*(f"{one.kind:9} {size_text(one.n_bytes):>10}  {one.path}" for one in found.removable))
    echo(*(f"{'kept':9} {'':10}  {place}: {why}" for place, why in found.kept.items()))
    if not found.removable:
        echo(f"Nothing in {folder} can be deleted.")
    elif yes:
        echo(f"Freed {size_text(found.n_bytes)}.")
    else:
        echo(f"This would free {size_text(found.n_bytes)}. The same command with --yes deletes it.")


@click.command()
@run_folder
@click.option("--repair", is_flag=True, help="Build prompts, measure tables and write the report again where damaged.")
def verify(out: Path, repair: bool) -> None:
    """Check every file of the run in DIR: digests, columns, counts, keys, and that rows fit together.

    Each fault is a line with the command that repairs it, and the exit code is then 2.
    """
    from evaluator.runs.verify import verify as verify_run

    faults = draw(verify_run(out, repair=repair))
    echo(*faults)
    if faults:
        sys.exit(2)
    echo(f"{out}: every file is as it was written.")


def _formats() -> Iterator[tuple[str, str]]:
    from evaluator.exports import FORMATS, TRACKERS

    yield from ((name, exported.summary) for name, exported in FORMATS.items())
    yield from ((name, tracker.summary) for name, tracker in TRACKERS.items())


@click.command(cls=ListingCommand, title="Formats", rows=_formats)
@run_folder
@click.option("--format", "name", required=True, metavar="NAME", help="One of the formats below.")
@click.option(
    "--out",
    "target",
    type=UserPath(),
    help="File or, for a format of several files, folder; in DIR/exports if left out.",
)
@click.option(
    "--definition",
    type=click.Choice(["all", *DEFINITIONS]),
    default="all",
    show_default=True,
    help="Only numbers under this definition.",
)
def export(out: Path, name: str, target: Path | None, definition: str) -> None:
    """Write the results of the run in DIR in a format that other tools read.

    Numbers are those of the run's tables, with their 95% intervals; values that are no finite numbers are left out of
    formats that cannot hold them. Answers to single requests are those under the first definition.
    """
    from evaluator.runs.export import export as export_run

    require_apart([target], [out])
    echo(*export_run(out, name, target, definition))


@click.command()
@run_folder
@options_of(ReceiptConfig)
def receipt(out: Path, **given: Any) -> None:
    """Score a sample of the prompts in DIR again, in another order, batch size and cache state.

    Prints the drift of log-likelihoods in nats, flipped predictions and changed verdicts, and keeps them in
    DIR/tables/receipt.parquet, DIR/run.json and the report. With --engine or --dtype it measures what these change.
    """
    from evaluator.report.run_record import receipt_lines
    from evaluator.runs.receipt import make_receipt

    echo(*receipt_lines(*draw(make_receipt(out, from_options(ReceiptConfig, given)))))


@click.command()
@options_of(ModelConfig)
@click.option("--tune", type=FILE, help="Also try settings, and write the fastest to this file, for --settings.")
def doctor(tune: Path | None, **given: Any) -> int:
    """Measure whether a model's engine gives the right numbers on this machine, and how fast.

    Compares 64 prompts with transformers in float32 and in the run's dtype, and prints a line for each check and a
    verdict. The exit code is 1 where something disagrees; its line names the option that avoids it.
    """
    from evaluator.run.stage_records import doctor_file
    from evaluator.runs.doctor import examine

    model = one_model(given, "doctor examines")
    record = draw(examine(model))
    echo(*(f"{name:16}  {value}" for name, value in record.facts.items()))
    for check in record.checks:
        echo(f"{check.status:9}  {check.name}: {check.text}{f'. Use {check.option}' if check.option else ''}")
    echo(f"Written: {doctor_file(record.weights_fingerprint)}", f"{record.model}: {record.verdict}")
    if tune:
        from evaluator.runs import tune as tuning

        echo(*draw(tuning.tune(model, tune)))
    return int("DISAGREES" in {check.status for check in record.checks})


@click.command()
@options_of(ModelConfig)
@options_of(CoherenceOptions)
@click.option("--out", type=FILE, help="Write all results to this file as JSON, which `jevbench report` reads.")
def coherence(out: Path | None, **given: Any) -> None:
    """Measure how often a model's answers to typed questions contradict each other; no true labels are needed.

    Asks the frozen cases of the package jevbench, and prints its scores from 0 to 100 with 95% intervals over cases.
    """
    from evaluator.runs.coherence import coherence as measure

    report = draw(measure(one_model(given, "coherence measures"), from_options(CoherenceOptions, given)))
    echo(*report.table().splitlines())  # before the file, which a full disk may refuse
    if out:
        with TemporaryDirectory() as folder:
            write_bytes(out, report.save(Path(folder) / out.name).read_bytes())


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=UserPath(exists=True))
@options_of(ThresholdOptions)
@click.option("--out", type=FILE, help="Write the thresholds to this file, such as thresholds.json.")
@click.option("--use", type=FILE, help="Check the thresholds of this file on RUN instead of choosing new ones.")
@click.option("--check", type=UserPath(exists=True), help="Check the thresholds on a second run or table of answers.")
@click.option("--apply", type=(UserPath(), FILE), metavar="NEW CSV", help="Write NEW's answers, used or not, to CSV.")
@click.option("--errors", type=FILE, help="Write wrong answers that are used to this CSV file, most certain first.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def threshold(runs: tuple[Path, ...], **given: Any) -> int:
    """Choose the probability above which the answers of RUN can be used, with a promise about new answers.

    RUN is a run's folder, or a table of answers as `evaluator import` reads. No model is asked. The exit code is 1
    where a threshold that is checked breaks its promise.
    """
    from evaluator.report.thresholds import threshold_lines
    from evaluator.runs import threshold as stored

    options, check, applied = from_options(ThresholdOptions, given), given["check"], given["apply"] or []
    require_apart([given["out"], given["errors"], *applied[1:]], [*runs, check, *applied[:1]])
    report = stored.threshold_report(*runs, use=given["use"], check=check, **to_builtins(options))
    if given["out"]:
        write_record(given["out"], report.file)
    if applied:
        stored.write_answers(applied[0], applied[1], options, report.file)
    if given["errors"]:
        write_bytes(given["errors"], csv_text(report.errors()).encode())
    if given["as_json"]:
        content = {"file": report.file, "parts": report.parts, "at": report.at, "checks": report.checks}
        routing = report.routing and report.routing._asdict()
        echo_json({"coverage": report.coverage.to_dicts(), **content, "routing": routing})
    else:
        echo(*threshold_lines(report))
    return int(any(each.verdict == "promise broken" for each in report.checks))


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=FOLDER)
@click.option("--out", required=True, type=FOLDER, help="Folder for tables (Parquet) and a page.")
@click.option(
    "--margin",
    type=float,
    metavar="0<X<1",
    help="Difference of accuracy, such as 0.02: test which models and methods are equivalent within it, or no worse.",
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
@click.option("--watch", "log", type=UserPath(), metavar="LOG", help="Test later answers, a table or run, for drift.")
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
    require_apart([junit], [policy, run, base])
    decided = draw(decide(run, base, read_policy(policy)))
    if junit is not None:
        write_bytes(junit, junit_xml(decided))
    echo_json(decided) if as_json else echo(*gate_lines(decided))
    return EXIT_CODES[decided.outcome]


COMMANDS = (list_runs, show, clean, verify, export, receipt, doctor, coherence, threshold, compare, board, gate)
