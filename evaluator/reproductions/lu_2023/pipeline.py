"""`evaluator pvi published`, one call a stage: a folder of released results goes in; tables and a page come out."""

from dataclasses import fields
from pathlib import Path

from evaluator.reproductions.lu_2023.data import open_published
from evaluator.reproductions.lu_2023.page import write_page
from evaluator.reproductions.lu_2023.recompute import PublishedTables, recompute
from evaluator.run.folder import write_table
from evaluator.run.record import writing_to

PAGE = "report.html"


def write_published(folder: Path, out: Path) -> PublishedTables:
    """Write OUT/tables/*.parquet and OUT/report.html. Equal files give equal bytes.

    Raises DatasetError for files that are missing or do not fit.
    """
    published = recompute(open_published(folder))
    with writing_to(out):
        for field in fields(published.tables):
            write_table(out, field.name, getattr(published.tables, field.name))
        write_page(published, out / PAGE)
    return published.tables
