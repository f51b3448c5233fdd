"""Build prompts whose demonstrations have wrong labels, to measure whether a model uses those labels."""

import logging
from collections.abc import Iterator

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lcg import Lcg
from evaluator.errors import TemplateError
from evaluator.prompts.rows import benchmark_plan, requests
from evaluator.schemas import Definition

logger = logging.getLogger(__name__)

NOISE_RATES = (0.0, 0.25, 0.5, 0.75, 1.0)  # Cho & Inoue 2025, section 3.3: five rates, evenly spaced


def label_noise_requests(
    dataset: ClassificationDataset,
    *,
    n_shots: int,
    n_queries: int | None,
    definition: Definition = "paper",
    seed: int = 0,
) -> Iterator[pl.DataFrame]:
    """Yield the prompts of normal_requests with wrong demonstration labels at each of NOISE_RATES.

    Columns are those of normal_requests; `position` continues from one rate to the next. Rate 0 has exactly the prompts
    of normal_requests.

    Under `paper`, round(rate * n_shots) labels are wrong, halves rounded up, each drawn from the wrong labels by `seed`
    (falsified_labels). Under `released`, int(rate * n_shots) are wrong, each replaced by the next label of the label
    space; the toolkit's generator chooses them and ignores `seed` (next_labels). The column `n_wrong_labels` has this
    number. With fewer than four demonstrations some rates have the same number of wrong labels, which is logged: with
    one, `paper` distinguishes rates below 0.5 from the others, `released` only the rate 1; with none, all rates are the
    same and GLER is undefined.

    Raises as normal_requests does, and TemplateError for a label space of one label, which has no wrong label.
    """
    n_labels = len(dataset.verbalizer.label_names)
    if n_labels < 2:
        raise TemplateError(
            f"{dataset.name} has one label, so no demonstration can have a wrong one. Leave it out of the suite "
            "staicc-robustness (--datasets)."
        )
    n_wrong = wrong_counts(n_shots, definition)
    if len(set(n_wrong)) < len(NOISE_RATES):
        logger.warning(
            "%s: at %d shots the noise rates %s falsify %s labels of a prompt, some rates as many as others.",
            *(dataset.name, n_shots, NOISE_RATES, n_wrong),
        )
    plan = benchmark_plan(dataset, n_shots=n_shots)
    true_labels = dataset.demonstration["gold"].to_numpy()[plan.demonstration_ids]
    if definition == "released":
        shown = next_labels(true_labels, n_labels=n_labels, n_wrong=n_wrong)
    else:
        shown = [falsified_labels(true_labels, n_labels=n_labels, n_wrong=count, seed=seed) for count in n_wrong]
    for number, (rate, count, labels) in enumerate(zip(NOISE_RATES, n_wrong, shown, strict=True)):
        for rows in requests(dataset, plan, shown_labels=labels, n_queries=n_queries):
            yield rows.with_columns(
                position=pl.col("position") + number * len(true_labels),
                noise_rate=pl.lit(rate),
                n_wrong_labels=pl.lit(count, pl.Int64),
            )


def wrong_counts(n_shots: int, definition: Definition) -> tuple[int, ...]:
    """Return the number of wrong labels of a prompt at each of NOISE_RATES."""
    # The rates are exact in binary, so that the products are exact as well.
    rounding = 0.0 if definition == "released" else 0.5
    return tuple(int(rate * n_shots + rounding) for rate in NOISE_RATES)


def falsified_labels(labels: Ints, *, n_labels: int, n_wrong: int, seed: int) -> Ints:
    """Replace `n_wrong` labels of each row of `labels` [..., n_shots] by wrong labels, drawn uniformly.

    The draws depend on the shape and the seed, not on `n_wrong`: a label that is wrong at one rate is the same wrong
    label at every higher rate, so that accuracies at two rates differ by the noise alone.
    """
    random = np.random.default_rng(seed)
    rank = random.random(labels.shape).argsort(axis=-1).argsort(axis=-1)  # in which order demonstrations turn wrong
    wrong = (labels + random.integers(1, n_labels, size=labels.shape)) % n_labels
    return np.where(rank < n_wrong, wrong, labels)


def next_labels(labels: Ints, *, n_labels: int, n_wrong: tuple[int, ...]) -> list[Ints]:
    """Replace labels of each row of `labels` [n, n_shots] by the next label, the last by the first, for each rate.

    The replaced positions are drawn anew for each rate, by one toolkit generator that continues over prompts and rates.
    """
    random = Lcg()
    n_prompts, n_shots = labels.shape
    shown = []
    for count in n_wrong:
        is_wrong = np.zeros(labels.shape, dtype=bool)
        np.put_along_axis(is_wrong, random.samples(n_prompts, count, n_shots), True, axis=1)
        shown.append(np.where(is_wrong, (labels + 1) % n_labels, labels))
    return shown
