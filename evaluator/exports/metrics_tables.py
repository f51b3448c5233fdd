"""Export only the table of metrics: as CSV, Markdown, LaTeX with the rules of booktabs, and model-index in YAML.

Source of model-index: huggingface_hub's EvalResult, and modelcard.md of huggingface/hub-docs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from evaluator.exports.base import ExportedFile, ExportedRun, Format
from evaluator.redaction import csv_text, printable
from evaluator.report.methods import by_method
from evaluator.report.notes import first_definition
from evaluator.report.run_record import KIND_WARNINGS
from evaluator.report.table import by_definition, dataset_order, number, row_name
from evaluator.schemas import MEAN_OVER_DATASETS

BASELINES = {"chance": "Chance", "majority": "Majority", "max_random": "Max random"}
"""Column of a baseline of accuracy -> its title."""

LATEX_SPECIAL = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "∞": r"$\infty$"}
    | {character: f"\\{character}" for character in "&%$#_{}"}
    | {character: f"{{{character}}}" for character in "[]"}  # after \\ a bracket would begin an optional argument
)


LATEX_HEAD = "% \\usepackage{booktabs} goes into the preamble. 95\\% intervals are in brackets.\n"


class TextTable(NamedTuple):
    """The results of one part, method and definition as texts; a cell is empty if it was not measured."""

    title: str
    is_first: bool  # whether the definition is the first of the run
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]  # one row for each dataset, which begins with the name
    has_mean: bool = False  # whether the last row is the mean over datasets


def text_tables(run: ExportedRun) -> Iterator[TextTable]:
    """Yield a table of the headline metrics for each part, method and definition, with intervals and baselines."""
    headlines = run.texts.headlines(run.metrics)
    datasets, first = dataset_order(headlines, run.record.prompts.datasets), None
    for (suite, part, method), results in by_method(headlines):
        # The tables of a part and method have the same columns: the metrics that any definition measures.
        metrics = run.texts.in_order(results["metric"])
        arrows = ["↓" if run.texts.lower_is_better(name) else "↑" for name in metrics]
        titles = [f"{run.texts.title(name)} {arrow}" for name, arrow in zip(metrics, arrows, strict=True)]
        for definition, rows in by_definition(results, datasets):
            first = first or definition
            title = f"{suite} / {part}, {method}, definition {definition}"
            columns = ("Dataset", *titles, *(BASELINES.values() if "accuracy" in metrics else ()))
            cells = [_cells(row, metrics) for row in rows.iter_rows(named=True)]
            yield TextTable(title, definition == first, columns, cells, MEAN_OVER_DATASETS in rows["dataset"])


def _cells(row: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    """Return the cells of a dataset: name, value of each metric, and baselines if accuracy is a metric."""
    values = ["" if row.get(name) is None else _value(row[name]) for name in metrics]
    baselines = [(row.get("accuracy") or {}).get(name) for name in BASELINES] if "accuracy" in metrics else []
    return [row_name(row["dataset"]), *values, *("" if value is None else f"{value:.3f}" for value in baselines)]


def _value(row: Mapping[str, Any]) -> str:
    value, low, high = (row[name] for name in ("value", "ci_low", "ci_high"))
    return _number(value) + ("" if low is None or high is None else f" [{_number(low)}, {_number(high)}]")


def _number(value: float | None) -> str:
    """Return a number as on pages, but with an ASCII hyphen as its sign; "undefined" for None."""
    return "undefined" if value is None else number(value).replace("−", "-")


def _markdown(run: ExportedRun) -> Iterator[ExportedFile]:
    """Yield a file of tables in GitHub's Markdown; tables of all definitions but the first are folded."""
    record = run.record
    blocks = [
        f"### {_markdown_text(run.model)}: in-context classification",
        f"{', '.join(record.prompts.suites)} · shots: {record.prompts.shots} · queries: {record.prompts.queries} · "
        f"{record.engine.name} {record.engine.dtype} · evaluator {record.evaluator} · 95% intervals in brackets",
    ]
    if warning := KIND_WARNINGS.get(record.model.kind):
        blocks.append(f"**{warning}**")
    for dataset, reason in record.left_out.items():
        blocks.append(f"Left out of every number and mean: {_markdown_text(dataset)}. {_markdown_text(reason)}")
    for table in text_tables(run):
        title, text = _markdown_text(table.title), _markdown_table(table)
        folded = [f"<details><summary>{title}</summary>", text, "</details>"]
        blocks += [f"**{title}**", text] if table.is_first else folded
    yield ExportedFile("results.md", "\n\n".join(blocks).encode() + b"\n")


def _markdown_table(table: TextTable) -> str:
    head, *rows = ([*map(_markdown_text, row)] for row in (table.columns, *table.rows))
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def comparison_file(accuracies: pl.DataFrame, *, is_latex: bool) -> ExportedFile:
    """Return a file with the accuracies of several runs: a table for each part and method, a row for each run.

    Columns are datasets and their mean, which has its 95% interval. Only the first definition is exported.

    Args:
        accuracies: compare.schema.COMPARISON of the metric accuracy.
        is_latex: whether to write LaTeX, else Markdown.
    """
    tables = []
    for (suite, part, method), rows in by_method(first_definition(accuracies)):
        datasets = [name for name in rows["dataset"].unique().sort() if name != MEAN_OVER_DATASETS]
        shown = datasets if len(datasets) == 1 else [*datasets, MEAN_OVER_DATASETS]
        lines = []
        for of_model in rows.sort("number").partition_by("model", maintain_order=True):
            row = {each["dataset"]: each for each in of_model.iter_rows(named=True)}
            *others, last = (row[name] for name in shown)
            lines.append([last["model"], *(_number(each["value"]) for each in others), _value(last)])
        columns = ("Model", *(name.capitalize() if name == MEAN_OVER_DATASETS else name for name in shown))
        title = f"accuracy, {suite} / {part}, {method}, definition {rows['definition'][0]}"
        tables.append(TextTable(title, True, columns, lines))
    if is_latex:
        return _latex_file("comparison.tex", tables, f"{accuracies['model'].n_unique()} models")
    text = "\n\n".join(f"**{_markdown_text(table.title)}**\n\n{_markdown_table(table)}" for table in tables)
    return ExportedFile("comparison.md", f"{text}\n".encode())


def _markdown_text(text: str) -> str:
    """Escape a text for Markdown, on one line, so that GitHub links no person, issue or address in it."""
    line = _LINKED.sub(f"\\g<0>{WORD_JOINER}", " ".join(printable(text).split()))
    return re.sub(r"([\\`*_{}<>#|~\[\]&!])", r"\\\1", line)


WORD_JOINER = "\u2060"
"""A character of zero width, which stops GitHub from linking the text around it."""

# Beginnings of mentions (@name), issues (#1, GH-1) and addresses (://, www.): WORD_JOINER is added after them.
_LINKED = re.compile(r"@(?=\w)|(?:(?<!_)|/[\w.-]*)#(?=\d)|\bGH-(?=\d)|:(?=//)|\bwww(?=\.)", re.IGNORECASE)


def _latex(run: ExportedRun) -> Iterator[ExportedFile]:
    yield _latex_file("results.tex", text_tables(run), run.model)


def _latex_file(name: str, tables: Iterable[TextTable], model: str) -> ExportedFile:
    return ExportedFile(name, (LATEX_HEAD + "\n".join(_latex_table(table, model) for table in tables)).encode())


def _latex_table(table: TextTable, model: str) -> str:
    caption, n_datasets = _latex_text(f"{model}: {table.title}"), len(table.rows) - table.has_mean
    lines = [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{caption}. 95\\% intervals in brackets.}}",
        f"  \\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        r"    \toprule",
        _latex_row(table.columns),
        r"    \midrule",
        *map(_latex_row, table.rows[:n_datasets]),
        *([r"    \midrule", _latex_row(table.rows[-1])] if table.has_mean else []),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return f"    {' & '.join(map(_latex_text, cells))} \\\\"


def _latex_text(text: str) -> str:
    """Escape a text for LaTeX, on one line."""
    return " ".join(printable(text).split()).translate(LATEX_SPECIAL)


def _csv(run: ExportedRun) -> Iterator[ExportedFile]:
    """Yield the table of metrics with the model in the first columns, so that files of runs can be concatenated."""
    model = {"model": run.model, "weights_fingerprint": run.record.model.weights_fingerprint}
    table = run.metrics.select(*(pl.lit(value).alias(name) for name, value in model.items()), pl.all())
    yield ExportedFile("metrics.csv", csv_text(table).encode())


def _model_index(run: ExportedRun) -> Iterator[ExportedFile]:
    from huggingface_hub import EvalResult, ModelCardData  # here, because it is slow to import

    results = [
        EvalResult(
            task_type="text-classification",
            task_name="In-context text classification",
            dataset_type=row["dataset"],
            dataset_name=row["dataset"],
            dataset_config=f"{row['suite']}/{row['part']}",
            metric_type=row["metric"],
            metric_name=f"{run.texts.title(row['metric'])} ({row['method']}, {row['definition']})",
            metric_config=f"{row['method']}/{row['definition']}",
            metric_args={name: row[name] for name in ("ci_low", "ci_high", "n_queries")},
            metric_value=row["value"],
        )
        for row in run.texts.headlines(run.finite_metrics).iter_rows(named=True)
    ]
    card = ModelCardData(model_name=run.model, eval_results=results)
    yield ExportedFile("model-index.yaml", f"{card.to_yaml()}\n".encode())


CSV = Format(summary="The table of metrics, a row each, with intervals and baselines.", files=_csv)
MARKDOWN = Format(summary="Tables for a pull request or an issue on GitHub.", files=_markdown)
LATEX = Format(summary="Tables with the rules of booktabs.", files=_latex)
MODEL_INDEX = Format(summary="YAML for the head of a model card on the Hugging Face hub.", files=_model_index)
