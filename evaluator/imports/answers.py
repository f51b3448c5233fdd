"""Imported answers to the queries of datasets, and how they become the request rows and scores of a run."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.config import Numbers
from evaluator.decisions.answers import least_probability, resolution, sum_tolerances
from evaluator.decisions.questions import QuestionKind
from evaluator.errors import DatasetError
from evaluator.prompts.rows import NO_SPANS, NOT_VARIED
from evaluator.schemas import PROMPTS, REQUESTS, declare

IMPORTED = "imported"
"""Name of an imported run's suite, of its first part and of its side table."""

WITH_REFUSALS = "refusals-wrong"
"""Part of an imported run in which a refused or missing answer counts as a wrong one."""

NUMBERS = declare(  # side table of an imported run
    dataset=pl.String(),
    part=pl.String(),
    numbers=pl.String(),  # Numbers
    floor=pl.Float64(),  # least probability under the definition `floored`; null where no zero was reported
)

ANSWERS = declare(
    query=pl.String(),  # id: rows with the same id are answers to one query, and are not independent
    prompt=pl.String(),  # empty if it is not known
    template=pl.Int64(),  # number of a variation of the prompt; 0: as it is
    gold=pl.Int64(),  # index into label_names; null where it is not known
    soft_gold=pl.List(pl.Float64()),  # share of each label, where the true answer is a distribution
    label_names=pl.List(pl.String()),
    log_likelihoods=pl.List(pl.Float64()),  # nats, in label-space order; -inf for what has no probability
)


class ImportedDataset(NamedTuple):
    """The answers to the queries of a dataset."""

    name: str
    numbers: Numbers
    rows: pl.DataFrame  # ANSWERS
    file: str  # name of the file that it was read from
    floor: float | None = None  # as in NUMBERS
    notes: tuple[str, ...] = ()  # for the record
    part: str = IMPORTED
    kind: QuestionKind | None = None  # None: not known


class Reported(NamedTuple):
    """Probabilities as log-likelihoods, and counts of corrections to them."""

    log_likelihoods: npt.ArrayLike  # nats, [rows, labels]; -inf for a reported zero
    floor: float | None = None  # what a reported zero stands for; None where there is none
    notes: tuple[str, ...] = ()


def reported_probabilities(numbers: Sequence[Sequence[float]], error: Callable[[int, str], DatasetError]) -> Reported:
    """Return the log-likelihoods of probabilities, which may be rounded and are normalised.

    Args:
        numbers: [rows, labels], all rows of one length.
        error: makes the error of a row that does not fit, from its place and what is allowed.
    """
    values = np.array(numbers)
    wrong = ~((values >= 0) & (values <= 1)).all(axis=1)
    tolerances, sums = sum_tolerances(values), values.sum(axis=1)
    wrong |= ~(np.abs(sums - 1) <= tolerances)
    if wrong.any():
        first = int(wrong.argmax())
        raise error(first, f"probabilities: 0 to 1, with a sum of 1 within {tolerances[first]:g}")
    step = resolution(values)
    floor, rounded = least_probability(values, step), f"probabilities are multiples of {step:g}" if step else ""
    n_scaled, n_zero = int((np.abs(sums - 1) > 1e-9).sum()), int((values == 0).any(axis=1).sum())
    notes = [rounded] if rounded else []
    if n_scaled:
        notes.append(f"{n_scaled} of {len(values)} rows have sums other than 1 and are normalised")
    if floor is not None:
        notes.append(
            f"{n_zero} of {len(values)} rows have a probability of 0, under which log loss can be infinite; under the "
            f"definition `floored`, probabilities below {floor:g} are raised to it"
        )
    with np.errstate(divide="ignore"):
        return Reported(np.log(values / sums[:, None]), floor, tuple(notes))


def answers_frame(spaces: Sequence[Sequence[str]], numbers: npt.ArrayLike, **columns: Sequence[object]) -> pl.DataFrame:
    """Return ANSWERS.

    Args:
        spaces: label names of each row, all of one number.
        numbers: log-likelihoods, [rows, labels].
        columns: the others by name; without `template` and `soft_gold` nothing was varied, and one label is true.
    """
    distinct = {space: place for place, space in enumerate(dict.fromkeys(map(tuple, spaces)))}
    # Lists of a row each are slow to convert: a space is converted once, and numbers as one matrix.
    labels = pl.Series([list(space) for space in distinct], dtype=pl.List(pl.String()))
    label_names = labels.gather([distinct[tuple(space)] for space in spaces])
    log_likelihoods = pl.Series(np.asarray(numbers, dtype=np.float64)).arr.to_list()
    usual = {"template": [0] * len(spaces), "soft_gold": [None] * len(spaces)}
    of_labels = {"label_names": label_names, "log_likelihoods": log_likelihoods}
    return pl.DataFrame(usual | columns | of_labels, schema=ANSWERS)


def answer_rows(datasets: Sequence[ImportedDataset]) -> pl.DataFrame:
    """Return the columns of REQUESTS and PROMPTS, `log_likelihoods` and `soft_gold`, one row for each answer.

    Rows of a file with the same id of a query have one `query_id`; those of a dataset are its requests, numbered by
    `demonstration_set`. `prompt_id` is a digest of what was asked and not of who answered, so that runs of several
    models can be compared, and is never the same twice.
    """
    asked_alike = {
        **{name: value for name, value in NOT_VARIED.items() if name not in ("demonstration_set", "template")},
        "suite": pl.lit(IMPORTED),
        "for_part": pl.lit(None, pl.String),
        "n_shots": pl.lit(None, pl.Int64),
        "demonstration_ids": pl.lit([], pl.List(pl.Int64)),
        "ask": pl.lit("labels"),
        "continuations": pl.col("label_names"),
        "spans": NO_SPANS,
    }
    schema = {**REQUESTS, **PROMPTS, "log_likelihoods": pl.List(pl.Float64()), "soft_gold": pl.List(pl.Float64())}
    one_after_other = pl.concat(
        dataset.rows.with_columns(part=pl.lit(dataset.part), dataset=pl.lit(dataset.name), file=pl.lit(dataset.file))
        for dataset in datasets
    )
    rows = one_after_other.with_row_index("row").with_columns(
        # The queries of a file are numbered as they come first in it.
        query_id=pl.col("row").min().over("file", "query").rank("dense").over("file").cast(pl.Int64) - 1,
        position=pl.int_range(pl.len()).over("dataset", "part"),
        demonstration_set=pl.int_range(pl.len()).over("dataset", "part", "query", "template"),
    )
    about = pl.when(part=IMPORTED).then("dataset").otherwise(pl.format("{}, {}", "part", "dataset"))
    number = pl.format("{}", "demonstration_set")
    varied = pl.when(pl.col("template") > 0).then(pl.format("{}, variation {}", "demonstration_set", "template"))
    told_apart = pl.concat_list(about, "query", varied.otherwise(number), "prompt").list.concat("label_names")
    texts = rows.select(told_apart.list.join("\0")).to_series()
    ids = [blake2b(text.encode(), digest_size=16).hexdigest() for text in texts]
    return rows.with_columns(**asked_alike, prompt_id=pl.Series(ids, dtype=pl.String)).select(*schema)
