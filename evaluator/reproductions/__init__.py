"""Recompute published tables from released results. Every paper has a package, which is imported when it is used."""

from functools import partial
from importlib import import_module

from evaluator.reproductions.base import Reproduction


def _load(name: str) -> Reproduction:
    found: Reproduction = import_module(f"evaluator.reproductions.{name.replace('-', '_')}.page").REPRODUCTION
    return found


REPRODUCTIONS = {name: partial(_load, name) for name in ("yauney-mimno-2024", "lu-2023", "cho-inoue-2025")}
