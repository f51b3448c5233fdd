"""In-context pointwise V-information: answers to input and null prompts go in, one PVI a query and run comes out.

Lu et al. 2023, equation 1: C(x, y) = -log2 G[p](y) + log2 G[p'](y), where p' has the input behind its demonstrations
and p is the same prompt with every input removed, the demonstrations' too.
"""

import math
from collections.abc import Callable

import polars as pl

from evaluator.errors import MetricError
from evaluator.methods.base import Answers
from evaluator.metrics.checks import require_gold
from evaluator.suites.in_context_pvi.chosen_demonstrations import CHOSEN, gain_nats, null_part
from evaluator.suites.in_context_pvi.options import PviSource
from evaluator.suites.in_context_pvi.prompts import INPUT, NULL
from evaluator.suites.in_context_pvi.released_scores import filtered_log_likelihoods
from evaluator.suites.in_context_pvi.schema import PVI, PVI_KEY, PviDefinition

_RUN = ["dataset", "n_shots", "demonstration_set"]


def pvi_table(answers: Answers, source: PviSource = "random") -> pl.DataFrame:
    """PVI of every query behind every demonstration set, the suite's own and those that methods chose by PVI.

    Log-likelihoods of the gold label are taken as they are (`paper`), less the log of the sum over the label space
    (`label_space`), or as methods/pvi_released.py filters them (`released`, where that method was asked). PVI is their
    difference divided by ln 2, and under `released` the difference itself. It is null where one of the two is missing,
    NaN or infinite; both stay in their columns, and no row is dropped. Behind chosen sets there is no `released`.

    Args:
        answers: of the suite pvi.
        source: of the suite's own demonstration sets.

    Returns:
        schemas.pvi.PVI, sorted by its key.

    Raises:
        MetricError: a label space of one label, or gold labels outside it.
    """
    _require_labels(answers)
    own = [_of_runs(answers, source, (INPUT, NULL), definition) for definition in _LOG_LIKELIHOODS]
    chosen = [
        _of_runs(answers, order, (method, null_part(method)), definition)
        for method, order in CHOSEN.items()
        for definition in _LOG_LIKELIHOODS
        if definition != "released"
    ]
    return pl.concat([*own, *chosen]).collect().sort(PVI_KEY)


def _of_runs(answers: Answers, demonstrations: str, parts: tuple[str, str], definition: PviDefinition) -> pl.LazyFrame:
    """PVI of the queries of one part, whose prompts without inputs are another."""
    inputs, nulls = (_LOG_LIKELIHOODS[definition](answers, part) for part in parts)
    label = pl.int_ranges(pl.col("scores").list.len()).alias("gold")
    of_label = nulls.select(*_RUN, label, given_null="scores").explode("gold", "given_null")
    of_gold = pl.col("scores").list.get(pl.col("gold"))
    own = inputs.with_columns(pred=_most_probable("scores"), given_input=of_gold)
    both = own.join(of_label, on=[*_RUN, "gold"], how="left", validate="m:1")
    unit = 1.0 if definition == "released" else math.log(2)
    known = both.with_columns(
        pvi_bits=gain_nats(pl.col("given_input"), pl.col("given_null")) / unit,
        correct=pl.col("pred") == pl.col("gold"),
        definition=pl.lit(definition),
        demonstrations=pl.lit(demonstrations),
    )
    return known.select(pl.col(name).cast(dtype) for name, dtype in PVI.items())


def _most_probable(scores: str) -> pl.Expr:
    """The index of the highest, the first of equals; null where one is missing or NaN, or all are minus infinity."""
    values = pl.col(scores)
    complete = values.list.drop_nulls().list.len() == values.list.len()
    # A NaN or an infinity among the terms is one of the sum.
    known = complete & ~values.list.sum().is_nan() & values.list.max().is_finite()
    return pl.when(known).then(values.list.arg_max())


def _whole_vocabulary(answers: Answers, part: str) -> pl.LazyFrame:
    return _of_run(answers.part(part), "label_log_likelihoods")


def _label_space(answers: Answers, part: str) -> pl.LazyFrame:
    highest = pl.element().max()
    total = (pl.element() - highest).exp().sum().log() + highest
    return _whole_vocabulary(answers, part).with_columns(pl.col("scores").list.eval(pl.element() - total))


def _released(answers: Answers, part: str) -> pl.LazyFrame:
    """Without rows where the method pvi_released was not asked."""
    return _of_run(filtered_log_likelihoods(answers, part), "filtered")


def _of_run(rows: pl.LazyFrame, scores: str) -> pl.LazyFrame:
    return rows.select(*_RUN, "query_id", "gold", scores=scores)


_LOG_LIKELIHOODS: dict[PviDefinition, Callable[[Answers, str], pl.LazyFrame]] = {
    "paper": _whole_vocabulary,
    "label_space": _label_space,
    "released": _released,
}
"""Definition -> function from answers and a part to dataset, n_shots, demonstration_set, query_id, gold and `scores`, a
number a label in nats."""


def _require_labels(answers: Answers) -> None:
    rows = answers.part(INPUT).select("dataset", "gold", n_labels=pl.col("label_names").list.len()).collect()
    for (dataset, n_labels), own in rows.partition_by("dataset", "n_labels", as_dict=True, maintain_order=True).items():
        if int(n_labels) < 2:
            raise MetricError(
                f"{dataset} has {n_labels} label: with nothing to choose between, an input gives no information about "
                "the label. Leave it out (--datasets), or give its whole label space."
            )
        require_gold(own["gold"], int(n_labels), str(dataset))
