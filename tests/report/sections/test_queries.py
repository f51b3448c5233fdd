"""The table of single queries of a classification run: its data, what of them fits on a page, and a reader's clicks."""

import json
from typing import Any

import polars as pl
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

import evaluator
from evaluator.api.runs import Run
from evaluator.report.sections import queries
from evaluator.report.sections.queries import classification_queries
from tests.report.reading import open_fresh

DATASETS = ["sst5", "trec"]


@pytest.fixture(scope="module")
def run() -> Run:
    options: dict[str, Any] = {"model": "fake", "engine": "fake", "progress": False, "datasets": DATASETS}
    return evaluator.evaluate("staicc-normal", queries=20, methods="vanilla,batch_calibration", **options)


def data_of(run: Run) -> list[dict[str, Any]]:
    (section,) = classification_queries(run._measured, DATASETS)
    found: list[dict[str, Any]] = json.loads(section.context.query_data)
    return found


def test_each_answer_is_that_of_the_table_of_predictions(run):
    answers = run.predictions.filter(dataset="trec", method="batch_calibration", definition="paper")
    second = answers.filter(demonstration_set=1).sort("query_id")
    trec = data_of(run)[1]
    assert trec["id"] == second["query_id"].to_list()
    assert trec["gold"] == second["gold"].to_list()
    (shown,) = [each for each in trec["runs"] if each["name"] == "batch_calibration, set 1"]
    assert shown["pred"] == second["pred"].to_list()
    true = [probs[gold] for probs, gold in second.select("label_probs", "gold").iter_rows()]
    assert shown["true"] == pytest.approx(true, abs=5e-4)


def test_prompts_are_those_of_the_store_and_queries_their_ends(run):
    prompts = evaluator.read_requests(run.folder).filter(part="normal", dataset="sst5", demonstration_set=0)
    expected = dict(prompts.select("query_id", "prompt").collect().iter_rows())
    sst5 = data_of(run)[0]
    assert dict(zip(sst5["id"], sst5["prompts"][0], strict=True)) == expected
    for query, text in zip(sst5["id"], sst5["text"], strict=True):
        assert text.startswith("sentence: ")
        assert text.count("sentence: ") == 1
        assert expected[query].strip().endswith(text)


def test_queries_start_as_demonstrations_do_although_all_labels_end_alike():
    """negative and positive: what prompts have in common begins in the label before the query."""
    options: dict[str, Any] = {"model": "fake", "engine": "fake", "progress": False, "datasets": ["glue_sst2"]}
    run = evaluator.evaluate("staicc-normal", queries=20, **options)
    (section,) = classification_queries(run._measured, ["glue_sst2"])
    (shown,) = json.loads(section.context.query_data)
    assert all(text.startswith("sentence: ") for text in shown["text"])


def test_a_method_with_prompts_of_its_own_shows_none_of_another(run, monkeypatch):
    predictions = run.predictions.with_columns(
        prompt_id=pl.when(method="batch_calibration").then(pl.lit("another")).otherwise("prompt_id")
    )
    monkeypatch.setitem(run._measured._tables, "predictions", predictions)
    assert [each["asked"] for each in data_of(run)[0]["runs"]] == [0, 1, None, None]


def test_what_does_not_fit_on_a_page_is_left_out_and_said(run, monkeypatch):
    monkeypatch.setattr(queries, "MAX_TEXT", 2_000)
    monkeypatch.setattr(queries, "MAX_PROMPTS", 2_000)
    monkeypatch.setattr(queries, "MAX_ANSWERS", 10)
    (section,) = classification_queries(run._measured, DATASETS)
    sst5, trec = json.loads(section.context.query_data)
    assert 0 < len(sst5["id"]) < 20
    assert abs(len(sst5["id"]) - len(trec["id"])) <= 1
    assert sum(len(text) for dataset in (sst5, trec) for text in dataset["text"]) <= 2_000
    assert sum(len(prompt or "") for each in (sst5, trec) for column in each["prompts"] for prompt in column) <= 2_000
    assert {each["name"] for each in sst5["runs"]} == {"vanilla, set 0", "vanilla, set 1"}
    assert f"The first {len(sst5['id']) + len(trec['id'])} of 40 queries." in section.context.note
    assert "Answers of 1 of 2 methods." in section.context.note


def test_a_run_without_prompts_has_no_such_table(run, monkeypatch):
    monkeypatch.setattr(type(run._measured), "prompts", lambda _run, _ids: pl.DataFrame(schema=PROMPT_TEXTS))
    assert list(classification_queries(run._measured, DATASETS)) == []


PROMPT_TEXTS = {"prompt_id": pl.String, "prompt": pl.String}


def test_a_reader_opens_it_and_reads_a_prompt(run, browser: webdriver.Chrome):
    page = open_fresh(browser, run.page)
    page.execute_script("document.querySelector('.query-table').open = true")
    (row, *_) = page.find_elements(By.CSS_SELECTOR, ".queries .row")
    row.click()
    number = int(row.get_attribute("data-query"))
    sst5 = data_of(run)[0]
    said = page.find_element(By.CSS_SELECTOR, ".detail").text
    assert " ".join(sst5["prompts"][0][number].split()) in " ".join(said.split())
    assert f"Query {sst5['id'][number]}" in said
    assert "great 0." in said
    assert page.get_log("browser") == []
