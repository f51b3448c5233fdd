"""Write requests to decision services, and check that answers fit their questions.

Source: openai 3.51.0 types/decision_create_params.py (Decisions), typesafe-sdk 0.7.5 (System One), google-genai 3.6.1
_gaos/types/decisions (Gemini).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evaluator.decisions.answers import resolution, sum_tolerances, typed_answer
from evaluator.decisions.endpoint import ProtocolName
from evaluator.decisions.questions import NO, YES, Question
from evaluator.errors import DatasetError, shown

Body = dict[str, Any]


class Protocol(NamedTuple):
    """The request format of a kind of service, and its known limits."""

    path: str  # path of the service's address
    body: Callable[[str, str, Sequence[Question]], Body]  # model, input, questions -> body of a request
    host: str  # host of the provider; the key of `key_variable` is sent only to this host
    key_variable: str  # environment variable with the provider's key
    max_questions: int  # maximum number of questions in a request
    max_levels: int  # maximum number of levels of a score
    max_options: int = 255  # maximum number of options of a choice
    key_header: str = "Authorization"  # HTTP header of the key


def _mapped(question: Question) -> Body:
    """Return a question in the format of System One and Gemini."""
    described = {option.name: option.description or None for option in question.options}
    if question.kind == "score":
        return {"type": "score", "instructions": question.instructions, "criteria": [*described]}
    if question.kind == "choice":
        return {"type": "choice", "instructions": question.instructions, "criteria": described}
    criteria = {key: described[name] for key, name in (("true", YES), ("false", NO)) if described[name]}
    return {"type": "noul", "instructions": question.instructions} | ({"criteria": criteria} if criteria else {})


def _systemone(model: str, text: str, questions: Sequence[Question]) -> Body:
    return {"model": model, "state": text, "questions": {question.name: _mapped(question) for question in questions}}


def _gemini(model: str, text: str, questions: Sequence[Question]) -> Body:
    """Return the body of a request to Gemini. Every option needs a text: its name if it has no description."""
    mapped = {question.name: _mapped(question) for question in questions}
    for question in mapped.values():
        if question["type"] == "choice":
            question["criteria"] = {name: text or name for name, text in question["criteria"].items()}
    return {"model": f"models/{model.removeprefix('models/')}", "input": text, "questions": mapped}


def _decisions(model: str, text: str, questions: Sequence[Question]) -> Body:
    return {"model": model, "input": text, "questions": [_listed(question) for question in questions]}


def _listed(question: Question) -> Body:
    """Return a question in the format of Decisions.

    A predicate (yes-or-no question) has no criteria: they are added at the end of its instructions.
    """
    instructions, options = question.instructions, question.options
    if question.kind == "yes-no":
        criteria = [f"{option.name}: {option.description}" for option in options if option.description]
        return {"type": "predicate", "name": question.name, "instructions": "\n".join([instructions, *criteria])}
    named: Body = {"type": question.kind, "name": question.name, "instructions": instructions}
    if question.kind == "score":
        return named | {"levels": [{"label": level.name} for level in options]}
    described = [{"value": name} | ({"description": text} if text else {}) for name, text in options]
    return named | {"choices": described}


_GOOGLE = "generativelanguage.googleapis.com"
PROTOCOLS: Mapping[ProtocolName, Protocol] = {
    "systemone": Protocol("/v1/systemone", _systemone, "api.typesafe.ai", "TYPESAFE_API_KEY", 800, 10),
    "decisions": Protocol("/v1/decisions", _decisions, "api.openai.com", "OPENAI_API_KEY", 400, 10),
    "gemini": Protocol("/v1beta/decisions", _gemini, _GOOGLE, "GEMINI_API_KEY", 1000, 255, key_header="x-goog-api-key"),
}


def limit_fault(question: Question, protocol: Protocol) -> str | None:
    """Return a sentence about the service's limit of options or levels that a question exceeds, or None."""
    kind, most = ("levels", protocol.max_levels) if question.kind == "score" else ("options", protocol.max_options)
    n = len(question.options)
    return f"{n} {kind}, and the service takes {most} at most" if n > most else None


def questions_limit(refusal: str, n_asked: int) -> int | None:
    """Return the maximum number of questions that a service states when it refuses a request.

    Args:
        refusal: message of the service.
        n_asked: number of questions in the request.

    Returns:
        A number below `n_asked`; None if the refusal is not about the number of questions.
    """
    found = re.search(r"at most (\d+)", refusal)
    # Words of messages about other limits, such as the number of options.
    is_other = re.search(r"option|criteria|choices|level|token|character", refusal)
    return int(found[1]) if found and "question" in refusal and not is_other and 0 < int(found[1]) < n_asked else None


def require_fit(question: Question, answer: object) -> None:
    """Raise DatasetError if an answer does not fit its question. Refusals and missing answers pass.

    An answer must have a probability for exactly the question's options, with the sum 1. If it names a choice, this
    must be the most probable option, up to rounding.
    """
    read = typed_answer(answer)
    if read is None:
        return
    names = [option.name for option in question.options]
    expected = [str(level) for level in range(len(names))] if question.kind == "score" else names
    if {*read.options} != {*expected}:
        raise DatasetError(f"the options {', '.join(expected)} were asked; found {', '.join(read.options)}")
    values = np.array(read.probabilities)
    if abs(values.sum() - 1) > sum_tolerances(values[None]).item():
        raise DatasetError(f"the probabilities have a sum of {values.sum():.4g}, which is not 1")
    if isinstance(answer, Mapping) and (named := answer.get("choice")) is not None:
        of_option = dict(zip(read.options, read.probabilities, strict=True))
        text = str(named).lower() if isinstance(named, bool) else str(named)
        if of_option.get(text, -1.0) < values.max() - (resolution(values) or 0.0) - 1e-9:
            raise DatasetError(f"the choice {shown(named)} is not the most probable option of {shown(of_option)}")
