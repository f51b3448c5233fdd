"""The table of single queries, of every suite: its data, what of them a page shows, and a reader's clicks."""

import base64
import csv
import json
import zlib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

import evaluator
from evaluator.api.runs import Run
from evaluator.report import query_rows
from evaluator.report.query_rows import packed, query_section
from evaluator.run.pipeline import write_run_page
from evaluator.schemas import QUERIES
from evaluator.suites import families_of
from tests.report.reading import open_fresh
from tests.suites.in_context_pvi.pvi_folder import write_folder

DATASETS = ["sst5", "trec"]
FAKE: dict[str, Any] = {"model": "fake", "engine": "fake", "progress": False}
HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"


@pytest.fixture(scope="module")
def run() -> Run:
    return evaluator.evaluate("staicc", queries=12, methods="vanilla,batch_calibration,topk", datasets=DATASETS, **FAKE)


def unpacked(text: str) -> list[dict[str, Any]]:
    return [json.loads(zlib.decompress(base64.b64decode(each["data"]))) for each in json.loads(text)]


def data_of(run: Run) -> list[dict[str, Any]]:
    suites = run._measured.record.prompts.suites
    known = [numbers for one in families_of(suites) if (numbers := one.query_numbers(run._measured))]
    section = query_section(run._measured, *known)
    assert section is not None
    return unpacked(section.content[0].variables["query_data"])


def named(found: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (one,) = (each for each in found if each["name"] == name)
    return one


def prompt_of(dataset: dict[str, Any], pieces: list[int] | None) -> str | None:
    return None if pieces is None else "".join(dataset["pieces"][piece] for piece in pieces)


def test_each_answer_is_that_of_the_table_of_predictions(run):
    answers = run.predictions.filter(dataset="trec", method="batch_calibration", definition="paper", part="normal")
    second = answers.filter(demonstration_set=1).sort("query_id")
    trec = named(data_of(run), "trec")
    assert trec["id"] == second["query_id"].to_list()
    assert trec["gold"] == second["gold"].to_list()
    shown = named(named(trec["runs"], "normal, set 1")["methods"], "batch_calibration")
    assert shown["pred"] == second["pred"].to_list()
    true = [probs[gold] for probs, gold in second.select("label_probs", "gold").iter_rows()]
    assert shown["true"] == pytest.approx(true, abs=5e-4)


def test_prompts_and_log_likelihoods_are_those_of_the_store_for_every_part(run):
    scores = evaluator.read_scores(run.folder).filter(pl.col("for_part").is_null(), dataset="sst5").collect()
    sst5 = named(data_of(run), "sst5")
    kinds = scores.select(query_rows.RUN).unique()
    assert len(sst5["runs"]) == kinds.height > 20
    for kind in ("normal, set 0", "contextual, set 1", "template, set 1, template 3", "gler, set 0, noise rate 0.75"):
        part, number = kind.split(", ")[0], int(kind.split("set ")[1][0])
        rows = scores.filter(part=part, demonstration_set=number)
        rows = rows.filter(template=3) if part == "template" else rows
        rows = (rows.filter(noise_rate=0.75) if part == "gler" else rows).sort("query_id")
        shown = named(sst5["runs"], kind)
        assert [prompt_of(sst5, pieces) for pieces in shown["prompt"]] == rows["prompt"].to_list()
        for given, expected in zip(shown["scores"], rows["label_log_likelihoods"].to_list(), strict=True):
            assert given == pytest.approx(expected, abs=5e-4)


def test_a_prompt_is_cut_into_its_demonstrations_and_the_query_and_each_is_kept_once(run):
    sst5 = named(data_of(run), "sst5")
    (first, *_) = named(sst5["runs"], "normal, set 0")["prompt"]
    instruction, *demonstrations, query = [sst5["pieces"][piece] for piece in first]
    assert instruction == ""
    assert len(demonstrations) == 4
    assert all(text.startswith("sentence: ") and text.count("sentiment: ") == 1 for text in demonstrations)
    assert query.endswith("sentiment: ")
    assert len({*sst5["pieces"]}) == len(sst5["pieces"])


def test_a_method_with_prompts_of_its_own_shows_those(run):
    sst5 = named(data_of(run), "sst5")
    usual = named(sst5["runs"], "normal, set 0")
    own = next(method for each in sst5["runs"] for method in each["methods"] if method["name"] == "topk")
    assert "prompt" not in named(usual["methods"], "batch_calibration")
    asked = evaluator.read_requests(run.folder).filter(part="topk", dataset="sst5")
    texts = set(asked.select("prompt").collect()["prompt"])
    assert {prompt_of(sst5, pieces) for pieces in own["prompt"] if pieces} <= texts


def test_the_table_on_disk_has_every_request_that_was_answered(run):
    table = run.table("queries")
    assert table.schema == QUERIES
    key = ["part", "dataset", "query_id", "n_shots", "demonstration_set", "template", "noise_rate", "prompt_id"]
    assert table.height == run.predictions.select(key).unique().height
    assert table["query"].null_count() == 0
    scores = evaluator.read_scores(run.folder).filter(part="normal").select("prompt_id", "label_log_likelihoods")
    both = table.filter(part="normal").lazy().join(scores.unique("prompt_id"), on="prompt_id").collect()
    assert both["label_log_likelihoods"].to_list() == both["label_log_likelihoods_right"].to_list()
    assert both.height >= 2 * 2 * 12


def test_what_does_not_fit_on_a_page_is_left_out_and_said(run, monkeypatch):
    monkeypatch.setattr(query_rows, "MAX_NUMBERS", 400)
    monkeypatch.setattr(query_rows, "MAX_PROMPTS", 4_000)
    section = query_section(run._measured)
    assert section is not None
    context = section.content[0].variables
    sst5, trec = unpacked(context["query_data"])
    assert 0 < len(sst5["id"]) == len(trec["id"]) < 12
    assert context["n_queries_shown"] == len(sst5["id"]) + len(trec["id"])
    assert (context["n_queries"], context["n_rows"]) == (24, run.table("queries").height)
    # Of the part that is no diagnostic, whose prompts come first.
    assert [each["name"] for each in sst5["runs"]] == ["set 0", "set 1"]
    whole = [pieces for each in (sst5, trec) for kind in each["runs"] for pieces in kind["prompt"] if pieces]
    assert 0 < len(whole) <= context["n_prompts_shown"] < context["n_rows_shown"]
    assert all(dataset["pieces"][place] for dataset in (sst5, trec) for place in dataset["text"])
    page = page_of(run)
    assert f"The first {context['n_queries_shown']} of 24 queries" in page
    assert "<code>tables/queries.parquet</code>" in page


def page_of(run: Run) -> str:
    return write_run_page(run._measured, Path(run.folder) / "again.html").read_text()


def pvi_of(folder: Path) -> Run:
    words: dict[str, Any] = {"data": str(write_folder(folder)), "datasets": ["snli"], "shots": [3], "sets": 2}
    return evaluator.evaluate("pvi", methods="vanilla,hardest_demonstrations", **words, **FAKE)


def test_pvi_stands_in_the_table_for_every_source_of_demonstrations(tmp_path):
    run = pvi_of(tmp_path)
    pvi = run.table("pvi").filter(definition="paper", demonstration_set=1)
    (snli,) = data_of(run)
    for method, source in (("vanilla", "random"), ("hardest_demonstrations", "hardest")):
        expected = pvi.filter(demonstrations=source).sort("query_id")
        shown = named(named(snli["runs"], "set 1")["methods"], method)
        assert snli["id"] == expected["query_id"].to_list()
        assert shown["bits"] == pytest.approx(expected["pvi_bits"].to_list(), abs=5e-4)
        assert shown["rank"] == expected["pvi_bits"].rank("min").to_list()


def task(path: Path) -> str:
    """A BIG-bench task: choices differ, and of every third query two are right."""
    examples = [
        {"input": f"Which is {i}?", "target_scores": {f"{i}": 1, f"{i + 1}": int(i % 3 == 0), f"not {i}": 0}}
        for i in range(24)
    ]
    path.write_text(json.dumps({"name": "numbers", "description": "", "examples": examples}))
    return str(path)


def test_choices_that_differ_from_query_to_query_have_their_own_names_and_right_answers(tmp_path):
    words: dict[str, Any] = {"data": task(tmp_path / "task.json"), "shots": [1], "queries": 6, "tries": 4}
    run = evaluator.evaluate("prompt-search", **words, **FAKE)
    (numbers,) = data_of(run)
    requests = evaluator.read_requests(run.folder).filter(demonstration_set=2).sort("query_id").collect()
    assert [numbers["spaces"][space] for space in numbers["space"]] == requests["label_names"].to_list()
    tried = named(numbers["runs"], "set 2")
    assert [prompt_of(numbers, pieces) for pieces in tried["prompt"]] == requests["prompt"].to_list()
    n_right = sum(sum(each["methods"][0]["right"]) for each in numbers["runs"])
    assert n_right == run.table("search_prompts")["n_correct"].sum()


def own_table(path: Path) -> str:
    with path.open("w", newline="") as file:
        rows = [["body", "stars"], *([f"text {i} {HOSTILE}", ("bad", "good")[i % 2]] for i in range(60))]
        csv.writer(file).writerows(rows)
    return str(path)


def with_table(page: webdriver.Chrome) -> webdriver.Chrome:
    page.execute_script("document.querySelector('.query-table').open = true")
    WebDriverWait(page, 60).until(lambda _: page.find_element(By.CSS_SELECTOR, "[name=count]").text)
    return page


def test_a_reader_opens_a_table_of_his_own_and_its_texts_stay_text(tmp_path, browser: webdriver.Chrome):
    words: dict[str, Any] = {"data": own_table(tmp_path / "own.csv"), "input_column": "body", "gold_column": "stars"}
    run = evaluator.evaluate("classify", queries=10, methods="vanilla,batch_calibration", **words, **FAKE)
    page = with_table(open_fresh(browser, run.page))
    (row, *_) = page.find_elements(By.CSS_SELECTOR, ".queries .row")
    row.click()
    number = int(row.get_attribute("data-query") or 0)
    (own,) = data_of(run)
    detail = page.find_element(By.CSS_SELECTOR, ".detail")
    prompt = prompt_of(own, own["runs"][0]["prompt"][number]) or ""
    assert HOSTILE in prompt
    assert prompt == detail.find_element(By.CSS_SELECTOR, ".asked").get_property("textContent")
    assert f"Query {own['id'][number]} of own, gold" in detail.text
    labels, methods = detail.find_elements(By.CSS_SELECTOR, ".told")
    shown = [cell.text for cell in labels.find_elements(By.CSS_SELECTOR, "td:nth-child(2)")]
    assert [float(text) for text in shown] == own["runs"][0]["scores"][number]
    names = [cell.text for cell in methods.find_elements(By.CSS_SELECTOR, "td:first-child")]
    assert names == ["vanilla", "batch_calibration"]
    assert page.execute_script("return window.broken") is None
    assert page.execute_script("return document.querySelectorAll('main img').length") == 0
    assert page.get_log("browser") == []


def test_names_of_datasets_cannot_end_the_element_that_holds_them():
    text = packed([{"name": HOSTILE, "pieces": []}])
    assert "<" not in text
    assert json.loads(text)[0]["name"] == HOSTILE
    assert unpacked(text)[0]["name"] == HOSTILE


def test_a_run_in_which_nothing_was_answered_has_no_such_table(run, monkeypatch):
    tables = {"queries": QUERIES.to_frame().lazy(), "predictions": run._measured.scan("predictions")}
    monkeypatch.setattr(run._measured, "scan", tables.__getitem__)
    assert query_section(run._measured) is None
