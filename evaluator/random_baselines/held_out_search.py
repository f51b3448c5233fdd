"""Searching for the best prompt on a part of the examples: correctness goes in, what each search found comes out.

Examples are split at random into a train and a test part, many times. Of each split's train part the best of several
prompts is taken; what it gets right on the test part is the held-out answer. Source: Yauney & Mimno 2024, section 5.2.
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
"""Of the examples, rounded down."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One set of prompts and the examples they were scored on."""

    name: str
    prompts: IntArray  # [prompts], ids, ascending
    scored: BoolArray  # [prompts, examples]
    correct: BoolArray  # [prompts, examples], False where not scored
    chance: FloatArray  # [examples], of guessing each right


@dataclass(frozen=True, kw_only=True)
class Splits:
    """How examples are split and prompts drawn; an experiment's splits do not depend on what else there is."""

    tries: Sequence[int]  # how many prompts are searched, for each of these numbers
    n_splits: int = 100
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """What each prompt did on each split."""

    n_train: IntArray  # [prompts, splits], examples it was scored on
    correct_train: IntArray
    n_test: IntArray
    correct_test: IntArray
    train: BoolArray  # [splits, examples]
    order: IntArray  # [splits, prompts], the place of each prompt in the order in which they are tried


def search(experiment: Experiment, splits: Splits) -> pl.DataFrame:
    """The best prompt of every (tries, split): rows of HELD_OUT_SEARCHES.

    The prompts tried are a random draw for each split, the draw of fewer tries a part of the draw of more; they are
    compared by their accuracy on the train part, and of equals the one with the lowest id is taken.
    Raises DatasetError where a part would be empty.
    """
    parts = _split(experiment, splits)
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = np.where(parts.n_train > 0, parts.correct_train / parts.n_train, -1.0)
    # The first of equals, prompts being in ascending order.
    best = [np.where(np.less(parts.order.T, tries), accuracy, -2.0).argmax(axis=0) for tries in splits.tries]
    return _found(experiment, parts, splits.tries, np.array(best))


def train_size(n_examples: int) -> int:
    """Examples of the train part."""
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
    n, right = (_in_common(table, train) for table in (experiment.scored, experiment.correct))
    return _Parts(
        n_train=n,
        correct_train=right,
        n_test=experiment.scored.sum(axis=1)[:, None] - n,
        correct_test=experiment.correct.sum(axis=1)[:, None] - right,
        train=train,
        order=order,
    )


def _in_common(rows: BoolArray, others: BoolArray) -> IntArray:
    """[rows, others], how many columns are True in both.

    Bits are counted, 64 at a time: a matrix product of such sizes is slower, and wakes every thread that BLAS has.
    """
    left, right = (_words(table) for table in (rows, others))
    counts: IntArray = np.bitwise_count(left[:, None] & right[None]).sum(axis=-1, dtype=np.int64)
    return counts


def _words(table: BoolArray) -> npt.NDArray[np.uint64]:
    packed = np.packbits(table, axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)


def _orders(rng: np.random.Generator, n_splits: int, size: int) -> IntArray:
    return rng.permuted(np.tile(np.arange(size), (n_splits, 1)), axis=1)


def _found(experiment: Experiment, parts: _Parts, tries: Sequence[int], best: IntArray) -> pl.DataFrame:
    """The searches' rows, from the index of the best prompt [tries, splits]."""
    split = np.broadcast_to(np.arange(best.shape[1]), best.shape).ravel()
    n_tries = np.repeat(np.asarray(tries), best.shape[1])
    best = best.ravel()
    n_train, n_test = parts.n_train[best, split], parts.n_test[best, split]
    if (empty := (n_train == 0) | (n_test == 0)).any():
        at = int(empty.argmax())
        raise DatasetError(
            f"{experiment.name}: prompt {experiment.prompts[best[at]]} was scored on {n_train[at]} examples of the "
            f"train part and {n_test[at]} of the test part of split {split[at]}, and needs one of each."
        )
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
