"""Build the requests of a prompt search: every prompt that is tried, before every query.

Queries are drawn once by the seed and are the same for every prompt; no demonstration is ever among them.
"""

import math
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.datasets.lcg import Ints
from evaluator.datasets.multiple_choice import MultipleChoiceDataset
from evaluator.errors import ConfigError, DatasetError
from evaluator.prompts.demonstration_sequences import demonstration_sequences
from evaluator.prompts.render import render_prompts
from evaluator.prompts.rows import NOT_VARIED
from evaluator.suites.prompt_search.candidates import read_candidates
from evaluator.suites.prompt_search.options import SearchOptions, SearchPart
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES, TRIED_PROMPTS
from evaluator.templates.choice_template import ChoiceTemplate, continuations

MAX_QUERIES = 200
"""Queries of a dataset where no number is asked for (Yauney & Mimno 2024, section 5.1)."""

DEMONSTRATION_SHARE = 0.25
"""Of the examples, kept for demonstrations where no number of queries is asked for. The paper takes them from among the
queries of a small dataset, so that each prompt has queries of its own; here all prompts answer the same ones."""


class Split(NamedTuple):
    """Rows of a dataset's examples, and of what it shows."""

    queries: Ints  # in the order in which they are asked
    pool: Ints  # to draw demonstrations from


class Tries(NamedTuple):
    """Prompts that share a template, one a demonstration set."""

    part: SearchPart
    n_shots: int
    template_number: int  # among the instructions or templates tried; 0 where demonstrations are
    template: ChoiceTemplate
    demonstrations: Ints  # [n_tries, n_shots], rows of what the dataset shows


def search_requests(dataset: MultipleChoiceDataset, search: SearchOptions, n_queries: int | None) -> pl.DataFrame:
    """Ask every query behind every prompt that is tried: columns of schemas.REQUESTS without suite and prompt_id, and
    those of schemas.PROMPTS without prompt_id.

    `part` says what is varied: `demonstration_set` or `template` counts the prompts within part and number of shots,
    and the other one is 0. `position` runs over shots, prompts and queries in this order. `query_id` and
    `demonstration_ids` are rows of the dataset; `gold` is the first correct choice.

    Raises ConfigError for more queries than there can be, DatasetError for too few examples, TemplateError for a file
    of candidates that cannot be read.
    """
    split = split_examples(dataset, search, n_queries)
    asked = pl.concat([_rows(dataset, split.queries, tries) for tries in planned_tries(dataset, search, split)])
    return asked.with_columns(dataset=pl.lit(dataset.name), position=pl.int_range(pl.len()).over("part"))


def search_tables(
    dataset: MultipleChoiceDataset, search: SearchOptions, n_queries: int | None
) -> dict[str, pl.DataFrame]:
    """Return what the requests do not say: schemas.SEARCH_EXAMPLES and schemas.TRIED_PROMPTS, by table name."""
    split = split_examples(dataset, search, n_queries)
    queries = dataset.examples[split.queries].select(
        "example_id",
        "correct",
        n_choices=pl.col("choices").list.len(),
        query_id=pl.Series(split.queries),
        source=pl.format("{}, row {} (from 0)", pl.lit(dataset.source), "row"),
    )
    tried = [_tried(dataset, tries) for tries in planned_tries(dataset, search, split)]
    tables = {
        "search_examples": (queries.with_columns(place=pl.int_range(pl.len())), SEARCH_EXAMPLES),
        "tried_prompts": (pl.concat(tried), TRIED_PROMPTS),
    }
    return {
        name: frame.with_columns(dataset=pl.lit(dataset.name)).select(
            pl.col(column).cast(dtype) for column, dtype in schema.items()
        )
        for name, (frame, schema) in tables.items()
    }


def split_examples(dataset: MultipleChoiceDataset, search: SearchOptions, n_queries: int | None) -> Split:
    """Draw queries and the pool of demonstrations by the seed; fewer queries are the first of more.

    Where no number is asked for, there are MAX_QUERIES or as many as leave DEMONSTRATION_SHARE to demonstrations, and
    asking for fewer leaves the pool as it is.
    """
    n_examples, most_shots = dataset.examples.height, max(search.shots)
    order = np.array(random.Random(f"queries, seed {search.seed}").sample(range(n_examples), n_examples))
    own_pool = dataset.demonstrations is not None or most_shots == 0
    kept = 0 if own_pool else max(most_shots, math.ceil(DEMONSTRATION_SHARE * n_examples))
    by_default = min(MAX_QUERIES, n_examples - kept)
    possible = n_examples if own_pool else n_examples - most_shots
    asked = by_default if n_queries is None else n_queries
    n_shown = dataset.shown.height
    if asked < 1 or most_shots > n_shown:
        raise DatasetError(f"{dataset.source} has {n_shown} examples, too few for {most_shots} shots and any query.")
    if asked > possible:
        raise ConfigError(
            f"--queries {asked}: {dataset.name} has {n_examples} examples, which leaves at most {possible} queries "
            f"beside {most_shots} demonstrations. Ask for no more."
        )
    pool = order[max(asked, by_default) :] if dataset.demonstrations is None else np.arange(n_shown)
    return Split(order[:asked], pool)


def planned_tries(dataset: MultipleChoiceDataset, search: SearchOptions, split: Split) -> Iterator[Tries]:
    """Yield all that is tried, shots by shots. Instructions and templates share one demonstration set."""
    candidates = read_candidates(search.candidates) if search.candidates else None
    for n_shots in search.shots:
        n_tries = 1 if candidates else search.tries
        sets = split.pool[
            demonstration_sequences(n_pool=len(split.pool), n_shots=n_shots, n_sequences=n_tries, seed=search.seed)
        ]
        if candidates is None:
            yield Tries("demonstrations", n_shots, 0, dataset.template, sets)
            continue
        for part, templates in candidates.variations(dataset.template).items():
            for number, template in enumerate(templates[: search.tries]):
                yield Tries(part, n_shots, number, template, sets)


def _rows(dataset: MultipleChoiceDataset, queries: Ints, tries: Tries) -> pl.DataFrame:
    """Ask every query behind each of these demonstration sets, set by set."""
    n_tries = len(tries.demonstrations)
    number, place = (index.ravel() for index in np.indices((n_tries, len(queries))))
    texts = dataset.examples[queries].select(
        inputs=tries.template.inputs(pl.col("input"), pl.col("shown_choices")),
        continuations=continuations(pl.col("choices")),
        label_names="choices",
        gold=pl.col("correct").list.first(),
    )
    asked = texts.select(pl.all().gather(place))
    prompts = render_prompts(*_demonstrations(dataset, tries, number), asked["inputs"])
    return asked.select(
        part=pl.lit(tries.part),
        query_id=pl.Series(queries[place]),
        **NOT_VARIED
        | {"demonstration_set": pl.lit(pl.Series(number)), "template": pl.lit(tries.template_number, pl.Int64)},
        n_shots=pl.lit(tries.n_shots, pl.Int64),
        demonstration_ids=pl.Series(tries.demonstrations[number], dtype=pl.Array(pl.Int64, tries.n_shots)).cast(
            pl.List(pl.Int64)
        ),
        gold="gold",
        label_names="label_names",
        prompt=pl.lit(prompts),
        ask=pl.lit("labels"),
        continuations="continuations",
    )


def _demonstrations(dataset: MultipleChoiceDataset, tries: Tries, number: Ints) -> tuple[str, pl.Series, Ints]:
    """Return what render_prompts begins prompts with: those of the demonstration sets `number` [n]."""
    first_correct = pl.col("choices").list.get(pl.col("correct").list.first())
    # Examples are rendered as often as sets show them, which is seldom more than once.
    rendered = dataset.shown[tries.demonstrations.ravel()].select(
        text=tries.template.demonstration(pl.col("input"), pl.col("shown_choices"), first_correct)
    )
    rows = np.arange(tries.demonstrations.size).reshape(tries.demonstrations.shape)
    return tries.template.opening, rendered["text"], rows[number]


def _tried(dataset: MultipleChoiceDataset, tries: Tries) -> pl.DataFrame:
    """Return the prompts that are tried, with a placeholder where a query's input and choices would stand."""
    n_tries = len(tries.demonstrations)
    query = pl.select(tries.template.inputs(pl.lit("{input}"), pl.lit(["{choices}"]))).to_series()
    queries = query.new_from_index(0, n_tries)
    rows = tries.demonstrations
    ids = dataset.shown["example_id"].gather(rows.ravel()).to_numpy().reshape(rows.shape)
    return pl.DataFrame(
        {
            "part": tries.part,
            "n_shots": tries.n_shots,
            "prompt_number": np.arange(n_tries) + tries.template_number,
            "demonstrations": pl.Series(ids.tolist(), dtype=pl.List(pl.String)),
            "text": render_prompts(*_demonstrations(dataset, tries, np.arange(n_tries)), queries),
        }
    )
