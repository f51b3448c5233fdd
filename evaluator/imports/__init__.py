"""Read answers that another tool computed, so that they are measured as a run's are."""

from collections.abc import Sequence
from pathlib import Path

from evaluator.config import ImportColumns
from evaluator.datasets.sources import require_dataset_name
from evaluator.errors import ConfigError
from evaluator.imports.base import ImportedDataset
from evaluator.imports.lm_eval_samples import is_samples, read_samples
from evaluator.imports.table import read_table


def read_files(paths: Sequence[Path], columns: ImportColumns) -> list[ImportedDataset]:
    """Read the datasets of several files, in their order.

    Raises DatasetError, naming file, row and column, for cells that do not fit; ConfigError for files that do not fit
    each other.
    """
    datasets = [
        dataset
        for path in paths
        for dataset in ([read_samples(path)] if is_samples(path) else read_table(path, columns))
    ]
    for dataset in datasets:
        require_dataset_name(dataset.name, dataset.file)
    names = [dataset.name for dataset in datasets]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"Two of the files have a dataset {repeated!r}. Rename one of them, or import it by itself.")
    kinds = {dataset.numbers for dataset in datasets}
    if len(kinds) > 1:
        raise ConfigError(f"The files hold {' and '.join(sorted(kinds))}. Import each kind by itself.")
    return datasets
