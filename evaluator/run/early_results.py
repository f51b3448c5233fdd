"""Say the accuracy of each dataset as soon as its last prompt is scored, while the others are still asked.

It is the accuracy that the table of metrics will have: the same predictions and the same metric.
"""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from evaluator.methods import REFERENCE_METHOD
from evaluator.methods.predictions import predict
from evaluator.metrics import METRICS
from evaluator.metrics.per_request import DEFINITIONS, measured_groups
from evaluator.metrics.values import metric_values
from evaluator.progress import Progress
from evaluator.run.build import Built
from evaluator.run.scored_run import ScoredStore, scored_run
from evaluator.schemas import Definition
from evaluator.scores.table import ScoreTable
from evaluator.suites import SUITES, methods_of

STAGE = "First results"


class EarlyResults:
    """Yields a line for each dataset that is complete in the run's first part of classification, by vanilla."""

    def __init__(self, built: Built, part: ScoredStore) -> None:
        self._built, self._part = built, part
        self._shown = _first_part(built)
        self._waiting = pl.DataFrame(schema={"dataset": pl.String(), "token_id": pl.String()})
        if self._shown:
            self._waiting = _needed(part, *self._shown[:2])
        self._n_datasets = self._waiting["dataset"].n_unique()
        self._seen: set[str] = set()

    def after_shard(self, table: ScoreTable) -> Iterator[Progress]:
        """Yield what a finished shard makes known."""
        if self._waiting.is_empty():
            return
        before = set(self._waiting["dataset"].unique())
        self._waiting = self._waiting.join(self._new_rows(table), on="token_id", how="anti", maintain_order="left")
        left = set(self._waiting["dataset"].unique())
        complete, n_left = sorted(before - left), len(left)
        for number, dataset in enumerate(complete):
            done = self._n_datasets - n_left - len(complete) + number + 1
            line = f"{dataset}: {self._accuracy(dataset, table)} ({done} of {self._n_datasets} datasets scored)"
            yield Progress(stage=STAGE, done=done, total=self._n_datasets, unit="datasets", line=line)

    def _new_rows(self, table: ScoreTable) -> pl.DataFrame:
        """Return the rows that have scores since the last call; at the first, those of earlier runs are among them."""
        new = sorted(name for name in table.manifest.shards if name.startswith("scores") and name not in self._seen)
        first = not self._seen
        self._seen.update(new)
        if first:
            return table.read("scores").select("token_id").collect()
        return pl.concat(pl.scan_ipc(table.folder / name).select("token_id") for name in new).collect()

    def _accuracy(self, dataset: str, table: ScoreTable) -> str:
        assert self._shown is not None, "there are rows to wait for"
        suite, part, definition = self._shown
        scored = scored_run(self._built, [replace(self._part, scores=table)]).scored.of_dataset(dataset)
        rows = replace(scored, rows=scored.rows.filter(suite=suite), parts={part: scored.parts[part]})
        methods = {REFERENCE_METHOD: methods_of(self._built.config.suites)[REFERENCE_METHOD]}
        predictions = predict(rows, methods, [definition]).collect()
        (group,) = measured_groups(predictions, definition)
        accuracy = metric_values(group.requests, group.n_labels, {"accuracy": METRICS["accuracy"]})["accuracy"]
        return f"accuracy {accuracy.value:.3f} on {group.requests.height:,} requests"


def _first_part(built: Built) -> tuple[str, str, Definition] | None:
    """Return the suite, the part and the definition whose accuracy is said; None if the run has no such part."""
    if REFERENCE_METHOD not in built.config.methods:
        return None
    for suite, parts in built.parts.items():
        if SUITES[suite].next_round is not None:
            return None
        for name, part in parts.items():
            shared = [one for one in DEFINITIONS if one in built.config.definitions and one in part.definitions]
            if part.kind == "classification" and shared:
                return suite, name, shared[0]
    return None


def _needed(part: ScoredStore, suite: str, name: str) -> pl.DataFrame:
    """Return dataset and token_id of every row that the accuracies need."""
    requests = part.store.requests().filter(suite=suite, part=name).select("dataset", "prompt_id")
    tokens = part.tokens.tokens().select("prompt_id", "token_id")
    return requests.join(tokens, on="prompt_id").select("dataset", "token_id").unique(maintain_order=True).collect()
