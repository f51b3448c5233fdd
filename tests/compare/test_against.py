"""`evaluator compare --against`: recovery, flips, KL and Holm over many runs."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import binomtest, entropy

from evaluator.compare.differences import _moments, _recovery
from evaluator.compare.schema import AGAINST
from tests.command_line import command
from tests.compare.run_folders import diagnostics, predictions, put_table, write_run


def made(folder: Path, skills: dict[str, float]) -> dict[str, pl.DataFrame]:
    answers = {}
    for seed, (name, skill) in enumerate(skills.items()):
        answers[name] = predictions(skill, seed=seed, methods=["vanilla"], definitions=["paper"])
        write_run(folder / name, f"acme/{name}", answers[name])
    return answers


def test_recovery_flips_and_kl_are_those_of_the_answers_and_holm_is_over_the_runs(tmp_path: Path) -> None:
    answers = made(tmp_path, {"base": 1.0, "a": 0.2, "b": 0.4, "c": 3.0})
    runs = [tmp_path / name for name in "abc"]
    told = command("compare", *runs, "--against", tmp_path / "base", "--out", tmp_path / "out")
    table = pl.read_parquet(tmp_path / "out" / "tables" / "against.parquet")
    assert table.schema == AGAINST
    assert table["model"].unique().sort().to_list() == ["acme/a", "acme/b", "acme/c"]
    differences = pl.read_parquet(tmp_path / "out" / "tables" / "differences.parquet")
    between = differences.filter(pl.col("model_a") != pl.col("model_b"))
    assert {*between["model_b"]} == {"acme/base"}
    assert {*table["n_tests"]} == {3 * 5}  # runs; datasets and their mean
    for name in "abc":
        run, base = (answers[each].filter(dataset="abc").sort("position") for each in (name, "base"))
        right, before = (each["pred"] == each["gold"] for each in (run, base))
        (row,) = table.filter(model=f"acme/{name}", dataset="abc").to_dicts()
        assert row["recovery"] == pytest.approx(100 * right.mean() / before.mean())
        assert (row["n_lost"], row["n_gained"]) == ((before & ~right).sum(), (right & ~before).sum())
        assert row["n_changed"] == (run["pred"] != base["pred"]).sum()
        p, q = (np.array(each["label_probs"].to_list()) for each in (base, run))
        assert row["kl_nats"] == pytest.approx(entropy(p, q, axis=1).mean())
        assert row["recovery_low"] < row["recovery"] < row["recovery_high"]
        (mean,) = table.filter(model=f"acme/{name}", dataset="mean").to_dicts()
        line = next(line for line in told.splitlines() if line.startswith(f"acme/{name}, normal"))
        assert f"{mean['recovery']:.1f}% of the accuracy of base" in line
        assert f"{mean['n_lost']} answers lost, {mean['n_gained']} gained" in line
        assert f">{mean['recovery']:.1f}" in (tmp_path / "out" / "compare.html").read_text()
    inside = (table["recovery_low"] <= 100) & (table["recovery_high"] >= 100)
    assert (inside == (table["p_value"] > 0.05)).all()


def test_a_run_that_answers_as_its_base_is_a_note_and_has_100_percent(tmp_path: Path) -> None:
    answers = made(tmp_path, {"base": 1.0})["base"]
    write_run(tmp_path / "same", "acme/other", answers)
    told = command("compare", tmp_path / "same", "--against", tmp_path / "base", "--out", tmp_path / "out")
    assert "have the same scores to the last digit" in told
    (row,) = pl.read_parquet(tmp_path / "out" / "tables" / "against.parquet").filter(dataset="mean").to_dicts()
    assert (row["recovery"], row["n_lost"], row["n_changed"], row["kl_nats"]) == (100, 0, 0, 0)
    assert row["recovery_low"] < 100 < row["recovery_high"]


def test_the_interval_of_recovery_holds_the_true_ratio() -> None:
    rng, held = np.random.default_rng(3), 0
    for _ in range(400):
        easy = rng.random(150)
        rows = pl.DataFrame({"query_id": np.arange(150), "correct": easy < 0.72, "correct_b": easy < 0.8})
        flipped = rng.random(150) < 0.1
        rows = rows.with_columns(correct=pl.when(pl.Series(flipped)).then(rng.random(150) < 0.72).otherwise("correct"))
        _, (low, high) = _recovery(*_moments(rows.cast({"correct": float, "correct_b": float}), 2), n_datasets=1)
        held += low <= 0.9 <= high
    assert binomtest(held, 400, 0.95).pvalue > 0.01 or held / 400 > 0.95


def test_a_base_among_the_runs_is_refused(tmp_path: Path) -> None:
    made(tmp_path, {"base": 1.0})
    told = command("compare", tmp_path / "base", "--against", tmp_path / "base", "--out", tmp_path / "out", exits=2)
    assert "Name each once" in told


def measured(folder: Path, **of: str) -> float:
    rows = pl.read_parquet(folder / "tables" / "metrics.parquet").filter(metric="accuracy", definition="paper", **of)
    return rows["value"].mean()


@pytest.mark.parametrize(("run", "base"), [("half", "whole"), ("whole", "half")])
def test_runs_of_other_numbers_of_sets_are_compared_by_all_of_their_answers(
    tmp_path: Path, run: str, base: str
) -> None:
    answers = made(tmp_path, {"whole": 1.0, "other": 0.4})
    write_run(tmp_path / "half", "acme/half", answers["other"].filter(demonstration_set=0))
    told = command("compare", tmp_path / run, "--against", tmp_path / base, "--out", tmp_path / "out")
    table = pl.read_parquet(tmp_path / "out" / "tables" / "against.parquet")
    for dataset in ("abc", "mean"):
        of = {} if dataset == "mean" else {"dataset": dataset}
        (row,) = table.filter(dataset=dataset).to_dicts()
        accuracies = [measured(tmp_path / name, **of) for name in (run, base)]
        assert row["recovery"] == pytest.approx(100 * accuracies[0] / accuracies[1])
        assert row["difference"] == pytest.approx(accuracies[0] - accuracies[1])
        # Their prompts are not in pairs.
        assert {row[name] for name in ("n_lost", "n_gained", "n_changed", "kl_nats")} == {None}
    assert "answers lost" not in told


def test_means_are_over_the_datasets_that_all_runs_have(tmp_path: Path) -> None:
    made(tmp_path, {"base": 1.0, "a": 0.2})
    some = predictions(0.4, seed=5, methods=["vanilla"], definitions=["paper"], datasets=["abc", "zoo"])
    write_run(tmp_path / "some", "acme/some", some)
    runs = (tmp_path / "a", tmp_path / "some")
    command("compare", *runs, "--against", tmp_path / "base", "--out", tmp_path / "out")
    table = pl.read_parquet(tmp_path / "out" / "tables" / "against.parquet").filter(model="acme/a")
    assert {*table["dataset"]} == {"abc", "zoo", "mean"}
    a, base = (sum(measured(tmp_path / name, dataset=each) for each in ("abc", "zoo")) / 2 for name in ("a", "base"))
    (mean,) = table.filter(dataset="mean").to_dicts()
    assert (mean["recovery"], mean["difference"]) == (pytest.approx(100 * a / base), pytest.approx(a - base))
    counts = table.select("dataset", "n_lost", "n_queries").rows_by_key("dataset", named=True, unique=True)
    assert mean["n_lost"] == counts["abc"]["n_lost"] + counts["zoo"]["n_lost"]


def test_runs_without_accuracies_have_no_recovery(tmp_path: Path) -> None:
    made(tmp_path, {"base": 1.0, "a": 0.2})
    for name in ("base", "a"):
        put_table(tmp_path / name, "metrics", diagnostics({"staicc-bias / contextual": [0.1, 0.2, 0.3, 0.4]}))
    command("compare", tmp_path / "a", "--against", tmp_path / "base", "--out", tmp_path / "out")
    assert pl.read_parquet(tmp_path / "out" / "tables" / "against.parquet").is_empty()
    assert pl.read_parquet(tmp_path / "out" / "tables" / "comparison.parquet").height > 0


def test_labels_and_refusals_have_no_divergence_and_no_probability_of_the_true_label(tmp_path: Path) -> None:
    for model, right in (("a", 0.75), ("b", 0.625)):
        gold = ["yes", "no"] * 6
        labels = pl.DataFrame({"gold": gold, "pred": ["no", *gold[1:]]})
        labels.write_csv(tmp_path / "labels.csv")
        command("import", tmp_path / "labels.csv", "--labels", "no,yes", "--model", model, "--out", tmp_path / model)
        asked = [{"state": f"T{n}", "questions": {"q": {"type": "noul"}}} for n in range(12)]
        replies = [None, *({"answers": {"q": {"noul": right if true == "yes" else 1 - right}}} for true in gold[1:])]
        rows = zip(asked, replies, gold, strict=True)
        log = "".join(f"{json.dumps({'request': of, 'response': reply, 'gold': true})}\n" for of, reply, true in rows)
        (tmp_path / "log.jsonl").write_text(log)
        command("import", tmp_path / "log.jsonl", "--model", model, "--out", tmp_path / f"log {model}")
    told = command("compare", tmp_path / "a", "--against", tmp_path / "b", "--out", tmp_path / "of labels")
    # Both models gave the same labels, which is no sign that they are one model.
    assert "KL" not in told
    assert "same scores" not in told
    table = pl.read_parquet(tmp_path / "of labels" / "tables" / "against.parquet")
    assert {*table["n_changed"]} == {0}
    assert {*table["kl_nats"]} == {None}
    command("compare", tmp_path / "log a", "--against", tmp_path / "log b", "--out", tmp_path / "of logs")
    tables = tmp_path / "of logs" / "tables"
    by_part = dict(
        pl.read_parquet(tables / "against.parquet").filter(dataset="q").select("part", "kl_nats").iter_rows()
    )
    assert by_part == {
        "imported": pytest.approx(entropy([0.625, 0.375], [0.75, 0.25])),
        "refusals-wrong": None,
    }
    of_probability = pl.read_parquet(tables / "differences.parquet").filter(metric="true_label_probability")
    assert {*of_probability["part"]} == {"imported"}
