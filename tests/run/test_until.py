"""Runs that stop as soon as their answers decide: decisions, what is scored, resumption, and what other outputs say."""

import math
import re
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from evaluator.config import DataOptions, ModelConfig, RunConfig, TableColumns, UntilOptions
from evaluator.errors import ConfigError
from evaluator.progress import finish
from evaluator.run import pipeline, until
from evaluator.run.folder import BuiltFolder, read_scores
from evaluator.run.folders import read_run
from evaluator.run.until import block_size
from evaluator.statistics.betting import Planned, mean_interval
from tests.command_line import command, command_outputs

pytestmark = pytest.mark.usefixtures("without_pages")

FAKE = ("--model", "fake", "--engine", "fake", "--shots", 0)
N_ROWS, N = 320, 287  # rows, and those of them that are queries: a tenth of each label are demonstrations


def written(rows, path):
    pl.DataFrame(rows, schema=["id", "text", "label"], orient="row").write_csv(path)
    return path


def classify(path, out, *words, exits=0):
    outputs = command_outputs("run", "classify", "--data", path, *FAKE, "--out", out, *words, exits=exits)
    return outputs.err if exits else outputs.out


def table(out):
    return pl.read_parquet(out / "tables" / "until.parquet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table with the fake engine's answers as labels, and a run with another prompt, whose answers are random."""
    out = tmp_path_factory.mktemp("until")
    rows = [(n, f"text {n} of {n * n}", "ab"[n % 2]) for n in range(N_ROWS)]
    classify(written(rows, out / "first.csv"), out / "first")
    prompts = BuiltFolder(out / "first").built.store.requests_with_prompts().select("prompt_id", "prompt").collect()
    answers = pl.read_parquet(out / "first" / "tables" / "predictions.parquet").select("position", "query_id", "pred")
    requests = BuiltFolder(out / "first").built.store.requests().select("position", "prompt_id").collect()
    texts = requests.join(prompts.unique(), on="prompt_id").join(answers, on="position")
    label = {
        int(re.search(r"text (\d+) of", text)[1]): "ab"[pred] for text, pred in texts.select("prompt", "pred").rows()
    }
    written([(n, text, label.get(n, gold)) for n, text, gold in rows], out / "t.csv")
    classify(out / "t.csv", out / "base", "--instruction", "Guess.")
    return out


@pytest.mark.usefixtures("pages")
def test_a_run_stops_when_it_is_better_and_every_output_says_so(folder, tmp_path):
    out = tmp_path / "out"
    shown = classify(folder / "t.csv", out, "--until", "better", "--against", folder / "base")
    row = table(out).row(0, named=True)
    assert (row["decision"], row["n_queries"]) == ("better", N)
    assert row["n_scored"] == row["saving"] * -N + N <= N / 4
    assert row["n_scored"] % block_size(N) == 0
    assert read_scores(out).collect()["prompt_id"].n_unique() == row["n_scored"]  # nothing else was asked
    base = pl.read_parquet(folder / "base" / "tables" / "predictions.parquet")
    truth = 1 - (base["pred"] == base["gold"]).mean()
    assert 0 < row["low"] <= truth <= row["high"]
    sentence = f"t: better than base, after {row['n_scored']} of {N} queries ({row['saving']:.0%} saved)"
    assert sentence in shown
    page = (out / "report.html").read_text()
    assert sentence in page
    for text in (shown, page):
        assert "A sequential test chose the number of queries." in text
    metrics = pl.read_parquet(out / "tables" / "metrics.parquet")
    assert metrics["ci_given"].str.contains("where a sequential test stopped").all()
    for words in (("compare", out, folder / "base", "--out", tmp_path / "c"), ("export", out, "--format", "csv")):
        assert "stopped early" in command(*words, exits=2)
    assert "stopped early" in command("threshold", out, exits=2)
    command("verify", out)


def test_the_decision_is_the_same_when_it_is_repeated_interrupted_or_all_answers_are_there(folder, tmp_path):
    words = ("--until", "better", "--against", folder / "base")
    classify(folder / "t.csv", tmp_path / "a", *words)
    expected = table(tmp_path / "a")
    classify(folder / "t.csv", tmp_path / "a", *words)
    command("measure", tmp_path / "a")
    assert table(tmp_path / "a").equals(expected)
    classify(folder / "t.csv", tmp_path / "all")
    classify(folder / "t.csv", tmp_path / "b", *words, "--store", tmp_path / "all")
    assert table(tmp_path / "b").equals(expected)
    config = RunConfig(
        suites=("staicc-normal",),
        data=DataOptions(paths=(folder / "t.csv",), columns=TableColumns()),
        n_shots=0,
        definitions=("paper",),
        until=UntilOptions(goal="better", against=folder / "base"),
    )
    stages = pipeline.run(config, ModelConfig(model="fake", engine="fake"), tmp_path / "c")
    next(progress for progress in stages if progress.stage == "Scoring" and progress.done)
    stages.close()
    assert read_run(tmp_path / "c").measures is None
    finish(pipeline.run(config, ModelConfig(model="fake", engine="fake"), tmp_path / "c"))
    assert table(tmp_path / "c").equals(expected)
    # Without --until the same folder gets the other answers, and is a run like any other.
    classify(folder / "t.csv", tmp_path / "a")
    assert read_run(tmp_path / "a").measures.decisions == []
    assert "until it is shown" in classify(folder / "t.csv", tmp_path / "a", *words, exits=2)


def test_worse_equivalent_certified_refuted_and_undecided(folder, tmp_path):
    def decided(name, *words, said):
        shown = classify(folder / "t.csv", tmp_path / name, *words)
        assert f"t: {said}, after " in shown
        return table(tmp_path / name)["decision"].item()

    better = folder / "better"
    classify(folder / "t.csv", better)  # right throughout
    guess = ("--instruction", "Guess.")
    assert decided("worse", *guess, "--until", "better", "--against", better, said="worse than better") == "worse"
    within = ("--until", "equivalent", "--margin")
    base = ("--against", folder / "base")
    said = "equivalent to base within 0.3"
    assert decided("equal", "--instruction", "Think.", *within, "0.3", *base, said=said) == "equivalent"
    assert decided("beyond", *within, "0.1", *base, said="better than base by more than 0.1") == "better"
    assert decided("same", "--until", "better", "--against", better, said="undecided") == "undecided"
    assert table(tmp_path / "same").row(0)[2:5] == (N, N, 0.0)
    assert read_run(tmp_path / "same").measures.is_stopped is False
    certify = ("--until", "certified", "--threshold", "0.01", "--target")
    used = "accuracy of answers from 0.01 on is"
    assert decided("certified", *certify, "0.8", said=f"{used} at least 0.8") == "certified"
    assert decided("refuted", *guess, *certify, "0.8", said=f"{used} below 0.8") == "refuted"


def test_what_cannot_stop_early_is_refused_before_anything_is_scored(folder, tmp_path):
    def refused(*words, path=folder / "t.csv"):
        return classify(path, tmp_path / "out", *words, exits=2)

    against = ("--against", folder / "base")
    assert "--until better takes --against, got none" in refused("--until", "better")
    assert "takes --against and --margin" in refused("--until", "equivalent", *against)
    assert "without --until takes no further option" in refused(*against)
    assert "--margin must be above 0" in refused("--until", "equivalent", *against, "--margin", "1.5")
    until = ("--until", "better", *against)
    assert "leave out --methods" in refused(*until, "--methods", "vanilla,batch_calibration")
    assert "runs that stop early are not compared" in refused(*until, "--model", "other")
    other = written([(n, f"other {n}", "ab"[n % 2]) for n in range(N_ROWS)], tmp_path / "t.csv")
    assert "did not answer the queries of t. Give both the same --data and --queries" in refused(*until, path=other)
    words = ("run", "prompt-search", "--data", folder / "t.csv", "--model", "fake", "--engine", "fake", *until)
    assert "takes one suite of classification" in command(*words, "--out", tmp_path / "s", exits=2)
    assert not (tmp_path / "out" / "scores").exists()


def test_a_form_of_typed_questions_is_compared_with_another_of_the_base(tmp_path):
    written([(n, f"text {n} of {n * n}", "ab"[n % 2]) for n in range(100)], tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text(
        '[kind]\ntype = "choice"\ninstructions = "Which?"\noptions = ["a", "b"]\ngold = "label"\n'
    )
    words = ("--data", tmp_path / "t.csv", "--questions", tmp_path / "q.toml", *FAKE)
    command("run", "decide", *words, "--out", tmp_path / "letters")
    names = ("--form", "names", "--out", tmp_path / "names")
    command(
        "run", "decide", *words, *names, "--until", "equivalent", "--margin", "0.9", "--against", tmp_path / "letters"
    )
    row = table(tmp_path / "names").row(0, named=True)
    assert (row["decision"], row["n_queries"]) == ("equivalent", 100)
    base = pl.read_parquet(tmp_path / "letters" / "tables" / "predictions.parquet").filter(part="letters")
    own = pl.read_parquet(tmp_path / "names" / "tables" / "predictions.parquet").filter(part="names")
    both = own.join(base, on="query_id", suffix="_base")
    assert both.height == row["n_scored"] < 100
    gain = (both["pred"] == both["gold"]).mean() - (both["pred_base"] == both["gold_base"]).mean()
    assert row["value"] == pytest.approx(gain)


def test_questions_without_true_options_are_asked_whole_and_decide_nothing(tmp_path):
    written([(n, f"text {n} of {n * n}", "ab"[n % 2]) for n in range(100)], tmp_path / "t.csv")
    unlabelled = '[{}]\ntype = "choice"\ninstructions = "{}?"\noptions = ["a", "b"]\n'
    (tmp_path / "q.toml").write_text(unlabelled.format("other", "Whose"))
    words = ("run", "decide", "--data", tmp_path / "t.csv", "--questions", tmp_path / "q.toml", *FAKE)
    until = (
        "--parts",
        "letters",
        "--until",
        "certified",
        "--threshold",
        0.4,
        "--target",
        0.99,
        "--out",
        tmp_path / "run",
    )
    assert "--until decides by true labels" in command(*words, *until, exits=2)
    (tmp_path / "q.toml").write_text(
        unlabelled.format("other", "Whose") + unlabelled.format("kind", "Which") + 'gold = "label"\n'
    )
    command(*words, *until, "--force")
    assert table(tmp_path / "run").select("dataset", "decision").rows() == [("kind", "refuted")]
    asked = pl.read_parquet(tmp_path / "run" / "tables" / "predictions.parquet").filter(dataset="other")
    assert asked.height == 100


CERTIFIED = UntilOptions(goal="certified", threshold=0.5, target=0.9)


@pytest.mark.parametrize(("capital", "decision"), [(79.99, "undecided"), (80.01, "better")])
def test_two_directions_of_two_datasets_share_the_level(monkeypatch, capital, decision):
    # Ville's inequality: each of four capitals reaches 4 / .05 with a probability of .05 / 4 at most.
    store = SimpleNamespace(requests=lambda: pl.LazyFrame({"dataset": ["a", "b"]}))
    run = SimpleNamespace(store=store, config=SimpleNamespace(until=UntilOptions()))
    monkeypatch.setattr(until, "_evidence", lambda *_: {"worse": 0.0, "better": math.log(capital)})
    rows = pl.DataFrame({"block": [0, 1], "correct": [1.0, 1.0]})
    assert until._decision(run, rows, 0) == decision


def test_the_last_block_can_certify_answers_and_not_compare_runs(monkeypatch):
    store = SimpleNamespace(requests=lambda: pl.LazyFrame({"dataset": ["a"]}))
    monkeypatch.setattr(until, "_evidence", lambda *_: {"certified": 9.0})
    rows = pl.DataFrame({"block": [0, 1], "correct": [1.0, 1.0]})
    for options, decision in ((UntilOptions(), "undecided"), (CERTIFIED, "certified")):
        run = SimpleNamespace(store=store, config=SimpleNamespace(until=options))
        assert until._decision(run, rows, 1) == decision


def test_equivalent_needs_evidence_on_both_sides_from_the_blocks_so_far(monkeypatch):
    # Accuracy of the base 1/2: a bet above and one below, at 0.6 and at 0.4.
    capitals = {0.6: (1.0, 9.0), 0.4: (3.0, 2.0)}
    monkeypatch.setattr(until, "log_capitals", lambda _, mean, __: [np.log([one]) for one in capitals[round(mean, 9)]])
    rows = pl.DataFrame({"correct": [1.0, 0.0, 1.0], "known": [1.0, 0.5, 0.0], "block": [0, 1, 2]})
    found = until._evidence(SimpleNamespace(target=None, threshold=None, margin=0.1), rows)
    assert found == pytest.approx({"better": 0.0, "worse": math.log(2), "equivalent": math.log(3)})
    assert until._scored_up_to(rows, 1)["correct"].to_list() == [1.0, 0.0, None]


@pytest.mark.parametrize("asked", [{"b": "1"}, {"a": "2"}])
def test_a_base_without_the_dataset_or_with_other_queries_is_refused(monkeypatch, asked):
    base = SimpleNamespace(prompts=SimpleNamespace(query_fingerprints={"a": "1"}))
    monkeypatch.setattr(until, "RunFolder", lambda _: SimpleNamespace(measured=base))
    config = SimpleNamespace(until=SimpleNamespace(against="base"))
    until.check_base(config, base.prompts)
    with pytest.raises(ConfigError, match="base did not answer the queries of"):
        until.check_base(config, SimpleNamespace(query_fingerprints=asked))


def test_intervals_of_two_datasets_share_the_level_and_p_is_of_both_directions(monkeypatch):
    monkeypatch.setattr(until, "log_capitals", lambda *_: (np.array([0.0, math.log(20)]), np.array([0.0])))
    four = {"correct": [1.0, 0.0, 1.0, None], "known": [1.0, 0.0, 0.0, 1.0], "probability": [0.5] * 4}
    rows = pl.DataFrame({name: values * 100 for name, values in four.items()})
    found = until._estimate(UntilOptions(), rows, 2)
    low, high = mean_interval(np.tile([1.0, 0, 1], 100), Planned(400, known=np.tile([1.0, 0, 0, 1], 100)), 0.025)
    assert (found["value"], found["p_new"]) == (pytest.approx(1 / 3), pytest.approx(2 / 20))
    assert (found["low"], found["high"]) == (pytest.approx(low - 0.5), pytest.approx(high - 0.5))


def test_a_base_with_other_true_labels_of_the_same_queries_is_refused(tmp_path):
    rows = [(n, f"text {n}", "ab"[n % 2]) for n in range(80)]
    training = ("--training-data", written([(n, f"shown {n}", "ab"[n % 2]) for n in range(20)], tmp_path / "train.csv"))
    classify(written(rows, tmp_path / "t.csv"), tmp_path / "base", *training)
    corrected = [(n, text, "a" if n < 20 else label) for n, text, label in rows]
    words = (*training, "--instruction", "Think.", "--until", "better", "--against", tmp_path / "base")
    said = classify(written(corrected, tmp_path / "t.csv"), tmp_path / "out", *words, exits=2)
    assert "has other true labels of the same queries" in said


def test_a_run_without_a_part_of_classification_cannot_stop_early(tmp_path):
    written([(n, f"text {n}", "ab"[n % 2]) for n in range(40)], tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text(
        '[kind]\ntype = "choice"\ninstructions = "Which?"\noptions = ["a", "b"]\ngold = "label"\n'
    )
    words = ("run", "decide", "--data", tmp_path / "t.csv", "--questions", tmp_path / "q.toml", *FAKE)
    until = ("--parts", "order", "--until", "certified", "--threshold", 0.4, "--target", 0.9)
    said = command(*words, *until, "--out", tmp_path / "out", exits=2)
    assert "--until takes one suite of classification, such as classify; got decide, order." in said


def test_an_end_that_is_zero_but_for_rounding_has_no_sign(folder):
    counts = {"dataset": "t", "decision": "undecided", "n_scored": 36, "n_queries": 36, "saving": 0.0}
    rows = pl.DataFrame([counts | {"value": 0.0, "low": -2.8e-11, "high": 2.8e-11, "p_new": 1.0}])
    [sentence] = until.decisions(rows, UntilOptions(goal="better", against=folder / "base"))
    assert "queries 0.000 to 0.000 with 95%" in sentence
