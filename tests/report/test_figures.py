"""Frames to figures: where marks lie, and that names stay text."""

import re
import xml.etree.ElementTree as ElementTree

import polars as pl
import pytest

from evaluator.report import figures

EVIL = "</text></svg><script>alert(1)</script>\"'&"


def interval_rows(dataset: str = "zoo") -> pl.DataFrame:
    return pl.DataFrame(
        {"dataset": [dataset, "other"], "value": [0.25, 0.5], "ci_low": [0.125, 0.375], "ci_high": [0.5, 0.75]}
        | {"chance": [0.5, 0.25], "majority": [None, None]}
        | {"description": [f"{dataset}: 0.250", "other: 0.500"]},
        schema_overrides={"majority": pl.Float64},
    )


def marks(svg: str, kind: str) -> list[ElementTree.Element]:
    """The drawn elements of all mark groups of one kind, in drawing order."""
    groups = (
        group for group in ElementTree.fromstring(svg).iter() if f"mark-{kind} role-mark" in group.get("class", "")
    )
    return [mark for group in groups for mark in group]


def x_of(mark: ElementTree.Element) -> float:
    found = re.match(r"translate\(([-\d.]+),", mark.get("transform", ""))
    assert found
    return float(found[1])


def test_the_line_of_risk_and_coverage_begins_at_no_answer() -> None:
    points = pl.DataFrame({"threshold": [0.9, 0.5], "share": [0.5, 1.0], "accuracy": [0.9, 0.8]})
    svg = figures.risk_coverage_figure(points.with_columns(accuracy_low=0.7, accuracy_high=0.95)[::-1])
    # The area to hover over: half of the width up to the first point, the rest up to the second.
    assert [mark.get("d", "").partition("v")[0] for mark in marks(svg, "rect")] == ["M0,0h75", "M75,0h75"]


def test_points_and_intervals_lie_where_their_values_are() -> None:
    svg = figures.interval_rows(interval_rows())
    points = [x_of(mark) for mark in marks(svg, "symbol")]
    assert points == pytest.approx([0.25 * figures.INTERVALS.width, 0.5 * figures.INTERVALS.width], abs=0.6)
    rules = [(x_of(mark), abs(float(mark.get("x2", "nan")))) for mark in marks(svg, "rule")]
    lengths = [length / figures.INTERVALS.width for _, length in rules]
    assert lengths == pytest.approx([0.375, 0.375])  # 0.5 - 0.125 and 0.75 - 0.375


def test_an_empty_bin_draws_no_point_and_a_bin_of_one_prediction_does() -> None:
    bins = pl.DataFrame(
        {"bin_low": [0.4, 0.5, 0.6], "bin_high": [0.5, 0.6, 0.7], "n_requests": [0, 8, 1]}
        | {"mean_confidence": [None, 0.55, 0.65], "accuracy": [None, 0.25, 1.0]},
    )
    svg = figures.reliability_figure(bins)
    places = [x_of(point) / figures.PANEL.width for point in marks(svg, "symbol")]
    assert places == pytest.approx([0.55, 0.65], abs=0.004)
    assert "Confidence 0.5 to 0.6: 8 predictions, mean confidence 0.55, accuracy 0.25" in svg


def test_a_point_of_a_reliability_diagram_grows_with_the_share_of_its_bin() -> None:
    bins = pl.DataFrame(
        {"bin_low": [0.4, 0.5], "bin_high": [0.5, 0.6], "n_requests": [25, 75]}
        | {"mean_confidence": [0.45, 0.55], "accuracy": [0.5, 0.25]},
    )
    paths = [mark.get("d", "") for mark in marks(figures.reliability_figure(bins), "symbol")]
    radii = [float(path.removeprefix("M").partition(",")[0]) for path in paths]
    # The square around a point has an area from 12 to 420: with a quarter of all 114, with three quarters 318.
    assert [(2 * radius) ** 2 for radius in radii] == pytest.approx([114, 318], rel=0.01)


def test_a_name_in_a_figure_is_text_and_never_markup() -> None:
    root = ElementTree.fromstring(figures.interval_rows(interval_rows(EVIL)))
    assert [element.tag for element in root.iter() if element.tag.endswith("script")] == []
    assert any(EVIL in element.get("aria-label", "") for element in root.iter())


def test_the_same_frame_is_drawn_the_same_way_twice() -> None:
    assert figures.interval_rows(interval_rows()) == figures.interval_rows(interval_rows())


def strip_svg(dots: list[float]) -> str:
    rows = interval_rows().drop("chance", "majority")
    return figures.interval_rows(rows, pl.DataFrame({"dataset": ["zoo"] * len(dots), "value": dots}))


def test_a_strip_has_a_dot_a_value_and_the_mean_over_them() -> None:
    found = [x_of(mark) / figures.INTERVALS.width for mark in marks(strip_svg([0.125, 0.375, 0.5]), "symbol")]
    assert found == pytest.approx([0.125, 0.375, 0.5, 0.25, 0.5], abs=0.002)  # the last two are the rows' means


def test_accuracies_lie_at_their_noise_rates_and_chance_on_a_level_line() -> None:
    rates, accuracies = [0.0, 0.25, 0.5, 0.75, 1.0], [0.75, 0.5, 0.5, 0.25, 0.125]
    points = pl.DataFrame({"noise_rate": rates, "accuracy": accuracies, "description": ["-"] * 5})
    drawn = figures.noise_figure(points, 0.25)
    assert [x_of(mark) / figures.PANEL.width for mark in marks(drawn, "symbol")] == pytest.approx(rates)
    chance, line = (mark.get("d") for mark in marks(drawn, "line"))
    # Downwards from the top of a panel 150 high: 0.25 is at 112.5, 0.75 at 37.5, 0.5 at 75 and 0.125 at 131.25.
    assert chance == "M0,112.5L150,112.5"
    assert line == "M0,37.5L37.5,75L75,75L112.5,112.5L150,131.25"


def test_chance_that_is_not_known_is_not_drawn() -> None:
    points = pl.DataFrame({"noise_rate": [0.0, 1.0], "accuracy": [0.5, 0.25], "description": ["-"] * 2})
    drawn = [mark.get("d") for mark in marks(figures.noise_figure(points, None), "line")]
    assert [path for path in drawn if path] == ["M0,75L150,112.5"]
