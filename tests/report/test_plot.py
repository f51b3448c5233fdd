"""Places, ticks and texts of a plot."""

import xml.etree.ElementTree as ElementTree

import pytest

from evaluator.report.plot import Axis, Plot, Room, Tick, figure_svg, log_axis, si_text, value_axis

ROOM = Room(left=10, right=10, top=10, bottom=10)


def labels(axis: Axis) -> list[str]:
    return [tick.label for tick in axis.ticks]


@pytest.mark.parametrize(
    ("domain", "count", "expected"),
    [
        ((0, 1), 5, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ((0.43, 0.58), 5, ["0.44", "0.46", "0.48", "0.50", "0.52", "0.54", "0.56", "0.58"]),
        ((-12, 31), 5, ["−10", "0", "10", "20", "30"]),
        ((-0.3, 0.2), 2, ["−0.2", "0.0", "0.2"]),
    ],
)
def test_ticks_stand_at_round_numbers_within_the_axis(
    domain: tuple[float, float], count: int, expected: list[str]
) -> None:
    assert labels(value_axis(domain, count=count)) == expected


def test_a_logarithmic_axis_gives_each_power_the_same_room() -> None:
    axis = log_axis((1, 10_000), "tries", [1, 100, 100_000])
    assert labels(axis) == ["1", "100"]
    assert [axis.share(value) for value in (1, 100, 10_000)] == [0, 0.5, 1]


def test_a_value_beyond_an_axis_lies_at_its_end() -> None:
    axis = value_axis((0, 1))
    assert (axis.share(-3), axis.share(7)) == (0, 1)


@pytest.mark.parametrize(("value", "text"), [(5, "5"), (1500, "1.5k"), (3e7, "30M"), (1e9, "1B")])
def test_large_numbers_are_named_by_their_power(value: float, text: str) -> None:
    assert si_text(value) == text


def test_steps_rise_before_they_go_on() -> None:
    plot = Plot(value_axis((0, 1)), value_axis((0, 1)), width=100, height=100, room=ROOM)
    plot.line([(0, 0), (0.5, 0.5), (1, 1)], colour="red", shape="step-before")
    assert 'd="M0,100L0,50L50,50L50,0L100,0"' in plot.svg()


def test_texts_are_escaped_and_long_labels_cut() -> None:
    y = Axis(domain=(0, 1), ticks=[Tick(0, "<b>"), Tick(1, "a-name-of-more-than-twenty")], title="<i>")
    plot = Plot(value_axis((0, 1)), y, width=10, height=10, room=ROOM)
    plot.band((0, 1), (0, 1), '"><script>')
    root = ElementTree.fromstring(plot.svg())
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"<b>", "<i>", "a-name-of-more-than…"} <= set(texts)
    assert [element.get("aria-label") for element in root.iter() if element.get("class") == "band"] == ['"><script>']


def test_plots_lie_side_by_side_and_below_one_another() -> None:
    plot = Plot(value_axis((0, 1)), value_axis((0, 1)), width=100, height=50, room=ROOM)
    svg = figure_svg([[plot, plot], [plot]])
    assert 'viewBox="0 0 240 140"' in svg
    assert [part.partition(")")[0] for part in svg.split("translate(")[1:]] == ["10,10", "130,10", "10,80"]
