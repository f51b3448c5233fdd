"""`evaluator board`: many runs on one page, each ranked only among the runs with the same prompts."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from evaluator.runs import board as board_of_runs
from evaluator.runs.board import Answers, _answers, _rank
from evaluator.runs.state import run_state
from tests.command_line import command_outputs
from tests.compare.run_folders import N_QUERIES, predictions, put_table, write_run
from tests.report.reading import open_fresh


@pytest.fixture
def runs(run_folders: list[Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(run_folders[0].parent, tmp_path / "runs"))


def board(runs: Path, out: Path) -> dict[str, Any]:
    said = command_outputs("board", runs, "--out", out)
    content: dict[str, Any] = json.loads((out / "board.json").read_text())
    assert f"Runs: {len(content['runs'])}" in said.out
    return content


def ranked(content: dict[str, Any], definition: str = "paper") -> dict[str, tuple[str, list[int] | None]]:
    models = {run["id"]: run["model"] for run in content["runs"]}
    rows = [row for row in content["rows"] if row["definition"] == definition and row["method"] == "vanilla"]
    return {models[row["run"]]: (row["group"], row["rank"]) for row in rows}


def test_runs_with_the_same_prompts_share_a_ranking_and_every_file_has_the_same(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "board"
    content = board(runs, out)
    places = ranked(content)
    assert len({group for group, _ in places.values()}) == 1
    for low, high in (rank for _, rank in places.values() if rank):
        assert 1 <= low <= high <= 4
    for row in content["rows"]:
        metrics = {run["id"]: run for run in content["runs"]}[row["run"]]["model"].split("/")[-1]
        table = pl.read_parquet(runs / metrics / "tables/metrics.parquet").filter(
            suite=row["suite"], part=row["part"], method=row["method"], definition=row["definition"], metric="accuracy"
        )
        assert row["values"] == dict(table.select("dataset", pl.col("value").round(4)).iter_rows())
    lines = list(csv.DictReader((out / "board.csv").read_text().splitlines()))
    assert len(lines) == sum(len(row["values"]) for row in content["rows"])
    page = (out / "index.html").read_text()
    data = page.split('id="board-data">')[1].split("</script>")[0]
    assert json.loads(data) == {name: content[name] for name in ("runs", "rows", "published")}
    results = [json.loads(path.read_text()) for path in (out / "every_eval_ever").rglob("*.json")]
    assert {result["model_info"]["name"] for result in results} == {run["model"] for run in content["runs"]}


def test_other_prompts_other_forms_and_other_definitions_never_share_a_ranking(runs: Path, tmp_path: Path) -> None:
    other = predictions(0.5, seed=9).with_columns(pl.col("prompt_id") + "-other")
    write_run(runs / "other", "acme/other", other)
    write_run(runs / "merged", "acme/merged", predictions(0.5, seed=10), scores={"label_boundary": "merged"})
    content = board(runs, tmp_path / "board")
    places = ranked(content)
    assert len({group for group, _ in places.values()}) == 3
    assert places["acme/other"][1] is None
    assert places["acme/merged"][1] is None
    by_definition = [{group for group, _ in ranked(content, name).values()} for name in ("paper", "released")]
    assert not by_definition[0] & by_definition[1]


def test_two_runs_are_ranked_and_one_alone_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, Any]] = [{"rank": None}, {"rank": None}]
    _rank([(row, Answers("", {"zoo": np.full(100, n % 2, float)})) for n, row in enumerate(rows)])
    assert [row["rank"] for row in rows] == [[2, 2], [1, 1]]
    _rank([(alone := {"rank": None}, Answers("", {"zoo": np.ones(100)}))])
    assert alone["rank"] is None
    monkeypatch.setattr(board_of_runs, "MAX_RANKED", 2)
    three: list[dict[str, Any]] = [{"rank": None} for _ in range(3)]
    _rank([(row, Answers("", {"zoo": np.full(100, right)})) for row, right in zip(three, (1.0, 0.0, 0.5), strict=True)])
    assert [row["rank"] is None for row in three] == [False, True, False]  # the two most accurate are ranked


def test_other_true_labels_of_the_same_prompts_are_other_prompts() -> None:
    rows = predictions(0.5, seed=0, definitions=["paper"], methods=["vanilla"], datasets=["zoo"])
    (known,), (changed,) = (_answers(each).values() for each in (rows, rows.with_columns(gold=1 - pl.col("gold"))))
    assert known.prompts != changed.prompts


def test_adding_a_run_keeps_ids_links_and_groups(runs: Path, tmp_path: Path) -> None:
    before = board(runs, tmp_path / "board")
    write_run(runs / "a-first", "acme/new", predictions(0.9, seed=11))
    after = board(runs, tmp_path / "board")
    kept = {run["id"]: (run["model"], run["page"]) for run in after["runs"]}
    assert all(kept[run["id"]] == (run["model"], run["page"]) for run in before["runs"])
    assert len(kept) == 5
    assert {row["group"] for row in before["rows"]} <= {row["group"] for row in after["rows"]}


def test_a_copy_of_a_run_has_an_id_of_its_own(runs: Path, tmp_path: Path) -> None:
    first = sorted(runs.iterdir())[0]
    shutil.copytree(first, runs / "zcopy")
    content = board(runs, tmp_path / "board")
    assert len({run["id"] for run in content["runs"]}) == 5


def test_a_damaged_run_is_left_out_and_named_and_none_at_all_is_a_mistake(runs: Path, tmp_path: Path) -> None:
    broken, older, *_ = sorted(runs.iterdir())
    put_table(older, "metrics", pl.read_parquet(older / "tables/metrics.parquet").drop("tries"))
    put_table(broken, "metrics", pl.DataFrame())
    (broken / "tables/metrics.parquet").write_bytes(b"")
    said = command_outputs("board", runs, "--out", tmp_path / "board")
    assert "Runs: 2" in said.out
    assert str(broken) in said.err
    assert f"{older / 'tables/metrics.parquet'} was written by another version" in said.err
    assert f"columns differ in tries. Run `evaluator measure {older}`" in said.err
    (tmp_path / "empty").mkdir()
    assert "no measured run" in command_outputs("board", tmp_path / "empty", "--out", tmp_path / "b", exits=2).err


def test_the_page_filters_links_and_takes_names_as_text(runs: Path, tmp_path: Path, browser: webdriver.Chrome) -> None:
    evil = "acme/</script><img src=x onerror='window.broken = 1'>-7b"
    folder = write_run(runs / "evil #1%?", evil, predictions(0.5, seed=12), model={"n_parameters": 7_000_000_000})
    (folder / "report.html").write_text("report")
    out = tmp_path / "board"
    content = board(runs, out)
    open_fresh(browser, out / "index.html")
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.broken") is None

    def shown() -> list[str]:
        rows = browser.find_elements(By.CSS_SELECTOR, "table.board tbody tr:not(.published)")
        return [row.find_element(By.CSS_SELECTOR, "td").text for row in rows]

    assert sorted(shown()) == sorted(run["model"] for run in content["runs"])
    links = browser.find_elements(By.CSS_SELECTOR, "table.board tbody a")
    assert {link.get_dom_attribute("href") for link in links} == {"../runs/evil%20%231%25%3F/report.html"}
    browser.find_element(By.NAME, "low").send_keys("6")
    sizes = {run["model"]: run["n_parameters"] for run in content["runs"]}
    assert sorted(shown()) == sorted(model for model, size in sizes.items() if (size or 0) >= 6e9)


def test_answers_without_a_true_label_are_in_no_ranking() -> None:
    gold = pl.when(pl.col("query_id") > 0).then("gold")
    answers = _answers(predictions(0.5, seed=0, definitions=["paper"]).with_columns(gold))
    assert {len(values) for answered in answers.values() for values in answered.correct.values()} == {N_QUERIES - 1}
    assert all(np.isfinite(values).all() for answered in answers.values() for values in answered.correct.values())


def test_answers_after_sets_that_all_queries_share_are_kept_by_set() -> None:
    rows = predictions(0.5, seed=0, definitions=["paper"], methods=["vanilla"], datasets=["zoo"])
    (means,), (cells,) = (
        _answers(each).values() for each in (rows, rows.with_columns(suite=pl.lit("pvi"), part=pl.lit("input")))
    )
    assert means.prompts == cells.prompts
    right = rows.sort("query_id", "demonstration_set").select(pl.col("pred") == pl.col("gold")).to_series()
    assert (cells.correct["zoo"] == right.to_numpy().reshape(N_QUERIES, 2)).all()
    assert (means.correct["zoo"][:, 0] == cells.correct["zoo"].mean(axis=1)).all()


def test_a_board_among_the_runs_is_finished_and_left_out_of_itself(runs: Path) -> None:
    for _ in range(2):
        assert "Left out" not in command_outputs("board", runs, "--out", runs / "board").err
    (line,) = [line for line in command_outputs("list", runs).out.splitlines() if "/board " in line]
    assert line.split()[1] == "finished"
    state = run_state(runs / "board")
    assert (state.state, state.stages) == ("finished", [])
    assert state.finished
    (runs / "compared").mkdir()
    (runs / "compared" / "compare.html").touch()
    for folder, name in ((runs / "board", "verify"), (runs / "compared", "report")):
        said = command_outputs(name, folder, exits=2).err
        assert f"{folder} holds no run, but a page about other runs" in said
        assert "evaluator.log" in said


def test_the_files_of_a_board_are_those_of_its_runs(runs: Path, tmp_path: Path) -> None:
    first = write_run(runs / "more", "=1+1", predictions(0.5, seed=9))
    board(runs, tmp_path / "board")
    write_run(first, "=1+1", predictions(0.4, seed=10))
    content = board(runs, tmp_path / "board")
    files = [*(tmp_path / "board" / "every_eval_ever").rglob("*.json")]
    assert len(files) == len(content["runs"]) == 5
    with (tmp_path / "board" / "board.csv").open() as file:
        assert "'=1+1" in {row["model"] for row in csv.DictReader(file)}
