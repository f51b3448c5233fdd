"""`evaluator baselines table`, one call a stage: a folder of published results goes in; tables and a page come out."""

from dataclasses import fields
from pathlib import Path

import polars as pl

from evaluator.files import replacing
from evaluator.progress import Progress, Stage
from evaluator.reproductions.yauney_mimno_2024.data import open_published
from evaluator.reproductions.yauney_mimno_2024.page import write_page
from evaluator.reproductions.yauney_mimno_2024.verdicts import PublishedTables, recompute
from evaluator.run.record import writing_to

PAGE = "baselines.html"


def write_published(folder: Path, out: Path) -> Stage[PublishedTables]:
    """Write OUT/tables/*.parquet, the same as *.csv, and OUT/baselines.html. Equal files give equal bytes.

    Raises DatasetError for files that are missing or do not fit.
    """
    data = open_published(folder)
    with writing_to(out):
        published = yield from recompute(data)
        yield Progress(stage="Writing tables and figures", done=0, total=1, unit="pages")
        for field in fields(published.tables):
            _write_both(out / "tables" / field.name, getattr(published.tables, field.name))
        write_page(published, out / PAGE)
        yield Progress(stage="Writing tables and figures", done=1, total=1, unit="pages")
    return published.tables


def _write_both(path: Path, table: pl.DataFrame) -> None:
    with replacing(path.with_suffix(".parquet")) as file:
        table.rechunk().write_parquet(file, compression="zstd")
    with replacing(path.with_suffix(".csv")) as file:
        table.write_csv(file)
