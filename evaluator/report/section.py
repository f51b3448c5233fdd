"""Define a section of a page, and the measured run that sections are built from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import polars as pl

from evaluator.record import MeasuredRecord


class MeasuredRun(Protocol):
    """A run after the measure stage, as the builders of sections see it."""

    @property
    def record(self) -> MeasuredRecord:
        """Return the record of the run."""

    def table(self, name: str) -> pl.DataFrame:
        """Read a table of the measure stage. Raises StoreError where it is missing or measured from other scores."""

    def scan(self, name: str) -> pl.LazyFrame:
        """Return a scan of a table that need not fit into memory. Raises as `table` does."""

    def side_table(self, name: str, schema: pl.Schema) -> pl.DataFrame:
        """Read a table that a suite wrote next to its prompts."""

    def prompts(self, prompt_ids: pl.Series) -> pl.DataFrame:
        """Read prompt_id, prompt and spans of those of these prompts that the run built."""


class PackageFile(NamedTuple):
    """A template, script or style inside a package."""

    package: str
    file: str  # path below the package's folder

    @property
    def name(self) -> str:
        """Return its name for the template loader."""
        return f"{self.package}:{self.file}"


def core_template(file: str) -> PackageFile:
    """Return a template of evaluator/report/templates."""
    return PackageFile("evaluator.report", f"templates/{file}")


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what is below it: the output of a template, then other sections.

    A page puts its sections below one another in the order given. It collects `notes`, `definitions`, `datasets`,
    `style` and `script` of all of them: notes go to the head of the page, definitions and datasets into its controls.
    """

    anchor: str  # id of the element, unique on the page
    title: str
    subtitle: str = ""
    kind: str = ""  # CSS class
    navigation: str = ""  # entry in the page's contents; without one it is not listed there
    template: PackageFile | None = None
    context: object = None  # variables of the template: a NamedTuple or a mapping
    sections: tuple["Section", ...] = ()
    is_folded: bool = False  # closed until the reader opens it; `subtitle` is then part of what opens it
    definition: str = ""  # the only definition that it shows; hidden while the reader has chosen another
    definitions: Mapping[str, str] = field(default_factory=dict)  # definitions that the reader can choose -> meaning
    datasets: tuple[str, ...] = ()  # datasets that the reader can choose, in order
    notes: tuple[str, ...] = ()  # shown at the top of the page
    style: PackageFile | None = None
    script: PackageFile | None = None
