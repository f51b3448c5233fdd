"""What every page has in common, on pages of sections that are made here."""

from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import jinja2
import pytest

from evaluator.report.page import Header, write_page
from evaluator.report.section import Section, core_template
from evaluator.report.sections.run_record import RecordContext

HEADER = Header(kicker="k", heading="<script>no()</script>", subject="s")


def record(anchor: str, **fields: object) -> Section:
    context = RecordContext("<b>", [])
    return Section(
        anchor=anchor, title=f"Title {anchor}", template=core_template("record.html"), context=context, **fields
    )  # type: ignore[arg-type]


def written(path: Path, *sections: Section) -> str:
    return write_page(path / "out.html", "t", HEADER, sections).read_text("utf-8")


def test_a_page_allows_the_one_script_that_it_holds(tmp_path: Path) -> None:
    page = written(tmp_path, record("a"))
    (script,) = (part.partition("</script>")[0] for part in page.split("<script>")[1:])
    assert f"script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'; " in page
    assert page.count("<script") == 1


def test_what_a_page_shows_is_escaped(tmp_path: Path) -> None:
    page = written(tmp_path, record("a"))
    assert "<h1>&lt;script&gt;no()&lt;/script&gt;</h1>" in page
    assert "<pre>&lt;b&gt;</pre>" in page


def test_a_variable_that_a_template_lacks_is_an_error(tmp_path: Path) -> None:
    lacking = Section(anchor="a", title="A", template=core_template("record.html"), context={"groups": []})
    with pytest.raises(jinja2.UndefinedError, match="command"):
        written(tmp_path, lacking)


def test_the_contents_lead_to_the_sections_that_name_themselves(tmp_path: Path) -> None:
    page = written(tmp_path, record("a", navigation="First"), record("b"), record("c", navigation="Last"))
    assert [part.partition("</a>")[0] for part in page.split('<a href="#')[1:]] == ['a">First', 'c">Last']


def test_head_and_controls_are_made_of_what_sections_say_wherever_they_lie(tmp_path: Path) -> None:
    inner = record("b", notes=("Know this.",), definitions={"paper": "its formulas"}, datasets=("zoo", "abc"))
    page = written(tmp_path, record("a", sections=(inner,)), record("c", datasets=("abc", "mid")))
    assert "<li>Know this.</li>" in page
    assert page.count('name="definition"') == 1
    assert [part.partition('"')[0] for part in page.split('name="dataset" value="')[1:]] == ["zoo", "abc", "mid"]


def test_a_folded_section_is_opened_by_its_title(tmp_path: Path) -> None:
    page = written(tmp_path, record("a", is_folded=True))
    assert '<details id="a" class="folded">\n<summary><b>Title a</b></summary>' in page
