"""Write typed questions as prompts: options with letters, options by name, or the text of a vLLM decision server.

Source: the forms `vllm` and `vllm-decisions` follow vLLM 0.32,
entrypoints/generate/structured_decisions/question_types.py, and 0.33 for /v1/decisions. Their texts are user turns:
prompts equal the server's prompts only if they use the model's chat template.
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
"""Form -> kind of question -> maximum number of options that the server accepts."""


def require_form(form: Form, kind: QuestionKind, n_options: int, where: str) -> None:
    """Raise DatasetError, beginning with `where`, for a question with more options than the form allows."""
    if n_options > (most := LIMITS.get(form, {}).get(kind, n_options)):
        raise DatasetError(f"{where}: {n_options} options; the form {form} takes {most} at most. Choose --form names.")


class Asked(NamedTuple):
    """The text of a question in a prompt, and the answers to score."""

    text: str  # text of the question up to the answer
    answers: list[str]  # text of the answer for each option, in the order of the options


def asked(
    form: Form,
    kind: QuestionKind,
    instructions: str,
    options: Sequence[str],
    descriptions: Sequence[str],
    order: Sequence[int],
) -> Asked:
    """Return the text of a question in a form, without the input, which comes before it in the prompt.

    Args:
        form: the form.
        kind: kind of the question.
        instructions: instructions of the question; may be "".
        options: names of the options, or levels of a score.
        descriptions: meaning of each option; "" for none.
        order: indices of the options in the order of the prompt.
    """
    is_server = form in LIMITS
    labels = _labels(form, kind, len(options), order)
    names = options
    if form == "vllm-decisions" and kind == "yes-no":  # the server asks it as a choice between false and true
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
    """Return the label of each option: a letter by its position in the prompt, the digit of a level, or yes and no.

    With more options than letters, numbers from 1 replace letters.
    """
    if form == "vllm" and kind == "yes-no":
        return [NO, YES]
    if form in LIMITS and kind == "score":
        return list(string.digits[:n_options])
    has_letters = n_options <= len(string.ascii_uppercase)
    letters = string.ascii_uppercase if has_letters else [str(n + 1) for n in range(n_options)]
    return [letters[order.index(option)] for option in range(n_options)]
