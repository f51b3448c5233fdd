"""Render templates to HTML in one environment, which loads templates from any package."""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from evaluator.random_baselines.significance import ASSURANCE, POWER, TAIL_TO_TELL
from evaluator.report.section import PackageFile, core_template
from evaluator.report.tables import VERDICT_MARKS


def render(template: PackageFile, context: object) -> Markup:
    """Render a template. Texts from data and models are escaped; a variable missing in the context is an error.

    Args:
        context: a NamedTuple or a mapping; its fields are the template's variables.
    """
    html = _environment().get_template(template.name).render(_variables(context))
    return Markup(html)  # noqa: S704  (the environment escapes)


def asset(file: PackageFile) -> Markup:
    """Return a script or style unchanged."""
    return Markup(_text(file))  # noqa: S704  (a file of a package)


def _variables(context: object) -> dict[str, Any]:
    if context is None:
        return {}
    if isinstance(context, Mapping):
        return dict(context)
    assert hasattr(context, "_asdict"), "a context is a NamedTuple or a mapping"
    return dict(context._asdict())


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["digest"] = _digest
    environment.globals |= {
        "marks": VERDICT_MARKS,
        "tail_to_tell": TAIL_TO_TELL,
        "power": POWER,
        "assurance": ASSURANCE,
    }
    return environment


def _source(name: str) -> str:
    """Return a template by PackageFile.name; a name without package is that of a core template."""
    package, _, file = name.rpartition(":")
    return _text(PackageFile(package, file) if package else core_template(file))


def _text(file: PackageFile) -> str:
    return files(file.package).joinpath(file.file).read_text("utf-8")


def _digest(script: str) -> str:
    """Return the hash by which a content security policy allows a script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
