"""Tables of total error: cells of a crossed design, means over datasets, and the intervals side by side."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.metrics.classification import Measured
from evaluator.metrics.total_error import (
    CrossedAnswers,
    Design,
    TotalErrors,
    components_and_design,
    crossed_cells,
    crossed_headline,
    total_error,
)
from evaluator.report.section import Group
from evaluator.report.table import Table
from evaluator.report.total_error import total_error_sections
from evaluator.schemas import DESIGN_STUDY, TOTAL_ERROR, VARIANCE_COMPONENTS
from tests.report.made_record import made_record
from tests.report.made_run import MadeRun

KEY = {"suite": "s", "part": "p", "method": "vanilla", "definition": "paper", "n_shots": 2, "metric": "accuracy"}
NAMES = {"query": "query", "level": "set", "interaction": "query x set and residual"}
CELLS = np.array([[0.0, 2.0], [2.0, 6.0], [4.0, 4.0]])[:, :, None]


def case(dataset: str, cells: np.ndarray = CELLS) -> CrossedAnswers:
    return CrossedAnswers({**KEY, "dataset": dataset}, cells, 1, NAMES, Design(len(cells), cells.shape[1], 1))


def test_queries_without_a_value_somewhere_are_left_out_and_counted() -> None:
    rows = pl.DataFrame(
        {"query_id": [7, 7, 3, 3, 5, 5], "set": [1, 0, 0, 1, 0, 1], "value": [1.0, 2.0, 3.0, 4.0, 5.0, None]}
    )
    cells, n_left_out = crossed_cells(rows.sample(fraction=1, shuffle=True, seed=0), "value", "set", None)
    assert cells[:, :, 0].tolist() == [[3.0, 4.0], [2.0, 1.0]]
    assert n_left_out == 1
    assert crossed_cells(rows.filter(query_id=5), "value", "set", None)[0].shape == (0, 2, 1)


def test_components_of_a_mean_are_the_means_of_the_datasets() -> None:
    # By hand in tests/statistics: 2, 4/3 and 2; twice the answers have four times the variance.
    components, design = components_and_design([case("a"), case("b", 2 * CELLS)])
    assert components.schema == VARIANCE_COMPONENTS
    assert design.schema == DESIGN_STUDY
    found = {(row["dataset"], row["component"]): row for row in components.to_dicts()}
    assert found["a", "set"]["variance"] == pytest.approx(4 / 3)
    assert found["mean", "query"]["variance"] == pytest.approx((2 + 8) / 2)
    assert found["a", "query"]["share"] == pytest.approx(2 / (2 + 4 / 3 + 2))
    assert (found["mean", "set"]["n_queries"], found["mean", "set"]["n_left_out"]) == (6, 2)
    # Now: query 2 / 3 + set (4/3) / 2 + rest 2 / 6 = 5/3; of the mean of two, a quarter of (5/3 + 4 x 5/3).
    now = design.filter(question="now")
    errors = dict(now.select("dataset", "standard_error").iter_rows())
    assert errors == pytest.approx({"a": np.sqrt(5 / 3), "b": np.sqrt(20 / 3), "mean": np.sqrt(25 / 12)})
    assert dict(now.select("dataset", "n_prompts").iter_rows()) == {"a": 6, "b": 6, "mean": 12}
    # Answers about the same inputs do not average out: half of (5/3 + 4 x 5/3).
    _, design = components_and_design([case("a"), case("b", 2 * CELLS)], independent=False)
    assert design.filter(question="now", dataset="mean")["standard_error"].item() == pytest.approx(np.sqrt(25 / 6))


def test_the_design_of_a_mean_has_the_queries_of_its_smallest_dataset() -> None:
    _, design = components_and_design([case("a"), case("b", CELLS[:2])])
    now = design.filter(question="now", dataset="mean").row(0, named=True)
    assert (now["n_queries"], now["n_levels"], now["n_prompts"]) == (2, 2, 2 * 2 * 2)


def test_both_intervals_are_students_and_the_total_one_counts_levels() -> None:
    unbounded = (-float("inf"), float("inf"))
    table = total_error([crossed_headline(case("a"), unbounded, "sets").row])
    assert table.schema == TOTAL_ERROR
    row = table.filter(dataset="a").row(0, named=True)
    # Means of queries 1, 4, 4: mean 3, standard error 1. Over both V = 5/3: 2/3 at two degrees of freedom, 1 at one.
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(stats.t.interval(0.95, 2, 3, 1))
    of_queries, of_sets = stats.t.ppf(0.975, [2, 1]) ** 2
    reach = np.sqrt(2 / 3 * of_queries + of_sets)
    assert (row["total_low"], row["total_high"]) == pytest.approx((3 - reach, 3 + reach))
    assert (row["ci_over"], row["total_over"]) == ("queries", "queries and sets")
    assert table.filter(dataset="mean").select("value", "total_low", "total_high").row(0) == pytest.approx(
        (3.0, row["total_low"], row["total_high"])
    )


def test_the_section_shows_both_intervals_and_what_more_prompts_change_for_the_mean_or_a_single_dataset() -> None:
    def section_of(*cases: CrossedAnswers) -> list[dict[str, Table]]:
        """Return the tables of each definition by name; the second has the same numbers."""
        totals = total_error([crossed_headline(each, (-math.inf, math.inf), "sets").row for each in cases])
        names, tables = ("total_error", "variance_components", "design_study"), (totals, *components_and_design(cases))
        twice = [pl.concat([rows, rows.with_columns(definition=pl.lit("released"))]) for rows in tables]
        made = MadeRun(record=made_record(), tables=dict(zip(names, twice, strict=True)))
        (section,) = total_error_sections(made, [str(each.key["dataset"]) for each in cases])
        groups = [block for block in section.content if isinstance(block, Group)]
        shown = [[group.content[0], *group.content[1].content] for group in groups]  # type: ignore[union-attr]
        return [{table.data["table"]: table for table in of_group} for of_group in shown]  # type: ignore[misc,union-attr]

    for tables in section_of(case("b", 2 * CELLS), case("a")):
        rows = [[cell.text for cell in cells] for _, cells in tables["total-error"].body]
        assert [(row[0], row[4]) for row in rows] == [("b", "6.000"), ("a", "3.000"), ("Mean over datasets", "4.500")]
        # The intervals of "a" as above: 3 plus or minus 4.303 and 13.183 by SciPy.
        assert rows[1][5:] == ["−1.303 to 7.303", "−10.183 to 16.183"]
        assert set(tables["variance-components"].rows["dataset"]) == {"a", "b", "mean"}
        assert set(tables["design-study"].rows["dataset"]) == {"mean"}
        assert "of each dataset" in tables["design-study"].caption
    for tables in section_of(case("a")):
        assert {dataset for table in tables.values() for dataset in table.rows["dataset"]} == {"a"}
        assert "of each dataset" not in tables["design-study"].caption


def test_one_set_has_no_total_interval_and_no_components() -> None:
    alone = case("a", CELLS[:, :1])
    components, design = components_and_design([alone])
    assert components.is_empty()
    assert design.is_empty()
    row = total_error([crossed_headline(alone, (0.0, 9.0), "sets").row]).row(0, named=True)
    assert (row["total_low"], row["total_high"], row["degrees_of_freedom"]) == (None, None, None)
    assert row["ci_low"] is not None
    assert total_error([]).is_empty()


@pytest.mark.parametrize("parts", [("wording", "order"), ("order", "wording")])
def test_a_factor_with_one_level_adds_nothing_to_the_errors_before_and_after_it(parts: tuple[str, str]) -> None:
    # A level of the order has the variance 4/3, as above, which is added to that over queries, 1; a wording adds 0.
    cells = {"wording": CELLS[:, :1], "order": CELLS}
    cases = [case("a", cells[part])._replace(key={**KEY, "dataset": "a", "part": part}) for part in parts]
    about = {**KEY, "dataset": "a", "n_queries": 3}
    value = Measured(3.0, 1.0, 2, "symmetric", -float("inf"), float("inf"))
    factors = {part: f"{part}s" for part in parts}
    total = TotalErrors("p", ["accuracy"], factors, lambda _: (), _cases=cases, _values=[(about, value)])
    (headline,) = total.headlines({"paper"})
    squares = {"wording": 0.0, "order": 4 / 3}
    expected = np.cumsum([1.0, *(squares[part] for part in parts)])
    assert [error**2 for error, _ in headline.errors if error is not None] == pytest.approx(expected.tolist())
    assert headline.factors == [factors[part] for part in parts]
