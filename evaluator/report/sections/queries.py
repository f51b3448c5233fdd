"""Build the section of single queries of a classification run, with labels, probabilities and prompts."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from evaluator.report.queries import NumberColumn, cut_text, queries_section
from evaluator.report.section import MeasuredRun, Section
from evaluator.report.sections.methods import method_order
from evaluator.report.tables import DEFINITIONS

MAX_TEXT = 1_000_000
MAX_PROMPTS = 300_000
"""Characters of all texts of queries on a page, and of all whole prompts: with them all of StaICC is under 5 MB."""

MAX_ANSWERS = 31_000
"""Answers on a page: those of three methods on StaICC. Those of the first method are there in any case."""

_START_CHARACTERS = 8

_COLUMNS = (NumberColumn("true", "P(gold)", 3, 6.5),)
_QUERY = ["dataset", "query_id"]
_ASKED = ["part", "demonstration_set"]


def classification_queries(run: MeasuredRun, datasets: Sequence[str]) -> Iterator[Section]:
    """Yield the section of all queries of the parts of the kind classification; none where no prompt was built.

    Answers are those of one definition: the first of the run in the order of the page.
    """
    kinds = {part: about.kind for parts in run.record.prompts.parts.values() for part, about in parts.items()}
    parts = [part for part, kind in kinds.items() if kind == "classification"]
    predictions = run.table("predictions").filter(pl.col("part").is_in(parts))
    if predictions.is_empty():
        return
    definition = next(name for name in DEFINITIONS if name in set(predictions["definition"]))
    answers = predictions.filter(definition=definition)
    methods = sorted(set(answers["method"]), key=method_order)
    first = answers.filter(method=methods[0])
    prompts = run.prompts(first["prompt_id"].unique(maintain_order=True))
    asked = first.select(*_QUERY, *_ASKED, "gold", "label_names", "prompt_id").sort(*_QUERY, *_ASKED)
    asked = asked.join(prompts, on="prompt_id", maintain_order="left")
    if asked.is_empty():
        return
    queries = _queries(asked)
    n_shown, n_queries = queries.height, asked.select(_QUERY).n_unique()
    asked, answers = (
        rows.join(queries.select(_QUERY), on=_QUERY, how="semi", maintain_order="left") for rows in (asked, answers)
    )
    asked = _whole_prompts(asked)
    answers, n_methods = _those_that_fit(answers, methods)
    data = [_dataset(name, queries, asked, answers, methods[:n_methods]) for name in datasets]
    some = "" if n_shown == n_queries else f"The first {n_shown:,} of {n_queries:,} queries. "
    others = "" if n_methods == len(methods) else f"Answers of {n_methods} of {len(methods)} methods. "
    yield queries_section(
        [dataset for dataset in data if dataset["id"]],
        _COLUMNS,
        note=f"{some}{others}Answers under the definition {definition}; P(gold) is the probability of the true label. "
        f"A chosen query is shown with the probabilities of its labels and, for {asked.drop_nulls().height:,} of "
        f"{first.height:,} prompts, with its demonstrations; evaluator.read_requests reads all prompts of a run.",
        tables="tables/predictions.parquet",
        is_folded=True,
    )


def _queries(asked: pl.DataFrame) -> pl.DataFrame:
    """Return dataset, query_id, gold and text of the queries whose texts fit on a page, in the order of the run."""
    by_query = asked.group_by(_QUERY, maintain_order=True).agg("prompt", pl.col("gold").first())
    ends = [_common_end(prompts) for prompts in by_query["prompt"].to_list()]
    queries = by_query.drop("prompt").with_columns(text=pl.Series(ends, dtype=pl.String))
    openings = {
        name: os.path.commonprefix(rows["prompt"].to_list())  # noqa: RUF071  (texts, not paths)
        for (name,), rows in asked.group_by("dataset")
    }
    starts = {name: _start(openings[name], rows["text"].to_list()) for (name,), rows in queries.group_by("dataset")}
    texts = [_from(starts[name], text) for name, text in queries.select("dataset", "text").iter_rows()]
    queries = queries.with_columns(text=pl.Series(texts, dtype=pl.String)).with_columns(cut_text(pl.col("text")))
    # The first queries of every dataset, not all of the first dataset.
    in_turn = queries.with_columns(turn=pl.int_range(pl.len()).over("dataset")).sort("turn", maintain_order=True)
    fitting = in_turn.filter(pl.col("text").str.len_chars().cum_sum() <= MAX_TEXT)
    return fitting.sort(_QUERY).drop("turn")


def _common_end(prompts: Sequence[str]) -> str:
    """Return what prompts of one query end in, the query; of a single prompt, its last paragraph."""
    if len(prompts) == 1:
        return prompts[0].rstrip().rsplit("\n\n", 1)[-1]
    return os.path.commonprefix([prompt[::-1] for prompt in prompts])[::-1].strip()  # noqa: RUF071  (texts, not paths)


def _start(opening: str, texts: Sequence[str]) -> str:
    """Return how queries start: as all prompts open, with a demonstration; after an instruction, as most texts do."""
    if opening and all(opening in text for text in texts):
        return opening
    (start, _), *_ = Counter(text[:_START_CHARACTERS] for text in texts).most_common(1)
    return start


def _from(start: str, text: str) -> str:
    """Return a text from its last `start` on: demonstrations that end alike leave something of theirs before it."""
    return text[max(text.rfind(start), 0) :]


def _those_that_fit(answers: pl.DataFrame, methods: Sequence[str]) -> tuple[pl.DataFrame, int]:
    """Return the answers of as many methods as fit on a page, and their number."""
    counts = dict(answers.group_by("method").len().iter_rows())
    n_answers, n_methods = 0, 0
    for method in methods:
        n_answers += counts.get(method, 0)
        if n_methods and n_answers > MAX_ANSWERS:
            break
        n_methods += 1
    return answers.filter(pl.col("method").is_in(methods[:n_methods])), n_methods


def _whole_prompts(asked: pl.DataFrame) -> pl.DataFrame:
    """Return `asked` with null in place of the prompts that do not fit on a page: those of later queries."""
    turn = pl.col("query_id").rank("dense").over("dataset")
    in_turn = asked.with_columns(turn=turn).sort("turn", maintain_order=True)
    fits = pl.col("prompt").str.len_chars().cum_sum() <= MAX_PROMPTS
    return in_turn.with_columns(prompt=pl.when(fits).then("prompt")).drop("turn")


def _dataset(
    name: str, queries: pl.DataFrame, asked: pl.DataFrame, answers: pl.DataFrame, methods: Sequence[str]
) -> dict[str, Any]:
    shown, asked, answers = (frame.filter(dataset=name) for frame in (queries, asked, answers))
    variants = asked.sort(_ASKED, maintain_order=True).partition_by(_ASKED, maintain_order=True, as_dict=True)
    prompts = {variant: _aligned(shown, rows) for variant, rows in variants.items()}
    runs = answers.sort(_ASKED).partition_by("method", *_ASKED, maintain_order=True, as_dict=True)
    ordered = sorted(runs.items(), key=lambda item: methods.index(item[0][0]))
    return {
        "name": name,
        "labels": asked["label_names"][0].to_list() if asked.height else [],
        "id": shown["query_id"].to_list(),
        "gold": shown["gold"].to_list(),
        "text": shown["text"].to_list(),
        "prompts": [rows["prompt"].to_list() for rows in prompts.values()],
        "runs": [_run(key, _aligned(shown, rows), prompts, is_first=key[0] == methods[0]) for key, rows in ordered],
    }


def _aligned(shown: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return a row a query in the order of the page, null where it has none."""
    once = rows.unique("query_id", keep="first", maintain_order=True)
    return shown.select("query_id").join(once, on="query_id", how="left", maintain_order="left")


def _run(
    key: tuple[Any, ...], rows: pl.DataFrame, prompts: Mapping[tuple[Any, ...], pl.DataFrame], *, is_first: bool
) -> dict[str, Any]:
    """Return the answers of a method after one demonstration set: probabilities of every label for the first method."""
    method, *variant = key
    parts, sets = ({each[place] for each in prompts} for place in (0, 1))
    names = [method, key[1] if len(parts) > 1 else "", f"set {key[2]}" if len(sets) > 1 else ""]
    asked = prompts.get(tuple(variant))
    # Methods that write prompts of their own have none on the page.
    is_asked = asked is not None and asked["prompt_id"].equals(rows["prompt_id"])
    true = pl.col("label_probs").list.get(pl.col("gold"), null_on_oob=True).round(3)
    run = {
        "name": ", ".join(filter(None, names)),
        "asked": list(prompts).index(tuple(variant)) if is_asked else None,
        "pred": rows["pred"].to_list(),
        "true": rows.select(true).to_series().to_list(),
    }
    if is_first:
        run["probabilities"] = rows["label_probs"].list.eval(pl.element().round(3)).to_list()
    return run
