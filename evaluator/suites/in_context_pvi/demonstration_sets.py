"""Choose the demonstrations of all queries of a dataset: drawn at random, or as published.

Drawn sets consist of blocks with one demonstration of each label, in an order drawn by the seed. So labels are equally
frequent if the number of shots is a multiple of the number of labels. The published sets begin with such a block too.
Sets chosen by PVI are in chosen_demonstrations.py.
"""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lu_2023_tables import PUBLISHED_TABLES
from evaluator.datasets.tables import read_parquet
from evaluator.errors import ConfigError, TemplateError
from evaluator.prompts.render import prompt_spans, render_prompts
from evaluator.suites.in_context_pvi.options import PviOptions

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
    """Return the set of these rows of the demonstration split, rendered in this order."""
    template, label_text = dataset.template, dataset.verbalizer.text(pl.col("gold"))
    label_prefix = pl.lit(template.label_prefix)
    shown = dataset.demonstration[rows].select(
        text=template.demonstration(pl.col("texts"), label_text),
        label=template.before_label(pl.col("texts")).str.len_chars(),
    )
    without_inputs = dataset.demonstration[rows].select(
        text=pl.concat_str(label_prefix, label_text, pl.lit(template.label_affix)),
        label=label_prefix.str.len_chars(),
    )
    in_order = np.arange(len(rows))[None, :]
    texts = [render_prompts(template.instruction, one["text"], in_order).item() for one in (shown, without_inputs)]
    spans = [prompt_spans(template.instruction, one, in_order).to_list()[0] for one in (shown, without_inputs)]
    return DemonstrationSet(len(rows), number, rows, *texts, *spans)
