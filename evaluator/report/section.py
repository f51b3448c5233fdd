"""Define the sections of a page, the blocks that they consist of, and the measured run that they are built from."""

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
    """A run after the measure stage: what functions that build sections may read."""

    @property
    def record(self) -> MeasuredRecord:
        """Return the record of the run."""

    def table(self, name: str) -> pl.DataFrame:
        """Read a table of the measure stage. Raises StoreError if it is missing or was measured from other scores."""

    def scan(self, name: str) -> pl.LazyFrame:
        """Scan a table of the measure stage that may not fit into memory. Raises StoreError as `table` does."""

    def side_table(self, name: str, schema: pl.Schema) -> pl.DataFrame:
        """Read a table that a suite wrote in the build stage, next to the prompts."""

    def prompts(self, prompt_ids: pl.Series) -> pl.DataFrame:
        """Read prompt_id, prompt and spans of these prompts; prompts that the run did not build are left out."""


@cache
def texts(package: str) -> Mapping[str, Markup]:
    """Return the texts in assets/texts.toml of a package: HTML, with {} for values, which `format` escapes."""
    return {name: Markup(html) for name, html in shipped_toml(package, "texts").items()}  # noqa: S704  (a file of a package)


def script_json(content: object) -> Markup:
    """Return JSON for a script element; "<" is escaped, so that no text in the data can end the element."""
    written = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(written.replace("<", "\\u003c"))  # noqa: S704  (escaped)


@dataclass(frozen=True)
class Filled:
    """A template with its variables, for content that no other block can show."""

    template: str  # file in evaluator/report/templates, or PACKAGE:FILE
    variables: Mapping[str, object] = field(default_factory=dict)


class Panel(NamedTuple):
    """One figure, or several below one another, with a title."""

    title: str
    drawings: Sequence[str]  # figures.Drawing; if empty, Panels.absent is shown
    about: str = ""  # line below the title
    dataset: str = ""  # dataset by which the reader can hide the panel
    data: Mapping[str, object] = {}  # data attributes of the element: name -> value


@dataclass(frozen=True)
class Panels:
    """Figures side by side."""

    panels: Sequence[Panel]
    style: str = "panels"  # CSS classes
    absent: str = "Not measured."  # text shown if there are no panels, or a panel has no figure


def dataset_panels(
    rows: pl.DataFrame, draw: Callable[[pl.DataFrame], Sequence[str]], about: Mapping[str, str] = {}
) -> list[Panel]:
    """Return a panel for each dataset, in the order of the rows.

    Args:
        rows: table with a column `dataset`, which can be MEAN_OVER_DATASETS.
        draw: returns the figures of the rows of a dataset.
        about: dataset -> line below its name.
    """
    of_all = MEAN_OVER_DATASETS
    return [
        Panel(row_name(name), draw(of_dataset), about.get(str(name), ""), "" if name == of_all else str(name))
        for (name,), of_dataset in rows.group_by("dataset", maintain_order=True)
    ]


class MatrixCell(NamedTuple):
    """A cell of a matrix, shaded by `share`."""

    text: str
    share: float = 0.0  # strength of the shade, 0 to 100
    tip: str = ""  # tooltip
    style: str = ""  # CSS classes
    data: Mapping[str, object] = {}  # data attributes


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A table of shaded cells, such as a confusion matrix."""

    title: str
    columns: Sequence[str]  # names of the columns
    rows: Sequence[tuple[str, Sequence[MatrixCell | None]]]  # name and cells of each row; None: an empty cell
    dataset: str = ""  # dataset by which the reader can hide the matrix
    style: str = ""  # CSS classes
    data: Mapping[str, object] = field(default_factory=dict)  # data attributes


@dataclass(frozen=True)
class Matrices:
    """Matrices side by side."""

    matrices: Sequence[Matrix]
    absent: str = "Not measured."


@dataclass(frozen=True)
class Legend:
    """A legend of figures."""

    keys: Mapping[str, str]  # CSS class of a key -> its meaning


@dataclass(frozen=True)
class List:
    """Texts as a list; an empty list is not shown."""

    items: Sequence[str]
    style: str = "notes"  # CSS classes


@dataclass(frozen=True)
class Group:
    """Blocks that a reader shows or hides together, because of their definition or dataset, or by folding the group."""

    content: Sequence["Block"]
    title: str = ""
    _: KW_ONLY
    definition: str = ""  # the group is hidden while the reader has chosen another definition
    dataset: str = ""  # the group is hidden while the reader has not chosen this dataset
    style: str = ""  # CSS classes
    is_folded: bool = False  # the reader can fold the group under its title
    is_open: bool = False  # a group that can be folded is open at first


def definition_groups(blocks: Iterable[tuple[str, Iterable["Block"]]]) -> list[Group]:
    """Return a group for each pair of a definition and its blocks."""
    return [Group([*content], definition=name, style="definition") for name, content in blocks]


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it.

    A page shows its sections in the order given. It collects `notes`, `definitions`, `datasets`, `style` and `script`
    of all sections: notes are shown below the sections, definitions and datasets in the controls of the page.
    """

    anchor: str  # id of the element, unique on the page
    title: str
    content: Sequence["Block"] = ()
    _: KW_ONLY
    subtitle: str = ""
    kind: str = ""  # CSS class
    navigation: str = ""  # entry in the contents of the page; "": the section is not listed
    is_folded: bool = False  # closed until the reader clicks on title or subtitle
    definition: str = ""  # the section is hidden while the reader has chosen another definition
    definitions: Mapping[str, str] = field(default_factory=dict)  # definition that the reader can choose -> its meaning
    datasets: tuple[str, ...] = ()  # datasets that the reader can choose, in order
    notes: tuple[str, ...] = ()  # texts that are shown, folded, at the end of the page
    style: str = ""  # CSS that the section needs: PACKAGE:FILE
    script: str = ""  # JavaScript that the section needs: PACKAGE:FILE

    def with_inner(self) -> Iterator["Section"]:
        """Yield this section and all sections in its content."""
        yield self
        for block in self.content:
            if isinstance(block, Section):
                yield from block.with_inner()


Block: TypeAlias = str | Table | Panels | Matrices | Legend | List | Group | Filled | Section
"""A part of a section; a text is a paragraph, whose HTML tags are escaped unless it is Markup."""
