"""Write the page of a board: a table with filters and a plot, both drawn by assets/board.js from the page's data."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from evaluator.report.page import Header, write_page
from evaluator.report.section import Filled, PackageFile, Section, core_template
from evaluator.report.table import plural


def write_board_page(path: Path, content: Mapping[str, Any]) -> Path:
    """Write the page and return its path. Equal data give equal bytes.

    Args:
        content: runs, rows and published, as runs/board.py has them.
    """
    groups = {row["group"] for row in content["rows"] if row["rank"]}
    n_runs, n_rankings = plural(len(content["runs"]), "run"), plural(len(groups), "ranking")
    header = Header(
        kicker="In-context classification",
        heading="Board",
        subject=f"{n_runs}, {n_rankings}: a run is ranked only among runs with the same prompts, method and definition",
    )
    # A text of the data must not end the script element.
    data = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    section = Section(
        "board",
        "Runs",
        [Filled(core_template("board.html"), {"data": Markup(data)})],  # noqa: S704  (escaped above)
        style=PackageFile("evaluator.report", "assets/board.css"),
        script=PackageFile("evaluator.report", "assets/board.js"),
    )
    return write_page(path, "Board: in-context classification", header, [section])
