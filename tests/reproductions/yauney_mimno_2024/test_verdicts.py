"""The published experiments: the paper's numbers under its rules, and each step from there."""

from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from max_random_baseline.max_random_baseline import max_random_baseline

from evaluator.reproductions.yauney_mimno_2024.data import TASKS, pooled_chances
from evaluator.reproductions.yauney_mimno_2024.recompute import Published, judge, reasons
from tests.shared_data import shared_data

# Yauney & Mimno 2024, table 1: baseline disagreements by task, and by kind of model and shots.
DISAGREEMENTS = {
    "novel_concepts": 0, "known_unknowns": 9, "code_line_description": 0, "emoji_movie": 11,
    "conceptual_combinations": 0, "strange_stories": 0, "hindu_knowledge": 0, "bbq_lite_json": 0,
    "formal_fallacies_syllogisms_negation": 12, "language_identification": 12, "logical_deduction": 3,
    "play_dialog_same_or_different": 1, "strategyqa": 0, "symbol_interpretation": 7, "vitaminc_fact_verification": 1,
    "winowhy": 0,
}  # fmt: skip
COLUMNS = {
    ("Llama-2-7b", 1): 2, ("OLMo-7B", 1): 5, ("falcon-7b", 1): 5,
    ("Llama-2-7b", 2): 1, ("OLMo-7B", 2): 4, ("falcon-7b", 2): 3,
    ("Llama-2-7b", 4): 1, ("OLMo-7B", 4): 1, ("falcon-7b", 4): 3,
    ("Alpaca-7b", 1): 4, ("OLMo-7B-Instruct", 1): 5, ("falcon-7b-instruct", 1): 4,
    ("Alpaca-7b", 2): 2, ("OLMo-7B-Instruct", 2): 4, ("falcon-7b-instruct", 2): 3,
    ("Alpaca-7b", 4): 3, ("OLMo-7B-Instruct", 4): 2, ("falcon-7b-instruct", 4): 4,
}  # fmt: skip


def total(published: Published, rules: str) -> dict[str, float]:
    return published.tables["totals"].filter(rules=rules).row(0, named=True)


def test_the_papers_totals_come_out_under_its_rules(published: Published) -> None:
    row = total(published, "released")
    assert (row["n_experiments"], row["above_standard"], row["above_max"], row["disagreements"]) == (288, 255, 199, 56)
    assert f"{row['flipped_share']:.1%}" == "22.0%"


def test_table_1_comes_out_task_by_task_and_column_by_column(published: Published) -> None:
    between = published.tables["experiments"].with_columns(between=pl.col("released_verdict") == "between")
    assert dict(between.group_by("dataset").agg(pl.col("between").sum()).iter_rows()) == DISAGREEMENTS
    columns = between.group_by("model", "shots").agg(pl.col("between").sum())
    assert {(model, shots): count for model, shots, count in columns.iter_rows()} == COLUMNS


@pytest.mark.parametrize(
    ("rules", "disagreements"),
    [("n present", 60), ("+ choices of logical_deduction", 59), ("distinct prompts alone", 55)],
)
def test_what_single_changes_come_to_is_what_others_found(published: Published, rules: str, disagreements: int) -> None:
    assert total(published, rules)["disagreements"] == disagreements


def test_sound_totals_are_recounted_in_fractions(published: Published) -> None:
    rows = published.tables["experiments"].select("correct", "n", "sound_chance", "sound_max_random").rows()
    # Chances are shares of a few thousand choices at most. No share of right answers is a maximum random baseline.
    exact = [(Fraction(k, n), Fraction(chance).limit_denominator(10**6), most) for k, n, chance, most in rows]
    assert all(accuracy != chance for accuracy, chance, _ in exact)  # so in these, it matters not which rule there is
    row = total(published, "sound")
    assert row["above_standard"] == sum(accuracy > chance for accuracy, chance, _ in exact)
    assert row["above_max"] == sum(accuracy > chance and accuracy > most for accuracy, chance, most in exact)


@pytest.mark.parametrize(
    ("correct", "authors", "sound"), [(19, "below both", "below both"), (20, "between", "below both")]
)
def test_the_authors_alone_take_an_accuracy_that_equals_chance_for_more(correct: int, authors: str, sound: str) -> None:
    # 30 examples of chance 1/3 and 50 of 1/5 come to 10 + 10 right of 80: 20 is chance, and less than the best of 200.
    experiment = {"model": "m", "dataset": "logical_deduction", "shots": 2, "n": 80, "correct": correct}
    frame = pl.DataFrame([experiment | {"accuracy": correct / 80, "n_distinct_prompts": 200}])
    verdicts = judge(frame, [np.repeat([1 / 3, 1 / 5], [30, 50])])
    found = dict(verdicts.select("rules", "verdict").rows())
    assert (found["+ distinct prompts"], found["sound"]) == (authors, sound)
    why = reasons(verdicts)[0] or ""
    assert why.endswith("an accuracy equal to a baseline is not above it: below both") == (correct == 20)


def test_accuracies_are_those_the_authors_aggregated(published: Published) -> None:
    theirs = pl.read_parquet(shared_data("random_baselines") / "accuracy_by_prompt.parquet")
    key = ["model", "dataset", "shots"]
    ours = published.prompts.select(*key, accuracy=pl.col("correct") / pl.col("n_examples"))
    # The two list prompts in different orders, so as sorted lists.
    left, right = (rows.select(*key, "accuracy").sort([*key, "accuracy"]) for rows in (ours, theirs))
    assert left.select(key).equals(right.select(key))
    assert (left["accuracy"] - right["accuracy"]).abs().to_numpy().max() < 1e-12
    best = right.group_by(key).agg(pl.col("accuracy").max()).sort(key)
    assert (best["accuracy"] - published.tables["experiments"].sort(key)["accuracy"]).abs().to_numpy().max() < 1e-12


def test_the_rule_for_lost_queries_is_shown_as_fitted_among_others(published: Published) -> None:
    # 3,230 of 57,600 is a count that is stated without its rule. Ours was chosen because it gives that count, so this
    # holds the rule in place and does not confirm it; the table says which others give it and what the rest give.
    assert published.tables["experiments"]["n_without_query"].sum() == 3230
    rules = published.tables["query_rules"]
    assert rules.filter("is_used")["n_prompts"].to_list() == [3230]
    assert rules.filter(pl.col("n_prompts") == 3230)["is_stated_count"].all()
    assert (rules.height, rules["is_stated_count"].sum()) == (9, 3)


def test_one_model_is_found_to_be_another_in_six_tasks_without_exception(published: Published) -> None:
    pairs = published.tables["identical_models"]
    assert set(pairs.select("model", "other_model").rows()) == {("OLMo-7B", "OLMo-7B-Instruct")}
    every = pairs.filter(pl.col("identical_prompts") == pl.col("shared_prompts"))
    assert every["dataset"].n_unique() == 6
    flagged = published.tables["experiments"].filter(pl.col("same_losses_as").is_not_null())
    assert flagged.height == 2 * pairs.height


@pytest.mark.parametrize(
    ("model", "dataset", "shots", "n", "chances", "tries"),
    [
        # n from the rows present: 40 pooled examples of four choices; 84 different demonstrations.
        ("falcon-7b", "conceptual_combinations", 1, 40, {4: 40}, 84),
        ("falcon-7b", "emoji_movie", 1, 99, {5: 99}, 85),
        ("Alpaca-7b", "winowhy", 4, 200, {2: 200}, 200),
    ],
)
def test_sound_baselines_are_those_of_the_package(
    published: Published, model: str, dataset: str, shots: int, n: int, chances: dict[int, int], tries: int
) -> None:
    row = published.tables["experiments"].filter(model=model, dataset=dataset, shots=shots).row(0, named=True)
    assert (row["n"], row["sound_tries"]) == (n, tries)
    # Its masses are off by 2e-16 each and its powers by that times the tries.
    assert row["sound_max_random"] == pytest.approx(max_random_baseline(n, chances, tries), abs=1e-9)


def test_pooled_stories_are_guessed_with_the_choices_of_both_their_questions(published: Published) -> None:
    stories = pl.read_parquet(shared_data("bigbench_lite") / "strange_stories.parquet")
    kinds = {kind: own.sort("row") for (kind,), own in stories.partition_by("subtask", as_dict=True).items()}
    # The task lists yes-or-no questions first; both kinds are numbered from 0.
    rows = [
        (place, len(own["choices"][place]))
        for own in (kinds["boolean"], kinds["multiple_choice"])
        for place in range(own.height)
    ]
    row = (
        published.tables["experiments"]
        .filter(model="Llama-2-7b", dataset="strange_stories", shots=4)
        .row(0, named=True)
    )
    prompt = published.prompts.filter(
        model="Llama-2-7b", dataset="strange_stories", shots=4, prompt_id=row["best_prompt"]
    )
    demonstrations = prompt["demonstration_ids"].to_list()[0]
    choices: dict[int, list[int]] = {}
    for place, (example, n_choices) in enumerate(rows):
        if place not in demonstrations:
            choices.setdefault(example, []).append(n_choices)
    ours = [len(pooled) / sum(pooled) for pooled in choices.values()]  # each question has one right choice
    assert row["n"] == len(ours)
    assert row["sound_chance"] == pytest.approx(sum(ours) / len(ours))
    assert row["sound_max_random"] == pytest.approx(max_random_baseline(len(ours), ours, row["sound_tries"]), abs=1e-9)


def test_a_verdict_has_a_reason_exactly_where_it_changes(published: Published) -> None:
    rows = published.tables["experiments"]
    changes = rows["released_verdict"] != rows["sound_verdict"]
    assert changes.to_list() == rows["reason"].is_not_null().to_list()


def test_a_task_of_two_choices_that_was_stated_to_have_five_loses_most_of_its_verdicts(published: Published) -> None:
    # winowhy asks for correct or incorrect. The best of 200 coin flips is right on .597 of 200 examples.
    assert max_random_baseline(200, 0.5, 200) == pytest.approx(0.597, abs=5e-4)
    rows = published.tables["experiments"].filter(dataset="winowhy")
    assert set(rows["released_verdict"]) == {"above both"}
    assert set(rows.filter(pl.col("accuracy") < 0.597)["sound_verdict"]) == {"between"}
    assert set(rows.filter(pl.col("accuracy") >= 0.597)["sound_verdict"]) == {"above both"}
    assert set(rows["reason"].drop_nulls()) == {"a guess is right with probability 0.5, not 0.2: between"}


@pytest.mark.parametrize(
    "name", ["emoji_movie", "hindu_knowledge", "known_unknowns", "winowhy", "strategyqa", "conceptual_combinations"]
)
def test_chances_are_those_of_the_tasks_own_choices(name: str) -> None:
    rows = pl.read_parquet(shared_data("bigbench_lite") / f"{name}.parquet")
    expected = {
        row["row"]: Fraction(sum(score == 1 for score in row["scores"]), len(row["choices"]))
        for row in rows.iter_rows(named=True)
    }
    chance = TASKS[name].chance
    if chance is None:
        assert pooled_chances(TASKS[name], expected) == expected
    else:
        assert set(expected.values()) == {chance}
    assert TASKS[name].n_rows == len(expected)


def test_two_right_choices_of_ten_are_guessed_as_often_as_one_of_five() -> None:
    rows = pl.read_parquet(shared_data("bigbench_lite") / "novel_concepts.parquet")
    shares = rows.select(pl.col("scores").list.eval(pl.element() == 1).list.sum() / pl.col("choices").list.len())
    assert set(shares.to_series()) == {0.2}
    assert TASKS["novel_concepts"].chance == Fraction(1, 5)


def test_pooling_adds_up_right_choices_and_choices() -> None:
    # Row 3 is question 3 of five choices, row 503 question 3 of seven, row 1203 question 3 of three: 3 right of 15.
    # Row 504 alone is question 4: 1 of 7.
    chances = pooled_chances(TASKS["logical_deduction"], [3, 503, 504, 1203])
    assert chances == {3: Fraction(3, 15), 4: Fraction(1, 7)}
