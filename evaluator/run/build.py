"""Build the prompt store of a run: check the configuration, load the datasets, collect the request rows.

If a dataset cannot be loaded, or if a suite cannot build prompts from it, the run leaves the dataset out and records
the reason, unless no dataset remains. An error in the options, such as an unknown name, ends the run.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from evaluator.config import RunConfig, option_fields
from evaluator.datasets import DATASETS
from evaluator.datasets.base import AnyDataset, ClassificationDataset, MultipleChoiceDataset
from evaluator.datasets.sources import dataset_sources
from evaluator.errors import ConfigError, DatasetError, EvaluatorError, TemplateError, require_known
from evaluator.files.digests import fingerprint, source_fingerprint
from evaluator.files.whole import file_digest, reason
from evaluator.methods import PLUG_INS
from evaluator.methods.base import MethodContext, MethodPrompts, ScoredRequests, scored_definitions
from evaluator.progress import Progress, Stage
from evaluator.record import PartRecord
from evaluator.run.folders import identity, lock_folder, mark_user
from evaluator.run.until import check_until
from evaluator.schemas import PROMPTS_KEY
from evaluator.store import PromptStore, kept_requests, open_intact_store, write_store
from evaluator.suites import SUITES, chosen_methods, methods_of, require_suites
from evaluator.suites.base import Part, Requests, Suite

logger = logging.getLogger(__name__)

BUILT_BY = ("templates", "datasets", "prompts", "methods", "suites", "store.py", "run/build.py", "schemas.py")
"""Files and folders of evaluator/ whose source code determines the prompts."""


MAX_SHOWN = 16
"""Largest number of demonstrations that follows from the number of labels; --shots can set a larger one."""


class Built(NamedTuple):
    """A prompt store, its configuration and its datasets."""

    config: RunConfig
    store: PromptStore
    parts: dict[str, dict[str, PartRecord]]  # suite -> chosen part -> its record
    datasets: Mapping[str, AnyDataset] = {}  # by name; empty if no later stage needs them
    left_out: Mapping[str, str] = {}  # dataset -> why the run has no results for it

    def without_datasets(self) -> "Built":
        """Drop the datasets to save memory, unless a second round of prompts needs them. Returns a new object."""
        has_second_round = any(method.prompts.follow_up for method in chosen_methods(self.config).values())
        return self if has_second_round else self._replace(datasets={})

    def without(self, left_out: Mapping[str, str]) -> "Built":
        """Return the run without some datasets; `left_out` maps each of them to the reason."""
        datasets = {name: dataset for name, dataset in self.datasets.items() if name not in left_out}
        every = {**self.left_out, **left_out}
        return self._replace(store=self.store.without(left_out), datasets=datasets, left_out=every)


def measured_parts(config: RunConfig) -> dict[str, dict[str, PartRecord]]:
    """Return suite -> chosen part -> record, with the definitions under which the part is measured."""
    scored = scored_definitions(config.definitions)
    measured: dict[str, dict[str, PartRecord]] = {}
    for suite_name, suite in _suites(config).items():
        measured[suite_name] = {}
        for name, part in chosen_parts(suite, config).items():
            # If definitions have different prompts, the run has the prompts of one definition only.
            possible = [config.prompt_definition] if part.prompts_differ else suite.definitions
            definitions = [definition for definition in scored if definition in possible]
            record = PartRecord(kind=part.kind, definitions=definitions, prompts_differ=part.prompts_differ)
            measured[suite_name][name] = record
    return measured


def _suites(config: RunConfig) -> dict[str, Suite]:
    return {name: SUITES[name] for name in config.suites}


def check_config(config: RunConfig) -> None:
    """Raise ConfigError for unknown names, and for suites, parts, methods and options that do not fit together.

    Raises StoreError if the base run of --until (--against) is not measured, or stopped before its last query.
    """
    require_suites(config.suites)
    require_known("There is no dataset", config.datasets, DATASETS)
    methods = methods_of(config.suites)
    for name in config.methods:
        if name not in methods and (owners := [suite for suite in SUITES if name in SUITES[suite].own_methods]):
            raise ConfigError(
                f"The method {name} belongs to {owners[0]}, not to {', '.join(config.suites)}. Run that suite, or "
                "leave the method out (--methods)."
            )
    require_known("There is no method", config.methods, methods)
    suites = _suites(config)
    for name, suite in suites.items():
        if suite.is_exclusive and len(suites) > 1:
            raise ConfigError(
                f"{name} must be the only suite of a run, because it has other prompts and options; got "
                f"{', '.join(config.suites)}. Run the other suites in another command."
            )
        suite.check(config)
    parts = dict.fromkeys(part for suite in suites.values() for part in suite.parts)
    require_known("There is no part", config.parts or (), parts, where=f" in {', '.join(config.suites)}")
    _check_methods(config, suites)
    check_until(config)


def _check_methods(config: RunConfig, suites: Mapping[str, Suite]) -> None:
    definitions = {definition for suite in suites.values() for definition in suite.definitions}
    kinds = {part.kind for suite in suites.values() for part in chosen_parts(suite, config).values()}
    suites_with_shots = [name for name, suite in suites.items() if "shots" in option_fields(suite.options)]
    for name, method in chosen_methods(config).items():
        if not kinds & {*method.part_kinds}:
            raise ConfigError(
                f"The method {name} answers queries of classification, and {', '.join(config.suites)} with the parts "
                f"{', '.join(config.parts or ('all',))} has none. Add a part that has some (--parts), or leave the "
                "method out (--methods)."
            )
        # Methods add prompts with one number of demonstrations; suites with an option `shots` can have several.
        adds_prompts = method.prompts != MethodPrompts() and "choice" not in method.part_kinds
        if suites_with_shots and adds_prompts and name not in suites[suites_with_shots[0]].own_methods:
            raise ConfigError(
                f"The method {name} writes prompts of its own with one number of demonstrations, and "
                f"{suites_with_shots[0]} takes several. Leave the method out (--methods)."
            )
        if not definitions & {*method.definitions} & {*scored_definitions(config.definitions)}:
            raise ConfigError(
                f"The method {name} has the definitions {', '.join(method.definitions)} and these suites are "
                f"measured under {', '.join(sorted(definitions))}: --definition {', '.join(config.definitions)} leaves "
                "nothing. Choose another --definition."
            )


def chosen_parts(suite: Suite, config: RunConfig) -> dict[str, Part]:
    """Return name -> part of the suite's parts that the run includes."""
    return {name: part for name, part in suite.parts.items() if config.parts is None or name in config.parts}


def build_prompts(config: RunConfig, data: Path, out: Path | None = None) -> Stage[Built]:
    """Build the prompt store of a configuration below `data`, or open the store if it exists.

    Args:
        config: a configuration that check_config accepts.
        data: folder of prompts and scores.
        out: folder of the run, which is registered in `data` as a user before the store is unlocked; None: no run.

    Raises ConfigError, DatasetError or TemplateError before the store is written.
    """
    datasets, unread = yield from read_datasets(config)
    config = _with_shots(config, datasets.values())
    folder = data / "store" / store_fingerprint(config, datasets.values())
    with (yield from lock_folder(folder)):
        store = open_intact_store(folder) or (yield from _write(config, datasets, folder))
        if out is not None:
            mark_user(out, data)
    built = Built(config, store, measured_parts(config), datasets)
    return built.without({**unread, **store.manifest.left_out})


def _with_shots(config: RunConfig, datasets: Iterable[AnyDataset]) -> RunConfig:
    """Set n_shots to the largest number of labels of a dataset, at most MAX_SHOWN, if it is to follow from labels."""
    if not config.shots_by_labels:
        return config
    classified = [dataset for dataset in datasets if isinstance(dataset, ClassificationDataset)]
    n_labels = [len(dataset.verbalizer.label_names) for dataset in classified]
    n_labels += [len(each.examples["choices"][0]) for each in datasets if isinstance(each, MultipleChoiceDataset)]
    return replace(config, n_shots=min(max(n_labels, default=config.n_shots), MAX_SHOWN), shots_by_labels=False)


def _write(config: RunConfig, datasets: Mapping[str, AnyDataset], folder: Path) -> Stage[PromptStore]:
    tables, errors = defaultdict[str, list[pl.DataFrame]](list), dict[str, EvaluatorError]()
    rows, suites = list[pl.LazyFrame](), _suites(config)
    with ExitStack() as files:
        for done, dataset in enumerate(datasets.values()):
            yield Progress(stage="Building prompts", done=done, total=len(datasets), unit="datasets")
            try:
                taken = {name: suite.take(dataset, config) for name, suite in suites.items()}
                requests = {name: suite.requests(taken[name], config) for name, suite in suites.items()}
                # If the dataset fails, none of its rows is added and its temporary files are closed.
                with ExitStack() as dataset_files:
                    scans = [*_rows(requests, taken, config, dataset_files, folder.parent)]
                    files.push(dataset_files.pop_all())
            except (DatasetError, TemplateError) as error:
                errors[dataset.name] = error
                continue
            rows += scans
            for requested in requests.values():
                for table, frame in requested.tables.items():
                    tables[table].append(frame)
        yield Progress(stage="Building prompts", done=len(datasets), total=len(datasets), unit="datasets")
        reasons = reasons_of(errors, len(datasets))
        every = pl.concat(rows)
        if not every.select(pl.len()).collect().item():
            raise ConfigError(
                f"{', '.join(config.suites)} has no prompts in the parts {', '.join(config.parts or ())} with these "
                "options. Choose other --parts."
            )
        side_tables = {name: pl.concat(parts) for name, parts in tables.items()}
        return write_store(folder, every, side_tables, reasons)


def _rows(
    requests: Mapping[str, Requests], taken: Mapping[str, Any], config: RunConfig, files: ExitStack, folder: Path
) -> Iterator[pl.LazyFrame]:
    """Write the request rows of a dataset to temporary files, and yield scans of the files.

    Each suite has two files: the rows of its chosen parts, and the rows that methods add to them.

    Args:
        requests: suite -> requests for the dataset.
        taken: suite -> the dataset, as the suite converts it.
        config: configuration of the run.
        files: exit stack that closes and removes the files.
        folder: folder of the files.
    """
    for name, suite in _suites(config).items():
        is_chosen = pl.col("part").is_in([*chosen_parts(suite, config)])
        suite_rows = (rows.filter(is_chosen).with_columns(suite=pl.lit(name)) for rows in requests[name].rows)
        own = files.enter_context(kept_requests(suite_rows, folder))
        yield own
        added = added_rows(name, taken[name], own.drop("suite", "for_part", *PROMPTS_KEY), config)
        yield files.enter_context(kept_requests(added, folder))


def reasons_of(errors: Mapping[str, EvaluatorError], n_datasets: int | None = None) -> dict[str, str]:
    """Return dataset -> reason for the datasets left out of a run, and log a warning for each.

    Args:
        errors: dataset -> error.
        n_datasets: number of datasets: the first error is raised if all of them failed. None: no error is raised.
    """
    if errors and len(errors) == n_datasets:
        raise next(iter(errors.values()))
    for dataset, error in errors.items():
        logger.warning("%s is left out of this run: %s", dataset, error)
    return {dataset: str(error) for dataset, error in errors.items()}


def read_datasets(config: RunConfig) -> Stage[tuple[dict[str, AnyDataset], dict[str, str]]]:
    """Load the datasets of a run: return name -> dataset, and name -> reason for datasets that cannot be loaded."""
    every_row = any(suite.queries_every_row(config) for suite in _suites(config).values())
    sources = dataset_sources(config.datasets, config.data)
    datasets, errors = dict[str, AnyDataset](), dict[str, EvaluatorError]()
    for done, source in enumerate(sources):
        yield Progress(stage="Reading datasets", done=done, total=len(sources), unit="datasets")
        try:
            datasets[source.name] = source.load(query_every_row=every_row)
        except (DatasetError, TemplateError) as error:
            errors[source.name] = error
    yield Progress(stage="Reading datasets", done=len(sources), total=len(sources), unit="datasets")
    return datasets, reasons_of(errors, len(sources))


def added_rows(
    name: str, taken: Any, rows: pl.LazyFrame, config: RunConfig, scored: ScoredRequests | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the request rows that methods add to the requests of a suite, with the columns `suite` and `for_part`.

    Args:
        name: name of the suite.
        taken: the dataset, as the suite converts it.
        rows: requests of the suite for the dataset.
        config: configuration of the run.
        scored: requests with the scores of the first round, to yield the rows that depend on these scores; None: to
            yield the rows that do not.
    """
    suite, methods = SUITES[name], chosen_methods(config).values()
    present = {*rows.select(pl.col("part").unique()).collect()["part"]}
    for part_name, part in chosen_parts(suite, config).items():
        if part_name not in present:
            continue
        context = MethodContext(taken, rows, part_name, config)
        prompts = [method.prompts for method in methods if part.kind in method.part_kinds]
        # Methods that share a function request the same rows: each function is called once.
        if scored is None:
            added = (ask(context) for ask in dict.fromkeys(each.requests for each in prompts) if ask)
        else:
            first = scored.answering(part_name, taken.name)
            added = (ask(context, first) for ask in dict.fromkeys(each.follow_up for each in prompts) if ask)
        for frame in chain.from_iterable(added):
            yield frame.with_columns(suite=pl.lit(name), for_part=pl.lit(part_name))


def files_read(suite: Suite, config: RunConfig) -> dict[Path, str]:
    """Return path -> SHA-256 of the files, other than datasets, that a suite reads. Raises ConfigError."""
    digests = dict[Path, str]()
    for path in filter(None, suite.files(config)):
        try:
            digests[path] = file_digest(path)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {reason(error)}.") from error
    return digests


def store_fingerprint(config: RunConfig, datasets: Iterable[AnyDataset]) -> str:
    """Return the fingerprint of a prompt store, which changes with everything that determines the prompts.

    It covers the suites with their options, the datasets (rows, templates and labels), other files that suites read,
    the code that builds prompts, and the code of methods from other packages. It does not cover paths of files.
    """
    files = [digest for suite in _suites(config).values() for digest in files_read(suite, config).values()]
    files += [PLUG_INS[name].identity for name in config.methods if name in PLUG_INS]
    of_datasets = [dataset.fingerprint for dataset in datasets]
    return fingerprint(source_fingerprint(*BUILT_BY), identity(config), of_datasets, files)
