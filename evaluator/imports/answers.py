"""Define imported answers to the queries of datasets, and turn them into the requests and scores of a run."""

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
"""Name of the suite of an imported run, of its first part, and of its side table."""

WITH_REFUSALS = "refusals-wrong"
"""Part of an imported run in which refused and missing answers count as wrong."""

NUMBERS = declare(  # side table of an imported run
    dataset=pl.String(),
    part=pl.String(),
    numbers=pl.String(),  # config.Numbers
    floor=pl.Float64(),  # smallest probability under the definition `floored`; null if no zero was reported
)

ANSWERS = declare(  # imported answers, one row for each answer
    query=pl.String(),  # id of the query; answers to one query are not independent
    prompt=pl.String(),  # "" if it is not known
    template=pl.Int64(),  # number of a variation of the prompt; 0: not varied
    gold=pl.Int64(),  # index into label_names; null if it is not known
    soft_gold=pl.List(pl.Float64()),  # share of each label if the true answer is a distribution, else null
    label_names=pl.List(pl.String()),
    log_likelihoods=pl.List(pl.Float64()),  # nats, in label-space order; -inf for probability 0
)


class ImportedDataset(NamedTuple):
    """The imported answers to the queries of a dataset, in one part."""

    name: str
    numbers: Numbers  # kind of the answers: log-likelihoods, probabilities or labels
    rows: pl.DataFrame  # ANSWERS
    file: str  # name of the file, or its path if two files have the same name
    floor: float | None = None  # as in NUMBERS
    notes: tuple[str, ...] = ()  # notes for the record and the page
    part: str = IMPORTED
    kind: QuestionKind | None = None  # kind of a typed question; None: not known


class Reported(NamedTuple):
    """Reported probabilities as log-likelihoods, with notes about rounding, normalisation and zeros."""

    log_likelihoods: npt.ArrayLike  # nats, [rows, labels]; -inf for a reported zero
    floor: float | None = None  # probability that a reported zero stands for; None if no zero was reported
    notes: tuple[str, ...] = ()


def reported_probabilities(numbers: Sequence[Sequence[float]], error: Callable[[int, str], DatasetError]) -> Reported:
    """Normalise reported probabilities, which may be rounded, and return their logarithms.

    Args:
        numbers: probabilities, [rows, labels].
        error: returns the error to raise for a wrong row, from the index of the row and the allowed values in words.

    Raises the error of `error` for values outside 0 to 1, and for rows whose sum differs from 1 by more than rounding
    explains (sum_tolerances).
    """
    values = np.array(numbers)
    wrong = ~((values >= 0) & (values <= 1)).all(axis=1)
    tolerances, sums = sum_tolerances(values), values.sum(axis=1)
    wrong |= ~(np.abs(sums - 1) <= tolerances)
    if wrong.any():
        first = int(wrong.argmax())
        raise error(first, f"probabilities: 0 to 1, with a sum of 1 within {tolerances[first]:g}")
    # The step to which all values are rounded determines what a reported zero stands for.
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
    """Return a frame of ANSWERS.

    Args:
        spaces: label names of each row; all rows have the same number of labels.
        numbers: log-likelihoods in nats, [rows, labels].
        columns: name -> values of the other columns. Default of `template` is 0 (not varied), of `soft_gold` null.
    """
    distinct = {space: place for place, space in enumerate(dict.fromkeys(map(tuple, spaces)))}
    # Converting one list per row is slow: convert each distinct label space once, and the numbers as one matrix.
    labels = pl.Series([list(space) for space in distinct], dtype=pl.List(pl.String()))
    label_names = labels.gather([distinct[tuple(space)] for space in spaces])
    log_likelihoods = pl.Series(np.asarray(numbers, dtype=np.float64)).arr.to_list()
    usual = {"template": [0] * len(spaces), "soft_gold": [None] * len(spaces)}
    of_labels = {"label_names": label_names, "log_likelihoods": log_likelihoods}
    return pl.DataFrame(usual | columns | of_labels, schema=ANSWERS)


def answer_rows(datasets: Sequence[ImportedDataset]) -> pl.DataFrame:
    """Return the requests of an imported run with their scores, one row for each answer.

    Rows of a file with the same `query` get the same `query_id`. In a dataset and part they are the requests of the
    query, numbered by `demonstration_set`. `prompt_id` is unique, and a digest of the question but not of the answer,
    so that runs of several models on the same questions can be compared.

    Returns:
        The columns of schemas.REQUESTS and PROMPTS, `log_likelihoods` and `soft_gold`.
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
        # Number the queries of a file in the order of their first rows.
        query_id=pl.col("row").min().over("file", "query").rank("dense").over("file").cast(pl.Int64) - 1,
        position=pl.int_range(pl.len()).over("dataset", "part"),
        demonstration_set=pl.int_range(pl.len()).over("dataset", "part", "query", "template"),
    )
    # What makes a prompt_id unique: dataset, part, query, number of the request, prompt and labels.
    about = pl.when(part=IMPORTED).then("dataset").otherwise(pl.format("{}, {}", "part", "dataset"))
    number = pl.format("{}", "demonstration_set")
    varied = pl.when(pl.col("template") > 0).then(pl.format("{}, variation {}", "demonstration_set", "template"))
    told_apart = pl.concat_list(about, "query", varied.otherwise(number), "prompt").list.concat("label_names")
    texts = rows.select(told_apart.list.join("\0")).to_series()
    ids = [blake2b(text.encode(), digest_size=16).hexdigest() for text in texts]
    return rows.with_columns(**asked_alike, prompt_id=pl.Series(ids, dtype=pl.String)).select(*schema)
