"""What every page has in common, on pages of sections that are made here."""

from base64 import b64encode
from hashlib import sha256
from html import unescape
from pathlib import Path

import jinja2
import polars as pl
import pytest
from markupsafe import escape

from evaluator.redaction import csv_text
from evaluator.report import figures
from evaluator.report.page import Header, write_page
from evaluator.report.section import Filled, Panel, Panels, Section, script_json

HEADER = Header(kicker="k", heading="<script>no()</script>", subject="s")


LINES = "lines.html"


def record(anchor: str, **fields: object) -> Section:
    content = [Filled(LINES, {"lines": "<b>"})]
    return Section(anchor=anchor, title=f"Title {anchor}", **{"content": content, **fields})  # type: ignore[arg-type]


def written(path: Path, *sections: Section) -> str:
    return write_page(path / "out.html", "t", HEADER, sections).read_text("utf-8")


def test_a_page_allows_the_scripts_that_it_holds_and_no_other(tmp_path: Path) -> None:
    page = written(tmp_path, record("a"))
    scripts = [part.partition("</script>")[0] for part in page.split("<script>")[1:]]
    digests = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    assert f"script-src {allowed}; " in page
    assert page.count("<script") == len(scripts) == 2


def test_what_a_page_shows_is_escaped(tmp_path: Path) -> None:
    page = written(tmp_path, record("a"))
    assert "<h1>&lt;script&gt;no()&lt;/script&gt;</h1>" in page
    assert "<pre>&lt;b&gt;</pre>" in page


def test_a_variable_that_a_template_lacks_is_an_error(tmp_path: Path) -> None:
    lacking = Section(anchor="a", title="A", content=[Filled(LINES)])
    with pytest.raises(jinja2.UndefinedError, match="lines"):
        written(tmp_path, lacking)


def test_the_contents_lead_to_the_sections_that_name_themselves(tmp_path: Path) -> None:
    page = written(tmp_path, record("a", navigation="First"), record("b"), record("c", navigation="Last"))
    assert [part.partition("</a>")[0] for part in page.split('<a href="#')[1:]] == ['a">First', 'c">Last']


def test_the_keyboard_comes_to_a_link_past_the_contents_first(tmp_path: Path) -> None:
    page = written(tmp_path, record("a", navigation="First"), record("b", navigation="Last"))
    body = page.partition("<body>")[2]
    skip, contents, content = (
        body.index(text) for text in ('href="#content"', 'class="contents"', '<main id="content"')
    )
    assert skip < contents < content
    assert body.index("<a ") < contents


def test_without_a_script_the_contents_are_open_and_nothing_waits_for_one(tmp_path: Path) -> None:
    page = written(tmp_path, record("a", navigation="First"), record("b", navigation="Last"))
    assert '<details class="contents" open>' in page
    assert '<button type="button" class="colours" hidden>' in page


def test_every_figure_has_the_data_that_it_was_drawn_from(tmp_path: Path) -> None:
    points = pl.DataFrame({"noise_rate": [0.0, 1.0], "accuracy": [1 / 3, 0.25], "description": ["-", "-"]})
    drawn = escape(figures.noise_figure(points, 0.5))
    panel = Section(anchor="a", title="A", content=[Panels([Panel("</p>", [drawn])])])
    page = written(tmp_path, panel)
    data = unescape(page.partition('data-csv="')[2].partition('"')[0])
    assert data == "noise_rate,accuracy,chance\n0.0,0.3333333333333333,0.5\n1.0,0.25,0.5\n"
    assert page.count('<div class="drawn"') == page.count("<svg") == 1


def test_the_data_of_a_script_are_short_json_that_cannot_end_it() -> None:
    assert script_json({"é": [1, "</script>"]}) == r'{"é":[1,"\u003c/script>"]}'
    with pytest.raises(ValueError, match="not JSON compliant"):  # NaN, which a browser cannot read
        script_json(float("nan"))


def test_names_in_the_data_of_a_figure_stay_text() -> None:
    name = '"></div><script>no()</script>'
    rows = pl.DataFrame({"start": [name], "description": ["-"]})
    drawn = escape(figures.Drawing("<svg></svg>", csv_text(rows)))
    assert "<script>" not in drawn
    assert pl.read_csv(unescape(drawn.partition('data-csv="')[2].partition('"')[0]).encode())["start"].item() == name


def test_head_and_controls_are_made_of_what_sections_say_wherever_they_lie(tmp_path: Path) -> None:
    two = {"paper": "its formulas", "released": "its code"}
    inner = record("b", notes=("Know this.",), definitions=two, datasets=("zoo", "abc"))
    page = written(tmp_path, record("a", content=(inner,)), record("c", datasets=("abc", "mid")))
    assert "<li>Know this.</li>" in page
    assert page.count('name="definition"') == 2
    assert [part.partition('"')[0] for part in page.split('name="dataset" value="')[1:]] == ["zoo", "abc", "mid"]


def test_a_single_definition_is_explained_and_offers_no_choice(tmp_path: Path) -> None:
    page = written(tmp_path, record("a", definitions={"paper": "its formulas"}, datasets=("zoo",)))
    assert 'name="definition"' not in page
    assert "<dt>paper:</dt> <dd>its formulas</dd>" in page


def test_a_folded_section_is_opened_by_its_title(tmp_path: Path) -> None:
    page = written(tmp_path, record("a", is_folded=True))
    assert '<details id="a" class="folded">\n<summary><b>Title a</b></summary>' in page
