"""Define the sections of a page and the blocks they consist of, and the measured run that sections are built from."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from typing import NamedTuple, Protocol, TypeAlias

import polars as pl
from markupsafe import Markup

from evaluator.files.toml_files import shipped_toml
from evaluator.record import MeasuredRecord
from evaluator.report.table import Table, row_name
from evaluator.schemas import MEAN_OVER_DATASETS


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
        """Read prompt_id, prompt and spans of the given prompts, as far as the run built them."""


@cache
def texts(package: str) -> Mapping[str, Markup]:
    """Return the texts of a package's pages, assets/texts.toml: HTML, with {} for values, which `format` escapes."""
    return {name: Markup(html) for name, html in shipped_toml(package, "texts").items()}  # noqa: S704  (a file of a package)


def script_json(content: object) -> Markup:
    """Return JSON for a script element; no text in the data can end the element."""
    written = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(written.replace("<", "\\u003c"))  # noqa: S704  (escaped)


@dataclass(frozen=True)
class Filled:
    """A template with its variables, for what no other block can show."""

    template: str  # file in evaluator/report/templates, or PACKAGE:FILE
    variables: Mapping[str, object] = field(default_factory=dict)


class Panel(NamedTuple):
    """A figure, or several below one another, with its title."""

    title: str
    drawings: Sequence[str]  # charts.Drawing; none: `absent` of the panels is shown
    about: str = ""  # line below the title
    dataset: str = ""
    data: Mapping[str, object] = {}  # data attributes


@dataclass(frozen=True)
class Panels:
    """Figures side by side."""

    panels: Sequence[Panel]
    style: str = "panels"  # CSS classes
    absent: str = "Not measured."  # shown in place of panels, or of the figure of a panel


def dataset_panels(
    rows: pl.DataFrame, draw: Callable[[pl.DataFrame], Sequence[str]], about: Mapping[str, str] = {}
) -> list[Panel]:
    """Return a panel for each dataset of the rows, in their order.

    Args:
        draw: draws the rows of a dataset.
        about: dataset -> line below its name.
    """
    of_all = MEAN_OVER_DATASETS
    return [
        Panel(row_name(name), draw(of_dataset), about.get(str(name), ""), "" if name == of_all else str(name))
        for (name,), of_dataset in rows.group_by("dataset", maintain_order=True)
    ]


class MatrixCell(NamedTuple):
    """A cell of a matrix, shaded by a share."""

    text: str
    share: float = 0.0  # percent
    tip: str = ""
    style: str = ""  # CSS classes
    data: Mapping[str, object] = {}  # data attributes


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A square of shaded cells."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[MatrixCell | None]]]  # name and cells of each row; None: an empty cell
    dataset: str = ""
    style: str = ""  # CSS classes
    data: Mapping[str, object] = field(default_factory=dict)  # data attributes


@dataclass(frozen=True)
class Matrices:
    """Matrices side by side."""

    matrices: Sequence[Matrix]
    absent: str = "Not measured."


@dataclass(frozen=True)
class Legend:
    """Keys of figures: CSS class of the key -> meaning."""

    keys: Mapping[str, str]


@dataclass(frozen=True)
class List:
    """Texts as a list; nothing is shown for an empty one."""

    items: Sequence[str]
    style: str = "notes"  # CSS classes


@dataclass(frozen=True)
class Group:
    """Blocks that a reader shows or hides together: of one definition, of one dataset, or folded under their title."""

    content: Sequence["Block"]
    title: str = ""
    _: KW_ONLY
    definition: str = ""  # hidden while the reader has chosen another one
    dataset: str = ""
    style: str = ""  # CSS classes
    is_folded: bool = False
    is_open: bool = False  # a folded group that is unfolded at first


def definition_groups(blocks: Iterable[tuple[str, Iterable["Block"]]]) -> list[Group]:
    """Return a group for each definition and its blocks."""
    return [Group([*content], definition=name, style="definition") for name, content in blocks]


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it.

    A page puts its sections below one another in the order given. It collects `notes`, `definitions`, `datasets`,
    `style` and `script` of all of them: notes go below the sections, definitions and datasets into its controls.
    """

    anchor: str  # id of the element, unique on the page
    title: str
    content: Sequence["Block"] = ()
    _: KW_ONLY
    subtitle: str = ""
    kind: str = ""  # CSS class
    navigation: str = ""  # entry in the page's contents; without one it is not listed there
    is_folded: bool = False  # closed until the reader opens it; `subtitle` is then part of what opens it
    definition: str = ""  # the only definition that it shows; hidden while the reader has chosen another
    definitions: Mapping[str, str] = field(default_factory=dict)  # definitions that the reader can choose -> meaning
    datasets: tuple[str, ...] = ()  # datasets that the reader can choose, in order
    notes: tuple[str, ...] = ()  # shown, folded, at the end of the page
    style: str = ""  # PACKAGE:FILE
    script: str = ""

    def with_inner(self) -> Iterator["Section"]:
        """Yield the section and those in its content."""
        yield self
        for block in self.content:
            if isinstance(block, Section):
                yield from block.with_inner()


Block: TypeAlias = str | Table | Panels | Matrices | Legend | List | Group | Filled | Section
"""A part of a section; a text is a paragraph, in which only Markup keeps its tags."""
