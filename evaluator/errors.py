"""Errors that a user can fix. A message says what is wrong, where, and how to fix it.

The command line exits with 2 on such an error (`gate`, whose outcomes are 0 to 2, with 3).

EvaluatorError
├── ConfigError          an option, a suite, dataset, method or engine name that does not fit
├── InputError           texts or classes that InContextClassifier does not accept; also a ValueError
├── DatasetError         a data file that is missing, malformed or unsafe to read
├── TemplateError        a meta-template, verbalizer or demonstration set that cannot make a prompt
├── ModelError           a model that is missing, is not a causal language model, or does not fit the machine
├── PromptTooLongError   prompts longer than the model's context
├── LabelError           labels that no score can distinguish, or that a method cannot score
│   └── VocabularyError  tokens that the model has no embedding for
├── StoreError           a store that is missing, damaged or of another version
├── ScoreError           scores that are missing, repeated or not finite
├── MetricError          probabilities, gold labels or a definition that a metric does not accept
├── BaselineError        numbers of examples, chances or tries for which no random baseline exists
├── WriteError           a file that cannot be written: no space, no permission, a folder of the same name
└── OutputInUseError     another process is writing to the same output folder
"""

import re
import reprlib
from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class EvaluatorError(Exception):
    """Base of all errors that the user can fix; shown as a message without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython and notebooks show in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def shown(value: object) -> str:
    """Return the repr of a value for a message, shortened if the value is long or deeply nested."""
    return _SHORT.repr(value)


def plural(n: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless the count is 1: "1 query", "2 queries", "2 batches"."""
    return f"{n:,} {noun if n == 1 else noun[:-1] + {'y': 'ies', 'h': 'hes'}.get(noun[-1], f'{noun[-1]}s')}"


MAX_LISTED = 100
"""Maximum number of names in a message; a table may have 100,000 columns."""


def unknown_name(what: str, name: str, names: Iterable[str], *, where: str = "", listed: str = "There are") -> str:
    """Return the message for an unknown name, with similar existing names and up to MAX_LISTED of all names.

    Args:
        what: the beginning of the message, such as "There is no suite" or "the table has no column".
        name: the unknown name.
        names: the existing names.
        where: the end of the first sentence, such as " in staicc-normal".
        listed: the words before the list of names.
    """
    existing = [each for each in names if each.strip()]  # columns may have no name
    more = f" and {len(existing) - MAX_LISTED:,} more" * (len(existing) > MAX_LISTED)
    those = f": {', '.join(existing[:MAX_LISTED])}{more}" if existing else " none"
    return f"{what} {name!r}{where}.{did_you_mean(name, existing)} {listed}{those}."


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return " Did you mean A or B?" with up to three names similar to `name`; "" if no name is similar."""
    short = name.casefold()
    folded = {each.casefold(): each for each in names}
    near = [folded[each] for each in get_close_matches(short, folded)]
    near += [each for each in names if short and (short in each.casefold() or each.casefold() in short)]
    near += [each for each in names if get_close_matches(short, re.split(r"[\W_]+", each.casefold()), cutoff=0.75)]
    near = [folded[short]] if short in folded else near
    return f" Did you mean {' or '.join(map(repr, [*dict.fromkeys(near)][:3]))}?" if near else ""


def is_panic(error: BaseException) -> bool:
    """Return whether the error is a panic of a Rust library, mostly caused by damaged bytes.

    A panic is no Exception, so that `except Exception` does not catch it.
    """
    return type(error).__name__ == "PanicException"  # by name, because every library defines its own class


class ConfigError(EvaluatorError):
    """An option, or the name of a suite, dataset, method or engine, does not fit."""


class InputError(EvaluatorError, ValueError):
    """InContextClassifier does not accept these texts or classes. Also a ValueError, which scikit-learn expects."""


class DatasetError(EvaluatorError):
    """A data file is missing, malformed or unsafe to read."""


class TemplateError(EvaluatorError):
    """A meta-template, verbalizer or demonstration set cannot make a prompt."""


class ModelError(EvaluatorError):
    """A model is missing, is not a causal language model, or does not fit the machine."""


class PromptTooLongError(EvaluatorError):
    """Prompts are longer than the model's context; prompts are never truncated."""


class LabelError(EvaluatorError):
    """No score can distinguish some labels, or a method cannot score them."""

    def __init__(self, message: str, labels: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.labels = tuple(labels)  # the label space at fault; empty if the error is not about one label space


class VocabularyError(LabelError):
    """Prompts or labels have tokens that the model has no embedding for."""


class StoreError(EvaluatorError):
    """A store is missing, damaged or of another version."""


class ScoreError(EvaluatorError):
    """Scores are missing, repeated or not finite."""


class MetricError(EvaluatorError):
    """A metric does not accept these probabilities, gold labels or definition."""


class BaselineError(EvaluatorError):
    """No random baseline exists for these numbers of examples, chances, tries or correct answers."""


class WriteError(EvaluatorError):
    """A file cannot be written."""


class OutputInUseError(EvaluatorError):
    """Another process is writing to the same output folder."""


def require_known(
    what: str, names: Iterable[str], known: Iterable[str], error: type[EvaluatorError] = ConfigError, **more: str
) -> None:
    """Raise `error` for the first name that is not in `known`, with the message of unknown_name.

    Args:
        what, more: arguments of unknown_name.
        names: the names to check.
        known: the existing names.
        error: the class of the error.
    """
    existing = [*known]
    for name in names:
        if name not in existing:
            raise error(unknown_name(what, name, existing, **more))
