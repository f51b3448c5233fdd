"""A user's file of instructions or templates to try, instead of demonstrations."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.errors import TemplateError
from evaluator.files import short_digest
from evaluator.suites.prompt_search.options import SearchPart
from evaluator.templates.choice_template import ChoiceTemplate

FIELDS = tuple(field.name for field in dataclasses.fields(ChoiceTemplate))


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """What a file holds, in its order; one of the two may be empty."""

    instructions: tuple[str, ...]
    templates: tuple[dict[str, str | None], ...]  # each states the parts that differ from a dataset's own template
    fingerprint: str

    def variations(self, template: ChoiceTemplate) -> dict[SearchPart, list[ChoiceTemplate]]:
        """The templates to try with a dataset, by what is varied."""
        instructed = [dataclasses.replace(template, instruction=text) for text in self.instructions]
        templated = [dataclasses.replace(template, **stated) for stated in self.templates]  # type: ignore[arg-type]
        parts: dict[SearchPart, list[ChoiceTemplate]] = {"instructions": instructed, "templates": templated}
        return {part: tried for part, tried in parts.items() if tried}


def read_candidates(path: Path) -> Candidates:
    """A JSON object with a list of texts under `instructions`, of objects under `templates`, or both.

    An object under `templates` may state instruction, input_prefix, output_prefix, choice_prefix (null: choices are
    not listed) and separator; what it leaves out is the dataset's own. Raises TemplateError, naming the place.
    """
    try:
        file = path.read_bytes()
        content = json.loads(file)
    except (OSError, ValueError) as error:
        raise TemplateError(f"{path} cannot be read as JSON: {error}") from error
    known = {"instructions", "templates"}
    if not isinstance(content, dict) or not content or not content.keys() <= known:
        raise TemplateError(f"{path} must hold an object with `instructions`, `templates` or both, and nothing else.")
    instructions = _texts(content.get("instructions", []), path)
    templates = [_template(stated, number, path) for number, stated in enumerate(content.get("templates", []))]
    if not instructions and not templates:
        raise TemplateError(f"{path} names nothing to try: its lists are empty.")
    return Candidates(
        instructions=tuple(instructions),
        templates=tuple(templates),
        fingerprint=short_digest(file),
    )


def _texts(values: Any, path: Path) -> Sequence[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TemplateError(f"{path}: `instructions` must be a list of texts.")
    return values


def _template(stated: Any, number: int, path: Path) -> dict[str, str | None]:
    where = f"{path}, template {number} (from 0)"
    if not isinstance(stated, dict):
        raise TemplateError(f"{where}: an object was expected, got {stated!r}.")
    for name, value in stated.items():
        if name not in FIELDS:
            raise TemplateError(f"{where}: there is no part {name!r}. There are: {', '.join(FIELDS)}.")
        if not isinstance(value, str) and (name, value) != ("choice_prefix", None):
            raise TemplateError(f"{where}: {name} must be a text, got {value!r}.")
    return stated
