"""Join the requests of a run with the scores of a model, and compute and write the tables of its suites."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

import polars as pl

from evaluator.files.json_files import to_builtins
from evaluator.files.whole import remove_tables, scan_parquet, table_path, write_table
from evaluator.methods.base import ScoredRequests
from evaluator.metrics.table import queries_table, query_texts
from evaluator.progress import Progress, Stage
from evaluator.record import MeasuresRecord, RunRecord
from evaluator.run.build import Built
from evaluator.run.folders import PAGE, write_stage
from evaluator.run.until import STOPPED, decisions, rounds_of, until_table
from evaluator.run_log import seconds_since
from evaluator.schemas import PREDICTIONS, PROMPTS_KEY, QUERIES, UNTIL
from evaluator.scores import table as score_table
from evaluator.store import PromptStore, kept
from evaluator.suites import chosen_methods, families_of
from evaluator.suites.base import ScoredRun
from evaluator.tokens.table import TokenTable

logger = logging.getLogger(__name__)

STATES_PER_GROUP = 1_024
"""Hidden states in a row group of a temporary file: few, because a state takes kilobytes; readers skip whole groups."""


@dataclass(frozen=True)
class ScoredStore:
    """A prompt store with its tokens and scores."""

    store: PromptStore
    tokens: TokenTable
    scores: score_table.ScoreTable

    @cached_property
    def results(self) -> Mapping[score_table.Kind, pl.LazyFrame]:
        """Return the results of each kind for the prompts that have them: schemas.SCORES and schemas.HIDDEN_STATES."""
        rows, scores, states = self.tokens.tokens, self.scores.read("scores"), self.scores.read("states")
        return {"scores": score_table.prompt_scores(rows, scores), "states": score_table.prompt_states(rows, states)}

    def requests(self, kind: score_table.Kind) -> pl.LazyFrame:
        """Return the requests that have results of a kind, joined with these results."""
        return self.store.requests().join(self.results[kind], on=PROMPTS_KEY, how="inner", maintain_order="left")


def scored_run(built: Built, stores: Sequence[ScoredStore]) -> ScoredRun:
    """Join a run's requests with their scores and hidden states; requests without results are left out.

    Args:
        built: the run's configuration and the store of its first round.
        stores: the store of the first round, then the store of the second if there is one.
    """
    first = stores[0]
    scored = ScoredRequests(
        rows=pl.concat([each.requests("scores") for each in stores]),
        states=pl.concat([each.requests("states") for each in stores]),
        distances=first.scores.distances(),
        tokens=first.tokens.tokens,
        parts={name: part for parts in built.parts.values() for name, part in parts.items()},
    )
    methods = chosen_methods(built.config)
    return ScoredRun(config=built.config, store=built.store, scored=scored, methods=methods, model="")


def complete_run(run: ScoredRun, stores: Sequence[ScoredStore]) -> ScoredRun:
    """Return the run after a check that every request has exactly one score. Raises ScoreError otherwise.

    If the run chooses prompts by earlier scores (until.rounds_of), requests of other prompts are left out.
    """
    chosen = pl.concat(rounds(run)).unique() if (rounds := rounds_of(run.config)) else None

    def of_run(rows: pl.LazyFrame) -> pl.LazyFrame:
        """Keep the rows of the prompts that the run has chosen."""
        return rows if chosen is None else rows.join(chosen.lazy(), PROMPTS_KEY, "semi", maintain_order="left")

    run = replace(run, scored=replace(run.scored, rows=of_run(run.scored.rows)))
    for each in stores:
        requests, prompts = each.store.requests(), of_run(each.store.prompts())
        scores, is_state = each.results["scores"], pl.col("ask") == "state"
        score_table.require_complete(requests, prompts.filter(~is_state), scores)
        score_table.warn_if_equal(scores)
        score_table.require_states(requests, prompts.filter(is_state), each.results["states"])
    return run


@contextmanager
def on_disk(run: ScoredRun, folder: Path) -> Iterator[ScoredRun]:
    """Write the joined requests of a complete run to temporary files in a folder, to compute each join once."""
    scored = run.scored
    with kept(scored.rows, folder) as rows, kept(scored.states, folder, rows_per_group=STATES_PER_GROUP) as states:
        yield replace(run, scored=replace(scored, rows=rows, states=states))


def measure_run(
    record: RunRecord, built: Built, stores: Sequence[ScoredStore], out: Path, options: Mapping[str, object]
) -> Stage[RunRecord]:
    """Write the tables of a scored run, and return its record with their digests.

    Args:
        record: record of the run.
        built: the run's configuration and prompts.
        stores: the scored store of each round.
        out: folder of the run.
        options: suite -> options of the measure stage.

    Raises ScoreError if a request has no score or several.
    """
    clock = time.monotonic()
    assert record.scores is not None, "the run is scored"
    model = record.model.title if record.model else out.name
    if record.measures and record.measures.options and not options:
        logger.warning("The tables lose what `evaluator measure` took before: %s", record.measures.options)
    digests: dict[str, str] = {}

    def keep(name: str, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Write a table that need not fit into memory, and return a scan of it (ScoredRun.keep)."""
        digests[name] = write_table(out, name, rows)
        return scan_parquet(table_path(out, name))

    scored = scored_run(built, stores)
    run = replace(complete_run(scored, stores), model=model, options=options, keep=keep)
    until = until_table(scored) if run.config.until.goal else UNTIL.to_frame()
    is_stopped = not until.filter(pl.col("n_scored") < pl.col("n_queries")).is_empty()
    with on_disk(run, out) as run:
        families = families_of(run.config.suites)
        own = [("until", until)] if run.config.until.goal else []
        for name, table in chain(own, *(family.measure(run) for family in families)):
            yield Progress(stage="Measuring", done=len(digests), total=len(digests) + 1, unit="tables")
            # The intervals of a run that stopped early take its number of queries as fixed: the column says so.
            if name == "metrics" and is_stopped:
                given = pl.concat_str("ci_given", pl.lit(STOPPED), separator=", ", ignore_nulls=True)
                table = table.with_columns(ci_given=given)
            digests[name] = write_table(out, name, table)
        path = table_path(out, "predictions")
        predictions = scan_parquet(path) if "predictions" in digests else pl.LazyFrame(schema=PREDICTIONS)
        texts = query_texts(pl.concat(each.store.prompts() for each in stores))
        with kept(queries_table(run.scored, texts, predictions, out), out, QUERIES) as queries:
            keep("queries", queries)
    remove_tables(out, record.measures.tables if record.measures else {}, digests)
    measures = MeasuresRecord(
        scores=record.scores.fingerprint,
        tables=dict(sorted(digests.items())),
        options=to_builtins({name: given for name, given in options.items() if given != type(given)()}),
        decisions=list(decisions(until, run.config.until)),
        is_stopped=is_stopped,
    )
    if measures != record.measures and (out / PAGE).is_file():
        (out / PAGE).unlink()  # it shows outdated numbers
    record = write_stage(out, record, "measure", elapsed_s={"measure": seconds_since(clock)}, measures=measures)
    yield Progress(stage="Measuring", done=len(digests), total=len(digests), unit="tables")
    return record
