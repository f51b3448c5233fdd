"""Write a page from a list of sections: one HTML file that opens from disk without a network."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from evaluator.files.whole import write_bytes
from evaluator.report.html import asset, render
from evaluator.report.section import PackageFile, Section, core_template

STYLE = PackageFile("evaluator.report", "assets/page.css")
THEME = PackageFile("evaluator.report", "assets/theme.js")
SCRIPT = PackageFile("evaluator.report", "assets/page.js")


@dataclass(frozen=True, kw_only=True)
class Header:
    """Head of a page."""

    kicker: str
    heading: str
    subject: str
    warnings: tuple[tuple[str, str], ...] = ()  # subject (or "") and text of each
    about: Section | None = None  # what was run or compared; comes before the contents and the controls


def write_page(path: Path, title: str, header: Header, sections: Sequence[Section]) -> Path:
    """Write the page and return its path; an existing file is replaced. Equal data give equal bytes."""
    top = [*([header.about] if header.about else []), *sections]
    all_sections = [section for outer in top for section in _flat(outer)]
    script = Markup("\n").join(map(asset, _unique([SCRIPT, *(section.script for section in all_sections)])))
    style = Markup("\n").join(map(asset, _unique([STYLE, *(section.style for section in all_sections)])))
    page = render(
        core_template("page.html"),
        {
            "title": title,
            "header": header,
            "about": _html(header.about) if header.about else "",
            "notes": list(dict.fromkeys(note for section in all_sections for note in section.notes)),
            "navigation": [section for section in sections if section.navigation],
            "definitions": {name: meaning for section in all_sections for name, meaning in section.definitions.items()},
            "datasets": list(dict.fromkeys(name for section in all_sections for name in section.datasets)),
            "body": [_html(section) for section in sections],
            "theme": asset(THEME),
            "script": script,
            "style": style,
        },
    )
    write_bytes(path, page.encode("utf-8", "backslashreplace"))  # of a path that is no UTF-8
    return path


def _html(section: Section) -> Markup:
    body = render(section.template, section.context) if section.template else ""
    inner = [_html(subsection) for subsection in section.sections]
    return render(core_template("section.html"), {"section": section, "body": body, "inner": inner})


def _flat(section: Section) -> Iterator[Section]:
    yield section
    for inner in section.sections:
        yield from _flat(inner)


def _unique(files: Sequence[PackageFile | None]) -> list[PackageFile]:
    return list(dict.fromkeys(file for file in files if file))
