"""Build and measure the learning curve: accuracy after 0, 1, ..., k demonstrations of StaICC-Normal's prompts.

A prompt with k demonstrations is cut before the label of each demonstration. The results are prompts with 0, 1, ...,
k - 1 demonstrations whose query is the next demonstration. They are prefixes of the whole prompt, which StaICC-Normal
scores in any case, so that they cost few further tokens. Their accuracy shows how much each demonstration helps.

The queries of cut prompts are examples of the demonstration split; the queries of whole prompts are examples of the
test split. Cut prompts lack the template's query prefix (StaICC's templates have none).
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from evaluator.config import Definition, RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.methods.base import LABEL_SCORE, softmax
from evaluator.metrics.classification import DEFINITIONS, METRICS, REQUEST_COLUMNS, metric_values, per_request_columns
from evaluator.metrics.intervals import mean_over_datasets, with_intervals
from evaluator.prompts.rows import classification_prompts, n_sets, normal_requests, of_parts
from evaluator.schemas import LEARNING_CURVE, LEARNING_CURVE_KEY, declared
from evaluator.suites.base import ScoredRun

PART = "learning_curve"


def learning_curve_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield StaICC-Normal's prompts, cut before the label of each demonstration, and the uncut prompts.

    Cut prompts have the part `learning_curve`. The demonstration at the end of a cut prompt is its query:
    `training_row` is its row of the demonstration split, `gold` its label, and `n_shots` the number of demonstrations
    before it; `query_id` is null. Uncut prompts have the part `normal`. They are left out if the run has the suite
    staicc-normal, which has the same rows.
    """
    for whole in normal_requests(dataset, n_shots=config.n_shots, n_queries=config.n_queries):
        uncut = [] if "staicc-normal" in config.suites else [whole]
        yield from of_parts({"normal": uncut, PART: _cut(dataset, whole, config.n_shots)})


def _cut(dataset: ClassificationDataset, whole: pl.DataFrame, n_shots: int) -> Iterator[pl.DataFrame]:
    """Yield the requests of `whole` with prompts that end before the label of demonstration 0, 1, ..., n_shots - 1."""
    ids = np.array(whole["demonstration_ids"].to_list(), dtype=np.int64).reshape(whole.height, n_shots)
    unprefixed = replace(dataset, template=replace(dataset.template, query_prefix=""))
    for n_before in range(n_shots):
        asked = ids[:, n_before]
        prompts = classification_prompts(
            unprefixed,
            queries=dataset.demonstration["texts"].gather(asked),
            demonstrations=dataset.demonstration,
            demonstration_ids=ids[:, :n_before],
        )
        yield whole.with_columns(
            *prompts,
            position=pl.col("position") + n_before * n_sets(dataset) * dataset.test.height,
            query_id=pl.lit(None, pl.Int64),
            training_row=pl.Series(asked),
            gold=dataset.demonstration["gold"].gather(asked),
        )


def learning_curve(run: ScoredRun, whole: str = "normal", independent: bool = True) -> pl.DataFrame:
    """Return accuracy and true-label probability of vanilla after 0, 1, ... demonstrations, with 95% intervals.

    Intervals are clustered by the classified example. The points of a curve share examples and prompts, so that
    overlapping intervals do not tell whether two points differ.

    Args:
        run: has requests of the parts `learning_curve` and `whole`.
        whole: part with the uncut prompts.
        independent: whether the datasets are independent.

    Returns schemas.LEARNING_CURVE, sorted by its key.
    """
    rows = run.scored.rows.filter(pl.col("for_part").is_null(), pl.col("part").is_in([PART, whole])).collect()
    rows = rows.filter(pl.col("gold").is_not_null())
    # Several suites of a run can have the uncut prompts.
    rows = rows.unique(["part", "dataset", "position"], keep="first", maintain_order=True)
    points = [point for definition in run.config.definitions for point in _points(rows, definition)]
    datasets = with_intervals(pl.DataFrame(points, infer_schema_length=None)).rename({"n_queries": "n_examples"})
    sizes = {name: pl.col(name).sum() for name in ("n_examples", "n_requests")} | {"chance": pl.col("chance").mean()}
    means = mean_over_datasets(datasets, LEARNING_CURVE_KEY, independent=independent, **sizes)
    return declared(pl.concat([datasets, means], how="diagonal_relaxed"), LEARNING_CURVE, LEARNING_CURVE_KEY)


def _points(rows: pl.DataFrame, definition: Definition) -> Iterator[dict[str, object]]:
    """Yield a row of LEARNING_CURVE, without its interval, for each dataset, metric and number of demonstrations."""
    metrics = {name: METRICS[name] for name in REQUEST_COLUMNS}
    score = LABEL_SCORE["paper" if DEFINITIONS[definition].predictions == "paper" else "released"]
    probs, example = softmax(pl.col(score)), pl.coalesce("training_row", "query_id")
    examples = rows.with_columns(query_id=example, label_probs=probs).sort("dataset", "n_shots", "position")
    for (dataset, n_shots), group in examples.group_by("dataset", "n_shots", maintain_order=True):
        n_labels = len(group["label_names"][0])
        where = f"{dataset}, {n_shots} demonstrations, {definition}"
        requests = per_request_columns(group, n_labels, definition, where)
        sizes = {"n_queries": requests["query_id"].n_unique(), "n_requests": requests.height, "chance": 1 / n_labels}
        for name, measured in metric_values(requests, n_labels, metrics).items():
            key = {"dataset": dataset, "metric": name, "definition": definition, "n_shots": n_shots}
            yield key | sizes | measured._asdict()
