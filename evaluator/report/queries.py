"""Build the section in which a reader sorts, filters and reads single queries; assets/queries.js draws its table."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from markupsafe import Markup

from evaluator.report.methods import method_order
from evaluator.report.query_rows import NO_NUMBERS, NumberColumn, QueryNumbers, chosen_rows, shown_queries
from evaluator.report.section import Filled, MeasuredRun, PackageFile, Section, core_template
from evaluator.report.tables import DEFINITIONS, dataset_order
from evaluator.schemas import PREDICTIONS_KEY, QUERIES_KEY

GOLD_PROBABILITY = NumberColumn("true", "P(gold)", 3, 6.5)


def query_section(run: MeasuredRun, numbers: QueryNumbers = NO_NUMBERS) -> Section | None:
    """Build the section of single queries; None for a run without predictions.

    Answers are those of one definition: the first of the run in the order of the page.

    Args:
        numbers: what only the run's suite knows of a query.
    """
    queries, predictions = run.scan("queries"), run.scan("predictions")
    if not queries.select(pl.len()).collect().item():
        return None
    measured = predictions.group_by("definition", "method").len().collect(engine="streaming")
    definition = next(name for name in DEFINITIONS if name in {*measured["definition"]})
    methods = sorted(measured.filter(definition=definition)["method"], key=method_order)
    n_answers = int(measured.filter(definition=definition)["len"].sum())
    kinds = {part: about.kind for parts in run.record.prompts.parts.values() for part, about in parts.items()}
    later = [part for part, kind in kinds.items() if kind == "diagnostic"]
    rows, n_rows, n_queries, is_known = chosen_rows(queries, n_answers, later)
    in_order = dataset_order(rows, run.record.prompts.datasets)
    rows = rows.sort(pl.col("dataset").cast(pl.Enum(in_order)), maintain_order=True)
    of_definition = predictions.filter(is_known, definition=definition)
    answers = of_definition.join(rows.lazy(), on=QUERIES_KEY, how="semi", nulls_equal=True)
    measured_by = {*run.table("metrics")["metric"]}
    has_probabilities = "accuracy" not in measured_by or "true_label_probability" in measured_by  # no imported labels
    shown = list(
        shown_queries(
            rows,
            _with_numbers(answers, numbers, has_probabilities=has_probabilities)
            .collect(engine="streaming")
            .sort(PREDICTIONS_KEY),
            run.prompts(rows["prompt_id"].unique(maintain_order=True)),
            methods,
            numbers,
        )
    )
    summary = {
        "definition": definition,
        "n_queries": n_queries,
        "n_rows": n_rows,
        "n_queries_shown": rows.select("dataset", "query_id").n_unique(),
        "n_rows_shown": rows.height,
        "n_prompts_shown": sum(n_whole for _, n_whole in shown),
        "note": numbers.note,
        "columns": (*numbers.columns, GOLD_PROBABILITY),
        "query_data": packed([data for data, _ in shown]),
    }
    return Section(
        "queries",
        "Query by query",
        [Filled(core_template("queries.html"), summary)],
        subtitle="sort, filter and read them, with prompts and log-likelihoods",
        kind="query-table",
        navigation="Query by query",
        is_folded=True,
        style=PackageFile("evaluator.report", "assets/queries.css"),
        script=PackageFile("evaluator.report", "assets/queries.js"),
    )


def _with_numbers(answers: pl.LazyFrame, numbers: QueryNumbers, *, has_probabilities: bool) -> pl.LazyFrame:
    """Return answers with P(gold), and with the numbers of their suite."""
    true = pl.col("label_probs").list.get(pl.col("gold"), null_on_oob=True).round(GOLD_PROBABILITY.digits)
    answers = answers.with_columns(true=pl.when(true.is_finite() & has_probabilities).then(true))
    if not numbers.columns and not numbers.is_right:
        return answers
    names = [*(column.name for column in numbers.columns), *(["is_right"] if numbers.is_right else [])]
    key = [name for name in numbers.rows.collect_schema() if name not in names]
    rounded = [pl.col(column.name).round(column.digits) for column in numbers.columns]
    return answers.join(numbers.rows.with_columns(rounded), on=key, how="left", maintain_order="left")


def packed(datasets: Sequence[Mapping[str, Any]]) -> Markup:
    """Return names and compressed data of datasets as JSON for a script element: one `data` each, zlib in base64."""
    packed = [{"name": data["name"], "data": _compressed(data)} for data in datasets]
    text = json.dumps(packed, ensure_ascii=False, separators=(",", ":"))
    # "</script>" in a name would end the element.
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704


def _compressed(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode("utf-8", "backslashreplace"), 9)).decode()
