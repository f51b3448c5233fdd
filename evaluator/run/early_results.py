"""Show the accuracy of each dataset as soon as its last prompt is scored, while others are still being scored.

It is the accuracy that the table of metrics will have: the same predictions and the same metric.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import polars as pl

from evaluator.files.whole import scan_arrow
from evaluator.methods import REFERENCE_METHOD
from evaluator.methods.base import MeasuredPart, ScoredRequests
from evaluator.methods.predictions import predict
from evaluator.metrics.per_request import DEFINITIONS, label_matrix, per_request_columns
from evaluator.progress import Progress
from evaluator.run.build import Built
from evaluator.run.scored_run import ScoredStore
from evaluator.schemas import PROMPTS_KEY, Definition
from evaluator.scores.compute import AfterShard, no_progress
from evaluator.scores.prompts import join_prompt_scores
from evaluator.scores.sorted_join import are_many, joined_requests
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
        n_requests = requests.select(pl.len()).collect().item()
        accuracy = _accuracy(
            map(self._predictions, self._joined(requests, n_requests, table)), definition, f"{suite}, {part}, {dataset}"
        )
        return f"accuracy {accuracy:.3f} on {n_requests:,} requests"

    def _joined(self, requests: pl.LazyFrame, n_requests: int, table: ScoreTable) -> Iterator[pl.DataFrame]:
        """Yield requests with their scores."""
        tokens = self._scored.tokens.tokens()
        if are_many(n_requests):
            yield from joined_requests(requests, tokens, table, self._scored.store.folder)
            return
        asked = tokens.join(requests.select(PROMPTS_KEY).unique(), on=PROMPTS_KEY, how="semi", maintain_order="left")
        scores = table.read("scores").join(asked.select("token_id"), on="token_id", how="semi")
        by_prompt = join_prompt_scores(asked, scores.collect(engine="streaming").lazy())
        yield requests.join(by_prompt, on=PROMPTS_KEY, how="inner", maintain_order="left").collect()

    def _predictions(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return query_id, gold and label_probs of requests with their scores."""
        suite, part, definition = self._shown
        about = self._built.parts[suite][part]
        scored = ScoredRequests(rows=rows.lazy(), parts={part: MeasuredPart(about.kind, about.definitions)})
        methods = {REFERENCE_METHOD: methods_of(self._built.config.suites)[REFERENCE_METHOD]}
        predictions = predict(scored, methods, [definition])
        return predictions.select("query_id", "gold", "label_probs").collect()


def _accuracy(predictions: Iterable[pl.DataFrame], definition: Definition, where: str) -> float:
    """Return the accuracy of predictions of one dataset, of which one frame is in memory at a time."""
    check = DEFINITIONS[definition].check
    # Whether the definition takes the softmax, only all rows tell, so that answers are counted with it and without.
    n_correct, is_kept, n_requests = {True: 0, False: 0}, True, 0
    for rows in predictions:
        n_labels = len(rows["label_probs"][0])
        is_kept = is_kept and (check is None or check(label_matrix(rows, n_labels, definition, where)))
        for softmaxed in n_correct:
            measured = per_request_columns(rows, n_labels, definition, where, softmaxed=softmaxed)
            n_correct[softmaxed] += int(measured["correct"].sum())
        n_requests += rows.height
    return n_correct[not is_kept] / n_requests


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
