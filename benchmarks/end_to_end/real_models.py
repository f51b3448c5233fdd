"""Write the numbers of real models to docs/real-models.csv, and the tables of docs/real-models.md from this file.

    python -m benchmarks.end_to_end.real_models COMMIT KIND DIR...

COMMIT is the commit of the code that scored the runs, KIND a key of KINDS, DIR the folder of a run. Rows of other
models and kinds are kept.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.run.folder import read_table
from evaluator.run.folders import RunFolder
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.suites.staicc.published import METRICS, NORMAL, figure_points
from evaluator.suites.staicc.standing import predicted, size_text

DOCS = Path(__file__).parents[2] / "docs"
ROWS, PAGE = DOCS / "real-models.csv", DOCS / "real-models.md"
START, END = "<!-- tables: python -m benchmarks.end_to_end.real_models -->\n", "<!-- end of tables -->\n"
SHORT = {name: printed for printed, name in METRICS.items()}
DIAGNOSTICS = {
    "contextual_bias": "contextual bias", "domain_bias": "domain bias", "empirical_bias": "empirical bias",
    "template_consistency": "consistency over templates", "sampling_consistency": "consistency over demonstrations",
    "gler": "GLER",
}  # fmt: skip
_MEANS = pl.col("definition").eq("paper") & pl.col("dataset").eq(MEAN_OVER_DATASETS)
WHOLE, METHODS, CHAT = "whole", "methods", "chat"
KINDS = {
    WHOLE: pl.col("metric").is_in(NORMAL) & pl.col("definition").eq("published") & pl.col("method").eq("vanilla"),
    METHODS: pl.col("metric").is_in(NORMAL) & _MEANS,
    CHAT: pl.col("metric").is_in(NORMAL) & _MEANS,
    "bias": pl.col("metric").is_in([*DIAGNOSTICS]) & _MEANS,
    "robustness": pl.col("metric").is_in([*DIAGNOSTICS]) & _MEANS,
}
"""Kind of run -> condition on its metrics that are kept. "whole": StaICC-Normal with all queries; "methods" and "chat":
its methods, and plain against chat template, on fewer queries; "bias" and "robustness": diagnostics."""


def rows_of(run: Path, kind: str, commit: str) -> pl.DataFrame:
    """Return the kept metrics of a run, one row per method, dataset and metric.

    Args:
        run: folder of the run.
        kind: key of KINDS.
        commit: commit of the code that scored the run.
    """
    record = RunFolder(run).measured
    metrics = read_table(run, "metrics", record.tables)
    about = {"model": Path(record.model.name).name, "n_parameters": record.model.n_parameters, "commit": commit}
    about |= {"engine": record.engine.name, "dtype": record.engine.dtype, "kind": kind}
    columns = ["method", "definition", "dataset", "metric", "value", "ci_low", "ci_high", "chance"]
    columns += ["n_queries", "n_requests"]
    return metrics.filter(KINDS[kind]).select(*(pl.lit(value).alias(name) for name, value in about.items()), *columns)


def tables(rows: pl.DataFrame) -> Iterator[str]:
    """Yield the page's text: whole runs, then methods, chat templates and diagnostics with one column per model."""
    yield from _whole(rows.filter(kind=WHOLE))
    of_vanilla = rows.filter(pl.col("method") == "vanilla")
    form = {METHODS: "plain", CHAT: "chat template"}
    others = {
        "Methods": rows.filter(kind=METHODS, metric="accuracy").with_columns(row="method"),
        "Plain and through the chat template": of_vanilla.filter(pl.col("kind").is_in([*form]))
        .with_columns(row=pl.col("metric").replace_strict(SHORT) + ", " + pl.col("kind").replace_strict(form))
        .sort("metric", "kind", descending=[False, True], maintain_order=True),
        "Diagnostics": of_vanilla.filter(pl.col("metric").is_in([*DIAGNOSTICS])).with_columns(
            row=pl.col("metric").replace(DIAGNOSTICS)
        ),
    }
    for title, found in others.items():
        if found.height:
            yield from _side_by_side(title, found)


def _side_by_side(title: str, rows: pl.DataFrame) -> Iterator[str]:
    """Yield a Markdown table of means over datasets, with one line per value of `row` and one column per model."""
    models = rows["model"].unique(maintain_order=True).to_list()
    yield f"## {title}\n\n| | {' | '.join(models)} |\n|---|{'---:|' * len(models)}\n"
    for (name,), of_row in rows.group_by("row", maintain_order=True):
        cells = {cell["model"]: _cell(cell) for cell in of_row.iter_rows(named=True)}
        yield f"| {name} | {' | '.join(cells.get(model, '') for model in models)} |\n"
    yield "\n"


def _cell(cell: dict[str, Any]) -> str:
    ends = f" ({cell['ci_low']:.3f} to {cell['ci_high']:.3f})" if cell["ci_low"] is not None else ""
    return f"{cell['value']:.3f}{ends}"


def _whole(rows: pl.DataFrame) -> Iterator[str]:
    """Yield, for every model, a table of comparison with published models and a table with one row per dataset."""
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
            numbers = " | ".join(_cell(cells[metric]) for metric in NORMAL)
            yield f"| {dataset} | {cells['accuracy']['chance']:.3f} | {numbers} |\n"
        yield "\n"


def with_tables(page: str, rows: pl.DataFrame) -> str:
    """Return the page with its tables replaced by the tables of `rows`."""
    before, rest = page.split(START)
    return before + START + "\n" + "".join(tables(rows)) + END + rest.split(END)[1]


def main(commit: str, kind: str = WHOLE, *runs: str) -> None:
    old = pl.read_csv(ROWS, infer_schema_length=None)
    new = [rows_of(Path(run), kind, commit).cast(old.schema) for run in runs]
    for table in new:
        old = pl.concat([old.join(table, on=["model", "kind"], how="anti"), table])
    old.write_csv(ROWS)
    PAGE.write_text(with_tables(PAGE.read_text(), old))


if __name__ == "__main__":
    main(*sys.argv[1:])
