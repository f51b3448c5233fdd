"""Run and compare models from Python: results are Polars frames, and a page that a notebook shows.

Options are those of the command line, with underscores: `--input-column` is `input_column`.
"""

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, TypeVar
from weakref import finalize

import click
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from evaluator.cli.options import as_typed, model_configs, run_config
from evaluator.cli.runs import compare as compare_command
from evaluator.cli.stages import run as run_command
from evaluator.cli.terminal import draw
from evaluator.errors import ConfigError, StoreError, require_known
from evaluator.files.digests import short_digest
from evaluator.files.whole import write_bytes
from evaluator.options import flag
from evaluator.progress import Stage, finish
from evaluator.record import MeasuredRecord
from evaluator.report.notes import first_definition
from evaluator.run import pipeline
from evaluator.run.compare import Compared
from evaluator.run.compare import compare as compare_folders
from evaluator.run.folder import BuiltFolder, MeasuredFolder
from evaluator.run.folders import PAGE
from evaluator.run.report import summary_lines
from evaluator.run_log import started_as
from evaluator.schemas import MEAN_OVER_DATASETS

T = TypeVar("T")

_PAGE_HEIGHT = 800  # pixels of a page in a notebook


class Results(ABC):
    """Tables and a page in a folder. A notebook shows the page.

    Attributes:
        folder: where they are. One that nobody named is removed with this object.
        page: path of the page.
    """

    def __init__(self, folder: Path, page: Path, kept: object = None) -> None:
        self.folder, self.page = folder, page
        self._kept = kept  # a temporary folder lives as long as this

    @abstractmethod
    def table(self, name: str) -> pl.DataFrame:
        """Return a table by name, as in `folder`/tables. Raises StoreError for one that is missing or damaged."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    def _repr_html_(self) -> str | None:
        if not self.page.is_file():
            return None  # since it was measured again, `evaluator report` has not been run
        page = escape(self.page.read_text("utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: {_PAGE_HEIGHT}px; border: 0"></iframe>'


class Run(Results):
    """A run of one model, as written by `evaluator run`."""

    def __init__(self, measured: MeasuredFolder, page: Path, kept: object = None) -> None:
        super().__init__(measured.out, page, kept)
        self._measured = measured

    @property
    def record(self) -> MeasuredRecord:
        """Return the record of the run: model, engine, versions, seeds, times."""
        return self._measured.record

    @property
    def metrics(self) -> pl.DataFrame:
        """Return every metric with its 95% interval and baselines (schemas.METRICS)."""
        return self.table("metrics")

    @property
    def summary(self) -> pl.DataFrame:
        """Return the accuracy of each dataset and method: 95% interval, baselines and verdict, under one definition.

        It has the columns suite, part and method if the run has several of them, so that a short frame is shown whole.
        """
        rows = first_definition(self.metrics.filter(metric="accuracy"))
        keys = ["suite", "part", "method"]
        is_dataset = pl.col("dataset") != MEAN_OVER_DATASETS
        rows = rows.filter(is_dataset | (is_dataset.sum().over(keys) > 1))
        several = [name for name in keys if rows[name].n_unique() > 1]
        shown = ("ci_low", "ci_high", "chance", "majority", "verdict", "n_queries")
        return rows.select("dataset", *several, pl.col("value").alias("accuracy"), *shown)

    @property
    def predictions(self) -> pl.DataFrame:
        """Return the answer to every request, with label probabilities (schemas.PREDICTIONS)."""
        return self.table("predictions")

    @property
    def table_names(self) -> list[str]:
        """Return the names that `table` takes."""
        return [*self.record.tables]

    def table(self, name: str) -> pl.DataFrame:
        require_known("This run has no table", [name], self.table_names, StoreError, listed="It has")
        return self._measured.table(name)

    def __str__(self) -> str:
        return "\n".join(summary_lines(self._measured))


class Comparison(Results):
    """A comparison of runs, as written by `evaluator compare`."""

    def __init__(self, folder: Path, compared: Compared, kept: object = None) -> None:
        super().__init__(folder, compared.page, kept)
        self.notes, self._tables = compared.notes, compared.tables  # notes: to read before the numbers
        self.answer = compared.answer  # which run is best, by how much, and whether that is shown

    @property
    def table_names(self) -> list[str]:
        """Return the names that `table` takes."""
        return [*self._tables]

    @property
    def differences(self) -> pl.DataFrame:
        """Return paired differences between models and between methods, with tests (compare.schema.DIFFERENCES)."""
        return self.table("differences")

    def table(self, name: str) -> pl.DataFrame:
        require_known("This comparison has no table", [name], self._tables, StoreError, listed="It has")
        return self._tables[name]

    def __str__(self) -> str:
        return "\n".join([*(f"Note: {note}" for note in self.notes), self.answer])


def evaluate(*suites: str, out: str | Path | None = None, progress: bool = True, **options: Any) -> Run:
    """Build prompts, score them, measure and write a page, as `evaluator run SUITE... --out OUT` does.

    An interrupted run goes on when it is called again with the same `out`.

    Args:
        suites: names that `evaluator suites` lists.
        out: folder of the run; None for one that is removed with the result.
        progress: whether to show progress on standard error.
        options: those of `evaluator run`, with underscores: model="org/name", datasets=["sst5", "trec"], queries=64. A
            list stands for an option that takes several values, True for a flag. `data` and `training_data` may also be
            a frame of Polars, pandas or PyArrow, a datasets.Dataset, a dictionary of columns or a list of dictionaries.

    Raises:
        ConfigError: options that do not exist or do not fit, and more than one model.
        EvaluatorError: whatever the command would say.

    >>> evaluate("classify", model="embedded", data=frame, input_column="body", gold_column="stars")  # doctest: +SKIP
    """
    folder, kept = _folder(out)
    for name in {"data", "training_data"} & options.keys():
        options[name] = _written(options[name], folder)
    given, words = _given(run_command, suites, folder, options)
    with started_as(["run", *words]):
        config, (model, *others) = run_config(given), model_configs(given)
        if others:
            raise ConfigError("evaluate takes one model in one form. Call it for each, then compare_runs.")
        more = {"data": given["store"], "accept": given["accept"], "force": given["force"]}
        finished = _finished(pipeline.run(config, model, folder, **more), progress)
    return Run(finished.run, finished.page, kept)


def open_run(out: str | Path) -> Run:
    """Return the run in a folder. Raises StoreError if there is none, or one that is not measured."""
    out, _ = _folder(out)
    folder = BuiltFolder(out)
    return Run(MeasuredFolder(out, folder.measured, folder.built.store), out / PAGE)


def compare_runs(
    *runs: Run | str | Path, out: str | Path | None = None, progress: bool = True, **options: Any
) -> Comparison:
    """Compare the models of several runs, as `evaluator compare RUN... --out OUT` does.

    Args:
        runs: results of `evaluate`, or their folders.
        out, progress: as for `evaluate`.
        options: those of `evaluator compare`, with underscores.
    """
    folder, kept = _folder(out)
    folders = [str(each.folder if isinstance(each, Run) else each) for each in runs]
    given, words = _given(compare_command, folders, folder, options)
    with started_as(["compare", *words]):
        compared = _finished(compare_folders(given["runs"], given["out"], given["margin"], given["against"]), progress)
    return Comparison(folder, compared, kept)


class _Keeper:
    """Keeps a temporary folder in existence."""


def _folder(out: str | Path | None) -> tuple[Path, object]:
    """Return a folder; a temporary one is removed with the other object, without a warning."""
    if out is not None:
        # Absolute, because tables are read later, maybe from another working folder.
        return Path(os.path.expanduser(out)).absolute(), None
    folder, keeper = Path(mkdtemp(prefix="evaluator-")), _Keeper()
    finalize(keeper, rmtree, folder, ignore_errors=True)
    return folder, keeper


def _written(data: Any, folder: Path) -> Any:
    """Write a table to a file of the run, in a folder named by its content, and return its path; paths unchanged."""
    first = data[0] if isinstance(data, list | tuple) and data else data  # a list of paths, and not of rows
    if data is None or isinstance(first, str | Path):
        return data
    content = _parquet(data)
    path = folder / "data" / short_digest(content) / "table.parquet"
    write_bytes(path, content)
    return str(path)


def _parquet(data: Any) -> bytes:
    """Return a table as Parquet, with the features of a datasets.Dataset. Raises ConfigError for what is no table."""
    content = io.BytesIO()
    try:
        if isinstance(data, pl.DataFrame | pl.LazyFrame):
            table = data.lazy().collect().to_arrow()
        elif isinstance(data, Mapping) and _why_no_table(data):
            raise ValueError
        elif hasattr(data, "features"):  # datasets.Dataset
            table = data.with_format("arrow")[:].replace_schema_metadata(data.features.arrow_schema.metadata)
        else:
            table = pa.Table.from_pylist(list(data)) if isinstance(data, list | tuple) else pa.table(data)
        pq.write_table(table, content)
        return content.getvalue()
    except (pa.ArrowException, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"data of the type {type(data).__name__} is no table{_why_no_table(data)}. Give a path, a frame, a "
            "datasets.Dataset, a dictionary of columns or a list of dictionaries, with columns of one length and "
            "different names, and cells of one kind in each."
        ) from error


def _why_no_table(data: Any) -> str:
    """Return after a colon why data is no table, and what makes one of it, as far as that is known."""
    n_axes = getattr(data, "ndim", 0) if hasattr(data, "__array__") and not hasattr(data, "columns") else 0
    if isinstance(data, Mapping) and any(hasattr(each, "features") for each in data.values()):
        return f": it holds splits: name one, as in data[{next(iter(data))!r}]"
    if hasattr(data, "features") and not hasattr(data, "__len__"):
        return ": its rows arrive one by one. datasets.Dataset.from_list(list(data), data.features) holds them"
    if isinstance(data, Iterator):
        return ": its rows arrive one by one. list(data) holds them"
    if hasattr(data, "to_frame") or isinstance(data, pa.Array | pa.ChunkedArray) or n_axes == 1:
        return ': it is one column. Name it beside the others, as in {"text": data, "label": labels}'
    if n_axes or (isinstance(data, list | tuple) and isinstance(data[0], list | tuple)):
        return ': its columns have no names. polars.DataFrame(data, schema=["text", "label"], orient="row") names them'
    if isinstance(data, list | tuple) and isinstance(data[0], Mapping):
        data = {name: [row.get(name) for row in data if isinstance(row, Mapping)] for name in data[0]}
    for name, cells in data.items() if hasattr(data, "items") and not isinstance(data, type) else ():
        try:
            pq.write_table(pa.table({"": pa.array(None if isinstance(cells, str) else cells)}), io.BytesIO())
        except (pa.ArrowException, TypeError, ValueError):
            return f": the cells of its column {name!r} are no list of one kind that Parquet has"
    return ""


def _given(
    command: click.Command, arguments: Sequence[str], folder: Path, options: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the values of a command's options from those given by name, and the words that say the same.

    Raises ConfigError for an option that does not exist and for a value that it does not take.
    """
    params = command.get_params(click.Context(command))
    known = {str(each.name): each for each in params if each.opts[0][0] == "-" and "--help" not in each.opts}
    given = dict[str, Any]()
    for name, value in options.items():
        plain = value.folder if isinstance(value, Run) else value.item() if isinstance(value, np.generic) else value
        if plain is not None and plain is not False:
            given[name] = plain
    words = [*arguments, "--out", str(folder)]
    require_known("There is no option", given, sorted(known))
    for name, value in given.items():
        given[name] = as_typed(known[name], value)
        for one in given[name] if known[name].multiple else [value]:
            words.append(flag(name))
            words += [] if one is True else [",".join(map(str, one if isinstance(one, list | tuple) else [one]))]
    try:
        context = command.make_context(command.name, [*arguments], default_map=given | {"out": folder})
    except click.ClickException as error:
        raise ConfigError(error.format_message()) from error
    return context.params, words


def _finished(stage: Stage[T], progress: bool) -> T:
    return draw(stage) if progress else finish(stage)
