import numpy as np
import polars as pl

from evaluator.suites.prompt_search.suite import break_ties, uniform


def splitmix64(state: int) -> int:
    """The published algorithm in Python's own integers: one output for one state, after its increment."""
    mask = 2**64 - 1
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)


def test_draws_are_those_of_splitmix64():
    # Known outputs for seed 1234567 (Rosetta Code, "Pseudo-random numbers/Splitmix64") check the copy above.
    gamma, mask = 0x9E3779B97F4A7C15, 2**64 - 1
    outputs = [splitmix64((1234567 + n * gamma) & mask) for n in (1, 2, 3)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    keys, seed = [0, 1, 5, 10**12], 42
    expected = [(splitmix64((splitmix64((key * gamma) & mask) + seed) & mask) >> 11) / 2**53 for key in keys]
    assert uniform(np.array(keys), seed).tolist() == expected


def predictions(label_probs: list[list[float]]) -> pl.DataFrame:
    return pl.DataFrame({"position": range(len(label_probs)), "label_probs": label_probs, "pred": 0})


def test_the_only_most_probable_choice_is_taken_and_nothing_is_tied():
    broken = break_ties(predictions([[0.2, 0.5, 0.3], [0.6, 0.4]]), seed=1)
    assert broken.select("pred", "n_tied").rows() == [(1, 1), (0, 1)]


def test_no_place_in_the_list_is_preferred_among_equals():
    # 3,000 rows in which the last three of four choices tie: 1,000 each, with a binomial deviation of 25.8.
    broken = break_ties(predictions([[0.1, 0.3, 0.3, 0.3]] * 3000), seed=1)
    assert broken["n_tied"].unique().to_list() == [3]
    counts = np.bincount(broken["pred"].to_numpy(), minlength=4)
    assert counts[0] == 0
    assert np.abs(counts[1:] - 1000).max() < 5 * 25.8


def test_a_draw_depends_on_the_seed_and_the_position_alone():
    frame = predictions([[0.5, 0.5]] * 64)
    drawn = break_ties(frame, seed=1)
    assert break_ties(frame[::-1], seed=1).sort("position")["pred"].to_list() == drawn["pred"].to_list()
    assert break_ties(frame[40:], seed=1)["pred"].to_list() == drawn["pred"][40:].to_list()
    assert break_ties(frame, seed=2)["pred"].to_list() != drawn["pred"].to_list()
