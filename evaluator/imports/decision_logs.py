"""Read logs of decision services: a row has the answers to typed questions about an input, and the true options.

Five kinds of logs are recognised by their keys: request and reply in one row (System One, Decisions, Gemini), and
records of jev-eval's cache, decguard, sys1bench and promptfoo. Each question becomes a dataset.

Source: evaluator/decisions/answers.py has the wire formats; jev-eval 1.2.0 cache.py, decguard 0.1.1
production/records.py, sys1bench 0.3.2 schemas.PredictionRow; promptfoo's results file, version 3.
"""

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evaluator.config import Numbers
from evaluator.datasets.tables import ending, json_rows, parsed
from evaluator.decisions.answers import SUM_TOLERANCE, Gold, TypedAnswer, answers_by_name, gold_index, typed_answer
from evaluator.decisions.questions import NEGATION, NO, VARIED, YES, option_text
from evaluator.errors import DatasetError, shown
from evaluator.files.digests import short_digest
from evaluator.files.json_files import parse_json
from evaluator.files.whole import read_bytes
from evaluator.imports.answers import IMPORTED, WITH_REFUSALS, ImportedDataset, answers_frame, reported_probabilities

logger = logging.getLogger(__name__)

ASKED_TABLE = "asked_table"
"""Key of a log of `evaluator ask`: path of the table whose row numbers are the ids. Thresholds find columns in it."""


class Answered(NamedTuple):
    """The answer to one question about one input."""

    question: str  # name of the question
    query: str  # id of the input
    prompt: str  # text of the input and the question, as far as the log has them
    answer: Any  # as reported, and after _typed a TypedAnswer; None: refused or missing
    gold: object  # true option, level or distribution, as the log has it; None: not known
    version: str | None = None  # name and version of the model that answered
    mass: float | None = None  # probability of all options together, over the vocabulary
    part: str = IMPORTED  # or one of VARIED: the question was asked with an irrelevant change
    template: int = 0  # number of the change
    asked: TypedAnswer = TypedAnswer((), ())  # options of the question; without options if they are not known
    where: str = ""  # file and row, for errors


@lru_cache(maxsize=64)
def log_kind(keys: tuple[str, ...]) -> str | None:
    """Return the kind of a log, a key of _KINDS, from the keys of its first row; None if the file is not such a log."""
    return next((name for name, (_, first_keys) in _KINDS.items() if {*first_keys} <= {*keys}), None)


def read_log(path: Path, gold: str, *, needs_gold: bool = True) -> list[ImportedDataset]:
    """Return the datasets of a log: for each question one in the part IMPORTED, and others in further parts.

    Further parts are those of VARIED, in which a question was asked again with a change, and WITH_REFUSALS, which
    counts refused and missing answers as wrong. A question whose answers differ in their number of options becomes one
    dataset for each number.

    Args:
        path: JSON lines, or the results file of promptfoo.
        gold: key of the true options in rows of request and reply, or in the variables of promptfoo; its value is an
            option, or a mapping from questions to options. Other kinds of logs have keys of their own.
        needs_gold: whether to leave out answers without a true option; answers in parts of VARIED are always kept.

    Raises DatasetError, naming file and row, for wrong answers and true options; also if no answer has a true option
    although `needs_gold`, and if all answers were refused or are missing.
    """
    known: dict[str, list[Answered]] = {}
    for where, row in _rows(path):
        kind = log_kind((*row,)) or "request and reply"
        try:
            read, _ = _KINDS[kind]
            for answered in read(row, gold):
                known.setdefault(answered.question, []).append(_typed(answered, where))
        except DatasetError as error:
            raise DatasetError(f"{where}: {error}.") from error
        except KeyError as error:
            raise DatasetError(f"{where}: the key {error} is missing, which logs of the kind {kind} have.") from error
        except (TypeError, AttributeError, ValueError) as error:
            raise DatasetError(f"{where}: a value has another type than in logs of the kind {kind}.") from error
    if needs_gold and all(row.gold is None and row.part == IMPORTED for rows in known.values() for row in rows):
        raise DatasetError(
            f"{path}: no row has a true option. Give each row the key {gold!r}, or name another with --gold-column: an "
            'option, or an object such as {"queue": "billing"} for several questions.'
        )
    for name, rows in known.items() if needs_gold else ():
        if all(row.gold is None and row.part == IMPORTED for row in rows):
            logger.warning("%s: no answer to the question %r has a true option, so it is left out.", path, name)
    # With the label mass, p x mass is a likelihood over the vocabulary. All datasets must have one kind of numbers, so
    # this is done only if every answer has a mass.
    has_masses = all(row.mass for rows in known.values() for row in rows if row.answer)
    numbers: Numbers = "log-likelihoods" if has_masses else "probabilities"
    of_questions = (_datasets(path, name, rows, numbers, needs_gold=needs_gold) for name, rows in known.items())
    datasets = [*chain.from_iterable(of_questions)]
    if all(dataset.part == WITH_REFUSALS for dataset in datasets):
        raise DatasetError(f"{path}: all answers were refused or are missing.")
    return datasets


def _typed(row: Answered, where: str) -> Answered:
    """Parse the answer of a row to a TypedAnswer; in the part NEGATION, yes and no are swapped. Raises DatasetError."""
    if not isinstance(row.question, str) or not row.question.strip():
        raise DatasetError(f"the name of a question is a text and not blank, found {shown(row.question)}")
    if row.mass is not None and not 0 <= row.mass <= 1 + SUM_TOLERANCE:
        raise DatasetError(f"a label mass is a number from 0 to 1, found {shown(row.mass)}")
    answer = typed_answer(row.answer)
    if answer and answer.kind == "score":  # name the levels as the question does, if it is known
        answer = answer._replace(legend={**answer.legend, **row.asked.legend})
    if answer and row.part == NEGATION:
        answer = answer._replace(probabilities=answer.probabilities[::-1])
    if row.query is None:
        raise DatasetError(f"question {row.question!r}: the input has no id")
    is_blank = isinstance(row.gold, str) and not row.gold.strip()
    texts: dict[str, Any] = {
        name: str(value) for name in ("query", "prompt", "version") if (value := getattr(row, name)) is not None
    }
    return row._replace(answer=answer, where=where, gold=None if is_blank else row.gold, **texts)


def _rows(path: Path) -> Iterable[tuple[str, dict[str, Any]]]:
    """Return (file and row, content) of each row of JSON lines, or of each result of a results file of promptfoo."""
    if ending(path) != ".json":
        return ((f"{path}, row {number} (from 0)", row) for number, row in json_rows(path))
    try:
        results = parse_json(read_bytes(path))["results"]
        rows = [*map(dict, results["results"] if isinstance(results, dict) else results)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path} is no whole results file of promptfoo. Other logs are JSON lines.") from error
    return ((f"{path}, result {number} (from 0)", row) for number, row in enumerate(rows))


def _datasets(
    path: Path, question: str, rows: Sequence[Answered], numbers: Numbers, *, needs_gold: bool
) -> Iterator[ImportedDataset]:
    """Yield the datasets of a question: one for each part and number of options.

    Args:
        path: the log.
        question: name of the question.
        rows: its answers, after _typed.
        numbers: kind of the numbers of all datasets of the log.
        needs_gold: as in read_log.
    """
    plain = [row for row in rows if row.part == IMPORTED]
    unchanged = [row for row in plain if row.answer]
    kept = [row for row in plain if row.gold is not None or not needs_gold]
    versions = sorted({row.version for row in rows if row.version})
    notes = [f"answered by {', '.join(versions)}"] if versions else []
    refused = [row for row in kept if row.answer is None and row.gold is not None]
    if refused:
        notes.append(
            f"{len(refused)} of {len(kept)} answers were refused or are missing: the part {IMPORTED} leaves them out"
        )
    if len(kept) < len(plain):
        notes.append(f"answers without a true option, which are left out: {len(plain) - len(kept)}")
    parts = {IMPORTED: [row for row in kept if row.answer]}
    for part in dict.fromkeys(row.part for row in rows if row.part != IMPORTED):
        changed = [row for row in rows if row.part == part and row.answer]
        # A part compares answers with and without the change: keep the queries that have both.
        both = {row.query for row in unchanged} & {row.query for row in changed}
        parts[part] = [row for row in (*unchanged, *changed) if row.query in both]
    sizes = {_n_options(row) for of_part in (*parts.values(), refused) for row in of_part} - {0}
    for size in sorted(sizes):
        name = question if len(sizes) == 1 else f"{question} ({size} options)"
        of_size = {part: [row for row in of_part if _n_options(row) == size] for part, of_part in parts.items()}
        about = list(notes)
        if of_refused := [row for row in refused if len(sizes) == 1 or _n_options(row) == size]:
            of_size[WITH_REFUSALS] = [*of_size[IMPORTED], *of_refused]
            about.append(f"the part {WITH_REFUSALS} counts {len(of_refused)} refused or missing answers as wrong")
        yield from (_dataset(path, name, part, asked, about, numbers) for part, asked in of_size.items() if asked)


def _n_options(row: Answered) -> int:
    """Return the number of options of an answer or, if it was refused, of its question; 0 if that is not known."""
    return len((row.answer or row.asked).options)


def _dataset(
    path: Path, name: str, part: str, rows: Sequence[Answered], notes: Sequence[str], numbers: Numbers
) -> ImportedDataset:
    """Return the dataset of the answers to a question in one part.

    Args:
        rows: answers with the same number of options; refused and missing answers in the part WITH_REFUSALS only.
        notes: notes for the record.
    """
    answers = _in_one_order(rows)
    probabilities, names = [answer.probabilities for answer in answers], _names(answers)
    reported = reported_probabilities(
        probabilities,
        lambda place, allowed: DatasetError(
            f"{rows[place].where}, question {name!r}: found {[*probabilities[place]]}; allowed is {allowed}."
        ),
    )
    try:  # names of levels can be numbers: read true levels as names if all rows allow it, else as numbers of levels
        golds = [_gold(row, TypedAnswer(options, ())) for row, options in zip(rows, names, strict=True)]
    except DatasetError:
        golds = [*map(_gold, rows, answers)]
    log_likelihoods = np.array(reported.log_likelihoods)
    for place, (row, (gold, _)) in enumerate(zip(rows, golds, strict=True)):
        if row.answer is None:  # a wrong answer: probability 1 for the option after the true one
            log_likelihoods[place] = -math.inf
            log_likelihoods[place, ((gold or 0) + 1) % len(names[place])] = 0.0
        elif numbers == "log-likelihoods":
            log_likelihoods[place] += math.log(row.mass or 1.0)
    own = {column: [getattr(row, column) for row in rows] for column in ("query", "prompt", "template")}
    indices, soft = zip(*golds, strict=True)
    frame = answers_frame(names, log_likelihoods, gold=indices, soft_gold=soft, **own)
    kinds = {answer.kind for answer in answers}
    kind = kinds.pop() if len(kinds) == 1 else None
    about = (*notes, *reported.notes) if part != WITH_REFUSALS else tuple(notes)
    return ImportedDataset(
        name, numbers, frame, path.name, reported.floor if part == IMPORTED else None, about, part, kind
    )


def _in_one_order(rows: Sequence[Answered]) -> list[TypedAnswer]:
    """Return the answers, with one order of options for all answers that have the same set of options.

    It is the order of the question in the first of these rows if it is known, else the order of its answer. A refused
    or missing answer has equal probabilities.
    """
    orders, answers = dict[frozenset[str], tuple[str, ...]](), list[TypedAnswer]()
    # A refused question of a scale, or with unknown options, gets the options of the first answer.
    like = next((row.answer for row in rows if row.answer), None)
    for row in rows:
        read = row.answer or row.asked
        if like and not row.answer and (like.kind == "score" or len(read.options) != len(like.options)):
            read = like
        is_known = read.kind != "score" and {*row.asked.options} == {*read.options}
        order = orders.setdefault(frozenset(read.options), row.asked.options if is_known else read.options)
        shares = read.probabilities if row.answer else [1 / len(order)] * len(order)
        of_option = dict(zip(read.options, shares, strict=True))
        answers.append(read._replace(options=order, probabilities=tuple(of_option[option] for option in order)))
    return answers


def _names(answers: Sequence[TypedAnswer]) -> list[tuple[str, ...]]:
    """Return the names of the options of each answer: of levels their texts, if all answers have the same texts."""
    texts = {level: text for text, level in answers[0].legend.items()}
    are_named = all(
        answer.kind == "score" and answer.legend == answers[0].legend and texts.keys() >= {*answer.options}
        for answer in answers
    )
    return [tuple(texts[option] for option in answer.options) if are_named else answer.options for answer in answers]


def _gold(known: Answered, answer: TypedAnswer) -> Gold:
    """Return the true option of a row as gold_index does; errors name file, row and question."""
    try:
        return (None, None) if known.gold is None else gold_index(known.gold, answer)
    except DatasetError as error:
        raise DatasetError(f"{known.where}, question {known.question!r}: {error}.") from error


def _exchange(row: Mapping[str, Any], gold: str) -> Iterator[Answered]:
    """Yield the answers of a row of request and reply; answers in a list belong to the questions in the same order."""
    request, reply = row["request"], row["response"] or {}
    state = request.get("state", request.get("input", ""))
    text = state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
    questions = request["questions"]
    if isinstance(questions, list):
        names = [question.get("name") or f"question {place}" for place, question in enumerate(questions, 1)]
        if len({*names}) < len(names):
            names = [f"{name}, {place}" for place, name in enumerate(names, 1)]
        questions = dict(zip(names, questions, strict=True))
    answers = answers_by_name([*questions], reply)
    part = next((name for name in VARIED if name == row.get("part")), IMPORTED)
    given = row.get(gold, row.get("labels"))
    query = short_digest(text.encode()) if row.get("id") is None else row["id"]
    template = 0 if part == IMPORTED else int(row["template"])
    for name, question in questions.items():
        mass = ((reply.get("diagnostics") or {}).get(name) or {}).get("label_mass")
        prompt, true = f"{text}\n\n{_JSON.encode(question)}", given.get(name) if isinstance(given, Mapping) else given
        about = (reply.get("model"), mass, part, template, _asked(question))
        yield Answered(name, query, prompt, answers[name], true, *about)


def _asked(question: object) -> TypedAnswer:
    """Return the options, or levels with a legend, of a question in wire format; no options if it lists none."""
    asked = question if isinstance(question, Mapping) else {}
    if asked.get("type") in ("noul", "predicate"):
        return TypedAnswer((NO, YES), (), kind="yes-no")
    listed = [each.get("value", each.get("label")) for each in asked.get("choices") or asked.get("levels") or ()]
    names = tuple(map(option_text, listed or asked.get("criteria") or ()))
    levels = tuple(map(str, range(len(names))))
    if asked.get("type") == "score":
        return TypedAnswer(levels, (), dict(zip(names, levels, strict=True)), "score")
    return TypedAnswer(names if asked.get("type") == "choice" else (), ())


def _jev_eval(row: Mapping[str, Any], _gold: str) -> Iterator[Answered]:
    question = json.dumps(row["question"], ensure_ascii=False)
    yield Answered(row["id"], row["state_hash"], question, row["answer"], row["gold"], row.get("model"))


def _decguard(row: Mapping[str, Any], _gold: str) -> Iterator[Answered]:
    asked = json.dumps(row.get("input"), ensure_ascii=False)
    query = short_digest(asked.encode()) if row.get("id") is None else row["id"]
    version = row.get("model_version") or row.get("model")
    answer = {"probabilities": row["probabilities"]}
    yield Answered(row["decision"], query, asked, answer, row.get("outcome"), version)


def _sys1bench(row: Mapping[str, Any], _gold: str) -> Iterator[Answered]:
    keys, probs, answer = row["option_keys"], row["probs"], None
    if not row.get("error"):
        if len(keys) != len(probs):
            raise DatasetError(f"{len(keys)} options need as many probabilities, found {len(probs)}")
        pairs = [{"value": key, "probability": p} for key, p in zip(keys, probs, strict=True)]
        answer = {"type": row.get("primitive"), "probabilities": pairs}
    asked = f"{row.get('framing_id')}, {row.get('permutation_id')}"
    yield Answered(row["question_key"], row["row_id"], asked, answer, row["ground_truth"], row.get("model_id"))


def _promptfoo(row: Mapping[str, Any], gold: str) -> Iterator[Answered]:
    """Yield the answers of a result of promptfoo, whose variable `gold` has the true options."""
    response, asked = row["response"] or {}, row["vars"]
    replies = [parsed(response.get(key)) for key in ("raw", "output")]
    reply = next((one for one in replies if isinstance(one, Mapping) and "answers" in one), None)
    if reply is None:
        answer = next((one for one in replies if isinstance(one, Mapping)), None)
        reply = {"answers": {"answer": answer}}
    answers = reply["answers"]
    if isinstance(answers, list):
        answers = {one.get("name") or f"question {place}": one for place, one in enumerate(answers, 1)}
    prompt = (row.get("prompt") or {}).get("raw", "")
    query = short_digest(json.dumps(asked, sort_keys=True).encode())
    given = parsed(asked.get(gold))
    for name, answer in answers.items():
        true = given.get(name) if isinstance(given, Mapping) else asked[gold] if isinstance(given, float) else given
        yield Answered(name, query, prompt, answer, true, reply.get("model"))


_JSON = json.JSONEncoder(ensure_ascii=False)


_KINDS: dict[str, tuple[Callable[[Mapping[str, Any], str], Iterator[Answered]], Sequence[str]]] = {
    "request and reply": (_exchange, ("request", "response")),
    "jev-eval": (_jev_eval, ("question_hash", "answer", "gold")),
    "decguard": (_decguard, ("decision", "probabilities", "selected")),
    "sys1bench": (_sys1bench, ("question_key", "option_keys", "probs", "ground_truth")),
    "promptfoo": (_promptfoo, ("vars", "response")),
}
"""Kind of a log -> function that reads a row, given the key of the true options, and keys that the first row has."""
