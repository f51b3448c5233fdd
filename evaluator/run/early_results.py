"""Show the accuracy of each dataset as soon as its last prompt is scored, while others are still being scored.

It is the accuracy that the table of metrics will have: the same predictions and the same metric.
"""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from evaluator.files.whole import scan_arrow
from evaluator.methods import REFERENCE_METHOD
from evaluator.methods.base import MeasuredPart, ScoredRequests
from evaluator.methods.predictions import scored_definitions
from evaluator.metrics.per_request import DEFINITIONS, per_request_columns
from evaluator.progress import Progress
from evaluator.run.build import Built
from evaluator.run.scored_run import ScoredStore
from evaluator.schemas import PROMPTS_KEY, Definition
from evaluator.scores.compute import AfterShard, no_progress
from evaluator.scores.prompts import prompt_scores
from evaluator.scores.table import ScoreTable
from evaluator.store.ids import id_numbers
from evaluator.suites import SUITES, methods_of

STAGE = "First results"


def early_results(built: Built, scored: ScoredStore) -> AfterShard:
    """Return what says the accuracy of each dataset that is complete in the run's first part of classification."""
    shown = _first_part(built)
    return _EarlyResults(built, scored, shown).after_shard if shown else no_progress


class _Shown(NamedTuple):
    """Suite, part and definition of the accuracy that is shown."""

    suite: str
    part: str
    definition: Definition


class _EarlyResults:
    """Yields a line for each dataset that is complete, by vanilla."""

    def __init__(self, built: Built, scored: ScoredStore, shown: _Shown) -> None:
        self._built, self._scored, self._shown = built, scored, shown
        self._waiting = _needed(scored, shown)
        self._n_waiting = _counts(self._waiting)
        self._n_datasets = len(self._n_waiting)
        self._seen: set[str] = set()
        self._new: list[pl.DataFrame] = []  # rows that have scores since rows were last taken from those that wait

    def after_shard(self, table: ScoreTable) -> Iterator[Progress]:
        """Yield the accuracies that a finished shard completes."""
        if not self._n_waiting:
            return
        self._new.append(self._new_rows(table))
        if sum(map(len, self._new)) < min(self._n_waiting.values()):
            return  # too few for any dataset: what waits is looked through only now and then
        before, new = self._n_waiting, pl.concat(self._new)
        self._new.clear()
        self._waiting = self._waiting.join(new, on="token_id", how="anti", maintain_order="left")
        self._n_waiting = _counts(self._waiting)
        complete, n_left = sorted(before.keys() - self._n_waiting.keys()), len(self._n_waiting)
        for number, dataset in enumerate(complete):
            done = self._n_datasets - n_left - len(complete) + number + 1
            line = f"{dataset}: {self._accuracy(dataset, table)} ({done} of {self._n_datasets} datasets scored)"
            yield Progress(stage=STAGE, done=done, total=self._n_datasets, unit="datasets", line=line)

    def _new_rows(self, table: ScoreTable) -> pl.DataFrame:
        """Return the rows that have scores since the last call; at the first, those of earlier runs are among them."""
        new = sorted(name for name in table.manifest.shards if name.startswith("scores") and name not in self._seen)
        first = not self._seen
        self._seen.update(new)
        rows = table.read("scores") if first else scan_arrow(*(table.folder / name for name in new))
        return rows.select(id_numbers("token_id")).collect(engine="streaming")

    def _accuracy(self, dataset: str, table: ScoreTable) -> str:
        suite, part, definition = self._shown
        requests = self._scored.store.requests().filter(suite=suite, part=part, dataset=dataset)
        tokens = self._scored.tokens.tokens().join(requests.select(PROMPTS_KEY).unique(), on=PROMPTS_KEY, how="semi")
        rows = requests.join(prompt_scores(tokens, table.read("scores")), on=PROMPTS_KEY, maintain_order="left")
        measured_part = self._built.parts[suite][part]
        scored = ScoredRequests(
            rows=rows, parts={part: MeasuredPart(measured_part.kind, measured_part.definitions)}, answered_part=part
        )
        method = methods_of(self._built.config.suites)[REFERENCE_METHOD]
        answers = method.label_probs(scored, scored_definitions([definition])[0])
        predicted = answers.select("position", "query_id", "gold", "label_probs").collect(engine="streaming")
        n_labels, where = len(predicted["label_probs"][0]), f"{suite}, {part}, {dataset}"
        correct = per_request_columns(predicted, n_labels, definition, where)["correct"]
        return f"accuracy {correct.sum() / predicted.height:.3f} on {predicted.height:,} requests"


def _first_part(built: Built) -> _Shown | None:
    """Return the accuracy to show; None if the run has no part of classification, or chooses prompts by scores."""
    if REFERENCE_METHOD not in built.config.methods:
        return None
    for suite, parts in built.parts.items():
        if SUITES[suite].family.rounds:
            return None
        for name, part in parts.items():
            shared = [one for one in DEFINITIONS if one in built.config.definitions and one in part.definitions]
            if part.kind == "classification" and shared:
                return _Shown(suite, name, shared[0])
    return None


def _counts(waiting: pl.DataFrame) -> dict[str, int]:
    """Return the number of rows of each dataset."""
    return dict(waiting["dataset"].cast(pl.String).value_counts().iter_rows())


def _needed(scored: ScoredStore, shown: _Shown) -> pl.DataFrame:
    """Return dataset and token_id of every row that the accuracies need."""
    requests = scored.store.requests().filter(suite=shown.suite, part=shown.part)
    requests = requests.select(pl.col("dataset").cast(pl.Categorical), id_numbers("prompt_id"))
    tokens = scored.tokens.tokens().select(id_numbers("prompt_id"), id_numbers("token_id"))
    needed = requests.join(tokens, on="prompt_id").select("dataset", "token_id").unique()
    return needed.collect(engine="streaming")
