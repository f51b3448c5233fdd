"""Run and compare models from Python. Results are Polars frames and an HTML page that notebooks display.

Options have the names of the command line, with underscores: `--input-column` is `input_column`.
"""

import io
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
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
from evaluator.config import flag
from evaluator.errors import ConfigError, EvaluatorError, StoreError, require_known, shown
from evaluator.files.digests import short_digest
from evaluator.files.whole import write_bytes
from evaluator.process import in_this_process, require_unforked
from evaluator.progress import finish
from evaluator.report.notes import first_definition
from evaluator.run import pipeline
from evaluator.run.compare import Compared
from evaluator.run.compare import compare as compare_folders
from evaluator.run.folder import BuiltFolder, MeasuredFolder
from evaluator.run.folders import PAGE
from evaluator.run.pipeline import summary_lines
from evaluator.run_log import started_as
from evaluator.schemas import MEAN_OVER_DATASETS

_PAGE_HEIGHT = 800  # height of a page in a notebook, in pixels


class Results:
    """Tables and an HTML page in a folder. A notebook displays the page.

    Attributes:
        folder: folder of the results. A temporary folder is removed together with this object.
        page: path of the page.
        table_names: names that `table` takes.
    """

    def __init__(self, page: Path, names: Collection[str], read: Callable[[str], pl.DataFrame], kept: object) -> None:
        self.folder, self.page, self.table_names, self._read = page.parent, page, [*names], read
        self._kept = kept  # keeps a temporary folder alive (_Keeper)

    def table(self, name: str) -> pl.DataFrame:
        """Return a table of `folder`/tables by name. Raises StoreError for a missing or damaged table."""
        what = f"This {type(self).__name__.lower()} has no table"
        require_known(what, [name], self.table_names, StoreError, listed="It has")
        return self._read(name)

    def __fspath__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    def _repr_html_(self) -> str | None:
        if not self.page.is_file():
            return None  # the run was measured again, and `evaluator report` has not been run since
        page = escape(self.page.read_text("utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: {_PAGE_HEIGHT}px; border: 0"></iframe>'


class Run(Results):
    """A run of one model, as written by `evaluator run`.

    Attributes:
        record: record of the run, such as model, engine, versions, seeds and times.
    """

    def __init__(self, measured: MeasuredFolder, kept: object = None) -> None:
        super().__init__(measured.out / PAGE, measured.record.tables, measured.table, kept)
        self._measured, self.record = measured, measured.record

    @property
    def metrics(self) -> pl.DataFrame:
        """Return all metrics with 95% intervals and baselines (schemas.METRICS)."""
        return self.table("metrics")

    @property
    def summary(self) -> pl.DataFrame:
        """Return the accuracy of each dataset and method, with 95% interval, baselines and verdict.

        Rows are those of the run's first definition. The columns suite, part and method are left out where the run has
        only one value, so that the frame is narrow. Rows of means over datasets need at least two datasets.
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
        """Return the prediction of every request, with label probabilities (schemas.PREDICTIONS)."""
        return self.table("predictions")

    def __str__(self) -> str:
        return "\n".join(summary_lines(self._measured))


class Comparison(Results):
    """A comparison of runs, as written by `evaluator compare`."""

    def __init__(self, compared: Compared, kept: object = None) -> None:
        super().__init__(compared.page, compared.tables, compared.tables.__getitem__, kept)
        self.notes = compared.notes  # caveats about the numbers
        self.answer = compared.answer  # sentence: the best run, its lead, and whether the lead is significant

    @property
    def differences(self) -> pl.DataFrame:
        """Return paired differences between models and between methods, with tests (compare.schema.DIFFERENCES)."""
        return self.table("differences")

    def __str__(self) -> str:
        return "\n".join([*(f"Note: {note}" for note in self.notes), self.answer])


def evaluate(*suites: str, out: str | Path | None = None, progress: bool = True, **options: Any) -> Run:
    """Build prompts, score them, measure and write a page, as `evaluator run SUITE... --out OUT` does.

    A second call with the same arguments and `out` resumes an interrupted run.

    Args:
        suites: names of suites, as listed by `evaluator suites`.
        out: folder of the run; None: a temporary folder, which is removed together with the result.
        progress: whether to show progress on standard error.
        options: options of `evaluator run`, with underscores: model="org/name", datasets=["sst5", "trec"], queries=64.
            An option with several values takes a list, a flag takes True. `data` and `training_data` may also be a
            frame of Polars, pandas or PyArrow, a datasets.Dataset, a dictionary of columns or a list of dictionaries.

    Returns:
        The finished run.

    Raises:
        ConfigError: an option that does not exist or does not fit, or several models.
        EvaluatorError: any other error of the command.

    >>> evaluate("classify", model="embedded", data=frame, input_column="body", gold_column="stars")  # doctest: +SKIP
    """
    folder, kept = _folder(out)
    tables = {name: _written(options[name], folder) for name in {"data", "training_data"} & options.keys()}
    frames = {path: name for name, path in tables.items() if path is not options[name]}
    given, words = _given(run_command, suites, folder, options | tables)
    with started_as(["run", *words]), _named(frames):
        config, (model, *others) = run_config(given), model_configs(given)
        if others:
            raise ConfigError("evaluate takes one model in one form. Call it for each, then compare_runs.")
        more = {"data": given["store"], "accept": given["accept"], "force": given["force"]}
        finished = (draw if progress else finish)(pipeline.run(config, model, folder, **more))
    return Run(finished.run, kept)


def open_run(out: str | os.PathLike[str]) -> Run:
    """Return the run in a folder. Raises StoreError if the folder has no run, or the run is not measured."""
    path, _ = _folder(out)
    folder = BuiltFolder(path)
    return Run(MeasuredFolder(path, folder.measured, folder.built.store), kept=out)


def compare_runs(
    *runs: Run | str | Path, out: str | Path | None = None, progress: bool = True, **options: Any
) -> Comparison:
    """Compare the models of several runs, as `evaluator compare RUN... --out OUT` does.

    Args:
        runs: results of `evaluate`, or folders of runs.
        out, progress: as for `evaluate`.
        options: options of `evaluator compare`, with underscores.
    """
    folder, kept = _folder(out)
    folders = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in runs]
    given, words = _given(compare_command, folders, folder, options)
    with started_as(["compare", *words]):
        stage = compare_folders(given["runs"], given["out"], given["margin"], given["against"])
        compared = (draw if progress else finish)(stage)
    return Comparison(compared, kept)


class _Keeper:
    """Object with which a temporary folder is removed (_folder)."""


def _folder(out: str | os.PathLike[str] | None) -> tuple[Path, object]:
    """Return the folder of results, and the object with which it is removed, if it is temporary, else None.

    A finalizer removes the folder and not TemporaryDirectory, which would warn.
    """
    require_unforked()
    if not isinstance(out, str | os.PathLike | None):
        raise ConfigError(f"A folder is a path, got {shown(out)}.")
    if out is not None:
        # Absolute, because tables are read later, perhaps after a change of the working folder.
        return Path(os.path.expanduser(out)).absolute(), None
    folder, keeper = Path(mkdtemp(prefix="evaluator-")), _Keeper()
    finalize(keeper, in_this_process(rmtree), folder, ignore_errors=True)
    return folder, keeper


@contextmanager
def _named(frames: Mapping[str, str]) -> Iterator[None]:
    """Name frames in errors as the arguments that they are, not by the files that they were written to.

    Args:
        frames: path of the file -> name of the argument.
    """
    try:
        yield
    except EvaluatorError as error:
        text = str(error)
        for path, name in frames.items():
            text = text.replace(path, name)
        error.args = (text,)
        raise


def _written(data: Any, folder: Path) -> Any:
    """Write a table of Python to FOLDER/data/DIGEST/table.parquet and return this path; return paths unchanged."""
    first = data[0] if isinstance(data, list | tuple) and data else data  # a list may hold paths or rows
    if data is None or isinstance(first, str | Path):
        return data
    content = _parquet(data)
    path = folder / "data" / short_digest(content) / "table.parquet"
    write_bytes(path, content)
    return str(path)


def _parquet(data: Any) -> bytes:
    """Return a table as bytes of a Parquet file, which keeps the features of a datasets.Dataset.

    Raises ConfigError for data that are not a table.
    """
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
        for place, field in enumerate(table.schema):
            if getattr(field.type, "extension_name", "") == "pandas.period":  # Parquet would keep the ordinals alone
                texts = table.column(place).to_pandas().astype("string")
                table = table.set_column(place, field.name, pa.array(texts))
        pq.write_table(table, content)
        return content.getvalue()
    except (pa.ArrowException, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"data of the type {type(data).__name__} is no table{_why_no_table(data)}. Give a path, a frame, a "
            "datasets.Dataset, a dictionary of columns or a list of dictionaries, with columns of one length and "
            "different names, and cells of one kind in each."
        ) from error


def _why_no_table(data: Any) -> str:
    """Return ": REASON" why data is not a table, with the expression that makes it one; "" if the reason is unknown."""
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
    """Return the values of all options of a command, and the words of the equivalent command line.

    Args:
        command: the command.
        arguments: its positional arguments.
        folder: value of --out.
        options: name with underscores -> value; None and False count as not given.

    Raises ConfigError for an option that does not exist, and for a value that the option does not accept.
    """
    params = command.get_params(click.Context(command))
    known = {str(each.name): each for each in params if each.opts[0][0] == "-" and "--help" not in each.opts}
    given = dict[str, Any]()
    for name, value in options.items():
        plain = value.folder if isinstance(value, Run) else value.item() if isinstance(value, np.generic) else value
        if plain is not None and plain is not False:
            given[name] = plain
    if wrong := [each for each in arguments if not isinstance(each, str)]:
        raise ConfigError(f"{command.name} takes names or folders one by one, got {shown(wrong[0])}.")
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
