"""Errors that a user can mend. Each says what was wrong, where, and how to mend it; the command line exits with 2.

EvaluatorError
├── ConfigError          an option, a suite, dataset, method or engine name that does not fit
├── DatasetError         a data file that is missing, malformed or unsafe to read
├── TemplateError        a meta-template, verbalizer or demonstration set that cannot make a prompt
├── ModelError           a model that is not there, is not a causal language model, or does not fit the machine
├── PromptTooLongError   prompts longer than the model's context
├── LabelError           labels that no score can tell apart, or that a method cannot score
├── StoreError           a store that is missing, damaged or of another version
├── ScoreError           scores that are missing, repeated or not finite
├── MetricError          probabilities, gold labels or a definition that a metric cannot take
├── BaselineError        numbers of examples, chances or tries that no random baseline has
└── OutputInUseError     another process is writing to the same output folder
"""

from collections.abc import Sequence


class EvaluatorError(Exception):
    """Anything the user can mend; its message is shown without a traceback."""


class ConfigError(EvaluatorError):
    """An option, or the name of a suite, dataset, method or engine, does not fit."""


class DatasetError(EvaluatorError):
    """A data file is missing, malformed or unsafe to read."""


class TemplateError(EvaluatorError):
    """A meta-template, verbalizer or demonstration set cannot make a prompt."""


class ModelError(EvaluatorError):
    """A model is not there, is not a causal language model, or does not fit the machine."""


class PromptTooLongError(EvaluatorError):
    """Prompts are longer than the model's context; none is ever cut."""


class LabelError(EvaluatorError):
    """Labels that no score can tell apart, or that a method cannot score."""

    def __init__(self, message: str, labels: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.labels = tuple(labels)  # the label space it is about, where it is about one


class StoreError(EvaluatorError):
    """A store is missing, damaged or of another version."""


class ScoreError(EvaluatorError):
    """Scores are missing, repeated or not finite."""


class MetricError(EvaluatorError):
    """Probabilities, gold labels or a definition that a metric cannot take."""


class BaselineError(EvaluatorError):
    """Numbers of examples, chances, tries or correct answers that no random baseline has."""


class OutputInUseError(EvaluatorError):
    """Another process is writing to the same output folder."""
