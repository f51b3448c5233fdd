"""Build the requests of the suite decide: questions in their forms, and variations that should not change answers."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from evaluator.config import Options, RunConfig, option
from evaluator.datasets.base import DecisionDataset
from evaluator.datasets.question_table import drawn_demonstrations
from evaluator.datasets.tables import read_texts
from evaluator.decisions import questions
from evaluator.decisions.forms import Asked, Form, asked, require_form
from evaluator.errors import ConfigError, DatasetError
from evaluator.methods.base import MethodContext
from evaluator.prompts.rows import NOT_VARIED, ROWS_PER_FRAME, prompt_spans, render_prompts
from evaluator.schemas import declare
from evaluator.suites.base import Requests
from evaluator.suites.staicc.learning_curve import PART


@dataclass(frozen=True, kw_only=True)
class DecideOptions(Options):
    """Options of the prompts of typed questions."""

    form: Literal["letters", "names", "both", "vllm", "vllm-decisions"] = option(
        "letters",
        "Form of a question: score the letters of the options (if left out); score their names; both; or use the text "
        "of a vLLM server (/v1/systemone, /v1/decisions), with --chat-template.",
    )
    shots: tuple[int, ...] = option((0,), "Demonstrations in a prompt, of the training table or drawn from --data.")
    demonstrations: Literal["balanced", "cover", "first"] = option(
        "balanced", "Each option in turn (if left out), each option at least once, or the first rows."
    )
    sets: int = option(1, "Demonstration sets, 1 if left out; every query is asked after each set.", minimum=1)
    seed: int = option(42, "Seed of demonstrations and of random orders of options.")

    group_column: str | None = option(
        None, "Column of the table with groups: rows of one group, such as a user, share a fold of the TF-IDF baseline."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.shots) != 1 or self.shots[0] < 0:
            raise ConfigError(f"--shots of decide is one number of 0 or more, got {self.shots}.")
        if self.sets > 1 and (self.demonstrations == "first" or not self.shots[0]):
            raise ConfigError("--sets needs --shots, and --demonstrations other than first, which is one set.")

    @property
    def forms(self) -> tuple[Form, ...]:
        """Return the forms of the questions in prompts; the first is the main form."""
        return ("letters", "names") if self.form == "both" else (self.form,)


YES_NO = [questions.NO, questions.YES]
"""Names of the options of a yes-or-no question, in label-space order."""

ORDER_AVERAGED, ONE_BY_ONE = "order_averaged", "one_by_one"
"""Names of the suite's own methods, and of the parts of the requests that they add."""

MAX_ORDERS = 6
"""Largest number of orders of options: all rotations of up to so many options, for more options random orders."""

ZERO_SHOT = "zero-shot"
"""Part of the questions without demonstrations, in a run that has demonstrations."""

INPUTS = declare(dataset=pl.String(), query_id=pl.Int64(), input=pl.String(), group=pl.String())
"""Side table with the inputs of queries; `group` is null without --group-column."""

QUESTION_KINDS = declare(dataset=pl.String(), kind=pl.String(), table=pl.String())
"""Side table with the kind of each question (QuestionKind) and the path of the table with its rows."""

SOFT_GOLD = declare(dataset=pl.String(), query_id=pl.Int64(), soft_gold=pl.List(pl.Float64()))
"""Side table with the queries whose true answer is a distribution over the options."""


class Variation(NamedTuple):
    """The properties of a prompt for a question: unchanged, or with something changed that should not matter."""

    instructions: str
    order: Sequence[int] | None = None  # order of the options in the prompt; None: default_order
    inputs: str = ""  # change of the inputs: "spaces" or "lower case"; empty for none
    is_negated: bool = False  # whether the instructions mean the opposite, so that "yes" is the answer "no"
    before: str = ""  # text between the input and the question
    form: Form | None = None  # form of the question; None: the main form
    option: int | None = None  # ask whether this option is the answer, yes or no; None: ask the question itself


def decide_requests(dataset: DecisionDataset, config: RunConfig) -> Requests:
    """Build the requests and side tables of a question: for each row in each form, and in each variation of VARIED.

    Raises ConfigError for more queries than rows, DatasetError for too few demonstrations or too many options.
    """
    options = config.options_of(DecideOptions)
    for form in options.forms:
        n_options = {len(names) for names in dataset.examples["options"]}
        require_form(form, dataset.question.kind, max(n_options), f"{config.data.questions}, question {dataset.name!r}")
    sets = demonstration_sets(dataset, options)
    dataset = sets[0]
    n_rows = dataset.examples.height
    if config.n_queries is not None and config.n_queries > n_rows:
        raise ConfigError(f"--queries {config.n_queries}: {dataset.source} has {n_rows} rows. Ask for no more.")
    queries = dataset.examples.head(config.n_queries or n_rows)
    name = pl.lit(dataset.name)
    soft = queries.filter(pl.col("soft_gold").is_not_null()).select("soft_gold", query_id="row", dataset=name)
    kind = (dataset.name, dataset.question.kind, dataset.source)
    tables = {
        "question_kinds": pl.DataFrame([kind], QUESTION_KINDS, orient="row"),
        "soft_gold": soft.select(SOFT_GOLD.names()).cast(SOFT_GOLD),
        "inputs": _inputs(dataset, queries, options.group_column),
    }
    return Requests(_all_rows(sets, queries, options), tables)


def _inputs(dataset: DecisionDataset, queries: pl.DataFrame, group_column: str | None) -> pl.DataFrame:
    """Return INPUTS of the queries. Raises DatasetError for a table without the column of groups."""
    inputs = queries.select("input", query_id="row", dataset=pl.lit(dataset.name))
    if group_column is None:
        return inputs.with_columns(group=pl.lit(None, pl.String)).select(INPUTS.names())
    cells, rows, _ = read_texts(Path(dataset.source), [group_column], "Say which with --group-column.")
    groups = pl.DataFrame({"query_id": rows, "group": cells[group_column]})
    return inputs.join(groups, on="query_id", how="left", maintain_order="left").select(INPUTS.names()).cast(INPUTS)


def demonstration_sets(dataset: DecisionDataset, options: DecideOptions) -> list[DecisionDataset]:
    """Return a copy of the dataset for each demonstration set, with its demonstrations and the remaining queries.

    Without training rows, demonstrations are other rows; these, and rows with the same inputs, are then no queries.

    Raises DatasetError for too few rows with a gold option, or if no row is left as a query.
    """
    pool = dataset.examples if dataset.demonstrations.is_empty() else dataset.demonstrations
    n_shots = options.shots[0]
    draw = partial(drawn_demonstrations, pool, n_shots, options.seed, options.demonstrations)
    sets = [draw(number) for number in range(options.sets)]
    if (n_found := len(sets[0])) < n_shots:
        raise DatasetError(
            f"{dataset.source}: {n_shots} demonstrations need as many rows with a true option, found {n_found}."
        )
    queries = dataset.examples
    if dataset.demonstrations.is_empty():
        # Neither a demonstration nor a row with the same input is a query.
        shown = pool[[row for rows in sets for row in rows]]
        queries = queries.filter(~pl.col("input").is_in(shown["input"].implode()))
    if queries.is_empty():
        raise DatasetError(
            f"{dataset.source}: all rows are demonstrations and none is left to ask. Name others with --training-data."
        )
    return [replace(dataset, demonstrations=pool[rows] if rows else pool.clear(), examples=queries) for rows in sets]


def _all_rows(sets: Sequence[DecisionDataset], queries: pl.DataFrame, options: DecideOptions) -> Iterator[pl.DataFrame]:
    """Yield the requests of all parts. Requests of variations and of ZERO_SHOT use the first demonstration set only:
    its demonstrations, or none."""
    dataset, main = sets[0], options.forms[0]
    plain = Variation(dataset.question.instructions)
    for number, of_set in enumerate(sets):
        for form in options.forms:
            yield from request_rows(of_set, queries, form, form, [plain], number)
        yield from _curve_rows(of_set, main, number)
    if options.shots[0]:
        alone = replace(dataset, demonstrations=dataset.demonstrations.clear())
        yield from request_rows(alone, queries, ZERO_SHOT, main, [plain])
    for part, variations in varied(dataset, options.forms, options.seed).items():
        yield from request_rows(dataset, queries, part, main, [plain, *variations])


def varied(dataset: DecisionDataset, forms: Sequence[Form], seed: int) -> dict[str, list[Variation]]:
    """Return part -> variations, for all parts that the question of a run has. The unchanged question is left out."""
    plain, parts = Variation(dataset.question.instructions), dict[str, list[Variation]]()
    if len(forms) > 1:
        parts[questions.FORM] = [plain._replace(form=form) for form in forms[1:]]
    if dataset.others:
        parts[questions.AMONG] = [plain._replace(before=_others(dataset.others, forms[0]))]
    return parts | variations(dataset.question, len(dataset.examples["options"][0]), seed)


def variations(question: questions.Question, n_options: int, seed: int) -> dict[str, list[Variation]]:
    """Return part -> variations, for the parts that need only the question. The unchanged question is left out."""
    plain = Variation(question.instructions)
    parts = {
        questions.ORDER: [plain._replace(order=order) for order in orders(question, n_options, seed)[1:]],
        questions.WORDING: [Variation(wording) for wording in question.wordings],
        questions.NEGATION: [Variation(question.negated, is_negated=True)] if question.negated else [],
        questions.SPACING: [plain._replace(inputs="spaces"), plain._replace(inputs="lower case")],
    }
    return {part: variations for part, variations in parts.items() if variations}


def orders(question: questions.Question, n_options: int, seed: int) -> list[list[int]]:
    """Return the orders of options in prompts, the default order first.

    They are all rotations of up to MAX_ORDERS options; for more options, MAX_ORDERS orders, of which all but the first
    are random.
    """
    first = default_order(question.kind, n_options)
    if n_options <= MAX_ORDERS:
        return [first[start:] + first[:start] for start in range(n_options)]
    draw = random.Random(f"orders of {question.name}, seed {seed}")
    return [first, *(draw.sample(first, n_options) for _ in range(MAX_ORDERS - 1))]


def default_order(kind: questions.QuestionKind, n_options: int) -> list[int]:
    """Return the default order of options in a prompt: yes before no, other options in label-space order."""
    return [1, 0] if kind == "yes-no" else list(range(n_options))


def _others(others: Sequence[questions.Question], form: Form) -> str:
    """Return the text of the other questions about the same rows, to put before a question."""
    texts = []
    for question in others:
        names, descriptions = zip(*question.options, strict=True)
        order = default_order(question.kind, len(names))
        texts.append(asked(form, question.kind, question.instructions, names, descriptions, order).text)
    return "".join(f"{text.rstrip()}\n\n" for text in texts)


def _curve_rows(dataset: DecisionDataset, form: Form, number: int) -> Iterator[pl.DataFrame]:
    """Yield the requests of the learning curve: one for each demonstration, whose prompt ends before its answer.

    The prompts are prefixes of the prompts of all queries, so that they cost few further tokens.

    Args:
        number: number of the demonstration set.
    """
    plain, n_shots = [Variation(dataset.question.instructions)], dataset.demonstrations.height
    for place in range(n_shots):
        before = replace(dataset, demonstrations=dataset.demonstrations.head(place))
        columns = {
            "position": pl.lit(number * n_shots + place, pl.Int64),
            "query_id": pl.lit(None, pl.Int64),
            "training_row": pl.col("query_id"),
        }
        for rows in request_rows(before, dataset.demonstrations.slice(place, 1), PART, form, plain, number):
            yield rows.with_columns(**columns)


def request_rows(
    dataset: DecisionDataset,
    queries: pl.DataFrame,
    part: str,
    form: Form,
    variations: Sequence[Variation],
    demonstration_set: int = 0,
) -> Iterator[pl.DataFrame]:
    """Yield the requests of all queries in each variation, at most ROWS_PER_FRAME in a frame.

    Args:
        queries: DECISION_EXAMPLES.
        form: form of questions in variations that have none.
        variations: the column `template` is the index of a request's variation.
        demonstration_set: number of the set.
    """
    kind, plain = dataset.question.kind, Variation(dataset.question.instructions)
    for number, variation in enumerate(variations):
        # Demonstrations are asked in the form of the variation, but otherwise unchanged.
        as_form = variation.form or form
        shown_rows = [(row, _put(kind, as_form, plain, row)) for row in dataset.demonstrations.iter_rows(named=True)]
        shown = pl.DataFrame(
            [(f"{put.text}{put.answers[row['gold']]}\n\n", len(put.text)) for row, put in shown_rows],
            schema={"text": pl.String(), "label": pl.Int64()},
            orient="row",
        )
        first, template = (demonstration_set * len(variations) + number) * queries.height, pl.lit(number, pl.Int64)
        for some in queries.iter_slices(ROWS_PER_FRAME):
            asked_rows = [_put(kind, as_form, variation, row) for row in some.iter_rows(named=True)]
            inputs = pl.Series([put.text for put in asked_rows], dtype=pl.String)
            in_order = np.tile(np.arange(shown.height), (some.height, 1))
            yield some.select(
                "gold",
                **NOT_VARIED | {"demonstration_set": pl.lit(demonstration_set, pl.Int64), "template": template},
                part=pl.lit(part),
                dataset=pl.lit(dataset.name),
                position=pl.int_range(pl.len()) + first,
                query_id="row",
                label_names="options",
                n_shots=pl.lit(shown.height, pl.Int64),
                demonstration_ids=pl.lit(dataset.demonstrations["row"].to_list(), pl.List(pl.Int64)),
                prompt=render_prompts("", shown["text"], in_order, inputs),
                spans=prompt_spans("", shown, in_order, inputs),
                ask=pl.lit("labels"),
                continuations=pl.Series([put.answers for put in asked_rows], dtype=pl.List(pl.String)),
            )
            first += some.height


def _put(kind: questions.QuestionKind, form: Form, variation: Variation, row: Mapping[str, Any]) -> Asked:
    """Return the text of a prompt, input and question, for a row of DECISION_EXAMPLES, and the texts of its answers.

    The two answers of a negated question are swapped.
    """
    instructions, names, descriptions = variation.instructions, row["options"], row["descriptions"]
    if variation.option is not None:
        means = " - ".join(filter(None, (names[variation.option], descriptions[variation.option])))
        instructions = f"{instructions}\nIs this the answer: {means}?"
        kind, names = "yes-no", YES_NO
    if variation.option is not None or variation.is_negated:
        descriptions = ["", ""]
    put = asked(form, kind, instructions, names, descriptions, variation.order or default_order(kind, len(names)))
    text = f"{changed_input(row['input'], variation)}\n\n{variation.before}{put.text}"
    return Asked(text, put.answers[::-1] if variation.is_negated else put.answers)


def changed_input(text: str, variation: Variation) -> str:
    """Return the input as the variation changes it: with spaces doubled and added at both ends, or in lower case."""
    if variation.inputs == "spaces":
        return f" {text.replace(' ', '  ')} "
    return text.lower() if variation.inputs else text


def added_orders(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield the requests of the method order_averaged: the queries of a part with their options in every order."""
    dataset, seed = _decision(context), context.config.options_of(DecideOptions).seed
    every = orders(dataset.question, len(dataset.examples["options"][0]), seed)
    return _added_rows(context, ORDER_AVERAGED, [Variation(dataset.question.instructions, order) for order in every])


def added_single_options(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield the requests of the method one_by_one: for each option of a query, the question whether it is the answer.

    `label_tried` is the index of the option. A yes-or-no question has no further requests.
    """
    dataset = _decision(context)
    n_options = len(dataset.examples["options"][0])
    every = [Variation(dataset.question.instructions, option=option) for option in range(n_options)]
    alone = {"label_tried": pl.col("template"), "template": pl.lit(0, pl.Int64), "label_names": pl.lit(YES_NO)}
    if dataset.question.kind != "yes-no":
        for rows in _added_rows(context, ONE_BY_ONE, every):
            yield rows.with_columns(**alone)


def _added_rows(context: MethodContext, part: str, variations: Sequence[Variation]) -> Iterator[pl.DataFrame]:
    """Yield requests of a method: the queries of a part after each demonstration set, in each variation."""
    dataset, options = _decision(context), context.config.options_of(DecideOptions)
    form = next((form for form in options.forms if form == context.part), options.forms[0])
    for number, of_set in enumerate(demonstration_sets(dataset, options)):
        queries = of_set.examples.head(context.config.n_queries or of_set.examples.height)
        for rows in request_rows(of_set, queries, part, form, variations, number):
            yield rows.select(context.columns)


def _decision(context: MethodContext) -> DecisionDataset:
    assert isinstance(context.dataset, DecisionDataset), "the suite's own methods have its datasets"
    return context.dataset
