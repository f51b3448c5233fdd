"""One HTML file that opens from disk without a network: a template and what it shows go in, the file comes out."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from evaluator.files import replacing
from evaluator.random_baselines.verdicts import POWER, TAIL_TO_TELL
from evaluator.report import tables
from evaluator.suites.staicc.diagnostics.readings import reading

FOLDER = Path(__file__).parent


def write_html_page(
    path: Path, template: str, shown: Mapping[str, Any], *, script: str | Sequence[str] | None = None
) -> Path:
    """Write the page and return its path. Equal data give equal bytes; names from data and models are escaped.

    Args:
        path: where the page goes; what is there already is replaced.
        template: a file of this folder that extends layout.html.
        shown: the template's own variables. All of them must be there: one that is not is an error.
        script: a file of this folder, or several, which run as one; any other script is refused by the page.
    """
    files = [script] if isinstance(script, str) else script or ()
    whole = Markup("\n").join(map(_asset, files))
    page = _environment().get_template(template).render(shown, script=whole, style=_asset("page.css"))
    with replacing(path) as file:
        file.write(page.encode())
    return path


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "digest": _digest,
        "title_of": tables.metric_title,
        "lower_is_better": tables.lower_is_better,
    }
    environment.globals |= {
        "marks": tables.VERDICT_MARKS,
        "tail_to_tell": TAIL_TO_TELL,
        "power": POWER,
        "reading": reading,
    }
    return environment


def _asset(name: str) -> Markup:
    return Markup((FOLDER / name).read_text("utf-8"))


def _digest(script: str) -> str:
    """What a content security policy knows a script by."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
