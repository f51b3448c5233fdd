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
        | {"chance": [0.5, 0.25], "max_random": [0.625, None], "majority": [None, None]}
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


def test_points_and_intervals_lie_where_their_values_are() -> None:
    svg = figures.interval_figure(interval_rows())
    points = [x_of(mark) for mark in marks(svg, "symbol")]
    assert points == pytest.approx([0.25 * figures.INTERVAL_WIDTH, 0.5 * figures.INTERVAL_WIDTH], abs=0.6)
    rules = [(x_of(mark), abs(float(mark.get("x2", "nan")))) for mark in marks(svg, "rule")]
    lengths = [length / figures.INTERVAL_WIDTH for _, length in rules]
    assert lengths == pytest.approx([0.375, 0.375])  # 0.5 - 0.125 and 0.75 - 0.375


def test_the_way_from_chance_to_max_random_is_shaded_where_both_are_known() -> None:
    svg = figures.interval_figure(interval_rows())
    # Of two rows one has no max random; 0.5 to 0.625 of a width of 320 is 160 to 200.
    shaded = [mark.get("d", "") for mark in marks(svg, "rect") if mark.get("opacity") == "0.3"]
    assert [re.match(r"M([-\d.]+),[-\d.]+h([\d.]+)", path).groups() for path in shaded] == [("160", "40")]  # type: ignore[union-attr]
    assert figures.INTERVAL_WIDTH == 320


def test_an_empty_bin_draws_no_point() -> None:
    bins = pl.DataFrame(
        {"bin_low": [0.4, 0.5], "bin_high": [0.5, 0.6], "n_requests": [0, 8]}
        | {"mean_confidence": [None, 0.55], "accuracy": [None, 0.25]},
    )
    svg = figures.reliability_figure(bins)
    (point,) = marks(svg, "symbol")
    assert x_of(point) == pytest.approx(0.55 * figures.PANEL_WIDTH, abs=0.6)
    assert "Confidence 0.5 to 0.6: 8 predictions, mean confidence 0.55, accuracy 0.25" in svg


def test_a_name_in_a_figure_is_text_and_never_markup() -> None:
    root = ElementTree.fromstring(figures.interval_figure(interval_rows(EVIL)))
    assert [element.tag for element in root.iter() if element.tag.endswith("script")] == []
    assert any(EVIL in element.get("aria-label", "") for element in root.iter())


def test_the_same_frame_is_drawn_the_same_way_twice() -> None:
    assert figures.interval_figure(interval_rows()) == figures.interval_figure(interval_rows())
