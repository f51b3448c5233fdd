"""Build the requests of the suite decide: each question in its form, and variants that should not change the answer."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import DecisionDataset
from evaluator.datasets.question_table import drawn_demonstrations
from evaluator.datasets.tables import read_texts
from evaluator.decisions import questions
from evaluator.decisions.forms import Asked, Form, asked, require_form
from evaluator.errors import ConfigError, DatasetError
from evaluator.methods.base import MethodContext
from evaluator.options import Options, option
from evaluator.prompts.rows import NOT_VARIED, ROWS_PER_FRAME, prompt_spans, render_prompts
from evaluator.schemas import declare
from evaluator.suites.base import Requests
from evaluator.suites.staicc.learning_curve import PART


@dataclass(frozen=True, kw_only=True)
class DecideOptions(Options):
    """How typed questions are asked."""

    form: Literal["letters", "names", "both", "vllm", "vllm-decisions"] = option(
        "letters",
        "Options lettered, and the letter read; their names scored; both; or as a server of vLLM asks "
        "(/v1/systemone, /v1/decisions), with --chat-template.",
    )
    shots: tuple[int, ...] = option((0,), "Demonstrations in a prompt, of the training table or drawn from --data.")
    demonstrations: Literal["balanced", "cover", "first"] = option(
        "balanced", "Each option in turn, each option at least once, or the first rows."
    )
    sets: int = option(1, "Demonstration sets; every query is asked after each.", minimum=1)
    seed: int = option(42, "Seed of demonstrations and of drawn orders of options.")

    group_column: str | None = option(
        None, "Column of the table: rows with the same cell, of one user say, share a fold of the TF-IDF baseline."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.shots) != 1 or self.shots[0] < 0:
            raise ConfigError(f"--shots of decide is one number of 0 or more, got {self.shots}.")
        if self.sets > 1 and (self.demonstrations == "first" or not self.shots[0]):
            raise ConfigError("--sets needs --shots, and --demonstrations other than first, which is one set.")

    @property
    def forms(self) -> tuple[Form, ...]:
        """Return the forms that the questions are asked in, the main one first."""
        return ("letters", "names") if self.form == "both" else (self.form,)


Example = Mapping[str, Any]
"""A row of DECISION_EXAMPLES."""

Put = Callable[[Example], tuple[str, Asked]]
"""Returns the input and the question of a row."""

ORDER_AVERAGED, ONE_BY_ONE = "order_averaged", "one_by_one"
"""Methods of the suite, and the parts of the requests that they add."""

MAX_ORDERS = 6
"""Most orders of options that are asked: all rotations of so many options, else drawn ones."""

ZERO_SHOT = "zero-shot"
"""Part of runs with demonstrations: the questions without any."""

INPUTS = declare(dataset=pl.String(), query_id=pl.Int64(), input=pl.String(), group=pl.String())
"""Side table: inputs of queries; `group` is null without --group-column."""

QUESTION_KINDS = declare(dataset=pl.String(), kind=pl.String(), table=pl.String())
"""Side table: QuestionKind, and the table whose rows are asked about."""

SOFT_GOLD = declare(dataset=pl.String(), query_id=pl.Int64(), soft_gold=pl.List(pl.Float64()))
"""Side table: queries whose gold is a distribution."""


class Variation(NamedTuple):
    """A way to ask a question."""

    instructions: str
    order: Sequence[int] | None = None  # of the options; None: as they are written
    inputs: str = ""  # change of the inputs: "spaces" or "lower case"
    is_negated: bool = False  # yes answers no
    before: str = ""  # text between the input and the question
    form: Form | None = None  # None: the main one


def decide_requests(dataset: DecisionDataset, config: RunConfig) -> Requests:
    """Build a request for each row in each form, and for each variation of the parts of VARIED.

    Raises ConfigError for more queries than rows, DatasetError for too few demonstrations and too many options.
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
    tables = {
        "question_kinds": pl.DataFrame(
            [(dataset.name, dataset.question.kind, dataset.source)], schema=QUESTION_KINDS, orient="row"
        ),
        "soft_gold": soft.select(SOFT_GOLD.names()).cast(SOFT_GOLD),
        "inputs": _inputs(dataset, queries, options.group_column),
    }
    return Requests(_all_rows(sets, queries, options), tables)


def _inputs(dataset: DecisionDataset, queries: pl.DataFrame, group_column: str | None) -> pl.DataFrame:
    """Return INPUTS. Raises DatasetError for a table without the column of groups."""
    inputs = queries.select("input", query_id="row", dataset=pl.lit(dataset.name))
    if group_column is None:
        return inputs.with_columns(group=pl.lit(None, pl.String)).select(INPUTS.names())
    cells, rows, _ = read_texts(Path(dataset.source), [group_column], "Say which with --group-column.")
    groups = pl.DataFrame({"query_id": rows, "group": cells[group_column]})
    return inputs.join(groups, on="query_id", how="left", maintain_order="left").select(INPUTS.names()).cast(INPUTS)


def demonstration_sets(dataset: DecisionDataset, options: DecideOptions) -> list[DecisionDataset]:
    """Return the dataset with each set of n_shots demonstrations: of its training rows, else rows that are no queries.

    Raises DatasetError for too few rows with a gold option, and where no row is left as a query.
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
        # Neither a row that is shown nor one with the same input is asked.
        shown = pool[[row for rows in sets for row in rows]]
        queries = queries.filter(~pl.col("input").is_in(shown["input"].implode()))
    if queries.is_empty():
        raise DatasetError(
            f"{dataset.source}: all rows are demonstrations and none is left to ask. Name others with --training-data."
        )
    return [replace(dataset, demonstrations=pool[rows] if rows else pool.clear(), examples=queries) for rows in sets]


def _all_rows(sets: Sequence[DecisionDataset], queries: pl.DataFrame, options: DecideOptions) -> Iterator[pl.DataFrame]:
    """Yield the requests of each part; those of variations and methods have the first set of demonstrations."""
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
    """Return the variations of each part that the question has, without the question as it is."""
    plain, parts = Variation(dataset.question.instructions), dict[str, list[Variation]]()
    if len(forms) > 1:
        parts[questions.FORM] = [plain._replace(form=form) for form in forms[1:]]
    if dataset.others:
        parts[questions.AMONG] = [plain._replace(before=_others(dataset.others, forms[0]))]
    return parts | variations(dataset.question, len(dataset.examples["options"][0]), seed)


def variations(question: questions.Question, n_options: int, seed: int) -> dict[str, list[Variation]]:
    """Return the variations of each part that a question by itself has, without the question as it is."""
    plain = Variation(question.instructions)
    parts = {
        questions.ORDER: [plain._replace(order=order) for order in orders(question, n_options, seed)[1:]],
        questions.WORDING: [Variation(wording) for wording in question.wordings],
        questions.NEGATION: [Variation(question.negated, is_negated=True)] if question.negated else [],
        questions.SPACING: [plain._replace(inputs="spaces"), plain._replace(inputs="lower case")],
    }
    return {part: variations for part, variations in parts.items() if variations}


def orders(question: questions.Question, n_options: int, seed: int) -> list[list[int]]:
    """Return the orders of options to ask: all rotations of up to MAX_ORDERS options, else as many drawn orders."""
    first = default_order(question.kind, n_options)
    if n_options <= MAX_ORDERS:
        return [first[start:] + first[:start] for start in range(n_options)]
    draw = random.Random(f"orders of {question.name}, seed {seed}")
    return [first, *(draw.sample(first, n_options) for _ in range(MAX_ORDERS - 1))]


def default_order(kind: questions.QuestionKind, n_options: int) -> list[int]:
    """Return the order of a question's options in a prompt: yes before no, others as they are written."""
    return [1, 0] if kind == "yes-no" else list(range(n_options))


def _others(others: Sequence[questions.Question], form: Form) -> str:
    """Return the other questions about the same rows, as text before a question."""
    texts = []
    for question in others:
        names, descriptions = zip(*question.options, strict=True)
        order = default_order(question.kind, len(names))
        texts.append(asked(form, question.kind, question.instructions, names, descriptions, order).text)
    return "".join(f"{text.rstrip()}\n\n" for text in texts)


def _curve_rows(dataset: DecisionDataset, form: Form, number: int) -> Iterator[pl.DataFrame]:
    """Yield a set of demonstrations cut before each answer: a prompt for each, whose tokens all queries have."""
    puts = partial(_put, dataset.question.kind, form, Variation(dataset.question.instructions))
    n_shots = dataset.demonstrations.height
    for place in range(n_shots):
        before = replace(dataset, demonstrations=dataset.demonstrations.head(place))
        asked_row = dataset.demonstrations.slice(place, 1)
        columns = _of_set(PART, number) | {"query_id": pl.lit(None, pl.Int64), "training_row": pl.col("row")}
        yield from _frames(before, asked_row, form, puts, number * n_shots + place, columns)


def request_rows(
    dataset: DecisionDataset,
    queries: pl.DataFrame,
    part: str,
    form: Form,
    variations: Sequence[Variation],
    demonstration_set: int = 0,
) -> Iterator[pl.DataFrame]:
    """Yield requests of queries (DECISION_EXAMPLES) in each variation, at most ROWS_PER_FRAME together."""
    for number, variation in enumerate(variations):
        as_form = variation.form or form
        put = partial(_put, dataset.question.kind, as_form, variation)
        place = demonstration_set * len(variations) + number
        columns = _of_set(part, demonstration_set) | {"template": pl.lit(number, pl.Int64)}
        yield from _frames(dataset, queries, as_form, put, place, columns)


def _of_set(part: str, number: int) -> dict[str, pl.Expr]:
    """Return the columns of a part after a demonstration set."""
    return {"part": pl.lit(part), "demonstration_set": pl.lit(number, pl.Int64)}


def _frames(
    dataset: DecisionDataset, queries: pl.DataFrame, form: Form, put: Put, place: int, columns: dict[str, pl.Expr]
) -> Iterator[pl.DataFrame]:
    """Yield requests of queries (DECISION_EXAMPLES), at most ROWS_PER_FRAME together.

    Args:
        put: asks the question of a row.
        place: number of the variation in its part, which positions follow from.
        columns: `part`, `demonstration_set`, and those that differ from the question as it is.
    """
    plain = partial(_put, dataset.question.kind, form, Variation(dataset.question.instructions))
    shown = pl.DataFrame(
        [_demonstration(row, *plain(row)) for row in dataset.demonstrations.iter_rows(named=True)],
        schema={"text": pl.String(), "label": pl.Int64()},
        orient="row",
    )
    for first in range(0, queries.height, ROWS_PER_FRAME):
        some = queries.slice(first, ROWS_PER_FRAME)
        asked_rows = [put(row) for row in some.iter_rows(named=True)]
        inputs = pl.Series([f"{text}\n\n{question.text}" for text, question in asked_rows], dtype=pl.String)
        rows = np.tile(np.arange(shown.height), (some.height, 1))
        yield some.select(
            "gold",
            **NOT_VARIED | {"query_id": pl.col("row"), "label_names": pl.col("options")} | columns,
            dataset=pl.lit(dataset.name),
            position=pl.int_range(pl.len()) + first + place * queries.height,
            n_shots=pl.lit(shown.height, pl.Int64),
            demonstration_ids=pl.lit(dataset.demonstrations["row"].to_list(), pl.List(pl.Int64)),
            prompt=render_prompts("", shown["text"], rows, inputs),
            spans=prompt_spans("", shown, rows, inputs),
            ask=pl.lit("labels"),
            continuations=pl.Series([question.answers for _, question in asked_rows], dtype=pl.List(pl.String)),
        )


def _put(kind: questions.QuestionKind, form: Form, variation: Variation, row: Example) -> tuple[str, Asked]:
    """Return the input of a row and its question. Yes to a negated question answers no."""
    names, descriptions = row["options"], row["descriptions"]
    order = variation.order or default_order(kind, len(names))
    if variation.is_negated:
        descriptions = ["", ""]
    put = asked(form, kind, variation.instructions, names, descriptions, order)
    put = put._replace(text=variation.before + put.text)
    text = changed_input(row["input"], variation)
    return text, put._replace(answers=put.answers[::-1]) if variation.is_negated else put


def changed_input(text: str, variation: Variation) -> str:
    """Return an input with its spaces doubled, or in lower case, where the variation asks so."""
    if variation.inputs == "spaces":
        return f" {text.replace(' ', '  ')} "
    return text.lower() if variation.inputs else text


def _demonstration(row: Example, text: str, question: Asked) -> tuple[str, int]:
    """Return a question with its answer, and the number of characters before the answer."""
    before = f"{text}\n\n{question.text}"
    return f"{before}{question.answers[row['gold']]}\n\n", len(before)


def added_orders(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield the queries of a part with their options in every order."""
    sets, queries, form, options = _asked_in(context)
    question, n_options = sets[0].question, len(queries["options"][0])
    every = [Variation(question.instructions, order) for order in orders(question, n_options, options.seed)]
    for number, dataset in enumerate(sets):
        for rows in request_rows(dataset, queries, ORDER_AVERAGED, form, every, number):
            yield rows.select(context.columns)


def added_single_options(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield a yes-or-no question for each option of each query: whether it is the answer; `label_tried` numbers it."""
    sets, queries, form, _ = _asked_in(context)
    if sets[0].question.kind == "yes-no":
        return

    names = [questions.NO, questions.YES]

    def put(label: int, row: Example) -> tuple[str, Asked]:
        means = " - ".join(filter(None, (row["options"][label], row["descriptions"][label])))
        instructions = f"{sets[0].question.instructions}\nIs this the answer: {means}?"
        return row["input"], asked(form, "yes-no", instructions, names, ("", ""), default_order("yes-no", 2))

    n_options = len(queries["options"][0])
    for place, (dataset, label) in enumerate(product(sets, range(n_options))):
        asked_alone = {"label_tried": pl.lit(label, pl.Int64), "label_names": pl.lit(names)}
        columns = _of_set(ONE_BY_ONE, place // n_options) | asked_alone
        for rows in _frames(dataset, queries, form, partial(put, label), place, columns):
            yield rows.select(context.columns)


def _asked_in(context: MethodContext) -> tuple[list[DecisionDataset], pl.DataFrame, Form, DecideOptions]:
    """Return the dataset with each demonstration set, and queries and form of the part that a method answers."""
    assert isinstance(context.dataset, DecisionDataset), "the suite's own methods have its datasets"
    options = context.config.options_of(DecideOptions)
    sets = demonstration_sets(context.dataset, options)
    form = next((form for form in options.forms if form == context.part), options.forms[0])
    return sets, sets[0].examples.head(context.config.n_queries or sets[0].examples.height), form, options
