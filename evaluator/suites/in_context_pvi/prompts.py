"""Define the options of the suite pvi, choose its demonstration sets, and build its prompts with and without inputs.

Demonstrations are the same for all queries of a dataset: drawn at random, or as published. Drawn sets consist of blocks
with one demonstration of each label, in an order drawn by the seed. So labels are equally frequent if the number of
shots is a multiple of the number of labels. The published sets begin with such a block too. Sets chosen by PVI are in
demonstration_choice.py.

Lu et al. 2023, section 3: p' = (x1, y1, ..., xn, yn, x) and p = (0, y1, ..., 0, yn, 0) with 0 the empty string. A null
prompt does not depend on a query, so there is one for each set. Prompts end without a space, as the published ones do;
the space belongs to the label.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets import PROMPTS_FILE, PUBLISHED_TABLES
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.tables import read_parquet
from evaluator.errors import ConfigError, DatasetError, TemplateError
from evaluator.options import Options, option
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
"""Where the demonstrations of in-context PVI come from."""


@dataclass(frozen=True, kw_only=True)
class PviOptions(Options):
    """Options of the demonstrations before the queries."""

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
    """Options of `evaluator measure`: data that PVI is compared with."""

    annotations: tuple[Path, ...] = option(
        (),
        "File with the labels of several annotators (ChaosNLI, SNLI or MultiNLI as released, or a table with the "
        "column text), or a table of text and pvi that were computed elsewhere.",
        given=Path,
        several=True,
    )


def resolved_options(config: RunConfig) -> PviOptions:
    """Return the suite's options in a run, with the file of published demonstrations if the run uses it.

    Raises DatasetError if the file is missing.
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
"""Dataset -> lower number of shots, if it is not the number of labels: "since CoLA contains only 2 labels and the
input sentences are short, we tried 4- and 8-shot for it" (Lu et al. 2023, section 4, footnote 2)."""

_PROMPT_COLUMNS = ("prompt_set", "dataset", "kind", "shots", "text")
_MAX_DRAWS = 1_000  # after so many draws a dataset counts as having too few different sets


class DemonstrationSet(NamedTuple):
    """The demonstrations before every query, as rows and as text."""

    n_shots: int
    number: int  # within the number of shots, from 0
    rows: list[int]  # of the demonstration split, in prompt order; empty for published texts, whose rows are unknown
    text: str
    null_text: str  # the same with every input removed
    spans: list[dict[str, int]]  # as in schemas.PROMPTS, of the demonstrations in the text; empty for published texts
    null_spans: list[dict[str, int]]  # the same in the null text


def demonstration_sets(dataset: ClassificationDataset, pvi: PviOptions) -> list[DemonstrationSet]:
    """Return all sets, by number of shots and then by number.

    Raises TemplateError for too few demonstrations, DatasetError and ConfigError for published texts that are missing
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
    """Draw different sequences of rows of the demonstration split, without a repeated row.

    With the same seed, fewer sets are the first of more sets, and fewer shots the first of more shots, unless a
    repeated set was left out. Raises TemplateError if there are too few demonstrations of a label, or too
    few different sets.
    """
    by_label = _rows_by_label(dataset, -(-n_shots // len(dataset.verbalizer.label_names)))
    sets: dict[tuple[int, ...], None] = {}  # a dict, because it keeps the order and drops repeated sets
    for number in range(_MAX_DRAWS):
        # A generator for each set, so that sets do not depend on those drawn before.
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
    """Yield the published texts of a dataset, byte for byte, with and without inputs.

    Raises ConfigError if the dataset has none, fewer sets than the options or other numbers of shots; DatasetError
    for a file that is missing or lacks columns.
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
    """Return the first row of each label, then the second of each, and so on, in a random order within each block."""
    labels = range(len(by_label))
    n_blocks = -(-n_shots // len(by_label))
    return [by_label[label][block] for block in range(n_blocks) for label in draw.sample(labels, len(labels))][:n_shots]


def with_texts(dataset: ClassificationDataset, number: int, rows: list[int]) -> DemonstrationSet:
    """Return a demonstration set: rows of the demonstration split, rendered in the given order."""
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
"""Parts: queries after demonstrations, and the same without any input."""


def null_part(method: str) -> str:
    """Return the name of the part with a method's null prompts."""
    return f"{method}_null"


def pvi_prompts(dataset: ClassificationDataset, pvi: PviOptions, n_queries: int | None) -> Requests:
    """Build request rows: every query after every set, and one null prompt for each set. The side table is pvi_queries.

    A query whose texts are among the demonstrations of any set is left out for all sets. `position` enumerates numbers
    of shots, then sets, then all rows of the test split; for null prompts, whose query and gold are null, numbers of
    shots, then sets.

    Raises ConfigError for more queries than there are, DatasetError where no query is left, and what demonstration_sets
    raises.
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
    inputs = queries_after(dataset, sets, asked, part=INPUT, n_rows=n_rows)
    rows = chain(inputs, [null_prompts(dataset, sets, part=NULL)])
    return Requests(rows, {"pvi_queries": queries.select(PVI_QUERIES.names()).cast(PVI_QUERIES)})


def queries_after(
    dataset: ClassificationDataset, sets: Sequence[DemonstrationSet], queries: pl.DataFrame, *, part: str, n_rows: int
) -> Iterator[pl.DataFrame]:
    """Build request rows of every query after every set, set by set.

    Args:
        queries: rows of as_queries.
        n_rows: number of rows of their split; `position` is (index of the set) * n_rows + (row of the query).
    """
    for place, shown in enumerate(sets):
        for some in queries.iter_slices(ROWS_PER_FRAME):
            yield _after(dataset, shown, some, part, place * n_rows)


def null_prompts(dataset: ClassificationDataset, sets: Sequence[DemonstrationSet], *, part: str) -> pl.DataFrame:
    """Build request rows of the prompt without any input of each set; `position` numbers the sets."""
    end = dataset.template.query_prefix + dataset.template.label_prefix.removesuffix(LABEL_SPACE)
    types = {"query_id": pl.Int64(), "gold": pl.Int64(), "query": pl.String()}
    no_query = pl.DataFrame([(None, None, end)], schema=types, orient="row")
    bare = (shown._replace(text=shown.null_text, spans=shown.null_spans) for shown in sets)
    return pl.concat(_after(dataset, shown, no_query, part, place) for place, shown in enumerate(bare))


def _after(
    dataset: ClassificationDataset, shown: DemonstrationSet, queries: pl.DataFrame, part: str, first: int
) -> pl.DataFrame:
    """Build request rows of queries after a set of demonstrations; positions of rows of the split begin at `first`."""
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
    """Render the rows of a split as queries and as demonstrations.

    Returns dataset, query_id, row, text and gold of PVI_QUERIES; `query`, the end of a prompt that asks for the label;
    and `inputs`, the text before the label of a demonstration.
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
    """Return whether the `inputs` of a query are among the demonstrations of any of the sets.

    The rows of published demonstrations are not known: there, whether the inputs are a part of their text.
    """
    if rows := sorted({row for shown in sets for row in shown.rows}):
        return pl.col("inputs").is_in(as_queries(dataset, dataset.demonstration[rows])["inputs"].implode())
    return pl.any_horizontal(pl.lit(shown.text).str.contains(pl.col("inputs"), literal=True) for shown in sets)
