"""Held-out trials: which prompt a search finds, and what it is compared with.

Splits are drawn inside, so tests make them visible: they hang on the experiment's name and sizes alone, and where one
example alone is right, `correct_train` tells whether that example is in the train part.
"""

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy.stats import binom, poisson_binom

from evaluator.errors import DatasetError
from evaluator.random_baselines.held_out import HELD_OUT_TRIALS, held_out_trials

N_PROMPTS, N_EXAMPLES, N_SPLITS = 5, 12, 40
TRIES = (1, 3, 5)
BoolArray = npt.NDArray[np.bool_]


def frame(correct: BoolArray, scored: BoolArray | None = None, name: str = "task") -> pl.LazyFrame:
    """Rows of [prompts, examples] where scored; prompt ids are 10, 11, ..., example ids 0, 2, 4, ..."""
    rows = [
        {"experiment": name, "prompt": 10 + prompt, "example": 2 * example, "correct": bool(correct[prompt, example])}
        for prompt, example in np.ndindex(correct.shape)
        if scored is None or scored[prompt, example]
    ]
    return pl.LazyFrame(rows)


def chances(given: list[float], name: str = "task") -> pl.DataFrame:
    return pl.DataFrame(
        {"experiment": [name] * len(given), "example": [2 * place for place in range(len(given))], "chance": given}
    )


def trials(correct: BoolArray, scored: BoolArray | None = None, chance: list[float] | None = None) -> pl.DataFrame:
    given = chances(chance or [0.5] * correct.shape[1])
    return held_out_trials(frame(correct, scored), given, tries=TRIES, n_splits=N_SPLITS, seed=7)


def in_train() -> BoolArray:
    """[splits, examples], found out from outside."""
    columns = []
    for example in range(N_EXAMPLES):
        only = np.zeros((N_PROMPTS, N_EXAMPLES), dtype=bool)
        only[:, example] = True
        columns.append(trials(only).filter(tries=5)["correct_train"].to_numpy() == 1)
    return np.array(columns).T


def tried(tries: int) -> BoolArray:
    """[splits, prompts], found out from outside: a prompt that is right everywhere is found where it is tried."""
    columns = []
    for prompt in range(N_PROMPTS):
        best = np.zeros((N_PROMPTS, N_EXAMPLES), dtype=bool)
        best[prompt] = True
        columns.append(trials(best).filter(tries=tries)["correct_train"].to_numpy() > 0)
    return np.array(columns).T


def some_answers(seed: int = 0) -> tuple[BoolArray, BoolArray]:
    rng = np.random.default_rng(seed)
    scored = np.ones((N_PROMPTS, N_EXAMPLES), dtype=bool)
    scored[np.arange(N_PROMPTS), rng.integers(0, N_EXAMPLES, N_PROMPTS)] = False  # each prompt's demonstration
    return (rng.random((N_PROMPTS, N_EXAMPLES)) < 0.5) & scored, scored


def test_the_best_prompt_on_the_train_part_is_found_by_plain_counting() -> None:
    correct, scored = some_answers()
    train = in_train()
    found = trials(correct, scored)
    for tries in TRIES:
        chosen = tried(tries)
        assert (chosen.sum(axis=1) == tries).all()
        for split, row in enumerate(found.filter(tries=tries).iter_rows(named=True)):
            counts = {
                prompt: (int((correct[prompt] & train[split]).sum()), int((scored[prompt] & train[split]).sum()))
                for prompt in range(N_PROMPTS)
                if chosen[split, prompt]
            }
            # By accuracy, exactly; of equals the first id.
            best = min(counts, key=lambda prompt: (-Fraction(*counts[prompt]), prompt))
            assert row["split"] == split
            assert row["prompt"] == 10 + best
            assert (row["correct_train"], row["n_train"]) == counts[best]
            assert row["correct_test"] == (correct[best] & ~train[split]).sum()
            assert row["n_test"] == (scored[best] & ~train[split]).sum()


def test_three_quarters_of_the_examples_rounded_down_are_the_train_part() -> None:
    assert (in_train().sum(axis=1) == 9).all()  # of 12
    odd = np.ones((2, 7), dtype=bool)
    assert set(trials(odd)["n_train"]) == {5}  # floor(5.25)


def test_two_experiments_of_one_size_are_split_by_themselves() -> None:
    only = np.zeros((N_PROMPTS, N_EXAMPLES), dtype=bool)
    only[:, 0] = True
    names = ("task", "other")
    tables = (
        pl.concat([frame(only, name=name) for name in names]),
        pl.concat([chances([0.5] * 12, name) for name in names]),
    )
    found = held_out_trials(*tables, tries=[5], n_splits=N_SPLITS, seed=7)
    one, other = (found.filter(experiment=name)["correct_train"].to_list() for name in names)
    assert len(one) == len(other) == N_SPLITS
    assert one != other


def test_every_example_and_prompt_is_drawn_about_equally_often() -> None:
    # 40 splits, 9 of 12 examples in each: mean 30, standard deviation sqrt(40 x .75 x .25) = 2.7; five of them.
    assert in_train().sum(axis=0) == pytest.approx(30, abs=14)
    assert tried(3).sum(axis=0) == pytest.approx(24, abs=16)  # 3 of 5 prompts, standard deviation 3.1


def test_fewer_tries_are_part_of_more() -> None:
    assert not (tried(1) & ~tried(3)).any()


def test_where_there_are_fewer_prompts_than_tries_all_count_as_what_they_are() -> None:
    found = held_out_trials(frame(np.ones((2, 8), dtype=bool)), chances([0.5] * 8), tries=[200], n_splits=1)
    assert found["n_prompts"].item() == 2
    # The better of two random classifiers on 6 examples: the sum over k of k (F(k)^2 - F(k - 1)^2) / 6.
    below = binom.cdf(np.arange(7), 6, 0.5) ** 2
    assert found["max_random_on_train"].item() == pytest.approx(np.arange(7) @ np.diff(below, prepend=0) / 6)


def exact_mean(chance: npt.NDArray[np.float64]) -> Fraction:
    """Return the mean of chances, each taken as the decimal fraction that it is written as."""
    return sum((Fraction(str(each)) for each in chance.tolist()), Fraction()) / len(chance)


def test_baselines_and_tails_are_those_of_the_examples_scored() -> None:
    correct, scored = some_answers()
    chance = [0.5, 0.25, 0.2] * 4
    train = in_train()
    for row in trials(correct, scored, chance).iter_rows(named=True):
        here = scored[row["prompt"] - 10] & train[row["split"]]
        own = np.array(chance)[here]
        rest = np.array(chance)[scored[row["prompt"] - 10] & ~train[row["split"]]]
        assert row["standard_on_train"] == pytest.approx(own.mean())
        assert row["standard_on_test"] == pytest.approx(rest.mean())
        below = poisson_binom.cdf(np.arange(len(own) + 1), own)
        best_below = below ** row["n_prompts"]
        assert row["max_random_on_train"] == pytest.approx(
            np.arange(len(own) + 1) @ np.diff(best_below, prepend=0) / len(own)
        )
        k = row["correct_train"]
        assert 10 ** row["log10_standard_tail"] == pytest.approx(1 - (below[k - 1] if k else 0))
        assert 10 ** row["log10_max_tail"] == pytest.approx(1 - (best_below[k - 1] if k else 0))
        # With one try both baselines are the mean chance, which a share may equal: so in fractions, or well above it.
        assert row["above_standard_on_train"] == (Fraction(k, len(own)) > exact_mean(own))
        assert row["above_max_on_train"] == (k / len(own) > row["max_random_on_train"] + 1e-9)
        assert row["above_standard_on_test"] == (Fraction(row["correct_test"], len(rest)) > exact_mean(rest))


def test_experiments_with_one_two_and_three_chances_have_the_baselines_of_their_own() -> None:
    of_names = {"one": [0.5] * 8, "two": [0.5, 0.25] * 4, "three": [0.5, 0.25, 0.2, 0.2] * 2}
    answers = np.eye(2, 8, dtype=bool)
    found = held_out_trials(
        pl.concat([frame(answers, name=name) for name in of_names]),
        pl.concat([chances(chance, name) for name, chance in of_names.items()]),
        tries=[2],
        n_splits=2,
    )
    for row in found.iter_rows(named=True):
        below = poisson_binom.cdf(np.arange(7), np.repeat(row["train_chances"], row["train_counts"])) ** 2
        assert row["max_random_on_train"] == pytest.approx(np.arange(7) @ np.diff(below, prepend=0) / 6)
    assert found["experiment"].unique(maintain_order=True).to_list() == ["one", "three", "two"]


def test_an_accuracy_equal_to_a_baseline_is_not_above_it() -> None:
    # Two of four are right. Three train examples of chance 1/3: one right is equal, so not above; two right are. One
    # try has one random classifier as its baseline, so both verdicts are one.
    two = held_out_trials(frame(np.array([[True, True, False, False]])), chances([1 / 3] * 4), tries=[1], n_splits=30)
    assert set(two["correct_train"]) == {1, 2}
    for column in ("above_standard_on_train", "above_max_on_train"):
        assert two[column].to_list() == [count == 2 for count in two["correct_train"]]


def test_held_out_accuracy_equal_to_chance_is_not_above_it() -> None:
    # Eight examples of chance 1/2, of which six are searched and two held out: of these none, one or both are right.
    four = held_out_trials(frame(np.array([[True] * 4 + [False] * 4])), chances([0.5] * 8), tries=[1], n_splits=60)
    assert set(four["correct_test"]) == {0, 1, 2}
    assert four["above_standard_on_test"].to_list() == [count == 2 for count in four["correct_test"]]


def test_equality_survives_a_mean_of_unlike_chances_that_no_float_holds() -> None:
    # All twelve add up to 2.4. Where the three held out add up to .4, the rest is 2, which two right answers equal.
    chance = [0.1, 0.2, 0.3] * 4
    right = np.zeros((1, 12), dtype=bool)
    right[0, [0, 3]] = True
    found = held_out_trials(frame(right), chances(chance), tries=[1], n_splits=200)
    for row in found.iter_rows(named=True):
        exact = sum(
            (
                Fraction(str(level)) * count
                for level, count in zip(row["train_chances"], row["train_counts"], strict=True)
            ),
            Fraction(),
        )
        assert row["above_standard_on_train"] == row["above_max_on_train"] == (row["correct_train"] > exact)
    assert any(
        math.isclose(row["correct_train"], row["standard_on_train"] * row["n_train"])
        for row in found.iter_rows(named=True)
    )


def test_splits_hang_on_the_experiments_own_name_and_the_seed() -> None:
    correct, scored = some_answers()
    alone = trials(correct, scored)
    both = held_out_trials(
        pl.concat([frame(~correct, scored, "another"), frame(correct, scored).reverse()]),
        pl.concat([chances([0.5] * N_EXAMPLES), chances([0.5] * N_EXAMPLES, "another")]),
        tries=TRIES,
        n_splits=N_SPLITS,
        seed=7,
    )
    assert both.filter(experiment="task").equals(alone)
    assert alone.schema == HELD_OUT_TRIALS
    other_seed = held_out_trials(
        frame(correct, scored), chances([0.5] * N_EXAMPLES), tries=TRIES, n_splits=N_SPLITS, seed=8
    )
    assert not other_seed.equals(alone)


@pytest.mark.parametrize(
    ("rows", "given", "message"),
    [
        (
            pl.concat([frame(np.ones((1, 4), dtype=bool))] * 2),
            chances([0.5] * 4),
            "prompt 10 was scored twice on example 0",
        ),
        (frame(np.ones((1, 4), dtype=bool)), chances([0.5] * 3), "task: example 6 has chance None"),
        (frame(np.ones((1, 4), dtype=bool)), chances([0.5, 0.5, 1.0, 0.5]), "task: example 4 has chance 1.0"),
        (frame(np.ones((1, 4), dtype=bool)), chances([0.5] * 4, "else"), "task: example 0 has chance None"),
        (frame(np.ones((1, 4), dtype=bool)), pl.concat([chances([0.5] * 4)] * 2), "an example has several chances"),
        (frame(np.ones((1, 1), dtype=bool)), chances([0.5]), "task has 1 examples, too few to split"),
        (
            frame(np.ones((1, 4), dtype=bool)).filter(pl.col("prompt") > 99),
            chances([0.5]),
            "correctness table has no rows",
        ),
        (
            frame(np.ones((1, 4), dtype=bool)).with_columns(correct=pl.lit(None, dtype=pl.Boolean)),
            chances([0.5] * 4),
            "missing values",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows: pl.LazyFrame, given: pl.DataFrame, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        held_out_trials(rows, given, tries=[1])


def test_a_prompt_that_was_scored_on_one_part_alone_is_refused() -> None:
    scored = np.array([[True, False, False, False], [True, True, True, True]])
    correct = np.array([[True, False, False, False], [False] * 4])
    with pytest.raises(
        DatasetError, match=r"prompt 10 was scored on 1 examples of the train part and 0 of the test part"
    ):
        held_out_trials(frame(correct, scored), chances([0.5] * 4), tries=[2], n_splits=50)
