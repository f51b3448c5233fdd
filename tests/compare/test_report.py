"""The page of a comparison in a real browser: it holds the numbers of the tables, and none that is not there."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from evaluator.metrics.classification import METRICS, STAICC_METRICS
from evaluator.metrics.groups import SCORE_PARTS
from evaluator.progress import finish
from evaluator.run.compare import compare
from tests.compare.run_folders import diagnostics, predictions, write_run
from tests.report.reading import addresses_asked_by, open_fresh, unfold
from tests.report.test_page import EVIL

VALUES = """return [...document.querySelectorAll("table.models td.value")].map((cell) => {
  const { model, column, value, low, high } = cell.dataset;
  return [cell.closest("table").dataset.definition, model, column, value, low, high, cell.querySelector("b") !== null];
});"""
CORRELATIONS = """return [...document.querySelectorAll("td.correlation")].map((cell) => {
  const table = cell.closest("table").dataset;
  return [table.definition, table.over, cell.dataset.a, cell.dataset.b, cell.dataset.value ?? null, cell.textContent];
});"""
PAIRS = """return [...document.querySelectorAll("table.pair-table tr:has(td)")].flatMap((row) => {
  const { definition, a, b } = row.closest("table").dataset;
  return [...row.querySelectorAll("td.difference")].map((cell, place) =>
    [definition, a, b, row.dataset.dataset ?? "mean", place, cell.dataset.value, cell.dataset.low, cell.dataset.high]);
});"""
SLOPES = """return [...document.querySelectorAll(".scaling figure")].map((figure) => {
  const { of, measure, method, slope, low, high } = figure.dataset;
  return [figure.closest("section").dataset.definitions, of, measure, method, slope, low, high];
});"""


QUICK: dict[str, list[str]] = {"methods": ["vanilla"], "definitions": ["paper"]}

VISIBLE_DEFINITIONS = """return [...document.querySelectorAll("section[data-definitions]")]
  .filter((section) => section.checkVisibility()).map((section) => section.dataset.definitions);"""


@pytest.fixture(scope="module")
def compared(run_folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("compared") / "out"
    finish(compare(run_folders, out))
    return out


@pytest.fixture
def page(browser: webdriver.Chrome, compared: Path) -> webdriver.Chrome:
    return open_fresh(browser, compared / "compare.html")


@pytest.fixture
def opened(browser: webdriver.Chrome, tmp_path: Path) -> Callable[[list[Path]], webdriver.Chrome]:
    """Compare runs and open the page."""
    return lambda folders: open_fresh(browser, finish(compare(folders, tmp_path / "out")).page)


def table(compared: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(compared / "tables" / f"{name}.parquet")


def number(text: str | None) -> float | None:
    return None if text in (None, "None") else float(text)


def test_the_page_opens_without_a_console_message_and_asks_the_network_for_nothing(page: webdriver.Chrome) -> None:
    assert page.get_log("browser") == []
    assert [one for one in addresses_asked_by(page) if not one.startswith(("file:", "data:"))] == []


def test_the_model_tables_hold_every_mean_of_the_comparison_but_metrics_that_are_no_headlines(
    page: webdriver.Chrome, compared: Path
) -> None:
    shown = {tuple(row[:3]): tuple(map(number, row[3:6])) for row in page.execute_script(VALUES)}
    means = table(compared, "comparison").filter(dataset="mean")
    methods = means.filter(metric="accuracy").with_columns(column="method")
    further = {*METRICS, *SCORE_PARTS} - {*STAICC_METRICS}
    assert further <= {*means["metric"]}
    measures = means.filter(~pl.col("metric").is_in(further), method="vanilla").with_columns(column="metric")
    by_dataset = table(compared, "comparison").filter(pl.col("dataset") != "mean", metric="accuracy", method="vanilla")
    datasets = by_dataset.with_columns(column="dataset")
    expected = pl.concat([methods, measures, datasets]).select(
        "definition", "model", "column", "value", "ci_low", "ci_high"
    )
    assert shown == {(definition, model, column): tuple(rest) for definition, model, column, *rest in expected.rows()}


def test_bold_is_only_a_model_that_is_above_every_other_after_correction(
    page: webdriver.Chrome, compared: Path
) -> None:
    bold = {(d, model, column) for d, model, column, *_, is_bold in page.execute_script(VALUES) if is_bold}
    differences = table(compared, "differences").filter(dataset="mean", metric="accuracy")
    between = differences.filter(pl.col("model_a") != pl.col("model_b"))
    wins: dict[tuple[str, str, str], int] = {}
    for row in between.iter_rows(named=True):
        winner = None if row["p_holm"] > 0.05 else row["model_a"] if row["difference"] > 0 else row["model_b"]
        if winner:
            key = (row["definition"], winner, row["method_a"])
            wins[key] = wins.get(key, 0) + 1
    assert bold == {key for key, n in wins.items() if n == 3}


def test_a_model_that_is_told_from_all_others_is_bold(
    opened: Callable[[list[Path]], webdriver.Chrome], tmp_path: Path
) -> None:
    skills = {"weak": 0.0, "middling": 0.1, "sure": 50.0}
    folders = [
        write_run(tmp_path / name, f"acme/{name}", predictions(skill, seed=place, **QUICK))
        for place, (name, skill) in enumerate(skills.items())
    ]
    shown = opened(folders).execute_script(VALUES)
    assert {(model, column) for definition, model, column, *_, is_bold in shown if is_bold} == {
        ("acme/sure", "vanilla")
    }


def test_a_single_dataset_is_shown_alone_and_no_mean_over_it(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / name, f"acme/{name}", predictions(skill, seed=1, datasets=["zoo"], **QUICK))
        for name, skill in (("weak", 0.0), ("sure", 50.0))
    ]
    main = finish(compare(folders, tmp_path / "out")).page.read_text().partition("<main")[2]
    assert "on zoo" in main
    assert "mean over datasets" not in main.lower()
    assert "Accuracy by dataset" not in main


def test_the_triangles_hold_every_rank_correlation_once(page: webdriver.Chrome, compared: Path) -> None:
    shown = page.execute_script(CORRELATIONS)
    found = {(d, over, frozenset((a, b))): value and float(value) for d, over, a, b, value, _ in shown}
    assert len(found) == len(shown)
    expected = table(compared, "rank_correlations").select("definition", "over", "a", "b", "rho").rows()
    assert found == {(definition, over, frozenset((a, b))): rho for definition, over, a, b, rho in expected}
    texts = {text for *_, value, text in shown if value is not None and float(value) == 1}
    assert texts == {"+1.00"}


def test_the_pair_tables_hold_every_difference_of_two_models_under_vanilla(
    page: webdriver.Chrome, compared: Path
) -> None:
    metrics = ("accuracy", "true_label_probability")
    shown = {(*row[:4], metrics[row[4]]): tuple(map(float, row[5:])) for row in page.execute_script(PAIRS)}
    rows = table(compared, "differences").filter(pl.col("model_a") != pl.col("model_b"), method_a="vanilla")
    columns = ["definition", "model_a", "model_b", "dataset", "metric", "difference", "ci_low", "ci_high"]
    assert shown == {row[:5]: row[5:] for row in rows.select(columns).rows()}


def test_each_line_over_parameters_is_said_with_its_slope(page: webdriver.Chrome, compared: Path) -> None:
    shown = {tuple(row[:4]): tuple(map(number, row[4:])) for row in page.execute_script(SLOPES)}
    rows = table(compared, "scaling").select("definition", "of", "measure", "method", "slope", "ci_low", "ci_high")
    assert shown == {row[:4]: row[4:] for row in rows.rows()}


def test_one_definition_is_shown_and_the_switch_shows_another(page: webdriver.Chrome) -> None:
    assert set(page.execute_script(VISIBLE_DEFINITIONS)) == {"paper"}
    page.find_element(By.CSS_SELECTOR, "label:has(input[value=published])").click()
    assert set(page.execute_script(VISIBLE_DEFINITIONS)) == {"published"}


def test_models_are_named_with_what_tells_them_apart(page: webdriver.Chrome) -> None:
    unfold(page)
    rows = page.find_elements(By.CSS_SELECTOR, "table.runs tbody tr")
    texts = [[cell.text for cell in row.find_elements(By.CSS_SELECTOR, "th, td")] for row in rows]
    assert texts[1][:5] == ["2 acme/small", "small", "10,000,000", "float32", "vllm 9.9.9"]
    assert "weights of small" in texts[1]


@pytest.mark.usefixtures("narrow")
def test_the_page_is_no_wider_than_a_telephone(page: webdriver.Chrome) -> None:
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390


def test_names_from_models_and_datasets_stay_text(
    opened: Callable[[list[Path]], webdriver.Chrome], tmp_path: Path
) -> None:
    folders = [
        write_run(tmp_path / name, EVIL + name, predictions(0.5, seed=seed, **QUICK), model={"n_parameters": 10**seed})
        for seed, name in enumerate(("x", "y"), start=6)
    ]
    browser = opened(folders)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.broken") is None
    unfold(browser)
    names = [name.text for name in browser.find_elements(By.CSS_SELECTOR, "table.runs tbody th")]
    assert names == [f"1 {EVIL}x", f"2 {EVIL}y"]


def test_what_was_not_measured_or_recorded_is_left_open(
    opened: Callable[[list[Path]], webdriver.Chrome], tmp_path: Path
) -> None:
    unknown = {"n_parameters": None}
    rows = diagnostics({"staicc-bias / contextual": [0.1]}, ["zoo"]).filter(definition="paper")
    folders = [
        write_run(tmp_path / "a", "acme/a", predictions(0.5, seed=1, datasets=["zoo"], **QUICK), rows, model=unknown),
        write_run(tmp_path / "b", "acme/b", predictions(0.5, seed=2, datasets=["zoo"], **QUICK), model=unknown),
    ]
    browser = opened(folders)
    assert browser.get_log("browser") == []
    assert browser.find_elements(By.CSS_SELECTOR, ".scaling svg") == []
    assert "By size" not in browser.page_source
    assert "Rank correlations" not in browser.page_source
    assert [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "table.models td.absent")] == ["–"]
