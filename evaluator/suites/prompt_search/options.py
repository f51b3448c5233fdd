"""Define the options of the suite prompt-search, and read the file of candidates that one of them names."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evaluator.errors import ConfigError, TemplateError, shown
from evaluator.files.json_files import parse_json
from evaluator.files.whole import read_bytes
from evaluator.options import Options, option
from evaluator.templates.template import ChoiceTemplate

SearchPart = Literal["demonstrations", "instructions", "templates"]
"""What a prompt search varies: the `part` of its requests."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Options):
    """Options of a prompt search."""

    shots: tuple[int, ...] = option((1, 2, 4), "Numbers of demonstrations, each searched by itself.")
    tries: int = option(
        200, "Prompts for each number of shots; fewer where there are not as many different ones.", minimum=1
    )
    candidates: Path | None = option(None, "A JSON file of instructions or templates to try instead of demonstrations.")
    halving: bool = option(False, "Stop the worse half of the prompts, in rounds.")
    seed: int = option(42, "Seed of everything that is drawn: queries, demonstrations, ties.")

    def __post_init__(self) -> None:
        if not self.shots or min(self.shots) < 0 or len(set(self.shots)) < len(self.shots):
            raise ConfigError(f"--shots must be different numbers of 0 or more, got {self.shots}.")
        super().__post_init__()
        if self.candidates is None and 0 in self.shots:
            raise ConfigError(
                "--shots 0 leaves no demonstrations to search. Search instructions or templates with --candidates FILE."
            )


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The instructions and templates in a file, in its order; at least one of the two lists has an entry."""

    instructions: list[str]
    templates: list[dict[str, Any]]  # fields that replace those of a dataset's ChoiceTemplate: texts, or None

    def variations(self, template: ChoiceTemplate) -> dict[SearchPart, list[ChoiceTemplate]]:
        """Return the templates to search with a dataset, by the part of the search."""
        parts: dict[SearchPart, list[ChoiceTemplate]] = {
            "instructions": [dataclasses.replace(template, instruction=text) for text in self.instructions],
            "templates": [dataclasses.replace(template, **values) for values in self.templates],
        }
        return {part: templates for part, templates in parts.items() if templates}


def read_candidates(path: Path) -> Candidates:
    """Read a JSON object with a list of texts under `instructions`, of objects under `templates`, or both.

    An object under `templates` may state instruction, input_prefix, output_prefix, choice_prefix (null: choices are
    not listed) and separator; a field that it leaves out is taken from the dataset's template.

    Raises TemplateError, which names the place in the file.
    """
    try:
        content = parse_json(read_bytes(path))
    except (OSError, ValueError) as error:
        raise TemplateError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict) or not content or not content.keys() <= {"instructions", "templates"}:
        raise TemplateError(f"{path} must hold an object with `instructions`, `templates` or both, and nothing else.")
    instructions, templates = content.get("instructions", []), content.get("templates", [])
    if not isinstance(instructions, list) or not all(isinstance(value, str) for value in instructions):
        raise TemplateError(f"{path}: `instructions` must be a list of texts.")
    if not isinstance(templates, list):
        raise TemplateError(f"{path}: `templates` must be a list of objects, got {shown(templates)}.")
    for number, fields in enumerate(templates):
        _require_template(fields, f"{path}, template {number} (from 0)")
    if not instructions and not templates:
        raise TemplateError(f"{path} has nothing to search: its lists are empty. Add an instruction or a template.")
    return Candidates(instructions=instructions, templates=templates)


def _require_template(fields: Any, where: str) -> None:
    allowed = [field.name for field in dataclasses.fields(ChoiceTemplate)]
    if not isinstance(fields, dict):
        raise TemplateError(f"{where}: an object was expected, got {shown(fields)}.")
    for name, value in fields.items():
        if name not in allowed:
            raise TemplateError(f"{where}: unknown field {name!r}. Allowed are {', '.join(allowed)}.")
        if not isinstance(value, str) and (name, value) != ("choice_prefix", None):
            raise TemplateError(f"{where}: {name} must be a text, got {shown(value)}.")
