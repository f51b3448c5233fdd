"""Logs of decision services: numbers of scikit-learn, rounding, refusals, and rows that do not fit."""

import json
import math
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, cohen_kappa_score, log_loss, mean_absolute_error

from evaluator.config import ImportColumns
from evaluator.decisions.answers import least_probability, resolution, sum_tolerances, typed_answer
from evaluator.errors import DatasetError
from evaluator.imports.answers import WITH_REFUSALS
from evaluator.imports.files import read_files
from evaluator.run.folders import read_run
from tests.command_line import command

QUEUES = ["billing", "technical", "spam"]
pytestmark = pytest.mark.usefixtures("without_pages")

N = 60


def write(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def answers():
    """Probabilities of three options [n, 3], of yes [n] and of three levels [n, 3], with the true options."""
    rng = np.random.default_rng(5)
    queue, anger = rng.dirichlet([0.6] * 3, N), rng.dirichlet([1.0] * 3, N)
    gold = [int(rng.choice(3, p=row)) for row in queue], [int(rng.choice(3, p=row)) for row in anger]
    yes = rng.beta(0.8, 0.8, N)
    return queue, yes, anger, (*gold, rng.random(N) < yes)


QUESTIONS = {
    "queue": {"type": "choice", "instructions": "Which queue?", "criteria": dict.fromkeys(QUEUES)},
    "refund": {"type": "noul", "instructions": "A refund?"},
    "anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "cross", "furious"]},
}


def exchanges(answers, protocol):
    """Return requests and replies as each service writes them."""
    queue, yes, anger, (gold_queue, gold_anger, gold_yes) = answers
    for n in range(N):
        true = {
            "queue": QUEUES[gold_queue[n]],
            "refund": bool(gold_yes[n]),
            "anger": ["calm", "cross", "furious"][gold_anger[n]],
        }
        if protocol == "decisions":
            listed = [
                {"type": "choice", "name": "queue", "choices": [{"value": name} for name in QUEUES]},
                {"type": "predicate", "name": "refund"},
                {"type": "score", "name": "anger", "levels": [{"label": one} for one in ("calm", "cross", "furious")]},
            ]
            pairs = sorted(zip(QUEUES, queue[n], strict=True), key=lambda pair: -pair[1])
            replied = [
                {
                    "type": "choice",
                    "name": "queue",
                    "probabilities": [{"value": v, "probability": p} for v, p in pairs],
                },
                {"type": "predicate", "name": "refund", "probability": yes[n]},
                {
                    "type": "score",
                    "name": "anger",
                    "score": 1.0,
                    "probabilities": [
                        {"value": level, "label": label, "probability": anger[n][level]}
                        for level, label in enumerate(("calm", "cross", "furious"))
                    ],
                },
            ]
            yield {
                "request": {"model": "m", "input": f"Ticket {n}", "questions": listed},
                "response": {"model": "m-1", "answers": replied},
                "gold": true,
            }
        else:
            replied = {
                "queue": {
                    "type": "choice",
                    "choice": "x",
                    "confidence": 0.1,
                    "probabilities": dict(zip(QUEUES, queue[n], strict=True)),
                },
                "refund": {"type": "noul", "noul": yes[n]},
                "anger": {
                    "type": "score",
                    "score": 1.0,
                    "legend": {"0": "calm", "1": "cross", "2": "furious"},
                    "probabilities": {str(k): anger[n][k] for k in (2, 0, 1)},
                },
            }
            reply = {"answers": replied} if protocol == "gemini" else {"model": "jev-1.14.0", "answers": replied}
            asked = {"state": f"Ticket {n}"} if protocol == "systemone" else {"input": f"Ticket {n}"}
            yield {"request": {**asked, "questions": QUESTIONS}, "response": reply, "labels": true}


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("protocol", ["systemone", "decisions", "gemini"])
def test_every_question_of_a_log_is_measured_as_scikit_learn_has_it(tmp_path, answers, protocol):
    path = write(tmp_path / "log.jsonl", exchanges(answers, protocol))
    command("import", path, "--out", tmp_path / "run")
    rows = pl.read_parquet(tmp_path / "run" / "tables" / "metrics.parquet").filter(definition="paper")
    queue, yes, anger, (gold_queue, gold_anger, gold_yes) = answers
    for question, probs, gold in (
        ("queue", queue, gold_queue),
        ("anger", anger, gold_anger),
        ("refund", np.stack([1 - yes, yes], axis=1), gold_yes.astype(int)),
    ):
        measured = dict(rows.filter(dataset=question).select("metric", "value").iter_rows())
        assert measured["accuracy"] == pytest.approx(accuracy_score(gold, probs.argmax(axis=1)))
        assert measured["log_loss"] == pytest.approx(log_loss(gold, probs, labels=range(probs.shape[1])))
    assert measured["brier_score"] == pytest.approx(2 * brier_score_loss(gold_yes, yes))
    predictions = pl.read_parquet(tmp_path / "run" / "tables" / "predictions.parquet")
    names = predictions.filter(dataset="anger")["label_names"].unique().to_list()
    assert names == [["calm", "cross", "furious"]]
    page = (tmp_path / "run" / "report.html").read_text()
    assert ("answered by jev-1.14.0" in page) == (protocol == "systemone")


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("protocol", ["systemone", "decisions", "gemini"])
def test_levels_distributions_and_labels_of_a_log_are_scored(tmp_path, answers, protocol):
    queue, yes, anger, (gold_queue, gold_anger, gold_yes) = answers
    soft, late = np.random.default_rng(2).dirichlet([1.0] * 3, N), np.roll(yes, 1)
    rows = list(exchanges(answers, protocol))
    for n, row in enumerate(rows):
        true = row.get("gold", row.get("labels"))
        true["queue"], true["late"] = dict(zip(QUEUES, soft[n], strict=True)), bool(gold_queue[n])
        if protocol == "decisions":
            row["request"]["questions"].append({"type": "predicate", "name": "late"})
            row["response"]["answers"].append({"type": "predicate", "probability": late[n]})
        else:
            row["request"]["questions"] = QUESTIONS | {"late": {"type": "noul"}}
            row["response"]["answers"]["late"] = {"type": "noul", "noul": late[n]}
    if protocol != "decisions":
        del rows[3]["response"]["answers"]["refund"]
    rows[7]["response"] = None  # the request failed
    command("import", write(tmp_path / "log.jsonl", rows), "--out", tmp_path / "run")
    graded = pl.read_parquet(tmp_path / "run" / "tables" / "graded.parquet")
    value = {(row["dataset"], row["metric"]): row["value"] for row in graded.to_dicts()}
    kept = np.arange(N) != 7
    kappa = cohen_kappa_score(np.array(gold_anger)[kept], anger[kept].argmax(axis=1), weights="quadratic")
    assert value["anger", "weighted_kappa"] == pytest.approx(kappa)
    levels = anger[kept] @ np.arange(3)
    assert value["anger", "mean_absolute_error"] == pytest.approx(
        mean_absolute_error(levels, np.array(gold_anger)[kept])
    )
    assert value["queue", "cross_entropy"] == pytest.approx(-(soft * np.log(queue))[kept].sum(axis=1).mean())
    both = kept & ((np.arange(N) != 3) | (protocol == "decisions"))
    true, shown = np.stack([gold_queue, gold_yes], 1).astype(bool)[both], np.stack([late, yes], 1)[both] >= 0.5
    assert value["late + refund", "exact_match"] == pytest.approx(accuracy_score(true, shown))
    assert "Levels, distributions and labels" in (tmp_path / "run" / "report.html").read_text()


def records(kind, probs, gold):
    """Return the same answers as four evaluators keep them."""
    for n, (row, true) in enumerate(zip(probs, gold, strict=True)):
        by_name = dict(zip(QUEUES, row, strict=True))
        yield {
            "jev-eval": {
                **{"model": "jev-latest", "row": n, "state_hash": f"s{n}", "id": "queue", "type": "choice"},
                **{"question_hash": "q", "question": QUESTIONS["queue"], "gold": QUEUES[true]},
                "answer": {"type": "choice", "choice": "x", "probabilities": by_name, "confidence": 0.5},
            },
            "decguard": {
                **{"id": f"r{n}", "decision": "queue", "probabilities": by_name, "selected": "x"},
                **{"outcome": QUEUES[true], "model_version": "v2", "confidence": 0.5},
            },
            "sys1bench": {
                **{"row_id": f"r{n}", "question_key": "queue", "primitive": "choice", "option_keys": QUEUES},
                **{
                    "probs": row.tolist(),
                    "argmax": "x",
                    "ground_truth": QUEUES[true],
                    "error": None,
                    "model_id": "jev",
                },
            },
            "promptfoo": {
                "vars": {"ticket": f"Ticket {n}", "gold": json.dumps({"queue": QUEUES[true]})},
                "prompt": {"raw": f"Ticket {n}"},
                "response": {
                    "output": json.dumps({"answers": {"queue": {"type": "choice", "probabilities": by_name}}})
                },
            },
        }[kind]


@pytest.mark.parametrize("kind", ["jev-eval", "decguard", "sys1bench", "promptfoo", "promptfoo file"])
def test_records_of_other_evaluators_are_read(tmp_path, answers, kind):
    queue, _, _, (gold, _, _) = answers
    rows = list(records(kind.split()[0], queue, gold))
    if kind == "promptfoo file":
        path = tmp_path / "results.json"
        path.write_text(json.dumps({"version": 3, "results": {"results": rows}}))
    else:
        path = write(tmp_path / "log.jsonl", rows)
    [dataset] = read_files([path], ImportColumns())
    assert dataset.name == "queue"
    assert dataset.rows["gold"].to_list() == gold
    assert dataset.rows["query"].n_unique() == N
    found = np.exp(np.array(dataset.rows["log_likelihoods"].to_list()))
    np.testing.assert_allclose(found, queue, rtol=1e-12)


@given(st.integers(2, 30), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_probabilities_that_a_service_rounded_are_taken(k, decimals, seed):
    """Each of k values is rounded by half a step at most, so that no sum of them is further away than k halves."""
    probs = np.random.default_rng(seed).dirichlet([0.3] * k, 40).round(decimals)
    step = resolution(probs)
    assert step is not None
    assert step >= 10.0**-decimals * (1 - 1e-9)
    assert (np.abs(probs.sum(axis=1) - 1) <= sum_tolerances(probs)).all()
    finer = np.vstack([probs, np.random.default_rng(seed).dirichlet([0.3] * k, 1)])  # from the next version
    np.testing.assert_array_equal(sum_tolerances(finer)[:-1], sum_tolerances(probs))


@pytest.mark.usefixtures("pages")
def test_a_zero_among_numbers_without_a_step_counts_as_half_of_the_smallest_other():
    thirds = np.array([[0, 1 / 3, 2 / 3], [1 / 7, 2 / 7, 4 / 7]])
    assert resolution(thirds) is None
    assert least_probability(thirds, None) == pytest.approx(1 / 14)
    assert least_probability(thirds[1:], None) is None


@pytest.mark.usefixtures("pages")
def test_rounded_zeros_have_a_floor_that_is_a_definition_of_its_own(tmp_path, answers):
    queue, _, _, (gold, _, _) = answers
    rounded = queue.round(2)
    rounded[0], true = [0.0, 0.01, 1.0], [0, *gold[1:]]
    rows = [
        {
            "request": {"state": f"T{n}", "questions": {"queue": {}}},
            "response": {"answers": {"queue": {"probabilities": dict(zip(QUEUES, row.tolist(), strict=True))}}},
            "gold": QUEUES[one],
        }
        for n, (row, one) in enumerate(zip(rounded, true, strict=True))
    ]
    command("import", write(tmp_path / "log.jsonl", rows), "--out", tmp_path / "run")
    metrics = pl.read_parquet(tmp_path / "run" / "tables" / "metrics.parquet").filter(dataset="queue")
    value = {(row["definition"], row["metric"]): row["value"] for row in metrics.to_dicts()}
    assert value["paper", "log_loss"] == math.inf
    floored = np.maximum(rounded / rounded.sum(axis=1, keepdims=True), 0.005)
    floored /= floored.sum(axis=1, keepdims=True)
    assert value["floored", "log_loss"] == pytest.approx(log_loss(true, floored, labels=range(3)))
    assert value["floored", "accuracy"] == value["paper", "accuracy"]
    n_zero = int((rounded == 0).any(axis=1).sum())
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"{n_zero} of {N} rows have a probability of 0" in page
    assert "multiples of 0.01" in page
    assert "every file is as it was written" in command("verify", tmp_path / "run")


def test_logs_with_rounded_zeros_are_compared_under_the_definition_of_the_paper(tmp_path):
    for name, best in (("a", 0), ("b", 1)):
        rows = [
            {"row_id": n, "question_key": "q", "option_keys": list("xy"), "ground_truth": "xy"[n % 2]}
            | {"probs": [float(n % 2 == best), float(n % 2 != best)]}
            for n in range(8)
        ]
        command("import", write(tmp_path / f"{name}.jsonl", rows), "--out", tmp_path / name, "--model", name)
    told = command("compare", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "both")
    assert "a is better than b by 100.0 points of accuracy" in told
    assert "p = 0.008" in told  # McNemar's exact test of 8 to 0: 2 / 2^8


def test_services_are_compared_on_the_queries_that_both_have_answered(tmp_path):
    # a is right about all, b about the last six; b refuses the first two and the fifth, a the fourth.
    refused = {"a": {3}, "b": {0, 1, 4}}
    for name, first_right in (("a", 0), ("b", 6)):
        right = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]])[(np.arange(12) < first_right).astype(int)]
        rows = list(records("jev-eval", right, np.zeros(12, int)))
        for n in refused[name]:
            rows[n]["answer"] = None
        command("import", write(tmp_path / f"{name}.jsonl", rows), "--out", tmp_path / name, "--model", name)
    told = command("compare", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "both")
    assert "Its differences are over 8 of its 11 queries in queue" in told
    assert "Its differences are over 8 of its 9 queries in queue" in told
    differences = pl.read_parquet(tmp_path / "both" / "tables" / "differences.parquet")
    row = differences.row(
        by_predicate=pl.col("dataset").eq("queue") & pl.col("part").eq("imported") & pl.col("metric").eq("accuracy"),
        named=True,
    )
    # Both have answered the queries 2 and 5, about which b is wrong, and 6 to 11.
    assert (row["n_queries"], row["difference"], row["p_value"]) == (8, 2 / 8, pytest.approx(2 / 2**2))


def test_refusals_count_as_wrong_and_are_left_out(tmp_path, answers):
    queue, _, _, (gold, _, _) = answers
    rows = list(records("jev-eval", queue, gold))
    for n in range(0, 20, 2):
        rows[n]["answer"] = None if n % 4 else {"type": "refusal", "name": "queue"}
    command("import", write(tmp_path / "log.jsonl", rows), "--out", tmp_path / "run")
    metrics = pl.read_parquet(tmp_path / "run" / "tables" / "metrics.parquet").filter(
        dataset="queue", metric="accuracy"
    )
    right = queue.argmax(axis=1) == gold
    answered = np.ones(N, bool)
    answered[range(0, 20, 2)] = False
    assert metrics.filter(part="imported")["value"].item() == pytest.approx(right[answered].mean())
    assert metrics.filter(part=WITH_REFUSALS)["value"].item() == pytest.approx((right & answered).mean())
    assert metrics["n_queries"].to_list() == [N - 10, N]


@pytest.mark.parametrize("legend", [{"0": "calm", "1": "cross"}, {"1": "0"}, {"0": "calm"}])
def test_levels_have_the_texts_of_a_whole_legend_and_refused_ones_are_wrong(tmp_path, legend):
    answer = {"type": "score", "legend": legend, "probabilities": {"1": 0.7, "0": 0.3}}
    rows = [
        {"request": {"state": f"T{n}", "questions": {"q": {}}}, "response": {"answers": {"q": one}}, "gold": "1"}
        for n, one in enumerate([answer, answer, None])
    ]
    answered, with_refusals = read_files([write(tmp_path / "log.jsonl", rows)], ImportColumns())
    names = [*legend.values()] if len(legend) == 2 else ["0", "1"]
    assert with_refusals.rows["label_names"].to_list() == [names] * 3
    assert answered.rows["gold"].to_list() == [1, 1]
    assert with_refusals.rows["log_likelihoods"][2].to_list() == [0, -math.inf]


@pytest.mark.parametrize("listed", [False, True])
def test_a_refusal_is_wrong_among_the_options_of_its_own_row(tmp_path, listed):
    rows = []
    for n in range(8):
        names = [f"a{n}", f"b{n}", f"c{n}"][: 2 + n % 2]
        answer = None if n in (4, 5) else {"probabilities": {name: 1 / len(names) for name in names}}
        asked = {"choices": [{"value": name} for name in names]} if listed else {"criteria": dict.fromkeys(names)}
        question = {"type": "choice", "name": "q"} | asked
        rows.append({"request": {"input": f"T{n}", "questions": [question] if listed else {"q": question}}})
        rows[-1] |= {"response": {"answers": [answer] if listed else {"q": answer}}, "gold": names[-1]}
    datasets = read_files([write(tmp_path / "log.jsonl", rows)], ImportColumns())
    assert [(each.name, each.part, each.rows.height) for each in datasets] == [
        *(("q (2 options)", "imported", 3), ("q (2 options)", WITH_REFUSALS, 4)),
        *(("q (3 options)", "imported", 3), ("q (3 options)", WITH_REFUSALS, 4)),
    ]
    for dataset, last in ((datasets[1], ["a4", "b4"]), (datasets[3], ["a5", "b5", "c5"])):
        refused = dataset.rows.row(-1, named=True)
        assert (refused["label_names"], refused["gold"]) == (last, len(last) - 1)
        assert refused["log_likelihoods"] == [0.0, *[-math.inf] * (len(last) - 1)]
        assert "the part refusals-wrong counts 1 refused or missing answers as wrong" in dataset.notes


@pytest.mark.parametrize("sizes", [(3, 3), (2, 3)])
def test_a_refusal_counts_where_no_answer_has_as_many_options(tmp_path, sizes):
    rows = []
    for n in range(5):
        names = list("abcd") if n == 4 else list("abc"[: sizes[n % 2]])
        answer = None if n == 4 else {"probabilities": {name: 1 / len(names) for name in names}}
        question = {"type": "choice", "criteria": dict.fromkeys(names)}
        rows.append({"request": {"state": f"T{n}", "questions": {"q": question}}})
        rows[-1] |= {"response": {"answers": {"q": answer}}, "gold": names[-1]}
    *answered, refused = read_files([write(tmp_path / "log.jsonl", rows)], ImportColumns())
    assert {each.part for each in answered} == {"imported"}
    assert (refused.name, refused.part) == ("q (4 options)", WITH_REFUSALS)
    (row,) = refused.rows.to_dicts()
    assert (row["label_names"], row["gold"], row["log_likelihoods"]) == (list("abcd"), 3, [0.0, *[-math.inf] * 3])


@pytest.mark.parametrize("question", [{"type": "noul"}, {"type": "score", "criteria": ["calm", "cross"]}])
def test_a_question_that_is_always_refused_is_wrong(tmp_path, question):
    rows = [
        {
            "request": {"state": f"T{n}", "questions": {"q": question, "other": {"type": "noul"}}},
            "response": {"answers": {"other": {"noul": 0.9}}},
            "gold": {"q": "1", "other": "yes"},
        }
        for n in range(3)
    ]
    refused, answered = read_files([write(tmp_path / "log.jsonl", rows)], ImportColumns())
    assert (refused.name, refused.part, answered.name, answered.part) == ("q", WITH_REFUSALS, "other", "imported")
    assert refused.rows["gold"].to_list() == [1, 1, 1]
    assert refused.rows["log_likelihoods"][0].to_list() == [0.0, -math.inf]


@pytest.mark.parametrize("has_legend", [True, False])
@pytest.mark.parametrize(("golds", "levels"), [("1453", [0, 3, 4, 2]), ("1322", [0, 2, 1, 1]), ("0321", [0, 3, 2, 1])])
def test_levels_that_are_named_by_numbers_are_read_alike_in_all_rows(tmp_path, golds, levels, has_legend):
    answer = {"type": "score", "probabilities": {str(n): 0.2 for n in range(5)}}
    answer |= {"legend": {str(n): str(n + 1) for n in range(5)}} if has_legend else {}
    asked = {"type": "score", "criteria": list("12345")}
    rows = [
        {"request": {"state": f"T{n}", "questions": {"q": asked}}, "response": {"answers": {"q": answer}}, "gold": gold}
        for n, gold in enumerate(golds)
    ]
    rows.append(rows[2] | {"response": {"answers": {"q": None}}})  # a refusal's is read as the others
    answered, refused = read_files([write(tmp_path / "log.jsonl", rows)], ImportColumns())
    assert answered.rows["label_names"][0].to_list() == list("12345")
    assert answered.rows["gold"].to_list() == levels
    assert refused.rows["gold"].to_list() == [*levels, levels[2]]


@pytest.mark.parametrize("probs", [[0.6], [0.6, 0.4, 0.0]])
def test_probabilities_of_sys1bench_that_are_not_as_many_as_options_are_refused(tmp_path, probs):
    row = {"row_id": "r", "question_key": "q", "option_keys": ["a", "b"], "probs": probs, "ground_truth": "a"}
    with pytest.raises(DatasetError, match=r"row 0 \(from 0\): 2 options need as many probabilities, found"):
        read_files([write(tmp_path / "log.jsonl", [row])], ImportColumns())


def test_label_mass_makes_likelihoods_over_the_vocabulary(tmp_path):
    rows = [
        {
            "request": {"state": f"T{n}", "questions": {"q": {}}},
            "response": {
                "answers": {"q": {"probabilities": {"a": 0.25, "b": 0.75}}},
                "diagnostics": {"q": {"label_mass": 0.1}},
            },
            "gold": "b",
        }
        for n in range(4)
    ]
    [dataset] = read_files([write(tmp_path / "log.jsonl", rows)], ImportColumns())
    assert dataset.numbers == "log-likelihoods"
    assert dataset.rows["log_likelihoods"][0].to_list() == pytest.approx([math.log(0.025), math.log(0.075)])
    # Where one question of a log has no mass, all have probabilities.
    massless = {"request": {"state": "T", "questions": {"r": {}}}, "response": {"answers": {"r": {"noul": 0.5}}}}
    datasets = read_files([write(tmp_path / "log.jsonl", [*rows, massless | {"gold": "yes"}])], ImportColumns())
    assert [(each.name, each.numbers) for each in datasets] == [("q", "probabilities"), ("r", "probabilities")]
    rows[0]["response"]["diagnostics"] = {"q": {"label_mass": 0}}  # whose likelihoods would all be 0
    [dataset] = read_files([write(tmp_path / "log.jsonl", rows)], ImportColumns())
    assert dataset.numbers == "probabilities"
    assert dataset.rows["log_likelihoods"][0].to_list() == pytest.approx([math.log(0.25), math.log(0.75)])


def test_options_that_differ_in_number_are_datasets_of_their_own(tmp_path):
    rows = [
        {
            "request": {"state": f"T{n}", "questions": {"q": {}}},
            "response": {"answers": {"q": {"probabilities": probs}}},
            "gold": "a",
        }
        for n, probs in enumerate([{"a": 0.5, "b": 0.5}, {"b": 0.9, "a": 0.1}, {"a": 0.2, "b": 0.3, "c": 0.5}])
    ]
    two, three = read_files([write(tmp_path / "log.jsonl", rows)], ImportColumns())
    assert (two.name, three.name) == ("q (2 options)", "q (3 options)")
    assert two.rows["label_names"].to_list() == [["a", "b"]] * 2
    assert np.exp(two.rows["log_likelihoods"][1].to_list()) == pytest.approx([0.1, 0.9])


@pytest.mark.parametrize(("primitive", "kind"), [("score", "score"), ("choice", "choice")])
def test_levels_of_sys1bench_are_ordered(tmp_path, primitive, kind):
    row = {"row_id": "r", "question_key": "q", "primitive": primitive, "option_keys": ["1", "0"], "probs": [0.7, 0.3]}
    path = write(tmp_path / "log.jsonl", [row | {"ground_truth": 1.0, "error": None, "model_id": "jev"}])
    [dataset] = read_files([path], ImportColumns())
    assert dataset.kind == kind
    options = ["0", "1"] if kind == "score" else ["1", "0"]
    assert dataset.rows["label_names"][0].to_list() == options
    assert dataset.rows["gold"].to_list() == [options.index("1")]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"probabilities": {"a": 0.5, "b": math.nan}}, "probabilities are numbers from 0 to 1"),
        ({"probabilities": {"a": 0.5, "b": "much"}}, "found 'much'"),
        ({"probabilities": {"a": 1.2, "b": -0.2}}, "found 1.2"),
        ({"probabilities": {"a": 1.0}}, "two options or more"),
        ({"noul": 1.5}, "found 1.5"),
        ({"choice": "a"}, "`probabilities`, `noul` or `probability`"),
        ("yes", "an answer is an object"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(answer, said):
    with pytest.raises(DatasetError) as error:
        typed_answer(answer)
    assert said in str(error.value)


def answer_with_mass(mass):
    answer = {"q": {"probabilities": {"a": 0.5, "b": 0.5}}}
    return {"answers": answer, "diagnostics": {"q": {"label_mass": mass}}}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gold": "c"}, "row 1 (from 0), question 'q': the true option 'c' is none of a, b"),
        ({"gold": None}, None),
        ({"gold": " "}, None),
        (
            {"response": {"answers": {"q": {"probabilities": {"a": 0.5, "b": 0.2}}}}},
            "row 1 (from 0), question 'q': found [0.5, 0.2]",
        ),
        ({"request": {}}, "row 1 (from 0): the key 'questions' is missing"),
        ({"request": "T"}, "row 1 (from 0): a value has another type than in logs of the kind request and reply"),
        ({"response": {"answers": 3}}, "row 1 (from 0): question 'q': 1 answers were expected, found 3"),
        ({"response": answer_with_mass("x")}, "row 1 (from 0): a value has another type"),
        ({"response": answer_with_mass(math.nan)}, "row 1 (from 0): a label mass is a number from 0 to 1, found nan"),
        ({"response": answer_with_mass(2)}, "row 1 (from 0): a label mass is a number from 0 to 1, found 2"),
        ({"request": {"questions": [{"name": 3}]}, "response": {}}, "row 1 (from 0): the name of a question is a text"),
        (
            {"request": {"questions": {"": {}}}, "response": {"answers": {"": {"noul": 0.5}}}, "gold": "yes"},
            "a text and not blank",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path, changed, said):
    row = {
        "request": {"state": "T", "questions": {"q": {}}},
        "response": {"answers": {"q": {"probabilities": {"a": 0.5, "b": 0.5}}}},
        "gold": "a",
    }
    path = write(tmp_path / "log.jsonl", [row, row | changed])
    if said is None:
        [dataset] = read_files([path], ImportColumns())
        assert dataset.rows.height == 1
        assert "answers without a true option, which are left out: 1" in " ".join(dataset.notes)
    else:
        with pytest.raises(DatasetError) as error:
            read_files([path], ImportColumns())
        assert said in str(error.value)


def test_an_id_may_be_a_number_or_missing_and_rows_without_one_are_told_apart_by_their_input(tmp_path):
    def queries(kind, **changed):
        (row,) = records(kind, np.array([[0.5, 0.3, 0.2]]), [0])
        rows = [row | {name: values[n] for name, values in changed.items()} for n in range(2)]
        return [*read_files([write(tmp_path / "log.jsonl", rows)], ImportColumns())[0].rows["query"]]

    assert queries("jev-eval", state_hash=[5, "5"], model=[1, ["m"]]) == ["5", "5"]
    assert len({*queries("decguard", id=[None, None], input=["a", "b"])}) == 2
    with pytest.raises(DatasetError, match=r"row 1 \(from 0\): question 'queue': the input has no id"):
        queries("jev-eval", state_hash=["a", None])
    request = {"state": "T", "questions": {"q": {}}}
    reply = {"answers": {"q": {"probabilities": {"a": 0.5, "b": 0.5}}}}
    rows = [{"id": None, "request": request | {"state": text}, "response": reply, "gold": "a"} for text in "ab"]
    (dataset,) = read_files([write(tmp_path / "log.jsonl", rows)], ImportColumns())
    assert dataset.rows["query"].n_unique() == 2


def test_an_option_of_promptfoo_may_look_like_a_number(tmp_path):
    reply = {"output": json.dumps({"probabilities": {"1e5": 0.5, "2": 0.5}})}
    rows = [{"vars": {"gold": option}, "response": reply} for option in ("1e5", "2")]
    (dataset,) = read_files([write(tmp_path / "log.jsonl", rows)], ImportColumns())
    assert dataset.rows["gold"].to_list() == [0, 1]


@pytest.mark.parametrize("content", ['{"results": [3]}', '{"results": {"results": ["x"]}}'])
def test_a_result_of_promptfoo_that_is_no_object_is_refused(tmp_path, content):
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(DatasetError, match=r"r.json is no whole results file of promptfoo"):
        read_files([tmp_path / "r.json"], ImportColumns())


@pytest.mark.parametrize("content", ["{}", "[]", '{"results": {"results": [', '{"results": {"results": 3}}'])
def test_a_file_that_is_no_results_of_promptfoo_is_named(tmp_path, content):
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(DatasetError, match=r"r.json is no whole results file of promptfoo"):
        read_files([tmp_path / "r.json"], ImportColumns())


def test_a_file_without_rows_or_answers_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"log.jsonl has no rows"):
        read_files([write(tmp_path / "log.jsonl", [])], ImportColumns())
    row = {"request": {"state": "T", "questions": {"q": {}}}, "response": {"answers": {"q": None}}, "gold": "a"}
    with pytest.raises(DatasetError, match="all answers were refused or are missing"):
        read_files([write(tmp_path / "log.jsonl", [row])], ImportColumns())


def test_two_answers_with_other_options_are_measured(tmp_path):
    rows = [
        {
            "request": {"state": f"T{n}", "questions": {"q": {}}},
            "response": {"answers": {"q": {"probabilities": dict(zip(names, (0.6, 0.4), strict=True))}}},
            "gold": names[n],
        }
        for n, names in enumerate(("ab", "cd"))
    ]
    command("import", write(tmp_path / "log.jsonl", rows), "--out", tmp_path / "run")
    metrics = pl.read_parquet(tmp_path / "run" / "tables" / "metrics.parquet").filter(metric="accuracy")
    assert metrics.filter(definition="paper", dataset="q")["value"].to_list() == [0.5]


def test_a_log_without_true_options_says_how_to_give_them(tmp_path):
    rows = [{"request": {"state": "T", "questions": {"q": {}}}, "response": {"answers": {"q": {"noul": 0.5}}}}]
    with pytest.raises(DatasetError, match="name another with --gold-column"):
        read_files([write(tmp_path / "log.jsonl", rows)], ImportColumns())


def test_a_question_none_of_whose_answers_has_a_true_option_is_named(tmp_path):
    answers = {"known": {"noul": 0.75}, "unknown": {"noul": 0.75}}
    row = {"request": {"state": "T", "questions": {name: {} for name in answers}}, "response": {"answers": answers}}
    log = write(tmp_path / "log.jsonl", [row | {"gold": {"known": "yes"}}])
    said = command("import", log, "--out", tmp_path / "run")
    assert "no answer to the question 'unknown' has a true option, so it is left out." in " ".join(said.split())
    assert read_run(tmp_path / "run").prompts.datasets == ["known"]


def test_options_are_in_the_order_in_which_they_were_asked_whatever_that_of_the_answer(tmp_path):
    # A service that always takes the option shown first, and lists the others from the last to the second.
    names, rows = ["a", "b", "c"], []
    for n, template in product(range(6), range(3)):
        first, second, third = shown = [*names[template:], *names[:template]]
        question = {"type": "choice", "instructions": "Which?", "criteria": dict.fromkeys(shown)}
        reply = {"q": {"type": "choice", "probabilities": {first: 0.6, third: 0.3, second: 0.1}}}
        asked = {"request": {"state": f"T{n}", "questions": {"q": question}}, "response": {"answers": reply}}
        rows.append(asked | {"gold": "a", "template": template} | ({"part": "order"} if template else {}))
    rows[0]["response"]["answers"]["q"]["probabilities"]["b"] = 0.1000001
    command("import", write(tmp_path / "log.jsonl", rows), "--out", tmp_path / "run")
    notes = read_run(tmp_path / "run").prompts.notes[
        "q"
    ]  # of the unchanged form, without the twelve rows of the others
    assert "1 of 6 rows have sums other than 1 and are normalised" in notes
    metrics = pl.read_parquet(tmp_path / "run" / "tables" / "metrics.parquet")
    assert metrics.filter(metric="order_first", dataset="q")["value"].to_list() == [1.0]
    # A log of another program may number its changes otherwise: they are no rotations then.
    write(tmp_path / "log.jsonl", [row | {"template": 7} for row in rows])
    command("import", tmp_path / "log.jsonl", "--out", tmp_path / "more")
    more = pl.read_parquet(tmp_path / "more" / "tables" / "metrics.parquet")
    assert {*more.filter(part="order")["metric"]} == {"order_flips", "order_distance", "order_accuracy"}


def test_logs_of_one_name_in_two_folders_are_about_other_inputs(tmp_path):
    paths = []
    for folder, question in (("monday", "refund"), ("tuesday", "angry")):
        (tmp_path / folder).mkdir()
        asked = {"state": f"{folder}", "questions": {question: {"type": "noul", "instructions": "?"}}}
        rows = [
            {"id": n, "request": asked, "response": {"answers": {question: {"noul": 0.25 + n / 10}}}, "gold": n > 2}
            for n in range(6)
        ]
        paths.append(write(tmp_path / folder / "decisions.jsonl", rows))
    command("import", *paths, "--out", tmp_path / "both")
    assert pl.read_parquet(tmp_path / "both" / "tables" / "graded.parquet").is_empty()
    predictions = pl.read_parquet(tmp_path / "both" / "tables" / "predictions.parquet")
    assert {rows["query_id"].n_unique() for _, rows in predictions.group_by("dataset")} == {6}
    assert f"imported from {paths[1]}" in read_run(tmp_path / "both").prompts.notes["angry"]
