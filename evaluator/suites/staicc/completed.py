"""Complete any labelled dataset with what StaICC's ten have: calibration rows, nine templates, instructions."""

from dataclasses import replace

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.datasets.base import AnyDataset, ClassificationDataset
from evaluator.datasets.conversions import as_classification
from evaluator.datasets.lcg import SEED
from evaluator.datasets.staicc import SIZES
from evaluator.templates.nine_templates import INSTRUCTIONS, Alternatives, nine_templates


def completed(dataset: AnyDataset) -> ClassificationDataset:
    """Return the dataset as the suites of StaICC need it; one of StaICC itself is returned unchanged.

    Half of the training rows of each label, 1,024 at most in all as in StaICC, become calibration rows. Queries are
    put into an order in which the first N have every label's share for each N, so that --queries draws by label.

    Raises what as_classification raises.
    """
    dataset = as_classification(dataset)
    if not dataset.calibration.is_empty():
        return dataset
    shown, test = dataset.demonstration, dataset.test
    order = _stratified_order(shown["gold"])
    n_calibration = min(shown.height // 2, SIZES.calibration)
    calibration, demonstration = np.sort(order[:n_calibration]), np.sort(order[n_calibration:])
    note = (
        f"{n_calibration} of {shown.height} training rows, drawn by label with seed {SEED}, calibrate methods and are "
        f"no demonstrations: {shown.height - n_calibration} demonstrations, {test.height} queries in all"
    )
    return replace(
        dataset,
        calibration=shown[calibration],
        demonstration=shown[demonstration],
        test=test[_stratified_order(test["gold"])],
        alternative_templates=dataset.alternative_templates or nine_templates(dataset.template, Alternatives()),
        instructions=dataset.instructions or INSTRUCTIONS,
        notes=(*dataset.notes, note),
    )


def _stratified_order(gold: pl.Series) -> Ints:
    """Return the rows in a random order of which every beginning has each label's share, to within one row."""
    rows = pl.DataFrame({"gold": gold, "draw": np.random.default_rng(SEED).random(len(gold))})
    # The j-th of a label's n rows comes at (j + 1/2) / n of the way.
    rank = pl.col("draw").rank("ordinal").over("gold")
    place = rows.select((rank - 0.5) / pl.len().over("gold")).to_series().to_numpy()
    order: Ints = np.lexsort((rows["draw"].to_numpy(), place))
    return order
