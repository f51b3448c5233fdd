"""Arrange rank correlations as triangles, in which every pair is shown once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl


class Triangle(NamedTuple):
    """Correlations between measures or models, over points of one kind; each cell is a row of RANK_CORRELATIONS."""

    over: str
    measure: str | None  # that models are ranked by
    names: list[str]
    cells: dict[tuple[str, str], dict[str, Any]]  # (the earlier name, the later one) -> its row

    @property
    def is_known(self) -> bool:
        """Return whether any correlation is defined."""
        return any(cell["rho"] is not None for cell in self.cells.values())

    @property
    def reasons(self) -> list[str]:
        """Return the distinct reasons of undefined correlations."""
        return sorted({cell["reason"] for cell in self.cells.values() if cell["rho"] is None})


def triangles(correlations: pl.DataFrame, between: str, names: Sequence[str]) -> list[Triangle]:
    """Return a triangle for each kind of points and each measure that ranks models.

    Args:
        correlations: schema.RANK_CORRELATIONS of one definition.
        names: of measures or models, in the order of rows and columns.
    """
    pairs = correlations.filter(between=between)
    groups = pairs.partition_by("over", "measure", as_dict=True, maintain_order=True)
    return [Triangle(str(over), measure, *pair_cells(rows, names)) for (over, measure), rows in groups.items()]


def pair_cells(rows: pl.DataFrame, names: Sequence[str]) -> tuple[list[str], dict[tuple[str, str], dict[str, Any]]]:
    """Return the names that have correlations, and each row by its two names, in the order of `names`."""
    place = {name: number for number, name in enumerate(names)}
    cells = {
        (min(pair, key=place.__getitem__), max(pair, key=place.__getitem__)): row
        for row in rows.iter_rows(named=True)
        for pair in [(row["a"], row["b"])]
    }
    present = set(rows["a"]) | set(rows["b"])
    return [name for name in names if name in present], cells
