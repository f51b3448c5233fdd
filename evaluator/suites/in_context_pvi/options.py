"""The options of the suite pvi, and what was typed of them as a PviConfig."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from evaluator.config import PviConfig, PviSource, TableColumns
from evaluator.suites.prompt_search.options import HUB, READABLE

PVI_OPTIONS: dict[str, Callable[[Callable[..., None]], Callable[..., None]]] = {
    "demonstrations": click.option(
        "--demonstrations",
        type=click.Choice(get_args(PviSource)),
        help="pvi: where they come from; random.",
    ),
    "sets": click.option("--sets", type=int, help="pvi: demonstration sets for each number of shots; 3."),
    "prompts": click.option(
        "--prompts", type=READABLE, help="pvi: the published demonstrations; prompts.parquet of a folder in --data."
    ),
    "training_queries": click.option(
        "--training-queries", type=int, help="pvi: training rows that demonstrations are chosen among by PVI; 500."
    ),
}
TAKEN_BY_PVI = ("data", "seed", "input_column", "gold_column")
"""Options of prompt-search that pvi takes as well."""


def pvi_config(given: dict[str, Any], shots: tuple[int, ...] | None) -> PviConfig:
    """Raises ConfigError as PviConfig does."""
    options = {"source": "demonstrations", **{name: name for name in ("sets", "seed", "training_queries")}}
    stated = {name: given[option] for name, option in options.items() if given[option] is not None}
    inputs = given["input_column"]
    columns = TableColumns(
        inputs=tuple(name.strip() for name in inputs.split(",")) if inputs else None, gold=given["gold_column"]
    )
    return PviConfig(
        data=tuple(Path(named) for named in given["data"] if named != HUB),
        hub=HUB in given["data"],
        columns=columns,
        shots=shots,
        prompts=given["prompts"],
        **stated,
    )
