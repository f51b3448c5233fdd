"""The figure over examples and tries: its panels, its lines, the files it is written to."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from evaluator.errors import BaselineError
from evaluator.report.random_baseline_figures import baseline_figure, write_figure


@pytest.fixture(scope="module")
def figure() -> ElementTree.Element:
    return ElementTree.fromstring(baseline_figure([0.5, 0.25], [10, 1_000], [1, 100]))


def texts(figure: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in figure.iter() if element.tag.endswith("text")]


def test_there_is_a_panel_for_the_baseline_and_one_for_each_number_of_tries(figure: ElementTree.Element) -> None:
    titles = [text for text in texts(figure) if "chance" in text]
    assert sorted(titles) == [
        "Expected accuracy, chance 0.25",
        "Expected accuracy, chance 0.5",
        "Tail, chance 0.25, 1 try",
        "Tail, chance 0.25, 100 tries",
        "Tail, chance 0.5, 1 try",
        "Tail, chance 0.5, 100 tries",
    ]


def test_contours_of_the_baseline_are_drawn_and_named(figure: ElementTree.Element) -> None:
    assert {"0.55", "0.6", "0.275", "0.3"} <= set(texts(figure))


def test_three_tails_are_drawn_in_every_panel(figure: ElementTree.Element) -> None:
    # four panels of tails with lines at 0.5, 0.1 and 0.01, each over ten areas or more
    lines = [group for group in figure.iter() if "mark-line" in group.get("class", "")]
    assert sum(len(group) == 1 for group in lines) >= 4 * 3
    areas = [group for group in figure.iter() if "mark-area" in group.get("class", "")]
    assert len(areas) >= 4 * 10


@pytest.mark.parametrize("name", ["figure.svg", "figure.html"])
def test_a_figure_is_one_file_that_asks_for_no_other(tmp_path: Path, name: str) -> None:
    write_figure(tmp_path / "new" / name, [0.5], [10, 100], [1, 10])
    written = (tmp_path / "new" / name).read_text(encoding="utf-8")
    assert written.startswith("<svg" if name.endswith("svg") else "<!doctype html>")
    assert "<script" not in written
    assert "href=" not in written.replace('xlink:href="#', "")
    assert "Expected accuracy, chance 0.5" in written


def test_a_figure_of_another_kind_is_refused_before_it_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match=r"\.svg or \.html; received .*figure\.png"):
        write_figure(tmp_path / "figure.png", [0.5], [10, 100], [1, 10])


@pytest.mark.parametrize(
    ("n", "tries", "message"),
    [
        ([100], [1, 10], "runs over n, so it takes two different numbers; received 100"),
        ([10, 100], [7, 7], "runs over tries, so it takes two different numbers; received 7"),
        ([0, 100], [1, 10], "n must be a whole number"),
    ],
)
def test_a_figure_over_nothing_is_refused(n: list[float], tries: list[float], message: str) -> None:
    with pytest.raises(BaselineError, match=message):
        baseline_figure([0.5], n, tries)
