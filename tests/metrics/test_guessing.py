"""What stands beside an accuracy: hand-worked baselines, SciPy's, and tails that never claim too much."""

import math
from collections.abc import Sequence
from fractions import Fraction

import polars as pl
import pytest
from scipy import stats

from evaluator.errors import MetricError
from evaluator.metrics import METRICS
from evaluator.metrics.guessing import prompts_tried
from evaluator.metrics.score_decomposition import SCORE_PARTS
from evaluator.schemas import MEAN_OVER_DATASETS, PREDICTIONS, TEST_OF_GUESSING
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


def test_two_queries_behind_two_prompts_are_two_examples_and_two_tries() -> None:
    # 3 of 4 right, 1.5 of 2 queries, rounded down to 1. Of two guesses at two labels F = 1/4, 3/4, 1:
    # expected best of two (1 - 1/16 + 1 - 9/16) / 2 = 11/16; one or more right 1 - (1/4)^2 = 15/16.
    found = baselines(answers([[YES, YES], [YES, NO]]))
    assert found == {
        "chance": 0.5,
        "majority": 1.0,
        "max_random": pytest.approx(11 / 16, rel=1e-12),
        "tries": 2,
        "log10_tail": pytest.approx(math.log10(15 / 16), rel=1e-12),
        "verdict": "above both",
        "n_needed": None,
    }


def test_what_lies_between_has_a_tail_of_as_many_whole_queries_as_were_right() -> None:
    # One query of three labels: the best of two guesses gets 1 - (2/3)^2 = 5/9, and half a query right is none.
    found = baselines(answers([[YES, NO]], n_labels=3))
    assert found["max_random"] == pytest.approx(5 / 9, rel=1e-12)
    assert (found["log10_tail"], found["verdict"], found["n_needed"]) == (0.0, "between", None)


def test_an_accuracy_whose_lower_bound_is_above_chance_says_how_many_queries_would_tell_whatever_its_verdict() -> None:
    found = baselines(answers([[query < 18] for query in range(20)]))
    # 18 of 20, not chosen among prompts: the 80% bound of Clopper and Pearson; told by exact tails at level .05.
    bound = stats.binomtest(18, 20, alternative="greater").proportion_ci(0.8, method="exact").low
    sizes = range(1, 60)
    critical = [next(c for c in range(n + 2) if stats.binom.sf(c - 1, n, 0.5) <= 0.05) for n in sizes]
    power = [stats.binom.sf(c - 1, n, bound) for n, c in zip(sizes, critical, strict=True)]
    assert found["verdict"] == "above both"
    assert isinstance(found["n_needed"], int)
    assert power[found["n_needed"] - 1] >= 0.8 > power[found["n_needed"] - 2]


def test_an_accuracy_at_chance_is_below_both_and_needs_no_number() -> None:
    found = baselines(answers([[YES, NO], [NO, YES]]))
    assert (found["verdict"], found["n_needed"]) == ("below both", None)


@pytest.mark.parametrize(("n_right", "n_labels"), [(200, 4), (64, 3), (140, 2)])
def test_baseline_and_tail_are_those_of_scipys_binomial(n_right: int, n_labels: int) -> None:
    n, tries = 200, 2
    found = baselines(answers([[query < n_right] * 2 for query in range(n)], n_labels=n_labels))
    guesses = stats.binom(n, 1 / n_labels)
    expected = sum(1 - guesses.cdf(range(n)) ** tries) / n
    assert found["max_random"] == pytest.approx(expected, rel=1e-9)
    # 1 - (1 - s)^2 = s (2 - s) with s = P(X >= n_right), kept from cancelling.
    log10_survival = guesses.logsf(n_right - 1) / math.log(10)
    assert found["log10_tail"] == pytest.approx(log10_survival + math.log10(2 - 10**log10_survival), rel=1e-9)


def test_without_demonstrations_both_prompts_are_one_try_and_the_baseline_is_chance() -> None:
    same = answers([[YES, YES], [NO, NO]], prompt_id=pl.col("query_id").cast(pl.String))
    found = baselines(same)
    assert (found["tries"], found["max_random"]) == (1, 0.5)
    assert found["log10_tail"] == pytest.approx(math.log10(3 / 4), rel=1e-12)


def test_a_method_that_is_added_to_a_run_changes_no_baseline_of_another_but_the_number_of_tests() -> None:
    alone = answers([[YES, NO], [YES, YES]])
    others = [alone.with_columns(method=pl.lit(name), prompt_id=pl.col("prompt_id") + name) for name in ("b", "c")]
    columns = [*COLUMNS, "p_value"]
    vanilla = [
        metrics_of(run).filter(metric="accuracy", method="vanilla") for run in (alone, pl.concat([alone, *others]))
    ]
    assert vanilla[0].select(columns).equals(vanilla[1].select(columns))
    assert vanilla[0]["tries"].unique().to_list() == [2]
    assert [table["n_tests"].unique().to_list() for table in vanilla] == [[1], [3]]


def test_definitions_are_no_tries_and_are_tested_by_themselves() -> None:
    one = answers([[YES, NO], [YES, YES]])
    table = metrics_of(pl.concat([one, one.with_columns(definition=pl.lit("released"))])).filter(metric="accuracy")
    assert table["tries"].unique().to_list() == [2]
    assert table["n_tests"].unique().to_list() == [1]


def test_tests_are_corrected_over_datasets_and_methods_and_the_mean_over_several_datasets() -> None:
    right = [[query < 9] for query in range(10)]
    rows = [answers(right, dataset=dataset, method=method) for dataset in ("a", "b") for method in ("vanilla", "other")]
    table = metrics_of(pl.concat(rows)).filter(metric="accuracy")
    # 9 of 10 coin flips, four times: 11/1024 each. 18 of 20, twice.
    single, mean = 11 / 1024, stats.binom.sf(17, 20, 0.5)
    expected = {"a": single, "b": single, MEAN_OVER_DATASETS: mean}
    assert table["p_value"].to_list() == pytest.approx([expected[name] for name in table["dataset"]])
    corrected = {"a": 4 * single, "b": 4 * single, MEAN_OVER_DATASETS: 6 * mean}
    assert table["p_holm"].to_list() == pytest.approx([corrected[name] for name in table["dataset"]])
    assert table["n_tests"].to_list() == [6] * 6
    assert table["better_than_guessing"].to_list() == [name in ("a", "b", "mean") for name in table["dataset"]]


def test_a_mean_over_one_dataset_is_the_test_of_that_dataset_again() -> None:
    table = metrics_of(answers([[YES], [YES], [NO]])).filter(metric="accuracy")
    assert table["n_tests"].to_list() == [1, 1]
    assert table.select(TEST_OF_GUESSING.keys()).unique().height == 1


def test_the_bayesian_interval_is_that_of_the_share_of_queries() -> None:
    # Right 1, 1/2 and 0 of two prompts each: 1.5 of 3 queries.
    row = metrics_of(answers([[YES, YES], [YES, NO], [NO, NO]])).filter(metric="accuracy", dataset="a")
    assert row.select("credible_low", "credible_high").row(0) == pytest.approx(stats.beta(2, 2).interval(0.95))


def test_a_prompt_counts_once_and_the_query_with_most_prompts_decides() -> None:
    rows = pl.DataFrame(
        {"choice": ["x"] * 5 + ["y"], "query_id": [0, 0, 0, 1, 1, 0], "prompt_id": ["p", "p", "q", "r", "s", "p"]}
    )
    assert prompts_tried(rows, ["choice"]).rows() == [("x", 2), ("y", 1)]


def test_datasets_and_parts_have_their_own_tries() -> None:
    elsewhere = {"dataset": "b", "part": "other"}
    one = answers([[YES], [YES]])
    parts = [answers([[YES, NO], [YES, YES]], **{name: value}) for name, value in elsewhere.items()]
    table = metrics_of(pl.concat([one, *parts])).filter(metric="accuracy")
    tries = {(part, dataset): tries for part, dataset, tries in table.select("part", "dataset", "tries").rows()}
    assert tries == {
        ("part", "a"): 1,
        ("part", "b"): 2,
        ("part", MEAN_OVER_DATASETS): 2,
        ("other", "a"): 2,
        ("other", MEAN_OVER_DATASETS): 2,
    }


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
    for n_right in range(7):
        flat = [place < n_right for place in range(6)]
        tail = baselines(answers([flat[0:2], flat[2:4], flat[4:6]]))["log10_tail"]
        assert isinstance(tail, float)
        assert float(sum(total[n_right:])) <= 10**tail * (1 + 1e-12)


def test_the_mean_over_label_spaces_is_compared_with_guesses_of_their_chances() -> None:
    # A query of two labels and one of four, tried twice: none right 1/2 x 3/4, both 1/2 x 1/4; F = 3/8, 7/8, 1.
    # Expected best of two (1 - 9/64 + 1 - 49/64) / 2 = 70/128. One right: 1 - (3/8)^2 = 55/64.
    two, four = answers([[YES, YES]]), answers([[NO, NO]], n_labels=4, dataset="b")
    found = baselines(pl.concat([two, four]), dataset=MEAN_OVER_DATASETS)
    assert found["chance"] == 0.375
    assert found["max_random"] == pytest.approx(70 / 128, rel=1e-12)
    assert found["log10_tail"] == pytest.approx(math.log10(55 / 64), rel=1e-12)
    assert (found["tries"], found["verdict"]) == (2, "between")  # accuracy 1/2


def test_a_mean_over_datasets_of_different_size_is_no_share_of_right_answers() -> None:
    small, large = answers([[YES, YES]], n_labels=4), answers([[YES, YES], [NO, YES]], dataset="b")
    found = baselines(pl.concat([small, large]), dataset=MEAN_OVER_DATASETS)
    assert found == {"chance": 0.375, "majority": 1.0, "tries": 2} | dict.fromkeys(
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


def test_predictions_that_do_not_name_their_prompt_are_refused() -> None:
    unnamed = pl.when(pl.col("query_id") == 0).then(pl.col("prompt_id"))
    with pytest.raises(MetricError, match="1 of 2 predictions have no prompt_id"):
        metrics_of(answers([[YES], [YES]], prompt_id=unnamed))
