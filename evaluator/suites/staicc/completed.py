"""Complete a labelled dataset with the calibration rows, templates and instructions that StaICC's datasets have."""

import math
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.config import RunConfig
from evaluator.datasets.base import AnyDataset, ClassificationDataset, OwnDemonstrations, OwnDraw
from evaluator.datasets.conversions import as_classification
from evaluator.datasets.lcg import SEED
from evaluator.datasets.staicc import SIZES
from evaluator.errors import ConfigError
from evaluator.files.digests import fingerprint
from evaluator.methods import METHODS
from evaluator.options import Options, option
from evaluator.templates.template import INSTRUCTIONS, Alternatives, nine_templates


@dataclass(frozen=True, kw_only=True)
class DemonstrationOptions(Options):
    """Options for the choice of demonstrations from a user's data."""

    demonstrations: OwnDraw = option(
        "balanced",
        "For your own data: each label equally often (if left out), each label at least once, or the first rows.",
    )
    sets: int = option(2, "For your own data: demonstration sets for each query, 2 if left out.", minimum=1)
    seed: int = option(SEED, "For your own data: seed of all random draws.", minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.demonstrations == "first" and self.sets != 1:
            raise ConfigError("--demonstrations first has one set, the first rows. Add --sets 1.")

    @property
    def chosen(self) -> OwnDemonstrations:
        return OwnDemonstrations(self.demonstrations, self.sets, self.seed)


MAX_OWN_QUERIES = 1000
"""Largest number of queries of a user's dataset in a run without --queries."""


def completed(dataset: AnyDataset, config: RunConfig) -> ClassificationDataset:
    """Return the dataset with all fields that the suites of StaICC need; a dataset of StaICC is returned unchanged.

    Half of the training rows, drawn by label and at most 1,024 as in StaICC, become calibration rows; with a user's
    data only if a method or suite of the run uses calibration rows. The queries are sorted so that for every N the
    first N have about the label frequencies of all queries; so --queries is a stratified sample.

    Raises the errors of as_classification.
    """
    dataset = as_classification(dataset)
    if not dataset.calibration.is_empty():
        return dataset
    shown, test = dataset.demonstration, dataset.test[_stratified_order(dataset.test["gold"])]
    is_own, notes, digest = config.is_own_data, [*dataset.notes], dataset.fingerprint
    if is_own and not _calibrates(config):
        calibration, demonstration = shown.clear(), shown  # all training rows are demonstrations
    else:
        order, is_only = _stratified_order(shown["gold"]), shown["gold"].is_unique().to_numpy()
        order = order[np.argsort(is_only[order], kind="stable")]  # the only row of a label stays a demonstration
        n_calibration = min(shown.height // 2, shown.height - int(is_only.sum()), SIZES.calibration)
        calibration, demonstration = (shown[np.sort(rows)] for rows in np.split(order, [n_calibration]))
        notes.append(
            f"{n_calibration} of {shown.height} training rows, drawn by label with seed {SEED}, calibrate methods and "
            f"are no demonstrations: {demonstration.height} demonstrations, {test.height} queries in all"
        )
        digest = fingerprint(digest, n_calibration) if is_own else digest  # the demonstrations change
    if is_own and config.n_queries is None and test.height > MAX_OWN_QUERIES:
        notes.append(f"{MAX_OWN_QUERIES:,} of {test.height:,} queries, drawn by label; --queries asks for more")
        test = test[:MAX_OWN_QUERIES]
    return replace(
        dataset,
        calibration=calibration,
        demonstration=demonstration,
        test=test,
        own_demonstrations=config.options_of(DemonstrationOptions).chosen if is_own else None,
        alternative_templates=dataset.alternative_templates or nine_templates(dataset.template, Alternatives()),
        instructions=dataset.instructions or INSTRUCTIONS,
        notes=tuple(notes),
        fingerprint=digest,
    )


def _calibrates(config: RunConfig) -> bool:
    """Return whether the run uses calibration rows: for training prompts of a method, or for words of staicc-bias."""
    methods = (METHODS[name] for name in config.methods)
    return "staicc-bias" in config.suites or any(0 < each.labelled_examples(1) < math.inf for each in methods)


def _stratified_order(gold: pl.Series) -> Ints:
    """Return row numbers in a random order whose first n rows, for every n, have the label shares to within one row."""
    rows = pl.DataFrame({"gold": gold, "draw": np.random.default_rng(SEED).random(len(gold))})
    # Row j of the n rows of a label, from 0, has the sort key (j + 1/2) / n.
    rank = pl.col("draw").rank("ordinal").over("gold")
    place = rows.select((rank - 0.5) / pl.len().over("gold")).to_series().to_numpy()
    return np.asarray(np.lexsort((rows["draw"].to_numpy(), place)))
