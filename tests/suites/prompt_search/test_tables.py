"""A hand-made search: four prompts of which two are the same text, four queries with 2, 2, 4 and 4 choices."""

import math
from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.schemas import PREDICTIONS, TOTAL_ERROR
from evaluator.suites.prompt_search.schema import (
    SEARCH_CURVES,
    SEARCH_EXAMPLES,
    SEARCH_PROMPTS,
    SEARCH_RESULTS,
    TRIED_PROMPTS,
)
from evaluator.suites.prompt_search.suite import ANSWERS, answers, planned
from evaluator.suites.prompt_search.tables import (
    constant_answers,
    curves_table,
    prompts_table,
    results_table,
    search_held_out,
)

SEARCH = {"part": "demonstrations", "dataset": "d", "n_shots": 1}
EXAMPLES = pl.DataFrame(
    [
        {"dataset": "d", "place": place, "query_id": 10 + place, "example_id": str(place), "n_choices": n, "source": ""}
        | {"correct": correct}
        for place, (n, correct) in enumerate([(2, [0]), (2, [1]), (4, [2]), (4, [0, 3])])
    ],
    schema=SEARCH_EXAMPLES,
)
CHANCES = [1 / 2, 1 / 2, 1 / 4, 2 / 4]
# Texts of choices: "no" is correct for the first, the second and the fourth query, others for one each.
CHOICES = [["no", "a"], ["b", "no"], ["c", "d", "e", "f"], ["no", "g", "h", "i"]]
CONSTANTS = constant_answers(
    pl.DataFrame({"dataset": "d", "query_id": [10, 11, 12, 13, 13], "label_names": [*CHOICES, CHOICES[3]]}).lazy(),
    EXAMPLES,
)
# The choice of each prompt for each query; right are 0, 1, 2 and either 0 or 3.
PICKED = [[0, 0, 2, 3], [0, 1, 2, 1], [1, 0, 0, 2], [0, 1, 2, 1]]
CORRECT = [3, 3, 0, 3]
TRIED = pl.DataFrame(
    [
        SEARCH | {"prompt_number": number, "demonstrations": [text], "text": text}
        for number, text in enumerate(["a", "b", "c", "b"])
    ],
    schema=TRIED_PROMPTS,
)


def requests() -> pl.DataFrame:
    rows = [
        {
            "part": "demonstrations",
            "dataset": "d",
            "n_shots": 1,
            "demonstration_set": number,
            "template": 0,
            "noise_rate": 0.0,
            "n_wrong_labels": 0,
            "query_id": 10 + place,
            "prompt_id": f"{number}-{place}",
        }
        | {"position": 4 * number + place}
        for number, place in product(range(4), range(4))
    ]
    beside = {"part": "unconditional", "n_shots": 0, "demonstration_set": 0, "query_id": None, "prompt_id": "u"}
    return pl.DataFrame([*rows, rows[0] | beside])


def answered(rows: pl.DataFrame | None = None) -> pl.DataFrame:
    """ANSWERS of one method to the given requests; those of prompt 2 are all ties."""
    rows = requests().filter(pl.col("query_id").is_not_null()) if rows is None else rows
    predictions = rows.with_columns(
        suite=pl.lit("prompt-search"),
        method=pl.lit("per_token"),
        definition=pl.lit("paper"),
        gold=pl.lit(0),
        label_names=pl.lit(["x", "y"]),
        label_probs=pl.lit([0.5, 0.5]),
        pred=pl.Series(
            [PICKED[number][query - 10] for number, query in rows.select("demonstration_set", "query_id").rows()]
        ),
    ).select(PREDICTIONS.names(), n_tied=1 + (pl.col("demonstration_set") == 2).cast(pl.Int64))
    plan = planned(requests().lazy(), EXAMPLES.lazy())
    return answers(predictions, plan, EXAMPLES.lazy())


def prompts(rows: pl.DataFrame | None = None) -> pl.DataFrame:
    return prompts_table(answered(rows), TRIED.lazy(), EXAMPLES.lazy())


def results(table: pl.DataFrame, found: pl.DataFrame | None = None) -> pl.DataFrame:
    """SEARCH_RESULTS of a table of prompts, and of answers (all prompts answer alike at each number of shots)."""
    if found is None:
        shots = table["n_shots"].unique()
        found = pl.concat([answered().with_columns(n_shots=pl.lit(n_shots, pl.Int64)) for n_shots in shots])
    return results_table(table, EXAMPLES, found, CONSTANTS, TOTAL_ERROR.to_frame())


def test_a_plan_leaves_out_what_methods_ask_besides():
    plan = planned(requests().lazy(), EXAMPLES.lazy())
    assert plan.height == 16
    assert plan["place"].to_list() == [0, 1, 2, 3] * 4
    assert plan["n_shots"].unique().to_list() == [1]


def test_prompts_are_numbered_by_what_their_part_varies():
    template = requests().head(4).with_columns(part=pl.lit("templates"), template=pl.lit(3))
    for rows, numbers in ((requests(), [0, 1, 2, 3]), (template, [3])):
        assert planned(rows.lazy(), EXAMPLES.lazy())["prompt_number"].unique().sort().to_list() == numbers


def test_any_correct_choice_is_right():
    table = answered()
    assert table.schema == ANSWERS
    # The fourth query has the correct choices 0 and 3; prompt 0 picks 3, the others 1 or 2.
    assert table.filter(place=3)["is_correct"].to_list() == [True, False, False, False]


def test_every_prompt_says_what_it_was_scored_on_and_which_text_it_repeats():
    table = prompts()
    assert table.schema == SEARCH_PROMPTS
    assert table["n_correct"].to_list() == CORRECT
    assert table["accuracy"].to_list() == [0.75, 0.75, 0, 0.75]
    assert table["n_ties"].to_list() == [0, 0, 4, 0]
    assert table["first_alike"].to_list() == [0, 1, 2, 1]
    assert not table["is_stopped"].any()


def test_the_one_of_two_equal_prompts_that_was_not_stopped_counts() -> None:
    # Prompts 1 and 3 have one text. Ties were drawn against the first of them, so that halving stopped it.
    is_left = pl.col("query_id").is_not_null() & ~((pl.col("demonstration_set") == 1) & (pl.col("query_id") == 13))
    table = prompts(requests().filter(is_left, pl.col("demonstration_set").is_in([1, 3])))
    assert table.select("prompt_number", "first_alike", "is_stopped").rows() == [(1, 3, True), (3, 3, False)]
    (row,) = results(table).to_dicts()
    assert (row["tries"], row["n_stopped"], row["best_correct"], row["best_prompt_numbers"]) == (1, 0, 3, [3])


def random_count_masses() -> list[float]:
    """P(k right) of one guesser by walking through all 16 outcomes of the four queries."""
    masses = [0.0] * 5
    for outcome in product([0, 1], repeat=4):
        probability = math.prod(chance if right else 1 - chance for chance, right in zip(CHANCES, outcome, strict=True))
        masses[sum(outcome)] += probability
    return masses


def test_the_best_prompt_stands_beside_baselines_of_as_many_different_prompts():
    (row,) = results(prompts()).to_dicts()
    assert results(prompts()).schema == SEARCH_RESULTS
    assert (row["n_prompts"], row["tries"], row["n_queries"], row["n_ties"]) == (4, 3, 4, 4)
    assert (row["best_correct"], row["best_accuracy"], row["best_prompt_numbers"]) == (3, 0.75, [0, 1])
    assert row["mean_accuracy"] == pytest.approx((0.75 + 0.75 + 0) / 3)
    masses = random_count_masses()
    cumulative = [sum(masses[: k + 1]) for k in range(5)]
    maximum = [cumulative[k] ** 3 - (cumulative[k - 1] ** 3 if k else 0) for k in range(5)]
    assert row["chance"] == pytest.approx(sum(CHANCES) / 4)
    assert row["max_random"] == pytest.approx(sum(k * mass for k, mass in enumerate(maximum)) / 4, rel=1e-12)
    assert row["log10_standard_tail"] == pytest.approx(math.log10(1 - cumulative[2]), rel=1e-12)
    assert row["log10_tail"] == pytest.approx(math.log10(1 - cumulative[2] ** 3), rel=1e-12)
    # Three random classifiers are expected to get 0.69, so 0.75 is above both.
    assert row["max_random"] < 0.75
    assert row["verdict"] == "above both"


def test_the_best_of_all_searches_are_tested_together_and_bounded_as_the_highest_of_their_prompts():
    other = prompts().with_columns(n_shots=pl.lit(2, pl.Int64), n_correct=pl.lit(2, pl.Int64))
    one, two = results(pl.concat([prompts(), other])).to_dicts()
    cumulative = np.cumsum(random_count_masses())
    p_values = [1 - cumulative[2] ** 3, 1 - cumulative[1] ** 3]
    assert [row["p_value"] for row in (one, two)] == pytest.approx(p_values)
    assert [row["p_holm"] for row in (one, two)] == pytest.approx([min(1, 4 * p_values[0]), min(1, 4 * p_values[0])])
    assert [(row["n_tests"], row["better_than_uniform"]) for row in (one, two)] == [(4, False)] * 2
    # Three prompts share the error of a fifth.
    bound = stats.binomtest(3, 4, alternative="greater").proportion_ci(1 - 0.2 / 3, method="exact").low
    assert one["accuracy_lower_bound"] == pytest.approx(bound)
    assert bound < one["chance"]
    assert one["n_needed"] is None


def test_the_constant_answer_is_the_text_that_is_correct_for_most_queries_and_a_best_prompt_pays_for_its_tries():
    assert CONSTANTS.filter(answer="no")["place"].to_list() == [0, 1, 3]
    assert CONSTANTS.group_by("answer").len().sort("answer").rows() == [("e", 1), ("i", 1), ("no", 3)]
    (row,) = results(prompts()).to_dicts()
    assert row["majority"] == 0.75
    # Prompt 0 is right on queries 0, 2 and 3, the constant answer on 0, 1 and 3: one better, one worse, p = 3/4, of
    # three prompts.
    assert row["p_majority"] == 1.0
    assert (row["better_than_guessing"], row["n_tests"]) == (False, 2)


def searched(right: np.ndarray, constant: np.ndarray) -> dict[str, object]:
    """The row of a search with these [prompt, query] answers; one text is correct where `constant`, others once."""
    n_prompts, n_queries = right.shape
    rows = pl.DataFrame([SEARCH | {"method": "m", "prompt_number": i, "place": j} for i, j in np.ndindex(right.shape)])
    found = rows.with_columns(is_correct=pl.Series(right.ravel()))
    table = found.group_by(*SEARCH, "method", "prompt_number", maintain_order=True).agg(
        n_queries=pl.len().cast(pl.Int64), n_correct=pl.col("is_correct").sum(), accuracy=pl.col("is_correct").mean()
    )
    more = {"n_ties": 0, "is_stopped": False, "could_have_won": False, "demonstrations": [], "text": "t"}
    table = table.with_columns(first_alike="prompt_number", **{name: pl.lit(value) for name, value in more.items()})
    examples = pl.DataFrame([{"dataset": "d", "place": j, "n_choices": 2, "correct": [0]} for j in range(n_queries)])
    texts = [{"dataset": "d", "place": j, "answer": "no" if constant[j] else f"other {j}"} for j in range(n_queries)]
    (row,) = results_table(table, examples, found, pl.DataFrame(texts), TOTAL_ERROR.to_frame()).to_dicts()
    assert row["tries"] == n_prompts
    return row


def test_a_search_whose_prompts_answer_one_text_is_never_better_than_guessing():
    rng, uniform = np.random.default_rng(0), 0
    for _ in range(30):
        constant = rng.random(80) < rng.uniform(0.5, 0.95)
        others = rng.random((3, 80)) < 0.3
        row = searched(np.vstack([others, constant]), constant)
        assert row["p_majority"] == 1.0
        assert not row["better_than_guessing"]
        uniform += row["better_than_uniform"]
    assert uniform > 15


@pytest.mark.parametrize("seed", range(5))
def test_the_best_prompt_is_better_than_guessing_where_mcnemars_test_times_its_tries_says_so(seed: int):
    rng = np.random.default_rng(seed)
    constant = rng.random(100) < 0.6
    right = rng.random((4, 100)) < np.array([[0.5], [0.6], [0.7], [0.75 + 0.04 * seed]])
    row = searched(right, constant)
    best = right[right.sum(axis=1).argmax()]
    better, worse = (best & ~constant).sum(), (~best & constant).sum()
    expected = min(1, 4 * stats.binomtest(better, better + worse, alternative="greater").pvalue)
    assert row["p_majority"] == pytest.approx(expected, rel=1e-9)
    assert row["p_majority_holm"] == pytest.approx(max(expected, min(1, 2 * row["p_value"])))
    assert row["better_than_guessing"] == (max(row["p_holm"], row["p_majority_holm"]) <= 0.05)


def test_a_result_may_lie_between_the_baselines():
    fewer = prompts().with_columns(n_correct=pl.lit(2), accuracy=pl.lit(0.5))
    (row,) = results(fewer).to_dicts()
    assert row["chance"] == 0.4375
    assert (row["best_accuracy"], row["verdict"]) == (0.5, "between")


def test_a_curve_counts_each_text_once():
    curve = curves_table(prompts(), EXAMPLES)
    assert curve.schema == SEARCH_CURVES
    curve = curve.filter(definition="distinct")
    assert curve["tries"].to_list() == [1, 2, 3]
    # Counts 3, 3, 0: pairs have maxima 3, 3, 3.
    assert curve["expected_maximum"].to_list() == pytest.approx([0.5, 0.75, 0.75])
    (result,) = results(prompts()).to_dicts()
    assert curve["max_random"][2] == pytest.approx(result["max_random"], rel=1e-12)
    assert curve["max_random"][0] == pytest.approx(result["chance"], rel=1e-12)


def test_the_papers_curve_draws_prompts_with_replacement_and_its_tails_are_those_of_the_next_whole_count():
    curve = curves_table(prompts(), EXAMPLES).filter(definition="paper")
    cumulative = [0.0, *np.cumsum(random_count_masses())]  # at k: P(fewer than k right)
    for tries, expected, standard, maximum in curve.select(
        "tries", "expected_maximum", "standard_tail", "max_tail"
    ).iter_rows():
        # Every sequence of draws of the counts 3, 3 and 0, each as probable.
        best = np.mean([max(draws) for draws in product((3, 3, 0), repeat=tries)])
        assert expected == pytest.approx(best / 4, rel=1e-12)
        below = cumulative[math.ceil(best - 1e-9)]
        assert (standard, maximum) == (pytest.approx(1 - below), pytest.approx(1 - below**tries))


def partly() -> pl.DataFrame:
    """Prompts 1 to 3 answered the first two queries only."""
    rows = requests().filter(pl.col("query_id").is_not_null())
    return rows.filter((pl.col("demonstration_set") == 0) | (pl.col("query_id") < 12))


def test_prompts_scored_in_part_say_so_and_stay_tries():
    table = prompts(partly())
    assert table["n_queries"].to_list() == [4, 2, 2, 2]
    assert table["is_stopped"].to_list() == [False, True, True, True]
    # The best has 3 of 4. Prompt 1 had 2 of 2 and two to go: 4. Prompt 2 had 0 of 2: 2 at most.
    assert table["could_have_won"].to_list() == [False, True, False, True]
    (row,) = results(table, answered(partly())).to_dicts()
    assert (row["tries"], row["n_stopped"], row["n_could_have_won"]) == (3, 2, 1)
    assert (row["best_prompt_numbers"], row["best_correct"], row["mean_accuracy"]) == ([0], 3, None)


def test_a_stopped_prompt_that_could_have_tied_with_the_best_could_have_won():
    more = requests().filter(pl.col("query_id") == 13, pl.col("demonstration_set") == 1)
    # Prompt 1 has 2 of 3 and one to go: 3, as many as the best has.
    assert prompts(pl.concat([partly(), more]))["could_have_won"].to_list() == [False, True, False, True]


def test_stopped_prompts_leave_no_curve_and_no_held_out_trials():
    table = prompts(partly())
    assert curves_table(table, EXAMPLES).is_empty()
    assert search_held_out(answered(partly()), table, EXAMPLES, seed=0).is_empty()


def test_held_out_trials_search_the_different_prompts_of_each_split():
    trials = search_held_out(answered(), prompts(), EXAMPLES, seed=0)
    assert trials["experiment"].unique().to_list() == ["demonstrations/d/1/per_token"]
    # The best of one, of two and of all three, in 100 splits each.
    assert trials.group_by("tries").len().sort("tries").rows() == [(1, 100), (2, 100), (3, 100)]
    assert trials.filter(pl.col("n_prompts") != pl.col("tries")).is_empty()
    trials = trials.filter(tries=3)
    assert trials["n_train"].unique().to_list() == [3]  # floor of three quarters of four queries
    # Whichever query is held out, the best on the others is prompt 0 or 1, and never the repeated text.
    assert set(trials["prompt"]) == {0, 1}
