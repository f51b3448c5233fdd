"""Build the prompts of StaICC's diagnostics of robustness and of figure 2, and measure their answers.

- Part `template`: the queries in the nine templates of an orthogonal array, after two demonstration sets of each query.
  Part `sampling`: the queries after eight demonstration sets. Both measure how often the answers to a query agree.
- Part `gler`: demonstrations with wrong labels, to measure whether a model uses the labels (GLER).
- Parts of VARIABLES: one variable of figure 2 at a time, to measure how much macro-F1 varies with it.
- total_errors: the total error of StaICC-Normal's accuracy, if queries, demonstration sets and the template are all
  random samples. The intervals of StaICC-Normal treat the template as fixed.

Source: Cho & Inoue 2025, sections 3.1 and 3.3, and appendix B.2.
"""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from string import ascii_lowercase, ascii_uppercase

import numpy as np
import polars as pl

from evaluator.arrays import Floats, Ints
from evaluator.config import Definition, RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.labelled_table import text_key
from evaluator.datasets.lcg import Lcg
from evaluator.errors import MetricError, TemplateError
from evaluator.metrics.classification import (
    METRICS,
    REQUEST_COLUMNS,
    STAICC_METRICS,
    Measured,
    jackknifed,
    mean_metric,
    metric_values,
    statistic_sums,
)
from evaluator.metrics.groups import PredictionGroup
from evaluator.metrics.intervals import two_way_standard_error
from evaluator.metrics.total_error import CrossedAnswers, Design, TotalErrors, crossed_cells
from evaluator.prompts.demonstrations import N_DEMONSTRATION_SETS
from evaluator.prompts.rows import benchmark_plan, normal_requests, requests
from evaluator.templates.template import ORTHOGONAL_ARRAY, Verbalizer

logger = logging.getLogger(__name__)

N_LEVELS = 8
"""Number of levels of each variable of figure 2 (appendix B.2); level 0 is the level of StaICC-Normal."""

VARIABLES = {
    "connector": "template",
    "verbalizer": "template",
    "order": "demonstration_set",
    "split": "demonstration_set",
}
"""Variable of figure 2 -> column of the requests with its level."""

LABEL_FORMS: tuple[Callable[[str, int], str], ...] = (
    lambda name, _: name,
    lambda name, _: name.capitalize(),
    lambda name, _: name.upper(),
    lambda _, place: ascii_uppercase[place],
    lambda _, place: ascii_lowercase[place],
    lambda _, place: str(place),
    lambda _, place: f"label {place + 1}",
    lambda name, _: f"it is {name}",
)
"""Verbalizers for any task: functions from the name and index of a label to its text. (--labels sets other texts.)"""

N_SAMPLED_SETS = 8  # number of demonstration sets of a query in the part `sampling`
RELEASED_TEMPLATE_QUERIES = 100  # number of queries of the part `template` under `released`
MAX_SD = math.sqrt(0.5)
"""Largest standard deviation (n - 1 in the denominator) of two or more numbers in [0, 1]: of one 0 and one 1."""


def template_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield the prompts of all queries in each template.

    Under `released` only the first hundred queries, after one demonstration set, as in the toolkit. Raises
    TemplateError for a dataset without alternative templates.
    """
    if not dataset.alternative_templates:
        raise TemplateError(
            f"{dataset.name} has no alternative templates to compare answers over. Give it some where it is loaded "
            "(ClassificationDataset.alternative_templates), or leave it out of staicc-robustness."
        )
    n_sets = N_DEMONSTRATION_SETS
    if config.prompt_definition == "released":
        # Cut the test split before demonstrations are drawn: the toolkit's generator draws for these queries alone.
        dataset, n_sets = replace(dataset, test=dataset.test.head(RELEASED_TEMPLATE_QUERIES)), 1
    n_prompts = n_sets * dataset.test.height
    for number, template in enumerate(dataset.alternative_templates):
        for rows in _normal(replace(dataset, template=template), config, n_sets):
            position = pl.col("position") + number * n_prompts
            yield rows.with_columns(template=pl.lit(number, pl.Int64), position=position)


def sampling_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield the prompts of all queries after eight demonstration sets.

    Under `released` only the first quarter of the queries, so that there are no more prompts than in StaICC-Normal,
    which has two demonstration sets.
    """
    if config.prompt_definition == "released":
        n_first = dataset.test.height * N_DEMONSTRATION_SETS // N_SAMPLED_SETS
        dataset = replace(dataset, test=dataset.test.head(n_first))
    return _normal(dataset, config, N_SAMPLED_SETS)


def variable_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield the prompts of all queries, after one demonstration set, at the levels of each variable of figure 2.

    - connector: the first eight of the nine templates;
    - verbalizer: the forms of LABEL_FORMS that differ for this dataset, eight at most (fewer are logged);
    - order: the demonstrations of each prompt, shuffled by the level as seed;
    - split: demonstration and test rows, dealt again by the level as seed.

    A row keeps its number in all splits. `query_id` counts test rows first, then demonstration rows;
    `demonstration_ids` count demonstration rows first, then test rows.

    Raises TemplateError if there are fewer than eight templates, or more labels than letters.
    """
    if len(dataset.alternative_templates) < N_LEVELS or len(dataset.verbalizer.label_names) > len(ascii_lowercase):
        raise TemplateError(
            f"{dataset.name}: staicc-variables takes {N_LEVELS} templates or more and at most {len(ascii_lowercase)} "
            "labels. Leave it out (--datasets)."
        )
    names = dataset.verbalizer.label_names
    every_form = dict.fromkeys(tuple(form(name, place) for place, name in enumerate(names)) for form in LABEL_FORMS)
    forms = [form for form in every_form if len({*form}) == len(names)]
    if len(forms) < N_LEVELS:
        logger.warning("%s: %d of %d verbalizers are different, and are asked.", dataset.name, len(forms), N_LEVELS)
    # One dataset for each level of each variable.
    levels = {
        "connector": [replace(dataset, template=each) for each in dataset.alternative_templates[:N_LEVELS]],
        "verbalizer": [replace(dataset, verbalizer=Verbalizer(label_names=of_form)) for of_form in forms],
        "order": [dataset] * N_LEVELS,
        "split": [dataset] * N_LEVELS,
    }
    pool, n_shown = pl.concat([dataset.demonstration, dataset.test]), dataset.demonstration.height
    for part, datasets in levels.items():
        for level, varied in enumerate(datasets):
            dealt = _dealt(dataset, pool, level if part == "split" else 0)  # rows of the pool, demonstrations first
            varied = replace(varied, demonstration=pool[dealt[:n_shown]], test=pool[dealt[n_shown:]])
            plan = benchmark_plan(varied, n_shots=config.n_shots, n_demonstration_sets=1)
            if part == "order" and level:
                shuffled = np.random.default_rng(level).permuted(plan.demonstration_ids, axis=1)
                plan = replace(plan, demonstration_ids=shuffled)
            for rows in requests(varied, plan, n_queries=config.n_queries):
                # From rows of this level's splits to rows of the pool, counted as the docstring says.
                asked = rows["query_id"].to_numpy()
                yield rows.with_columns(
                    part=pl.lit(part),
                    position=pl.col("position") + level * dataset.test.height,
                    query_id=pl.Series((dealt[n_shown + asked] - n_shown) % pool.height),
                    demonstration_ids=pl.Series(dealt[plan.demonstration_ids[asked]]).cast(pl.List(pl.Int64)),
                    **{VARIABLES[part]: pl.lit(level, pl.Int64)},
                )


def _dealt(dataset: ClassificationDataset, pool: pl.DataFrame, seed: int) -> Ints:
    """Return the row numbers of a pool in random order; in ascending order for seed 0.

    Rows of a user's data (`own_demonstrations`) are permuted within their labels, so that both splits keep their label
    frequencies. Rows with equal texts keep their places; otherwise a demonstration could have the texts of a query.
    """
    order, draw = np.arange(pool.height), np.random.default_rng(seed)
    dealt = pl.when(text_key().is_unique()).then("gold" if dataset.own_demonstrations else pl.lit(0)).otherwise(-1)
    groups = pool.select(dealt).to_series().to_numpy()
    for group in np.unique(groups[groups >= 0]) if seed else ():
        places = np.flatnonzero(groups == group)
        order[places] = draw.permutation(places)
    return order


def _normal(dataset: ClassificationDataset, config: RunConfig, n_sets: int) -> Iterator[pl.DataFrame]:
    n_queries = None if config.n_queries is None else min(config.n_queries, dataset.test.height)
    return normal_requests(dataset, n_shots=config.n_shots, n_queries=n_queries, n_demonstration_sets=n_sets)


def template_consistency(group: PredictionGroup) -> dict[str, Measured]:
    """Measure template_consistency: the share of templates that give the most frequent answer to a query, averaged over
    queries and their demonstration sets.

    `paper` and `released` have the same formula; their predictions can differ, for example where probabilities tie. The
    interval covers other queries with these templates. It does not cover other templates, because the share of the most
    frequent answer decreases with the number of templates; the interval of template_accuracy does.

    Raises MetricError if queries are not answered equally often with each template.

    Sources: Cho & Inoue 2025, section 3.3; StaICC 0.1.1, util/functional.py, consistency.
    """
    return _consistency(group, "template", ["query_id", "demonstration_set"])


def sampling_consistency(group: PredictionGroup) -> dict[str, Measured]:
    """Measure sampling_consistency, the share of demonstration sets that give the most frequent answer to a query,
    averaged over queries; and accuracy_mean_over_demonstration_sets, the accuracy over all sets.

    Every query has its own demonstration sets, so that intervals over queries cover other demonstration sets as well.

    Raises and sources: as for template_consistency.
    """
    accuracy = {"accuracy_mean_over_demonstration_sets": METRICS["accuracy"]}
    consistency = _consistency(group, "demonstration_set", ["query_id"])
    return consistency | metric_values(group.repeated_requests, group.n_labels, accuracy)


def _consistency(group: PredictionGroup, varied: str, prompt: list[str]) -> dict[str, Measured]:
    """Measure PART_consistency, the share of the most frequent answer to a prompt's variations, averaged over prompts.

    Args:
        varied: column that numbers the variations of a prompt.
        prompt: columns that identify a prompt apart from its variations.
    """
    require_complete_grid(group, varied)
    counts = group.repeated_requests.group_by(*prompt, "pred").len()
    share = pl.col("len").max() / pl.col("len").sum()
    prompts = counts.group_by(prompt).agg(agreeing=share).sort(prompt)
    return metric_values(prompts, group.n_labels, {f"{group.key['part']}_consistency": mean_metric("agreeing")})


def template_accuracy(group: PredictionGroup) -> dict[str, Measured]:
    """Measure accuracy_mean_over_templates and accuracy_sd_over_templates.

    The mean is the expected accuracy of a user who has no reason to prefer a template. Its interval covers other
    queries *and* other texts of the templates' attributes (metrics.intervals.two_way_standard_error). The standard
    deviation of the templates' accuracies has n - 1 in the denominator, and its interval covers other queries alone.
    Both include the noise of single answers, which decreases with the number of queries.

    Neither metric is in the paper or the toolkit. `paper` and `released` have the same formulas, but different
    predictions.

    Raises MetricError if queries are not answered equally often with each template.
    """
    require_complete_grid(group, "template")
    # The share of correct answers [query, template], over demonstration sets.
    answers = group.repeated_requests.group_by("query_id", "template")
    shares = answers.agg(pl.col("correct").mean()).sort("query_id", "template")
    cells = shares["correct"].to_numpy().reshape(-1, shares["template"].n_unique())
    error = two_way_standard_error(cells, template_attributes(cells.shape[1]))
    # For the jackknife: the accuracy with each template, without each query in turn, [query, template].
    without_one = (cells.sum(axis=0) - cells) / max(len(cells) - 1, 1)
    deviation = float(cells.mean(axis=0).std(ddof=1))
    mean = Measured(float(cells.mean()), *error, "score", 0.0, 1.0, over="queries and templates")
    sd = jackknifed(deviation, without_one.std(axis=1, ddof=1), "symmetric", (0.0, MAX_SD))
    return {"accuracy_mean_over_templates": mean, "accuracy_sd_over_templates": sd}


def level_spread(group: PredictionGroup) -> dict[str, Measured]:
    """Measure macro_f1_mean_over_PARTs and macro_f1_sd_over_PARTs (n - 1 in the denominator) for a part of VARIABLES.

    Intervals cover other queries with the same levels. Source: Cho & Inoue 2025, figure 2, which draws macro-F1.
    """
    part = group.key["part"]
    values, without_one = level_values(group, "macro_f1", VARIABLES[part])
    sd = jackknifed(float(values.std(ddof=1)), without_one.std(axis=1, ddof=1), "symmetric", (0.0, MAX_SD))
    mean = jackknifed(float(values.mean()), without_one.mean(axis=1), "symmetric", (0.0, 1.0))
    return {f"macro_f1_mean_over_{part}s": mean, f"macro_f1_sd_over_{part}s": sd}


def level_values(group: PredictionGroup, metric: str, column: str) -> tuple[Floats, Floats]:
    """Return a metric at each level of `column`: over all queries, [level], and without each query in turn,
    [query, level].
    """
    key, value = ["query_id", column], METRICS[metric].value(group.n_labels)
    sums = statistic_sums(group.repeated_requests, group.n_labels, {metric: METRICS[metric]}, key)
    statistics = [name for name in sums.columns if name not in key]
    # Metrics are functions of sums over requests: the sums of a level, minus the sums of one query.
    totals = sums.group_by(column).agg(pl.col(statistics).sum()).sort(column)
    every = sums.select("query_id").unique().sort("query_id").join(totals, how="cross", maintain_order="left_right")
    joined = every.join(sums, on=key, how="left", suffix="_of_query", maintain_order="left")
    without_one = joined.select(pl.col(name) - pl.col(f"{name}_of_query").fill_null(0) for name in statistics)
    levels: Floats = totals.select(value).to_series().to_numpy()
    return levels, without_one.select(value).to_series().to_numpy().reshape(-1, len(levels))


def template_attributes(n_templates: int) -> Sequence[Sequence[int]] | None:
    """Return the rows of the orthogonal array if there are as many templates; None if templates have no attributes."""
    return ORTHOGONAL_ARRAY if n_templates == len(ORTHOGONAL_ARRAY) else None


def require_complete_grid(group: PredictionGroup, column: str) -> None:
    """Raise MetricError unless every query has equally many answers with each of two or more values of `column`."""
    what = f"{column.replace('_', ' ')}s"
    cells = group.rows.group_by("query_id", column).len()
    n_values, n_queries = cells[column].n_unique(), cells["query_id"].n_unique()
    if n_values < 2:
        raise MetricError(
            f"{group.where}: answers are compared over {what}, but there is only one. Build at least two."
        )
    if cells.height < n_values * n_queries or cells["len"].n_unique() > 1:
        raise MetricError(
            f"{group.where}: every query must be answered equally often with each of the {n_values} {what}, but of "
            f"{n_values * n_queries} pairs {cells.height} are present, with {sorted(set(cells['len']))} answers. "
            "Measure complete parts."
        )


NOISE_RATES = (0.0, 0.25, 0.5, 0.75, 1.0)  # five rates, evenly spaced
RELEASED_RATES = (1.0, 0.75, 0.25, -0.5, -1.5)
"""Values at which the toolkit places NOISE_RATES on the axis of its regression: its loop subtracts 1/4, 2/4, 3/4 and
4/4 one after the other, starting from 1."""


POINTS_PER_TENTH = 10.0
"""Factor from accuracy per unit of noise to percentage points per 0.1 of noise, the unit of table 3."""


def label_noise_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield the prompts of normal_requests with wrong demonstration labels at each of NOISE_RATES.

    Columns are as in normal_requests; `position` continues from one rate to the next. The prompts of rate 0 are those
    of normal_requests.

    The column `n_wrong_labels` is the number of wrong labels in a prompt. Under `paper` it is round(rate * n_shots),
    halves rounded up, and each wrong label is drawn from all wrong labels (falsified_labels). Under `released` it is
    int(rate * n_shots), the toolkit's generator chooses the demonstrations, and their labels are replaced by the next
    label of the label space (next_labels).

    With fewer than four demonstrations several rates have the same number of wrong labels, which is logged. With one
    demonstration, `paper` distinguishes rates below 0.5 from the others, `released` only rate 1. Without demonstrations
    all rates are the same, and GLER is undefined.

    Raises the errors of normal_requests, and TemplateError for a label space of one label, which has no wrong label.
    """
    n_labels = len(dataset.verbalizer.label_names)
    if n_labels < 2:
        raise TemplateError(
            f"{dataset.name} has one label, so no demonstration can have a wrong one. Leave it out of the suite "
            "staicc-robustness (--datasets)."
        )
    n_shots, definition = config.n_shots, config.prompt_definition
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
        shown = (falsified_labels(true_labels, n_labels=n_labels, n_wrong=count, seed=0) for count in n_wrong)
    for number, (rate, count, labels) in enumerate(zip(NOISE_RATES, n_wrong, shown, strict=True)):
        columns = {"noise_rate": pl.lit(rate), "n_wrong_labels": pl.lit(count, pl.Int64)}
        for rows in requests(dataset, plan, shown_labels=labels, n_queries=config.n_queries):
            yield rows.with_columns(**columns, position=pl.col("position") + number * len(true_labels))


def wrong_counts(n_shots: int, definition: Definition) -> tuple[int, ...]:
    """Return the number of wrong labels in a prompt at each of NOISE_RATES."""
    # The rates are exact in binary, so that the products are exact as well.
    return tuple(int(rate * n_shots + (0.0 if definition == "released" else 0.5)) for rate in NOISE_RATES)


def falsified_labels(labels: Ints, *, n_labels: int, n_wrong: int, seed: int) -> Ints:
    """Replace `n_wrong` labels of each row of `labels` [..., n_shots] by wrong labels, drawn uniformly.

    The draws depend on the shape and the seed, not on `n_wrong`. So a label that is wrong at one rate is replaced by
    the same wrong label at all higher rates, and accuracies at two rates differ by the noise alone.
    """
    random = np.random.default_rng(seed)
    rank = random.random(labels.shape).argsort(axis=-1).argsort(axis=-1)  # order in which labels become wrong
    wrong = (labels + random.integers(1, n_labels, size=labels.shape)) % n_labels
    return np.where(rank < n_wrong, wrong, labels)


def next_labels(labels: Ints, *, n_labels: int, n_wrong: tuple[int, ...]) -> Iterator[Ints]:
    """Yield `labels` [n, n_shots] for each number in `n_wrong`, with so many labels of each row replaced by the next
    label of the label space (the last label by the first).

    The toolkit's generator draws new positions for every rate; it continues from prompt to prompt and rate to rate.
    """
    random = Lcg()
    n_prompts, n_shots = labels.shape
    for count in n_wrong:
        is_wrong = np.zeros(labels.shape, dtype=bool)
        np.put_along_axis(is_wrong, random.samples(n_prompts, count, n_shots), True, axis=1)
        yield np.where(is_wrong, (labels + 1) % n_labels, labels)


def gler(group: PredictionGroup) -> dict[str, Measured]:
    """Measure gler, the loss of accuracy with wrong labels in demonstrations, and gler_METRIC for the other metrics of
    StaICC.

    paper: minus the slope of the least-squares line of accuracy over n_wrong_labels / n_shots, the share of wrong
    labels in the prompts. It is the loss of accuracy, along the line, from no wrong label to only wrong labels. The
    share equals the nominal noise rate only if n_shots is a multiple of four. The line is fitted to five points even if
    two rates have the same share. Without demonstrations all shares are 0, and the slope is NaN. The sign is as in the
    published tables: positive for a model that uses the labels.
    released: the slope over RELEASED_RATES. They decrease as noise increases, so that the sign is the same; their unit
    is not a noise rate.

    Two further metrics have the units of the published tables. gler_per_tenth is the "Slope/0.1" of table 3 in
    percentage points, ten times gler (the numbers of table 3 are ten times those of table 7). gler_toolkit_axis is the
    slope over RELEASED_RATES, which table 7 must have, because the toolkit computed it; under `released` it equals
    gler.

    Raises MetricError if queries are not answered equally often at each rate, if a rate is not among NOISE_RATES, or if
    the prompts of a rate differ in their number of demonstrations or of wrong labels.

    Sources: Cho & Inoue 2025, section 3.3 and table 3, after Yoo et al. 2022; StaICC 0.1.1, util/experimentor.py,
    GLER_experimentor.
    """
    require_complete_grid(group, "noise_rate")
    rates = group.rows["noise_rate"].unique().sort().to_list()
    if not {*rates} <= {*NOISE_RATES}:
        raise MetricError(f"{group.where}: noise rates must be among {NOISE_RATES}, got {rates}. Build the run again.")
    # The axis of the slope. A larger value is less noise, so that the slope has the published sign.
    released = dict(zip(NOISE_RATES, RELEASED_RATES, strict=True))
    axis = [released[rate] for rate in rates] if group.definition == "released" else _shares_of_true_labels(group)

    def slope(metric: str, axis: Sequence[float], scale: float = 1.0) -> Measured:
        """Return the slope of a metric over the axis, with its standard error by a jackknife over queries."""
        weights = scale * slope_weights(axis)
        values, without_one = level_values(group, metric, "noise_rate")
        largest = float(weights[weights > 0].sum())  # largest slope of values in [0, 1]
        return jackknifed(float(values @ weights), without_one @ weights, "symmetric", (-largest, largest))

    slopes = {"gler" if name == "accuracy" else f"gler_{name}": slope(name, axis) for name in STAICC_METRICS}
    return slopes | {
        "gler_per_tenth": slope("accuracy", axis, POINTS_PER_TENTH),
        "gler_toolkit_axis": slope("accuracy", [released[rate] for rate in rates]),
    }


def slope_weights(axis: Sequence[float]) -> Floats:
    """Return the weights with which a weighted sum of values is their least-squares slope over the points of the axis.

    NaN if all points are equal.
    """
    centred = np.array(axis) - np.mean(axis)
    return np.asarray(centred / ((centred @ centred) or math.nan))


def _shares_of_true_labels(group: PredictionGroup) -> list[float]:
    """Return the share of demonstrations with their true label at each noise rate, in ascending order of rates.

    Raises MetricError if the prompts of a rate differ in their number of demonstrations or of wrong labels.
    """
    shown = group.rows.select("noise_rate", "n_wrong_labels", "n_shots").unique().sort("noise_rate")
    if shown["noise_rate"].is_duplicated().any() or shown.null_count().sum_horizontal().item():
        raise MetricError(
            f"{group.where}: the prompts of a noise rate must have the same number of demonstrations and of wrong "
            f"labels, got {shown.rows()} as (rate, wrong, demonstrations). Build the run again."
        )
    return [1 - n_wrong / n_shots if n_shots else 1.0 for _, n_wrong, n_shots in shown.iter_rows()]


HEADLINE, VARIED, SAMPLED = "normal", "template", "sampling"
"""Parts of the total error: the part of the headline accuracy, the part that varies templates, and the part with eight
demonstration sets, which has variance components but adds nothing to the total error."""

NAMES = {
    VARIED: {
        "query": "query", "level": "template", "interaction": "query x template", "draw": "demonstration set",
        "residual": "residual",
    },
    SAMPLED: {"query": "query", "draw": "demonstration set and residual"},
}  # fmt: skip
"""Part -> component in statistics.variance_components -> its name in the tables."""
ONE_DRAW = {"query": "query and demonstration set", "level": "template", "interaction": "query x template and residual"}
"""Names of the components if a query has one demonstration set, whose effect is then part of other components."""


def total_errors() -> TotalErrors:
    """Return the collector of total errors: of values of the part HEADLINE, from answers of VARIED and SAMPLED."""
    return TotalErrors(HEADLINE, [*REQUEST_COLUMNS], {VARIED: "templates"}, _crossed_answers)


def _crossed_answers(group: PredictionGroup) -> Iterator[CrossedAnswers]:
    """Yield the answers of a group of VARIED or SAMPLED, [query, level, draw], for each metric that is a mean over
    requests. Levels are templates, draws are demonstration sets; SAMPLED has one level.
    """
    part = group.key["part"]
    if part not in NAMES or group.definition == "published":
        return
    for metric, column in REQUEST_COLUMNS.items():
        level = "template" if part == VARIED else None
        cells, n_left_out = crossed_cells(group.repeated_requests, column, level, "demonstration_set")
        names = NAMES[part] if cells.shape[2] > 1 else ONE_DRAW
        key = {**group.key, "n_shots": int(group.rows["n_shots"][0]), "metric": metric}
        now = Design(len(cells), 1, cells.shape[2]) if part == VARIED else None
        yield CrossedAnswers(key, cells, n_left_out, names, now, template_attributes(cells.shape[1]))
