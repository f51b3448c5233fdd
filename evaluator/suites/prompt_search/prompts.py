"""Define the options of a prompt search, read candidates from a file, and build a request for every prompt and query.

Queries are drawn once by the seed and are the same for every prompt. No query is a demonstration of any prompt.
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.config import Options, option
from evaluator.datasets.base import MultipleChoiceDataset
from evaluator.errors import ConfigError, DatasetError, TemplateError
from evaluator.files.json_files import parse_json
from evaluator.files.toml_files import converted
from evaluator.files.whole import read_bytes
from evaluator.prompts.demonstrations import demonstration_sequences
from evaluator.prompts.rows import NOT_VARIED, ROWS_PER_FRAME, prompt_spans, render_prompts
from evaluator.suites.base import Requests
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES, TRIED_PROMPTS
from evaluator.templates.template import ChoiceTemplate, continuations

SearchPart = Literal["demonstrations", "instructions", "templates"]
"""The element that differs between the prompts of a search; also the `part` of its requests."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Options):
    """Options of a prompt search."""

    shots: tuple[int, ...] = option((1, 2, 4), "Numbers of demonstrations, each searched by itself.")
    tries: int = option(
        200, "Prompts for each number of shots, 200 if left out; fewer if fewer different ones exist.", minimum=1
    )
    candidates: Path | None = option(None, "JSON file of instructions or templates to try in place of demonstrations.")
    halving: bool = option(False, "Stop the worse half of the prompts after each of several rounds.")
    seed: int = option(42, "Seed of all random draws: queries, demonstrations, ties.", minimum=0)

    def __post_init__(self) -> None:
        if not self.shots or min(self.shots) < 0 or len(set(self.shots)) < len(self.shots):
            raise ConfigError(f"--shots must be different numbers of 0 or more, got {self.shots}.")
        super().__post_init__()
        if self.candidates is None and 0 in self.shots:
            raise ConfigError(
                "--shots 0 leaves no demonstrations to search. Search instructions or templates with --candidates FILE."
            )


@dataclass(frozen=True, kw_only=True)
class _Candidates:
    """The content of a file of candidates."""

    instructions: tuple[str, ...] = ()
    templates: tuple[dict[str, str | None], ...] = ()  # fields of ChoiceTemplate


def read_candidates(path: Path, template: ChoiceTemplate) -> dict[SearchPart, list[ChoiceTemplate]]:
    """Read the candidates in a file; return part of the search -> templates to try.

    The file has a JSON object with `instructions`, a list of texts, or `templates`, a list of objects, or both. The
    keys of a template are instruction, input_prefix, output_prefix, choice_prefix (null: choices are not listed) and
    separator; a missing key has the value of `template`.

    Args:
        path: the file.
        template: template of the dataset.

    Raises TemplateError, with the position in the file, for content of another form.
    """
    try:
        content = parse_json(read_bytes(path))
    except (OSError, ValueError) as error:
        raise TemplateError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise TemplateError(f"{path} must hold an object with `instructions`, `templates` or both, and nothing else.")
    stated = converted(content, _Candidates, TemplateError, str(path))
    parts: dict[SearchPart, list[ChoiceTemplate]] = {
        "instructions": [replace(template, instruction=text) for text in stated.instructions],
        "templates": [
            converted(asdict(template) | fields, ChoiceTemplate, TemplateError, f"{path}, template {number} (from 0)")
            for number, fields in enumerate(stated.templates)
        ],
    }
    if not any(parts.values()):
        raise TemplateError(f"{path} has nothing to search: its lists are empty. Add an instruction or a template.")
    return {part: candidates for part, candidates in parts.items() if candidates}


MAX_QUERIES = 200
"""Largest number of queries of a dataset in a run without --queries (Yauney & Mimno 2024, section 5.1)."""

DEMONSTRATION_SHARE = 0.25
"""Share of the examples that are reserved for demonstrations in a run without --queries. In the paper, demonstrations
of a small dataset are queries of other prompts; here all prompts have the same queries."""


class Tries(NamedTuple):
    """Candidate prompts with the same template, one for each demonstration set."""

    part: SearchPart
    n_shots: int
    template_number: int  # index among the instructions or templates; 0 in the part demonstrations
    template: ChoiceTemplate
    demonstrations: Ints  # [n_tries, n_shots], rows of MultipleChoiceDataset.shown
    first_set: int = 0  # number of the first demonstration set


def search_requests(dataset: MultipleChoiceDataset, search: SearchOptions, n_queries: int | None) -> Requests:
    """Build a request for every query with every candidate prompt, and side tables of the queries and the prompts.

    A frame has at most ROWS_PER_FRAME rows, or the rows of one prompt. In the part demonstrations,
    `demonstration_set` is the number of the prompt within its number of shots, and `template` is 0. In the other parts
    `template` is the number of the prompt, and `demonstration_set` is 0. `position` counts, within a part, numbers of
    shots, then prompts, then queries. `query_id` and `demonstration_ids` are rows of the dataset; `gold` is the first
    correct choice. The side tables are SEARCH_EXAMPLES and TRIED_PROMPTS.

    Raises ConfigError for more queries than the dataset allows, or more candidates than tries; DatasetError for too few
    examples; TemplateError for a file of candidates that cannot be read.
    """
    queries, pool = split_examples(dataset, search, n_queries)
    planned = list(planned_tries(dataset, search, pool))
    return Requests(_request_rows(dataset, queries, planned), _search_tables(dataset, queries, planned))


def _request_rows(dataset: MultipleChoiceDataset, queries: Ints, planned: Sequence[Tries]) -> Iterator[pl.DataFrame]:
    n_rows: dict[SearchPart, int] = defaultdict(int)
    n_sets = max(ROWS_PER_FRAME // len(queries), 1)  # number of demonstration sets in a frame
    for tries in planned:
        for first in range(0, len(tries.demonstrations), n_sets):
            some = tries._replace(demonstrations=tries.demonstrations[first : first + n_sets], first_set=first)
            rows = _rows(dataset, queries, some)
            position = pl.int_range(pl.len()) + n_rows[tries.part]
            n_rows[tries.part] += rows.height
            yield rows.with_columns(dataset=pl.lit(dataset.name), position=position)


def _search_tables(dataset: MultipleChoiceDataset, queries: Ints, planned: Sequence[Tries]) -> dict[str, pl.DataFrame]:
    name = pl.lit(dataset.name)
    examples = dataset.examples[queries].select(
        "example_id",
        "correct",
        dataset=name,
        place=pl.int_range(pl.len()),
        n_choices=pl.col("choices").list.len(),
        query_id=pl.Series(queries),
        source=pl.format("{}, row {} (from 0)", pl.lit(dataset.source), "row"),
    )
    tried = pl.concat(_tried_prompts(dataset, tries) for tries in planned).with_columns(dataset=name)
    return {
        "search_examples": examples.select(SEARCH_EXAMPLES.names()).cast(SEARCH_EXAMPLES),
        "tried_prompts": tried.select(TRIED_PROMPTS.names()).cast(TRIED_PROMPTS),
    }


def split_examples(dataset: MultipleChoiceDataset, search: SearchOptions, n_queries: int | None) -> tuple[Ints, Ints]:
    """Draw the queries and the pool of demonstrations by the seed of the search.

    Without `n_queries` there are MAX_QUERIES queries, or fewer, so that DEMONSTRATION_SHARE of the examples remain for
    demonstrations. With a smaller `n_queries`, the queries are the first of these, and the pool is the same.

    Returns the queries, as rows of MultipleChoiceDataset.examples in the order of the search, and the pool, as rows of
    MultipleChoiceDataset.shown.

    Raises DatasetError for too few examples, ConfigError if `n_queries` leaves too few demonstrations.
    """
    n_examples, n_shown, max_shots = dataset.examples.height, dataset.shown.height, max(search.shots)
    order = np.array(random.Random(f"queries, seed {search.seed}").sample(range(n_examples), n_examples))
    # All examples can be queries if demonstrations are in a separate file, or if none are shown.
    is_separate = dataset.demonstrations is not None or max_shots == 0
    n_reserved = 0 if is_separate else max(max_shots, math.ceil(DEMONSTRATION_SHARE * n_examples))
    default = min(MAX_QUERIES, n_examples - n_reserved)
    max_queries = n_examples if is_separate else n_examples - max_shots
    n_queries = default if n_queries is None else n_queries
    if n_queries < 1 or max_shots > n_shown:
        examples, use = (" for demonstrations", "") if is_separate else ("", " and any query")
        raise DatasetError(f"{dataset.source} has {n_shown} examples{examples}, too few for {max_shots} shots{use}.")
    if n_queries > max_queries:
        raise ConfigError(
            f"--queries {n_queries}: {dataset.name} has {n_examples} examples, which leaves at most {max_queries} "
            f"queries after {max_shots} demonstrations. Choose {max_queries} or fewer."
        )
    pool = order[max(n_queries, default) :] if dataset.demonstrations is None else np.arange(n_shown)
    return order[:n_queries], pool


def planned_tries(dataset: MultipleChoiceDataset, search: SearchOptions, pool: Ints) -> Iterator[Tries]:
    """Yield the candidate prompts for each number of shots. All instructions and templates have one demonstration set.

    Args:
        pool: rows of MultipleChoiceDataset.shown from which demonstrations are drawn.

    Raises ConfigError for more candidates in the file than tries.
    """
    candidates: dict[SearchPart, list[ChoiceTemplate]] = {"demonstrations": [dataset.template]}
    if search.candidates:
        candidates = read_candidates(search.candidates, dataset.template)
    for part, templates in candidates.items():
        if (n_listed := len(templates)) > search.tries:
            raise ConfigError(
                f"{search.candidates} has {n_listed} {part}, and --tries {search.tries} would leave some out. "
                f"Give --tries {n_listed}, or list fewer."
            )
    for n_shots in search.shots:
        n_tries = 1 if search.candidates else search.tries
        rows = demonstration_sequences(n_pool=len(pool), n_shots=n_shots, n_sequences=n_tries, seed=search.seed)
        for part, templates in candidates.items():
            for number, template in enumerate(templates):
                yield Tries(part, n_shots, number, template, pool[rows])


def _rows(dataset: MultipleChoiceDataset, queries: Ints, tries: Tries) -> pl.DataFrame:
    """Return the requests for every query with each demonstration set of `tries`, set by set."""
    # One row for each pair of a demonstration set and a query.
    number, place = (index.ravel() for index in np.indices((len(tries.demonstrations), len(queries))))
    rows: pl.DataFrame = dataset.examples[queries].select(
        inputs=tries.template.inputs(pl.col("input"), pl.col("shown_choices")),
        continuations=continuations(pl.col("choices")),
        label_names="choices",
        gold=pl.col("correct").list.first(),
    )[place]
    demonstration_set = pl.lit(pl.Series(number + tries.first_set))
    demonstration_ids = pl.Series(tries.demonstrations[number], dtype=pl.Array(pl.Int64, tries.n_shots))
    return rows.drop("inputs").with_columns(
        *_prompts(dataset, tries, number, rows["inputs"]),
        part=pl.lit(tries.part),
        query_id=pl.Series(queries[place]),
        **NOT_VARIED | {"demonstration_set": demonstration_set, "template": pl.lit(tries.template_number, pl.Int64)},
        n_shots=pl.lit(tries.n_shots, pl.Int64),
        demonstration_ids=demonstration_ids.cast(pl.List(pl.Int64)),
        ask=pl.lit("labels"),
    )


def _prompts(
    dataset: MultipleChoiceDataset, tries: Tries, number: Ints, queries: pl.Series
) -> tuple[pl.Series, pl.Series]:
    """Return `prompt` and `spans` of schemas.PROMPTS.

    Args:
        number: [n], index of the demonstration set of each prompt.
        queries: [n], rendered queries.
    """
    template, first_correct = tries.template, pl.col("choices").list.get(pl.col("correct").list.first())
    # A demonstration is rendered again for every set that contains it, because few demonstrations are in several sets.
    shown = dataset.shown[tries.demonstrations.ravel()].select(
        text=template.demonstration(pl.col("input"), pl.col("shown_choices"), first_correct),
        label=template.inputs(pl.col("input"), pl.col("shown_choices")).str.len_chars(),
    )
    rows = np.arange(tries.demonstrations.size).reshape(tries.demonstrations.shape)[number]
    opening = template.opening
    return render_prompts(opening, shown["text"], rows, queries), prompt_spans(opening, shown, rows, queries)


def _tried_prompts(dataset: MultipleChoiceDataset, tries: Tries) -> pl.DataFrame:
    """Return rows of TRIED_PROMPTS: the candidate prompts, with placeholders for the input and choices of a query."""
    number, ids = np.arange(len(tries.demonstrations)), dataset.shown["example_id"].to_numpy()[tries.demonstrations]
    query = pl.select(tries.template.inputs(pl.lit("{input}"), pl.lit(["{choices}"]))).to_series()
    return pl.DataFrame(
        {
            "part": tries.part,
            "n_shots": tries.n_shots,
            "prompt_number": number + tries.template_number,
            "demonstrations": pl.Series(ids.tolist(), dtype=pl.List(pl.String)),
            "text": _prompts(dataset, tries, number, query.new_from_index(0, len(number)))[0],
        }
    )
