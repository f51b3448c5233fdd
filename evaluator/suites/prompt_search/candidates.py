"""Read a file of instructions or templates, which a search can try instead of demonstrations."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.errors import TemplateError, shown
from evaluator.files.digests import short_digest
from evaluator.files.json_files import parse_json
from evaluator.files.whole import read_bytes
from evaluator.suites.prompt_search.options import SearchPart
from evaluator.templates.choice_template import ChoiceTemplate

FIELDS = tuple(field.name for field in dataclasses.fields(ChoiceTemplate))


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The instructions and templates in a file, in its order; one of the two may be empty."""

    instructions: tuple[str, ...]
    templates: tuple[dict[str, str | None], ...]  # fields that replace those of a dataset's ChoiceTemplate
    fingerprint: str

    def variations(self, template: ChoiceTemplate) -> dict[SearchPart, list[ChoiceTemplate]]:
        """Return the templates to search with a dataset, by the part of the search."""
        parts: dict[SearchPart, list[ChoiceTemplate]] = {
            "instructions": [dataclasses.replace(template, instruction=text) for text in self.instructions],
            "templates": [dataclasses.replace(template, **values) for values in self.templates],  # type: ignore[arg-type]
        }
        return {part: templates for part, templates in parts.items() if templates}


def read_candidates(path: Path) -> Candidates:
    """Read a JSON object with a list of texts under `instructions`, of objects under `templates`, or both.

    An object under `templates` may state instruction, input_prefix, output_prefix, choice_prefix (null: choices are
    not listed) and separator; a field that it leaves out is taken from the dataset's template.

    Raises TemplateError, which names the place in the file.
    """
    try:
        raw = read_bytes(path)
        content = parse_json(raw)
    except (OSError, ValueError) as error:
        raise TemplateError(f"{path} cannot be read as JSON: {error}") from error
    allowed = {"instructions", "templates"}
    if not isinstance(content, dict) or not content or not content.keys() <= allowed:
        raise TemplateError(f"{path} must hold an object with `instructions`, `templates` or both, and nothing else.")
    instructions = _texts(content.get("instructions", []), path)
    listed = content.get("templates", [])
    if not isinstance(listed, list):
        raise TemplateError(f"{path}: `templates` must be a list of objects, got {shown(listed)}.")
    templates = [_template(fields, number, path) for number, fields in enumerate(listed)]
    if not instructions and not templates:
        raise TemplateError(f"{path} has nothing to search: its lists are empty. Add an instruction or a template.")
    return Candidates(
        instructions=tuple(instructions),
        templates=tuple(templates),
        fingerprint=short_digest(raw),
    )


def _texts(values: Any, path: Path) -> Sequence[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TemplateError(f"{path}: `instructions` must be a list of texts.")
    return values


def _template(fields: Any, number: int, path: Path) -> dict[str, str | None]:
    where = f"{path}, template {number} (from 0)"
    if not isinstance(fields, dict):
        raise TemplateError(f"{where}: an object was expected, got {shown(fields)}.")
    for name, value in fields.items():
        if name not in FIELDS:
            raise TemplateError(f"{where}: unknown field {name!r}. Allowed are {', '.join(FIELDS)}.")
        if not isinstance(value, str) and (name, value) != ("choice_prefix", None):
            raise TemplateError(f"{where}: {name} must be a text, got {shown(value)}.")
    return fields
