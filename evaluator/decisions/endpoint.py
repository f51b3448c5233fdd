"""Options of a service that answers typed questions, and the cost of its answers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from evaluator.config import Options, option, require_address
from evaluator.decisions.questions import FORM, VARIED
from evaluator.errors import ConfigError, require_known
from evaluator.files.toml_files import read_toml

API_KEY_VARIABLE = "EVALUATOR_API_KEY"
"""Environment variable with the API key, for a service of any protocol."""

ProtocolName = Literal["systemone", "decisions", "gemini"]

PARTS = tuple(part for part in VARIED if part != FORM)
"""Variations of questions that can be sent to a service."""


@dataclass(frozen=True, kw_only=True)
class EndpointOptions(Options):
    """The service, the number of requests, and the price of answers."""

    url: str = option(
        help=f"Address of the service, without the path of the protocol; the key is read from {API_KEY_VARIABLE}."
    )
    protocol: ProtocolName = option(help="Protocol of the service.")
    model: str = option(help="Name of the model at the service.")
    concurrency: int = option(16, "Number of requests in flight.", shown=16, minimum=1)
    repeat: int = option(
        1, "Number of the repetition. From 2 on, requests are sent again, for the folder OUT-repeat-N.", minimum=1
    )
    parts: tuple[str, ...] = option(
        (), f"Ask again with changes that should not matter: any of {', '.join(PARTS)}.", metavar="A,B"
    )
    price_per_million: float | None = option(None, "Price in dollars of a million input tokens.", minimum=0)
    prices: Path | None = option(None, "TOML file of models with `input` and `output`: dollars for a million tokens.")
    max_cost: float | None = option(None, "Most dollars to spend, including the cost of stored answers.", minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_address("--url", self.url, API_KEY_VARIABLE)
        require_known("--parts of ask: there is no part", self.parts, PARTS)
        if self.prices and self.price_per_million is not None:
            raise ConfigError("--prices and --price-per-million exclude each other: give one of them.")

    @property
    def host(self) -> str:
        """Return the host name of the service."""
        return urlsplit(self.url).hostname or ""

    @property
    def is_local(self) -> bool:
        """Return whether the service is on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def price(self) -> tuple[float, float] | None:
        """Return the price of an input token and of an output token in dollars, or None if no price is given.

        Raises ConfigError if the file of prices cannot be read or has no price for the model.
        """
        if self.prices is None:
            return None if self.price_per_million is None else (self.price_per_million / 1e6, 0.0)
        stated = read_toml(self.prices, ConfigError).get(self.model)
        read, written = (stated.get("input"), stated.get("output", 0)) if isinstance(stated, dict) else (None, None)
        if not (_is_amount(read) and _is_amount(written)):
            raise ConfigError(f'{self.prices} has no price of {self.model}. Write ["{self.model}"] with input = 0.1.')
        return float(read or 0) / 1e6, float(written or 0) / 1e6


def cost_of(reply: Mapping[str, Any], price: tuple[float, float] | None) -> float | None:
    """Return the cost of a reply in dollars, or None if it is unknown.

    Args:
        reply: reply with `usage`, which states `cost`, or `input_tokens` and `output_tokens`.
        price: dollars for an input token and an output token, used if `cost` is missing.
    """
    usage = reply.get("usage")
    if not isinstance(usage, Mapping):
        return None
    stated = {name: value for name, value in ({"output_tokens": 0} | dict(usage)).items() if _is_amount(value)}
    if "cost" in stated:
        return float(stated["cost"])
    if price is None or not {"input_tokens", "output_tokens"} <= {*stated}:
        return None
    return float(stated["input_tokens"] * price[0] + stated["output_tokens"] * price[1])


def _is_amount(value: object) -> bool:
    """Return whether a value is a number of 0 or more; with any other number, --max-cost would never be reached."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
