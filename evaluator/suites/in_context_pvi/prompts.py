"""Define the options of the suite pvi, draw its demonstration sets, and build its prompts with and without inputs.

All queries of a dataset have the same demonstrations: random ones, or the published ones. Random sets consist of blocks
with one demonstration of each label, in random order. So labels are equally frequent if the number of shots is a
multiple of the number of labels. The published sets begin with such a block too. demonstration_choice.py chooses sets
by PVI.

Lu et al. 2023, section 3: the input prompt is p' = (x1, y1, ..., xn, yn, x), the null prompt is p = (0, y1, ..., 0, yn,
0), where 0 is the empty string. A null prompt does not depend on a query, so there is one for each set. Prompts end
without a space, like the published prompts; the space belongs to the label.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from evaluator.config import Options, RunConfig, option
from evaluator.datasets import PROMPTS_FILE, PUBLISHED_TABLES
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.tables import read_parquet
from evaluator.errors import ConfigError, DatasetError, TemplateError
from evaluator.prompts.rows import (
    NOT_VARIED,
    ROWS_PER_FRAME,
    asks_labels,
    prompt_spans,
    render_prompts,
    with_query_span,
)
from evaluator.schemas import PROMPTS
from evaluator.suites.base import Requests
from evaluator.suites.in_context_pvi.schema import PVI_QUERIES
from evaluator.templates.template import LABEL_SPACE, continuations

PviSource = Literal["random", "published"]
"""Source of the suite's demonstration sets."""


@dataclass(frozen=True, kw_only=True)
class PviOptions(Options):
    """Options of the suite pvi."""

    shots: tuple[int, ...] | None = option(
        None, "Numbers of demonstrations. Default: the number of labels, and twice that."
    )
    source: PviSource = option("random", "Random ones (if left out), or the published ones.", name="demonstrations")
    sets: int = option(
        3, "Demonstration sets for each number of shots, 3 if left out; every query is asked after each.", minimum=1
    )
    seed: int = option(42, "Seed of all random draws: queries, demonstrations, ties.", minimum=0)
    prompts: Path | None = option(
        None, "File of the published demonstrations; prompts.parquet in a folder of --data if left out."
    )
    # "The first 500 training instances" (Lu et al. 2023, tables 18 and 19).
    training_queries: int = option(
        500, "Number of training rows from which demonstrations are chosen by PVI, 500 if left out.", minimum=1
    )

    def __post_init__(self) -> None:
        if self.shots is not None and (not self.shots or min(self.shots) < 1 or len({*self.shots}) < len(self.shots)):
            raise ConfigError(f"--shots must be different numbers, each 1 or more, got {self.shots}.")
        super().__post_init__()
        if self.prompts and self.source != "published":
            raise ConfigError("--prompts names a file of published demonstrations: add --demonstrations published.")


@dataclass(frozen=True, kw_only=True)
class PviMeasureOptions(Options):
    """Options of `evaluator measure`: data to correlate PVI with."""

    annotations: tuple[Path, ...] = option(
        (),
        "File with the labels of several annotators (ChaosNLI, SNLI or MultiNLI as released, or a table with the "
        "column text), or a table of text and pvi that were computed elsewhere.",
        given=Path,
        several=True,
    )


def resolved_options(config: RunConfig) -> PviOptions:
    """Return the suite's options of a run, with the path of the published demonstrations if the run uses them.

    Raises DatasetError if their file is missing.
    """
    options = config.options_of(PviOptions)
    if options.source != "published":
        return options
    folders = [path for path in config.data.paths if path.is_dir()]
    searched = [options.prompts] if options.prompts else [path / PROMPTS_FILE for path in folders]
    for path in searched:
        if path.is_file():
            return replace(options, prompts=path)
    raise DatasetError(
        f"The published demonstrations are not there: looked for {', '.join(map(str, searched)) or PROMPTS_FILE}. "
        "Name their file with --prompts, or use --demonstrations random."
    )


MIN_SHOTS = {"cola": 4, "cola_out_of_domain": 4}
"""Dataset -> lower default number of shots, for datasets where it is not the number of labels: "since CoLA contains
only 2 labels and the input sentences are short, we tried 4- and 8-shot for it" (Lu et al. 2023, section 4, footnote
2)."""

_PROMPT_COLUMNS = ("prompt_set", "dataset", "kind", "shots", "text")
_MAX_DRAWS = 1_000  # after so many draws without enough different sets, random_sets raises an error


class DemonstrationSet(NamedTuple):
    """The demonstrations before every query, as rows and as text."""

    n_shots: int
    number: int  # number of the set within its number of shots, from 0
    rows: list[int]  # rows of the demonstration split, in prompt order; empty for published texts (rows are not known)
    text: str
    null_text: str  # text without any input
    spans: list[dict[str, int]]  # spans of the demonstrations in the text (schemas.PROMPTS); empty for published texts
    null_spans: list[dict[str, int]]  # spans of the demonstrations in the null text


def demonstration_sets(dataset: ClassificationDataset, pvi: PviOptions) -> list[DemonstrationSet]:
    """Return the suite's demonstration sets, sorted by number of shots and number.

    Raises TemplateError for too few demonstrations; DatasetError and ConfigError for published texts that are missing
    or do not fit the options.
    """
    if pvi.source == "published":
        return list(published_sets(dataset.name, pvi))
    sets = []
    for n_shots in numbers_of_shots(dataset, pvi):
        drawn = random_sets(dataset, n_shots=n_shots, n_sets=pvi.sets, seed=pvi.seed)
        sets += [with_texts(dataset, number, rows) for number, rows in enumerate(drawn)]
    return sets


def numbers_of_shots(dataset: ClassificationDataset, pvi: PviOptions) -> tuple[int, ...]:
    """Return the numbers of shots: by default the number of labels, and twice that (Lu et al. 2023, section 4)."""
    lower = MIN_SHOTS.get(dataset.name, len(dataset.verbalizer.label_names))
    return pvi.shots or (lower, 2 * lower)


def random_sets(dataset: ClassificationDataset, *, n_shots: int, n_sets: int, seed: int) -> list[list[int]]:
    """Draw `n_sets` different sequences of `n_shots` rows of the demonstration split, each without a repeated row.

    With the same seed, a smaller number of sets gives the first sets of a larger number, and a smaller number of shots
    the first rows of a larger number, unless a set was drawn twice and skipped. Raises TemplateError if there are too
    few demonstrations of a label, or too few different sets.
    """
    by_label = _rows_by_label(dataset, -(-n_shots // len(dataset.verbalizer.label_names)))
    sets: dict[tuple[int, ...], None] = {}  # a dict keeps the order and drops repeated sets
    for number in range(_MAX_DRAWS):
        # A new generator for each set, so that a set does not depend on the sets before it.
        draw = random.Random(f"demonstrations of PVI, set {number}, seed {seed}")
        shuffled = [draw.sample(rows, len(rows)) for rows in by_label]
        sets[tuple(in_blocks(shuffled, n_shots, draw))] = None
        if len(sets) == n_sets:
            return [list(rows) for rows in sets]
    raise TemplateError(
        f"{dataset.name}: --sets {n_sets} needs {n_sets} different sets of {n_shots} demonstrations, but "
        f"{dataset.demonstration.height} training rows gave {len(sets)}. Choose fewer --sets."
    )


def published_sets(name: str, pvi: PviOptions) -> Iterator[DemonstrationSet]:
    """Yield the published demonstration sets of a dataset: their texts, unchanged, with and without inputs.

    Raises ConfigError if the file has no demonstrations for the dataset, fewer sets than the options ask for, or other
    numbers of shots; DatasetError if the file is missing or lacks columns.
    """
    assert pvi.prompts is not None, "resolved_options names the file"
    path = pvi.prompts
    title = PUBLISHED_TABLES[name].prompts if name in PUBLISHED_TABLES else name
    texts = read_parquet(path, _PROMPT_COLUMNS).filter(dataset=title).sort("prompt_set")
    published = texts["shots"].unique().sort().to_list()
    if not published:
        raise ConfigError(
            f"{path} has no demonstrations for {name}. Leave it out (--datasets), or use --demonstrations random."
        )
    for n_shots in pvi.shots or published:
        pairs = texts.filter(shots=n_shots).pivot("kind", index="prompt_set", values="text")
        if pairs.height < pvi.sets:
            raise ConfigError(
                f"{path} has {pairs.height} sets of {n_shots} demonstrations for {name}, and --sets is {pvi.sets}. "
                f"Choose fewer --sets, or --shots among {', '.join(map(str, published))}."
            )
        for number, (text, null_text) in enumerate(pairs.select("g_prime", "g").head(pvi.sets).rows()):
            yield DemonstrationSet(n_shots, number, [], text, null_text, [], [])


def _rows_by_label(dataset: ClassificationDataset, minimum: int) -> list[list[int]]:
    gold = dataset.demonstration["gold"].to_numpy()
    by_label = [np.flatnonzero(gold == label).tolist() for label in range(len(dataset.verbalizer.label_names))]
    for name, rows in zip(dataset.verbalizer.label_names, by_label, strict=True):
        if len(rows) < minimum:
            raise TemplateError(
                f"{dataset.name}: {minimum} demonstrations labelled {name!r} are needed in a set, and there are "
                f"{len(rows)}. Choose fewer --shots, or give more training rows."
            )
    return by_label


def in_blocks(by_label: Sequence[Sequence[int]], n_shots: int, draw: random.Random) -> list[int]:
    """Return `n_shots` rows in blocks: a block has the next row of each label, in random order.

    Args:
        by_label: rows of each label, in the order in which they are used.
    """
    labels = range(len(by_label))
    n_blocks = -(-n_shots // len(by_label))
    return [by_label[label][block] for block in range(n_blocks) for label in draw.sample(labels, len(labels))][:n_shots]


def with_texts(dataset: ClassificationDataset, number: int, rows: list[int]) -> DemonstrationSet:
    """Render rows of the demonstration split, in the given order, as a demonstration set."""
    # Once with the inputs before the labels, once without.
    template, rendered = dataset.template, list[pl.DataFrame]()
    for before_label in (template.before_label(pl.col("texts")), pl.lit(template.label_prefix)):
        parts = (before_label, dataset.verbalizer.text(pl.col("gold")), pl.lit(template.label_affix))
        columns = {"text": pl.concat_str(parts), "label": before_label.str.len_chars()}
        rendered.append(dataset.demonstration[rows].select(**columns))
    in_order = np.arange(len(rows))[None, :]
    texts = [render_prompts(template.instruction, shown["text"], in_order).item() for shown in rendered]
    spans = [prompt_spans(template.instruction, shown, in_order).to_list()[0] for shown in rendered]
    return DemonstrationSet(len(rows), number, rows, *texts, *spans)


INPUT, NULL = "input", "null"
"""Parts of the suite: input prompts, and null prompts."""


def null_part(method: str) -> str:
    """Return the name of the part with a method's null prompts."""
    return f"{method}_null"


def pvi_prompts(dataset: ClassificationDataset, pvi: PviOptions, n_queries: int | None) -> Requests:
    """Build the requests for every query after every set and for a null prompt of every set; the side table
    pvi_queries.

    A query whose texts are among the demonstrations of any set is left out for all sets. `position` enumerates numbers
    of shots, then sets, then all rows of the test split. For null prompts, which have no query and no gold label, it
    enumerates numbers of shots, then sets.

    Raises ConfigError for more queries than test rows, DatasetError if no query is left, and the errors of
    demonstration_sets.
    """
    sets = demonstration_sets(dataset, pvi)
    n_rows = dataset.test.height
    if n_queries is not None and n_queries > n_rows:
        raise ConfigError(f"--queries {n_queries}: {dataset.name} has only {n_rows} test rows. Give at most {n_rows}.")
    queries = as_queries(dataset, dataset.test.head(n_queries or n_rows)).with_columns(asked=~shown_by(dataset, sets))
    asked = queries.filter("asked")
    if asked.is_empty():
        raise DatasetError(
            f"{dataset.name}: every query is also a demonstration, so none is left. Choose fewer --sets or --shots, or "
            "more --queries."
        )
    rows = chain(queries_after(dataset, sets, asked, part=INPUT), [null_prompts(dataset, sets, part=NULL)])
    return Requests(rows, {"pvi_queries": queries.select(PVI_QUERIES.names()).cast(PVI_QUERIES)})


def queries_after(
    dataset: ClassificationDataset, sets: Sequence[DemonstrationSet], queries: pl.DataFrame, *, part: str
) -> Iterator[pl.DataFrame]:
    """Yield the requests for every query after every set, set by set.

    Args:
        queries: rows of as_queries.
        part: part of the requests; `position` is (index of the set) * (number of test rows) + (row of the query).
    """
    for place, shown in enumerate(sets):
        for some in queries.iter_slices(ROWS_PER_FRAME):
            yield _after(dataset, shown, some, part, place * dataset.test.height)


def null_prompts(dataset: ClassificationDataset, sets: Sequence[DemonstrationSet], *, part: str) -> pl.DataFrame:
    """Build a request for the null prompt of each set; `position` is the index of the set."""
    end = dataset.template.query_prefix + dataset.template.label_prefix.removesuffix(LABEL_SPACE)
    types = {"query_id": pl.Int64(), "gold": pl.Int64(), "query": pl.String()}
    no_query = pl.DataFrame([(None, None, end)], schema=types, orient="row")
    bare = (shown._replace(text=shown.null_text, spans=shown.null_spans) for shown in sets)
    return pl.concat(_after(dataset, shown, no_query, part, place) for place, shown in enumerate(bare))


def _after(
    dataset: ClassificationDataset, shown: DemonstrationSet, queries: pl.DataFrame, part: str, first: int
) -> pl.DataFrame:
    """Build the requests for queries after a demonstration set; `position` is `first` + row of the query."""
    before, prompt, labels = pl.lit(shown.text), pl.lit(shown.text) + pl.col("query"), asks_labels(dataset)
    return queries.select(
        "query_id",
        "gold",
        position=pl.col("query_id").fill_null(0) + first,
        n_shots=pl.lit(shown.n_shots, pl.Int64),
        demonstration_ids=pl.lit(shown.rows, pl.List(pl.Int64)),
        prompt=prompt,
        spans=with_query_span(pl.lit(shown.spans, PROMPTS["spans"]), before, prompt, prompt),
        **NOT_VARIED | {"demonstration_set": pl.lit(shown.number, pl.Int64)},
        **labels | {"continuations": continuations(labels["label_names"])},
        part=pl.lit(part),
    )


def as_queries(dataset: ClassificationDataset, split: pl.DataFrame) -> pl.DataFrame:
    """Render the rows of a split as queries.

    Returns dataset, query_id, row, text and gold as in PVI_QUERIES; `query`, the text of the query at the end of a
    prompt; and `inputs`, the rendered inputs, which are the same in a query and in a demonstration.
    """
    template = dataset.template
    assert template.label_prefix.endswith(LABEL_SPACE), "templates of these datasets have a space before labels"
    template.require_fields(dataset.text_fields)
    return split.select(
        dataset=pl.lit(dataset.name),
        query_id=pl.int_range(pl.len()),
        row="source_row",
        text=pl.col("texts").list.join("\n"),
        gold="gold",
        query=template.query(pl.col("texts")).str.strip_suffix(LABEL_SPACE),
        inputs=template.inputs(pl.col("texts")),
    )


def shown_by(dataset: ClassificationDataset, sets: Sequence[DemonstrationSet]) -> pl.Expr:
    """Return an expression: whether the `inputs` of a query are the inputs of a demonstration in any of the sets.

    The rows of published demonstrations are not known. For them it is whether the inputs occur in the text of a set.
    """
    if rows := sorted({row for shown in sets for row in shown.rows}):
        return pl.col("inputs").is_in(as_queries(dataset, dataset.demonstration[rows])["inputs"].implode())
    return pl.any_horizontal(pl.lit(shown.text).str.contains(pl.col("inputs"), literal=True) for shown in sets)
