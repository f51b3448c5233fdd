"""Read an answer of a decision service: a probability for each option of a typed question.

Three formats are recognised by their fields: System One (`noul`, `choice` and `score` with a map of probabilities),
OpenAI's Decisions (`predicate`, and lists of values with probabilities) and Gemini's (with the names of System One).
`confidence` is never read, because servers compute it in seven ways.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evaluator.arrays import Bools, Floats
from evaluator.decisions.questions import NO, YES, QuestionKind, option_text
from evaluator.errors import DatasetError, shown

_TRUTH = {"true": YES, "yes": YES, "1": YES, "false": NO, "no": NO, "0": NO}
"""Gold value in lower case -> option of a yes-or-no question."""


class TypedAnswer(NamedTuple):
    """The reported probability of each option."""

    options: tuple[str, ...]  # in the order of the answer; of a score, the levels in ascending order
    probabilities: tuple[float, ...]
    legend: Mapping[str, str] = {}  # text of a level -> level
    kind: QuestionKind = "choice"


def typed_answer(answer: object) -> TypedAnswer | None:
    """Return the options and probabilities of an answer, or None for a refusal or a missing answer.

    Raises DatasetError for an answer that is no object or has fewer than two different options, and for values that
    are not probabilities.
    """
    if answer is None or (isinstance(answer, Mapping) and answer.get("type") == "refusal"):
        return None
    if not isinstance(answer, Mapping):
        raise DatasetError(f"an answer is an object, found {shown(answer)}")
    yes = answer.get("noul", answer.get("probability"))
    if yes is not None:
        _require_probabilities([yes], answer)
        return TypedAnswer((NO, YES), (1.0 - yes, float(yes)), kind="yes-no")
    # System One and Gemini write a map of probabilities and a legend of levels, Decisions a list of values with labels.
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
        raise DatasetError(f"an answer has two options or more, each once; found {shown([name for name, _ in pairs])}")
    says_score = "score" in answer or answer.get("type") == "score"
    is_score = says_score and all(option.isdecimal() for option, _ in pairs)
    names, values = zip(*sorted(pairs, key=lambda pair: int(pair[0])) if is_score else pairs, strict=True)
    _require_probabilities(values, answer)
    return TypedAnswer(names, tuple(map(float, values)), levels, "score" if is_score else "choice")


def answers_by_name(names: Sequence[str], reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return question -> answer, or None if the answer is missing. Answers in a list are in the order of the questions.

    Args:
        names: names of the questions.
        reply: the service's reply to one request.

    Raises DatasetError for answers that are neither a list nor an object, and for a list of another length or with an
    answer that states the name of another question.
    """
    answers = reply.get("answers")
    if not answers:
        return dict.fromkeys(names)
    if isinstance(answers, Mapping):
        return {name: answers.get(name) for name in names}
    if not isinstance(answers, list) or len(answers) != len(names):
        raise DatasetError(f"question {names[0]!r}: {len(names)} answers were expected, found {shown(answers)}")
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, Mapping) and (stated := answer.get("name")) != name and stated in names:
            raise DatasetError(f"question {name!r}: the answer at its place is to the question {stated!r}")
    return dict(zip(names, answers, strict=True))


def gold_option(gold: object, answer: TypedAnswer) -> str | None:
    """Return the option that a gold value names, by its text, by the text of its level, or as yes or no; else None."""
    text = option_text(gold)
    if text in answer.options:
        return text
    for each in (text.strip(), text.strip().removesuffix(".0")):  # 1.0 for 1, in a column with missing cells
        if each in answer.options:
            return each
        if option := (_TRUTH.get(each.lower()) if answer.options == (NO, YES) else answer.legend.get(each)):
            return option
    return None


Gold = tuple[int | None, list[float] | None]
"""Index of the true option, and the share of each option if the true answer is a distribution, else None."""


def gold_index(gold: object, answer: TypedAnswer) -> Gold:
    """Return the true option of a gold value, and its distribution if it is an object or a list of weights.

    The true option of a distribution is the option with the largest share. Raises DatasetError for a value that names
    no option, and for weights that do not fit the options.
    """
    if isinstance(gold, dict | list):
        soft = _distribution(gold, answer)
        return soft.index(max(soft)), soft
    if (option := gold_option(gold, answer)) is None:
        raise DatasetError(f"the true option {shown(gold)} is none of {', '.join(answer.options)}")
    return answer.options.index(option), None


def _distribution(value: dict[str, Any] | list[Any], answer: TypedAnswer) -> list[float]:
    # Weights of a list are in the order of the options.
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
"""Lower limit of the tolerance for the deviation of a sum of probabilities from 1."""


_STEPS = 10.0 ** -np.arange(2.0, 10.0)  # rounding steps: 0.01, 0.001, ..., 1e-9


def _are_multiples(probabilities: Floats, step: float) -> Bools:
    return np.abs(probabilities - np.round(probabilities / step) * step) < 1e-12


def resolution(probabilities: Floats) -> float | None:
    """Return the largest step among 0.01, 0.001, ..., 1e-9 that all probabilities are multiples of, or None.

    Args:
        probabilities: in [0, 1], of any shape.
    """
    return next((float(step) for step in _STEPS if _are_multiples(probabilities, step).all()), None)


def sum_tolerances(probabilities: Floats) -> Floats:
    """Return the tolerated deviation of each row's sum from 1, [rows], from the step that the row is rounded to.

    It is half a step for each option. Rows have different tolerances, because a service may round differently after a
    change of its version.

    Args:
        probabilities: [rows, options].
    """
    tolerances = np.full(len(probabilities), SUM_TOLERANCE)
    for step in _STEPS[::-1]:  # from the smallest step, so that the largest step that fits a row is set last
        reach = max(SUM_TOLERANCE, probabilities.shape[1] * step / 2 + 1e-9)
        tolerances[_are_multiples(probabilities, step).all(axis=1)] = reach
    return tolerances


def least_probability(probabilities: Floats, step: float | None) -> float | None:
    """Return the probability to assume for a reported zero, or None if there are no zeros.

    It is half the rounding step, because values below are rounded to zero. Without a step it is half the smallest
    positive value, because services that report only the most probable options give zero to all others.

    Args:
        probabilities: reported probabilities, of any shape.
        step: rounding step (resolution); None: no step.
    """
    if probabilities.min() > 0:
        return None
    return (step or float(probabilities[probabilities > 0].min())) / 2
