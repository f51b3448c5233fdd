"""Decisions of `evaluator gate`, on hand-made runs and as a pipeline types it."""

import json
import math
import re
import shlex
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

from evaluator.compare.differences import ADJUSTED
from evaluator.compare.gate import Policy, queries_needed, read_policy
from evaluator.errors import ConfigError
from evaluator.schemas import PREDICTIONS
from evaluator.statistics.paired import adjusted_estimate, equivalence_test, plain_estimate, worse_test
from tests.command_line import command, command_outputs
from tests.compare.run_folders import predictions, write_run

PAGE = Path(__file__).parents[2] / "docs" / "gate.md"
N = 400
SIZES = {"few": 10, "many": 1_000}  # queries of other datasets


def run(folder: Path, name: str, parts: tuple[str, ...] = ("normal",), **n_wrong: int) -> Path:
    """A run with that many wrong answers on each dataset, the first queries; the others are right.

    In every further part the first quarter is wrong.
    """
    rows = []
    for part, (dataset, wrong_in_first) in product(parts, n_wrong.items()):
        wrong = wrong_in_first if part == parts[0] else N // 4
        for query in range(SIZES.get(dataset, N)):
            gold, pred = query % 2, (query % 2) ^ (query < wrong)
            rows += [
                {"suite": "staicc-normal", "part": part, "dataset": dataset, "method": "vanilla"}
                | {"definition": definition, "position": query, "query_id": query, "demonstration_set": 0, "n_shots": 2}
                | {"template": 0, "noise_rate": 0.0, "n_wrong_labels": 0, "prompt_id": f"{part} {dataset} {query}"}
                | {"gold": gold, "pred": pred, "label_names": ["no", "yes"]}
                | {"label_probs": [0.8, 0.2] if pred == 0 else [0.2, 0.8]}
                for definition in ("paper", "released")
            ]
    return write_run(folder / name, f"acme/{name}", pl.DataFrame(rows, schema=PREDICTIONS))


def policy(folder: Path, text: str = "margin = 0.05") -> Path:
    path = folder / "policy.toml"
    path.write_text(text)
    return path


def decided(folder: Path, base: Path, exits: int, text: str = "margin = 0.05", name: str = "new"):
    words = ("gate", folder / name, "--against", base, "--policy", policy(folder, text), "--json")
    return json.loads(command_outputs(*words, exits=exits).out)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing may write to it."""
    return run(tmp_path_factory.mktemp("gate"), "base", mid=100, odd=100)


def test_equal_answers_are_a_go_though_the_models_are_others(tmp_path, base):
    run(tmp_path, "new", mid=100, odd=100)
    found = decided(tmp_path, base, 0)
    assert found["outcome"] == "GO"
    assert "a loss of 0.05 or more is ruled out" in found["reason"]
    (check,) = found["checks"]
    assert (check["dataset"], check["difference"], check["n_queries"]) == ("mean", 0.0, 800)


@pytest.mark.parametrize(("part", "outcome", "exits"), [("normal", "NO-GO", 1), ("other", "GO", 0)])
def test_a_policy_that_names_a_part_decides_on_that_part(tmp_path, part, outcome, exits):
    run(tmp_path, "first", ("normal", "other"), mid=100, odd=100)
    run(tmp_path, "new", ("normal", "other"), mid=160, odd=160)
    found = decided(tmp_path, tmp_path / "first", exits, f'margin = 0.05\npart = "{part}"')
    assert found["outcome"] == outcome
    (check,) = found["checks"]
    assert (check["part"], check["difference"]) == (part, pytest.approx(-0.15 if part == "normal" else 0.0))


def test_a_loss_of_a_tenth_is_a_no_go_and_its_number_is_exact(tmp_path, base):
    run(tmp_path, "new", mid=140, odd=140)
    found = decided(tmp_path, base, 1)
    assert found["outcome"] == "NO-GO"
    assert found["checks"][0]["difference"] == pytest.approx(-0.1)  # 40 of 400 on both
    assert "real" in found["reason"]


def test_a_loss_at_the_margin_is_inconclusive_and_says_how_many_queries_would_decide(tmp_path, base):
    run(tmp_path, "new", mid=116, odd=116)
    found = decided(tmp_path, base, 2)
    assert found["outcome"] == "INCONCLUSIVE"
    assert found["checks"][0]["queries_needed"] > 800
    assert f"about {found['checks'][0]['queries_needed']:,} queries would decide" in found["reason"]


@pytest.mark.parametrize(
    ("n", "worse", "better", "margin"), [(128, 0, 0, 0.01), (200, 2, 1, 0.02), (256, 9, 6, 0.03), (100, 30, 5, 0.15)]
)
def test_as_many_queries_as_it_says_do_decide(n: int, worse: int, better: int, margin: float) -> None:
    d = np.repeat([-1.0, 1.0, 0.0], [worse, better, n - worse - better])
    adjusted = dict(zip(ADJUSTED, adjusted_estimate(d), strict=True))
    row = adjusted | {
        "difference": d.mean(),
        "n_queries": n,
        "n_pairs": n,
        "standard_error": plain_estimate(d).standard_error,
    }
    needed = queries_needed(Policy(margin=margin), row)
    rng, side = np.random.default_rng(1), equivalence_test if d.mean() > -margin else worse_test

    def power(size: int) -> float:
        tests = [side(adjusted_estimate(rng.choice(d, size)), margin, size) for _ in range(600)]
        return np.mean([np.atleast_1d(test)[0] <= 0.05 for test in tests])

    # Within 20% of the number that has a power of 80%, and a standard error of .016.
    assert power(math.ceil(1.2 * needed)) > 0.77
    assert power(math.floor(0.8 * needed)) < 0.83


def test_one_more_query_is_the_least_that_it_says() -> None:
    d = np.repeat([-1.0, 1.0, 0.0], [20, 20, 960])  # a standard error of .0063, and a margin that is 79 of these away
    row = dict(zip(ADJUSTED, adjusted_estimate(d), strict=True))
    row |= {
        "difference": d.mean(),
        "n_queries": 1000,
        "n_pairs": 1000,
        "standard_error": plain_estimate(d).standard_error,
    }
    assert queries_needed(Policy(margin=0.5), row) == 1001


@pytest.mark.parametrize("difference", [-1.0, 0.0, 1.0])
def test_a_single_query_says_how_many_would_decide(difference: float) -> None:
    d = np.array([difference])
    row = dict(zip(ADJUSTED, adjusted_estimate(d), strict=True))
    row |= {"difference": difference, "n_queries": 1, "n_pairs": 1, "standard_error": plain_estimate(d).standard_error}
    needed = queries_needed(Policy(margin=0.05), row)
    assert needed is not None
    side = equivalence_test if difference > -0.05 else worse_test
    decides = [
        np.atleast_1d(side(adjusted_estimate(np.repeat(d, n)), 0.05, n))[0] <= 0.05 for n in (needed // 3, 2 * needed)
    ]
    assert decides == [False, True]


def test_a_mean_over_a_small_and_a_large_dataset_takes_the_evidence_of_the_small_one(tmp_path):
    # A run that is worse by .2 on the small dataset alone is worse by the margin in the mean, and differs on none of
    # the ten queries with a probability of .8^10 = .107: no difference at all cannot be a GO at .05.
    for name in ("old", "new"):
        run(tmp_path, name, few=3, many=300)
    found = decided(tmp_path, tmp_path / "old", 2, "margin = 0.1")
    (check,) = found["checks"]
    assert (check["difference"], check["n_queries"]) == (0.0, 1_010)
    assert check["p_tolerable"] > 0.107
    assert check["queries_needed"] > 1_010
    command("compare", tmp_path / "old", tmp_path / "new", "--margin", 0.1, "--out", tmp_path / "out")
    shown = pl.read_parquet(tmp_path / "out" / "tables" / "equivalence.parquet").filter(definition="paper")
    assert {*shown.select("dataset", "shown").rows()} == {
        ("few", "not shown"),
        ("many", "equivalent"),
        ("mean", "not shown"),
    }


def test_one_bad_dataset_is_a_no_go_and_is_named(tmp_path, base):
    run(tmp_path, "new", mid=100, odd=160)
    found = decided(tmp_path, base, 1, 'margin = 0.05\ndatasets = ["mid", "odd"]')
    assert {check["dataset"]: check["outcome"] for check in found["checks"]} == {"mid": "GO", "odd": "NO-GO"}
    assert "odd: a difference of -0.1500" in found["reason"]
    assert "1 of 2 checks are NO-GO" in found["reason"]


def test_a_mean_over_a_single_dataset_is_no_second_test_of_it(tmp_path):
    run(tmp_path, "old", mid=100)
    run(tmp_path, "new", mid=132)  # p = 0.03, and two tests would make it 0.06
    found = decided(tmp_path, tmp_path / "old", 1, 'margin = 0.05\ndatasets = ["mean", "mid"]')
    assert [check["dataset"] for check in found["checks"]] == ["mean", "mid"]
    for check in found["checks"]:
        assert check["p_intolerable_holm"] == check["p_intolerable"] == found["checks"][0]["p_intolerable"]


def test_a_real_loss_can_be_tolerable(tmp_path, base):
    run(tmp_path, "new", mid=108, odd=108)
    found = decided(tmp_path, base, 0, "margin = 0.1")
    assert "-0.0200, real" in found["reason"]


def test_true_label_probability_is_a_metric_of_a_policy(tmp_path, base):
    run(tmp_path, "new", mid=100, odd=100)
    found = decided(tmp_path, base, 0, 'metric = "true_label_probability"\nmargin = 0.05')
    assert found["policy"]["metric"] == "true_label_probability"


def test_junit_has_a_case_for_each_check(tmp_path, base):
    run(tmp_path, "new", mid=100, odd=160)
    words = ("--policy", policy(tmp_path, 'margin = 0.05\ndatasets = ["mid", "odd"]'), "--junit", tmp_path / "gate.xml")
    said = command("gate", tmp_path / "new", "--against", base, *words, exits=1)
    root = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert {key: root.get(key) for key in ("tests", "failures", "errors")} == {
        "tests": "2",
        "failures": "1",
        "errors": "0",
    }
    failure = root.find("testsuite/testcase[@name='odd, accuracy']/failure")
    assert failure.get("type") == "NO-GO"
    assert failure.get("message") in said
    assert root.find("testsuite/testcase[@name='mid, accuracy']/system-out") is not None


def test_the_same_model_may_be_gated_against_itself_and_the_same_run_may_not(tmp_path, base):
    other = run(tmp_path, "other", mid=100, odd=100)
    (other / "run.json").write_text((base / "run.json").read_text())
    words = ("--against", base, "--policy", policy(tmp_path))
    assert "are the same run" in command("gate", base, *words, exits=3)
    assert command("gate", other, *words).startswith(("GO", "Reading"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alpha = 0.05", "the key `margin` is missing"),
        ("margin = 0.02\ndataset = ['mid']", "Did you mean 'datasets'"),
        ("margin = 2", "margin must be between 0 and 1"),
        ("margin = 0.02\nmetric = 'f1'", "metric must be accuracy or true_label_probability"),
        ("margin = 0.02\nalpha = 0.5", "alpha must be between"),
        ("margin = 0.02\ndatasets = []", "datasets must name one"),
        ("margin =", "no TOML"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(tmp_path, text, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_policy(policy(tmp_path, text))


def test_mistakes_have_an_exit_code_of_their_own(tmp_path, base):
    new = run(tmp_path, "new", mid=100, odd=100)
    words = ("--against", base, "--policy")
    unshared = policy(tmp_path, "margin = 0.1\ndatasets = ['x']")
    assert "which the runs do not share" in command("gate", new, *words, unshared, exits=3)
    assert "cannot be read" in command("gate", new, *words, tmp_path / "none.toml", exits=3)
    assert "holds no run" in command("gate", tmp_path, *words, policy(tmp_path), exits=3)
    assert "No such option" in command("gate", new, *words, policy(tmp_path), "--marginn", "1", exits=3)


def test_runs_of_other_prompts_are_refused(tmp_path):
    for name in ("a", "b"):
        write_run(tmp_path / name, f"acme/{name}", predictions(0.5, seed=1, datasets=["mid"], prompts=name))
    words = ("--against", tmp_path / "b", "--policy", policy(tmp_path))
    assert "different prompts" in command("gate", tmp_path / "a", *words, exits=3)


@pytest.mark.slow
def test_the_commands_of_the_pipeline_on_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    policy(tmp_path)
    lines = re.findall(r"- run: evaluator (.*)", PAGE.read_text())
    assert [line.split()[0] for line in lines] == ["run", "run", "gate"]
    for line in lines:  # the fake engine, and models of its names: only the last command is tested here
        command(*shlex.split(line), *(("--engine", "fake") if line.startswith("run") else ()))
    assert ElementTree.parse("gate.xml").getroot().get("failures") == "0"
