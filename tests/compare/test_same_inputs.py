"""Means over questions about the same inputs: an input counts once, however often it is asked about."""

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import beta, t

from evaluator.metrics.total_error import CrossedAnswers, Design, crossed_headline, total_error_tables
from tests.command_line import command

COPIES = [f"question {n}" for n in range(4)]


def answered(folder: Path, name: str, answers: Mapping[str, Sequence[bool | None]]) -> Path:
    """Import a log of questions with yes and no true in turn; None where a question was not asked of an input."""
    log = folder / f"{name}.jsonl"
    with log.open("w") as lines:
        for number, of_input in enumerate(zip(*answers.values(), strict=True)):
            asked = {one: right for one, right in zip(answers, of_input, strict=True) if right is not None}
            is_true = number % 2 == 0
            row = {
                "id": f"ticket {number}",
                "request": {"state": f"text {number}", "questions": {one: {"type": "noul"} for one in asked}},
                "response": {
                    "answers": {one: {"noul": 0.75 if right == is_true else 0.25} for one, right in asked.items()}
                },
                "gold": dict.fromkeys(asked, "yes" if is_true else "no"),
            }
            lines.write(f"{json.dumps(row)}\n")
    command("import", log, "--model", name, "--out", folder / name)
    return folder / name


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of 60 inputs and four questions, of which each model answers all or none rightly."""
    folder = tmp_path_factory.mktemp("copies")
    first, second = [True] * 57 + [False] * 3, [True] * 44 + [False] * 13 + [True] * 3
    runs = {"a": first, "b": second}
    return [answered(folder, name, dict.fromkeys(COPIES, right)) for name, right in runs.items()]


def test_four_copies_of_a_question_are_worth_one(copies: list[Path], tmp_path: Path) -> None:
    command("compare", *copies, "--out", tmp_path)
    rows = pl.read_parquet(tmp_path / "tables" / "differences.parquet").filter(metric="accuracy", definition="paper")
    of_mean, of_one = (rows.filter(dataset=name).row(0, named=True) for name in ("mean", COPIES[0]))
    for name in ("difference", "ci_low", "ci_high", "p_value", "test", "n_queries"):
        assert of_mean[name] == of_one[name], name
    assert (of_one["test"], of_one["n_queries"]) == ("McNemar", 60)


def test_the_recovery_and_the_gate_of_copies_are_those_of_one(copies: list[Path], tmp_path: Path) -> None:
    command("compare", copies[1], "--against", copies[0], "--out", tmp_path)
    rows = pl.read_parquet(tmp_path / "tables" / "against.parquet").filter(definition="paper")
    of_mean, of_one = (rows.filter(dataset=name).row(0, named=True) for name in ("mean", COPIES[0]))
    for name in ("recovery", "recovery_low", "recovery_high"):
        assert of_mean[name] == pytest.approx(of_one[name], rel=1e-12), name
    for name in ("mean", COPIES[0]):
        policy = tmp_path / "policy.toml"
        policy.write_text(f'margin = 0.05\ndatasets = ["{name}"]\n')
        said = command("gate", copies[1], "--against", copies[0], "--policy", policy, exits=2)
        assert said.startswith("INCONCLUSIVE")


def test_the_interval_of_a_mean_of_copies_is_that_of_one(copies: list[Path], tmp_path: Path) -> None:
    command("compare", *copies, "--out", tmp_path)
    of_run = pl.read_parquet(copies[0] / "tables" / "metrics.parquet")
    compared = pl.read_parquet(tmp_path / "tables" / "comparison.parquet").filter(model="a")
    for rows in (of_run, compared):
        of_metric = rows.filter(definition="paper", metric="accuracy")
        of_mean, of_one = (of_metric.filter(dataset=name).row(0, named=True) for name in ("mean", COPIES[0]))
        if rows is of_run:
            assert of_mean["p_majority"] == of_one["p_majority"] < 1e-6
        assert of_mean["ci_low"] == pytest.approx(of_one["ci_low"], rel=1e-12)
        assert of_mean["ci_high"] == pytest.approx(of_one["ci_high"], rel=1e-12)


def test_questions_of_some_inputs_count_as_much_as_others_in_the_mean_and_an_input_once(tmp_path: Path) -> None:
    first = {"often": [True] * 12, "seldom": [None] * 8 + [True, True, False, True]}
    second = {"often": [False] * 5 + [True] * 7, "seldom": [None] * 8 + [False, True, True, False]}
    folders = [answered(tmp_path, name, right) for name, right in {"a": first, "b": second}.items()]
    command("compare", *folders, "--out", tmp_path / "both")
    rows = pl.read_parquet(tmp_path / "both" / "tables" / "differences.parquet")
    found = rows.filter(metric="accuracy", definition="paper", dataset="mean").row(0, named=True)
    # By hand: 12 inputs; a difference counts 12 / (2 x 12) of the first question, 12 / (2 x 4) of the second.
    shares = {"often": Fraction(12, 24), "seldom": Fraction(12, 8)}
    d = np.zeros(12, dtype=object)
    for name, share in shares.items():
        for number, (one, other) in enumerate(zip(first[name], second[name], strict=True)):
            d[number] += share * (int(one) - int(other)) if one is not None and other is not None else 0
    nonzero = [each for each in d if each]
    total = abs(sum(nonzero))
    flipped = [
        sum(s * e for s, e in zip(signs, nonzero, strict=True)) for signs in product((1, -1), repeat=len(nonzero))
    ]
    p_value = Fraction(sum(abs(each) >= total for each in flipped), len(flipped))
    assert found["difference"] == pytest.approx(float(sum(d) / 12)) == pytest.approx((5 / 12 + 1 / 4) / 2)
    assert found["p_value"] == pytest.approx(float(p_value))
    assert (found["test"], found["n_queries"]) == ("sign flips", 12)


def test_the_board_tells_copies_apart_no_more_than_one(tmp_path: Path) -> None:
    # Eight answers lost and three gained: p = .23 of one question, and .004 if four copies were 240 inputs.
    first, second = [True] * 57 + [False] * 3, [True] * 49 + [False] * 8 + [True] * 3
    for name, questions in (("one", COPIES[:1]), ("copies", COPIES)):
        for model, right in (("a", first), ("b", second)):
            answered(tmp_path, f"{name} {model}", dict.fromkeys(questions, right))
        command("board", tmp_path / f"{name} a", tmp_path / f"{name} b", "--out", tmp_path / name)
        rows = json.loads((tmp_path / name / "board.json").read_text())["rows"]
        assert [row["rank"] for row in rows] == [[1, 2], [1, 2]]


def test_the_total_error_of_a_mean_of_copies_is_that_of_one() -> None:
    cells = np.random.default_rng(0).integers(0, 2, (30, 4, 1)).astype(float)
    names = {"query": "query", "level": "template", "interaction": "query x template"}
    key = dict.fromkeys(("suite", "part", "method", "definition"), "") | {"metric": "accuracy", "n_shots": 0}
    cases = [CrossedAnswers(key | {"dataset": name}, cells, 0, names, Design(30, 4, 1)) for name in COPIES]
    headlines = [crossed_headline(case, (0.0, 1.0), "templates") for case in cases]
    tables = total_error_tables(cases, headlines, independent=False)
    for name, ends in (("total_error", ("ci_low", "total_low", "total_high")), ("variance_components", ("ci_high",))):
        of_mean, of_one = (tables[name].filter(dataset=dataset) for dataset in ("mean", COPIES[0]))
        for end in ends:
            assert of_mean[end].to_list() == pytest.approx(of_one[end].to_list()), end
    now = tables["design_study"].filter(question="now")
    assert now.filter(dataset="mean")["standard_error"].item() == pytest.approx(
        now.filter(dataset=COPIES[0])["standard_error"].item()
    )


def imported(folder: Path, name: str, tables: Mapping[str, Sequence[Mapping[str, object]]], *options: object) -> Path:
    """Import tables of predicted labels into a folder called as the model."""
    for table, rows in tables.items():
        pl.DataFrame(rows).write_csv(folder / f"{table}.csv")
    files = [folder / f"{table}.csv" for table in tables]
    command("import", *files, "--labels", "no,yes", "--model", name, "--out", folder / name, *options)
    return folder / name


def of_mean(folder: Path, table: str, *columns: str) -> tuple[object, ...]:
    rows = pl.read_parquet(folder / "tables" / f"{table}.parquet").filter(metric="accuracy", dataset="mean")
    return rows.select(columns).row(0)


def test_rows_of_other_tables_are_other_inputs_and_rows_with_one_id_in_a_table_the_same(tmp_path: Path) -> None:
    # 40 rows a dataset; the second model loses 8 of each and gains 1, in other rows of each dataset.
    answers = {
        name: [{"gold": "yes", "pred": "no" if n % 40 in of_dataset else "yes"} for n in range(40)]
        for name, of_dataset in {"a0": {0}, "a1": {10}, "b0": {*range(1, 9)}, "b1": {*range(20, 28)}}.items()
    }
    differences, comparisons = [], []
    for kind in ("files", "column", "ids"):
        runs = []
        (tmp_path / kind).mkdir()
        for model in "ab":
            named = {dataset: answers[f"{model}{place}"] for place, dataset in enumerate(("one", "two"))}
            if kind != "files":
                rows = [{"dataset": name, "row": n, **row} for name, of in named.items() for n, row in enumerate(of)]
                named = {"all": rows}
            runs.append(imported(tmp_path / kind, model, named, *(["--id-column", "row"] if kind == "ids" else [])))
        command("compare", *runs, "--out", tmp_path / kind / "both")
        differences.append(of_mean(tmp_path / kind / "both", "differences", "test", "n_queries", "p_value"))
        ends = ("value", "ci_low", "ci_high")
        comparisons.append(of_mean(tmp_path / kind / "both", "comparison", *ends))
        assert comparisons[-1] == of_mean(runs[0], "metrics", *ends), kind
    # 16 answers lost and 2 gained, of 80 rows that are independent; the sum of 0 to 2 of 18 fair coins, both sides.
    p_value = 2 * (1 + 18 + 153) / 2**18
    for found in differences[:2]:
        assert found == ("McNemar", 80, pytest.approx(p_value))
    # Of 40 inputs, of which no two answers differ, 16 are half worse and 2 half better: the same signs.
    assert differences[2] == ("sign flips", 40, pytest.approx(p_value))
    assert comparisons[0] == comparisons[1]
    # The root of the sum of two equal squares, over two; or their mean.
    below = [value - low for value, low, _ in comparisons]
    assert below[2] == pytest.approx(below[0] * 2**0.5)


def test_the_bound_of_copies_is_that_of_one(copies: list[Path]) -> None:
    rows = pl.read_parquet(copies[0] / "tables" / "metrics.parquet").filter(metric="accuracy", definition="paper")
    bounds = rows.filter(pl.col("dataset").is_in(["mean", COPIES[0]]))["accuracy_lower_bound"].to_list()
    # Clopper and Pearson's lower bound of 57 right answers of 60, at error 0.2; of 228 of 240 it is 0.935.
    assert bounds == pytest.approx([beta.ppf(0.2, 57, 4)] * 2)


def test_runs_about_the_same_inputs_and_about_others_share_no_ranking(tmp_path: Path) -> None:
    rows = [{"query_id": n, "gold": "yes", "pred": "yes" if n else "no"} for n in range(30)]
    imported(tmp_path, "apart", {"one": rows, "two": rows})
    together = [{"dataset": name, **row} for name in ("one", "two") for row in rows]
    imported(tmp_path, "together", {"all": together})
    command("board", tmp_path / "apart", tmp_path / "together", "--out", tmp_path / "board")
    groups = [row["group"] for row in json.loads((tmp_path / "board" / "board.json").read_text())["rows"]]
    assert len({*groups}) == len(groups) == 2


def test_a_question_of_few_inputs_keeps_its_uncertainty_in_a_mean_with_one_of_many(tmp_path: Path) -> None:
    # Both models are always right; of the second question only ten inputs say so.
    right = {"often": [True] * 400, "seldom": [True] * 10 + [None] * 390}
    folders = [answered(tmp_path, name, right) for name in "ab"]
    (tmp_path / "policy.toml").write_text("margin = 0.02\n")
    told = command("gate", *folders[:1], "--against", folders[1], "--policy", tmp_path / "policy.toml", exits=2)
    assert told.startswith("INCONCLUSIVE")
    command("compare", folders[0], "--against", folders[1], "--out", tmp_path / "both")
    (row,) = pl.read_parquet(tmp_path / "both" / "tables" / "against.parquet").filter(dataset="mean").to_dicts()
    # An answer to the first question is 1/800 of the mean and one to the second 1/20: the two pairs that are added are
    # 400 (1/800 + 1/20) = 20.5 of the 402.
    reach = t.ppf(0.975, 401) * (2 * 20.5**2 / 402 / 401) ** 0.5
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((-reach, reach))
    assert 100 - row["recovery_low"] == pytest.approx(100 * reach, rel=0.2)
