"""The scikit-learn classifier: scikit-learn's own checks, and the same answers as a run gives."""

import multiprocessing
import pickle
import warnings
from collections import UserList
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import estimator_checks_generator

import evaluator
from evaluator.api.classifier import unload_models
from evaluator.engine import replicas
from evaluator.errors import ConfigError, InputError
from evaluator.templates.template import MetaTemplate

FAKE = {"model": "fake", "engine": "fake"}
TEXTS = [f"text {number}" for number in range(40)]
LABELS = ["bad", "good"] * 20


OF_SETS = {"check_classifiers_train", "check_fit_idempotent", "check_methods_sample_order_invariance"}
"""Checks of the mean over several sets in every run; the others are about one set as well."""


def checks() -> Iterator[Any]:
    """Yield scikit-learn's checks, without the two that need pandas or an array API, which are not installed."""
    for classifier in (evaluator.InContextClassifier(**FAKE), evaluator.InContextClassifier(**FAKE, n_sets=2)):
        for estimator, check in estimator_checks_generator(classifier):
            if check.func.__name__ not in ("check_array_api_input", "check_classifier_data_not_an_array"):
                marks = [pytest.mark.exhaustive] if classifier.n_sets > 1 and check.func.__name__ not in OF_SETS else []
                yield pytest.param(estimator, check, id=f"{check.func.__name__}-{classifier.n_sets}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", ["vanilla", "contextual_calibration", "hidden_calibration", "topk"])
def test_every_kind_of_method_answers(method):
    classifier = evaluator.InContextClassifier(**FAKE, method=method).fit(TEXTS, LABELS)
    probabilities = classifier.predict_proba(["one", "two", "three"])
    assert probabilities.shape == (3, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_numbers_of_a_grid_of_parameters_that_numpy_makes_are_taken():
    probabilities = [
        evaluator.InContextClassifier(**FAKE, shots=shots, n_sets=shots).fit(TEXTS, LABELS).predict_proba(["one"])
        for shots in (2, *np.arange(2, 3))
    ]
    np.testing.assert_array_equal(*probabilities)


def test_a_method_that_needs_the_lm_head_leaves_the_model_loaded():
    unload_models()
    with patch.object(replicas, "load_engine", wraps=replicas.load_engine) as load:
        classifier = evaluator.InContextClassifier(**FAKE, method="knn_centroid").fit(TEXTS, LABELS)
        classifier.predict(["not asked before"])
        classifier.predict(["nor this"])
    assert load.call_count == 1


@pytest.mark.parametrize("method", ["vanilla", "topk"])  # neither sets training rows aside, so both rows "a" are shown
def test_demonstrations_show_labels_in_turn_and_are_the_same_for_all_queries(method):
    classifier = evaluator.InContextClassifier(**FAKE, method=method, shots=4, n_sets=3).fit(
        TEXTS, ["a", *["b"] * 38, "a"]
    )
    shown = classifier.demonstrations_.group_by("set", maintain_order=True).agg("label")["label"].to_list()
    assert [sorted(labels) for labels in shown] == [["a", "a", "b", "b"]] * 3
    again = clone(classifier).fit(TEXTS, ["a", *["b"] * 38, "a"])
    assert again.demonstrations_.equals(classifier.demonstrations_)


def test_a_fitted_classifier_can_be_pickled_and_answers_the_same():
    classifier = evaluator.InContextClassifier(**FAKE).fit(TEXTS, LABELS)
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(TEXTS), classifier.predict_proba(TEXTS))


def test_columns_of_a_frame_are_text_fields():
    frame = pl.DataFrame({"premise": TEXTS, "hypothesis": TEXTS[::-1]})
    classifier = evaluator.InContextClassifier(**FAKE).fit(frame, LABELS)
    assert list(classifier.feature_names_in_) == ["premise", "hypothesis"]
    assert classifier.predict(frame[:5]).shape == (5,)
    template = MetaTemplate(input_prefixes=("",), input_affixes=("",), label_prefix="", label_affix="")
    with pytest.raises(evaluator.errors.TemplateError, match="1 input prefixes"):
        evaluator.InContextClassifier(**FAKE, template=template).fit(frame, LABELS)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_cells_of_a_frame_are_the_texts_that_a_run_reads_whatever_other_columns_hold(kind):
    """NumPy makes one type of all columns: 29.0 of 29 beside 12.5, and of dates an error or a number of days."""
    times = [datetime(2026, 11, day) for day in (1, 2)]
    columns = {"age": [29, 30], "income": [12.5, 13.0], "paid": [True, False], "rate": np.float32([0.1, 2])}
    for more in ({}, {"when": times}, {"name": ["a", "b"]}):
        classifier = evaluator.InContextClassifier(**FAKE, shots=2).fit(kind(columns | more), ["x", "y"])
        assert list(classifier.feature_names_in_) == [*columns, *more]
        expected = [["29", "12.5", "true", "0.1"], ["30", "13", "false", "2"]]
        dates = {"when": ["2026-11-01 00:00:00", "2026-11-02 00:00:00"]}
        expected = [row + [(more | dates)[name][place] for name in more] for place, row in enumerate(expected)]
        assert sorted(classifier.demonstrations_["texts"].to_list()) == expected
    numbered = evaluator.InContextClassifier(**FAKE, shots=2).fit(pd.DataFrame({0: [1, 2], 1: [0.5, 1.5]}), ["x", "y"])
    assert sorted(numbered.demonstrations_["texts"].to_list()) == [["1", "0.5"], ["2", "1.5"]]
    with pytest.raises(InputError, match="0 sample"):
        classifier.predict(kind(columns | more)[:0])


def test_columns_that_were_not_fitted_are_refused_and_not_dropped():
    frame = pl.DataFrame({"title": TEXTS, "body": TEXTS[::-1]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, about names
        for fitted, asked, said in ((TEXTS, frame, "X has 2 columns, and 1"), (frame, TEXTS, "X has 1 columns, and 2")):
            classifier = evaluator.InContextClassifier(**FAKE).fit(fitted, LABELS)
            with pytest.raises(InputError, match=said):
                classifier.predict(asked)


def test_nullable_classes_are_named_as_the_whole_numbers_that_they_are():
    """scikit-learn makes floats of pandas' Int64, and a prompt would say 1.0."""
    found = [
        evaluator.InContextClassifier(**FAKE).fit(TEXTS, pd.Series([0, 1] * 20, dtype=kind)).predict_proba(["a film"])
        for kind in ("int64", "Int64")
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("kind", ["string", "Int64"])
def test_pandas_missing_class_is_one_sentence_with_its_row(kind):
    labels = pd.Series(["1", None], dtype="string").astype(kind)
    with pytest.raises(InputError, match=r"^y, row 1 \(from 0\): the class is missing"):
        evaluator.InContextClassifier(**FAKE).fit(TEXTS[:2], labels)


@pytest.mark.parametrize("kind", ["boolean", "bool[pyarrow]", "category", object])
def test_truth_values_of_every_type_are_the_same_classes(kind):
    """scikit-learn makes floats of pandas' types, and a prompt would say 1 for True; it refuses objects."""
    plain = evaluator.InContextClassifier(**FAKE).fit(TEXTS, [False, True] * 20)
    found = evaluator.InContextClassifier(**FAKE).fit(TEXTS, pd.Series([False, True] * 20, dtype=kind))
    assert found.classes_.dtype == bool
    np.testing.assert_array_equal(found.predict_proba(["a film"]), plain.predict_proba(["a film"]))


@pytest.mark.parametrize("kind", ["Int64", object])
def test_large_whole_numbers_stay_different_classes(kind):
    numbers = [2**60 + 1, 2**60 + 2, 5, 6]
    found = evaluator.InContextClassifier(**FAKE).fit(TEXTS, pd.Series(numbers * 10, dtype=kind))
    assert found.classes_.tolist() == sorted(numbers)


@pytest.mark.parametrize("labels", [["a", float("nan")], pd.Series(["a", np.nan]), np.array(["a", np.nan], object)])
def test_a_nan_among_classes_is_a_missing_class_and_not_one_named_nan(labels):
    with pytest.raises(InputError, match=r"^y, row 1 \(from 0\): the class is missing"):
        evaluator.InContextClassifier(**FAKE, shots=2).fit(TEXTS[:2], labels)


@pytest.mark.parametrize("kind", [pa.array, lambda texts: pa.chunked_array([texts[:7], texts[7:]])])
def test_a_column_of_arrow_is_a_list_of_texts(kind):
    expected = evaluator.InContextClassifier(**FAKE).fit(TEXTS, LABELS).predict_proba(TEXTS)
    found = evaluator.InContextClassifier(**FAKE).fit(kind(TEXTS), pa.array(LABELS)).predict_proba(kind(TEXTS))
    np.testing.assert_array_equal(found, expected)


class Column(UserList[str]):
    """A sequence that is no list, under the name of the class of a column in the package `datasets`."""


def test_a_column_of_a_dataset_is_a_list_of_texts_and_a_lazy_frame_is_a_frame():
    column = Column(TEXTS)
    expected = evaluator.InContextClassifier(**FAKE).fit(TEXTS, LABELS).predict_proba(TEXTS)
    np.testing.assert_array_equal(
        evaluator.InContextClassifier(**FAKE).fit(column, LABELS).predict_proba(column), expected
    )
    lazy = pl.LazyFrame({"text": TEXTS})
    np.testing.assert_array_equal(evaluator.InContextClassifier(**FAKE).fit(lazy, LABELS).predict_proba(lazy), expected)


@pytest.mark.parametrize("texts", [[], (), iter(TEXTS), {"text": TEXTS}, {*TEXTS}, [1, 2], [b"a"]])
def test_what_holds_no_texts_is_named_in_one_sentence(texts):
    said = rf"^X is of the type {type(texts).__name__} and holds no texts\. Give a list of texts\.$"
    with pytest.raises(InputError, match=said):
        evaluator.InContextClassifier(**FAKE).fit(TEXTS, LABELS).predict(texts)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_is_told_that_it_cannot_classify():
    """Polars has no threads there, and waits for ever."""
    classifier = evaluator.InContextClassifier(**FAKE).fit(TEXTS, LABELS)

    def child(queue):
        for call in (lambda: classifier.predict(TEXTS), lambda: evaluator.evaluate("classify"), classifier.get_params):
            try:
                queue.put(str(call()))
            except ConfigError as error:
                queue.put(str(error))

    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(queue,), daemon=True)
    process.start()
    process.join(60)
    process.kill()
    assert process.exitcode == 0
    said = [queue.get() for _ in range(3)]
    assert [text.startswith("This process was forked") for text in said] == [True, True, False]


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
def test_nul_and_half_a_surrogate_pair_are_refused_as_in_a_table(text):
    with pytest.raises(InputError, match=r"^X, row 1 \(from 0\): .*holds NUL or half of a surrogate pair"):
        evaluator.InContextClassifier(**FAKE).fit(TEXTS, LABELS).predict(["a", text])


def test_what_does_not_fit_is_said_when_fitting():
    def fit(**parameters):
        evaluator.InContextClassifier(**{**FAKE, **parameters}).fit(TEXTS, LABELS)

    with pytest.raises(ConfigError, match="no method 'none'"):
        fit(method="none")
    with pytest.raises(ConfigError, match="temperature_scaling needs the true labels of other queries"):
        fit(method="temperature_scaling")
    with pytest.raises(ConfigError, match="no name for the class 'good'"):
        fit(label_names={"bad": "negative"})
    with pytest.raises(ConfigError, match="n_sets must be 1 or more"):
        fit(n_sets=0)
    with pytest.raises(ValueError, match="Choose shots from 0 to 40"):
        fit(shots=41)
    with pytest.raises(InputError, match=r"y, row 1 \(from 0\): the class is missing"):
        evaluator.InContextClassifier(**FAKE).fit(TEXTS[:2], ["a", None])


@pytest.mark.parametrize("kind", [list, pl.Series, pd.Series, lambda texts: pd.DataFrame({"a": TEXTS[:2], "b": texts})])
@pytest.mark.parametrize("missing", [" ", None, float("nan")])
def test_a_blank_or_missing_text_is_one_sentence_with_its_row(kind, missing):
    classifier = evaluator.InContextClassifier(**FAKE, shots=2).fit(kind(TEXTS[:2]), [0, 1])
    texts = ["a", missing] if kind is not pl.Series else pl.Series(["a", missing], dtype=pl.Object)
    for refusing in (classifier.predict_proba, lambda queries: classifier.fit(queries, [0, 1])):
        with pytest.raises(InputError, match=r"^X, row 1 \(from 0\): a text is blank, missing, NaN or infinite") as one:
            refusing(kind(texts))
        assert "\n" not in str(one.value)
        assert one.value._render_traceback_() == [f"InputError: {one.value}"]  # all that a notebook shows


def test_one_text_in_place_of_a_list_is_said():
    with pytest.raises(InputError, match=r"^X is one text. Give a list of texts.$"):
        evaluator.InContextClassifier(**FAKE).fit(TEXTS, LABELS).predict("a film")


def test_the_shipped_model_reads_its_demonstrations_in_a_cross_validation():
    """Answers are the means of two prompts written by hand, one a set of demonstrations, from transformers alone."""
    texts = [f"a {word} film" for word in ("great", "bad", "fine", "poor") * 6]
    labels = np.array(["good", "bad"] * 12)
    classifier = evaluator.InContextClassifier("embedded", engine="transformers", dtype="float32", shots=2, n_sets=2)
    try:
        assert len(cross_val_score(classifier, texts, labels, cv=2)) == 2
        classifier.fit(texts, labels)
        found = classifier.predict_proba(["a great film"])
    finally:
        unload_models()
    sets = classifier.demonstrations_.partition_by("set", maintain_order=True)
    expected = [by_hand(demonstrations, "a great film", ["bad", "good"]) for demonstrations in sets]
    np.testing.assert_allclose(found, np.mean(expected, axis=0), atol=1e-5)
    assert not np.allclose(*expected, atol=1e-4)


def by_hand(demonstrations: pl.DataFrame, query: str, labels: list[str]) -> np.ndarray:
    """Return the probabilities of labels of one token or more after a prompt, [1, labels]."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from evaluator.models.embedded import EMBEDDED_MODELS

    folder = str(EMBEDDED_MODELS["embedded"]())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    shown = "".join(f"text: {texts[0]}\nlabel: {label}\n\n" for _, texts, label in demonstrations.iter_rows())
    prompt = tokenizer(f"{shown}text: {query}\nlabel: ").input_ids
    scores = []
    for label in labels:
        tokens = tokenizer(label, add_special_tokens=False).input_ids
        with torch.no_grad():
            logits = model(torch.tensor([prompt + tokens])).logits[0].log_softmax(-1)
        scores.append(sum(float(logits[len(prompt) - 1 + place, token]) for place, token in enumerate(tokens)))
    exponent = np.exp(np.array(scores) - max(scores))
    return (exponent / exponent.sum())[None]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"label_boundary": "Merged"}, "--label-boundary is separate or merged, got 'Merged'"),
        ({"dtype": "fp16"}, "--dtype is auto or float32 or bfloat16 or float16, got 'fp16'"),
        ({"chat_template": "auto", "chat_demonstrations": "turn"}, "--chat-demonstrations is turns or message"),
        ({"shots": 2.5}, "--shots is a whole number, got 2.5"),
        ({"shots": "4"}, "--shots is a whole number, got '4'"),
        ({"n_sets": 1.5}, "n_sets must be 1 or more, got 1.5"),
        ({"progress": "yes"}, "progress is True or False, got 'yes'"),
        ({"random_state": "x"}, "random_state is a whole number, a RandomState of NumPy, or None, got 'x'"),
        ({"shots": None}, "--shots is a whole number, got None"),
        ({"engine": 3}, "--engine is a text, got 3"),
        ({"model": None}, 'model is a folder, a hub name or "embedded", got None'),
        ({"method": None}, "method is the name of a method, as `evaluator methods` lists them, got None"),
        ({"instruction": 3}, "instruction is a text, or None, got 3"),
        ({"template": "{text}"}, "template is a MetaTemplate .*, or None, got '{text}'"),
        (
            {"label_names": ["bad", "good"]},
            "label_names is a dictionary of class -> text, or None, got .'bad', 'good'.",
        ),
        ({"label_names": {"bad": 3}}, "no name for the class 'bad': a text is needed, got 3. Name each class"),
    ],
)
def test_a_value_that_a_parameter_does_not_take_is_refused(parameters, said):
    with pytest.raises(ConfigError, match=said):
        evaluator.InContextClassifier(**FAKE | parameters).fit(TEXTS, LABELS)
    evaluator.InContextClassifier(**FAKE, shots=np.int64(2), n_sets=np.int64(2)).fit(TEXTS, LABELS)
