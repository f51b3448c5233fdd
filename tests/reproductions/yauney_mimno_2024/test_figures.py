"""Figures of the published experiments: lines lie where their numbers are."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import polars as pl
import pytest

from evaluator.report.figures import BLUE, GREY, VERMILION
from evaluator.reproductions.yauney_mimno_2024 import page as figures

Point = tuple[float, float]


def lines(svg: str) -> dict[str, list[Point]]:
    """aria-label or colour -> points, in pixels from the panel's top left corner."""
    found = {}
    for element in ElementTree.fromstring(svg).iter():
        if element.get("aria-roledescription") == "line mark" or "mark-line" in element.get("class", ""):
            for path in element.iter():
                if path.get("d"):
                    points = re.findall(r"[ML]?(-?[\d.e-]+),(-?[\d.e-]+)", path.get("d", ""))
                    name = path.get("aria-label") or path.get("stroke", "")
                    found[name] = [(float(x), float(y)) for x, y in points]
    return found


def curves() -> pl.DataFrame:
    rows = [
        {"model": model, "dataset": "t", "shots": shots, "tries": tries, "expected_maximum": value}
        | {"standard_tail": 0.5, "max_tail": 1.0}
        for model, shots, values in (("base", 1, (0.2, 0.4)), ("tuned", 4, (0.3, 0.6)))
        for tries, value in zip((1, 200), values, strict=True)
    ]
    return pl.DataFrame(rows)


def baselines() -> pl.DataFrame:
    rows = [
        {"dataset": "t", "rules": rules, "n": 9, "chance": chance, "tries": tries, "max_random": chance + tries / 1000}
        for rules, chance in (("released", 0.25), ("sound", 0.5))
        for tries in (1, 200)
    ]
    return pl.DataFrame(rows)


def test_search_lines_lie_where_their_accuracies_are() -> None:
    drawn = lines(figures.search_panel(curves(), baselines(), "base"))
    # From .2 to .7 (.5 + 200 / 1000), with 6% of that range as a margin on either side: .17 to .73.
    for name, values in {
        "base, 1-shot: 0.4 at 200 prompts": (0.2, 0.4),
        "tuned, 4-shot: 0.6 at 200 prompts": (0.3, 0.6),
        "Chance 0.25 of guessing, released rules": (0.25, 0.25),
        "Best of 200 0.7 of guessing, sound rules": (0.501, 0.7),
    }.items():
        (left, first), (right, last) = drawn[name]
        assert (left, right) == pytest.approx((0, figures.SEARCH.width), abs=0.6)
        expected = [figures.SEARCH.height * (0.73 - value) / 0.56 for value in values]
        assert [first, last] == pytest.approx(expected, abs=0.6)
    assert len(drawn) == 6


def test_tails_have_an_axis_from_0_to_1() -> None:
    svg = figures.tail_panel(curves(), "max_tail", "base")
    assert [y for points in lines(svg).values() for _, y in points] == pytest.approx([0] * 4, abs=0.6)
    assert {"0.0", "0.5", "1.0"} <= {*ElementTree.fromstring(svg).itertext()}


def test_roc_curves_pass_through_the_rates_of_each_verdict() -> None:
    trials = pl.DataFrame(
        {
            "above_standard_on_train": [True, True, True, False],
            "above_max_on_train": [True, False, False, False],
            "log10_max_tail": [-3.0, -2.0, -1.0, -0.5],
            "above_standard_on_test": [True, False, True, False],
        }
    )
    drawn = lines(figures.ranking_panel(trials, "ROC"))
    side = figures.SQUARE.width
    # Standard takes both right ones and one of two wrong ones; max one right one and no wrong one.
    expected = {
        BLUE: [(0, side), (side / 2, 0), (side, 0)],
        VERMILION: [(0, side), (0, side / 2), (side, 0)],
        GREY: [(0, side), (0, side / 2), (side / 2, side / 2), (side / 2, 0), (side, 0)],
    }
    for colour, points in expected.items():
        assert np.array(drawn[colour]) == pytest.approx(np.array(points))


def test_a_histogram_has_a_bar_a_count_and_a_line_at_its_number() -> None:
    # Drawn from 0 to .75: the counts that occur, .25 and .5, and a step of .25 on either side.
    histogram = pl.DataFrame({"accuracy": [0.0, 0.25, 0.5, 0.75, 1.0], "prompts": [0.0, 0.5, 0.5, 0.0, 0.0]})
    svg = figures.histogram_panel(histogram, "prompts", BLUE, 0.5)
    (group,) = [e for e in ElementTree.fromstring(svg).iter() if "mark-rect role-mark" in e.get("class", "")]
    assert len(group) == 4
    (rule,) = [e for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("line") and e.get("stroke") == BLUE]
    found = re.match(r"translate\(([-\d.]+),", rule.get("transform", ""))
    assert found
    assert float(found[1]) == pytest.approx(figures.HISTOGRAM.width * 0.5 / 0.75, abs=0.6)
