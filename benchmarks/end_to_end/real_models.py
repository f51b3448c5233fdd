"""The numbers of real models: docs/real-models.csv, and the tables of docs/real-models.md that are made from it.

    python -m benchmarks.end_to_end.real_models COMMIT DIR...

DIR is a whole run of StaICC-Normal, COMMIT that of the code that scored it. Rows of other models stay.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from evaluator.run.folder import read_table
from evaluator.run.folders import RunFolder
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.suites.staicc.published import METRICS, NORMAL, figure_points, predicted, size_text

DOCS = Path(__file__).parents[2] / "docs"
ROWS, PAGE = DOCS / "real-models.csv", DOCS / "real-models.md"
START, END = "<!-- tables: python -m benchmarks.end_to_end.real_models -->\n", "<!-- end of tables -->\n"
SHORT = {name: printed for printed, name in METRICS.items()}


def rows_of(run: Path, commit: str) -> pl.DataFrame:
    """Return the published definition's metrics of a run, one row a dataset and metric."""
    record = RunFolder(run).measured
    metrics = read_table(run, "metrics", record.tables)
    about = {"model": Path(record.model.name).name, "n_parameters": record.model.n_parameters, "commit": commit}
    about |= {"engine": record.engine.name, "dtype": record.engine.dtype}
    shown = metrics.filter(pl.col("metric").is_in(NORMAL), definition="published", method="vanilla", part="normal")
    columns = ["dataset", "metric", "value", "ci_low", "ci_high", "chance", "n_queries", "n_requests"]
    return shown.select(*(pl.lit(value).alias(name) for name, value in about.items()), *columns)


def tables(rows: pl.DataFrame) -> Iterator[str]:
    """Yield for each model where it stands among the published models, and a table with a row for each dataset."""
    for (model, n_parameters), of_model in rows.group_by("model", "n_parameters", maintain_order=True):
        datasets = of_model["dataset"].unique(maintain_order=True).to_list()
        datasets = [*(name for name in datasets if name != MEAN_OVER_DATASETS), MEAN_OVER_DATASETS]
        yield f"## {model}\n\n"
        yield f"{of_model['engine'][0]}, {of_model['dtype'][0]}, scored by commit {of_model['commit'][0]}.\n\n"
        yield f"| | this model | published models of {size_text(n_parameters)} |\n|---|---:|---:|\n"
        for metric in NORMAL:
            value = of_model.filter(metric=metric, dataset=MEAN_OVER_DATASETS)["value"].item()
            points = figure_points().filter(figure=4, metric=metric)
            low, high = predicted(points, [n_parameters]).select("low", "high").row(0)
            yield f"| {SHORT[metric]} | {value:.3f} | {low:.2f} to {high:.2f} |\n"
        heads = " | ".join(SHORT[metric] for metric in NORMAL)
        yield f"\n| dataset | chance | {heads} |\n|---|---:|{'---:|' * len(NORMAL)}\n"
        for dataset in datasets:
            cells = {row["metric"]: row for row in of_model.filter(dataset=dataset).iter_rows(named=True)}
            numbers = " | ".join(
                f"{cell['value']:.3f} ({cell['ci_low']:.3f} to {cell['ci_high']:.3f})"
                for cell in (cells[metric] for metric in NORMAL)
            )
            yield f"| {dataset} | {cells['accuracy']['chance']:.3f} | {numbers} |\n"
        yield "\n"


def with_tables(page: str, rows: pl.DataFrame) -> str:
    """Return the page with the tables of these rows."""
    before, rest = page.split(START)
    return before + START + "\n" + "".join(tables(rows)) + END + rest.split(END)[1]


def main(commit: str, *runs: str) -> None:
    new = pl.concat([rows_of(Path(run), commit) for run in runs]) if runs else pl.read_csv(ROWS).clear()
    old = pl.read_csv(ROWS, schema=new.schema) if ROWS.exists() else new.clear()
    rows = pl.concat([old.join(new, on="model", how="anti"), new])
    rows.write_csv(ROWS)
    PAGE.write_text(with_tables(PAGE.read_text(), rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
