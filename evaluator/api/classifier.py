"""A scikit-learn classifier that shows labelled examples to a language model as demonstrations.

It needs scikit-learn (the extra `sklearn`). The model stays loaded between calls, and its scores are stored until the
process ends.
"""

import atexit
import math
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from numbers import Integral
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from evaluator.arrays import Floats, Ints
from evaluator.cli.terminal import draw
from evaluator.config import (
    ChatConfig,
    ChatDemonstrations,
    DataOptions,
    Dtype,
    LabelBoundary,
    ModelConfig,
    RunConfig,
    from_options,
)
from evaluator.datasets.base import EXAMPLES, ClassificationDataset
from evaluator.datasets.labelled_table import TableText, table_template
from evaluator.datasets.tables import cell_text
from evaluator.engine import find_source, with_devices
from evaluator.engine.replicas import EngineLoader
from evaluator.errors import ConfigError, InputError, shown
from evaluator.files.digests import fingerprint
from evaluator.methods.base import predict
from evaluator.process import in_this_process, require_unforked
from evaluator.progress import finish
from evaluator.prompts.demonstrations import own_demonstrations
from evaluator.prompts.rows import PromptPlan, requests
from evaluator.run.build import Built, added_rows, check_config, measured_parts
from evaluator.run.measure import complete_run, scored_run
from evaluator.run.resolved_models import ResolvedModel, prompt_form
from evaluator.run.score import LOGS, check_capabilities, score_run
from evaluator.store import as_request_rows, open_intact_store, write_store
from evaluator.suites import SUITE_GROUPS, SUITES, methods_of
from evaluator.templates.template import MetaTemplate, Verbalizer

_loaded: dict[ModelConfig, tuple[ResolvedModel, EngineLoader]] = {}
"""The model of the last call, at most one entry; it stays loaded until a call needs another model."""


def loaded_model(config: RunConfig, model: ModelConfig) -> tuple[ResolvedModel, EngineLoader]:
    """Return a model and its engine loader, which this process keeps. Another model's memory is released first.

    Raises ModelError if the model does not exist.
    """
    if model not in _loaded:
        source = find_source(model)
        resolved = ResolvedModel(source, with_devices(source, model), prompt_form(config, model, source))
        unload_models()
        _loaded[model] = resolved, EngineLoader(source, resolved.config, answers_folder() / LOGS)
    return _loaded[model]


def unload_models() -> None:
    """Release the memory of the loaded model; its stored scores are kept."""
    while _loaded:
        _, (_, loader) = _loaded.popitem()
        loader.close()


@cache
def answers_folder() -> Path:
    """Return the folder of this process's prompts and scores, which is removed when the process ends."""
    folder = Path(mkdtemp(prefix="evaluator-"))
    atexit.register(in_this_process(rmtree), folder, ignore_errors=True)
    atexit.register(in_this_process(unload_models))
    return folder


(_SUITE,) = SUITE_GROUPS["classify"]
_PART = next(iter(SUITES[_SUITE].parts))
_IN_MEMORY = DataOptions(paths=(Path("X"),))  # stands for the argument X of fit; no file is read


_TAKEN: Mapping[str, tuple[Any, str]] = {
    "model": (str | Path, 'a folder, a hub name or "embedded"'),
    "method": (str, "the name of a method, as `evaluator methods` lists them"),
    "label_names": (Mapping | None, "a dictionary of class -> text, or None"),
    "template": (MetaTemplate | None, "a MetaTemplate (evaluator.templates.template), or None"),
    "instruction": (str | None, "a text, or None"),
    "random_state": (Integral | np.random.RandomState | None, "a whole number, a RandomState of NumPy, or None"),
    "progress": (bool | np.bool_, "True or False"),
}
"""Parameter -> type and description of its values. Other parameters are options of a run, which checks them."""


@dataclass(eq=False, repr=False)
class InContextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classify texts with a language model whose prompt shows labelled examples.

    `fit` draws the demonstrations, which are the same for all queries. Labels take turns, so that demonstrations are
    balanced. A query's label probabilities come from the log-likelihoods of the labels as continuations of its prompt,
    by an inference method under the paper's definition, as in `evaluator run classify`.

    X is a list of texts, or several columns of texts or numbers: a frame or a two-dimensional array. The model is
    loaded at the first prediction and shared by all estimators of the process with the same model settings. Stored
    scores are used again. With a method that calibrates on all queries (batch_calibration), a query's probabilities
    depend on the other queries of the call; with all other methods they do not.

    Args:
        model: a folder, a hub name, or "embedded".
        shots: number of demonstrations in a prompt.
        n_sets: number of demonstration sets; probabilities are averaged over them.
        method: inference method, as listed by `evaluator methods`. For methods that calibrate on labelled examples,
            half of the training rows are set aside.
        label_names: class -> label name in the prompt; None: str(class), for whole numbers without a fraction.
        template: text around inputs and labels; None: a template made from the column names.
        instruction: text before the demonstrations; only without `template`.
        engine: name of the engine; None: vllm if it is installed, else transformers.
        dtype: dtype of weights and computation: "auto", "float32", "bfloat16" or "float16".
        label_boundary: "separate" or "merged" (tokens/boundary.py); None: as in `evaluator run classify`.
        chat_template: "auto" (the model's own), "none" or a Jinja file (docs/chat-templates.md); None: plain prompts,
            with a warning if the model has a chat template.
        chat_demonstrations: "turns" or "message".
        system_instruction: text of the system message.
        random_state: seed of the demonstrations, in any form that scikit-learn accepts.
        progress: whether to show progress on standard error.

    Attributes:
        classes_: sorted classes, [n_classes], in the order of the columns of predict_proba.
        demonstrations_: frame of the demonstrations in prompt order, with columns `set`, `texts` and `label`.
        n_features_in_: number of columns of X; missing after a fit on a list of texts.

    >>> classifier = InContextClassifier("org/name", shots=8).fit(texts, labels)  # doctest: +SKIP
    >>> classifier.predict_proba(["A film to forget."])  # doctest: +SKIP
    """

    model: str = "embedded"
    _: KW_ONLY
    shots: int = 4
    n_sets: int = 1
    method: str = "vanilla"
    label_names: Mapping[Any, str] | None = None
    template: MetaTemplate | None = None
    instruction: str | None = None
    engine: str | None = None
    dtype: Dtype = "auto"
    label_boundary: LabelBoundary | None = None
    chat_template: str | None = None
    chat_demonstrations: ChatDemonstrations = "turns"
    system_instruction: str | None = None
    random_state: Any = 0
    progress: bool = False

    def fit(self, X: Any, y: Any) -> "InContextClassifier":  # noqa: N803  # scikit-learn's name
        """Draw the demonstrations from labelled examples; no model is loaded.

        Args:
            X: n texts, or n rows of a frame or array.
            y: classes, [n].

        Raises:
            InputError, a ValueError: input that scikit-learn refuses, blank or missing texts, missing classes, a single
                class, or fewer rows than `shots`.
            ConfigError, TemplateError: parameters that do not fit.
        """
        config = self._config()
        is_text = _is_text(X := _listed(X))  # noqa: N806
        rows, y = self._validated(X, y)
        self.classes_, gold = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"y has one class, {self.classes_.item()!r}; a classifier needs two or more.")
        numbered = () if is_text else tuple(f"x{number}" for number in range(self.n_features_in_))
        fields = ("text",) if is_text else tuple(getattr(self, "feature_names_in_", numbered))
        dataset = self._training_dataset(_examples(rows, gold), fields)
        if 0 < methods_of(config.suites)[self.method].labelled_examples(self.shots) < math.inf:
            dataset = SUITES[_SUITE].take(dataset, config)
        else:
            # The method needs no calibration rows, so that all rows can be demonstrations.
            dataset = replace(dataset, calibration=dataset.demonstration)
        self._dataset, self._demonstration_ids = dataset, self._draw(dataset.demonstration["gold"])
        shown, sets = dataset.demonstration[self._demonstration_ids.ravel()], np.arange(self.n_sets)
        self.demonstrations_ = pl.DataFrame(
            {"set": sets.repeat(self.shots), "texts": shown["texts"], "label": self.classes_[shown["gold"].to_numpy()]}
        )
        return self

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return the class probabilities, [n, n_classes], in the order of `classes_`.

        Raises:
            InputError: as for `fit`.
            LabelError: labels that the model cannot distinguish.
            PromptTooLongError: prompts longer than the model's context.
            ModelError: a model that cannot be loaded.
        """
        check_is_fitted(self)
        rows = self._validated(X, reset=False)
        if (n_columns := rows[:1].size) != (n_fitted := len(self._dataset.text_fields)):
            raise InputError(f"X has {n_columns} columns, and {n_fitted} were fitted.")
        queries = _examples(rows, np.zeros(len(rows), dtype=np.int64))
        asked = fingerprint(self._dataset.fingerprint, queries["texts"].to_list())
        dataset = replace(self._dataset, test=queries, fingerprint=asked)
        demonstration_set, query_id = (index.ravel() for index in np.indices((self.n_sets, queries.height)))
        shown = self._demonstration_ids[demonstration_set]
        plan = PromptPlan(demonstration_set=demonstration_set, query_id=query_id, demonstration_ids=shown)
        answers = self._answers(dataset, pl.concat(requests(dataset, plan)).with_columns(part=pl.lit(_PART)))
        probabilities = np.array(answers.sort("position")["label_probs"].to_list())
        return np.asarray(probabilities.reshape(self.n_sets, queries.height, -1).mean(axis=0))

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        """Return the most probable class of each row, [n]. Raises as `predict_proba` does."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])

    def __sklearn_tags__(self) -> Tags:
        """Return the tags that tell scikit-learn's checks which inputs and scores to expect."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.classifier_tags.poor_score = True  # language models classify columns of numbers poorly
        return tags

    def _validated(self, X: Any, *y: Any, reset: bool = True) -> Any:  # noqa: N803
        """Return X, or X and y, after scikit-learn's checks. Raises InputError for input that it refuses."""
        require_unforked()
        is_text = _is_text(X := _listed(X))  # noqa: N806
        # Converted here, because NumPy would turn a missing cell among texts into the text "None" or "nan".
        X = np.array([_text(cell) for cell in X], dtype=object) if is_text else _columns(X)  # noqa: N806
        try:
            # NaN passes here: _examples() refuses it, with the number of its row.
            checks = {"reset": reset, "dtype": None, "ensure_2d": not is_text, "ensure_all_finite": False}
            for number, label in enumerate(np.ravel(np.asarray(y[0], dtype=object)) if y and y[0] is not None else ()):
                if _is_missing(label):  # of a NaN beside texts, NumPy would make the class "nan"
                    raise ValueError(f"y, row {number} (from 0): the class is missing. Fill or remove it.")
            validated = validate_data(self, X, *(each if each is None else _classes(each) for each in y), **checks)
            if y:
                check_classification_targets(validated[1])
            return validated
        except (TypeError, ValueError) as error:
            what = "one text" if isinstance(X, str) else f"of the type {type(X).__name__} and holds no texts"
            is_array = hasattr(X, "__array__") or not str(error).startswith("Expected 2D array")
            raise InputError(str(error) if is_array else f"X is {what}. Give a list of texts.") from error

    def _config(self) -> RunConfig:
        """Return the configuration of a run. Raises ConfigError for parameters that do not fit."""
        for name, (kind, what) in _TAKEN.items():
            if not isinstance(value := getattr(self, name), kind):
                raise ConfigError(f"{name} is {what}, got {shown(value)}.")
        if not isinstance(self.n_sets, Integral) or self.n_sets < 1:
            raise ConfigError(f"n_sets must be 1 or more, got {self.n_sets}.")
        if self.template is not None and self.instruction is not None:
            raise ConfigError("A template holds its instruction: leave out `template` or `instruction`.")
        config = RunConfig(
            suites=(_SUITE,), data=_IN_MEMORY, n_shots=self.shots, methods=(self.method,), definitions=("paper",)
        )
        check_config(config)
        if methods_of(config.suites)[self.method].uses_gold:
            raise ConfigError(f"The method {self.method} needs the true labels of other queries. Choose another one.")
        check_capabilities(config, self._model_config())
        return config

    def _model_config(self) -> ModelConfig:
        given = self.get_params(deep=False)
        chat = from_options(ChatConfig, given)
        return from_options(ModelConfig, given, model=str(self.model), chat=chat if self.chat_template else None)

    def _training_dataset(self, examples: pl.DataFrame, fields: tuple[str, ...]) -> ClassificationDataset:
        """Return a dataset with the examples as demonstrations.

        Raises ConfigError for a class without a label name, TemplateError for a template that does not fit the fields.
        """
        classes = self.classes_.tolist()
        own = {label: _text(label) if isinstance(label, float) else str(label) for label in classes}
        names = own if self.label_names is None else self.label_names
        for label in classes:
            if not isinstance(name := names.get(label), str):
                found = f"a text is needed, got {shown(name)}"
                raise ConfigError(f"label_names has no name for the class {label!r}: {found}. Name each class.")
        verbalizer = Verbalizer(label_names=tuple(names[label] for label in classes))
        template = self.template or table_template(TableText(), self.instruction, fields, "label")
        template.require_fields(fields)
        content = (examples["texts"].to_list(), examples["gold"].to_list(), repr(template), verbalizer.label_names)
        return ClassificationDataset(
            name="X",
            demonstration=examples,
            test=examples,
            text_fields=fields,
            template=template,
            verbalizer=verbalizer,
            fingerprint=fingerprint(*content),
        )

    def _draw(self, gold: pl.Series) -> Ints:
        """Draw balanced demonstration sets and return rows of the demonstration split, [n_sets, shots]."""
        if self.shots > len(gold):
            asked = f"{self.shots} shots were asked for, and n_samples={len(gold)} can be demonstrations"
            raise InputError(f"{asked}. Choose shots from 0 to {len(gold)}.")
        return own_demonstrations(
            "balanced",
            gold.to_numpy(),
            n_shots=self.shots,
            n_queries=1,
            n_demonstration_sets=self.n_sets,
            seed=check_random_state(self.random_state).randint(2**31),
        )[:, 0]

    def _answers(self, dataset: ClassificationDataset, rows: pl.DataFrame) -> pl.DataFrame:
        """Score the prompts of requests that have no stored scores, and return schemas.PREDICTIONS."""
        config, data = self._config(), answers_folder()
        resolved, loader = loaded_model(config, self._model_config())
        folder = data / "store" / fingerprint(dataset.fingerprint, self.method, self._demonstration_ids.tolist())
        own = rows.with_columns(suite=pl.lit(_SUITE))
        every = pl.concat(map(as_request_rows, [own, *added_rows(_SUITE, dataset, rows.lazy(), config)]))
        store = open_intact_store(folder) or write_store(folder, every.lazy())
        built = Built(config, store, measured_parts(config), {dataset.name: dataset})
        scored = (draw if self.progress else finish)(score_run(built, resolved, data, loader, keep_loaded=True))
        run = complete_run(scored_run(built, scored.stores), scored.stores)
        return predict(run.scored, run.methods, config.definitions).collect()


def _listed(X: Any) -> Any:  # noqa: N803
    """Return a column of PyArrow or of `datasets` as a list and a lazy frame as a frame; anything else unchanged."""
    if isinstance(X, pl.LazyFrame):
        return X.collect()
    is_column = hasattr(X, "to_pylist") and not hasattr(X, "column_names")
    return list(X.to_pylist() if is_column else X) if is_column or type(X).__name__ == "Column" else X


def _classes(y: Any) -> Any:
    """Return classes as an array. NumPy infers the type of objects; scikit-learn makes floats of nullable types."""
    classes = np.asarray(y)
    return np.array(classes.tolist()) if classes.dtype == object else classes


def _is_text(X: Any) -> bool:  # noqa: N803
    """Return whether X is a one-dimensional list, series or array of texts; some texts may be missing."""
    has_one_axis = isinstance(X, list | tuple) or len(getattr(X, "shape", ())) == 1
    return has_one_axis and any(isinstance(cell, str) for cell in X)


def _columns(X: Any) -> Any:  # noqa: N803
    """Return a frame with its cells as texts; return anything else unchanged.

    Without this, NumPy would convert all columns to one type: 29 in a frame with 0.5 becomes 29.0, a date becomes a
    number.
    """
    names = [*getattr(X, "column_names", getattr(X, "columns", ()))]  # `columns` of a PyArrow table are arrays
    if not names or len({*names}) < len(names):
        return X
    # NumPy writes numbers in their shortest form; dates and times are written by the frame's own library.
    columns = [X[name] if (cells := np.asarray(X[name])).dtype.kind == "M" else cells for name in names]
    texts = np.array([[_text(cell) for cell in column] for column in columns], dtype=object).T
    return pl.DataFrame(texts, names, orient="row") if all(isinstance(name, str) for name in names) else texts


def _text(cell: Any) -> str:
    """Return a cell as a text, with numbers as in cells of a table file; "" for a missing, NaN or infinite cell."""
    if isinstance(cell, np.floating | np.bool_ | np.integer):  # by str: float32(0.1) as float64 is 0.10000000149
        cell = float(str(cell)) if isinstance(cell, np.floating) else cell.item()
    if _is_missing(cell) or (isinstance(cell, float) and math.isinf(cell)):
        return ""
    return str(cell_text(cell) if isinstance(cell, int | float) else cell)


def _is_missing(cell: Any) -> bool:
    """Return whether a cell is None, NaN, or pandas' NA or NaT."""
    return (
        cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and math.isnan(cell))
    )


_USABLE = re.compile("(?s)(?!.*[\0\ud800-\udfff]).*\\S")
"""Pattern of a valid text: not blank, without NUL, which tokenizers drop, and without lone surrogates."""


def _examples(rows: npt.NDArray[Any], gold: Ints) -> pl.DataFrame:
    """Return rows, [n] or [n, fields], as datasets.base.EXAMPLES. Raises InputError for a cell that is not a text."""
    texts = [[_text(cell) for cell in np.atleast_1d(row)] for row in rows]
    wrong = next((number for number, row in enumerate(texts) if not all(map(_USABLE.match, row))), None)
    if wrong is not None:
        what = "a text is blank, missing, NaN or infinite, or holds NUL or half of a surrogate pair"
        raise InputError(f"X, row {wrong} (from 0): {what}. Fill or remove it.")
    return pl.DataFrame({"source_row": range(len(texts)), "texts": texts, "gold": gold}, schema=EXAMPLES)
