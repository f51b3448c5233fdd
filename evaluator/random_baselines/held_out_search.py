"""Search for the best prompt on a part of the examples, and count its correct answers on the other part.

Examples are split at random into a train and a test part, many times. The best of several prompts on the train part is
evaluated on the test part. Source: Yauney & Mimno 2024, section 5.2.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.errors import DatasetError
from evaluator.random_baselines.binomial import FloatArray, IntArray
from evaluator.random_baselines.held_out_schema import HELD_OUT_SEARCHES

BoolArray = npt.NDArray[np.bool_]

TRAIN_SHARE = 0.75
"""Share of the examples in the train part, rounded down to whole examples."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One set of prompts and the examples they were scored on."""

    name: str
    prompts: IntArray  # [prompts], ids, ascending
    scored: BoolArray  # [prompts, examples]
    correct: BoolArray  # [prompts, examples], False where not scored
    chance: FloatArray  # [examples], probability that a random guess is right


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Settings of random splits; the splits of an experiment do not depend on other experiments."""

    tries: Sequence[int]  # numbers of prompts to search
    n_splits: int = 100
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Counts of each prompt on each split, and the splits themselves."""

    n_train: IntArray  # [prompts, splits], examples it was scored on
    correct_train: IntArray
    n_test: IntArray
    correct_test: IntArray
    train: BoolArray  # [splits, examples]
    order: IntArray  # [splits, prompts], position of each prompt in the order in which prompts are tried


def search(experiment: Experiment, splits: Splits) -> pl.DataFrame:
    """Return the best prompt of every (tries, split): rows of HELD_OUT_SEARCHES.

    The prompts to try are drawn at random for each split; those of fewer tries are also among those of more tries.
    The best has the highest accuracy on the train part; of ties, the lowest id.

    Raises DatasetError if a part would be empty.
    """
    parts = _split(experiment, splits)
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = np.where(parts.n_train > 0, parts.correct_train / parts.n_train, -1.0)
    # Prompts that are not tried get -2, less than the -1 of unscored ones; argmax takes the lowest id of ties.
    best = [np.where(np.less(parts.order.T, tries), accuracy, -2.0).argmax(axis=0) for tries in splits.tries]
    return _search_rows(experiment, parts, splits.tries, np.array(best))


def train_size(n_examples: int) -> int:
    """Return the number of examples in the train part."""
    return int(TRAIN_SHARE * n_examples)


def _split(experiment: Experiment, splits: Splits) -> _Parts:
    n_prompts, n_examples = experiment.scored.shape
    n_train = train_size(n_examples)
    if not 0 < n_train < n_examples:
        raise DatasetError(
            f"{experiment.name} has {n_examples} examples, too few to split: a train part of {TRAIN_SHARE:g} of "
            f"them would hold {n_train}. Take more examples."
        )
    rng = np.random.default_rng((splits.seed, zlib.crc32(experiment.name.encode())))
    train = _orders(rng, splits.n_splits, n_examples) < n_train
    order = _orders(rng, splits.n_splits, n_prompts)
    n_scored, n_correct = (_in_common(table, train) for table in (experiment.scored, experiment.correct))
    return _Parts(
        n_train=n_scored,
        correct_train=n_correct,
        n_test=experiment.scored.sum(axis=1)[:, None] - n_scored,
        correct_test=experiment.correct.sum(axis=1)[:, None] - n_correct,
        train=train,
        order=order,
    )


def _in_common(rows: BoolArray, others: BoolArray) -> IntArray:
    """Count the columns that are True in both, for each pair of rows: [rows, others].

    Bits are counted 64 at a time: a matrix product of such sizes is slower, and starts every BLAS thread.
    """
    left, right = (_bit_words(table) for table in (rows, others))
    counts: IntArray = np.bitwise_count(left[:, None] & right[None]).sum(axis=-1, dtype=np.int64)
    return counts


def _bit_words(table: BoolArray) -> npt.NDArray[np.uint64]:
    """Pack each row into 64-bit words, padded with zeros."""
    packed = np.packbits(table, axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)


def _orders(rng: np.random.Generator, n_splits: int, size: int) -> IntArray:
    """Draw a permutation of 0, ..., size - 1 for each split."""
    return rng.permuted(np.tile(np.arange(size), (n_splits, 1)), axis=1)


def _search_rows(experiment: Experiment, parts: _Parts, tries: Sequence[int], best: IntArray) -> pl.DataFrame:
    """Build rows of HELD_OUT_SEARCHES from the index of the best prompt [tries, splits]."""
    split = np.broadcast_to(np.arange(best.shape[1]), best.shape).ravel()
    n_tries = np.repeat(np.asarray(tries), best.shape[1])
    best = best.ravel()
    n_train, n_test = parts.n_train[best, split], parts.n_test[best, split]
    if (empty := (n_train == 0) | (n_test == 0)).any():
        first = int(empty.argmax())
        raise DatasetError(
            f"{experiment.name}: prompt {experiment.prompts[best[first]]} was scored on {n_train[first]} examples of "
            f"the train part and {n_test[first]} of the test part of split {split[first]}, and needs one of each."
        )
    # Count the examples of each distinct chance (level) in both parts.
    levels, level = np.unique(experiment.chance, return_inverse=True)
    of_level = np.eye(len(levels), dtype=np.int64)[level]  # [examples, levels]
    scored, train = experiment.scored[best], parts.train[split]
    train_counts, test_counts = (scored & train) @ of_level, (scored & ~train) @ of_level
    columns = {
        "experiment": np.repeat(experiment.name, len(best)),
        "tries": n_tries,
        "split": split,
        "n_prompts": np.minimum(n_tries, len(experiment.prompts)),
        "prompt": experiment.prompts[best],
        "n_train": n_train,
        "correct_train": parts.correct_train[best, split],
        "n_test": n_test,
        "correct_test": parts.correct_test[best, split],
        "train_chances": np.tile(levels, (len(best), 1)),
        "train_counts": train_counts,
        "standard_on_train": train_counts @ levels / n_train,
        "standard_on_test": test_counts @ levels / n_test,
    }
    return pl.DataFrame(columns).cast(HELD_OUT_SEARCHES)
