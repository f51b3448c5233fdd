"""Read one answer of a decision service: a probability for each option of a typed question.

Three wire formats are read, each by its own fields: System One (`noul`, `choice` and `score` with a map of
probabilities), OpenAI's Decisions (`predicate`, and lists of values with probabilities) and Gemini's (System One's
names). `confidence` is never read: servers compute it in seven ways.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evaluator.arrays import Bools, Floats
from evaluator.decisions.questions import NO, YES, QuestionKind, option_text
from evaluator.errors import DatasetError, shown

_TRUTH = {"true": YES, "yes": YES, "1": YES, "false": NO, "no": NO, "0": NO}
"""How a gold value says yes or no, in lower case."""


class TypedAnswer(NamedTuple):
    """The probability of each option, as it was reported."""

    options: tuple[str, ...]  # in the order of the answer; of a score, its levels from 0
    probabilities: tuple[float, ...]
    legend: Mapping[str, str] = {}  # text of a level -> the level
    kind: QuestionKind = "choice"


def typed_answer(answer: object) -> TypedAnswer | None:
    """Return the probabilities of an answer, or None for a refusal and for a missing answer.

    Raises DatasetError for an answer without two options, and for values that are no probabilities.
    """
    if answer is None or (isinstance(answer, Mapping) and answer.get("type") == "refusal"):
        return None
    if not isinstance(answer, Mapping):
        raise DatasetError(f"an answer is an object, found {shown(answer)}")
    yes = answer.get("noul", answer.get("probability"))
    if yes is not None:
        _require_probabilities([yes], answer)
        return TypedAnswer((NO, YES), (1.0 - yes, float(yes)), kind="yes-no")
    # System One and Gemini write maps and a legend of levels, Decisions lists of values with labels.
    legend, reported = answer.get("legend"), answer.get("probabilities")
    levels = {str(text): level for level, text in legend.items()} if isinstance(legend, Mapping) else {}
    if isinstance(reported, Mapping):
        pairs = [(option_text(option), value) for option, value in reported.items()]
    elif isinstance(reported, list) and all(isinstance(entry, Mapping) and "value" in entry for entry in reported):
        pairs = [(option_text(entry["value"]), entry.get("probability")) for entry in reported]
        labelled = [entry for entry in reported if entry.get("label") is not None]
        levels = levels or {str(entry["label"]): option_text(entry["value"]) for entry in labelled}
    else:
        raise DatasetError(f"an answer has `probabilities`, `noul` or `probability`; found {', '.join(answer)}")
    if len(pairs) < 2 or len(dict(pairs)) < len(pairs):
        options = [option for option, _ in pairs]
        raise DatasetError(f"an answer has two options or more, each once; found {shown(options)}")
    says_score = "score" in answer or answer.get("type") == "score"
    is_score = says_score and all(option.isdecimal() for option, _ in pairs)
    names, values = zip(*sorted(pairs, key=lambda pair: int(pair[0])) if is_score else pairs, strict=True)
    _require_probabilities(values, answer)
    return TypedAnswer(names, tuple(map(float, values)), levels, "score" if is_score else "choice")


def answers_by_name(names: Sequence[str], reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return question -> answer, None where it is missing; answers of a list belong to the questions by place.

    Raises DatasetError for a list of another length, and for answers that are neither a list nor an object.
    """
    answers = reply.get("answers")
    if not answers:
        return dict.fromkeys(names)
    if isinstance(answers, Mapping):
        return {name: answers.get(name) for name in names}
    if not isinstance(answers, list) or len(answers) != len(names):
        raise DatasetError(f"question {names[0]!r}: {len(names)} answers were expected, found {shown(answers)}")
    return dict(zip(names, answers, strict=True))


def gold_option(gold: object, answer: TypedAnswer) -> str | None:
    """Return the option that a gold value names, or None: by its text, its level, or as yes or no."""
    text = option_text(gold)
    if text in answer.options:
        return text
    for each in (text.strip(), text.strip().removesuffix(".0")):  # 1.0, where a column had missing cells
        if each in answer.options:
            return each
        if option := (_TRUTH.get(each.lower()) if answer.options == (NO, YES) else answer.legend.get(each)):
            return option
    return None


Gold = tuple[int | None, list[float] | None]
"""The place of the true option, and the share of each option where the true answer is a distribution."""


def gold_index(gold: object, answer: TypedAnswer) -> Gold:
    """Return what a gold value says: an option, or an object or a list of weights. Raises DatasetError for others."""
    if isinstance(gold, dict | list):
        soft = _distribution(gold, answer)
        return soft.index(max(soft)), soft
    if (option := gold_option(gold, answer)) is None:
        raise DatasetError(f"the true option {shown(gold)} is none of {', '.join(answer.options)}")
    return answer.options.index(option), None


def _distribution(value: dict[str, Any] | list[Any], answer: TypedAnswer) -> list[float]:
    named = value if isinstance(value, dict) else dict(zip(answer.options, value, strict=False))
    n_expected = len(value) if named is value else len(answer.options)
    of_option = {gold_option(key, answer): weight for key, weight in named.items()}
    is_known = len(of_option) == len(value) == n_expected and {*of_option} <= {*answer.options}
    weights = [*of_option.values()]
    is_number = all(type(weight) in (int, float) and weight >= 0 for weight in weights)
    if not is_known or not is_number or not 0 < sum(weights) < math.inf:
        raise DatasetError(
            f"a distribution has a number of 0 or more for each of {', '.join(answer.options)}; found {shown(value)}"
        )
    return [of_option.get(option, 0) / sum(weights) for option in answer.options]


def _require_probabilities(values: Sequence[object], answer: Mapping[str, Any]) -> None:
    for value in values:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not 0 <= value <= 1:  # type: ignore[arg-type, operator]
            raise DatasetError(f"probabilities are numbers from 0 to 1; found {shown(value)} in {shown(dict(answer))}")


SUM_TOLERANCE = 1e-3
"""Least deviation of a sum of probabilities from 1 that is taken for rounding."""


_STEPS = 10.0 ** -np.arange(2.0, 10.0)


def _are_multiples(probabilities: Floats, step: float) -> Bools:
    return np.abs(probabilities - np.round(probabilities / step) * step) < 1e-12


def resolution(probabilities: Floats) -> float | None:
    """Return the step that all probabilities are multiples of, 0.01 to 1e-9, or None where there is no such step.

    Args:
        probabilities: in [0, 1], of any shape.
    """
    return next((float(step) for step in _STEPS if _are_multiples(probabilities, step).all()), None)


def sum_tolerances(probabilities: Floats) -> Floats:
    """Return how far the sum of each row may be from 1, [rows], by the step that the row is rounded to.

    A service may round otherwise after its version has changed, so that each row has its own.

    Args:
        probabilities: [rows, options].
    """
    tolerances = np.full(len(probabilities), SUM_TOLERANCE)
    for step in _STEPS[::-1]:
        reach = max(SUM_TOLERANCE, probabilities.shape[1] * step / 2 + 1e-9)
        tolerances[_are_multiples(probabilities, step).all(axis=1)] = reach
    return tolerances


def least_probability(probabilities: Floats, step: float | None) -> float | None:
    """Return the probability of a reported zero: half the step, else half the least positive value; None without zeros.

    Source: a value is rounded to zero below half a step; a service that reports the most probable options alone gives
    zero to options below the least value that it reports.
    """
    if probabilities.min() > 0:
        return None
    return (step or float(probabilities[probabilities > 0].min())) / 2
