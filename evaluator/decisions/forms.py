"""Write typed questions as prompts: with lettered options, with their names, or as a decision server writes them.

Source: `vllm` and `vllm-decisions` follow vLLM 0.32, entrypoints/generate/structured_decisions/question_types.py, and
0.33 for /v1/decisions. They are user turns, so they equal the server's prompt through the model's chat template alone.
"""

import string
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from evaluator.decisions.questions import NO, YES, QuestionKind
from evaluator.errors import DatasetError
from evaluator.templates.template import LABEL_SPACE

Form = Literal["letters", "names", "vllm", "vllm-decisions"]
FORMS: tuple[Form, ...] = get_args(Form)

_OF_SERVER: dict[QuestionKind, int] = {"choice": len(string.ascii_uppercase), "score": len(string.digits)}
LIMITS: dict[Form, dict[QuestionKind, int]] = {"vllm": _OF_SERVER, "vllm-decisions": _OF_SERVER}
"""Most options of a question that a server takes."""


def require_form(form: Form, kind: QuestionKind, n_options: int, where: str) -> None:
    """Raise DatasetError, which begins with `where`, for more options than the form has."""
    if n_options > (most := LIMITS.get(form, {}).get(kind, n_options)):
        raise DatasetError(f"{where}: {n_options} options; the form {form} takes {most} at most. Choose --form names.")


class Asked(NamedTuple):
    """A question as it is put to a model."""

    text: str  # up to the answer
    answers: list[str]  # the text that answers with each option, in the order of the options


def asked(
    form: Form,
    kind: QuestionKind,
    instructions: str,
    options: Sequence[str],
    descriptions: Sequence[str],
    order: Sequence[int],
) -> Asked:
    """Return a question without its input, which stands before it, in a form.

    Args:
        options, descriptions: names, of a score its levels, and what they mean or "".
        order: of the options in the prompt.

    """
    is_server = form in LIMITS
    labels = _labels(form, kind, len(options), order)
    names = options
    if form == "vllm-decisions" and kind == "yes-no":  # asked as a choice of two values
        kind, names = "choice", ["false", "true"]
    lines = [f"Question: {instructions}"] if instructions else []
    for option in order:
        parts = [] if kind == "yes-no" and is_server else [names[option]]
        shown = " - ".join(filter(None, [*parts, descriptions[option]]))
        begin = "-" if form == "names" else f"{labels[option]}:"
        lines.append(f"{begin} {shown}" if shown else labels[option])
    reply = "one option" if form == "names" else "the letter of one option"
    if is_server:
        reply = {"yes-no": "yes or no", "score": "the number of one level"}.get(kind, reply)
        return Asked("\n".join([*lines, f"Answer with {reply} only.", ""]), labels)
    text = "\n".join([*lines, f"Answer with {reply} only.", "Answer:"])
    return Asked(text, [LABEL_SPACE + answer for answer in (names if form == "names" else labels)])


def _labels(form: Form, kind: QuestionKind, n_options: int, order: Sequence[int]) -> list[str]:
    """Return the label of each option: a letter by its place in the prompt, a level's digit, or yes and no."""
    if form == "vllm" and kind == "yes-no":
        return [NO, YES]
    if form in LIMITS and kind == "score":
        return list(string.digits[:n_options])
    has_letters = n_options <= len(string.ascii_uppercase)
    letters = string.ascii_uppercase if has_letters else [str(n + 1) for n in range(n_options)]
    return [letters[order.index(option)] for option in range(n_options)]
