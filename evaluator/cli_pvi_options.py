"""The options of the suite pvi, and what was typed of them as a PviConfig."""

from collections.abc import Callable
from typing import Any, get_args

import click

from evaluator.cli_search import READABLE
from evaluator.config import LabelledColumns, PviConfig, PviSource

PVI_OPTIONS: dict[str, Callable[[Callable[..., None]], Callable[..., None]]] = {
    "demonstrations": click.option(
        "--demonstrations",
        type=click.Choice(get_args(PviSource)),
        help="pvi: where they come from; random. The last three are chosen by the PVIs of --from.",
    ),
    "sets": click.option("--sets", type=int, help="pvi: demonstration sets for each number of shots; 3."),
    "prompts": click.option(
        "--prompts", type=READABLE, help="pvi: the published demonstrations; prompts.parquet of a folder in --data."
    ),
    "ask": click.option(
        "--ask", type=click.Choice(["test", "training"]), help="pvi: which rows are queries; test. Training for --from."
    ),
    "measured": click.option(
        "--from", "measured", type=READABLE, help="pvi: output folder of a run that asked training rows."
    ),
}
TAKEN_BY_PVI = ("data", "seed", "input_column", "gold_column")
"""Options of prompt-search that pvi takes as well."""


def pvi_config(given: dict[str, Any], shots: tuple[int, ...] | None) -> PviConfig:
    """Raises ConfigError as PviConfig does."""
    options = {"source": "demonstrations", "sets": "sets", "seed": "seed", "ask": "ask"}
    stated = {name: given[option] for name, option in options.items() if given[option] is not None}
    columns = {"label": given["gold_column"]} if given["gold_column"] else {}
    if given["input_column"]:
        columns["texts"] = tuple(name.strip() for name in given["input_column"].split(","))
    return PviConfig(
        data=given["data"],
        columns=LabelledColumns(**columns),
        shots=shots,
        prompts=given["prompts"],
        measured=given["measured"],
        **stated,
    )
