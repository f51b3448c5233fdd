"""Demonstrations chosen by PVI against the suite's own: by hand, and from NumPy and SciPy written independently."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.methods.base import ScoredRequests
from evaluator.schemas import REQUESTS
from evaluator.suites.in_context_pvi.demonstration_choice import (
    chosen_table,
    demonstrations_table,
    difference_from_draws,
    training_counts,
    tries_by_source,
)
from evaluator.suites.in_context_pvi.schema import PVI_CANDIDATES, PVI_CHOSEN, PVI_DEMONSTRATIONS, PVI_KEY
from tests.suites.in_context_pvi.pvi_answers import Run, answers, run_table

NO_COUNTS = training_counts(
    pl.DataFrame(schema={"dataset": pl.String, "n_shots": pl.Int64, "training_row": pl.Int64, "pvi_bits": pl.Float64}),
    pl.DataFrame(schema={"dataset": pl.String, "n_training": pl.Int64}),
)


def drawn_runs(seed: int, n_queries: int = 30) -> tuple[pl.DataFrame, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """schema.PVI of four random and two hardest sets, and the same as [query, set] arrays of 0 / 1 and of bits."""
    random = np.random.default_rng(seed)
    easy = random.normal(size=n_queries)
    frames, right, bits = [], {}, {}
    for source, n_sets in (("random", 4), ("hardest", 2)):
        of_set = random.normal(0, 0.5, n_sets)
        bits[source] = easy[:, None] + of_set + random.normal(0, 0.7, (n_queries, n_sets))
        right[source] = (bits[source] + random.normal(0, 0.5, bits[source].shape) > 0).astype(float)
        for number in range(n_sets):
            own = {"demonstrations": source, "demonstration_set": number}
            frames.append(run_table(bits[source][:, number], right[source][:, number].astype(bool).tolist(), **own))
    return pl.concat(frames).sort(PVI_KEY), right, bits


def table_of(pvi: pl.DataFrame, counts: pl.DataFrame = NO_COUNTS) -> pl.DataFrame:
    # Every set is another prompt, as where demonstrations are drawn from many rows.
    tries = pvi.group_by("dataset", "n_shots", "demonstrations").agg(tries=pl.col("demonstration_set").n_unique())
    found = demonstrations_table(pvi, {"d": 2}, counts, tries.with_columns(pl.col("tries").cast(pl.Int64)))
    assert found.schema == PVI_DEMONSTRATIONS
    return found


def row_of(found: pl.DataFrame, source: str) -> dict[str, float]:
    return found.filter(demonstrations=source).row(0, named=True)


def two_way(d: np.ndarray) -> tuple[float, float, float]:
    """Mean of a complete table [query, set] with both at random, and its 95% interval, from the mean squares.

    Two-way random effects without replication: MS_q = S sum (row mean - mean)^2 / (Q - 1), MS_s likewise, MS_r of the
    rest. Var(mean) = (MS_q + MS_s - MS_r) / (Q S); one more set, the choice, makes S + 1 times the part of the sets,
    (MS_s - MS_r) / (Q S). t^2 is the mean of both parts' (Cochran 1964), the noise MS_r in that of the sets.
    """
    q, s = d.shape
    mean = d.mean()
    ms_q = s * ((d.mean(1) - mean) ** 2).sum() / (q - 1)
    ms_s = q * ((d.mean(0) - mean) ** 2).sum() / (s - 1)
    ms_r = ((d - d.mean(1, keepdims=True) - d.mean(0) + mean) ** 2).sum() / ((q - 1) * (s - 1))
    of_sets, of_rest = (s + 1) * ms_s, (s + 1) * ms_r
    of_queries, of_sets = max(ms_q - ms_r, 0), max(of_sets - of_rest + ms_r, ms_s)
    total = max(of_queries + of_sets, ms_q)
    of_queries_t, of_sets_t = stats.t.ppf(0.975, [q - 1, s - 1]) ** 2
    t_squared = (of_queries * of_queries_t + of_sets * of_sets_t) / (of_queries + of_sets)
    half = np.sqrt(t_squared * total / (q * s))
    return mean, mean - half, mean + half


@pytest.mark.parametrize("seed", range(4))
def test_differences_and_both_intervals_are_those_of_numpy_and_scipy(seed: int) -> None:
    pvi, right, bits = drawn_runs(seed)
    row = row_of(table_of(pvi.sample(fraction=1, shuffle=True, seed=seed)), "hardest")
    for name, cells in (("accuracy", right), ("v_information", bits)):
        d = cells["hardest"].mean(1) - cells["random"].mean(1)
        # Of accuracies with two more pairs, 1 and -1 (Bonett & Price 2012).
        pairs = np.append(d, [1, -1]) if name == "accuracy" else d
        low, high = stats.t.interval(0.95, len(pairs) - 1, pairs.mean(), stats.sem(pairs))
        assert row[f"{name}_difference"] == pytest.approx(d.mean())
        ends = row[f"{name}_low"], row[f"{name}_high"]
        far, near = (0, 1) if d.mean() < 0 else (1, 0)
        assert ends[far] == pytest.approx((low, high)[far])
        if name == "accuracy" and ends[near] != pytest.approx((low, high)[near]):  # the exact test has decided
            flips = stats.permutation_test((d,), np.mean, permutation_type="samples", rng=0, n_resamples=19_999)
            assert (flips.pvalue <= 0.05) == (ends[0] > 0 or ends[1] < 0) != (low > 0 or high < 0)
        else:
            assert ends[near] == pytest.approx((low, high)[near])
        mean, low, high = two_way(cells["hardest"].mean(1, keepdims=True) - cells["random"])
        assert mean == pytest.approx(d.mean())
        assert (row[f"{name}_two_way_low"], row[f"{name}_two_way_high"]) == pytest.approx((low, high))
    assert (row["accuracy"], row["v_information"]) == pytest.approx((right["hardest"].mean(), bits["hardest"].mean()))
    assert row["best_accuracy"] == pytest.approx(right["hardest"].mean(0).max())


def test_two_queries_and_two_draws_are_worked_by_hand() -> None:
    # Query 0 is right behind the chosen set and behind the second draw; query 1 behind the chosen set alone.
    # d = [[1, 0], [1, 1]]: mean 3/4; row means 1/2 and 1, column means 1 and 1/2.
    chosen, drawn = np.array([[1.0], [1.0]]), np.array([[0.0, 1.0], [0.0, 0.0]])
    over_queries, two_way = difference_from_draws(chosen, drawn)
    assert over_queries.value == two_way.value == 0.75
    # Over queries: d = 1/2 and 1, SD = sqrt(1/8), SE = sqrt(1/16).
    assert over_queries.standard_error == pytest.approx(0.25)
    # MS_q = 2 (1/16 + 1/16) = 1/4 = MS_s; the rest is -1/4, 1/4 by row and column: MS_r = 4/16 = 1/4.
    # Sets count 1 + 2 times, the choice being one more: Var = (1/4 + 3/4 - 3/4) / 4 = 1/16, at one degree of freedom.
    assert two_way.standard_error == pytest.approx(0.25)
    assert two_way.degrees_of_freedom == 1.0


@pytest.mark.parametrize("n_sets", [3, 5])
@pytest.mark.parametrize("of_choice", [0.0, 0.3, 0.6])
def test_the_interval_over_sets_covers_the_true_difference_whatever_the_choice_varies_by(
    n_sets: int, of_choice: float
) -> None:
    # Chosen sets that are no better than drawn ones on average over all choices that could have been made. A set moves
    # answers by 0.6, the choice by no more.
    random, n_runs = np.random.default_rng(1), 400
    covered = {"over queries": 0, "two-way": 0}
    for _ in range(n_runs):
        easy, of_set = random.normal(size=(50, 1)), random.normal(0, 0.6, n_sets)
        drawn = easy + of_set + random.normal(size=(50, n_sets))
        chosen = easy + random.normal(0, of_choice) + random.normal(size=(50, 1))
        over_queries, two_way = difference_from_draws(chosen, drawn)
        assert over_queries.standard_error is not None
        assert two_way.standard_error is not None
        covered["over queries"] += abs(over_queries.value) < stats.t.ppf(0.975, 49) * over_queries.standard_error
        reach = stats.t.ppf(0.975, two_way.degrees_of_freedom) * two_way.standard_error
        covered["two-way"] += abs(two_way.value) < reach
    # At least 95%, within three binomial standard errors; less than that over queries alone.
    assert covered["two-way"] / n_runs >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / n_runs)
    assert covered["over queries"] / n_runs < 0.9


def test_the_best_set_is_compared_with_the_best_of_as_many_random_classifiers() -> None:
    pvi, right, _ = drawn_runs(7)
    gold = np.random.default_rng(1).integers(0, 2, 30) * np.random.default_rng(2).integers(0, 2, 30)
    pvi = pvi.with_columns(
        gold=pl.col("query_id").replace_strict(dict(enumerate(gold.tolist())), return_dtype=pl.Int64)
    )
    found = table_of(pvi)
    for source, n_sets in (("random", 4), ("hardest", 2)):
        row = row_of(found, source)
        best = int(right[source].sum(0).max())
        # The best of t has at least k right with probability 1 - F(k - 1)^t, and expects the sum of these over n.
        below = stats.binom.cdf(np.arange(30), 30, 0.5)
        expected = (1 - below**n_sets).sum() / 30
        assert (row["tries"], row["n_sets"], row["chance"]) == (n_sets, n_sets, 0.5)
        assert row["max_random"] == pytest.approx(expected)
        assert 10 ** row["log10_tail"] == pytest.approx(1 - stats.binom.cdf(best - 1, 30, 0.5) ** n_sets)
        accuracy = best / 30
        assert row["verdict"] == (
            "below both" if accuracy <= 0.5 else "between" if accuracy <= expected else "above both"
        )
        assert row["p_value"] == pytest.approx(1 - stats.binom.cdf(best - 1, 30, 0.5) ** n_sets)
        bound = stats.binomtest(best, 30, alternative="greater").proportion_ci(1 - 0.2 / n_sets, method="exact").low
        assert row["accuracy_lower_bound"] == pytest.approx(bound)
        # Against the majority label, McNemar's test of the first best set, times the sets.
        constant = gold == np.bincount(gold).argmax()
        is_right = right[source][:, right[source].sum(0).argmax()] == 1
        better, worse = (is_right & ~constant).sum(), (~is_right & constant).sum()
        single = stats.binomtest(better, better + worse, alternative="greater").pvalue
        assert (row["majority"], row["p_majority"]) == pytest.approx((constant.mean(), min(1, n_sets * single)))
    # Four tests: the smallest p-value counts four times, the next three times, but not less than the one before.
    p_values = pl.concat([found["p_value"], found["p_majority"]]).sort().to_numpy()
    corrected = np.minimum(np.maximum.accumulate(p_values * [4, 3, 2, 1]), 1)
    assert pl.concat([found["p_holm"], found["p_majority_holm"]]).sort().to_list() == pytest.approx(corrected)
    assert found["n_tests"].to_list() == [4, 4]
    both = found.select(pl.max_horizontal("p_holm", "p_majority_holm") <= 0.05).to_series()
    assert found["better_than_guessing"].to_list() == both.to_list()
    assert found["better_than_uniform"].to_list() == [p <= 0.05 for p in found["p_holm"]]


def test_sets_after_which_one_label_is_always_answered_are_never_better_than_guessing() -> None:
    random, uniform = np.random.default_rng(0), 0
    for _ in range(20):
        gold = (random.random(60) < random.uniform(0.1, 0.4)).astype(int)
        bits = random.normal(size=60)
        frames = [
            run_table(bits, (gold == 0).tolist(), demonstrations=source, demonstration_set=number)
            for source in ("random", "hardest")
            for number in range(2)
        ]
        golds = pl.col("query_id").replace_strict(dict(enumerate(gold.tolist())), return_dtype=pl.Int64)
        found = table_of(pl.concat(frames).with_columns(gold=golds).sort(PVI_KEY))
        assert found["p_majority"].to_list() == [1.0, 1.0]
        assert not found["better_than_guessing"].any()
        uniform += found["better_than_uniform"].sum()
    assert uniform > 15


def test_the_suites_own_sets_have_no_difference_and_one_of_them_no_interval_over_draws() -> None:
    pvi, _, _ = drawn_runs(3)
    own = row_of(table_of(pvi), "random")
    differences = [name for name in PVI_DEMONSTRATIONS if name.endswith(("_low", "_high", "_difference"))]
    assert len(differences) == 10
    assert {own[name] for name in [*differences, "n_candidates", "n_training"]} == {None}
    one = pvi.filter((pl.col("demonstrations") == "hardest") | (pl.col("demonstration_set") == 0))
    row = row_of(table_of(one), "hardest")
    assert [row["accuracy_two_way_low"], row["v_information_two_way_high"]] == [None, None]
    assert row["accuracy_low"] < row["accuracy_difference"] < row["accuracy_high"]
    alone = table_of(pvi.filter(demonstrations="random"))
    assert alone.height == 1
    assert alone["accuracy_difference"].to_list() == [None]


def test_queries_that_lack_something_behind_any_set_are_left_out_and_counted() -> None:
    pvi, right, bits = drawn_runs(5)
    gone = (pl.col("query_id") == 0) & (pl.col("demonstrations") == "random") & (pl.col("demonstration_set") == 1)
    no_bits = (pl.col("query_id") == 4) & (pl.col("demonstrations") == "hardest") & (pl.col("demonstration_set") == 0)
    holed = pvi.with_columns(
        correct=pl.when(gone).then(None).otherwise("correct"),
        pvi_bits=pl.when(no_bits).then(None).otherwise("pvi_bits"),
    )
    found = table_of(holed)
    assert found["n_queries"].to_list() == [29, 29]
    assert found["n_unpredicted"].to_list() == [1, 1]
    assert found["n_measured"].to_list() == [29, 29]
    row = row_of(found, "hardest")
    assert row["accuracy"] == pytest.approx(right["hardest"][1:].mean())
    assert row["v_information"] == pytest.approx(np.delete(bits["hardest"], 4, axis=0).mean())
    never = table_of(pvi.with_columns(pvi_bits=pl.lit(None, pl.Float64), correct=pl.lit(None, pl.Boolean)))
    assert never["n_queries"].to_list() == [0, 0]
    assert never["accuracy"].to_list() == never["verdict"].to_list() == never["v_information"].to_list() == [None] * 2


def test_how_many_rows_were_chosen_among_and_of_how_many_is_stated() -> None:
    pvi, _, _ = drawn_runs(2)
    measured = pl.DataFrame(
        {
            "dataset": ["d"] * 4,
            "n_shots": [2] * 3 + [4],
            "training_row": [0, 1, 2, 0],
            "pvi_bits": [1.0, None, -1.0, 2.0],
        }
    )
    counts = training_counts(measured, pl.DataFrame({"dataset": ["d"], "n_training": [70]}))
    row = row_of(table_of(pvi, counts), "hardest")
    assert (row["n_candidates"], row["n_training"]) == (2, 70)


def test_each_chosen_demonstration_stands_with_its_text_and_the_pvi_it_was_chosen_by() -> None:
    null = {"suite": "pvi", "dataset": "d", "n_shots": 2, "label_names": ["no", "yes"], "prompt_id": "p"}
    rows = [
        null
        | {
            "part": "middle_demonstrations_null",
            "position": number,
            "demonstration_set": number,
            "demonstration_ids": ids,
        }
        for number, ids in enumerate([[5, 3], [0, 9]])
    ]
    answers = ScoredRequests(rows=pl.DataFrame(rows, schema=REQUESTS).lazy(), parts={})
    measured = pl.DataFrame(
        {
            "dataset": "d",
            "n_shots": 2,
            "training_row": [0, 3, 5, 9],
            "gold": [0, 1, 0, 1],
            "pvi_bits": [0.5, 3.5, 5.5, 9.5],
        },
        schema_overrides={"n_shots": pl.Int64},
    )
    candidates = pl.DataFrame(
        {"dataset": "d", "training_row": [0, 3, 5, 9], "row": [10, 13, 15, 19], "text": list("adfj"), "n_training": 12},
        schema=PVI_CANDIDATES,
    )
    found = chosen_table(answers, measured, candidates)
    assert found.schema == PVI_CHOSEN
    columns = [
        "demonstrations",
        "n_shots",
        "demonstration_set",
        "place",
        "training_row",
        "row",
        "text",
        "gold",
        "pvi_bits",
    ]
    assert found.select(columns).rows() == [
        ("middle", 2, 0, 0, 5, 15, "f", 0, 5.5),
        ("middle", 2, 0, 1, 3, 13, "d", 1, 3.5),
        ("middle", 2, 1, 0, 0, 10, "a", 0, 0.5),
        ("middle", 2, 1, 1, 9, 19, "j", 1, 9.5),
    ]
    nothing = ScoredRequests(rows=answers.rows.clear(), parts={})
    assert chosen_table(nothing, measured.clear(), candidates.clear()).is_empty()


def test_equal_prompts_of_different_sets_are_one_try() -> None:
    inputs = [[-1.0, -2.0], [-1.5, -1.0]]
    runs = {("d", 2, number): Run([0, 1], inputs, None) for number in range(3)}
    scored = answers(runs, {"hardest_demonstrations": {("d", 2, 0): Run([0, 1], inputs, None)}})
    same = pl.when(pl.col("prompt_id").str.starts_with("input-d-2")).then(pl.lit("again")).otherwise("prompt_id")
    again = replace(scored, rows=scored.rows.with_columns(prompt_id=same.str.replace("input-d-1.*", "again")))
    for requests, own in ((scored, 3), (again, 2)):
        found = tries_by_source(requests, "random").select("demonstrations", "tries").rows()
        assert sorted(found) == [("hardest", 1), ("random", own)]
