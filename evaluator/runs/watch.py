"""`evaluator gate RUN --watch LOG`: test whether later answers keep what thresholds promised, or have changed."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from evaluator.arrays import Floats
from evaluator.config import ThresholdOptions
from evaluator.datasets.tables import JSON_LINES
from evaluator.errors import ConfigError, EvaluatorError, plural
from evaluator.files.json_files import parse_json
from evaluator.files.whole import read_bytes
from evaluator.metrics import thresholds
from evaluator.metrics.thresholds import ThresholdFile
from evaluator.runs.threshold import as_chosen, read_answers, read_thresholds, require_questions, with_gold
from evaluator.statistics.betting import e_process, two_sided_e_process
from evaluator.statistics.paired import LEVEL

THRESHOLDS = "thresholds.json"

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Watched:
    """One test: the quantity that may have drifted, and the evidence that it has."""

    about: str  # the tested quantity
    found: str  # result in words
    n: int  # tested values: used answers or their groups, or pairs that changed
    e_value: float  # largest capital of the bettor so far (statistics.betting)
    needed: float  # e_value of an alarm: number of tests / level
    alarm_at: int | None  # number of the value, from 1, that first raised the alarm; None: no alarm


@dataclass(frozen=True, kw_only=True)
class Watch:
    """The verdict on a log: an alarm if anything has drifted."""

    is_alarm: bool
    reason: str  # one sentence
    checks: tuple[Watched, ...]


def watch(run: Path, log: Path, thresholds_file: Path | None = None) -> Watch:
    """Test whether a log has drifted from a run. The test may be repeated after every new row of the log.

    With gold labels and thresholds, the error rate of used answers is tested against the promise of each threshold.
    Otherwise the log must hold answers to inputs of the run that were asked again. Then the changes from the first to
    the later answers are tested for a direction: of the largest probability, of each option's probability, and of the
    share of used answers.

    All tests together raise a false alarm with a probability of at most LEVEL, however often they are made, as long as
    the log keeps its rows and grows at its end (by whole groups, if the thresholds have a group column).

    Args:
        run: folder of a run, or a table of answers.
        log: folder of a run, or a table of answers as `evaluator import` reads it; gold labels may be missing.
        thresholds_file: file that `evaluator threshold --out` writes; None: thresholds.json in the run's folder, if it
            exists.

    Raises ConfigError, DatasetError, MetricError and StoreError for files that cannot be read or tested.
    """
    path = thresholds_file or run / THRESHOLDS
    file = read_thresholds(path) if thresholds_file or path.is_file() else None
    options, groups = (as_chosen(ThresholdOptions(), file), file.group_column) if file else (ThresholdOptions(), None)
    with _whole_rows(log) as whole:
        answers = read_answers(whole, replace(options, group_column=groups), needs_probabilities=file is not None).rows
    if file is not None and answers["gold"].is_not_null().any():
        require_questions(answers["dataset"], file)
        tested = _errors(with_gold(answers), file)
    else:
        before = read_answers(run, options, needs_probabilities=file is not None).rows
        tested = _changes(run, log, before, answers, file)
    return _verdict(list(tested))


@contextmanager
def _whole_rows(log: Path) -> Iterator[Path]:
    """Yield the log, or a copy without the last line if the log is JSON lines and that line is incomplete."""
    content = read_bytes(log) if log.suffix == JSON_LINES and log.is_file() else b"\n"
    before, _, last = content.rpartition(b"\n")
    try:
        parse_json(last or b"{}")
    except ValueError:
        _LOG.warning("The last line of %s is not whole and is left out.", log)
        with TemporaryDirectory() as folder:
            copy = Path(folder) / log.name
            copy.write_bytes(before + b"\n")
            try:
                yield copy
            except EvaluatorError as error:
                raise type(error)(str(error).replace(str(copy), str(log))) from error
    else:
        yield log


_Test = tuple[str, str, Floats]
"""The tested quantity, the result in words, and the capital after each value."""


def _verdict(tests: Sequence[_Test]) -> Watch:
    needed = len(tests) / LEVEL
    checks = []
    for about, found, capital in tests:
        above = capital >= needed
        first, largest = int(above.argmax()) + 1 if above.any() else None, min(float(capital.max(initial=1.0)), 1e308)
        checks.append(Watched(about=about, found=found, n=len(capital), e_value=largest, needed=needed, alarm_at=first))
    shown, n = max(checks, key=lambda check: check.e_value), sum(check.alarm_at is not None for check in checks)
    evidence = f"{shown.about}: {shown.found} (largest e-value {shown.e_value:.3g}, an alarm is from {needed:g} on"
    reason = f"No drift is shown: {evidence}; {plural(len(checks), 'test')})."
    if shown.alarm_at is not None:
        others = f" and {n - 1} more of {len(checks)} tests" if n > 1 else ""
        reason = f"ALARM: {evidence}; first at value {shown.alarm_at:,}){others}."
    return Watch(is_alarm=shown.alarm_at is not None, reason=reason, checks=tuple(checks))


def _errors(answers: pl.DataFrame, file: ThresholdFile) -> Iterator[_Test]:
    """Yield a test of the error rate for each threshold with a promise. Raises ConfigError if there is none."""
    rows = thresholds.answer_rows(answers, file.yes)
    promises = [each for each in file.thresholds if each.threshold is not None and each.target is not None]
    if not promises:
        raise ConfigError("The thresholds promise nothing that a log could break. Choose others: evaluator threshold.")
    for promise in promises:
        _, rows_of, hits = thresholds.counted(rows.filter(thresholds.is_about(promise)), promise)
        is_rate = promise.measure == "false_positive_rate"  # the only measure that is a share of errors
        target = promise.target or 0.0
        wrong, limit = (rows_of[hits], target) if is_rate else (~rows_of[hits], 1 - target)
        # Rows of a group are not independent: their mean is one value, at the position of the first row.
        values = rows_of.select("group", wrong=wrong.cast(pl.Float64)).group_by("group", maintain_order=True).mean()
        n, n_wrong = rows_of.height, int(wrong.sum())
        named = [part for part in (promise.question, promise.option, promise.slice) if part is not None]
        rate = f" ({n_wrong / n:.1%})" if n else ""
        found = f"{plural(n_wrong, 'error')} in {plural(n, 'answer')}{rate}, promised at most {limit:.1%}"
        yield ", ".join([*named, promise.measure]), found, e_process(values["wrong"].to_numpy(), limit)


def _changes(
    run: Path, log: Path, before: pl.DataFrame, after: pl.DataFrame, file: ThresholdFile | None
) -> Iterator[_Test]:
    """Yield tests of the direction of changes: of the largest probability, used answers, and every option.

    Their number, on which the limit of an alarm depends, follows from the run alone and does not grow with the log.
    """
    pairs = _paired(run, log, before, after)
    flipped = pairs["label_probs"].list.arg_max() != pairs["label_probs_b"].list.arg_max()

    def test(about: str, difference: pl.Series) -> _Test:
        change = difference.round(thresholds.DECIMALS)
        mean, ups, downs = float(difference.mean() or 0), (change > 0).sum(), (change < 0).sum()  # type: ignore[arg-type]
        ways = f"{mean:+.4f} on average, up {plural(int(ups), 'time')}, down {plural(int(downs), 'time')}"
        found = f"{ways}; {flipped.sum():,} of {pairs.height:,} answers are another option"
        # Only the directions are tested; pairs without a change are left out, as in McNemar's test.
        signs = np.sign(np.round(difference.to_numpy(), thresholds.DECIMALS))
        return f"inputs asked again, {about}", found, two_sided_e_process(signs[signs != 0])

    yield test("largest probability", pairs["label_probs_b"].list.max() - pairs["label_probs"].list.max())
    if file is not None:
        used_before, used_after = (
            thresholds.apply_thresholds(pairs.with_columns(label_probs=name), file.thresholds, file.yes)["is_used"]
            for name in ("label_probs", "label_probs_b")
        )
        yield test("share of used answers", used_after.cast(pl.Float64) - used_before.cast(pl.Float64))
    for question, names in before.select("dataset", "label_names").unique(maintain_order=True).iter_rows():
        rows = pairs.filter(pl.col("label_names") == pl.lit(names, pairs.schema["label_names"]), dataset=question)
        # The probability of the last option follows from those before it.
        for place, name in enumerate(names[:-1]):
            change = rows["label_probs_b"].list.get(place) - rows["label_probs"].list.get(place)
            yield test(f"{question}, probability of {name}", change)


def _paired(run: Path, log: Path, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """Return pairs of answers to the same inputs: `label_probs` of the run, `label_probs_b` of the log.

    Answers are paired by dataset and prompt_id; if run and log have none in common, by their order in each question.
    Raises ConfigError if answers paired by order have different options.
    """
    asked = ["dataset", "prompt_id"]
    if is_by_order := after.join(before, on=asked, how="semi").is_empty():
        if before["dataset"].n_unique() == after["dataset"].n_unique() == 1:  # names may differ
            after = after.with_columns(dataset=pl.lit(before["dataset"][0]))
        place = pl.int_range(pl.len()).over("dataset")
        before, after = (rows.with_columns(prompt_id=place) for rows in (before, after))
    a, b = (  # one row for each prompt: equal prompts of a run have one score
        rows.select("^(dataset|prompt_id|slice|label_names|label_probs)$").unique(
            asked, maintain_order=True, keep="first"
        )
        for rows in (before, after)
    )
    pairs = b.join(a, on=asked, how="left", suffix="_a", maintain_order="left")
    differ = pairs.filter(pl.col("label_names").ne_missing(pl.col("label_names_a")))
    if is_by_order and not differ.is_empty():
        question, row = differ.select(asked).row(0)
        raise ConfigError(
            f"{log} does not hold the inputs of {run} asked again: row {row} (from 0) of {question} has other "
            f"options, or {run} has no such row. To test errors against a promise, give the log a column gold and "
            "name --thresholds FILE."
        )
    if not differ.is_empty():
        _LOG.warning("%s: %s answers are left out, as %s has none to the same requests.", log, differ.height, run)
    return pairs.drop_nulls("label_names_a").rename({"label_probs": "label_probs_b", "label_probs_a": "label_probs"})
