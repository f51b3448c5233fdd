"""Recompute published tables from released results, with one package for each paper, imported only when it is used."""

from collections.abc import Callable
from importlib import import_module

from evaluator.reproductions.base import Reproduction


def _reproduction(package: str) -> Callable[[], Reproduction]:
    def load() -> Reproduction:
        found: Reproduction = import_module(f"evaluator.reproductions.{package}.page").REPRODUCTION
        return found

    return load


REPRODUCTIONS = {
    "yauney-mimno-2024": _reproduction("yauney_mimno_2024"),
    "lu-2023": _reproduction("lu_2023"),
    "cho-inoue-2025": _reproduction("cho_inoue_2025"),
}
