"""Suites and datasets go in; the requests they make and the distinct prompts behind them come out, as Arrow files.

Everything that a suite asks of a model is a row of REQUESTS; rows that ask the same share one row of PROMPTS. The
folder is named by a fingerprint of all that decides its content, so a stale store can be left behind but never be read.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import evaluator
from evaluator.config import StoreConfig
from evaluator.datasets import DATASETS, INSTALLED
from evaluator.datasets.multiple_choice import AnyDataset
from evaluator.datasets.staicc import load_staicc
from evaluator.errors import ConfigError, StoreError
from evaluator.files import fingerprint, read_json, source_fingerprint, write_json
from evaluator.methods.base import Asked
from evaluator.methods.predictions import scored_definitions
from evaluator.progress import Progress, Stage
from evaluator.run.config_record import pvi_record, search_record, sources_record
from evaluator.schemas import PROMPTS, PROMPTS_KEY, REQUESTS, REQUESTS_KEY, Definition
from evaluator.store import shards
from evaluator.suites import ALL_METHODS as METHODS
from evaluator.suites import SUITES
from evaluator.suites.in_context_pvi.query_schema import PVI_CANDIDATES_KEY, PVI_QUERIES_KEY
from evaluator.suites.in_context_pvi.suite import pvi_datasets
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES_KEY, TRIED_PROMPTS_KEY
from evaluator.suites.prompt_search.suite import search_datasets

ROWS_PER_SHARD = 65_536

QUESTION = ["ask", "prompt", "continuations"]
"""The columns of PROMPTS that say what is asked."""

TABLE_KEYS = {
    "search_examples": SEARCH_EXAMPLES_KEY,
    "tried_prompts": TRIED_PROMPTS_KEY,
    "pvi_queries": PVI_QUERIES_KEY,
    "pvi_candidates": PVI_CANDIDATES_KEY,
}
"""What suites write beside their requests -> the key it is sorted by."""


@dataclass(frozen=True)
class PromptStore:
    """A store on disk, whole."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        return self.folder.name

    def requests(self) -> pl.LazyFrame:
        """All requests, in the order of their key."""
        return shards.scan_shards(self.folder, list(self.manifest["requests"]), REQUESTS)

    def prompts(self) -> pl.LazyFrame:
        """Distinct prompts, in the order of their text, so that neighbours share the longest prefix."""
        return shards.scan_shards(self.folder, list(self.manifest["prompts"]), PROMPTS)

    def table(self, name: str, schema: pl.Schema) -> pl.LazyFrame:
        """A table that the suite wrote beside its requests; without rows where it wrote none."""
        return shards.scan_shards(self.folder, list(self.manifest["tables"].get(name, {})), schema)


def build_store(config: StoreConfig, out: Path) -> Stage[PromptStore]:
    """Write the store of `config` under `out`, or find that it is there already; its names are known ones."""
    datasets = yield from read_datasets(config)
    folder = out / "store" / store_fingerprint(config, datasets.values())
    if (found := open_store(folder)) is not None:
        return _with_sources(found, config)

    frames: list[pl.DataFrame] = []
    tables: dict[str, list[pl.DataFrame]] = defaultdict(list)
    for done, dataset in enumerate(datasets.values()):
        yield Progress(stage="Building prompts", done=done, total=len(datasets), unit="datasets")
        for suite in config.suites:
            frames += suite_requests(suite, dataset, config)
            for name, table in suite_tables(suite, dataset, config).items():
                tables[name].append(table)
    asked = with_prompt_ids(pl.concat([frame.select(sorted(frame.columns)) for frame in frames]))
    yield Progress(stage="Building prompts", done=len(datasets), total=len(datasets), unit="datasets")
    named = {name: pl.concat(parts).sort(TABLE_KEYS[name]) for name, parts in tables.items()}
    return write_store(folder, config, datasets.values(), asked, named)


def _with_sources(store: PromptStore, config: StoreConfig) -> PromptStore:
    """The same store, that says where the data lie now."""
    manifest = store.manifest | {"sources": sources_record(config)}
    if manifest != store.manifest:
        write_json(store.folder / shards.MANIFEST, manifest)
    return PromptStore(store.folder, manifest)


def read_datasets(config: StoreConfig) -> Stage[dict[str, AnyDataset]]:
    """Return datasets by name, as the suites take them."""
    if config.search:
        return {**search_datasets(config.datasets, config.search)}
    if config.pvi:
        return {**pvi_datasets(config.datasets, config.pvi)}
    datasets: dict[str, AnyDataset] = {}
    for done, name in enumerate(config.datasets):
        yield Progress(stage="Reading datasets", done=done, total=len(config.datasets), unit="datasets")
        datasets[name] = load_staicc(name)
    return datasets


def check_names(config: StoreConfig) -> None:
    """Raise ConfigError for a suite, dataset or method that does not exist."""
    asked: list[tuple[str, tuple[str, ...], Collection[str]]] = [
        ("suite", config.suites, SUITES),
        ("dataset", config.datasets, DATASETS if config.pvi else INSTALLED),
        ("method", config.methods, METHODS),
    ]
    for kind, names, known in asked:
        for name in names:
            if name not in known:
                raise ConfigError(f"There is no {kind} {name!r}. There are: {', '.join(known)}.")
    measured = {definition for name in config.suites for definition in SUITES[name].definitions}
    written = {part for name in config.suites for part in SUITES[name].parts}
    for name in config.methods:
        answered = METHODS[name].parts
        if answered is not None and not written & {*answered}:
            raise ConfigError(
                f"The method {name} answers {', '.join(answered)}, which {', '.join(config.suites)} "
                f"does not ask. {_asking(answered)} does: run that, or leave the method out (--methods)."
            )
        if not measured & {*METHODS[name].definitions} & {*scored_definitions(config.definitions)}:
            raise ConfigError(
                f"The method {name} has the definitions {', '.join(METHODS[name].definitions)} and these suites are "
                f"measured under {', '.join(sorted(measured))}: --definition {', '.join(config.definitions)} leaves "
                "nothing. Choose another --definition."
            )


def _asking(parts: Collection[str]) -> str:
    """Of the suites those that write one of these parts."""
    return " or ".join(name for name, suite in SUITES.items() if {*parts} & {*suite.parts})


def suite_requests(suite: str, dataset: AnyDataset, config: StoreConfig) -> list[pl.DataFrame]:
    """What a suite asks of a dataset, and what the methods ask besides; what two methods ask alike is asked once."""
    rows = SUITES[suite].requests(dataset, config)
    extra = [
        frame
        for name in config.methods
        if (write := METHODS[name].requests) and (asked := asked_of(name, dataset, rows, config)) is not None
        for frame in write(asked)
    ]
    return [rows.with_columns(suite=pl.lit(suite)), *with_suite(extra, suite)]


def with_suite(extra: list[pl.DataFrame], suite: str) -> list[pl.DataFrame]:
    """Methods' rows as one frame, without repetitions; none where there are none."""
    if not extra:
        return []
    rows = pl.concat([frame.select(sorted(frame.columns)) for frame in extra])
    return [rows.unique(["part", "position", *QUESTION], maintain_order=True).with_columns(suite=pl.lit(suite))]


def asked_of(method: str, dataset: AnyDataset, rows: pl.DataFrame, config: StoreConfig) -> Asked | None:
    """What a method writes its own requests from; None where a suite has nothing that it answers."""
    answered = METHODS[method].parts
    answerable = rows if answered is None else rows.filter(pl.col("part").is_in(answered))
    return None if answerable.is_empty() else Asked(dataset, answerable, config)


def suite_tables(suite: str, dataset: AnyDataset, config: StoreConfig) -> dict[str, pl.DataFrame]:
    write = SUITES[suite].tables
    return write(dataset, config) if write else {}


def measured_parts(config: StoreConfig) -> dict[str, list[Definition]]:
    """The parts that the suites can write, and the definitions each can be measured under in this run."""
    measured: dict[str, list[Definition]] = {}
    for suite in map(SUITES.__getitem__, config.suites):
        for part in suite.parts:
            possible = [config.prompt_definition] if part in suite.prompts_differ else suite.definitions
            measured[part] = [name for name in scored_definitions(config.definitions) if name in possible]
    return measured


def with_prompt_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """Give rows that ask the same of a model the same id: a digest of the prompt and its continuations.

    A prompt that asks for its own log-likelihood counts as one with an empty continuation.
    """
    distinct = rows.select(QUESTION).unique()
    scored = pl.when(ask="text").then(pl.lit([""])).otherwise("continuations")
    # Polars' own hash is neither wide enough nor the same in every version, and ids are kept on disk.
    ids = [
        hashlib.blake2b("\0".join([prompt, *continuations]).encode(), digest_size=16).hexdigest()
        for prompt, continuations in distinct.select("prompt", scored).iter_rows()
    ]
    return rows.join(distinct.with_columns(prompt_id=pl.Series(ids, dtype=pl.String)), on=QUESTION)


def write_store(
    folder: Path,
    config: StoreConfig,
    datasets: Collection[AnyDataset],
    asked: pl.DataFrame,
    tables: dict[str, pl.DataFrame],
) -> PromptStore:
    requests = asked.select(pl.col(name).cast(dtype) for name, dtype in REQUESTS.items()).sort(REQUESTS_KEY)
    repeated = requests.filter(requests.select(REQUESTS_KEY).is_duplicated())
    assert repeated.is_empty(), f"a suite gave one position twice: {repeated.row(0, named=True)}"
    prompts = (
        asked.select(pl.col(name).cast(dtype) for name, dtype in PROMPTS.items())
        .unique(PROMPTS_KEY)
        .sort("prompt", "prompt_id")
    )
    manifest = {
        "evaluator": evaluator.__version__,
        "suites": list(config.suites),
        "datasets": [dataset.name for dataset in datasets],
        "notes": {each.name: list(each.notes) for each in datasets if each.notes},
        "n_shots": config.n_shots,
        "search": search_record(config.search),
        "pvi": pvi_record(config.pvi),
        "sources": sources_record(config),
        "n_queries": config.n_queries,
        "methods": list(config.methods),
        "definitions": list(config.definitions),
        "prompt_definition": config.prompt_definition,
        "parts": measured_parts(config),
        "n_requests": requests.height,
        "n_prompts": prompts.height,
        "requests": shards.write_shards(folder, "requests", requests, rows=ROWS_PER_SHARD),
        "prompts": shards.write_shards(folder, "prompts", prompts, rows=ROWS_PER_SHARD),
        "tables": {
            name: shards.write_shards(folder, name, table, rows=ROWS_PER_SHARD) for name, table in tables.items()
        },
    }
    write_json(folder / shards.MANIFEST, manifest)
    return PromptStore(folder, manifest)


def open_store(folder: Path) -> PromptStore | None:
    """The store in this folder, or None when there is none or a shard of it is missing or changed."""
    manifest = read_json(folder / shards.MANIFEST)
    if manifest is None:
        return None
    tables = {file: digest for table in manifest["tables"].values() for file, digest in table.items()}
    if not shards.intact(folder, manifest["requests"] | manifest["prompts"] | tables):
        return None
    return PromptStore(folder, manifest)


def require_store(folder: Path) -> PromptStore:
    store = open_store(folder)
    if store is None:
        raise StoreError(f"{folder} holds no whole prompt store. Run `evaluator build` for this output folder again.")
    return store


def store_fingerprint(config: StoreConfig, datasets: Iterable[AnyDataset]) -> str:
    """Changes with the suites, datasets (their rows, templates and labels), sizes, and the code that builds prompts."""
    return fingerprint(
        source_fingerprint("templates", "datasets", "prompts", "suites", "store", "methods", "run"),
        list(config.suites),
        [dataset.fingerprint for dataset in datasets],
        [config.n_shots, config.n_queries, list(config.methods), list(config.definitions)],
        search_record(config.search),
        pvi_record(config.pvi),
    )
