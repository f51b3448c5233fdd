"""The page in a real browser: what it shows, and what it must never do."""

from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import polars as pl
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from evaluator.run.pipeline import write_run_page
from evaluator.schemas import METRICS, TEST_OF_GUESSING
from tests.report.made_record import made_record
from tests.report.made_run import MadeRun
from tests.report.reading import addresses_asked_by, as_shown, guessing_as_shown, guessing_shown, metrics_shown, unfold

Opened = Callable[[MadeRun], webdriver.Chrome]

EVIL = """</script><script>window.broken = 1</script><img src=x onerror="window.broken = 1">"'&{{ 7 * 7 }}"""

VISIBLE_TABLES = """return [...document.querySelectorAll("table.metrics[data-definition]:not(.tests)")]
  .filter((table) => table.checkVisibility()).map((table) => table.dataset.definition);"""
ROW_NAMES = """return [...document.querySelector("table.metrics").tBodies[0].rows]
  .filter((row) => row.checkVisibility()).map((row) => row.cells[0].textContent);"""


def test_the_page_opens_without_a_console_message_and_asks_the_network_for_nothing(page: webdriver.Chrome) -> None:
    assert page.get_log("browser") == []
    addresses = addresses_asked_by(page)
    assert page.current_url in addresses
    assert [address for address in addresses if not address.startswith(("file:", "data:"))] == []


def test_the_tables_hold_every_number_of_the_metrics_frame_and_no_other(
    page: webdriver.Chrome, report_data: MadeRun
) -> None:
    assert metrics_shown(page) == as_shown(report_data.table("metrics"))


def test_what_guessing_gets_stands_beside_each_accuracy_as_in_the_metrics_frame(
    page: webdriver.Chrome, report_data: MadeRun
) -> None:
    assert guessing_shown(page) == guessing_as_shown(report_data.table("metrics"))
    rows = page.find_elements(By.CSS_SELECTOR, "table.metrics[data-definition=paper]:not(.tests) tr:has(td)")
    columns = page.find_elements(By.CSS_SELECTOR, "table.metrics[data-definition=paper]:not(.tests) thead th")
    titles = [column.find_element(By.TAG_NAME, "button").text for column in columns]
    assert titles[:7] == ["Dataset", "Accuracy", "Chance", "Majority", "Verdict", "Uniform", "Majority"]
    shown = {
        row.find_element(By.TAG_NAME, "th").text: [cell.text for cell in row.find_elements(By.TAG_NAME, "td")[1:6]]
        for row in rows
    }
    # 10^-0.0017 = 0.996, 10^-0.3125 = 0.487, 10^-1.5 = 0.0316; below a thousandth the exponent is shown.
    assert shown == {
        "zoo": ["0.500", "0.750", "○ not better than uniform guessing\ntail 0.996", "no\np 1.000", "no\np 1.000"],
        "mid": ["0.500", "0.750", "○ not better than uniform guessing\ntail 0.487", "no\np 0.974", "no\np 0.974"],
        "abc": ["0.250", "0.750", "● better than guessing\ntail 10−45.3", "yes\np < 0.001", "yes\np < 0.001"],
        "Mean over datasets": [
            *("0.417", "0.750", "○ not better than uniform guessing\ntail 0.032", "no\np 0.095", "no\np 0.095")
        ],
    }


def test_the_verdicts_are_summed_up_with_the_accuracies_that_are_better_than_guessing(page: webdriver.Chrome) -> None:
    def judged(definition: str) -> str:
        selector = f".results [data-definitions={definition}] .judged"
        return page.execute_script("return document.querySelector(arguments[0]).innerText", selector)

    assert judged("paper") == (
        "● better than guessing on 1, ◐ better than uniform guessing on 0, "
        "○ not better than uniform guessing on 2 of 3 datasets, at the 5% level after Holm's correction for 4 tests. "
        "Always answering with the majority label is at least as accurate on zoo, mid."
    )


def test_the_folded_table_of_tests_has_what_the_next_run_needs(page: webdriver.Chrome) -> None:
    page.execute_script("document.querySelector('table.tests').closest('details').open = true")
    rows = page.find_elements(By.CSS_SELECTOR, "[data-definitions=paper] table.tests tbody tr")
    # 10^-0.0017 = .996, 10^-.3125 = .487, 10^-1.5 = .0316; the corrected p-values are made up.
    assert [[cell.text for cell in row.find_elements(By.CSS_SELECTOR, "th, td")] for row in rows] == [
        ["zoo", "0.996", "1.000", "no", "0.125", "1.000", "no", "0.432", "–", "0.250–0.875"],
        ["mid", "0.487", "0.974", "no", "0.122", "0.974", "no", "0.432", "–", "0.250–0.875"],
        ["abc", "10−45.3", "< 0.001", "yes", "< 0.001", "< 0.001", "yes", "0.432", "23", "0.250–0.875"],
        ["Mean over datasets", "0.032", "0.095", "no", "0.012", "0.095", "no", "0.432", "1,370", "0.250–0.875"],
    ]


def test_accuracies_that_were_compared_with_no_guesses_have_no_verdict(opened: Opened, report_data: MadeRun) -> None:
    names = ("max_random", "tries", "log10_tail", "verdict", "credible_low", "credible_high", *TEST_OF_GUESSING)
    names += ("p_majority", "p_majority_holm", "better_than_guessing")
    unknown = {name: pl.lit(None, METRICS[name]) for name in names}
    browser = opened(report_data.but(metrics=report_data.table("metrics").with_columns(**unknown)))
    assert browser.get_log("browser") == []
    assert browser.find_elements(By.CSS_SELECTOR, ".judged, td.verdict, td.tested, table.tests, [data-random]") == []
    assert len(browser.find_elements(By.CSS_SELECTOR, "td[data-chance]")) == 12


def test_results_are_on_the_first_screen_and_what_was_run_is_folded_below_them(
    opened: Opened, report_data: MadeRun
) -> None:
    prompts = {"notes": {"zoo": ["a note"], "mid": ["another note"]}}
    browser = opened(report_data.but(record=made_record(prompts=prompts)))
    top = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
    first, about, notes = (browser.execute_script(top, one) for one in ("table.metrics", "#run", "#notes"))
    assert first < 900 < about < notes
    assert not browser.find_element(By.CSS_SELECTOR, "#run dl").is_displayed()
    browser.find_element(By.LINK_TEXT, "What was run").click()
    assert browser.find_element(By.CSS_SELECTOR, "#run dl").is_displayed()


def test_a_long_warning_is_a_line_until_it_is_unfolded(opened: Opened, report_data: MadeRun) -> None:
    reason = "The file cannot be read. " * 20
    browser = opened(report_data.but(record=made_record(prompts={"left_out": {"abc": reason}})))
    warning = browser.find_element(By.XPATH, "//details[contains(., 'abc failed')]")
    line_px = warning.size["height"]
    assert line_px < 50
    warning.find_element(By.TAG_NAME, "summary").click()
    assert warning.size["height"] > 2 * line_px


def test_titles_of_columns_are_on_the_side_of_their_cells(page: webdriver.Chrome) -> None:
    unfold(page)
    sides = page.execute_script("""const side = (cell) => getComputedStyle(cell).textAlign.replace("start", "left");
      return [...document.querySelectorAll("table.metrics")].flatMap((table) =>
        [...table.tHead.rows[table.tHead.rows.length - 1].cells].flatMap((head, place) =>
          [...table.tBodies[0].rows].map((row) => [head.innerText, side(head), side(row.cells[place])])));""")
    assert len(sides) > 100
    assert [one for one in sides if one[1] != one[2]] == []


def test_nothing_without_true_labels_has_an_empty_figure(opened: Opened, report_data: MadeRun) -> None:
    empty = {name: report_data.table(name).clear() for name in ("reliability", "confusion")}
    masses = report_data.table("metrics").filter(metric="accuracy").with_columns(metric=pl.lit("label_mass_median"))
    browser = opened(report_data.but(metrics=masses, **empty))
    assert browser.find_elements(By.CSS_SELECTOR, ".reliability, .confusion, .intervals") == []
    assert "No query has a true label" in browser.find_element(By.CSS_SELECTOR, ".results").text


def test_rows_stand_in_the_order_of_the_benchmark(page: webdriver.Chrome) -> None:
    assert page.execute_script(ROW_NAMES) == ["zoo", "mid", "abc"]


def test_one_definition_is_shown_and_the_switch_shows_another(page: webdriver.Chrome) -> None:
    assert page.execute_script(VISIBLE_TABLES) == ["paper"]
    page.find_element(By.CSS_SELECTOR, "label:has(input[value=released])").click()
    assert page.execute_script(VISIBLE_TABLES) == ["released"]
    explained = page.find_element(By.CSS_SELECTOR, "dl.definitions").text
    assert explained.startswith("released:")
    assert "paper:" not in explained


def test_a_column_sorts_down_then_up_and_the_mean_stays_last(page: webdriver.Chrome) -> None:
    header = page.find_element(By.XPATH, "//table[@data-definition='paper']//th[.//button[text()='Accuracy']]")
    header.find_element(By.TAG_NAME, "button").click()
    assert page.execute_script(ROW_NAMES) == ["abc", "mid", "zoo"]
    assert header.get_attribute("aria-sort") == "descending"
    header.find_element(By.TAG_NAME, "button").click()
    assert page.execute_script(ROW_NAMES) == ["zoo", "mid", "abc"]
    assert page.find_element(By.CSS_SELECTOR, "tfoot th").text == "Mean over datasets"


def test_an_undefined_value_is_called_undefined_and_sorts_last_both_ways(opened: Opened, report_data: MadeRun) -> None:
    of_mid = (pl.col("dataset") == "mid") & (pl.col("metric") == "accuracy")
    metrics = report_data.table("metrics").with_columns(value=pl.when(of_mid).then(float("nan")).otherwise("value"))
    browser = opened(report_data.but(metrics=metrics))
    assert browser.find_element(By.CSS_SELECTOR, "tr[data-dataset=mid] td.metric b").text == "undefined"
    button = browser.find_element(By.XPATH, "//table[@data-definition='paper']//button[text()='Accuracy']")
    for expected in (["abc", "zoo", "mid"], ["zoo", "abc", "mid"]):
        button.click()
        assert browser.execute_script(ROW_NAMES) == expected


def test_a_dataset_that_is_unticked_leaves_tables_and_panels(page: webdriver.Chrome) -> None:
    page.find_element(By.CSS_SELECTOR, ".filter summary").click()
    page.find_element(By.CSS_SELECTOR, "input[name=dataset][value=mid]").click()
    assert page.execute_script(ROW_NAMES) == ["zoo", "abc"]
    assert page.find_element(By.CSS_SELECTOR, ".filter output").text == "2 of 3"
    panels = page.find_elements(By.CSS_SELECTOR, "figure[data-dataset], .matrix[data-dataset]")
    assert {panel.get_attribute("data-dataset") for panel in panels if panel.is_displayed()} == {"zoo", "abc"}
    page.find_element(By.CSS_SELECTOR, ".filter .all").click()
    assert page.execute_script(ROW_NAMES) == ["zoo", "mid", "abc"]


def test_a_row_about_several_datasets_is_shown_whichever_are_ticked(page: webdriver.Chrome) -> None:
    page.execute_script("document.querySelector('table.metrics tr[data-dataset=mid]').dataset.dataset = 'zoo + mid'")
    page.find_element(By.CSS_SELECTOR, ".filter summary").click()
    page.find_element(By.CSS_SELECTOR, "input[name=dataset][value=mid]").click()
    assert page.execute_script(ROW_NAMES) == ["zoo", "mid", "abc"]


def test_a_figure_tells_its_numbers_when_it_is_pointed_at(page: webdriver.Chrome) -> None:
    bands = page.find_elements(By.CSS_SELECTOR, ".pair figure .role-mark [aria-label]")
    # A scroll hides what was told, and is announced a frame late.
    page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", bands[0])
    page.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")
    webdriver.ActionChains(page).move_to_element(bands[0]).perform()
    # value 0.12346, interval value / 2 to value + 1/64 = 0.01563
    expected = (
        "zoo: 0.123, 95% interval 0.062 to 0.139; chance 0.500, majority label 0.750; "
        "verdict: not better than uniform guessing"
    )
    assert page.find_element(By.CLASS_NAME, "tip").text == expected


def test_print_holds_every_definition_and_every_dataset(page: webdriver.Chrome) -> None:
    page.find_element(By.CSS_SELECTOR, ".filter summary").click()
    page.find_element(By.CSS_SELECTOR, "input[name=dataset][value=mid]").click()
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert page.execute_script(VISIBLE_TABLES) == ["paper", "released", "published"]
        assert page.execute_script(ROW_NAMES) == ["zoo", "mid", "abc"]
        assert not page.find_element(By.CLASS_NAME, "controls").is_displayed()
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.usefixtures("narrow")
def test_on_a_phone_the_page_does_not_scroll_sideways(opened: Opened, report_data: MadeRun) -> None:
    long_name = "organisation/" + "a-model-with-a-very-long-name-" * 4
    left_out = {"y" * 180: "A dataset with a label of one word: " + "z" * 180}
    made = made_record(model={"name": long_name}, prompts={"left_out": left_out})
    run = replace(made, commands={"run": "evaluator " + "x" * 300})
    browser = opened(report_data.but(record=run))
    browser.execute_script("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert browser.execute_script("return document.documentElement.scrollWidth") == 390


def test_names_from_data_and_models_are_text_and_never_markup(opened: Opened, report_data: MadeRun) -> None:
    def rename(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.col("dataset").replace("mid", EVIL))

    renamed = {name: rename(report_data.table(name)) for name in ("metrics", "reliability", "confusion")}
    labels = pl.col("label_names").list.eval(pl.element().replace("cat", EVIL))
    spaces = rename(report_data.table("label_spaces")).with_columns(labels)
    record = replace(made_record(model={"name": EVIL, "revision": EVIL}), commands={"run": EVIL})
    browser = opened(report_data.but(record=record, label_spaces=spaces, **renamed))
    assert browser.execute_script("return window.broken") is None
    assert browser.get_log("browser") == []
    assert browser.find_elements(By.TAG_NAME, "img") == []
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 2
    for place in (
        "h1",
        "pre",
        "table.metrics tr:nth-child(3) th",
        ".matrix thead th span",
        ".reliability figure:nth-child(3) figcaption",
    ):
        assert EVIL in browser.execute_script("return document.querySelector(arguments[0]).textContent", place)


def test_equal_data_give_equal_bytes_whatever_the_order_of_rows(
    report_data: MadeRun, report_path: Path, tmp_path: Path
) -> None:
    shuffled = report_data.but(
        metrics=report_data.table("metrics").sample(fraction=1, shuffle=True, seed=1),
        label_spaces=report_data.table("label_spaces").reverse(),
        reliability=report_data.table("reliability").reverse(),
        confusion=report_data.table("confusion").reverse(),
    )
    assert write_run_page(shuffled, tmp_path / "report.html").read_bytes() == report_path.read_bytes()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("random", "This model's weights are random: every number here is chance."),
        ("embedded", "it shows how a run goes, not what models can do."),
        ("fake", "No model was asked"),
    ],
)
def test_numbers_of_a_model_that_nobody_chose_say_so_first(
    report_data: MadeRun, tmp_path: Path, kind: str, words: str
) -> None:
    run = made_record(model={"kind": kind})
    unmeasured = report_data.table("metrics").clear()
    page = write_run_page(report_data.but(record=run, metrics=unmeasured), tmp_path / "report.html")
    assert words in unescape(page.read_text("utf-8"))


def test_a_trained_model_has_no_warning(page: webdriver.Chrome) -> None:
    assert page.find_elements(By.CLASS_NAME, "warning") == []


def test_what_was_not_recorded_is_said_so_in_its_place(opened: Opened, report_data: MadeRun) -> None:
    record = made_record(model={"revision": None, "n_parameters": None}, prompts={"seeds": {}})
    browser = opened(report_data.but(record=replace(record, elapsed_s={})))
    assert browser.get_log("browser") == []
    unfold(browser)
    names = browser.find_elements(By.CSS_SELECTOR, "dl.facts dt")
    values = browser.find_elements(By.CSS_SELECTOR, "dl.facts dd")
    unknown = {name.text for name, value in zip(names, values, strict=True) if value.text == "not recorded"}
    stages = {"Build", "Tokenise", "Load model", "Score", "Measure"}
    assert unknown == {"Revision", "Parameters", "Seeds", "Throughput", *stages}
