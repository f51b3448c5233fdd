"""What every page has in common, on a page that is made here."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path

import jinja2
import pytest

from evaluator.report import html_page
from evaluator.report.html_page import write_html_page

PAGE = """{% extends "layout.html" %}
{% block title %}{{ name }}{% endblock %}
{% block header %}<h1>{{ name }}</h1>{% endblock %}
{% block main %}<p>{{ metric | title_of }}</p>{% endblock %}
{% block footer %}.{% endblock %}
"""
SHOWN = {"name": "<script>no()</script>", "metric": "macro_f1"}

Written = Callable[..., str]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """The page's text; its template and scripts stand beside the layout all pages have."""
    for name in ("layout.html", "page.css"):
        (tmp_path / name).write_text((html_page.FOLDER / name).read_text("utf-8"), "utf-8")
    (tmp_path / "page.html").write_text(PAGE)
    (tmp_path / "own.js").write_text("abc")
    monkeypatch.setattr(html_page, "FOLDER", tmp_path)

    def write(shown: Mapping[str, str] = SHOWN, script: str | None = None) -> str:
        return write_html_page(tmp_path / "out.html", "page.html", shown, script=script).read_text("utf-8")

    return write


def test_a_page_without_a_script_allows_none(written: Written) -> None:
    page = written()
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\"" in page
    assert "<script" not in page


def test_a_page_allows_the_one_script_that_it_holds(written: Written) -> None:
    page = written(script="own.js")
    # SHA-256 of "abc", as FIPS 180-2 gives it in appendix B.1.
    digest = bytes.fromhex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    assert f"script-src 'sha256-{b64encode(digest).decode()}'; " in page
    assert page.count("<script>") == 1
    assert "<script>abc</script>" in page


def test_what_a_page_shows_is_escaped(written: Written) -> None:
    assert "<h1>&lt;script&gt;no()&lt;/script&gt;</h1>" in written()


def test_a_variable_that_a_template_lacks_is_an_error(written: Written) -> None:
    with pytest.raises(jinja2.UndefinedError, match="metric"):
        written({"name": "a"})
