"""The page of a run with several methods and on disturbed prompts, in a real browser."""

import math
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from evaluator.compare.schema import DIFFERENCES
from evaluator.report.section import Group
from evaluator.report.table import Table
from evaluator.run.pipeline import write_run_page
from evaluator.suites.staicc.report import absent_label_notes, diagnostics_sections
from tests.report.made_run import MadeRun
from tests.report.reading import diagnostics_shown, mean_differences_shown, methods_shown, open_fresh, unfold
from tests.report.staicc_frames import GROUP_SIZES, METHODS, staicc_data

Opened = Callable[[MadeRun], webdriver.Chrome]

EVIL = """</script><script>window.broken = 1</script><img src=x onerror="window.broken = 1">"'&{{ 7 * 7 }}"""

ACCURACIES = "table.methods[data-definition=paper][data-metric=accuracy]"
BOLD = f"""return [...document.querySelectorAll("{ACCURACIES} td:has(b)")].map(
  (cell) => [cell.parentElement.dataset.method, cell.dataset.dataset ?? "mean"]);"""
SHADED = f"""return [...document.querySelectorAll("{ACCURACIES} td.compared")]
  .filter((cell) => !cell.matches(".sign-unclear") && cell.dataset.difference)
  .map((cell) => [cell.parentElement.dataset.method, cell.dataset.dataset, cell.className.split("sign-")[1]]);"""
BANDS = """return [...document.querySelectorAll(arguments[0] + " .role-mark [aria-label]")]
  .map((band) => band.getAttribute("aria-label"));"""

N_VISIBLE = """return [...document.querySelectorAll(arguments[0])]
  .filter((one) => one.checkVisibility({contentVisibilityAuto: true})).length;"""


@pytest.fixture(scope="module")
def data(report_data: MadeRun) -> MadeRun:
    return staicc_data(report_data)


@pytest.fixture(scope="module")
def path(data: MadeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run_page(data, tmp_path_factory.mktemp("staicc") / "report.html")


@pytest.fixture
def page(browser: webdriver.Chrome, path: Path) -> webdriver.Chrome:
    """The browser with the report of `data` just opened."""
    return open_fresh(browser, path)


def shown(page: webdriver.Chrome, selector: str) -> list[str]:
    return [element.text for element in page.find_elements(By.CSS_SELECTOR, selector) if element.is_displayed()]


def test_the_methods_table_holds_the_accuracies_and_true_label_probabilities_of_every_method(
    page: webdriver.Chrome, data: MadeRun
) -> None:
    assert page.get_log("browser") == []
    sides = ("definition", "metric", "method_a", "dataset", "difference")
    less_vanilla = {tuple(key): value for *key, value in data.table("method_differences").select(sides).iter_rows()}
    compared = data.table("metrics").filter(pl.col("metric").is_in(["accuracy", "true_label_probability"]))
    assert methods_shown(page) == {
        (*key, dataset): [value, low, high, None if dataset == "mean" else less_vanilla.get((*key, dataset))]
        for *key, dataset, value, low, high in compared.select(
            "definition", "metric", "method", "dataset", "value", "ci_low", "ci_high"
        ).iter_rows()
    }


def test_the_mean_difference_to_vanilla_stands_with_its_interval(page: webdriver.Chrome, data: MadeRun) -> None:
    means = data.table("method_differences").filter(dataset="mean")
    found = mean_differences_shown(page)
    assert {key: numbers[:3] for key, numbers in found.items()} == {
        (definition, metric, method): (value, low, high)
        for definition, metric, method, value, low, high in means.select(
            "definition", "metric", "method_a", "difference", "ci_low", "ci_high"
        ).iter_rows()
    }
    # 1/6 = 0.167 with 1/8 to either side
    assert found["paper", "accuracy", "knn_centroid"][3] == "+0.167 +0.042 to +0.292 p 0.013, after Holm 0.037"


def test_bold_is_the_highest_of_a_column_where_it_is_told_from_vanilla(page: webdriver.Chrome) -> None:
    # zoo: knn 0.62 is 0.5 above vanilla; mid: knn is highest, but 0.0625 -+ 0.125 holds 0; abc: topk likewise;
    # mean: knn, 1/6 -+ 1/8.
    assert sorted(page.execute_script(BOLD)) == [["knn_centroid", "mean"], ["knn_centroid", "zoo"]]


def test_a_difference_is_shaded_by_the_side_of_0_its_interval_lies_on(page: webdriver.Chrome) -> None:
    assert sorted(page.execute_script(SHADED)) == [
        ["knn_centroid", "zoo", "positive"],
        ["topk", "mid", "negative"],
        ["topk", "zoo", "positive"],
    ]


def test_a_method_says_how_many_labelled_examples_and_requests_it_took(page: webdriver.Chrome) -> None:
    rows = page.find_elements(By.CSS_SELECTOR, f"{ACCURACIES} tbody tr")
    sizes = {
        row.find_element(By.TAG_NAME, "th").text: [cell.text for cell in row.find_elements(By.TAG_NAME, "td")][-2:]
        for row in rows
    }
    # 128 training prompts of 4 shots and a query make 640; topk chooses among all. The mean is over 12 queries.
    assert sizes == {"vanilla": ["0", "24\n12"], "topk": ["all", "12\n12"], "knn_centroid": ["640", "24\n12"]}


def test_a_method_without_rows_under_a_definition_has_dashes_there(page: webdriver.Chrome) -> None:
    page.find_element(By.CSS_SELECTOR, "label:has(input[value=released])").click()
    (row,) = (text for text in shown(page, "table.methods tbody tr") if text.startswith("topk"))
    assert row.split() == ["topk", *"–––––", "all", "–"]


def test_vanilla_is_open_and_other_methods_are_folded_until_they_are_asked_for(page: webdriver.Chrome) -> None:
    assert shown(page, ".results h2 small") == ["staicc-normal / normal, vanilla"]
    assert shown(page, "details.folded > summary b") == [
        *METHODS,
        "What was run",
        "Notes",
    ]
    page.find_element(By.LINK_TEXT, "knn_centroid").click()
    opened_too = ["staicc-normal / normal, vanilla", "staicc-normal / normal, knn_centroid"]
    assert shown(page, ".results h2 small") == opened_too
    assert len(page.find_elements(By.CSS_SELECTOR, "details.folded .reliability svg")) == 2 * 3
    assert len(page.find_elements(By.CSS_SELECTOR, "details.folded .matrix")) == 2 * 3


def test_a_dataset_that_is_unticked_leaves_the_columns_of_the_methods_table_and_the_panels(
    page: webdriver.Chrome,
) -> None:
    page.find_element(By.CSS_SELECTOR, ".filter summary").click()
    page.find_element(By.CSS_SELECTOR, "input[name=dataset][value=mid]").click()
    assert shown(page, f"{ACCURACIES} thead th[data-dataset]") == ["zoo", "abc"]
    assert len(shown(page, f"{ACCURACIES} tbody tr:first-child td.compared")) == 2
    assert shown(page, ".noise figcaption") == ["zoo\nGLER 0.125", "abc\nGLER 0.156", "Mean over datasets\nGLER 0.141"]


def test_methods_sort_by_a_dataset_and_back_into_their_own_order(page: webdriver.Chrome) -> None:
    def names() -> list[str]:
        return shown(page, f"{ACCURACIES} tbody th")

    assert names() == ["vanilla", "topk", "knn_centroid"]
    button = f"{ACCURACIES} thead th[data-dataset=mid] button"
    page.find_element(By.CSS_SELECTOR, button).click()
    assert names() == ["knn_centroid", "vanilla", "topk"]
    page.find_element(By.CSS_SELECTOR, f"{ACCURACIES} thead th:first-child button").click()
    assert names() == ["vanilla", "topk", "knn_centroid"]


def test_the_diagnostics_tables_hold_every_number_of_disturbed_prompts(page: webdriver.Chrome, data: MadeRun) -> None:
    parts = ["contextual", "domain", "gler", "template", "sampling"]
    measured = data.table("metrics").filter(pl.col("part").is_in(parts) | (pl.col("metric") == "empirical_bias"))
    expected = {
        tuple(key): (value, low, high)
        for *key, value, low, high in measured.select(
            "definition", "method", "dataset", "metric", "value", "ci_low", "ci_high"
        ).iter_rows()
    }
    found = diagnostics_shown(page)
    undefined = {key for key, (value, *_) in found.items() if math.isnan(value)}
    assert undefined == {("released", "vanilla", name, "empirical_bias") for name in ("abc", "mean")}
    assert found.keys() == expected.keys()
    assert {key: found[key] for key in found.keys() - undefined} == {
        key: expected[key] for key in found.keys() - undefined
    }


def test_each_diagnostic_says_its_unit_and_what_more_of_it_means(page: webdriver.Chrome) -> None:
    assert shown(page, ".diagnostics thead th") == [
        "Dataset",
        "Contextual bias\nnats\nmore is more bias",
        "Domain bias\nnats\nmore is more bias",
        "Empirical bias\nnats\nmore is more bias",
        "Template consistency\nshare\nmore is steadier",
        "Sampling consistency\nshare\nmore is steadier",
        "GLER\naccuracy per unit of noise\nabove 0 where labels are read",
        "GLER per 0.1\npercentage points per 0.1 of noise\ntable 3 of Cho & Inoue 2025",
        "GLER of table 7\naccuracy per unit of the toolkit's axis\ntable 7",
    ]
    page.find_element(By.CSS_SELECTOR, "label:has(input[value=released])").click()
    assert "Contextual bias\nnats\nless is more bias" in shown(page, ".diagnostics thead th")
    page.find_element(By.CSS_SELECTOR, "label:has(input[value=published])").click()
    assert shown(page, ".diagnosed > :not(h2)") == ["No diagnostic is measured under the definition published."]


@pytest.mark.parametrize(("without", "has_bias"), [("domain_bias", True), ("(contextual|domain)_bias", False)])
def test_a_diagnostics_table_says_its_definition_and_what_no_bias_is(
    data: MadeRun, without: str, has_bias: bool
) -> None:
    metrics = data.table("metrics").filter(~pl.col("metric").str.contains(without))
    absent = data.table("absent_labels").clear()
    run = data.but(metrics=metrics, group_metrics=data.table("group_metrics").clear(), absent_labels=absent)
    (section,) = diagnostics_sections(run)
    groups = [group for group in section.content if isinstance(group, Group)]
    paper, released = (str(block.caption) for group in groups for block in group.content if isinstance(block, Table))
    # Minus an entropy is least, −log(labels), where no label is preferred; an entropy is then most.
    for caption, name, limits in [
        (paper, "paper", "from −log(labels), which is no bias, to 0."),
        (released, "released", "from 0 to log(labels), which is no bias."),
    ]:
        assert caption.startswith(f"Definition <em>{name}</em>. Below each value")
        assert (limits in caption) is has_bias
        assert "infinite or undefined" not in caption  # each label has a query


def test_an_infinite_bias_is_shown_as_such_and_sorts_as_the_largest(page: webdriver.Chrome) -> None:
    cells = page.find_elements(By.CSS_SELECTOR, ".diagnostics td[data-metric=empirical_bias]")
    assert [cell.text for cell in cells[:4]] == [
        "0.250\n0.188–0.312",
        "0.266\n0.203–0.328",
        "∞\nno interval",
        "∞\nno interval",
    ]
    page.find_element(By.XPATH, "//table[contains(@class, 'diagnostics')]//button[text()='Empirical bias']").click()
    assert shown(page, ".diagnostics tbody th") == ["abc", "mid", "zoo"]


def test_the_noise_panels_tell_the_accuracy_at_each_rate(page: webdriver.Chrome) -> None:
    # On zoo 1/16 to 5/16, on mid a sixteenth more.
    expected = [
        f"Noise rate {rate}: accuracy {round(sixteenths / 16, 3)}, 8 requests"
        for sixteenths, rate in enumerate((0.0, 0.25, 0.5, 0.75, 1.0), start=1)
    ]
    assert page.execute_script(BANDS, ".noise figure[data-dataset=zoo]") == expected
    assert len(page.find_elements(By.CSS_SELECTOR, ".noise figure")) == 4


def test_the_strips_tell_each_template_and_demonstration_set_beside_the_mean(page: webdriver.Chrome) -> None:
    bands = page.execute_script(BANDS, ".diagnosed .pair figure")
    assert len(bands) == 2 * 4
    templates = ", ".join(f"{(2 + place) / 16:.3f}" for place in range(GROUP_SIZES["template"]))
    # 0.5 + 1/64 = 0.516, and 1/16 to either side
    assert bands[1] == f"mid: 0.516, 95% interval 0.453 to 0.578; templates: {templates}"
    assert bands[4].startswith("zoo: 0.375, 95% interval 0.312 to 0.438; demonstration sets: 0.062, 0.125, ")


def test_disturbed_parts_have_no_results_reliability_or_confusion_of_their_own(page: webdriver.Chrome) -> None:
    about = page.execute_script("return [...document.querySelectorAll('.results small')].map((one) => one.textContent)")
    assert about == [f"staicc-normal / normal, {method}" for method in ("vanilla", *METHODS)]


def test_the_notes_say_what_the_reader_must_know(page: webdriver.Chrome) -> None:
    unfold(page)
    prompts, missing, absent = shown(page, ".reader-notes li")
    assert prompts == (
        "Paper and released code build different prompts for the parts domain, gler, sampling and template and the "
        "method topk. This run has the prompts of paper, so these have no results under released; a run with "
        "--definition released has them."
    )
    assert missing.startswith("abc: none of the training prompts of knn_centroid has the label “w”.")
    assert absent == (
        "abc: no query has the labels “w” and “z”. The empirical bias of a method that gives them probability is "
        "infinite under paper and undefined under released, and so is the mean over datasets."
    )


def test_the_contents_lead_to_each_section(page: webdriver.Chrome) -> None:
    links = page.find_elements(By.CSS_SELECTOR, ".contents a")
    assert [link.text for link in links] == [
        *("Inference methods", "Results", "Diagnostics", "What was run", "Tokens", "Record")
    ]
    assert all(page.find_elements(By.ID, (link.get_dom_attribute("href") or "").removeprefix("#")) for link in links)


def test_print_unfolds_numbers_and_every_method(page: webdriver.Chrome) -> None:
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert page.execute_script(N_VISIBLE, "table.methods") == 3 * 2
        assert page.execute_script(N_VISIBLE, ".diagnosed .more table") == 1
        names = page.find_elements(By.CSS_SELECTOR, ".method > summary b")
        assert shown(page, ".method > summary b") == [name.text for name in names] != []
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_on_a_phone_the_page_does_not_scroll_sideways(browser: webdriver.Chrome, path: Path) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert open_fresh(browser, path).execute_script("return document.documentElement.scrollWidth") == 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_names_are_text_and_never_markup(opened: Opened, data: MadeRun) -> None:
    def rename(frame: pl.DataFrame) -> pl.DataFrame:
        names = [name for name in ("dataset", "method", "method_a", "label", "label_name") if name in frame.columns]
        return frame.with_columns(pl.col(names).replace({"mid": EVIL, "topk": EVIL, "w": EVIL}))

    browser = opened(data.but(**{name: rename(table) for name, table in data.tables.items()}))
    assert browser.execute_script("return window.broken") is None
    assert browser.get_log("browser") == []
    assert browser.find_elements(By.TAG_NAME, "img") == []
    for place in (
        "table.methods thead th[data-dataset]:last-of-type, table.methods thead th:nth-child(6)",
        "table.methods tbody tr:last-child th",
        ".diagnostics tbody tr:nth-child(3) th",
        ".noise figure:nth-child(3) figcaption",
        "details.folded:last-of-type summary",
        ".notes li:last-child",
    ):
        assert EVIL in browser.execute_script("return document.querySelector(arguments[0]).textContent", place), place


def test_a_run_of_one_method_has_none_of_this(browser: webdriver.Chrome, report_path: Path) -> None:
    open_fresh(browser, report_path)
    others = ".compared-methods, .diagnosed, .notes:not(.published .notes), details.folded:not(.published, #run)"
    assert browser.find_elements(By.CSS_SELECTOR, others) == []


def test_methods_that_were_not_compared_still_have_their_table(opened: Opened, data: MadeRun) -> None:
    browser = opened(data.but(method_differences=DIFFERENCES.to_frame()))
    assert mean_differences_shown(browser) == {}
    assert browser.execute_script(BOLD) == []
    assert len(methods_shown(browser)) == 2 * 4 * (2 * 3 + 1)


def test_an_absent_label_is_named_once_however_many_methods_miss_it() -> None:
    rows = [("a", method, "paper", "x") for method in ("vanilla", "topk")]
    absent = pl.DataFrame(rows, schema=["dataset", "method", "definition", "label_name"], orient="row")
    assert [*absent_label_notes(absent)] == [
        "a: no query has the label “x”. The empirical bias of a method that gives it probability is infinite under "
        "paper, and so is the mean over datasets."
    ]
