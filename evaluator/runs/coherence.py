"""Measure how often answers to typed questions break laws of probability, logic and choice (`evaluator coherence`).

No true labels are needed. The package jevbench has the cases, the laws and the scores. Its requests do not depend on
earlier answers: they are collected in a first pass, scored together in prefix order, and judged in a second pass.

Source: jevbench 0.1.0 (Apache 2.0), `evaluate` and the wire format of System One.
"""

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from scipy.special import softmax

from evaluator.arrays import Floats
from evaluator.config import CoherenceOptions, ModelConfig
from evaluator.decisions.forms import Form, asked
from evaluator.decisions.questions import NO, YES, QuestionKind
from evaluator.engine import find_source, with_devices
from evaluator.engine.replicas import EngineLoader
from evaluator.errors import ConfigError
from evaluator.models.source import ModelSource
from evaluator.progress import Progress, Stage
from evaluator.prompts.rows import prompt_spans
from evaluator.run.resolved_models import chat_form
from evaluator.runs.receipt import score_in_jobs
from evaluator.suites.decide.prompts import default_order
from evaluator.tokens.table import in_prefix_order, tokenise

MAX_ROWS_PER_JOB = 1024

Wire = Mapping[str, Any]
"""A question or an answer in the wire format of System One."""


class _Requests:
    """The distinct questions about each state, and the probabilities of their options once they are scored."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._answers: dict[str, Floats] = {}
        self.prompts: dict[str, tuple[str, list[str]]] = {}  # key -> text of the prompt, texts of the answers

    def reply(self, state: object, questions: Mapping[str, Wire]) -> dict[str, Wire]:
        """Return an answer to each question; before the questions are scored, all options are equally probable."""
        return {name: self._answer(state, question) for name, question in questions.items()}

    def keep(self, scored: pl.DataFrame) -> None:
        """Store the answers from the log-likelihoods of all prompts (schemas.SCORES)."""
        rows = scored.select("prompt_id", "label_log_likelihoods").iter_rows()
        self._answers = {key: softmax(np.array(numbers)) for key, numbers in rows}

    def _answer(self, state: object, question: Wire) -> Wire:
        key = json.dumps([state, question])  # which keeps the order of options: it matters
        kind, options = _options(question)
        if key not in self.prompts:
            text = state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
            order = default_order(kind, len(options))
            put = asked(self._form, kind, question["instructions"], [*options], [*options.values()], order)
            self.prompts[key] = f"{text}\n\n{put.text}", put.answers
        shares = self._answers.get(key, np.full(len(options), 1 / len(options))).tolist()
        if kind == "yes-no":
            return {"type": "noul", "noul": shares[1]}
        names = options if kind == "choice" else map(str, range(len(options)))
        return {"type": kind, "probabilities": dict(zip(names, shares, strict=True))}


def _options(question: Wire) -> tuple[QuestionKind, dict[str, str]]:
    """Return the kind of a question, and its options with their descriptions."""
    criteria = question.get("criteria") or {}
    if question["type"] == "noul":
        return "yes-no", {NO: criteria.get("false") or "", YES: criteria.get("true") or ""}
    if question["type"] == "score":
        return "score", dict.fromkeys(criteria, "")
    return "choice", {name: text or "" for name, text in criteria.items()}


def coherence(config: ModelConfig, options: CoherenceOptions) -> Stage[Any]:
    """Answer the cases of jevbench with a model; return its `Report`: scores with intervals over cases, and violations.

    Raises ConfigError if jevbench is not installed, and what find_source, with_devices and engines raise.
    """
    try:
        import jevbench
    except ImportError as error:
        raise ConfigError("coherence needs the package jevbench: pip install 'evaluator[jevbench]'.") from error

    requests = _Requests(options.form)

    def judged() -> Any:
        return jevbench.evaluate(requests.reply, options.suite, cache=None, name=source.name)

    source = find_source(config)
    yield Progress(stage="Reading cases", done=0, total=1, unit="suites")
    judged()
    rows = _tokens(source, config, requests.prompts)
    requests.keep((yield from _scored(source, with_devices(source, config), rows)))
    yield Progress(stage="Judging answers", done=0, total=1, unit="suites")
    return judged()


def _tokens(source: ModelSource, config: ModelConfig, prompts: Mapping[str, tuple[str, list[str]]]) -> pl.DataFrame:
    """Tokenise prompts (key -> text, answers): return schemas.TOKENS in an order in which neighbours share prefixes."""
    texts, answers = zip(*prompts.values(), strict=True)
    inputs = pl.Series(texts)
    none = pl.DataFrame(schema={"text": pl.String(), "label": pl.Int64()})
    rows = pl.DataFrame({"prompt_id": [*prompts], "ask": "labels", "prompt": inputs, "continuations": [*answers]})
    spans = prompt_spans("", none, np.empty((len(inputs), 0), np.int64), inputs)
    form, boundary = chat_form(source, config.chat), config.label_boundary or "merged"
    tokens = tokenise(source.tokenizer, rows.with_columns(spans), boundary, form)
    return in_prefix_order(tokens.lazy()).collect()


def _scored(source: ModelSource, config: ModelConfig, rows: pl.DataFrame) -> Stage[pl.DataFrame]:
    """Score prompts (`rows`: schemas.TOKENS) with a model; return schemas.SCORES."""
    longest = max(map(len, rows["context"])) + max(len(one) for each in rows["continuations"] for one in each)
    with TemporaryDirectory() as folder, closing(EngineLoader(source, config, Path(folder))) as loader:
        replicas = yield from loader.replicas(longest)
        n_jobs = max(4 * replicas.n, -(-rows.height // MAX_ROWS_PER_JOB))
        found = list[pl.DataFrame]()
        for part in score_in_jobs(replicas, rows, source.adapter, n_jobs):
            found.append(part.scores)
            yield Progress(stage="Scoring", done=sum(map(len, found)), total=rows.height, unit="prompts")
    return pl.concat(found)
