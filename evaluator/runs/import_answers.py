"""Make a run of answers from other tools or services, which is measured like any other run (`evaluator import`)."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from evaluator.config import DataOptions, Definition, ImportColumns, RunConfig
from evaluator.decisions.questions import VARIED
from evaluator.files.digests import fingerprint
from evaluator.files.json_files import MANIFEST, to_builtins, write_record
from evaluator.files.whole import file_digest, writing_to
from evaluator.imports.answers import IMPORTED, NUMBERS, ImportedDataset, answer_rows
from evaluator.imports.files import read_files
from evaluator.progress import Progress, Stage
from evaluator.record import EngineRecord, ModelRecord, PartRecord, PromptsRecord
from evaluator.run import stage_records
from evaluator.run.build import Built
from evaluator.run.measure import ScoredStore
from evaluator.run.pipeline import Finished, measure_and_report
from evaluator.run.score import Scored
from evaluator.run_log import now, seconds_since
from evaluator.schemas import TOKEN_SCORES, TOKENS
from evaluator.scores.table import PlanRecord, ScoreManifest, ScoreTable, ShardRecord
from evaluator.store import REQUEST_ROWS, ROWS_PER_SHARD, PromptStore, write_shard, write_shards, write_store
from evaluator.suites.base import Described
from evaluator.suites.decide.prompts import QUESTION_KINDS, SOFT_GOLD
from evaluator.tokens.rows import TokenTotals
from evaluator.tokens.table import TokenManifest, TokenTable

ENGINE = EngineRecord(
    name="imported",
    versions={},
    device="unknown",
    dtype="unknown",
    prefix_block_tokens=None,
    tokens_per_step=1,
)


def import_answers(
    paths: Sequence[Path],
    out: Path,
    columns: ImportColumns,
    model: str,
    *,
    force: bool = False,
    costs: Sequence[str] = (),
) -> Stage[Finished]:
    """Read answers and make a run of them, with its tables and page.

    Args:
        paths: tables, or samples of lm-evaluation-harness.
        out: folder of the run.
        columns: names of the columns of the tables.
        model: name of the model that answered.
        force: whether to replace a finished run in `out` that this one does not extend.
        costs: lines about what the answers cost, for the page.

    Raises DatasetError, which names file, row and column, for answers that cannot be read, before anything is written.
    """
    started, clock = now(), time.monotonic()
    yield Progress(stage="Reading answers", done=0, total=len(paths), unit="files")
    datasets = read_files(paths, columns)
    yield Progress(stage="Reading answers", done=len(paths), total=len(paths), unit="files")
    # The digest includes the columns: a table may have the answers of several models, in different columns.
    digest = fingerprint(*map(file_digest, paths), to_builtins(columns))
    rows = answer_rows(datasets)
    inputs = _inputs(rows, datasets)
    is_floored = any(dataset.floor is not None for dataset in datasets)
    definitions: tuple[Definition, ...] = ("paper", "floored") if is_floored else ("paper",)
    config = RunConfig(
        suites=(IMPORTED,), datasets=(*inputs,), data=DataOptions(paths=(*paths,)), n_shots=0, definitions=definitions
    )
    with writing_to(out):
        stage_records.check_comparison(out, [], force=force)
        earlier = stage_records.finished_run(out, force=force)
        stage_records.check_extension(out, earlier, config=config, datasets=dict.fromkeys(inputs, digest))
        store = _write_store(out / "store" / fingerprint(rows["prompt_id"].to_list()), rows, datasets, inputs)
        tokens = _write_tokens(store, rows)
        scored_store = ScoredStore(store, tokens, _write_scores(out / "scores" / digest / tokens.fingerprint, rows))
        part = PartRecord(kind="classification", definitions=["paper"], prompts_differ=False)
        varied = replace(part, kind="diagnostic")
        parts = {dataset.part: varied if dataset.part in VARIED else part for dataset in datasets}
        built = Built(config, store, {IMPORTED: parts})
        elapsed_s, prompts = seconds_since(clock), _prompts_record(built, datasets, digest, inputs)
        stage_records.remove_replaced(out, is_comparison=False)
        record = stage_records.record_build(prompts, out, out, started, elapsed_s, force=force)
        scored = Scored(built, [scored_store], {}, ENGINE, {}, costs)
        answered = ModelRecord(
            name=model,
            kind="imported",
            revision=None,
            weights_fingerprint=digest,
            n_parameters=None,
            context_tokens=None,
        )
        return (yield from measure_and_report(record, scored, answered, out))


def _prompts_record(
    built: Built, datasets: Sequence[ImportedDataset], digest: str, inputs: dict[str, str]
) -> PromptsRecord:
    described = Described(["unknown"], "those of the files")
    return replace(
        stage_records.prompts_record(built, described),
        datasets=list(built.config.datasets),
        notes={dataset.name: [f"imported from {dataset.file}", *dataset.notes] for dataset in reversed(datasets)},
        dataset_fingerprints=dict.fromkeys(built.config.datasets, digest),
        inputs=inputs,
    )


def _inputs(rows: pl.DataFrame, datasets: Sequence[ImportedDataset]) -> dict[str, str]:
    """Return dataset -> its inputs: its file, if several datasets of the file share queries, else file and dataset."""
    files = {dataset.name: dataset.file for dataset in datasets}
    asked = rows.select("query_id", "dataset", file=pl.col("dataset").replace(files)).unique()
    shared = {*asked.filter(pl.len().over("file", "query_id") > 1)["file"]}
    return {name: file if file in shared else f"{file}, {name}" for name, file in files.items()}


def _write_store(
    folder: Path, rows: pl.DataFrame, datasets: Sequence[ImportedDataset], inputs: Mapping[str, str]
) -> PromptStore:
    numbers = [(dataset.name, dataset.part, dataset.numbers, dataset.floor) for dataset in datasets]
    kinds = [(one.name, one.kind, inputs[one.name]) for one in datasets if one.part == IMPORTED]
    soft = rows.filter(pl.col("soft_gold").is_not_null(), part=IMPORTED).unique(["dataset", "query_id"])
    tables = {
        IMPORTED: pl.DataFrame(numbers, schema=NUMBERS, orient="row"),
        "question_kinds": pl.DataFrame(kinds, schema=QUESTION_KINDS, orient="row"),
        "soft_gold": soft.select(SOFT_GOLD.names()).sort("dataset", "query_id"),
    }
    return write_store(folder, rows.lazy().select(REQUEST_ROWS.names()).cast(REQUEST_ROWS), tables)


def _write_tokens(store: PromptStore, rows: pl.DataFrame) -> TokenTable:
    """Write a row without context for each answer. Tokens are not known: the i-th label has the one token i."""
    labels = pl.int_ranges(pl.col("label_names").list.len()).list.eval(pl.concat_list(pl.element()))
    context = pl.lit([], pl.List(pl.Int32))
    tokens = rows.select("prompt_id", token_id="prompt_id", ask="ask", context=context, continuations=labels)
    folder = store.folder / "tokens-imported"
    written = write_shards(folder, "tokens", tokens.cast(TOKENS).lazy(), rows_per_shard=ROWS_PER_SHARD)
    totals = TokenTotals(request_tokens=0, tokens=0, floor_tokens=0, block_floor_tokens={})
    manifest = TokenManifest(tokenizer="unknown", label_boundary="merged", shards=written, counts=totals)
    write_record(folder / MANIFEST, manifest)
    return TokenTable(folder, manifest)


def _write_scores(folder: Path, rows: pl.DataFrame) -> ScoreTable:
    ones = pl.col("log_likelihoods").list.eval(pl.lit(1, pl.Int32))
    scores = rows.select("log_likelihoods", token_id="prompt_id", token_counts=ones).select(TOKEN_SCORES.names())
    name = "scores-imported-00000.arrow"
    sha256 = write_shard(folder / name, scores.cast(TOKEN_SCORES))
    shard = ShardRecord(sha256=sha256, prompts=rows.height, prompt_tokens=0, cached_tokens=0, elapsed_s=0.0)
    plan = PlanRecord(reused={}, prompts=rows.height, reused_prompts=0, shard_tokens=1, shares_prefixes=False)
    table = ScoreTable(folder, ScoreManifest())
    return table.write_manifest(ScoreManifest(engine=ENGINE, plans={"scores-imported": plan}, shards={name: shard}))
