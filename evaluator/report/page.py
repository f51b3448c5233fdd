"""Write a page from a list of sections: one HTML file that opens from disk without a network.

The page of a board is a table with filters and a plot, which assets/board.js draws from data in the page.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from evaluator.errors import plural
from evaluator.files.digests import sealed
from evaluator.files.whole import write_bytes
from evaluator.report.section import Filled, Section, script_json

STYLE, THEME, SCRIPT = (f"evaluator.report:assets/{file}" for file in ("page.css", "theme.js", "page.js"))


@dataclass(frozen=True, kw_only=True)
class Header:
    """Texts at the top of a page."""

    kicker: str = "In-context classification"  # small line above the heading
    heading: str
    subject: str  # line below the heading and the answer: what the page is about
    answer: str = ""  # main result, in a sentence or two
    warnings: tuple[tuple[str, str], ...] = ()  # pairs of subject (or "") and text


def write_page(path: Path, title: str, header: Header, sections: Sequence[Section]) -> Path:
    """Write the page with a seal (files.digests.sealed) and return its path; equal arguments give equal bytes.

    Args:
        path: HTML file; an existing file is replaced.
        title: title of the document.
        header: texts at the top.
        sections: sections in order of the page.
    """
    every = [section for outer in sections for section in outer.with_inner()]
    page = render(
        "page.html",
        {
            "title": title,
            "header": header,
            "sections": sections,
            "notes": list(dict.fromkeys(note for section in every for note in section.notes)),
            "navigation": [section for section in sections if section.navigation],
            "definitions": {name: meaning for section in every for name, meaning in section.definitions.items()},
            "datasets": list(dict.fromkeys(name for section in every for name in section.datasets)),
            "theme": _joined([THEME]),
            "script": _joined([SCRIPT, *(section.script for section in every)]),
            "style": _joined([STYLE, *(section.style for section in every)]),
        },
    )
    write_bytes(path, sealed(page.encode("utf-8", "backslashreplace")))  # a path need not be UTF-8
    return path


def render(template: str, variables: Mapping[str, object]) -> Markup:
    """Fill a template: texts are escaped, Markup is not. Raises jinja2.UndefinedError for a missing variable.

    Args:
        template: file in evaluator/report/templates, or PACKAGE:FILE.
        variables: name -> value.
    """
    return Markup(_environment().get_template(template).render(variables))  # noqa: S704  (the environment escapes)


@cache
def _environment() -> jinja2.Environment:
    blocks: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    environment = jinja2.Environment(loader=jinja2.FunctionLoader(_text), autoescape=True, **blocks)
    environment.filters["digest"] = _digest
    environment.globals["render"] = render
    return environment


def _joined(scripts: Sequence[str]) -> Markup:
    """Concatenate the texts of scripts or styles, each file once.

    Args:
        scripts: names of files, as in _text; "" is skipped.
    """
    return Markup("\n".join(map(_text, dict.fromkeys(filter(None, scripts)))))  # noqa: S704  (files of packages)


def _text(name: str) -> str:
    """Return the text of the file PACKAGE:FILE, or of a file in evaluator/report/templates."""
    package, _, file = name.rpartition(":")
    return files(package or "evaluator.report").joinpath(file if package else f"templates/{file}").read_text("utf-8")


def _digest(script: str) -> str:
    """Return the SHA-256 of a script in base64, by which a content security policy allows it."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def write_board_page(path: Path, content: Mapping[str, Any]) -> Path:
    """Write the page of a board and return its path; equal content gives equal bytes.

    Args:
        path: HTML file; an existing file is replaced.
        content: the lists `runs`, `rows` and `published`, as runs/board.py makes them.
    """
    groups = {row["group"] for row in content["rows"] if row["rank"]}
    n_runs, n_rankings = plural(len(content["runs"]), "run"), plural(len(groups), "ranking")
    subject = f"{n_runs}, {n_rankings}: a run is ranked only among runs with the same prompts, method and definition"
    header = Header(heading="Board", subject=subject)
    section = Section(
        "board",
        "Runs",
        [Filled("board.html", {"data": script_json(content)})],
        style="evaluator.report:assets/board.css",
        script="evaluator.report:assets/board.js",
    )
    return write_page(path, "Board: in-context classification", header, [section])
