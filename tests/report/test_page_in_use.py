"""The side bar, the colours, the files of figures and the print of a page, in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.report.made_run import MadeRun
from tests.report.reading import open_fresh

HERE = "return document.querySelector('.contents a[aria-current]')?.textContent"
FRAMES = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
BACKGROUND = "return getComputedStyle(document.documentElement).backgroundColor"
TAKE = """const [figure, kind] = arguments, done = arguments[2];
URL.createObjectURL = (blob) => { blob.text().then(done); return "#"; };
HTMLAnchorElement.prototype.click = () => {};
for (const button of figure.querySelectorAll(".take button"))
  if (button.textContent === kind) button.dispatchEvent(new Event("click"));"""
DIM_TEXTS = """const light = (colour) => {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const [red, green, blue] = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3)
    .map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!/[,/] 0\\)$/.test(colour) && colour !== "transparent") return colour;
  }
};
const found = [];
for (const element of document.querySelectorAll("main *, header *, .side *")) {
  const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!text || !element.checkVisibility() || element.closest(".unseen, .tip, option, select")) continue;
  const style = getComputedStyle(element);
  const seen = light(element.closest("svg") ? style.fill : style.color);
  const [a, b] = [seen, light(behind(element))].sort((x, y) => y - x);
  const contrast = (a + 0.05) / (b + 0.05);
  if (contrast < 4.5) found.push(`${element.outerHTML.slice(0, 90)} ${contrast.toFixed(2)}`);
}
return [...new Set(found)];"""


@pytest.fixture(params=["light", "dark"])
def preferred(browser: webdriver.Chrome, request: pytest.FixtureRequest) -> Iterator[str]:
    media = [{"name": "prefers-color-scheme", "value": request.param}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    yield request.param
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_contents_stay_in_view_and_mark_where_the_reader_is(page: webdriver.Chrome) -> None:
    links = page.find_elements(By.CSS_SELECTOR, ".contents a")
    links[-1].click()
    page.execute_async_script(FRAMES)
    assert links[-1].is_displayed()
    assert 0 <= links[-1].rect["y"] - page.execute_script("return scrollY") < page.execute_script("return innerHeight")
    assert page.execute_script(HERE) == links[-1].text
    page.execute_script("document.getElementById(arguments[0]).scrollIntoView()", "method-1")
    page.execute_async_script(FRAMES)
    assert page.execute_script(HERE) == "Results"


def test_the_first_tab_leads_past_the_contents(page: webdriver.Chrome) -> None:
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    skip = page.switch_to.active_element
    assert skip.text == "Skip to the content"
    assert skip.rect["y"] >= 0
    skip.send_keys(Keys.ENTER)
    assert page.switch_to.active_element.get_attribute("id") == "content"


@pytest.mark.usefixtures("narrow")
def test_on_a_phone_the_contents_fold_away_and_a_choice_folds_them_again(
    browser: webdriver.Chrome, report_path: Path
) -> None:
    page = open_fresh(browser, report_path)
    contents = page.find_element(By.CSS_SELECTOR, ".contents")
    link = contents.find_element(By.CSS_SELECTOR, "a:last-of-type")
    assert not link.is_displayed()
    contents.find_element(By.TAG_NAME, "summary").click()
    assert link.is_displayed()
    assert page.execute_script("return document.documentElement.scrollWidth") == 390
    link.click()
    assert contents.get_attribute("open") is None


def test_colours_are_those_of_the_system_until_the_reader_chooses_and_the_choice_is_kept(
    browser: webdriver.Chrome, report_path: Path, preferred: str
) -> None:
    colours = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}
    other = "light" if preferred == "dark" else "dark"
    page = open_fresh(browser, report_path)
    page.execute_script("localStorage.clear()")
    page.refresh()
    assert page.execute_script(BACKGROUND) == colours[preferred]
    button = page.find_element(By.CSS_SELECTOR, ".colours")
    assert button.text == f"{other.capitalize()} colours"
    button.click()

    def is_kept(_: object) -> bool:
        page.refresh()
        if page.execute_script(BACKGROUND) == colours[other]:
            return True
        # A browser that leaves a page at once can lose what it stored: choose again, and wait before the next look.
        page.find_element(By.CSS_SELECTOR, ".colours").click()
        return False

    WebDriverWait(page, 60).until(is_kept)
    page.execute_script("localStorage.clear()")


@pytest.mark.usefixtures("preferred")
def test_every_text_stands_out_from_what_is_behind_it(browser: webdriver.Chrome, report_path: Path) -> None:
    page = open_fresh(browser, report_path)
    page.execute_script("for (const fold of document.querySelectorAll('details')) fold.open = true")
    assert page.execute_script(DIM_TEXTS) == []


def test_a_figure_is_taken_away_as_svg_and_its_numbers_as_csv(page: webdriver.Chrome, report_data: MadeRun) -> None:
    figure = page.find_element(By.CSS_SELECTOR, ".pair figure")
    svg = page.execute_async_script(TAKE, figure, "SVG")
    assert svg.startswith("<svg ")
    assert 'xmlns="http://www.w3.org/2000/svg"' in svg
    data = pl.read_csv(page.execute_async_script(TAKE, figure, "CSV").encode())
    metrics = report_data.table("metrics").filter(metric="accuracy", definition="paper")
    expected = dict(metrics.select("dataset", "value").iter_rows())
    assert dict(data.select("dataset", "value").iter_rows()) == expected  # at full precision


def test_a_print_is_light_with_every_section_open_and_nothing_to_press(
    browser: webdriver.Chrome, report_path: Path, preferred: str
) -> None:
    page = open_fresh(browser, report_path)
    features = [{"name": "prefers-color-scheme", "value": preferred}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
    try:
        assert page.execute_script(BACKGROUND) == "rgb(255, 255, 255)"
        for selector in (".side", ".skip", ".take button", ".controls"):
            assert not page.find_element(By.CSS_SELECTOR, selector).is_displayed()
        first, *others = (each.is_displayed() for each in page.find_elements(By.CLASS_NAME, "summary"))
        assert first, "a print begins with the numbers, as the screen does"
        assert not any(others)
        page.execute_script("dispatchEvent(new Event('beforeprint'))")
        assert page.find_elements(By.CSS_SELECTOR, "main details:not([open])") == []
        page.execute_script("dispatchEvent(new Event('afterprint'))")
        assert page.find_elements(By.CSS_SELECTOR, "main details:not([open])") != []
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
