"""Reading a report in a browser: its numbers, and what it asked the network for."""

import json
from pathlib import Path

import polars as pl
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

CELLS = """return [...document.querySelectorAll("table.metrics td.metric")].map((cell) => {
  const row = cell.parentElement;
  return [row.closest("table").dataset.definition, row.dataset.dataset ?? "mean", cell.dataset.metric,
          cell.dataset.value, cell.dataset.low, cell.dataset.high, cell.textContent];
});"""

GUESSING = """return [...document.querySelectorAll("table.metrics td.verdict")].map((cell) => {
  const row = cell.parentElement;
  const baseline = (name) => row.querySelector(`[data-${name}]`).dataset[name];
  const { verdict, tries, value } = cell.dataset;
  const tested = row.querySelector("td.tested").dataset;
  const majority = row.querySelector("td.against-majority").dataset;
  return [row.closest("table").dataset.definition, row.dataset.dataset ?? "mean", baseline("chance"),
          baseline("majority"), baseline("random"), tries, value, tested.p, tested.value, tested.tests,
          tested.lower, tested.needed ?? null, majority.p, majority.value, tested.better, verdict];
});"""

METHODS = """return [...document.querySelectorAll("table.methods tbody tr")].flatMap((row) => {
  const { definition, metric } = row.closest("table").dataset;
  const about = (cell) => [definition, metric, row.dataset.method, cell.dataset.dataset ?? "mean"];
  const numbers = ({ dataset: { value, low, high, difference } }) => [value, low, high, difference ?? null];
  return [...row.querySelectorAll("td.compared, td.mean")].map((cell) => [...about(cell), ...numbers(cell)]);
});"""

MEAN_DIFFERENCES = """return [...document.querySelectorAll("table.methods td.difference")].map((cell) => {
  const row = cell.parentElement;
  const { definition, metric } = row.closest("table").dataset;
  const { value, low, high } = cell.dataset;
  return [definition, metric, row.dataset.method, value, low, high, cell.textContent];
});"""

DIAGNOSTICS = """return [...document.querySelectorAll("table.diagnostics td.diagnostic")].map((cell) => {
  const row = cell.parentElement;
  const { definition, method } = row.closest("table").dataset;
  const { metric, value, low, high } = cell.dataset;
  return [definition, method, row.dataset.dataset ?? "mean", metric, value, low, high];
});"""

Numbers = dict[tuple[str, str, str], tuple[str, float | None, float | None, str]]
"""(definition, dataset, metric) -> value at full precision, both ends of its interval, and the text of the cell."""


def open_fresh(browser: webdriver.Chrome, path: Path) -> webdriver.Chrome:
    for log in ("browser", "performance"):
        browser.get_log(log)  # reading a log empties it
    browser.get(path.as_uri())
    # Chromium's driver sometimes returns while the page is still parsed, where it had the same address open before.
    WebDriverWait(browser, 60).until(lambda _: browser.execute_script("return document.readyState") == "complete")
    return browser


def unfold(page: webdriver.Chrome) -> None:
    """Open every folded part of a page."""
    page.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


def addresses_asked_by(page: webdriver.Chrome) -> list[str]:
    events = (json.loads(entry["message"])["message"] for entry in page.get_log("performance"))
    asked = (event["params"] for event in events if event["method"] == "Network.requestWillBeSent")
    # The browser's own start page may still be loading beside ours.
    return [request["request"]["url"] for request in asked if request["documentURL"] == page.current_url]


def metrics_shown(page: webdriver.Chrome) -> Numbers:
    """What the tables hold, at full precision."""
    return {
        (definition, dataset, metric): (str(float(value)), limit(low), limit(high), text)
        for definition, dataset, metric, value, low, high, text in page.execute_script(CELLS)
    }


def limit(shown: str | None) -> float | None:
    """The end of an interval; None where there is none."""
    return None if shown is None else float(shown)


def as_shown(metrics: pl.DataFrame) -> Numbers:
    """What the tables should hold of schemas.METRICS; what is infinite or undefined has no interval."""
    return {
        (row["definition"], row["dataset"], row["metric"]): (
            str(row["value"]),
            row["ci_low"],
            row["ci_high"],
            " ".join(
                (_number(row["value"]), _interval(row["ci_low"], row["ci_high"]), *_reduced_bias(row["reduced_bias"]))
            ),
        )
        for row in metrics.to_dicts()
    }


def _number(value: float) -> str:
    return {"inf": "∞", "nan": "undefined"}.get(str(value), f"{value:.3f}".replace("-", "−"))


def _reduced_bias(value: float | None) -> list[str]:
    return [] if value is None else [f"reduced-bias {_number(value)}"]


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "no interval"
    return f"{_number(low)}{' to ' if low < 0 else '–'}{_number(high)}"


def guessing_shown(page: webdriver.Chrome) -> dict[tuple[str, str], list[float | str | None]]:
    """(definition, dataset) -> columns of an accuracy in the tables, as in guessing_as_shown."""
    return {
        (definition, dataset): [*(number and float(number) for number in numbers), better == "True", verdict]
        for definition, dataset, *numbers, better, verdict in page.execute_script(GUESSING)
    }


def guessing_as_shown(metrics: pl.DataFrame) -> dict[tuple[str, str], list[float | str | None]]:
    """What the tables should hold beside the accuracies of schemas.METRICS."""
    columns = (
        *("chance", "majority", "max_random", "tries", "log10_tail", "p_value", "p_holm", "n_tests"),
        *("accuracy_lower_bound", "n_needed", "p_majority", "p_majority_holm", "better_than_uniform", "verdict"),
    )
    judged = metrics.filter(pl.col("metric") == "accuracy", pl.col("verdict").is_not_null())
    return {(row["definition"], row["dataset"]): [row[name] for name in columns] for row in judged.to_dicts()}


def methods_shown(page: webdriver.Chrome) -> dict[tuple[str, str, str, str], list[float | None]]:
    """(definition, metric, method, dataset) -> value, both ends of its interval and, of a dataset, less vanilla."""
    return {
        (definition, metric, method, dataset): [number and float(number) for number in numbers]
        for definition, metric, method, dataset, *numbers in page.execute_script(METHODS)
    }


def mean_differences_shown(page: webdriver.Chrome) -> dict[tuple[str, str, str], tuple[float, float, float, str]]:
    """(definition, metric, method) -> mean difference to vanilla, both ends of its interval, and the cell's text."""
    return {
        (definition, metric, method): (float(value), float(low), float(high), text)
        for definition, metric, method, value, low, high, text in page.execute_script(MEAN_DIFFERENCES)
    }


def diagnostics_shown(
    page: webdriver.Chrome,
) -> dict[tuple[str, str, str, str], tuple[float, float | None, float | None]]:
    """(definition, method, dataset, metric) -> value, and both ends of its interval."""
    return {
        (definition, method, dataset, metric): (float(value), limit(low), limit(high))
        for definition, method, dataset, metric, value, low, high in page.execute_script(DIAGNOSTICS)
    }
