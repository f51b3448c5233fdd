"""Suites, methods and datasets to a prompt store: check the names, load the data, collect the request rows."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets import DATASETS
from evaluator.datasets.multiple_choice import AnyDataset
from evaluator.datasets.sources import load_datasets
from evaluator.errors import ConfigError
from evaluator.files import file_digest, fingerprint, source_fingerprint
from evaluator.methods.base import Method, MethodContext
from evaluator.methods.predictions import scored_definitions
from evaluator.progress import Progress, Stage
from evaluator.record import PartRecord
from evaluator.run.config_json import identity
from evaluator.run.locks import held
from evaluator.schemas import Definition
from evaluator.store.prompt_store import PromptStore, open_store, with_prompt_ids, write_store
from evaluator.suites import SUITES, methods_of
from evaluator.suites.base import Part, Suite
from evaluator.suites.options import option_fields

BUILT_BY = ("templates", "datasets", "prompts", "methods", "suites", "store", "run/build.py", "schemas.py")
"""Code that decides what prompts say."""


class Built(NamedTuple):
    """A prompt store and what it was built from."""

    config: RunConfig
    store: PromptStore
    datasets: Mapping[str, AnyDataset]  # empty where the store was opened and not built

    @property
    def parts(self) -> dict[str, dict[str, PartRecord]]:
        """The parts of each suite that this run asks, and the definitions each can be measured under."""
        return measured_parts(self.config)


def check_config(config: RunConfig) -> None:
    """Raise ConfigError for names that do not exist and for suites, parts, methods and options that do not fit."""
    own = {method: name for name, suite in SUITES.items() for method in suite.own_methods}
    for method in config.methods:
        if method in own and own[method] not in config.suites:
            raise ConfigError(
                f"The method {method} belongs to {own[method]}, not to {', '.join(config.suites)}. Run that suite, or "
                "leave the method out (--methods)."
            )
    named: list[tuple[str, Iterable[str], Collection[str]]] = [
        ("suite", config.suites, SUITES),
        ("dataset", config.datasets, DATASETS),
        ("method", config.methods, methods_of(name for name in config.suites if name in SUITES)),
    ]
    for kind, names, known in named:
        for name in names:
            if name not in known:
                raise ConfigError(f"There is no {kind} {name!r}. There are: {', '.join(known)}.")
    for name in config.suites:
        if SUITES[name].exclusive and len(config.suites) > 1:
            raise ConfigError(
                f"{name} has prompts and options of its own, so it goes alone; got {', '.join(config.suites)}. Run the "
                "other suites in a command of their own."
            )
        SUITES[name].check(config)
    _check_parts(config)
    _check_methods(config)


def _check_parts(config: RunConfig) -> None:
    written = [part for name in config.suites for part in SUITES[name].parts]
    for part in config.parts or ():
        if part not in written:
            raise ConfigError(
                f"There is no part {part!r} in {', '.join(config.suites)}. There are: "
                f"{', '.join(dict.fromkeys(written))}."
            )


def _check_methods(config: RunConfig) -> None:
    measured = {definition for name in config.suites for definition in SUITES[name].definitions}
    kinds = {part.kind for name in config.suites for part in chosen_parts(SUITES[name], config).values()}
    methods = methods_of(config.suites)
    for name in config.methods:
        method = methods[name]
        if not kinds & {*method.part_kinds}:
            raise ConfigError(
                f"The method {name} answers queries of classification, and {', '.join(config.suites)} with the parts "
                f"{', '.join(config.parts or ('all',))} has none. Add a part that has some (--parts), or leave the "
                "method out (--methods)."
            )
        several = [suite for suite in config.suites if "shots" in option_fields(SUITES[suite].options)]
        writes_prompts = bool(method.requests or method.follow_up) and "choice" not in method.part_kinds
        if several and writes_prompts and name not in SUITES[several[0]].own_methods:
            raise ConfigError(
                f"The method {name} writes prompts of its own with one number of demonstrations, and {several[0]} "
                "takes several. Leave the method out (--methods)."
            )
        if not measured & {*method.definitions} & {*scored_definitions(config.definitions)}:
            raise ConfigError(
                f"The method {name} has the definitions {', '.join(method.definitions)} and these suites are "
                f"measured under {', '.join(sorted(measured))}: --definition {', '.join(config.definitions)} leaves "
                "nothing. Choose another --definition."
            )


def chosen_parts(suite: Suite[AnyDataset], config: RunConfig) -> dict[str, Part]:
    """The parts of a suite that this run asks."""
    return {name: part for name, part in suite.parts.items() if config.parts is None or name in config.parts}


def build_prompts(config: RunConfig, data: Path) -> Stage[Built]:
    """Write the prompt store of a configuration below `data`, or find that it is there already.

    Raises ConfigError, DatasetError or TemplateError for what does not fit, before anything is written.
    """
    check_config(config)
    datasets = yield from read_datasets(config)
    folder = data / "store" / store_fingerprint(config, datasets.values())
    lock = yield from held(folder)
    with lock:
        store = open_store(folder) or (yield from _write(config, datasets, folder))
    return Built(config, store, datasets)


def _write(config: RunConfig, datasets: Mapping[str, AnyDataset], folder: Path) -> Stage[PromptStore]:
    frames: list[pl.DataFrame] = []
    tables: dict[str, list[pl.DataFrame]] = defaultdict(list)
    for done, dataset in enumerate(datasets.values()):
        yield Progress(stage="Building prompts", done=done, total=len(datasets), unit="datasets")
        for name in config.suites:
            requests = SUITES[name].requests(SUITES[name].take(dataset), config)
            frames += request_rows(name, dataset, requests.rows, config)
            for table, rows in requests.tables.items():
                tables[table].append(rows)
    rows = with_prompt_ids(pl.concat([frame.select(sorted(frame.columns)) for frame in frames]))
    yield Progress(stage="Building prompts", done=len(datasets), total=len(datasets), unit="datasets")
    return write_store(folder, rows, {name: pl.concat(parts) for name, parts in tables.items()})


def read_datasets(config: RunConfig) -> Stage[dict[str, AnyDataset]]:
    """Return the datasets of a run by name, each of a kind that all of its suites can take."""
    every_row = any(SUITES[name].queries_every_row(config) for name in config.suites)
    datasets: dict[str, AnyDataset] = {}
    total = len(config.datasets) or len(config.data.paths)
    loading = load_datasets(config.datasets, config.data, query_every_row=every_row)
    while True:
        yield Progress(stage="Reading datasets", done=min(len(datasets), total), total=total, unit="datasets")
        if (dataset := next(loading, None)) is None:
            return datasets
        datasets[dataset.name] = dataset


def request_rows(name: str, dataset: AnyDataset, rows: pl.DataFrame, config: RunConfig) -> list[pl.DataFrame]:
    """The rows of a suite's chosen parts, and those that methods request besides, each with `suite`.

    What two methods request alike is requested once.
    """
    chosen = rows.filter(pl.col("part").is_in(list(chosen_parts(SUITES[name], config))))
    extra = [
        frame.with_columns(for_part=pl.lit(part))
        for part, method, context in method_contexts(name, dataset, chosen, config)
        if method.requests
        for frame in method.requests(context)
    ]
    own = chosen.with_columns(suite=pl.lit(name), for_part=pl.lit(None, pl.String))
    return [own, *without_repeats(extra, name)]


def method_contexts(
    name: str, dataset: AnyDataset, rows: pl.DataFrame, config: RunConfig
) -> Iterator[tuple[str, Method, MethodContext]]:
    """Each part of a suite with each method of the run that answers it, where the part has rows."""
    methods = methods_of(config.suites)
    for part, about in chosen_parts(SUITES[name], config).items():
        answerable = rows.filter(part=part)
        for method in (methods[method] for method in config.methods):
            if about.kind in method.part_kinds and not answerable.is_empty():
                yield part, method, MethodContext(SUITES[name].take(dataset), answerable, config)


def without_repeats(extra: list[pl.DataFrame], suite: str) -> list[pl.DataFrame]:
    """Methods' rows as one frame of a suite, each prompt of a part and position once; none where there are none."""
    if not extra:
        return []
    rows = pl.concat([frame.select(sorted(frame.columns)) for frame in extra])
    distinct = rows.unique(["part", "for_part", "position", "prompt", "ask", "continuations"], maintain_order=True)
    return [distinct.with_columns(suite=pl.lit(suite))]


def measured_parts(config: RunConfig) -> dict[str, dict[str, PartRecord]]:
    """The parts of each suite that this run asks, and the definitions each can be measured under."""
    return {
        name: {
            part: PartRecord(
                kind=about.kind,
                definitions=_definitions(SUITES[name], about.prompts_differ, config),
                prompts_differ=about.prompts_differ,
            )
            for part, about in chosen_parts(SUITES[name], config).items()
        }
        for name in config.suites
    }


def _definitions(suite: Suite[AnyDataset], prompts_differ: bool, config: RunConfig) -> list[Definition]:
    possible = [config.prompt_definition] if prompts_differ else suite.definitions
    return [name for name in scored_definitions(config.definitions) if name in possible]


def store_fingerprint(config: RunConfig, datasets: Iterable[AnyDataset]) -> str:
    """Return a name that changes with whatever decides the prompts.

    These are the suites with their options, the datasets (their rows, templates and labels), the files that suites read
    besides, and the code that builds prompts; not where any of them is.
    """
    files = [file_digest(path) for name in config.suites for path in SUITES[name].files(config)]
    return fingerprint(
        source_fingerprint(*BUILT_BY), identity(config), [dataset.fingerprint for dataset in datasets], files
    )
