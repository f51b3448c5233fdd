"""The options of prompt-search, and what was typed of them as a SearchConfig."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from evaluator.config import SearchConfig, TableColumns

READABLE = click.Path(path_type=Path)
HUB = "hub"
"""Among what --data names, the hub; a folder of that name is ./hub."""

SEARCH_OPTIONS: dict[str, Callable[[Callable[..., None]], Callable[..., None]]] = {
    "data": click.option(
        "--data",
        type=click.Path(),  # a Path would have forgotten whether it was ./hub
        multiple=True,
        help="prompt-search: a BIG-bench task.json, a table, or a folder. pvi: tables, the folder of the published, or "
        "the word hub, which downloads those of --datasets that no folder holds (a folder of that name: ./hub).",
    ),
    "tries": click.option("--tries", type=int, help="prompt-search: prompts for each number of shots; 200."),
    "candidates": click.option(
        "--candidates", type=READABLE, help="prompt-search: a JSON file of instructions or templates to try instead."
    ),
    "halving": click.option(
        "--halving", is_flag=True, default=None, help="prompt-search: stop the worse half of the prompts, in rounds."
    ),
    "seed": click.option("--seed", type=int, help="prompt-search and pvi: draws queries and demonstrations; 42."),
    "input_column": click.option(
        "--input-column", help="Of a table in --data; `input`. pvi takes several: A,B; `text`."
    ),
    "choices_column": click.option("--choices-column", help="Of a table in --data; `choices`."),
    "gold_column": click.option("--gold-column", help="Of a table in --data, index or text; `gold`, pvi: `label`."),
    "id_column": click.option("--id-column", help="Of a table in --data; rows are numbered without one."),
}


def search_config(given: dict[str, Any], shots: tuple[int, ...] | None) -> SearchConfig:
    """Raises ConfigError as SearchConfig does."""
    inputs = given["input_column"]
    columns = TableColumns(
        inputs=tuple(name.strip() for name in inputs.split(",")) if inputs else None,
        choices=given["choices_column"],
        gold=given["gold_column"],
        example_id=given["id_column"],
    )
    stated = {name: given[name] for name in ("tries", "candidates", "halving", "seed") if given[name] is not None}
    if shots is not None:
        stated["shots"] = shots
    return SearchConfig(
        data=tuple(map(Path, given["data"])),
        columns=columns,
        **stated,
    )
