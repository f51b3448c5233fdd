"""What stands beside an accuracy: hand-worked baselines, SciPy's, and tails that never claim too much."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.errors import MetricError
from evaluator.metrics import METRICS
from evaluator.metrics.groups import SCORE_PARTS, measured_groups
from evaluator.metrics.guessing import prompts_tried
from evaluator.metrics.table import metrics_table
from evaluator.schemas import MEAN_OVER_DATASETS, PREDICTIONS, TEST_OF_GUESSING, TEST_OF_MAJORITY
from tests.metrics.measured import metrics_of

COLUMNS = ["chance", "majority", "max_random", "tries", "log10_tail", "verdict", "n_needed"]


def answers(right: Sequence[Sequence[bool]], n_labels: int = 2, **columns: object) -> pl.DataFrame:
    """One row a prompt of a query, with the gold label 0 and a prompt of its own; every column can be replaced."""
    rows = [
        {
            "query_id": query,
            "demonstration_set": number,
            "prompt_id": f"{query}, {number}",
            "gold": 0,
            "pred": int(not is_right),
        }
        for query, asked in enumerate(right)
        for number, is_right in enumerate(asked)
    ]
    frame = pl.DataFrame(rows).with_row_index("position")
    names = {
        "suite": "suite",
        "part": "part",
        "dataset": "a",
        "method": "vanilla",
        "definition": "paper",
        "n_shots": 2,
        "template": 0,
        "noise_rate": 0.0,
        "n_wrong_labels": 0,
    }
    names |= {"label_names": [str(label) for label in range(n_labels)]} | columns
    wrong = [0.0, 1.0] + [0.0] * (n_labels - 2)
    probs = pl.when(pred=0).then(pl.lit([1.0] + [0.0] * (n_labels - 1))).otherwise(pl.lit(wrong))
    frame = frame.with_columns(label_probs=probs).with_columns(
        **{name: value if isinstance(value, pl.Expr) else pl.lit(value) for name, value in names.items()}
    )
    return frame.select(PREDICTIONS.names()).cast(PREDICTIONS)


def baselines(predictions: pl.DataFrame, dataset: str = "a", **of: str) -> dict[str, object]:
    chosen = {"dataset": dataset, "metric": "accuracy", "definition": "paper"} | of
    return metrics_of(predictions).filter(**chosen).select(COLUMNS).row(0, named=True)


YES, NO = True, False


def test_a_mean_over_two_prompts_of_a_query_is_compared_with_one_random_classifier() -> None:
    # 3 of 4 right, 1.5 of 2 queries, rounded down to 1: one guess at each query gets that with 1 - (1/2)^2.
    found = baselines(answers([[YES, YES], [YES, NO]]))
    assert found == {
        "chance": 0.5,
        "majority": 1.0,
        "max_random": pytest.approx(0.5, rel=1e-12),
        "tries": 1,
        "log10_tail": pytest.approx(math.log10(3 / 4), rel=1e-12),
        "verdict": "not better than uniform guessing",
        "n_needed": None,
    }


def test_half_a_query_right_is_none() -> None:
    assert baselines(answers([[YES, NO]], n_labels=3))["log10_tail"] == 0.0


def test_an_accuracy_whose_lower_bound_is_above_chance_says_how_many_queries_would_tell_whatever_its_verdict() -> None:
    found = baselines(answers([[query < 18] for query in range(20)]))
    # 18 of 20, not chosen among prompts: the 80% bound of Clopper and Pearson; by exact tails at .05 / 2 (two tests).
    bound = stats.binomtest(18, 20, alternative="greater").proportion_ci(0.8, method="exact").low
    sizes = range(1, 60)
    critical = [next(c for c in range(n + 2) if stats.binom.sf(c - 1, n, 0.5) <= 0.025) for n in sizes]
    power = [stats.binom.sf(c - 1, n, bound) for n, c in zip(sizes, critical, strict=True)]
    assert found["verdict"] == "better than uniform guessing"  # always answering 0 has all right
    assert isinstance(found["n_needed"], int)
    assert power[found["n_needed"] - 1] >= 0.8 > power[found["n_needed"] - 2]


def test_an_accuracy_at_chance_is_not_better_and_needs_no_number() -> None:
    found = baselines(answers([[YES, NO], [NO, YES]]))
    assert (found["verdict"], found["n_needed"]) == ("not better than uniform guessing", None)


@pytest.mark.parametrize(("n_right", "n_labels"), [(200, 4), (64, 3), (140, 2)])
def test_baseline_and_tail_are_those_of_scipys_binomial(n_right: int, n_labels: int) -> None:
    n = 200
    found = baselines(answers([[query < n_right] * 2 for query in range(n)], n_labels=n_labels))
    assert found["max_random"] == pytest.approx(1 / n_labels, rel=1e-9)
    log10_survival = stats.binom(n, 1 / n_labels).logsf(n_right - 1) / math.log(10)
    assert found["log10_tail"] == pytest.approx(log10_survival, rel=1e-9)


def test_a_method_that_is_added_to_a_run_changes_no_baseline_of_another_but_the_number_of_tests() -> None:
    alone = answers([[YES, NO], [YES, YES]])
    others = [alone.with_columns(method=pl.lit(name), prompt_id=pl.col("prompt_id") + name) for name in ("b", "c")]
    columns = [*COLUMNS, "p_value"]
    vanilla = [
        metrics_of(run).filter(metric="accuracy", method="vanilla") for run in (alone, pl.concat([alone, *others]))
    ]
    assert vanilla[0].select(columns).equals(vanilla[1].select(columns))
    assert [table["n_tests"].unique().to_list() for table in vanilla] == [[2], [6]]


def test_definitions_are_no_tries_and_are_tested_by_themselves() -> None:
    one = answers([[YES, NO], [YES, YES]])
    table = metrics_of(pl.concat([one, one.with_columns(definition=pl.lit("released"))])).filter(metric="accuracy")
    assert table["n_tests"].unique().to_list() == [2]


def answered(rows: pl.DataFrame, gold: pl.Expr, pred: pl.Expr) -> pl.DataFrame:
    """The same prompts with other gold labels and predictions, of probability 1."""
    n_labels = len(rows["label_names"][0])
    probs = pl.concat_list([(pl.col("pred") == label).cast(pl.Float64) for label in range(n_labels)])
    return rows.with_columns(gold=gold, pred=pred).with_columns(label_probs=probs).cast(PREDICTIONS)


def by_query(column: np.ndarray[Any, Any]) -> pl.Expr:
    return pl.col("query_id").replace_strict(range(len(column)), column.tolist(), return_dtype=pl.Int64)


def test_both_tests_are_corrected_over_datasets_and_methods_and_the_mean_over_several_datasets() -> None:
    gold = np.arange(10) % 2
    pred = np.where(np.arange(10) < 9, gold, 1 - gold)
    rows = [
        answered(answers([[YES]] * 10, dataset=dataset, method=method), by_query(gold), by_query(pred))
        for dataset in ("a", "b")
        for method in ("vanilla", "other")
    ]
    table = metrics_of(pl.concat(rows)).filter(metric="accuracy")
    # 9 of 10 coin flips, four times: 11/1024 each; 18 of 20, twice. Both labels are equally frequent. Always 1 has the
    # five odd queries right, of which the last is wrong here: five more right, one fewer, 7/64. Twice as many of two
    # datasets: ten and two, 79/4096.
    single, mean = 11 / 1024, stats.binom.sf(17, 20, 0.5)
    majority, of_mean = 7 / 64, 79 / 4096
    is_mean = [name == MEAN_OVER_DATASETS for name in table["dataset"]]
    assert table["p_value"].to_list() == pytest.approx([mean if each else single for each in is_mean])
    assert table["p_majority"].to_list() == pytest.approx([of_mean if each else majority for each in is_mean])
    # In order: two of 18 of 20 (times 12), four of 11/1024 (10), two of 79/4096 (6), four of 7/64 (4).
    corrected = [12 * mean, 10 * single], [6 * of_mean, 4 * majority]
    for name, (mean_p, single_p) in zip(("p_holm", "p_majority_holm"), corrected, strict=True):
        assert table[name].to_list() == pytest.approx([mean_p if each else single_p for each in is_mean])
    assert table["n_tests"].to_list() == [12] * 6
    assert table["verdict"].to_list() == [
        "better than uniform guessing" if each else "not better than uniform guessing" for each in is_mean
    ]
    assert not table["better_than_guessing"].any()


def test_two_questions_about_the_same_inputs_are_guessed_twice_and_are_evidence_for_the_model_once() -> None:
    gold = np.arange(10) % 2
    pred = np.where(np.arange(10) < 9, gold, 1 - gold)
    rows = [answered(answers([[YES]] * 10, dataset=name), by_query(gold), by_query(pred)) for name in ("a", "b")]
    table = metrics_table(measured_groups(pl.concat(rows)), independent=False)
    mean = table.filter(metric="accuracy", dataset=MEAN_OVER_DATASETS).row(0, named=True)
    # 18 of 20 guesses; but 9 of 10 inputs, and against always 1 five more right and one fewer, as above.
    assert (mean["n_queries"], mean["p_value"]) == (20, pytest.approx(stats.binom.sf(17, 20, 0.5)))
    assert mean["p_majority"] == pytest.approx(7 / 64)
    bound = stats.binomtest(9, 10, alternative="greater").proportion_ci(0.8, method="exact").low
    assert mean["accuracy_lower_bound"] == pytest.approx(bound)
    assert (mean["credible_low"], mean["credible_high"]) == pytest.approx(stats.beta(9.5, 1.5).interval(0.95))


def constant_answers(seed: int) -> pl.DataFrame:
    """A run that answers every query of three datasets with one label, after one or two prompts of each query."""
    rng = np.random.default_rng(seed)
    frames = []
    for place in range(3):
        n_labels, n_queries = int(rng.integers(2, 6)), int(rng.integers(20, 300))
        gold = rng.choice(n_labels, n_queries, p=rng.dirichlet([0.7] * n_labels))
        asked = answers([[YES] * int(rng.integers(1, 3))] * n_queries, n_labels=n_labels, dataset=f"d{place}")
        frames.append(answered(asked, by_query(gold), pl.lit(int(np.bincount(gold).argmax()))))
    return pl.concat(frames)


def test_a_constant_answer_is_never_better_than_guessing_though_it_is_better_than_uniform_guessing() -> None:
    tables = [metrics_of(constant_answers(seed)).filter(metric="accuracy") for seed in range(20)]
    table = pl.concat(tables).filter(pl.col("verdict").is_not_null())
    assert table["better_than_uniform"].sum() > 20
    assert table["p_majority"].min() >= 0.5
    assert not table["better_than_guessing"].any()
    assert "better than guessing" not in {*table["verdict"]}


@pytest.mark.parametrize("constant", ["text", "place"])
def test_a_constant_text_or_place_is_never_better_than_guessing_where_labels_differ_between_rows(constant: str) -> None:
    # Of 200 rows 160 are right; the other label is at the same place in half of the rows, or is another text in each.
    place = pl.col("query_id") % 2 if constant == "text" else pl.lit(0)
    text = pl.lit("yes") if constant == "text" else pl.format("yes {}", "query_id")
    names = pl.when(place == 0).then(pl.concat_list(text, pl.lit("no"))).otherwise(pl.concat_list(pl.lit("no"), text))
    right = [[query % 10 < 8] for query in range(200)]
    rows = answered(answers(right), pl.when(pl.col("query_id") % 10 < 8).then(place).otherwise(1 - place), place)
    found = metrics_of(rows.with_columns(label_names=names)).filter(dataset="a", metric="accuracy").row(0, named=True)
    assert (found["value"], found["majority"]) == (0.8, 0.8)
    assert found["verdict"] == "better than uniform guessing"


@pytest.mark.parametrize("seed", range(5))
def test_the_test_against_the_majority_label_is_mcnemars_one_sided(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gold = rng.choice(3, 80, p=[0.6, 0.3, 0.1])
    pred = np.where(rng.random(80) < rng.uniform(0.2, 0.9), gold, rng.integers(0, 3, 80))
    rows = answered(answers([[YES]] * 80, n_labels=3), by_query(gold), by_query(pred))
    found = metrics_of(rows).filter(metric="accuracy", dataset="a")
    constant = gold == np.bincount(gold).argmax()
    better, worse = ((pred == gold) & ~constant).sum(), ((pred != gold) & constant).sum()
    expected = stats.binomtest(better, better + worse, alternative="greater").pvalue
    assert found["p_majority"].item() == pytest.approx(expected, rel=1e-9)


def test_a_mean_over_six_prompts_is_tested_with_the_power_of_one_classifier_and_its_level() -> None:
    # 100 queries of two labels, six prompts, guesses that are alike in half of the queries; accuracy .5 or .6.
    rng = np.random.default_rng(7)
    told = {}
    for skill in (0.5, 0.6):
        runs = []
        for run in range(80):
            first, others = rng.random((100, 1)) < skill, rng.random((100, 6)) < skill
            right = np.where(rng.random((100, 6)) < 0.5, first, others)
            runs.append(answers(right.tolist(), part=str(run)))
        rows = metrics_of(pl.concat(runs)).filter(dataset="a", metric="accuracy", definition="paper")
        assert rows.height == 80
        told[skill] = np.mean(10 ** rows["log10_tail"].to_numpy() <= 0.05)
    assert told[0.5] <= 0.06
    assert told[0.6] > 0.35  # as the best of six it would be told about once in a hundred runs


def test_a_mean_over_one_dataset_is_the_test_of_that_dataset_again() -> None:
    table = metrics_of(answers([[YES], [YES], [NO]])).filter(metric="accuracy")
    assert table["n_tests"].to_list() == [2, 2]
    tests = [*TEST_OF_GUESSING, *TEST_OF_MAJORITY, "verdict"]
    assert table.select(tests).unique().height == 1


def test_the_bayesian_interval_is_that_of_the_share_of_queries() -> None:
    # Right 1, 1/2 and 0 of two prompts each: 1.5 of 3 queries.
    row = metrics_of(answers([[YES, YES], [YES, NO], [NO, NO]])).filter(metric="accuracy", dataset="a")
    assert row.select("credible_low", "credible_high").row(0) == pytest.approx(stats.beta(2, 2).interval(0.95))


def test_a_prompt_counts_once_and_the_query_with_most_prompts_decides() -> None:
    rows = pl.DataFrame(
        {"choice": ["x"] * 5 + ["y"], "query_id": [0, 0, 0, 1, 1, 0], "prompt_id": ["p", "p", "q", "r", "s", "p"]}
    )
    assert prompts_tried(rows, ["choice"]).rows() == [("x", 2), ("y", 1)]


@pytest.mark.parametrize("alike", [Fraction(0), Fraction(1, 2), Fraction(1)])
def test_guessing_gets_a_row_of_the_table_no_more_often_than_its_tail_says(alike: Fraction) -> None:
    # Three queries of two labels, two prompts each. With probability `alike` a query's second guess repeats the first,
    # else it is made anew: none, one or both right with these chances. Their sum over the queries, exactly:
    one = [(1 + alike) / 4, (1 - alike) / 2, (1 + alike) / 4]
    total = [Fraction(1)]
    for _ in range(3):
        total = [
            sum((total[k - j] * one[j] for j in range(3) if 0 <= k - j < len(total)), Fraction(0))
            for k in range(len(total) + 2)
        ]
    for n_right in range(4, 7):  # above chance
        flat = [place < n_right for place in range(6)]
        tail = baselines(answers([flat[0:2], flat[2:4], flat[4:6]]))["log10_tail"]
        assert isinstance(tail, float)
        assert float(sum(total[n_right:])) <= 10**tail * (1 + 1e-12)


def test_the_mean_over_label_spaces_is_compared_with_guesses_of_their_chances() -> None:
    # A query of two labels and one of four: none right 1/2 x 3/4, so that one or more are with 5/8.
    two, four = answers([[YES, YES]]), answers([[NO, NO]], n_labels=4, dataset="b")
    found = baselines(pl.concat([two, four]), dataset=MEAN_OVER_DATASETS)
    assert (found["chance"], found["max_random"]) == (0.375, pytest.approx(0.375, rel=1e-12))
    assert found["log10_tail"] == pytest.approx(math.log10(5 / 8), rel=1e-12)


@pytest.mark.parametrize("right", [[[YES, YES]], [[YES], [YES]], [[YES] * 4]])  # other queries, other requests, or both
def test_a_mean_over_datasets_of_different_size_is_no_share_of_right_answers(right: list[list[bool]]) -> None:
    small, large = answers(right, n_labels=4), answers([[YES, YES], [NO, YES]], dataset="b")
    found = baselines(pl.concat([small, large]), dataset=MEAN_OVER_DATASETS)
    assert found == {"chance": 0.375, "majority": 1.0, "tries": 1} | dict.fromkeys(
        ("max_random", "log10_tail", "verdict", "n_needed")
    )


def test_queries_that_were_asked_unequally_often_make_no_count_of_right_answers() -> None:
    found = baselines(answers([[YES, YES], [YES]]))
    assert (found["chance"], found["max_random"], found["log10_tail"], found["verdict"]) == (0.5, None, None, None)


def test_one_label_alone_cannot_be_missed_and_has_no_verdict() -> None:
    only = answers([[YES], [YES]], label_names=["0"], label_probs=[1.0])
    found = baselines(only)
    assert (found["chance"], found["max_random"], found["verdict"]) == (1.0, None, None)


def test_the_majority_share_is_that_of_the_most_frequent_gold_label_and_chance_counts_labels_that_never_occur() -> None:
    # Gold labels 0, 1, 1, 1 of five labels.
    gold = pl.when(pl.col("query_id") == 0).then(0).otherwise(1)
    found = baselines(answers([[YES]] * 4, n_labels=5, gold=gold))
    assert (found["chance"], found["majority"]) == (0.2, 0.75)


def test_only_accuracies_have_baselines() -> None:
    table = metrics_of(answers([[YES, NO], [YES, YES]])).filter(pl.col("metric") != "accuracy")
    assert table.height == 2 * (len(METRICS) - 1 + len(SCORE_PARTS))
    assert table.select(COLUMNS).null_count().row(0) == (table.height,) * len(COLUMNS)


def test_tries_of_prompts_that_are_not_named_are_refused() -> None:
    unnamed = pl.DataFrame({"query_id": [0, 0], "prompt_id": [None, "a"]})
    with pytest.raises(MetricError, match="1 of 2 predictions have no prompt_id"):
        prompts_tried(unnamed)
