"""Check numbers of examples, chances, tries and correct answers; raise BaselineError for invalid ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluator.errors import BaselineError
from evaluator.random_baselines.binomial import FloatArray, IntArray

MAX_EXAMPLES = 10**6
"""Up to this number probabilities have a relative error below 1e-9, and a setting takes a fraction of a second."""

MAX_TRIES = 10**15
"""Up to this number every whole number is exactly representable as a float."""


def require_numbers(name: str, value: Any) -> FloatArray:
    """Return the value as floats; raise for strings, booleans and missing entries."""
    try:
        numbers = np.asarray(value)
    except ValueError:
        raise BaselineError(
            f"{name} must be a number or an array of numbers; rows differ in length: {value!r}."
        ) from None
    if numbers.dtype.kind not in "iuf" and numbers.size:
        raise BaselineError(f"{name} must be a number or an array of numbers; received {value!r}.")
    return numbers.astype(np.float64)


def whole_numbers(name: str, value: Any, low: int, high: int) -> FloatArray:
    """Return whole numbers from `low` to `high` as floats; 100.0 and 1e12 are accepted."""
    numbers = require_numbers(name, value)
    is_valid = (numbers >= low) & (numbers <= high) & (numbers == np.floor(numbers))
    _refuse(~is_valid, numbers, f"{name} must be a whole number from {low} to {high:,}")
    return numbers


def require_chances(chances: FloatArray) -> None:
    """Raise for chances that are not between 0 and 1."""
    _refuse(~((chances > 0) & (chances < 1)), chances, "chance must lie between 0 and 1, both excluded")


def chance_of_choices(counts: Mapping[int, int]) -> tuple[FloatArray, IntArray]:
    """Return the chances, ascending, and the number of examples with each, from counts {choices: examples}."""
    for choices, count in counts.items():
        are_whole = all(isinstance(number, int | np.integer) for number in (choices, count))
        if not are_whole or choices < 2 or count < 0:
            raise BaselineError(
                "Counts per number of choices map whole numbers, 2 or more choices, to how many examples have them; "
                f"received {choices!r}: {count!r}."
            )
    present = sorted((choices for choices, count in counts.items() if count), reverse=True)
    return 1 / np.array(present, dtype=np.float64), np.array([counts[choices] for choices in present], dtype=np.int64)


def require_quantiles(q: Any) -> FloatArray:
    """Return q as floats; raise for probabilities that are not between 0 and 1."""
    numbers = require_numbers("q", q)
    _refuse(~((numbers > 0) & (numbers < 1)), numbers, "q must lie between 0 and 1, both excluded")
    return numbers


def require_counts(correct: FloatArray, n: IntArray) -> None:
    """Raise for counts outside 0 to n and for fractions, such as accuracies; both arrays have the same shape."""
    fraction = correct != np.floor(correct)
    if fraction.any():
        first = int(fraction.argmax())
        raise BaselineError(_fraction_message(float(correct[first]), int(n[first])))
    outside = ~((correct >= 0) & (correct <= n))
    if outside.any():
        first = int(outside.argmax())
        raise BaselineError(_range_message(float(correct[first]), int(n[first])))


def _fraction_message(received: float, n: int) -> str:
    """Return the message for a fraction, which is taken for an accuracy if below 1, else for an inexact count."""
    if not 0 <= received <= n:
        return _range_message(received, n)
    count = received * n if received < 1 else received
    nearest = [round(count)] if abs(count - round(count)) < 1e-9 * n else [int(count), int(count) + 1]
    shown = " and ".join(f"{count} (accuracy {count / n:.6g})" for count in nearest)
    reading = "; as an accuracy, the nearest counts" if received < 1 else "; the nearest counts"
    return (
        f"correct must be a count, the number of right answers; received {received!r}{reading} of n = {n} are {shown}."
    )


def _range_message(received: float, n: int) -> str:
    return f"correct must be a count from 0 to n = {n}; received {received:g}."


def _refuse(bad: npt.NDArray[np.bool_], numbers: FloatArray, what: str) -> None:
    if bad.any():
        first = np.unravel_index(int(bad.argmax()), bad.shape)
        where = f", the first at {', '.join(map(str, first))}" if bad.ndim else ""
        raise BaselineError(f"{what}; received {numbers[first]:.15g}{where}.")
