"""Asking decision services: every protocol, faults, limits, costs, repetitions, and keys that are written nowhere."""

import json
import math
import socket
import threading
import time

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import accuracy_score, cohen_kappa_score

from evaluator.cli import stages
from evaluator.engine import server_client
from evaluator.imports.files import read_files
from evaluator.progress import Progress
from tests.command_line import command, command_outputs
from tests.decisions.decision_server import DecisionServer, likeliest, shares
from tests.engine.label_server import send
from tests.files.test_whole import file_size_limit

pytestmark = pytest.mark.usefixtures("without_pages")

QUESTIONS = """
[queue]
type = "choice"
instructions = "Which team?"
options = {billing = "payments", technical = "", spam = "advertising"}
gold = "team"

[refund]
type = "yes-no"
instructions = "A refund?"
criteria = {yes = "money back"}
gold = "refund"

[anger]
type = "score"
instructions = "How angry?"
levels = ["calm", "cross", "furious"]
gold = "anger"
"""
TEAMS, LEVELS, N = ["billing", "technical", "spam"], ["calm", "cross", "furious"], 12
ROWS = [
    {"body": f"Ticket {n}", "team": TEAMS[n % 3], "refund": "yes" if n % 2 else "no", "anger": LEVELS[n % 3]}
    for n in range(N)
]


@pytest.fixture
def serve():
    servers = []

    def serve(*arguments, **faults):
        servers.append(DecisionServer(*arguments, **faults))
        return servers[-1]

    yield serve
    for server in servers:
        server.stop()


@pytest.fixture
def ask(tmp_path):
    """Return a function that asks a server about the table ROWS, and returns what the command prints."""
    (tmp_path / "questions.toml").write_text(QUESTIONS)
    pl.DataFrame(ROWS).write_csv(tmp_path / "tickets.csv")

    def ask(url, *words, protocol="systemone", exits=0, out="run"):
        table = ("--data", tmp_path / "tickets.csv", "--input-column", "body")
        asked = ("--questions", tmp_path / "questions.toml", "--protocol", protocol, "--model", "jev-latest")
        return command("ask", *table, *asked, "--url", url, "--out", tmp_path / out, *words, exits=exits)

    return ask


@pytest.fixture
def unmeasured(monkeypatch):
    """For tests of what is asked and stored alone: answers are read from their log, and no run is made of them."""

    def read(log, _out, columns, *_rest, **_options):
        yield Progress(stage="Reading answers", done=0, total=1, unit="files")
        assert read_files(log, columns)

    monkeypatch.setattr("evaluator.runs.ask.import_answers", read)


def stored(tmp_path, out="run"):
    path = tmp_path / out / "answers.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("protocol", ["systemone", "decisions", "gemini"])
def test_each_protocol_is_asked_by_its_schema_and_measured(protocol, serve, ask, tmp_path):
    server = serve(protocol)
    shown = ask(server.url, protocol=protocol)
    assert len(server.bodies) == N == len(stored(tmp_path))
    body = server.bodies[0]
    assert {*body} == {"model", "questions", "state" if protocol == "systemone" else "input"}
    if protocol == "decisions":
        queue, refund, anger = body["questions"]
        assert queue["choices"][:2] == [{"value": "billing", "description": "payments"}, {"value": "technical"}]
        assert (refund["type"], refund["instructions"]) == ("predicate", "A refund?\nyes: money back")
        assert anger["levels"] == [{"label": level} for level in LEVELS]
    else:
        descriptions = ["payments", None if protocol == "systemone" else "technical", "advertising"]
        assert body["questions"]["queue"]["criteria"] == dict(zip(TEAMS, descriptions, strict=True))
        assert body["questions"]["refund"]["criteria"] == {"true": "money back"}
        assert body["questions"]["anger"]["criteria"] == LEVELS
        assert body["model"] == ("jev-latest" if protocol == "systemone" else "models/jev-latest")
    assert "Latency" in shown
    assert "1,200 of input" in shown
    page = (tmp_path / "run/report.html").read_text()
    assert "What it cost" in page
    assert "1,200 of input" in page
    assert "Tokens computed" not in page
    metrics = pl.read_parquet(tmp_path / "run/tables/metrics.parquet")
    accuracy = metrics.filter(dataset="queue", metric="accuracy", definition="paper")["value"][0]
    answered = [likeliest(shares(row["body"], TEAMS)) for row in ROWS]
    assert accuracy == pytest.approx(accuracy_score([row["team"] for row in ROWS], answered))
    assert {*metrics["dataset"].drop_nulls()} >= {"queue", "refund", "anger"}


def test_levels_and_distributions_are_scored_as_those_of_a_model(serve, ask, tmp_path):
    server = serve()
    weights = [[1, 2, n] for n in range(N)]
    rows = [row | {"team": json.dumps(share)} for row, share in zip(ROWS, weights, strict=True)]
    pl.DataFrame(rows).write_csv(tmp_path / "tickets.csv")
    ask(server.url)
    graded = pl.read_parquet(tmp_path / "run/tables/graded.parquet")
    value = {(row["dataset"], row["metric"]): row["value"] for row in graded.to_dicts()}
    named = [shares(row["body"], ["0", "1", "2"]) for row in ROWS]
    likely = [int(likeliest(values)) for values in named]
    kappa = cohen_kappa_score([LEVELS.index(row["anger"]) for row in ROWS], likely, weights="quadratic")
    assert value["anger", "weighted_kappa"] == pytest.approx(kappa)
    probs = np.array([[shares(row["body"], TEAMS)[team] for team in TEAMS] for row in ROWS])
    probs /= probs.sum(axis=1, keepdims=True)
    true = np.array(weights) / np.sum(weights, axis=1, keepdims=True)
    assert value["queue", "brier_score"] == pytest.approx(((probs - true) ** 2).sum(axis=1).mean())


def test_rows_of_a_group_of_the_table_are_dependent_in_thresholds(serve, ask, tmp_path):
    # Two rows a user; the last row has no true team.
    rows = [row | {"user": f"u{n // 2}", "team": row["team"] if n < N - 1 else None} for n, row in enumerate(ROWS)]
    pl.DataFrame(rows).write_csv(tmp_path / "tickets.csv")
    ask(serve("systemone").url, "--parts", "repeat")  # the answers of the other part have no threshold
    words = ("threshold", tmp_path / "run", "--group-column", "user", "--json")
    coverage = {row["question"]: row for row in json.loads(command_outputs(*words).out)["coverage"]}
    assert {name: (row["n"], row["n_groups"]) for name, row in coverage.items()} == {
        "queue": (N - 1, N // 2), "refund": (N, N // 2), "anger": (N, N // 2)
    }  # fmt: skip
    command("threshold", tmp_path / "run", "--slice-column", "user", "--apply", tmp_path / "run", tmp_path / "t.csv")
    applied = pl.read_csv(tmp_path / "t.csv").filter(dataset="queue")
    assert applied["slice"].to_list() == [row["user"] for row in rows][: N - 1]


@pytest.mark.usefixtures("unmeasured")
def test_answers_are_never_paid_for_twice_and_repetitions_are(serve, ask, tmp_path):
    server = serve()
    assert "Stopped before the end" in ask(server.url, "--price-per-million", "1000", "--max-cost", "0.55")
    assert len(server.bodies) == 5  # of $.10 each
    with (tmp_path / "run" / "answers.jsonl").open("a") as file:
        file.write('{"key": "cut o')
    shown = ask(server.url, "--price-per-million", "1000")
    assert len(server.bodies) == N
    assert "Cost: $1.2" in shown
    lines = [row | {"latency_s": float(number)} for number, row in enumerate(stored(tmp_path), start=1)]
    (tmp_path / "run" / "answers.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    slow = np.quantile(np.arange(1, N + 1), 0.95, method="lower")
    assert f"Latency of a request: median 6.5 s, 95% below {slow} s" in ask(server.url)
    assert len(server.bodies) == N == len({json.dumps(body) for body in server.bodies})
    ask(server.url, "--repeat", 2)
    assert len(server.bodies) == 2 * N == N + len(stored(tmp_path, "run-repeat-2"))


@pytest.mark.usefixtures("unmeasured")
def test_a_disk_that_takes_no_further_answer_is_one_sentence_and_the_same_command_goes_on(serve, ask, tmp_path):
    server = serve()
    with file_size_limit(4000):
        shown = ask(server.url, "--concurrency", 2, exits=2)
    assert "answers.jsonl cannot be written: File too large" in shown
    n_stored = (tmp_path / "run" / "answers.jsonl").read_bytes().count(b"\n")
    assert 0 < n_stored < N
    n_sent = len(server.bodies)
    ask(server.url)
    assert len(server.bodies) - n_sent == N - n_stored
    assert len(stored(tmp_path)) == N


def measured(tmp_path, part, question, out="run"):
    """Return metric -> value, ci_low and ci_high of a part."""
    metrics = pl.read_parquet(tmp_path / out / "tables/metrics.parquet")
    rows = metrics.filter(part=part, dataset=question, definition="paper")
    return {name: ends for name, *ends in rows.select("metric", "value", "ci_low", "ci_high").iter_rows()}


def test_answers_to_another_table_are_kept_and_not_counted(serve, ask, tmp_path):
    versions = ["jev-1"] * N + ["jev-2"] * N
    server = serve(change=lambda reply, number: reply.update(model=versions[number - 1]))
    ask(server.url, "--price-per-million", "1000")
    pl.DataFrame([{**row, "body": f"Other {row['body']}"} for row in ROWS[:6]]).write_csv(tmp_path / "tickets.csv")
    shown = ask(server.url, "--price-per-million", "1000")
    assert "Cost: $0.6\n" in shown
    assert "Not counted here: 12 answers to other requests" in shown
    assert "Answered by: jev-2\n" in shown
    assert len(stored(tmp_path)) == N + 6


@pytest.mark.usefixtures("pages")
def test_a_repetition_says_how_many_answers_it_changes(serve, ask, tmp_path):
    def change(reply, number):
        if number in (N + 2, N + 5):  # of the repetition
            reply["answers"]["queue"] |= {"choice": "spam", "probabilities": {"billing": 0, "technical": 0, "spam": 1}}
            reply["answers"]["refund"]["noul"] += 0.01

    server = serve(change=change)
    assert "Repetition" not in ask(server.url, "--concurrency", 1)
    shown = ask(server.url, "--concurrency", 1, "--repeat", 2)
    first = [shares(ROWS[n]["body"], TEAMS) for n in range(N)]
    changed = [n for n in (1, 4) if likeliest(first[n]) != "spam"]
    found = measured(tmp_path, "repeat", "queue", "run-repeat-2")
    value, low, high = found["repeat_flips"]
    assert value == pytest.approx(len(changed) / N)
    assert low <= value < high
    distances = [
        sum(abs(p / sum(first[n].values()) - (name == "spam")) for name, p in first[n].items()) for n in (1, 4)
    ]
    assert found["repeat_distance"][0] == pytest.approx(sum(distances) / 2 / N)
    assert measured(tmp_path, "repeat", "anger", "run-repeat-2")["repeat_flips"][0] == 0
    assert measured(tmp_path, "repeat", "refund", "run-repeat-2")["repeat_distance"][0] == pytest.approx(0.02 / N)
    assert "Repetition: " in shown
    assert "the row Repetition has the answers" in (tmp_path / "run-repeat-2" / "report.html").read_text()


@pytest.mark.usefixtures("unmeasured")
def test_equal_inputs_are_asked_once_and_counted_each(serve, ask, tmp_path):
    pl.DataFrame([*ROWS, *ROWS]).write_csv(tmp_path / "tickets.csv")
    server = serve()
    ask(server.url)
    assert len(server.bodies) == N
    assert len((tmp_path / "run" / "decisions.jsonl").read_text().splitlines()) == 2 * N


def spoiled(change, number=4):
    """Return a change of one reply, whose number is that of a request."""
    return lambda reply, n: change(reply["answers"]) if n == number else None


MALFORMED = {
    "wrong argmax": lambda answers: answers["queue"].update(
        choice="spam", probabilities={"billing": 0.9, "technical": 0.05, "spam": 0.05}
    ),
    "missing option": lambda answers: answers["queue"]["probabilities"].pop("spam"),
    "other option": lambda answers: answers["queue"]["probabilities"].update(other=0.0),
    "NaN": lambda answers: answers["queue"]["probabilities"].update(spam=math.nan),
    "sum": lambda answers: answers["queue"].update(
        choice="spam", probabilities={"billing": 0.4, "technical": 0.4, "spam": 0.4}
    ),
    "above 1": lambda answers: answers["queue"]["probabilities"].update(spam=1.2),
    "no object": lambda answers: answers.update(queue=3),
    "pairs": lambda answers: answers["queue"].update(probabilities=[{"value": ["x"], "probability": "1"}]),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_answers_are_refused_by_file_row_and_question_after_all_are_stored(name, serve, ask, tmp_path):
    server = serve(change=spoiled(MALFORMED[name]))
    shown = ask(server.url, "--concurrency", 1, exits=2)
    assert "answers.jsonl, row 3 (from 0), of the table's row 3, question 'queue'" in shown
    assert len(stored(tmp_path)) == len(server.bodies) == 4
    assert ask(server.url, exits=2).count("question 'queue'") == 1
    assert len(server.bodies) == 4


def test_an_answer_with_the_name_of_another_question_is_refused(serve, ask, tmp_path):
    text = 'type = "yes-no"\ninstructions = "Is it so?"\ngold = "refund"\n'
    (tmp_path / "questions.toml").write_text(f"[first]\n{text}[second]\n{text}")
    server = serve("decisions", change=spoiled(list.reverse))
    shown = ask(server.url, "--concurrency", 1, protocol="decisions", exits=2)
    assert "of the table's row 3, question 'first': the answer at its place is to the question 'second'" in shown


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("content", [b"<html>gateway</html>", b"", b"[" * 10_000, b'"text"'])
@pytest.mark.parametrize("first", [1, 4])
def test_a_body_that_is_no_json_object_ends_the_command_after_a_few_tries(
    content, first, serve, ask, tmp_path, monkeypatch
):
    monkeypatch.setattr(server_client, "FIRST_WAIT_S", 0.01)

    def garbled(handler, number):
        if number >= first:
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content)
        return number >= first

    server = serve(fault=garbled)
    shown = ask(server.url, "--concurrency", 1, exits=2)
    assert shown.count(server.url) == 1
    assert "no JSON" in shown or "no object" in shown
    assert "the same command goes on from there" in shown
    assert len(stored(tmp_path)) == first - 1
    n_tried = server.n_completions
    server.fault = lambda _handler, _number: False
    ask(server.url)
    assert server.n_completions == n_tried + N - (first - 1)


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("cost", [math.nan, -3, True, math.inf, "1"])
def test_a_cost_that_is_no_amount_does_not_lift_the_limit(cost, serve, ask, tmp_path):
    server = serve(change=lambda reply, _number: reply.update(usage={"cost": cost}))
    shown = ask(server.url, "--max-cost", 1, "--concurrency", 1, exits=2)
    assert "--max-cost needs a cost: the service tells none" in shown
    assert [row["cost"] for row in stored(tmp_path)] == [None]
    tokens = {"cost": cost, "input_tokens": 4, "output_tokens": -1 if cost == -3 else 0}
    server = serve(change=lambda reply, _number: reply.update(usage=tokens))
    words = ("--max-cost", 10, "--price-per-million", 1e6, "--concurrency", 1)
    assert (
        ("the service tells none" in ask(server.url, *words, out="priced", exits=2))
        if cost == -3
        else ("--max-cost 10 would be passed" in ask(server.url, *words, out="priced"))
    )


@pytest.mark.usefixtures("unmeasured")
def test_the_cost_of_all_requests_is_estimated_from_the_first_twenty(serve, ask, tmp_path):
    pl.DataFrame([ROWS[0] | {"body": f"Ticket {n}"} for n in range(50)]).write_csv(tmp_path / "tickets.csv")
    server = serve(change=lambda reply, number: reply["usage"].update(input_tokens=10 * number))
    shown = ask(server.url, "--price-per-million", 1000, "--concurrency", 1)
    # The n-th answer costs $.01 n: the first twenty $2.10, and fifty as these $5.25.
    assert "All requests will cost about $5.25, by the first 20" in shown
    assert "Cost: $12.75" in shown


def test_answers_in_flight_are_stored_when_another_ends_the_command(serve, ask, tmp_path):
    def slow(_handler, number):
        time.sleep(0.5 if number > 5 else 0)
        return False

    server = serve(fault=slow, change=spoiled(MALFORMED["missing option"]))
    ask(server.url, "--concurrency", 4, exits=2)
    assert len(stored(tmp_path)) == len(server.bodies)


def test_refusals_and_missing_answers_are_kept(serve, ask, tmp_path):
    def change(reply, number):
        if number % 4 == 2:
            reply["answers"][0] = {"type": "refusal", "name": "queue"}

    ask(serve("decisions", change=change).url, protocol="decisions")
    assert sum(row["response"]["answers"][0]["type"] == "refusal" for row in stored(tmp_path)) == 3

    def blocked(reply, number):
        if number == 3:
            reply.pop("answers")
            reply["prompt_feedback"] = {"block_reason": "SAFETY"}

    ask(serve("gemini", change=blocked).url, protocol="gemini", out="gemini")

    def too_long(handler, number):
        if number == 3:
            send(handler, {"error": {"message": "too many tokens"}}, 400)
        return number == 3

    assert "Refused, and counted as missing answers: 1 request" in ask(serve(fault=too_long).url, out="long")
    for out, n in (("run", 3), ("gemini", 1), ("long", 1)):
        metrics = pl.read_parquet(tmp_path / out / "tables/metrics.parquet").filter(dataset="queue", metric="accuracy")
        values = dict(metrics.filter(definition="paper").select("part", "value").iter_rows())
        both = sorted(values.values())
        assert len(both) == 2
        assert both[0] * N == pytest.approx(both[1] * (N - n)), (out, values)


@pytest.mark.usefixtures("unmeasured")
def test_a_limit_of_questions_is_taken_from_the_first_refusal(serve, ask):
    sizes = []

    def limited(handler, _number):
        return len(sizes) == 0 and (sizes.append(1) or send(handler, limit, 400) or True)

    limit = {"error": {"message": "questions: at most 2 for this model", "type": "BadRequestError", "code": 400}}
    server = serve(fault=limited)
    ask(server.url)
    assert sorted(len(body["questions"]) for body in server.bodies) == [1] * N + [2] * N
    ask(server.url)
    assert len(server.bodies) == 2 * N


def test_other_questions_in_the_same_folder_are_asked_as_in_a_new_one(serve, ask, tmp_path):
    server, path = serve(), tmp_path / "questions.toml"
    path.write_text(QUESTIONS.partition("[refund]")[0])
    ask(server.url)
    path.write_text(QUESTIONS.replace("Which team", "Whose"))
    refusing = serve(fault=lambda handler, _: send(handler, {"error": {"message": "at most 2 options"}}, 400) or True)
    assert "no other request was sent" in ask(refusing.url, exits=2)
    assert (refusing.n_completions, len(stored(tmp_path))) == (1, N)  # a wrong question is no refused input
    assert "Refused" not in ask(server.url)
    assert [len(body["questions"]) for body in server.bodies] == [1] * N + [3] * N


def test_levels_that_are_named_by_numbers_are_those_of_the_table(serve, ask, tmp_path):
    (tmp_path / "questions.toml").write_text(QUESTIONS.replace(str(LEVELS).replace("'", '"'), '["1", "2", "3"]'))
    pl.DataFrame([row | {"anger": 1 + n % 2} for n, row in enumerate(ROWS)]).write_csv(tmp_path / "tickets.csv")
    ask(serve().url)
    found = pl.read_parquet(tmp_path / "run/tables/predictions.parquet").filter(dataset="anger", definition="paper")
    assert found["label_names"].to_list() == [["1", "2", "3"]] * N
    assert found.sort("query_id")["gold"].to_list() == [n % 2 for n in range(N)]


def test_known_limits_come_before_the_first_call_and_others_end_the_run(serve, ask, tmp_path):
    (tmp_path / "questions.toml").write_text(
        f'[level]\ntype = "score"\ninstructions = "How much?"\nlevels = {[str(n) for n in range(11)]}\n'
    )
    server = serve()
    assert "question 'level': 11 levels, and the service takes 10" in ask(server.url, exits=2)
    assert not server.bodies
    refusing = serve(fault=lambda handler, _: send(handler, {"error": {"message": "at most 2 options"}}, 400) or True)
    (tmp_path / "questions.toml").write_text(QUESTIONS)
    assert "at most 2 options" in ask(refusing.url, exits=2)
    assert refusing.n_completions == 1


@pytest.mark.usefixtures("unmeasured")
def test_a_busy_service_is_asked_again_when_it_says(serve, ask):
    times = []

    def busy(handler, number):
        times.append(time.monotonic())
        if number != 2:
            return False
        handler.send_response(429)
        handler.send_header("Retry-After", "1")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    server = serve(fault=busy)
    ask(server.url, "--concurrency", 1)
    assert len(server.bodies) == N
    assert times[2] - times[1] >= 1.0


@pytest.mark.usefixtures("unmeasured")
def test_a_slow_drip_ends_and_is_asked_again(serve, ask, monkeypatch, tmp_path):
    monkeypatch.setattr(server_client, "READ_S", 0.5)

    def drip(handler, number):
        if number != 3:
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        for _ in range(20):
            handler.wfile.write(b" ")
            time.sleep(0.1)
        return True

    server = serve(fault=drip)
    ask(server.url)
    # On a busy machine others may take half a second as well, and are asked again.
    assert len({json.dumps(body) for body in server.bodies}) == N
    assert len((tmp_path / "run" / "answers.jsonl").read_text().splitlines()) == N


@pytest.mark.usefixtures("unmeasured")
def test_a_version_that_changes_is_told(serve, ask):
    shown = ask(serve(change=lambda reply, n: reply.update(model=f"jev-1.{14 + n // 9}.0")).url, "--concurrency", 1)
    assert "Row 8: jev-1.15.0 answered, and jev-1.14.0 before it" in shown
    assert "Answered by: jev-1.14.0, then jev-1.15.0" in shown


@pytest.mark.usefixtures("unmeasured")
def test_inputs_that_were_cut_off_are_told(serve, ask):
    shown = ask(serve(change=lambda reply, n: reply["usage"].update(state_tokens_dropped=7 * (n == 2))).url)
    assert shown.count("state_tokens_dropped = 7") == 1


def test_keys_are_sent_to_their_own_service_and_written_nowhere(serve, ask, tmp_path, monkeypatch):
    key = "planted-key-0123456789"

    def echoing(handler, number):
        if number == 3:
            send(handler, {"error": {"message": f"too long; you sent {handler.headers['Authorization']}"}}, 400)
        return number == 3

    server = serve(fault=echoing, change=lambda reply, _: reply.update(echo=[*map(str, server.keys)]))
    monkeypatch.setenv("TYPESAFE_API_KEY", "usual-key-0123456789")
    ask(server.url, out="without")
    assert server.keys == {None}
    monkeypatch.setenv("EVALUATOR_API_KEY", key)
    shown = ask(server.url)
    assert f"Bearer {key}" in server.keys
    assert key not in shown
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert key.encode() not in written
    assert b"usual-key" not in written
    assert b"***" in written


@pytest.mark.usefixtures("unmeasured")
def test_a_key_that_a_reply_repeats_in_escapes_is_written_nowhere(serve, ask, tmp_path, monkeypatch):
    key = "planted/key+0123456789"
    monkeypatch.setenv("EVALUATOR_API_KEY", key)
    forms = [key.replace("/", r"\/"), "".join(f"\\u{ord(c):04X}" for c in key), key.replace("k", r"\u006b")]

    def echoing(_handler, number):
        if number == 2:
            send(_handler, ('{"note": ["C:\\\\", "' + '", "'.join(forms) + '"]}').encode())
        return number == 2

    shown = ask(serve(fault=echoing).url, "--concurrency", 1)
    assert key not in shown
    assert stored(tmp_path)[1]["response"] == {"note": ["C:\\", "***", "***", "***"]}


def test_nothing_is_sent_to_another_host_without_consent(ask, tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "_confirmed", lambda: False)
    shown = ask("https://decisions.invalid", exits=2)
    assert (
        "12 rows will be sent to decisions.invalid: of each the column body and the questions anger, queue, refund"
        in shown
    )
    assert "Nothing was sent" in shown
    assert not (tmp_path / "run").exists()
    assert "holds more than a host" in ask("https://user:secret@decisions.invalid", exits=2)
    assert "--max-cost must be 0 or more, got -1" in ask("https://decisions.invalid", "--max-cost", "-1", exits=2)


def test_an_address_where_nothing_listens_ends_the_command_at_once(ask):
    with socket.socket() as taken:  # bound, so that nobody else listens there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        said = ask(f"http://127.0.0.1:{port}", exits=2)
    assert (
        f"127.0.0.1:{port} cannot be reached as http: Connection refused. Start the service, or correct --url." in said
    )


def test_a_service_without_tls_ends_the_command_at_once(serve, ask):
    assert "cannot be reached as https: [SSL: " in ask(serve().url.replace("http:", "https:"), exits=2)


@pytest.mark.usefixtures("unmeasured")
def test_prices_come_from_a_file(serve, ask, tmp_path):
    (tmp_path / "prices.toml").write_text('["jev-latest"]\ninput = 1000\noutput = 2000\n')
    assert "Cost: $1.224" in ask(serve().url, "--prices", tmp_path / "prices.toml")
    (tmp_path / "prices.toml").write_text("[other]\ninput = 1\n")
    assert "no price of jev-latest" in ask(serve().url, "--prices", tmp_path / "prices.toml", exits=2)
    assert "--max-cost needs a cost" in ask(serve().url, "--max-cost", 1, exits=2, out="unpriced")


@pytest.mark.usefixtures("unmeasured")
def test_concurrency_is_used_against_a_service_limited_by_latency(serve, ask, tmp_path):
    n, concurrency = 17, 8  # two full rounds after the first request
    rows = [row | {"body": f"Ticket {place}"} for place, row in enumerate([*ROWS, *ROWS, *ROWS, *ROWS][:n])]
    pl.DataFrame(rows).write_csv(tmp_path / "tickets.csv")
    in_flight, at_once, round_is_full = set(), [], threading.Barrier(concurrency)

    def wait(_handler, number):
        in_flight.add(number)
        at_once.append(len(in_flight))
        if number > 1:  # the first is asked alone
            round_is_full.wait(300)
        in_flight.discard(number)
        return False

    ask(serve(fault=wait).url, "--concurrency", concurrency)
    assert len(at_once) == n
    assert max(at_once) == concurrency


def test_a_folder_with_another_run_is_left_alone(serve, ask, tmp_path):
    server = serve()
    ask(server.url)
    (tmp_path / "run" / "answers.jsonl").unlink()
    assert "holds a run of something else" in ask(server.url, exits=2)


@pytest.mark.usefixtures("pages")
def test_what_should_not_matter_is_asked_of_a_service_too(serve, ask, tmp_path):
    changed = QUESTIONS.replace('criteria = {yes = "money back"}', 'negated = "No refund?"\nwordings = ["Money back?"]')
    (tmp_path / "questions.toml").write_text(changed)
    server = serve()
    parts = ("--parts", "repeat,order,wording,negation,spacing,among", "--concurrency", 1)
    shown = ask(server.url, *parts)
    # As it is, once more, two rotations, a wording, a negation, spaces, lower case, and three questions alone.
    assert len(server.bodies) == N * 11 == len(stored(tmp_path))
    queues = [body["questions"]["queue"] for body in server.bodies if "queue" in body["questions"]]
    rotations = [TEAMS, [*TEAMS[1:], TEAMS[0]], [TEAMS[2], *TEAMS[:2]]]
    assert {tuple(queue["criteria"]) for queue in queues} == {*map(tuple, rotations)}
    # The service answers by input and names of options alone.
    for part, question in (("repeat", "queue"), ("order", "queue"), ("wording", "refund"), ("among", "anger")):
        assert measured(tmp_path, part, question)[f"{part}_flips"][0] == 0
    firsts = [TEAMS.index(likeliest(shares(row["body"], TEAMS))) for row in ROWS]
    assert measured(tmp_path, "order", "queue")["order_first"][0] == pytest.approx(1 / 3), firsts
    yes = [shares(row["body"], ["yes", "no"])["yes"] for row in ROWS]
    negated = measured(tmp_path, "negation", "refund")
    assert negated["negation_flips"][0] == pytest.approx(sum(p != 0.5 for p in yes) / N)
    assert negated["negation_distance"][0] == pytest.approx(sum(abs(2 * p - 1) for p in yes) / N)
    flips = 0
    for body in (row["body"] for row in ROWS):
        plain, *others = (
            likeliest(shares(text, TEAMS)) for text in (body, f" {body.replace(' ', '  ')} ", body.lower())
        )
        flips += sum(other != plain for other in others)
    assert measured(tmp_path, "spacing", "queue")["spacing_flips"][0] == pytest.approx(flips / 2 / N)
    assert f"Negation: {sum(p != 0.5 for p in yes) / N:.1%} of answers change" in shown
    metrics = pl.read_parquet(tmp_path / "run/tables/metrics.parquet")
    assert metrics.filter(dataset="queue", metric="accuracy")["n_queries"].unique().to_list() == [N]
    components = pl.read_parquet(tmp_path / "run/tables/variance_components.parquet")
    of_accuracy = components.filter(part="imported", dataset="refund")
    assert {*of_accuracy["component"]} == {"queries", "repeat", "wording", "negation", "spacing", "among"}
    assert of_accuracy["share"].sum() == pytest.approx(1)
    assert "What should not matter, and does" in (tmp_path / "run" / "report.html").read_text()
    n_asked = len(server.bodies)
    assert "Negation: " in ask(server.url, *parts)
    assert len(server.bodies) == n_asked
    assert "there is no part 'letters'" in ask(server.url, "--parts", "letters", exits=2)
    (tmp_path / "questions.toml").write_text(QUESTIONS)
    assert "--parts wording: no question of" in ask(server.url, "--parts", "wording", exits=2)


@pytest.mark.usefixtures("pages")
def test_a_table_without_true_options_is_asked_again(serve, ask, tmp_path):
    (tmp_path / "questions.toml").write_text(QUESTIONS.replace("gold = ", "# "))
    shown = ask(serve().url, "--parts", "spacing")
    assert "Spaces and case: " in shown
    assert "What should not matter, and does" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    ("line", "named"),
    [("hello", "a JSON object was expected"), ('{"a": 1}', "stores no such answer"), (None, "stores no such answer")],
)
def test_a_stored_answer_that_is_none_is_named(serve, ask, tmp_path, line, named):
    server = serve()
    ask(server.url)
    path = tmp_path / "run" / "answers.jsonl"
    first, *others = path.read_text().splitlines()
    line = json.dumps(json.loads(first) | {"cost": "x"}) if line is None else line
    path.write_text("\n".join([line, *others, ""]))
    said = ask(server.url, exits=2)
    assert "answers.jsonl, row 0 (from 0)" in said
    assert named in said
    path.write_text("\n".join([*others, ""]))
    ask(server.url)
    assert len(server.bodies) == N + 1
    path.write_text("\n")
    ask(server.url)
    assert len(server.bodies) == 2 * N + 1


@pytest.mark.parametrize("url", ["ftp://x", "http://127.0.0.1:99999", "http://127.0.0.1:abc", "http://[::1"])
def test_what_is_no_address_is_named(ask, url):
    assert "Error: --url is blank" in ask("", exits=2)
    assert f"--url takes http://HOST:PORT or https://HOST, got {url!r}" in ask(url, exits=2)


def test_a_wrong_path_or_name_of_a_question_is_told_before_more_is_sent(serve, ask, tmp_path):
    server = serve()
    said = ask(server.url, protocol="decisions", exits=2)
    assert "404" in said
    assert "Correct --url, --protocol, --model or the questions; no other request was sent" in said
    (tmp_path / "questions.toml").write_text(QUESTIONS.replace("[queue]", "[mean]"))
    assert "cannot be called 'mean'" in ask(server.url, exits=2)
    assert not server.bodies


@pytest.mark.usefixtures("unmeasured")
def test_a_repetition_in_the_current_folder_has_a_folder_beside_it(serve, ask, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    server = serve()
    ask(server.url, out="here")
    for out in (".", "../here"):
        ask(server.url, "--out", out, "--repeat", 2)
    assert len(stored(tmp_path, "here-repeat-2")) == len(stored(tmp_path, "here")) == N


@pytest.mark.usefixtures("unmeasured")
def test_a_part_that_is_named_twice_is_asked_once(serve, ask, tmp_path):
    ask(serve("decisions").url, "--parts", "order,order", protocol="decisions")
    assert {len(row["request"]["questions"]) for row in stored(tmp_path)} == {3, 1}  # all, and the choice alone
