"""Accuracies by PVI and V-information by hand, by trying every order of ties, and by SciPy."""

from itertools import permutations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evaluator.suites.in_context_pvi.schema import PVI, PVI_MEANS, PVI_RUN, PVI_SUMMARY
from evaluator.suites.in_context_pvi.summary import judged_queries, means_table, summary_table
from tests.suites.in_context_pvi.pvi_answers import random_table, run_table

PARTS = {"fifth": 5, "half": 2}


def summary(table: pl.DataFrame) -> pl.DataFrame:
    return summary_table(table, judged_queries(table))


def only(table: pl.DataFrame) -> dict[str, float]:
    (row,) = summary(table).to_dicts()
    return row


def test_a_run_of_ten_is_worked_by_hand() -> None:
    # From the lowest: -4 -3 -2 -1 0 1 2 3 4 5, right at -3 and from 1 up but for 3. Lowest two: 1 of 2; lowest five:
    # 1 of 5; highest two: 2 of 2; highest five (1 to 5): 4 of 5. Right: (-3 + 1 + 2 + 4 + 5) / 5 = 1.8.
    # Wrong: (-4 - 2 - 1 + 0 + 3) / 5 = -0.8. Mean of all: 0.5.
    values = [5.0, -4, 4, -3, 3, -2, 2, -1, 1, 0]
    right = {5, 4, 2, 1, -3}
    row = only(run_table(values, [value in right for value in values]))
    assert (row["n_queries"], row["n_missing"], row["n_unpredicted"], row["accuracy"]) == (10, 0, 0, 0.5)
    assert (row["lowest_fifth_accuracy"], row["highest_fifth_accuracy"]) == (0.5, 1.0)
    assert (row["lowest_half_accuracy"], row["highest_half_accuracy"]) == (0.2, 0.8)
    assert (row["right_pvi"], row["wrong_pvi"], row["v_information"]) == pytest.approx((1.8, -0.8, 0.5))
    assert [row[f"{end}_{name}_tied"] for end in ("lowest", "highest") for name in PARTS] == [0] * 4


def test_ties_at_the_border_count_in_part_and_are_stated() -> None:
    # Lowest fifth of five: one of the three at 1, of which one is right: 1/3. Lowest half: two of them, so 2/3 of 2.
    row = only(run_table([1.0, 1, 1, 2, 3], [True, False, False, True, True]))
    assert (row["lowest_fifth_accuracy"], row["lowest_half_accuracy"]) == pytest.approx((1 / 3, 1 / 3))
    assert (row["lowest_fifth_tied"], row["lowest_half_tied"]) == (3, 3)
    assert (row["highest_fifth_accuracy"], row["highest_half_accuracy"]) == (1, 1)
    assert (row["highest_fifth_tied"], row["highest_half_tied"]) == (0, 0)


def test_ties_that_all_fit_are_no_ties() -> None:
    row = only(run_table([1.0, 1, 2, 3], [True, False, True, True]))
    assert (row["lowest_half_accuracy"], row["lowest_half_tied"]) == (0.5, 0)


def test_where_all_pvis_are_one_number_every_part_has_the_accuracy_of_the_whole() -> None:
    row = only(run_table([2.0] * 4, [True, False, True, True]))
    assert [row[f"{end}_{name}_accuracy"] for end in ("lowest", "highest") for name in PARTS] == [0.75] * 4
    assert (row["v_information"], row["ci_low"], row["ci_high"]) == (2, None, None)


@given(st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=1, max_size=6))
def test_parts_are_the_mean_over_every_order_of_ties(queries: list[tuple[int, bool]]) -> None:
    row = only(run_table([float(value) for value, _ in queries], [right for _, right in queries]))
    for name, parts in PARTS.items():
        size = max(1, len(queries) // parts)
        orders = [sorted(order, key=lambda query: query[0]) for order in permutations(queries)]
        lowest = np.mean([[right for _, right in order[:size]] for order in orders])
        highest = np.mean([[right for _, right in order[-size:]] for order in orders])
        assert (row[f"lowest_{name}_accuracy"], row[f"highest_{name}_accuracy"]) == pytest.approx((lowest, highest))


@pytest.mark.parametrize("missing", [False, True])
def test_every_run_is_that_of_numpy_and_scipy(missing: bool) -> None:
    table = random_table(5, 203, missing=missing)
    found = summary(table)
    assert found.schema == PVI_SUMMARY
    assert found.height == 36
    for row in found.to_dicts():
        own = table.filter(**{name: row[name] for name in PVI_RUN})
        known = own.drop_nulls("pvi_bits")
        values, right = known["pvi_bits"].to_numpy(), known["correct"].to_numpy()
        in_order = right[values.argsort()]
        n_fifth, n_half = len(values) // 5, len(values) // 2
        lowest, highest = in_order[:n_fifth], in_order[-n_fifth:]
        low_half, high_half = in_order[:n_half], in_order[-n_half:]
        if row["definition"] == "released":  # strictly beyond a quantile: accuracy_quantile of the published utils.py
            lowest, highest = right[values < np.quantile(values, 0.2)], right[values > np.quantile(values, 0.8)]
            low_half, high_half = right[values < np.quantile(values, 0.5)], right[values > np.quantile(values, 0.5)]
        assert (row["n_queries"], row["n_missing"]) == (203, 203 - len(values))
        assert row["accuracy"] == pytest.approx(own["correct"].to_numpy().mean())
        for name, part in {
            "lowest_fifth": lowest, "highest_fifth": highest, "lowest_half": low_half, "highest_half": high_half
        }.items():  # fmt: skip
            assert row[f"{name}_accuracy"] == pytest.approx(part.mean())
            assert row[f"{name}_n"] == len(part)
        assert (row["right_pvi"], row["wrong_pvi"]) == pytest.approx((values[right].mean(), values[~right].mean()))
        low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
        assert (row["v_information"], row["ci_low"], row["ci_high"]) == pytest.approx((values.mean(), low, high))


def test_missing_numbers_are_counted_and_leave_the_accuracy_whole() -> None:
    row = only(run_table([1.0, None, None, -1], [True, False, None, None]))
    assert (row["n_queries"], row["n_missing"], row["n_unpredicted"]) == (4, 2, 2)
    # Right and wrong once each, of the two that have a prediction; the one with both numbers is right.
    assert (row["accuracy"], row["lowest_half_accuracy"], row["right_pvi"], row["wrong_pvi"]) == (0.5, 1, 1, None)
    assert row["v_information"] == 0


def test_a_run_without_any_pvi_keeps_its_row() -> None:
    row = only(run_table([None, None], [True, False]))
    assert (row["n_queries"], row["n_missing"], row["accuracy"]) == (2, 2, 0.5)
    absent = {name for name, value in row.items() if value is None}
    assert absent == set(PVI_SUMMARY) - {*PVI_RUN, "n_queries", "n_missing", "n_unpredicted", "n_tied", "accuracy"}


def test_released_parts_are_strictly_beyond_a_quantile_and_can_be_empty() -> None:
    # The second fifth of 1 1 2 3 4 is at place 0.8, so 1; below it is none. The fourth is at place 3.2: 3.2, so that
    # only 4 is above. The median is 2, which is in neither half: 1 1 below, of which one is right, and 3 4 above.
    row = only(run_table([1.0, 1, 2, 3, 4], [True, False, False, True, False], definition="released"))
    assert (row["lowest_fifth_accuracy"], row["lowest_fifth_n"], row["lowest_fifth_tied"]) == (None, 0, 2)
    assert (row["highest_fifth_accuracy"], row["highest_fifth_n"], row["highest_fifth_tied"]) == (0, 1, 0)
    assert (row["lowest_half_accuracy"], row["lowest_half_n"], row["lowest_half_tied"]) == (0.5, 2, 1)
    assert (row["highest_half_accuracy"], row["highest_half_n"], row["highest_half_tied"]) == (0.5, 2, 1)


def test_means_are_in_bits_and_beside_them_in_nats() -> None:
    for definition in ("paper", "released"):
        row = only(run_table([2.0, -1], [True, False], definition=definition))
        assert (row["v_information"], row["right_pvi"], row["wrong_pvi"]) == (0.5, 2, -1)
        nats = (row["v_information_nats"], row["right_pvi_nats"], row["wrong_pvi_nats"])
        assert nats == pytest.approx((0.34657359, 1.38629436, -0.69314718))  # times ln 2 = 0.69314718


def test_ties_and_drawn_tokens_that_are_no_label_are_counted() -> None:
    # Of four queries two have two labels of the highest score; under `released` for one a token is drawn that is no
    # label, which is wrong, and one has no prediction because it has no score.
    table = run_table([1.0, 2, 3, None], [True, False, False, None], definition="released").with_columns(
        n_highest_labels=pl.Series([1, 2, 2, None], dtype=pl.Int64),
        pred=pl.Series([0, 1, None, None], dtype=pl.Int64),
    )
    (row,) = summary_table(table, judged_queries(table), seed=7).to_dicts()
    assert (row["n_tied"], row["n_other_token"], row["n_unpredicted"], row["seed"]) == (2, 1, 1, 7)
    assert row["accuracy"] == pytest.approx(1 / 3)
    paper = only(table.with_columns(definition=pl.lit("paper")))
    assert (paper["n_tied"], paper["n_other_token"], paper["seed"]) == (2, None, None)


def test_row_order_does_not_matter_to_the_last_digit() -> None:
    table = random_table(6, ties=True)
    shuffled = table.sample(fraction=1, shuffle=True, seed=1)
    assert summary(shuffled.sort(*PVI_RUN, "query_id")).equals(summary(table))
    assert PVI.names() == shuffled.columns


def test_means_are_over_sets_then_shots_then_datasets_each_run_alike() -> None:
    runs = {(name, k, n): (len(name) + k) / (n + 2) for name in ("aa", "b") for k in (1, 2) for n in range(3)}
    rows = [
        {"dataset": name, "n_shots": k, "demonstration_set": n, "demonstrations": "random", "definition": "paper"}
        | {"accuracy": value, "highest_fifth_accuracy": value / 2, "wrong_pvi": None if n else -value}
        for (name, k, n), value in runs.items()
    ]
    found = means_table(pl.DataFrame(rows, schema=PVI_SUMMARY))
    assert found.schema == PVI_MEANS
    by_case = {(row["over"], row["dataset"], row["n_shots"]): row for row in found.to_dicts()}
    assert len(by_case) == 4 + 2 + 1

    def expected(dataset: str | None, n_shots: int | None) -> list[float]:
        return [value for (name, k, _), value in runs.items() if dataset in (None, name) and n_shots in (None, k)]

    for (_, name, n_shots), row in by_case.items():
        values = expected(None if name == "mean" else name, n_shots)
        assert row["n_runs"] == len(values)
        assert row["accuracy"] == pytest.approx(np.mean(values))
        assert row["highest_fifth_accuracy"] == pytest.approx(np.mean(values) / 2)
    # Where a run has no wrong prediction it has no mean PVI of them: set 0 alone counts.
    assert by_case["sets", "b", 1]["wrong_pvi"] == -runs["b", 1, 0]
    assert by_case["sets", "b", 1]["lowest_half_accuracy"] is None
