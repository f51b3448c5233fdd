"""Which demonstrations stand before all queries of a dataset: drawn at random, as published, or chosen by PVI.

Drawn and chosen sets come in blocks that show each label once, in an order drawn by the seed; so labels are equally
frequent where the number of shots is a multiple of theirs. The published sets begin with such a block as well.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.config import RANKED_SOURCES, PviConfig, PviSource
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lcg import Ints
from evaluator.datasets.pvi_tables import PVI_TABLES
from evaluator.errors import ConfigError, DatasetError, TemplateError

FEWEST_SHOTS = {"cola": 4, "cola_out_of_domain": 4}
"""Where it is not the number of labels: "since CoLA contains only 2 labels and the input sentences are short, we tried
4- and 8-shot for it" (Lu et al. 2023, section 4, footnote 2)."""

PROMPTS_FILE = "prompts.parquet"
_PROMPT_COLUMNS = ("prompt_set", "dataset", "kind", "shots", "text")
_MOST_DRAWS = 1_000  # before a pool is said to have too few different sets


class DemonstrationSet(NamedTuple):
    """What stands before every query."""

    n_shots: int
    number: int  # within the number of shots, from 0
    rows: list[int]  # of the demonstration split, in prompt order; none of published texts, whose rows are unknown
    text: str
    null_text: str  # the same with every input removed


def demonstration_sets(dataset: ClassificationDataset, pvi: PviConfig) -> list[DemonstrationSet]:
    """All sets, by number of shots and then by number.

    Raises TemplateError for too few demonstrations, DatasetError and ConfigError for published texts or measured PVIs
    that are not there or do not fit the dataset.
    """
    if pvi.source == "published":
        return list(published_sets(dataset.name, pvi))
    sets = []
    for n_shots in numbers_of_shots(dataset, pvi):
        if pvi.source in RANKED_SOURCES:
            drawn = ranked_sets(dataset, pvi, n_shots)
        else:
            drawn = random_sets(dataset, n_shots=n_shots, n_sets=pvi.sets, seed=pvi.seed)
        sets += [_with_texts(dataset, number, rows) for number, rows in enumerate(drawn)]
    return sets


def numbers_of_shots(dataset: ClassificationDataset, pvi: PviConfig) -> tuple[int, ...]:
    """As many as labels and twice as many, where no numbers are asked for (Lu et al. 2023, section 4)."""
    fewest = FEWEST_SHOTS.get(dataset.name, len(dataset.verbalizer.label_names))
    return pvi.shots or (fewest, 2 * fewest)


def random_sets(dataset: ClassificationDataset, *, n_shots: int, n_sets: int, seed: int) -> list[list[int]]:
    """Different sequences of rows of the demonstration split, none with a row twice.

    Fewer sets are the first of more, and fewer shots the first of more, unless a repetition had to be left out. Raises
    TemplateError where there are too few demonstrations of a label, or too few different sets.
    """
    by_label = _rows_by_label(dataset, -(-n_shots // len(dataset.verbalizer.label_names)))
    found: dict[tuple[int, ...], None] = {}
    for number in range(_MOST_DRAWS):
        draw = random.Random(f"demonstrations of PVI, set {number}, seed {seed}")
        shuffled = [draw.sample(rows, len(rows)) for rows in by_label]
        found[tuple(_in_blocks(shuffled, n_shots, draw))] = None
        if len(found) == n_sets:
            return [list(rows) for rows in found]
    raise TemplateError(
        f"{dataset.name}: {n_sets} sets of {n_shots} demonstrations were asked for, but its "
        f"{dataset.demonstration.height} demonstrations gave {len(found)} different ones. Ask for fewer --sets."
    )


def ranked_sets(dataset: ClassificationDataset, pvi: PviConfig, n_shots: int) -> list[list[int]]:
    """Set 0 of the first by PVI of each label, set 1 of the next, and so on.

    The paper takes one set, of the hardest training example of each label (section 5.6).
    """
    assert pvi.measured is not None, "PviConfig has a run to choose by"
    n_labels = len(dataset.verbalizer.label_names)
    per_label = -(-n_shots // n_labels)
    measured = _measured(pvi.measured, dataset, n_shots)
    ranked = demonstrations_by_pvi(measured, order=pvi.source, n_labels=n_labels, per_label=pvi.sets * per_label)
    sets = []
    for number in range(pvi.sets):
        window = ranked[:, number * per_label : (number + 1) * per_label].tolist()
        sets.append(_in_blocks(window, n_shots, random.Random(f"demonstrations by PVI, set {number}, seed {pvi.seed}")))
    return sets


def demonstrations_by_pvi(pvi: pl.DataFrame, *, order: PviSource, n_labels: int, per_label: int) -> Ints:
    """Rows of each label by the PVI that was measured of them, shape [n_labels, per_label], the first to take first.

    Hardest is the lowest PVI; `middle` begins at the median of the label and goes outwards, the harder of two first.
    Equal PVIs come by row. Rows without a finite PVI cannot be ranked and are never taken.

    Args:
        pvi: columns query_id (rows of the demonstration split), gold and pvi_bits, of one set and number of shots.

    Raises TemplateError, naming the label, where fewer than `per_label` rows of it were measured.
    """
    place, bits = pl.col("place"), pl.col("pvi_bits")
    ranked = (
        pvi.filter(bits.is_finite())
        .sort(-bits if order == "easiest" else bits, "query_id")
        .with_columns(place=pl.int_range(pl.len()).over("gold"), n=pl.len().cast(pl.Int64).over("gold"))
        .sort((2 * place - (pl.col("n") - 1)).abs() if order == "middle" else place, "place")
    )
    by_label = [ranked.filter(gold=label)["query_id"].to_list() for label in range(n_labels)]
    for label, rows in enumerate(by_label):
        if len(rows) < per_label:
            raise TemplateError(
                f"{per_label} demonstrations of label number {label} (from 0) were asked for, but {len(rows)} have a "
                "finite PVI. Ask for fewer --sets or --shots, or measure more training rows."
            )
    return np.array([rows[:per_label] for rows in by_label], dtype=np.int64).reshape(n_labels, per_label)


def published_sets(name: str, pvi: PviConfig) -> Iterator[DemonstrationSet]:
    """The published texts of a dataset, byte for byte, with and without inputs.

    Raises ConfigError where it has none, or fewer sets or other numbers of shots than asked for; DatasetError for a
    file that is not there or lacks columns.
    """
    path = prompts_file(pvi)
    known = PVI_TABLES[name].prompts if name in PVI_TABLES else name
    texts = _read_prompts(path).filter(dataset=known).sort("prompt_set")
    published = texts["shots"].unique().sort().to_list()
    if not published:
        raise ConfigError(
            f"{path} has no demonstrations for {name}. Leave it out (--datasets), or take --demonstrations random."
        )
    for n_shots in pvi.shots or published:
        pairs = texts.filter(shots=n_shots).pivot("kind", index="prompt_set", values="text")
        if pairs.height < pvi.sets:
            raise ConfigError(
                f"{path} has {pairs.height} sets of {n_shots} demonstrations for {name}, not the {pvi.sets} asked for. "
                f"Ask for fewer --sets, or for --shots among {', '.join(map(str, published))}."
            )
        for number, (text, null_text) in enumerate(pairs.select("g_prime", "g").head(pvi.sets).rows()):
            yield DemonstrationSet(n_shots, number, [], text, null_text)


def prompts_file(pvi: PviConfig) -> Path:
    """Where the published demonstrations lie. Raises DatasetError where they do not."""
    searched = [pvi.prompts] if pvi.prompts else [path / PROMPTS_FILE for path in pvi.data if path.is_dir()]
    if (found := next((path for path in searched if path.is_file()), None)) is None:
        raise DatasetError(
            f"The published demonstrations are not there: looked for {', '.join(map(str, searched)) or PROMPTS_FILE}. "
            "Name their table with --prompts, or take --demonstrations random."
        )
    return found


def _read_prompts(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path, columns=list(_PROMPT_COLUMNS))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DatasetError(
            f"{path} cannot be read as published demonstrations ({', '.join(_PROMPT_COLUMNS)}): {error}"
        ) from error


def measured_file(run: Path) -> Path:
    """The PVIs that an earlier run measured. Raises DatasetError where there are none."""
    path = run / "tables" / "pvi.parquet"
    if not path.is_file():
        raise DatasetError(
            f"{path} is not there. Measure the training rows first: evaluator run pvi --ask training --out {run}"
        )
    return path


def _measured(run: Path, dataset: ClassificationDataset, n_shots: int) -> pl.DataFrame:
    """PVIs of a dataset's demonstrations under the first set of this many shots: query_id, gold, pvi_bits."""
    path = measured_file(run)
    of_dataset = pl.read_parquet(path).filter(dataset=dataset.name, definition="paper")
    found = of_dataset.filter(n_shots=n_shots, set=0)
    if found.is_empty():
        numbers = ", ".join(map(str, of_dataset["n_shots"].unique().sort())) or "no"
        raise ConfigError(
            f"{path} has {numbers} shots of {dataset.name}, and those for {n_shots} are chosen by PVI under as "
            "many. Measure them with --ask training, or choose other --shots or --datasets."
        )
    golds = dataset.demonstration.select(query_id=pl.int_range(pl.len()), own="gold")
    if found.join(golds, on="query_id", how="left").filter(pl.col("own").ne_missing(pl.col("gold"))).height:
        raise ConfigError(
            f"{path} was measured on other rows than the {golds.height} that {dataset.name} has to demonstrate with. "
            "Measure these with --ask training and the same --data."
        )
    return found


def _rows_by_label(dataset: ClassificationDataset, fewest: int) -> list[list[int]]:
    gold = dataset.demonstration["gold"].to_numpy()
    rows = [np.flatnonzero(gold == label).tolist() for label in range(len(dataset.verbalizer.label_names))]
    for name, own in zip(dataset.verbalizer.label_names, rows, strict=True):
        if len(own) < fewest:
            raise TemplateError(
                f"{dataset.name}: {fewest} demonstrations labelled {name!r} are needed in a set, and there are "
                f"{len(own)}. Choose fewer --shots, or give more training rows."
            )
    return rows


def _in_blocks(by_label: list[list[int]], n_shots: int, draw: random.Random) -> list[int]:
    """The first rows of each label, then their second ones, ...; within a block the labels' order is drawn."""
    labels = range(len(by_label))
    n_blocks = -(-n_shots // len(by_label))
    return [by_label[label][block] for block in range(n_blocks) for label in draw.sample(labels, len(labels))][:n_shots]


def _with_texts(dataset: ClassificationDataset, number: int, rows: list[int]) -> DemonstrationSet:
    template, label_text = dataset.template, dataset.verbalizer.text(pl.col("gold"))
    texts = dataset.demonstration[rows].select(
        whole=template.demonstration(pl.col("texts"), label_text),
        null=pl.concat_str(pl.lit(template.label_prefix), label_text, pl.lit(template.label_affix)),
    )
    whole, null = (template.instruction + "".join(texts[name]) for name in ("whole", "null"))
    return DemonstrationSet(len(rows), number, rows, whole, null)
