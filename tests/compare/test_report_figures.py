"""Frames to scaling figures: where marks lie, and that names stay text."""

import re
import xml.etree.ElementTree as ElementTree

import polars as pl
import pytest

from evaluator.compare import report_figures as figures
from tests.report.test_figures import EVIL, marks

NO_LINE = pl.DataFrame(schema={"n_parameters": pl.Int64, "value": pl.Float64})


def points(counts: list[int], values: list[float], name: str = "acme/tiny") -> pl.DataFrame:
    return pl.DataFrame(
        {"number": range(1, len(counts) + 1), "n_parameters": counts, "value": values}
        | {"ci_low": [value - 0.1 for value in values], "ci_high": [None] + [value + 0.1 for value in values[1:]]}
        | {"description": [f"{name}: {value}" for value in values]},
    )


def places(svg: str) -> list[tuple[float, float]]:
    """Return the positions of the visible points; a transparent one lies over each."""
    found = [re.match(r"translate\(([-\d.]+),([-\d.]+)\)", mark.get("transform", "")) for mark in marks(svg, "symbol")]
    return [(float(match[1]), float(match[2])) for match in found if match][: len(found) // 2]


def test_points_lie_on_a_logarithmic_axis_of_parameters() -> None:
    # From 2 million less a factor of 2 to 32 million more: 1 to 64 million, so that 8 million lies halfway.
    svg = figures.scaling_figure(points([2 * 10**6, 8 * 10**6, 32 * 10**6], [0.2, 0.4, 0.6]), NO_LINE)
    assert [x / figures.SMALL.width for x, _ in places(svg)] == pytest.approx([1 / 6, 3 / 6, 5 / 6], abs=0.004)
    heights = [y for _, y in places(svg)]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.1)
    assert heights[0] > heights[2]


def test_billions_are_named_so() -> None:
    svg = figures.scaling_figure(points([10**8, 10**9, 10**11], [0.2, 0.4, 0.6]), NO_LINE)
    labels = re.findall(r">([\d.]+[A-Z])<", svg)
    assert labels == ["100M", "1B", "10B", "100B"]


def test_models_of_one_size_are_drawn_too() -> None:
    svg = figures.scaling_figure(points([10**9, 10**9], [0.2, 0.4]), NO_LINE)
    assert [x / figures.SMALL.width for x, _ in places(svg)] == pytest.approx([0.5, 0.5], abs=0.004)


def test_each_point_has_its_models_number_and_its_description() -> None:
    svg = figures.scaling_figure(points([10**6, 10**9], [0.2, 0.4]), NO_LINE)
    assert [text.text for text in marks(svg, "text") if text.text in ("1", "2")] == ["1", "2"]
    assert [mark.get("aria-label") for mark in marks(svg, "symbol")][2:] == ["acme/tiny: 0.2", "acme/tiny: 0.4"]


def test_the_line_goes_from_one_end_to_the_other() -> None:
    line = pl.DataFrame({"n_parameters": [10**6, 10**8], "value": [0.2, 0.6]})
    svg = figures.scaling_figure(points([10**6, 10**8], [0.2, 0.6]), line)
    (drawn,) = marks(svg, "line")
    ends = [float(number) for number in re.findall(r"[-\d.]+", drawn.get("d", ""))]
    (x_first, y_first), (x_last, y_last) = places(svg)
    assert ends == pytest.approx([x_first, y_first, x_last, y_last], abs=0.1)


def test_figures_on_one_scale_have_the_same_ticks() -> None:
    frames = [points([10**6, 10**8], values) for values in ([0.0, 0.1], [0.5, 0.9])]
    limits = figures.value_limits(frames, 0)
    assert limits[0] < -0.1
    assert limits[1] > 1.0
    first, second = (
        re.findall(r">(−?\d\.\d+)<", figures.scaling_figure(frame, NO_LINE, limits=limits)) for frame in frames
    )
    assert first == second != []


def test_a_name_in_a_scaling_figure_is_text_and_never_markup() -> None:
    root = ElementTree.fromstring(figures.scaling_figure(points([10**6, 10**8], [0.1, 0.2], EVIL), NO_LINE))
    assert [element.tag for element in root.iter() if element.tag.endswith("script")] == []
    assert any(EVIL in element.get("aria-label", "") for element in root.iter())


def test_numbers_of_models_of_one_size_and_value_do_not_lie_on_one_another() -> None:
    svg = figures.scaling_figure(points([10**9, 10**9, 10**9], [0.2, 0.2, 0.21]), NO_LINE)
    numbers = [text.get("transform", "") for text in marks(svg, "text") if text.text in ("1", "2", "3")]
    found = [tuple(map(float, re.findall(r"[-\d.]+", transform))) for transform in numbers]
    apart = [abs(a[0] - b[0]) > 10 or abs(a[1] - b[1]) > 8 for i, a in enumerate(found) for b in found[:i]]
    assert apart == [True] * 3
