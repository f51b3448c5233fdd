"""Send the questions of a table to a decision service, and make a run of its answers (`evaluator ask`).

Each answer is appended to ANSWERS and on disk before it counts, so that no answer is lost or requested again. LOG joins
the answers with the rows of the table, and is imported like any other log.
"""

import json
import os
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from evaluator.config import DataOptions, ImportColumns, TableColumns
from evaluator.datasets.labelled_table import TEXT
from evaluator.datasets.question_table import question_examples
from evaluator.datasets.sources import require_dataset_name
from evaluator.datasets.tables import json_rows
from evaluator.decisions.answers import answers_by_name
from evaluator.decisions.endpoint import API_KEY_VARIABLE, EndpointOptions, cost_of
from evaluator.decisions.questions import AMONG, REPEAT, Option, Question, read_questions
from evaluator.decisions.requests import PROTOCOLS, limit_fault, questions_limit, require_fit
from evaluator.engine.server_client import CONNECT_S, BadAnswerError, RefusedError, ServerClient, answer_all
from evaluator.errors import ConfigError, DatasetError, EvaluatorError, ModelError, WriteError, plural
from evaluator.files.digests import fingerprint
from evaluator.files.json_files import parse_object
from evaluator.files.whole import reason, replacing, writing_to
from evaluator.imports.decision_logs import ASKED_TABLE
from evaluator.progress import Progress, Stage
from evaluator.run.folders import read_run_if_intact
from evaluator.run.pipeline import Finished
from evaluator.runs.import_answers import import_answers
from evaluator.suites.decide.prompts import Variation, changed_input, variations

ANSWERS, LOG = "answers.jsonl", "decisions.jsonl"
"""Files of the run: requests with the replies of the service; answers for each row, with the true options."""

PROBE_ROWS = 20
"""Number of answers from which the cost of all requests is estimated."""

SEED = 42  # seed of random orders of options

_REFUSED_ROW = (400, 413, 422)
# HTTP statuses that one input may cause, for example if it is too long; others are about the model or the API key.

_MAX_WAIT_S = 60.0
# Longest wait for requests in flight to be stored after the command was stopped.


class Row(NamedTuple):
    """A row of the table with its questions and their true options."""

    number: int
    text: str
    questions: list[Question]
    golds: dict[str, Any]  # question -> true option, distribution over options, or None
    part: str = ""  # one of VARIED; empty: the questions are unchanged
    template: int = 0  # number of the change within the part, from 1; 0: unchanged


class Call(NamedTuple):
    """A request: some of the questions about an input."""

    key: str  # digest of service, request and repetition
    body: dict[str, Any]
    questions: list[Question]
    row: int  # number of the first row with this request


@dataclass(frozen=True)
class Plan:
    """All that a command will ask, known before anything is sent."""

    options: EndpointOptions
    table: Path
    fields: tuple[str, ...]  # columns that are sent
    rows: tuple[Row, ...]
    out: Path

    def sentence(self) -> str:
        """Return a sentence that says which data leave this machine."""
        columns, names = ", ".join(self.fields), {question.name for row in self.rows for question in row.questions}
        n_rows = len({row.number for row in self.rows})
        return (
            f"{plural(n_rows, 'row')} will be sent to {self.options.host}: of each the column {columns} and the "
            f"questions {', '.join(sorted(names))} with their options. True options stay here."
        )

    def calls(self, row: Row, n_questions: int) -> Iterator[Call]:
        """Yield the requests about a row, each with at most `n_questions` questions."""
        options = self.options
        for first in range(0, len(row.questions), n_questions):
            asked = row.questions[first : first + n_questions]
            body = PROTOCOLS[options.protocol].body(options.model, row.text, asked)
            # The order of options matters, and fingerprint() ignores the order of keys: so it gets the JSON text.
            again = (REPEAT,) if row.part == REPEAT else ()
            key = fingerprint(options.url, options.protocol, json.dumps(body), options.repeat, *again)
            yield Call(key, body, asked, row.number)


def plan(data: Path, inputs: tuple[str, ...] | None, questions: Path, options: EndpointOptions, out: Path) -> Plan:
    """Read the table and the questions, and plan the requests.

    Args:
        data: the table.
        inputs: columns that are sent; None: the default column.
        questions: TOML file of typed questions.
        options: the service, and how it is asked.
        out: folder of the run; repetition N has the folder OUT-repeat-N.

    Raises DatasetError, which names file, row and question, for a question beyond the limits of the protocol;
    ConfigError if the folder holds another run, or if no question can be changed as `options.parts` says.
    """
    options.price()
    settings = DataOptions(paths=(data,), questions=questions, columns=TableColumns(inputs=inputs))
    protocol, rows = PROTOCOLS[options.protocol], dict[int, Row]()
    for question in read_questions(questions):
        require_dataset_name(question.name, str(questions))
        for example in question_examples(data, settings, question).iter_rows(named=True):
            described = tuple(map(Option, example["options"], example["descriptions"]))
            of_row = replace(question, options=described, options_column=None)
            if fault := limit_fault(of_row, protocol):
                raise DatasetError(f"{data}, row {example['row']} (from 0), question {question.name!r}: {fault}.")
            row = rows.setdefault(example["row"], Row(example["row"], example["input"], [], {}))
            row.questions.append(of_row)
            row.golds[question.name] = _gold(example)
    folder = out if options.repeat == 1 else Path(f"{out.resolve()}-repeat-{options.repeat}")  # "." has no name
    if read_run_if_intact(folder) and not (folder / ANSWERS).exists():
        raise ConfigError(f"{folder} holds a run of something else. Choose another folder with --out.")
    again = [changed for row in rows.values() for changed in _changed_rows(row, options.parts)]
    if missing := {*options.parts} - {row.part for row in again}:
        raise ConfigError(
            f"--parts {','.join(sorted(missing))}: no question of {questions} can be asked so. Wording needs "
            "`wordings`, negation `negated`, order a choice, among several questions."
        )
    return Plan(options, data.absolute(), inputs or (TEXT,), (*rows.values(), *again), folder)


def _gold(example: Mapping[str, Any]) -> Any:
    """Return the true option of a row of DECISION_EXAMPLES, the distribution over options, or None."""
    if example["soft_gold"] is not None:
        return dict(zip(example["options"], example["soft_gold"], strict=True))
    return None if example["gold"] is None else example["options"][example["gold"]]


def _changed_rows(row: Row, parts: Sequence[str]) -> Iterator[Row]:
    """Yield a row for each change in `parts`, with the changed questions. Only a choice has other orders of options."""
    rows: dict[tuple[str, int], Row] = {}
    for question in row.questions:
        of_part = variations(question, len(question.options), SEED) | {REPEAT: [Variation(question.instructions)]}
        for part in dict.fromkeys(parts):
            for place, change in enumerate(of_part.get(part, ())):
                if change.order is not None and question.kind != "choice":
                    continue
                options = [question.options[option] for option in change.order or range(len(question.options))]
                if change.is_negated:
                    options = [option._replace(description="") for option in options]
                changed = replace(question, instructions=change.instructions, options=tuple(options))
                again = Row(row.number, changed_input(row.text, change), [], row.golds, part, place + 1)
                rows.setdefault((part, place), again).questions.append(changed)
    yield from rows.values()
    if AMONG in parts and len(row.questions) > 1:  # each question is also asked alone, without the others of its row
        for question in row.questions:
            yield row._replace(questions=[question], part=AMONG, template=1)


def ask(what: Plan) -> Stage[tuple[Finished | None, list[str]]]:
    """Send the requests that have no stored answer, and make a run of all answers.

    Returns the finished run and summary lines. The run is None if no answer can be measured, because no question has a
    true option and none was asked with changes.

    Raises:
        ModelError: the service does not answer, or refuses the first request or its key.
        DatasetError: an answer does not fit its question; all received answers are stored.
    """
    with writing_to(what.out):
        asking = _Asking(what)
        try:
            yield from asking.run()
        finally:
            asking.end()
        n_measured = asking.write_log()
    finished, lines = None, asking.summary()
    if n_measured:
        # plan() has checked that an earlier run in this folder is of stored answers: it may be replaced.
        versions, log = dict.fromkeys(map(_version, asking.of_table())), what.out / LOG
        model = ", ".join(filter(None, versions)) or what.options.model
        finished = yield from import_answers([log], what.out, ImportColumns(), model, force=True, costs=lines)
    return finished, lines


class _Asking:
    """The answers so far, which several threads append to a file, and the state of sending requests."""

    def __init__(self, what: Plan) -> None:
        self.what, options, protocol = what, what.options, PROTOCOLS[what.options.protocol]
        self.n_questions = protocol.max_questions  # in a request, at most
        self.answers: dict[str, dict[str, Any]] = {}  # key of a call -> row of ANSWERS
        self.version = ""  # model version of the last answer
        self.notes: list[str] = []  # lines that are not shown yet
        self.cost = 0.0  # dollars, of all stored answers
        self.n_requests = 0  # stored answers and missing requests; 0 until it is known
        self.in_flight: set[str] = set()  # keys of calls that are being sent
        self.stopped = ""  # reason why no more requests are sent; empty: none
        self.is_accepted = False  # whether a request about this table was answered and not refused
        self._path, self._price = what.out / ANSWERS, options.price()
        self._lock, self._sync_lock = threading.Lock(), threading.Lock()
        self._read_stored()
        self._n_stored = len(self.answers)  # answers of earlier commands
        self._n_synced = 0  # answers that are surely on disk
        self._file = self._path.open("ab")
        # The usual API key of a service is sent only to the host of that service.
        own = (protocol.key_variable,) if options.host == protocol.host else ()
        url = options.url.rstrip("/")
        own_path = urlsplit(url).path if url.endswith(("/decisions", "/systemone")) else ""
        self._path_on_host = own_path or protocol.path
        self._client = ServerClient(
            url.removesuffix(own_path),
            connections=options.concurrency,
            key_variables=(API_KEY_VARIABLE, *own),
            key_header=protocol.key_header,
        )

    def _read_stored(self) -> None:
        """Read the stored answers; remove an incomplete last line, which an interrupted command left."""
        if not self._path.exists():
            return
        with self._path.open("r+b") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
        if b"\n" in content:
            sizes = []
            for number, row in json_rows(self._path):
                try:
                    self._learn(row | {"latency_s": row["latency_s"] + 0.0})
                    sizes.append(len(row["request"]["questions"]))
                except (LookupError, TypeError, AttributeError) as error:
                    raise DatasetError(
                        f"{self._path}, row {number} (from 0): `evaluator ask` stores no such answer. Remove the line, "
                        "and it is asked again."
                    ) from error
            # The service may have stated a limit earlier: with the same limit, the stored requests are found again.
            self.n_questions = max(sizes, default=self.n_questions)

    def _learn(self, row: dict[str, Any]) -> None:
        """Add an answer to the state: its cost, its model version, and a note if its input was truncated."""
        reply = row["response"]
        self.answers[row["key"]] = row
        self.cost += row["cost"] or 0.0
        if len(self.answers) == PROBE_ROWS < self.n_requests and self.cost:
            whole = self.cost / PROBE_ROWS * self.n_requests
            self.notes.append(f"All requests will cost about ${whole:.4g}, by the first {PROBE_ROWS}")
        version = _version(row)
        if version and self.version not in ("", version):
            self.notes.append(f"Row {row['id']}: {version} answered, and {self.version} before it")
        self.version = version or self.version
        usage = reply.get("usage")
        for name, value in (usage if isinstance(usage, Mapping) else {}).items():
            if value and ("truncated" in name or "dropped" in name):
                self.notes.append(f"Row {row['id']}: the service says {name} = {value}: not all of the input was read")

    def run(self) -> Stage[None]:
        """Send the missing requests: first one alone, whose refusal may state a limit, then `concurrency` at a time."""
        self.notes.clear()  # earlier commands have shown the notes on stored answers
        places = {key: place for place, key in enumerate(self.answers)}
        for _, call in self._calls():  # a stored answer that does not fit raises before anything is sent
            if call.key in places:
                self._check(call, self.answers[call.key]["response"], places[call.key])
        self.is_accepted = any("error" not in row["response"] for row in self.of_table())
        if not self.is_accepted:  # n_questions came from answers to other requests
            self.n_questions = PROTOCOLS[self.what.options.protocol].max_questions
        calls = self._missing()
        if calls and not self.is_accepted:
            self._require_service()
            try:
                list(answer_all(calls[:1], [self._client], self._answer, concurrency=1))
            except RefusedError as error:
                limit = questions_limit(error.text, len(calls[0].questions))
                if limit is None:
                    hint = "Correct --url, --protocol, --model or the questions; no other request was sent."
                    raise ModelError(f"{error} {hint}") from error
                self.n_questions, self.stopped = limit, ""
            calls = self._missing()
        self.n_requests = len(self.answers) + len(calls)
        began, n_before = time.monotonic(), len(self.answers)
        for _ in answer_all(calls, [self._client], self._answer, concurrency=self.what.options.concurrency):
            n, elapsed_s = len(self.answers) - n_before, time.monotonic() - began
            now = Progress(stage="Asking", done=n, total=len(calls), unit="requests", requests_per_s=n / elapsed_s)
            while self.notes:
                yield replace(now, line=self.notes.pop(0))
            yield now

    def _require_service(self) -> None:
        """Raise ModelError if the address accepts no connection. No retry: a wrong address is likelier than a delay."""
        parts, host = urlsplit(self.what.options.url), self.what.options.host
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            with socket.create_connection((host, port), CONNECT_S) as connection:
                if parts.scheme == "https":
                    ssl.create_default_context().wrap_socket(connection, server_hostname=host).close()
        except OSError as error:
            raise ModelError(
                f"{host}:{port} cannot be reached as {parts.scheme}: {error.strerror or error}. Start the service, or "
                "correct --url. Nothing was sent."
            ) from error

    def _calls(self) -> Iterator[tuple[Row, Call]]:
        """Yield every request with its row."""
        return ((row, call) for row in self.what.rows for call in self.what.calls(row, self.n_questions))

    def _missing(self) -> list[Call]:
        """Return the requests without an answer, each once."""
        every = [call for _, call in self._calls() if call.key not in self.answers]
        return list({call.key: call for call in reversed(every)}.values())[::-1]

    def _answer(self, client: ServerClient, call: Call) -> None:
        """Send a request, store the answer, and check it. Does nothing once sending has stopped."""
        if not self._may_ask(call):
            return
        try:
            began = time.monotonic()
            try:
                reply = self._reply(client.exchange(self._path_on_host, json.dumps(call.body).encode()))
            except RefusedError as error:
                if error.status not in _REFUSED_ROW or not self.is_accepted:
                    raise
                reply = {"error": error.text[:2000]}  # a refusal of this input alone: other requests were answered
            self.is_accepted = True
            self._check(call, reply, self._store(call, reply, time.monotonic() - began))
        except EvaluatorError as error:
            self.stopped = self.stopped or str(error)
            raise
        finally:
            with self._lock:
                self.in_flight.remove(call.key)

    def _may_ask(self, call: Call) -> bool:
        """Return whether a request may be sent; if so, count it as in flight."""
        with self._lock:
            most = self.what.options.max_cost
            each = self.cost / len(self.answers) if self.answers else 0.0
            n_unpaid = len(self.in_flight - self.answers.keys())  # cost not known yet: the mean is assumed
            if most is not None and not self.stopped and self.cost + each * (n_unpaid + 1) > most:
                self.stopped = f"--max-cost {most:g} would be passed"
            if not self.stopped:
                self.in_flight.add(call.key)
            return not self.stopped

    def _reply(self, content: bytes) -> dict[str, Any]:
        """Parse an answer as a JSON object. NaN is accepted here, so that the answer is stored and then refused."""
        try:
            return parse_object(content)
        except ValueError as error:
            raise BadAnswerError(f"{self.what.options.url} returned a body that is no JSON: {error}") from error

    def _store(self, call: Call, reply: dict[str, Any], latency_s: float) -> int:
        """Append an answer to the file and wait until it is on disk; return its row number, from 0."""
        cost = cost_of(reply, self._price)
        row = {"key": call.key, "id": call.row, "request": call.body, "response": reply}
        row |= {"latency_s": round(latency_s, 4), "cost": cost}
        try:
            with self._lock:
                place = len(self.answers)
                self._file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
                self._file.flush()
                self._learn(row)
            with self._sync_lock:  # one call of fsync covers all rows written before it, which counts on slow disks
                if self._n_synced <= place:
                    n_written = len(self.answers)
                    os.fsync(self._file.fileno())
                    self._n_synced = n_written
        except OSError as error:
            hint = "Make room for it, and run the same command again: only what is not stored is asked again."
            raise WriteError(f"{self._path} cannot be written: {reason(error)}. {hint}") from error
        if cost is None and self.what.options.max_cost is not None and "error" not in reply:
            raise ModelError("--max-cost needs a cost: the service tells none. Add --price-per-million or --prices.")
        return place

    def _check(self, call: Call, reply: dict[str, Any], place: int) -> None:
        """Raise DatasetError for an answer that does not fit its questions; `place` is its row in the file, from 0."""
        where = f"{self._path}, row {place} (from 0), of the table's row {call.row}"
        hint = "It is stored: remove its line to ask again, or ask a repetition with --repeat."
        try:
            answers = answers_by_name([question.name for question in call.questions], reply)
        except DatasetError as error:
            raise DatasetError(f"{where}, {error}. {hint}") from error
        for question in call.questions:
            try:
                require_fit(question, answers[question.name])
            except (DatasetError, TypeError, ValueError, KeyError, AttributeError) as error:
                raise DatasetError(f"{where}, question {question.name!r}: {error}. {hint}") from error

    def end(self) -> None:
        """Stop sending, wait until requests in flight are stored (_MAX_WAIT_S at most), and close."""
        self.stopped = self.stopped or "ended"
        latest = time.monotonic() + _MAX_WAIT_S
        while self.in_flight and time.monotonic() < latest:
            time.sleep(0.01)
        self._client.close()
        with self._lock, suppress(OSError):  # an answer that could not be written, which has raised its error
            self._file.close()

    def write_log(self) -> int:
        """Write LOG, the answers for each row with the true options; return the number of measurable lines."""
        n, out, number = 0, self.what.out, self.what.options.repeat
        answers = out.with_name(out.name.removesuffix(f"-repeat-{number}")) / ANSWERS
        # For a repetition: request -> its answer in the original run, to compare with.
        rows = json_rows(answers) if number > 1 and answers.exists() else ()
        first = {json.dumps(stored["request"]): stored for _, stored in rows}
        with replacing(out / LOG) as file:
            for row, call in self._calls():
                golds = {question.name: row.golds[question.name] for question in call.questions}
                about = {"id": row.number, "gold": golds, ASKED_TABLE: str(self.what.table)}
                changed = {"part": row.part, "template": row.template} if row.part else {}
                lines = [stored | about | changed] if (stored := self.answers.get(call.key)) else []
                if not row.part and (earlier := first.get(json.dumps(call.body))):
                    lines.append(earlier | about | {"part": REPEAT, "template": 2})
                for line in lines:
                    file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
                    n += "part" in line or any(gold is not None for gold in golds.values())
        return n

    def of_table(self) -> list[dict[str, Any]]:
        """Return the stored answers to the requests of this table, in the order in which they were given."""
        keys = {call.key for _, call in self._calls()}
        return [row for key, row in self.answers.items() if key in keys]

    def summary(self) -> list[str]:
        """Return lines about requests, refusals, versions, tokens, cost and latency, of this table alone."""
        rows = self.of_table()
        replies, n_others = [row["response"] for row in rows], len(self.answers) - len(rows)
        n_asked = len(self.answers) - self._n_stored
        lines = [f"Asked: {plural(n_asked, 'request')}; stored in {self._path}: {plural(len(replies), 'answer')}"]
        lines += [f"Not counted here: {plural(n_others, 'answer')} to other requests"] * bool(n_others)
        if self.stopped and self.stopped != "ended":
            lines.append(f"Stopped before the end: {self.stopped}. The same command goes on from there.")
        n_refused = sum("error" in reply for reply in replies)
        lines += [f"Refused, and counted as missing answers: {plural(n_refused, 'request')}"] * bool(n_refused)
        versions = [version for version, _ in groupby(filter(None, map(_version, rows)))]
        lines += [f"Answered by: {', then '.join(versions)}"] * bool(versions)
        usages = [usage for reply in replies if isinstance(usage := reply.get("usage"), Mapping)]
        sent, received = (
            [n for usage in usages if isinstance(n := usage.get(name), int)]
            for name in ("input_tokens", "output_tokens")
        )
        if sent or received:
            lines.append(f"Tokens: {sum(sent):,} of input, {sum(received):,} of output")
        if (cost := sum(row["cost"] or 0.0 for row in rows)) or self._price:
            lines.append(f"Cost: ${cost:.4g}")
        if latencies := sorted(row["latency_s"] for row in rows):
            slow = latencies[int(0.95 * (len(latencies) - 1))]
            lines.append(f"Latency of a request: median {statistics.median(latencies):.3g} s, 95% below {slow:.3g} s")
        return lines


def _version(row: Mapping[str, Any]) -> str:
    """Return the model version in a stored answer; empty if the service does not state it."""
    version = row["response"].get("model")
    return version if isinstance(version, str) else ""
