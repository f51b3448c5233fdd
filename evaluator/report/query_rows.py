"""Build the section in which a reader sorts, filters and reads single queries; assets/queries.js draws its table.

A page has room for some queries only: chosen_rows chooses them. Their prompts share demonstrations, which are stored
once.
"""

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.report.methods import method_order
from evaluator.report.section import Filled, MeasuredRun, Section, script_json
from evaluator.report.table import DEFINITIONS, dataset_order
from evaluator.schemas import PREDICTIONS_KEY, QUERIES_KEY

MAX_CHARACTERS = 600
"""Number of characters to which a query is cut if its whole prompt is not on the page."""

MAX_NUMBERS = 80_000
"""Largest number of answers and log-likelihoods on a page."""
MAX_PROMPTS = 1_500_000
"""Largest number of characters of prompts on a page; with both limits the page of all of StaICC is under 5 MB."""

RUN = ["suite", "part", "n_shots", "demonstration_set", "template", "noise_rate"]
"""Columns that identify a kind of prompts. A query has one prompt of each kind, and more if methods add prompts."""

_VARIED = {
    "n_shots": "{}-shot",
    "demonstration_set": "set {}",
    "template": "template {}",
    "noise_rate": "noise rate {}",
}
"""Column of RUN -> template of its part in the name of a kind of prompts."""

_DECIMALS = 3  # of log-likelihoods on the page


class NumberColumn(NamedTuple):
    """A column of numbers in the table of queries, left of gold label, predicted label and text."""

    name: str  # name of the column in the data
    title: str
    digits: int  # after the decimal point
    width: float  # in rem


class QueryNumbers(NamedTuple):
    """Numbers of single queries that only the suite of a run knows, such as PVI."""

    columns: tuple[NumberColumn, ...] = ()
    # Key columns (some of QUERIES_KEY, and `method`), the columns of numbers, and optionally `is_right`. Without
    # `is_right`, an answer is right if it is the gold label.
    rows: pl.LazyFrame = pl.LazyFrame()
    note: str = ""  # explanation of the columns, shown above the table

    @property
    def names(self) -> list[str]:
        """Return the columns of `rows` that are not key columns: the numbers, and is_right if present."""
        present = self.rows.collect_schema()
        return [name for name in (*(column.name for column in self.columns), "is_right") if name in present]


def cut_text(text: pl.Expr) -> pl.Expr:
    """Return the text, cut to MAX_CHARACTERS with an ellipsis if it is longer."""
    is_long = text.str.len_chars() > MAX_CHARACTERS
    return pl.when(is_long).then(text.str.head(MAX_CHARACTERS) + " …").otherwise(text)


class Chosen(NamedTuple):
    """The rows of schemas.QUERIES that a page shows."""

    rows: pl.DataFrame  # schemas.QUERIES, is_later and turn; by turn: first query of every dataset, then second, ...
    n_rows: int  # number of rows of the whole table
    n_queries: int  # number of queries of the whole table
    condition: pl.Expr  # filter on part, dataset and query_id that keeps these rows and few others


def chosen_rows(queries: pl.LazyFrame, n_answers: int, later_parts: Sequence[str]) -> Chosen:
    """Choose the rows of a page within MAX_NUMBERS: the first queries of every dataset, each with all its prompts.

    Datasets take turns: turn 1 has the first query of every dataset, turn 2 the second, and so on. Turns are shown as
    long as they fit completely; if already the first does not, as many of its rows as fit.

    Args:
        queries: schemas.QUERIES; only rows that may fit are read into memory.
        n_answers: number of answers to all rows of `queries`, of all methods.
        later_parts: parts that are shown only if all queries of the other parts fit.
    """
    is_later = pl.col("part").is_in(later_parts)
    query, turn = ["is_later", "dataset", "query_id"], ["is_later", "turn"]
    marked = queries.with_columns(pl.col("dataset").cast(pl.Categorical), is_later=is_later)
    sizes = marked.group_by(query).agg(n_rows=pl.len(), n_labels=pl.col("label_names").list.len().sum())
    by_query = sizes.collect(engine="streaming")
    n_rows, n_queries = int(by_query["n_rows"].sum()), by_query.select("dataset", "query_id").n_unique()
    # Numbers of a row: a log-likelihood for each label, and two (predicted label, P(gold)) for each of its answers. All
    # rows count the mean number of answers.
    of_answers = 2 * n_answers / max(n_rows, 1)
    numbers = pl.col("n_labels") + pl.col("n_rows") * of_answers
    in_turn = by_query.with_columns(turn=pl.col("query_id").rank("dense").over("dataset"), numbers=numbers)
    by_turn = in_turn.group_by(turn).agg(pl.col("numbers").sum()).sort(turn)
    # Keep whole turns up to the limit, so that a query is shown with all its prompts, and always the first.
    fits = by_turn.filter((pl.col("numbers").cum_sum() <= MAX_NUMBERS) | (pl.int_range(pl.len()) == 0))
    shown = in_turn.join(fits, on=turn, how="semi").select(*query, "turn").cast({"dataset": pl.String})
    # Filter by a condition on the last query of each dataset, not by a join: then most rows are not even read.
    last_of = shown.group_by("is_later", "dataset").agg(pl.col("query_id").max())
    conditions = [
        (is_later == later) & (pl.col("dataset") == dataset) & (pl.col("query_id") <= last)
        for later, dataset, last in last_of.iter_rows()
    ]
    condition = pl.any_horizontal(pl.lit(False), *conditions)
    rows = queries.filter(condition).with_columns(is_later=is_later).collect(engine="streaming")
    ordered = rows.join(shown, on=query).sort(*turn, "dataset", *QUERIES_KEY)
    # Cut the rows at the limit: this matters only if the first turn alone is above it.
    numbers_up_to = (pl.col("label_names").list.len() + of_answers).cum_sum()
    return Chosen(ordered.filter(numbers_up_to <= MAX_NUMBERS), n_rows, n_queries, condition)


def shown_queries(
    rows: pl.DataFrame, answers: pl.DataFrame, prompts: pl.DataFrame, methods: Sequence[str], numbers: Sequence[str]
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield for each dataset its data, as assets/queries.js reads them, and how many prompts are shown complete.

    Args:
        rows: Chosen.rows, sorted by dataset.
        answers: schemas.PREDICTIONS of one definition, with `true` (the probability of the gold label) and the columns
            `numbers`.
        prompts: prompt_id, prompt and spans of the rows.
        methods: names of methods, in the order of the page.
        numbers: names of columns of numbers that the suite adds, as QueryNumbers.names.
    """
    starts = pl.col("spans").list.eval(pl.element().struct.field("start")).fill_null(pl.lit([0], pl.List(pl.Int32)))
    with_starts = prompts.select("prompt_id", "prompt", starts).iter_rows()
    texts = {prompt_id: (prompt, of_spans) for prompt_id, prompt, of_spans in with_starts}
    # Every dataset may use the same number of characters, because one dataset can have much longer texts.
    budget = MAX_PROMPTS // rows["dataset"].n_unique()
    by_dataset = answers.partition_by("dataset", as_dict=True)
    for key, of_dataset in rows.group_by("dataset", maintain_order=True):
        pieces = _Pieces(texts, budget)
        yield _dataset(of_dataset, by_dataset[key], pieces, methods, numbers), pieces.n_whole


class _Pieces:
    """The prompts of a dataset as lists of numbers of text pieces; a piece that several prompts share is stored once.

    The pieces of a prompt are its instruction, its demonstrations and its query.
    """

    def __init__(self, texts: Mapping[str, tuple[str, list[int]]], budget: int) -> None:
        # texts: prompt_id -> prompt and the starts of its demonstrations and query; budget: characters of new pieces.
        self._texts, self._left = texts, budget
        self.numbers: dict[str, int] = {}  # text of a piece -> its number, in order of the numbers
        self.n_whole = 0  # number of prompts that fit

    def of(self, prompt_id: str) -> list[int] | None:
        """Return the numbers of the pieces of a prompt; None if it does not fit into the budget or is unknown."""
        if prompt_id not in self._texts:
            return None
        prompt, starts = self._texts[prompt_id]
        ends = [*starts[1:], len(prompt)]
        pieces = [prompt[: starts[0]], *(prompt[start:end] for start, end in zip(starts, ends, strict=True))]
        new = sum(len(piece) for piece in {*pieces} if piece not in self.numbers)
        if new > self._left:
            return None
        self._left -= new
        self.n_whole += 1
        return [self.number(piece) for piece in pieces]

    def number(self, text: str) -> int:
        """Return the number of a piece; a new piece gets the next number."""
        return self.numbers.setdefault(text, len(self.numbers))


def _dataset(
    rows: pl.DataFrame, answers: pl.DataFrame, pieces: _Pieces, methods: Sequence[str], numbers: Sequence[str]
) -> dict[str, Any]:
    # Where the budget is short, the prompts of the first method come before those that other methods add.
    of_first = answers.filter(method=methods[0])["prompt_id"]
    rows = rows.sort(~pl.col("prompt_id").is_in(of_first.implode()), maintain_order=True)
    prompts = pl.Series([pieces.of(one) for one in rows["prompt_id"]], dtype=pl.List(pl.Int64))
    number, log_likelihoods = pl.element(), pl.col("label_log_likelihoods")
    rounded = log_likelihoods.list.eval(pl.when(number.is_finite()).then(number.round(_DECIMALS)))
    is_of_labels = log_likelihoods.list.len() == pl.col("label_names").list.len()
    rows = rows.with_columns(prompt=prompts, scores=pl.when(is_of_labels).then(rounded))
    queries = rows.unique("query_id", keep="first", maintain_order=True).sort("query_id")
    cut, shown = queries.select(cut_text(pl.col("query")).fill_null(""))["query"], queries["prompt"].to_list()
    spaces = list(dict.fromkeys(map(tuple, queries["label_names"].to_list())))
    # Label spaces are stored once; `space` below has the index of each query's label space.
    place = {space: number for number, space in enumerate(spaces)}
    asked = rows.select(*QUERIES_KEY, "prompt", "scores")
    answers = answers.join(asked, on=QUERIES_KEY, how="left", nulls_equal=True, maintain_order="left")
    answered = answers.partition_by([*RUN, "method"], as_dict=True)
    names = _run_names(rows)
    return {
        "name": rows["dataset"][0],
        "spaces": [list(space) for space in spaces],
        "space": [place[tuple(names)] for names in queries["label_names"].to_list()],
        "id": queries["query_id"].to_list(),
        "gold": queries["gold"].to_list(),
        "text": [prompt[-1] if prompt else pieces.number(text) for prompt, text in zip(shown, cut, strict=True)],
        "runs": [
            {"name": names[key], **_run(queries.select("query_id"), of_methods, numbers)}
            for key in names
            if (of_methods := {name: answered[*key, name] for name in methods if (*key, name) in answered})
        ],
        "pieces": [*pieces.numbers],
    }


def _run(ids: pl.DataFrame, answers: Mapping[str, pl.DataFrame], numbers: Sequence[str]) -> dict[str, Any]:
    """Return the prompts of one kind, with the log-likelihoods of their labels, and the answers of each method.

    Args:
        ids: query_id of all queries of the dataset on the page.
        answers: method -> its answers to prompts of this kind.
        numbers: names of further columns of `answers` to return.

    Returns:
        Lists with one entry for each query, in the order of `ids`; null where a query has no such prompt or answer.
    """
    present = {
        method: ids.join(given.unique("query_id", keep="first"), on="query_id", how="left", maintain_order="left")
        for method, given in answers.items()
    }
    prompts = {method: one.select("prompt", "scores").to_dict(as_series=False) for method, one in present.items()}
    usual = next(iter(present))
    return {
        **prompts[usual],
        "methods": [
            {
                "name": method,
                "pred": one["pred"].to_list(),
                "true": one["true"].to_list(),
                **{name.removeprefix("is_"): one[name].to_list() for name in numbers},
                # A method with other prompts than the first method has lists of its own.
                **({} if one["prompt_id"].equals(present[usual]["prompt_id"]) else prompts[method]),
            }
            for method, one in present.items()
        ],
    }


def _run_names(rows: pl.DataFrame) -> dict[tuple[Any, ...], str]:
    """Return the name of each kind of prompts (values of RUN): the columns that vary, for example "template, set 1"."""
    kinds = rows.select(RUN).unique(maintain_order=True)
    n_different = {"suite": pl.col("suite").n_unique().over("part"), "part": pl.col("part").n_unique()}
    n_different |= {column: pl.col(column).n_unique().over("suite", "part") for column in _VARIED}
    words = [pl.when(n > 1).then(pl.format(_VARIED.get(name, "{}"), pl.col(name))) for name, n in n_different.items()]
    names = kinds.select(name=pl.concat_str(words, separator=", ", ignore_nulls=True))["name"]
    return {key: name or "all" for key, name in zip(kinds.rows(), names, strict=True)}


assert {*RUN} < {*QUERIES_KEY}, "runs are told apart by columns of the key"


GOLD_PROBABILITY = NumberColumn("true", "P(gold)", 3, 6.5)


def query_section(run: MeasuredRun, numbers: QueryNumbers = QueryNumbers()) -> Section | None:  # noqa: B008  (a constant)
    """Build the section of single queries; None for a run without queries.

    It shows the answers under one definition, the first of table.DEFINITIONS that the run has.

    Args:
        run: measured run with the tables metrics, queries and predictions.
        numbers: numbers that only the suite of the run knows.
    """
    queries, predictions = run.scan("queries"), run.scan("predictions")
    if not queries.select(pl.len()).collect().item():
        return None
    counts = predictions.group_by("definition", "method").len().collect(engine="streaming")
    definition = next(name for name in DEFINITIONS if name in {*counts["definition"]})
    measured = counts.filter(definition=definition)
    methods, n_answers = sorted(measured["method"], key=method_order), int(measured["len"].sum())
    kinds = {part: about.kind for parts in run.record.prompts.parts.values() for part, about in parts.items()}
    later = [part for part, kind in kinds.items() if kind == "diagnostic"]
    rows, n_rows, n_queries, is_known = chosen_rows(queries, n_answers, later)
    in_order = dataset_order(rows, run.record.prompts.datasets)
    rows = rows.sort(pl.col("dataset").cast(pl.Enum(in_order)), maintain_order=True)
    of_definition = predictions.filter(is_known, definition=definition)
    answers = of_definition.join(rows.lazy(), on=QUERIES_KEY, how="semi", nulls_equal=True)
    measured_by = {*run.table("metrics")["metric"]}
    has_probabilities = "accuracy" not in measured_by or "true_label_probability" in measured_by  # no imported labels
    answers = _with_numbers(answers, numbers, has_probabilities=has_probabilities)
    answered = answers.collect(engine="streaming").sort(PREDICTIONS_KEY)
    prompts = run.prompts(rows["prompt_id"].unique(maintain_order=True))
    shown = [*shown_queries(rows, answered, prompts, methods, numbers.names)]
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
        [Filled("queries.html", summary)],
        subtitle="sort, filter and read them, with prompts and log-likelihoods",
        kind="query-table",
        navigation="Query by query",
        is_folded=True,
        style="evaluator.report:assets/queries.css",
        script="evaluator.report:assets/queries.js",
    )


def _with_numbers(answers: pl.LazyFrame, numbers: QueryNumbers, *, has_probabilities: bool) -> pl.LazyFrame:
    """Add `true` (P(gold), null if it is unknown) and the numbers of the suite to the answers."""
    true = pl.col("label_probs").list.get(pl.col("gold"), null_on_oob=True).round(GOLD_PROBABILITY.digits)
    answers = answers.with_columns(true=pl.when(true.is_finite() & has_probabilities).then(true))
    if not (names := numbers.names):
        return answers
    key = [name for name in numbers.rows.collect_schema() if name not in names]
    rounded = [pl.col(column.name).round(column.digits) for column in numbers.columns]
    return answers.join(numbers.rows.with_columns(rounded), on=key, how="left", maintain_order="left")


def packed(datasets: Sequence[Mapping[str, Any]]) -> Markup:
    """Return JSON for a script element: for each dataset its name and `data`, compressed by zlib and in base64."""
    entries = []
    for data in datasets:
        written = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        compressed = zlib.compress(written.encode("utf-8", "backslashreplace"), 9)
        entries.append({"name": data["name"], "data": base64.b64encode(compressed).decode()})
    return script_json(entries)
