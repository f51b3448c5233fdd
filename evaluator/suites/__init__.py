"""Register the suites by name, and answer questions about the suites of a run: families, methods, titles of metrics."""

from collections import UserDict
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from evaluator import schemas
from evaluator.compare import schema as of_comparisons
from evaluator.config import LabelBoundary, RunConfig
from evaluator.errors import ConfigError, unknown_name
from evaluator.imports.answers import IMPORTED
from evaluator.methods import METHODS
from evaluator.methods.base import Method
from evaluator.report.table import METRIC_TEXTS, MetricTexts
from evaluator.suites.base import Family, Suite
from evaluator.suites.in_context_pvi import schema as of_pvi
from evaluator.suites.prompt_search import schema as of_searches


class _Suites(UserDict[str, Any]):
    """Registry: name -> suite. A value can also be the name of a package with a module `suite`. The first look-up
    imports the module and replaces the value by the suite, so that listing the names imports nothing."""

    def __getitem__(self, name: str) -> Suite:
        if isinstance(package := self.data[name], str):
            self.data |= import_module(f"evaluator.suites.{package}.suite").SUITES
        suite: Suite = self.data[name]
        return suite


SUITES = _Suites({
    "staicc-normal": "staicc",
    "staicc-bias": "staicc",
    "staicc-robustness": "staicc",
    "staicc-variables": "staicc",
    "staicc-demonstrations": "staicc",
    "staicc-learning-curve": "staicc",
    "prompt-search": "prompt_search",
    "pvi": "in_context_pvi",
    "decide": "decide",
})  # fmt: skip


SUITE_GROUPS: dict[str, tuple[str, ...]] = {
    "staicc": ("staicc-normal", "staicc-bias", "staicc-robustness"),
    "classify": ("staicc-normal",),
}
"""Name of a group -> its suites. `staicc` is the benchmark as published; `classify` has its plain prompts, for a user's
data."""


TABLES = {
    name: table
    for module in (schemas, of_comparisons, of_pvi, of_searches)
    for name, table in schemas.declared_tables(vars(module)).items()
}
"""Name of a table of a run or comparison -> its schema and its key. A table that is not listed here is checked by its
digest alone."""


def imported_suites() -> list[str]:
    """Return the names of the suites whose packages are imported."""
    return [name for name, suite in SUITES.data.items() if isinstance(suite, Suite)]


def require_suites(names: Iterable[str]) -> None:
    """Raise ConfigError if a name is not the name of a suite."""
    for name in names:
        if name == IMPORTED:
            raise ConfigError(
                "The suite imported builds no prompts. Make such a run with `evaluator import FILE --out DIR`."
            )
        if name not in SUITES:
            raise ConfigError(unknown_name("There is no suite", name, [*SUITE_GROUPS, *SUITES]))


def families_of(names: Iterable[str]) -> list[Family]:
    """Return the families of suites without repetition; the name `imported` has the family of imported answers."""
    return list(dict.fromkeys(map(_family, names)))


def _family(name: str) -> Family:
    if name != IMPORTED:
        return SUITES[name].family
    from evaluator.suites.decide.suite import IMPORTED_ANSWERS  # here, because few runs need its imports

    return IMPORTED_ANSWERS


def shared_sets(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the suites and parts in which all queries have the same demonstration sets."""
    parts = ((name, *part) for name in {*names} if name in SUITES for part in SUITES[name].parts.items())
    return [(suite, part) for suite, part, declared in parts if declared.shared_sets]


def methods_of(names: Iterable[str]) -> dict[str, Method]:
    """Return name -> method: the methods of all suites, then the methods of the named suites alone."""
    suites = [SUITES[name] for name in names if name in SUITES]
    return METHODS | {name: method for suite in suites for name, method in suite.own_methods.items()}


def chosen_methods(config: RunConfig) -> dict[str, Method]:
    """Return name -> method for the methods of a run, in the order of --methods."""
    methods = methods_of(config.suites)
    return {name: methods[name] for name in config.methods}


def metric_texts(names: Iterable[str]) -> MetricTexts:
    """Return the titles of the metrics of all suites, and of the metrics of the named suites' families."""
    texts = {name: text for family in families_of(names) for name, text in family.metric_texts.items()}
    return MetricTexts(METRIC_TEXTS | texts)


def default_label_boundary(suites: Iterable[str]) -> LabelBoundary:
    """Return the label boundary of a run without --label-boundary. Raises ConfigError if its suites have several."""
    boundaries = {name: SUITES[name].label_boundary for name in suites}
    if len(set(boundaries.values())) > 1:
        stated = ", ".join(f"{name}: {boundary}" for name, boundary in boundaries.items())
        raise ConfigError(f"These suites begin labels in different places ({stated}). Name one with --label-boundary.")
    return next(iter(boundaries.values()))
