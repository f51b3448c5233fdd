"""Read logs of decision services: an answer to typed questions a row, with the true options beside it.

Five kinds of JSON lines are told apart by their keys: request and reply together (System One, Decisions, Gemini), and
the records of jev-eval's cache, decguard, sys1bench and promptfoo. Each question becomes a dataset.

Source: evaluator/decisions/answers.py has the wire formats; jev-eval 1.2.0 cache.py, decguard 0.1.1
production/records.py, sys1bench 0.3.2 schemas.PredictionRow; promptfoo's results file, version 3.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt
import polars as pl

from evaluator.config import Numbers
from evaluator.datasets.tables import json_rows, parsed
from evaluator.decisions.answers import TypedAnswer, gold_option, typed_answer
from evaluator.errors import DatasetError, shown
from evaluator.files.digests import short_digest
from evaluator.files.json_files import parse_json
from evaluator.files.whole import read_bytes
from evaluator.imports.answers import IMPORTED, WITH_REFUSALS, ImportedDataset, answers_frame, reported_probabilities

KEYS = {
    "request and reply": ("request", "response"),
    "jev-eval": ("question_hash", "answer", "gold"),
    "decguard": ("decision", "probabilities", "selected"),
    "sys1bench": ("question_key", "option_keys", "probs", "ground_truth"),
    "promptfoo": ("vars", "response"),
}
"""Kind of a log -> the keys that its first row has."""


class Answered(NamedTuple):
    """The answer to one question about one input."""

    question: str
    query: str
    prompt: str
    answer: object  # None: refused or missing
    gold: object  # None: not known
    version: str | None = None  # of the model that answered
    mass: float | None = None  # probability of all options together


class _Known(NamedTuple):
    """An answer with its true option."""

    where: str
    row: Answered
    answer: TypedAnswer | None


@lru_cache(maxsize=64)
def log_kind(keys: tuple[str, ...]) -> str | None:
    """Return the kind of a log with these keys in its first row, or None if it is no log of decisions."""
    present = {*keys}
    return next((kind for kind, needed in KEYS.items() if present.issuperset(needed)), None)


def read_log(path: Path, gold: str) -> list[ImportedDataset]:
    """Return a dataset for each question of a log and, where answers were refused, a second dataset that counts them.

    Args:
        gold: key of the true options where the rows are requests and replies: an option, or question -> option.

    Raises DatasetError, naming file and row, for answers and gold values that do not fit, and without any gold value.
    """
    known: dict[str, list[_Known]] = {}
    left_out: Counter[str] = Counter()  # question -> answers without a true option
    for where, row in _rows(path):
        try:
            for answered in _READERS[log_kind((*row,)) or "request and reply"](row, gold):
                if answered.gold is None:
                    left_out[answered.question] += 1
                else:
                    entry = _Known(where, answered, typed_answer(answered.answer))
                    known.setdefault(answered.question, []).append(entry)
        except DatasetError as error:
            raise DatasetError(f"{where}: {error}.") from error
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise DatasetError(f"{where}: this is no row of a log of decisions ({error!r}).") from error
    if not known:
        raise DatasetError(
            f"{path}: no row has a true option. Give each row the key {gold!r}, or name another with --gold-column: an "
            'option, or an object such as {"queue": "billing"} for several questions.'
        )
    datasets = [dataset for question, rows in known.items() for dataset in _datasets(path, question, rows)]
    notes = {name: (f"{n} answers have no true option and are left out",) for name, n in left_out.items()}
    return [dataset._replace(notes=(*dataset.notes, *notes.get(dataset.name, ()))) for dataset in datasets]


def _rows(path: Path) -> Iterable[tuple[str, dict[str, Any]]]:
    """Return the rows of JSON lines, or of promptfoo's results file, each with its place."""
    if path.suffix != ".json":
        return ((f"{path}, row {number} (from 0)", row) for number, row in json_rows(path))
    try:
        results = parse_json(read_bytes(path))["results"]
        rows = results["results"] if isinstance(results, dict) else results
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path} is no results file of promptfoo ({error!r}). Logs are JSON lines.") from error
    return ((f"{path}, result {number} (from 0)", row) for number, row in enumerate(rows))


def _datasets(path: Path, question: str, rows: Sequence[_Known]) -> Iterator[ImportedDataset]:
    """Yield the datasets of a question: one for each number of options, as a dataset has one number."""
    by_size: dict[int, list[_Known]] = {}
    for row in rows:
        if row.answer is not None:
            by_size.setdefault(len(row.answer.options), []).append(row)
    versions = sorted({row.row.version for row in rows if row.row.version})
    n_refused = sum(row.answer is None for row in rows)
    notes = [f"answered by {', '.join(versions)}"] if versions else []
    if n_refused:
        notes.append(
            f"{n_refused} of {len(rows)} answers were refused or are missing: the part {IMPORTED} leaves them out, and "
            f"the part {WITH_REFUSALS} counts them as wrong"
        )
    for size, of_size in by_size.items():
        name = question if len(by_size) == 1 else f"{question} ({size} options)"
        dataset = _dataset(path, name, of_size, notes)
        yield dataset
        if n_refused and len(by_size) == 1:
            yield _with_refusals(dataset, [row for row in rows if row.answer is None])


def _dataset(path: Path, name: str, rows: Sequence[_Known], notes: Sequence[str]) -> ImportedDataset:
    answers = [row.answer for row in rows if row.answer is not None]
    order = answers[0].options
    spaces, numbers = [], []
    for answer in answers:
        values, options = answer.probabilities, answer.options
        if options != order and {*options} == {*order}:
            of_option = dict(zip(options, values, strict=True))
            values, options = tuple(of_option[option] for option in order), order
        spaces.append(options)
        numbers.append(values)
    reported = reported_probabilities(
        numbers,
        lambda place, allowed: DatasetError(
            f"{rows[place].where}, question {name!r}: found {[*numbers[place]]}; allowed is {allowed}."
        ),
    )
    golds = [_gold(row, answer, options) for row, answer, options in zip(rows, answers, spaces, strict=True)]
    frame = _answers(rows, golds, spaces, reported.log_likelihoods)
    masses = [row.row.mass for row in rows]
    kind: Numbers = "probabilities"
    if all(mass and mass > 0 for mass in masses):  # p x mass is then the likelihood over the vocabulary
        kind = "log-likelihoods"
        frame = frame.with_columns(pl.col("log_likelihoods") + pl.Series(masses, dtype=pl.Float64).log())
    return ImportedDataset(name, kind, frame, path.name, reported.floor, (*notes, *reported.notes))


def _with_refusals(dataset: ImportedDataset, refused: Sequence[_Known]) -> ImportedDataset:
    """Return the answers of a dataset and its refusals, each with an answer that is not the true option."""
    options = tuple(dataset.rows["label_names"][0])
    golds = [_gold(row, TypedAnswer(options, ()), options) for row in refused]
    wrong = [
        [0.0 if place == (gold + 1) % len(options) else -math.inf for place in range(len(options))] for gold in golds
    ]
    rows = _answers(refused, golds, [options] * len(refused), wrong)
    return dataset._replace(rows=pl.concat([dataset.rows, rows]), part=WITH_REFUSALS, floor=None)


def _gold(known: _Known, answer: TypedAnswer, options: Sequence[str]) -> int:
    option = gold_option(known.row.gold, answer)
    if option is None:
        question = f"{known.where}, question {known.row.question!r}"
        raise DatasetError(f"{question}: the true option {shown(known.row.gold)} is none of {', '.join(options)}.")
    return options.index(option)


def _answers(
    rows: Sequence[_Known], golds: Sequence[int], spaces: Sequence[Sequence[str]], numbers: npt.ArrayLike
) -> pl.DataFrame:
    return answers_frame([row.row.query for row in rows], [row.row.prompt for row in rows], golds, spaces, numbers)


def _exchange(row: Mapping[str, Any], gold: str) -> Iterator[Answered]:
    """Yield the answers of a reply. Answers of a list belong to the questions by place, as they may have no name."""
    request, reply = row["request"], row["response"]
    state = request.get("state", request.get("input", ""))
    text = state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
    questions, answers = request["questions"], reply.get("answers") or {}
    if isinstance(questions, list):
        names = [question.get("name") or f"question {place}" for place, question in enumerate(questions, 1)]
        if len({*names}) < len(names):
            names = [f"{name}, {place}" for place, name in enumerate(names, 1)]
        questions = dict(zip(names, questions, strict=True))
        if answers and len(answers) != len(names):
            raise DatasetError(f"{len(answers)} answers to {len(names)} questions")
        answers = dict(zip(names, answers or [None] * len(names), strict=True))
    given = row.get(gold, row.get("labels"))
    query = str(row["id"]) if "id" in row else short_digest(text.encode())
    for name, question in questions.items():
        answer = answers.get(name)
        diagnostics = (reply.get("diagnostics") or {}).get(name) or {}
        yield Answered(
            question=name,
            query=query,
            prompt=f"{text}\n\n{_JSON.encode(question)}",
            answer=answer,
            gold=given.get(name) if isinstance(given, Mapping) else given,
            version=reply.get("model"),
            mass=diagnostics.get("label_mass"),
        )


def _jev_eval(row: Mapping[str, Any], _gold: str) -> Iterator[Answered]:
    question = json.dumps(row["question"], ensure_ascii=False)
    yield Answered(row["id"], row["state_hash"], question, row["answer"], row["gold"], row.get("model"))


def _decguard(row: Mapping[str, Any], _gold: str) -> Iterator[Answered]:
    asked = json.dumps(row.get("input"), ensure_ascii=False)
    query = str(row.get("id", short_digest(asked.encode())))
    version = row.get("model_version") or row.get("model")
    answer = {"probabilities": row["probabilities"]}
    yield Answered(row["decision"], query, asked, answer, row.get("outcome"), version)


def _sys1bench(row: Mapping[str, Any], _gold: str) -> Iterator[Answered]:
    pairs = [{"value": key, "probability": p} for key, p in zip(row["option_keys"], row["probs"], strict=False)]
    answer = None if row.get("error") else {"probabilities": pairs}
    asked = f"{row.get('framing_id')}, {row.get('permutation_id')}"
    yield Answered(row["question_key"], row["row_id"], asked, answer, row["ground_truth"], row.get("model_id"))


def _promptfoo(row: Mapping[str, Any], gold: str) -> Iterator[Answered]:
    """Yield the answers of a result, whose variables hold the true options."""
    response, asked = row["response"] or {}, row["vars"]
    replies = [_parsed(response.get(key)) for key in ("raw", "output")]
    reply = next((one for one in replies if isinstance(one, Mapping) and "answers" in one), None)
    if reply is None:
        answer = next((one for one in replies if isinstance(one, Mapping)), None)
        reply = {"answers": {"answer": answer}}
    answers = reply["answers"]
    if isinstance(answers, list):
        answers = {one.get("name") or f"question {place}": one for place, one in enumerate(answers, 1)}
    prompt = (row.get("prompt") or {}).get("raw", "")
    query = short_digest(json.dumps(asked, sort_keys=True).encode())
    given = _parsed(asked.get(gold))
    for name, answer in answers.items():
        true = given.get(name) if isinstance(given, Mapping) else given
        yield Answered(name, query, prompt, answer, true, reply.get("model"))


def _parsed(text: object) -> Any:
    return parsed(text) if isinstance(text, str) else text


_JSON = json.JSONEncoder(ensure_ascii=False)

_READERS = {
    "request and reply": _exchange,
    "jev-eval": _jev_eval,
    "decguard": _decguard,
    "sys1bench": _sys1bench,
    "promptfoo": _promptfoo,
}
