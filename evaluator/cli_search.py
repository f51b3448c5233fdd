"""The options of prompt-search, and what was typed as a StoreConfig: each suite has defaults of its own."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from evaluator.config import SEARCH_SUITE, SearchConfig, StoreConfig, TableColumns
from evaluator.errors import ConfigError
from evaluator.schemas import DEFINITIONS

READABLE = click.Path(path_type=Path)

SEARCH_OPTIONS: dict[str, Callable[[Callable[..., None]], Callable[..., None]]] = {
    "data": click.option(
        "--data", type=READABLE, multiple=True, help="prompt-search: a BIG-bench task.json, a table, or a folder."
    ),
    "tries": click.option("--tries", type=int, help="prompt-search: prompts for each number of shots; 200."),
    "candidates": click.option(
        "--candidates", type=READABLE, help="prompt-search: a JSON file of instructions or templates to try instead."
    ),
    "halving": click.option(
        "--halving", is_flag=True, default=None, help="prompt-search: stop the worse half of the prompts, in rounds."
    ),
    "seed": click.option("--seed", type=int, help="prompt-search: draws queries and demonstrations; 42."),
    "input_column": click.option("--input-column", help="Of a table in --data; `input`."),
    "choices_column": click.option("--choices-column", help="Of a table in --data; `choices`."),
    "gold_column": click.option("--gold-column", help="Of a table in --data, index or text; `gold`."),
    "id_column": click.option("--id-column", help="Of a table in --data; rows are numbered without one."),
}


def search_options(command: Callable[..., None]) -> Callable[..., None]:
    """All of SEARCH_OPTIONS, in their order."""
    for option in reversed(SEARCH_OPTIONS.values()):
        command = option(command)
    return command


def store_config(given: dict[str, Any]) -> StoreConfig:
    """What to ask of a model. Raises ConfigError for options that do not fit each other or the suite."""
    from evaluator.datasets import DATASETS
    from evaluator.suites import SUITES

    suites = suite_names(given["suites"])
    is_search = SEARCH_SUITE in suites
    stated = [name for name in SEARCH_OPTIONS if given[name] not in (None, ())]
    if stated and not is_search:
        raise ConfigError(f"--{stated[0].replace('_', '-')} belongs to {SEARCH_SUITE}, not to {', '.join(suites)}.")
    shots = numbers("--shots", given["shots"]) if given["shots"] else None
    if shots and len(shots) > 1 and not is_search:
        raise ConfigError(f"--shots {given['shots']}: only {SEARCH_SUITE} takes several numbers. Run once for each.")
    # Ten datasets are more than a million prompts of a search: whoever wants that says so.
    every = "" if is_search else "all"
    first = SUITES[suites[0]] if suites[0] in SUITES else SUITES[SEARCH_SUITE if is_search else "staicc-normal"]
    definitions = first.definitions if is_search else DEFINITIONS
    return StoreConfig(
        suites=suites,
        datasets=names(every if given["datasets"] is None else given["datasets"], DATASETS),
        n_shots=shots[0] if shots and not is_search else 4,
        n_queries=given["queries"],
        methods=names(given["methods"], first.all_methods) if given["methods"] else first.methods,
        definitions=definitions if given["definition"] == "all" else (given["definition"],),
        search=_search_config(given, shots) if is_search else None,
    )


def suite_names(given: Iterable[str]) -> tuple[str, ...]:
    """Names of suites, with every name of a group in the place of the group's."""
    from evaluator.suites import SUITE_GROUPS

    return tuple(name for word in given for name in SUITE_GROUPS.get(word, (word,)))


def _search_config(given: dict[str, Any], shots: tuple[int, ...] | None) -> SearchConfig:
    columns = {"input": "input_column", "choices": "choices_column", "gold": "gold_column", "example_id": "id_column"}
    stated = {name: given[name] for name in ("tries", "candidates", "halving", "seed") if given[name] is not None}
    if shots is not None:
        stated["shots"] = shots
    return SearchConfig(
        data=given["data"],
        columns=TableColumns(**{name: given[option] for name, option in columns.items() if given[option] is not None}),
        **stated,
    )


def names(given: str, known: Iterable[str]) -> tuple[str, ...]:
    """A comma-separated list of names; `all` stands for every known one."""
    return tuple(known) if given == "all" else tuple(name.strip() for name in given.split(",") if name.strip())


def numbers(option: str, given: str) -> tuple[int, ...]:
    """A comma-separated list of whole numbers. Raises ConfigError."""
    try:
        return tuple(int(word) for word in given.split(","))
    except ValueError:
        raise ConfigError(f"{option} takes whole numbers with commas between them, got {given!r}.") from None
