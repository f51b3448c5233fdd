"""The report of in-context PVI in a real browser: its numbers and its table of thousands of queries."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from evaluator.record import MeasuredRecord
from evaluator.report import query_rows
from evaluator.report.query_rows import MAX_CHARACTERS
from evaluator.report.section import Group
from evaluator.report.table import Table
from evaluator.run.pipeline import write_run_page
from evaluator.schemas import LABEL_SPACES, METRICS, PREDICTIONS, QUERIES
from evaluator.suites.in_context_pvi.report import pvi_sections
from evaluator.suites.in_context_pvi.schema import PVI_CHOSEN, PVI_QUERIES, PVI_RUN, PVI_SUMMARY
from evaluator.suites.in_context_pvi.suite import pvi_measures
from tests.report.made_record import changed_record, made_record
from tests.report.made_run import MadeRun
from tests.report.reading import addresses_asked_by, open_fresh
from tests.suites.in_context_pvi.pvi_answers import Run, answers, random_answers
from tests.suites.in_context_pvi.test_agreement import annotations

N_LARGE = 3_000
LABELS = {"large": ["0", "1", "2"], "small": ["no", "yes"]}
EVIL = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"

SUMMARY = """return [...document.querySelectorAll("table[data-table=summary] tbody tr")].map((row) => [
  row.closest("table").dataset.definition, row.dataset.dataset, row.dataset.run,
  Object.fromEntries([...row.querySelectorAll("td[data-number]")].map(({dataset}) => [dataset.number, dataset.value])),
  row.querySelector("[data-missing]").dataset.missing
]);"""
IN_VIEW = """const box = document.querySelector(".window").getBoundingClientRect();
return [...document.querySelectorAll(".queries .row")].filter((row) => {
  const own = row.getBoundingClientRect();
  return own.top >= box.top + 20 && own.bottom <= box.bottom;
}).map((row) => [Number(row.dataset.query),
  ...[...row.cells].filter((_, place) => place !== 2).map((cell) => cell.textContent)]); // without P(gold)"""
DRAWN = """%s
return [document.querySelectorAll(".queries .row").length, document.querySelector(".window").scrollHeight];"""


def large_answers() -> Any:
    random = np.random.default_rng(8)
    gold = random.integers(0, 3, N_LARGE)
    own = random.normal(-3, 1, (N_LARGE, 3))
    own[np.arange(N_LARGE), gold] += random.exponential(1, N_LARGE)
    runs = {
        ("large", n_shots, number): Run(
            gold.tolist(), (own + random.normal(0, 0.5, own.shape)).tolist(), random.normal(-3, 0.3, 3).tolist()
        )
        for n_shots in (3, 6)
        for number in range(2)
    }
    small = {
        ("small", 2, number): Run(
            [0, 1, 1, 0], [[-1.0, -2.0], [-1.0, -1.5], [-4.0, -0.1], [-np.inf, -1.0]], [-1.5, -1.0 - number]
        )
        for number in range(2)
    }
    return answers(runs | small)


def pvi_run(
    tables: dict[str, pl.DataFrame],
    labels: dict[str, list[str]],
    record: MeasuredRecord | None = None,
    queries: pl.DataFrame | None = None,
) -> MadeRun:
    """The tables as those of a run; each label has the same probability in every answer."""
    texts = PVI_QUERIES.to_frame() if queries is None else queries
    spaces = [{"suite": "pvi", "part": "input", "dataset": name, "label_names": labels[name]} for name in labels]
    names = pl.col("dataset").replace_strict({name: ",".join(labels[name]) for name in labels}).str.split(",")
    answers = (
        tables["pvi"]
        .filter(definition="paper")
        .join(texts.select("dataset", "query_id", query="text"), on=["dataset", "query_id"], how="left")
        .with_columns(
            suite=pl.lit("pvi"),
            part=pl.lit("input"),
            method=pl.when(demonstrations="hardest")
            .then(pl.lit("hardest_demonstrations"))
            .otherwise(pl.lit("vanilla")),
            template=pl.lit(0),
            noise_rate=pl.lit(0.0),
            prompt_id=pl.format("{} {} {} {} {}", *PVI_RUN[:4], "query_id"),
            label_names=names,
            label_probs=names.list.eval(1.0 / pl.len()),
        )
    )

    def table(schema: pl.Schema) -> pl.DataFrame:
        return answers.select(
            (pl.col(name) if name in answers.columns else pl.lit(None).alias(name)).cast(dtype)
            for name, dtype in schema.items()
        )

    record = record or made_record(prompts={"suites": ["pvi"], "datasets": list(labels)})
    return MadeRun(
        record=changed_record(record, measures={"tables": dict.fromkeys(tables, "")}),
        tables={**tables, "label_spaces": pl.DataFrame(spaces, schema=LABEL_SPACES), "metrics": METRICS.to_frame()}
        | {"predictions": table(PREDICTIONS), "queries": table(QUERIES)},
        side_tables={"pvi_queries": texts},
    )


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> MadeRun:
    text = pl.format("premise {}\nhypothesis {}", "query_id", "query_id")
    words = pl.when(pl.col("query_id") % 1000 == 7).then(pl.format("{}\nwith a needle", text)).otherwise(text)
    large = pl.select(query_id=pl.int_range(N_LARGE)).select(dataset=pl.lit("large"), query_id="query_id", text=words)
    small = pl.DataFrame({"query_id": range(4), "text": [EVIL, "x" * 2000, "premise 2\nhypothesis 2", "last"]})
    queries = pl.concat([large, small.select(dataset=pl.lit("small"), query_id="query_id", text="text")])
    queries = queries.with_columns(row="query_id", gold=pl.lit(0), asked=pl.lit(True)).select(
        pl.col(name).cast(dtype) for name, dtype in PVI_QUERIES.items()
    )
    given = [annotations(tmp_path_factory.mktemp("annotations") / "a.parquet")]
    tables = pvi_measures(large_answers(), queries, given)
    prompts = {"suites": ["pvi"], "datasets": ["large", "small"], "shots": "3, 6", "n_shots": None}
    run = made_record(prompts=prompts)
    return pvi_run(tables, LABELS, run, queries)


@pytest.fixture(scope="session")
def pvi_path(report: MadeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_rows, "MAX_NUMBERS", 1_000_000)
        return write_run_page(report, tmp_path_factory.mktemp("pvi") / "report.html")


@pytest.fixture
def page(browser: webdriver.Chrome, pvi_path: Path) -> webdriver.Chrome:
    return with_table(open_fresh(browser, pvi_path))


def with_table(page: webdriver.Chrome) -> webdriver.Chrome:
    """The page with its table of queries unfolded and unpacked."""
    page.execute_script("document.querySelector('.query-table').open = true")
    WebDriverWait(page, 60).until(lambda _: field(page, "count").text)
    return page


def choose_dataset(page: webdriver.Chrome, name: str) -> None:
    Select(field(page, "dataset")).select_by_visible_text(name)
    WebDriverWait(page, 60).until(lambda _: page.execute_script("return dataset.name") == name)


def field(page: webdriver.Chrome, name: str) -> Any:
    return page.find_element(By.CSS_SELECTOR, f".query-search [name={name}]")


def count(page: webdriver.Chrome) -> str:
    return str(field(page, "count").text)


def chosen_run(report: MadeRun, dataset: str = "large", n_shots: int = 3, number: int = 0) -> pl.DataFrame:
    run = {"dataset": dataset, "n_shots": n_shots, "demonstration_set": number, "definition": "paper"}
    return report.tables["pvi"].filter(**run).sort("query_id")


def as_drawn(rows: pl.DataFrame, labels: list[str]) -> list[list[Any]]:
    """query_id, and what the first four cells should say, of rows with `rank`."""
    return [
        [row["query_id"]]
        + (["–", "–"] if row["pvi_bits"] is None else [f"{row['rank']:,}", f"{row['pvi_bits']:.3f}"])
        + [labels[row["gold"]], labels[row["pred"]]]
        for row in rows.to_dicts()
    ]


def test_the_page_opens_without_a_console_message_and_asks_the_network_for_nothing(page: webdriver.Chrome) -> None:
    assert page.get_log("browser") == []
    addresses = addresses_asked_by(page)
    assert page.current_url in addresses
    assert [address for address in addresses if not address.startswith(("file:", "data:"))] == []
    assert page.execute_script("return window.broken") is None


def test_the_summary_holds_every_number_of_its_table(page: webdriver.Chrome, report: MadeRun) -> None:
    named = set(PVI_SUMMARY) - {*PVI_RUN, "n_queries", "n_unpredicted", "ci_low", "ci_high", "threshold_accuracy"}
    named = {name for name in named if not name.endswith(("_tied", "_nats", "_n"))} - {"n_other_token", "seed"}
    expected = {
        (row["definition"], row["dataset"], f"{row['n_shots']} {row['demonstration_set']}"): {
            name: row[name] for name in named if row[name] is not None
        }
        for row in report.tables["pvi_summary"].to_dicts()
    }
    found = {
        (definition, dataset, run): {
            "n_missing": float(missing),
            **{name: float(value) for name, value in numbers.items() if name in named},
        }
        for definition, dataset, run, numbers, missing in page.execute_script(SUMMARY)
    }
    assert found == expected
    assert {definition for definition, *_ in found} == {"paper", "label_space"}


def test_what_the_tables_show_is_rounded_from_them(page: webdriver.Chrome, report: MadeRun) -> None:
    selector = "table[data-table=summary][data-definition=paper] tr[data-run='6 1'] td"
    cells = [cell.text for cell in page.find_elements(By.CSS_SELECTOR, selector)]
    row = (
        report.tables["pvi_summary"]
        .filter(dataset="large", n_shots=6, demonstration_set=1, definition="paper")
        .row(0, named=True)
    )
    assert cells[2] == f"{row['v_information']:.3f}\n{row['ci_low']:.3f}–{row['ci_high']:.3f}"
    assert cells[3:5] == [f"{row['accuracy']:.3f}", f"{row['lowest_fifth_accuracy']:.3f}"]
    assert cells[-2] == f"{row['threshold']:.3f}\n{row['threshold_accuracy']:.3f}"
    assert cells[-1] == "3,000\n0"
    missing = page.find_elements(By.CSS_SELECTOR, "table[data-definition=paper] tr[data-dataset=small] [data-missing]")
    assert [cell.text for cell in missing] == ["4\n1", "4\n1"]


def test_heat_maps_hold_the_correlations_of_their_tables(page: webdriver.Chrome, report: MadeRun) -> None:
    maps = page.find_elements(By.CSS_SELECTOR, "table[data-table=heat-map]")
    titles = [each.find_element(By.TAG_NAME, "caption").text for each in maps]
    assert titles == ["large", "small"]
    cells = maps[0].find_elements(By.CSS_SELECTOR, "td[data-value]")
    assert len(cells) == 12
    shown = sorted(float(cell.get_attribute("data-value")) for cell in cells)
    own = report.tables["pvi_pairs"].filter(dataset="large", definition="paper")["pearson"].to_list()
    assert shown == sorted(own * 2)


def test_densities_and_deciles_are_drawn_for_every_run_with_their_thresholds(
    page: webdriver.Chrome, report: MadeRun
) -> None:
    panels = page.find_elements(By.CSS_SELECTOR, "#densities figure")
    assert len(panels) == 6
    threshold = report.tables["pvi_summary"].filter(
        dataset="large", n_shots=3, demonstration_set=0, definition="paper"
    )["threshold"]
    assert panels[0].find_element(By.TAG_NAME, "figcaption").text.split("\n") == [
        "3-shot, set 0",
        f"at least half are right from {threshold.item():.3f} bits up",
    ]
    own = chosen_run(report)
    described = panels[0].get_attribute("innerHTML")
    assert f"{own['correct'].sum():,} right and {N_LARGE - own['correct'].sum():,} wrong predictions" in described
    lines = page.find_elements(By.CSS_SELECTOR, "#deciles figure [aria-label*='lowest decile']")
    assert len(lines) == 6


def test_the_rows_in_view_are_those_of_the_table_from_the_hardest_up(page: webdriver.Chrome, report: MadeRun) -> None:
    rows = chosen_run(report).with_columns(rank=pl.col("pvi_bits").rank("min")).sort("pvi_bits", "query_id")
    shown = page.execute_script(IN_VIEW)
    assert 8 <= len(shown) <= 20
    assert [row[:5] for row in shown] == as_drawn(rows.head(len(shown)), LABELS["large"])
    assert shown[0][5].startswith(f"premise {shown[0][0]}")
    assert len(page.find_elements(By.CSS_SELECTOR, ".queries .row")) < 50
    assert count(page) == "3,000 of 3,000 queries"


def test_scrolling_to_any_place_shows_the_rows_of_that_place(page: webdriver.Chrome, report: MadeRun) -> None:
    rows = chosen_run(report).with_columns(rank=pl.col("pvi_bits").rank("min")).sort("pvi_bits", "query_id")
    for place in (1500, 2990):
        page.execute_script("document.querySelector('.window').scrollTop = arguments[0] * 48", place)
        page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(() => arguments[0]()))")
        shown = page.execute_script(IN_VIEW)
        first = next(i for i, query in enumerate(rows["query_id"]) if query == shown[0][0])
        assert abs(first - place) <= 12
        assert [row[:5] for row in shown] == as_drawn(rows.slice(first, len(shown)), LABELS["large"])
    assert shown[-1][0] == rows["query_id"][-1]


@pytest.mark.parametrize("column", ["bits", "gold", "pred", "text"])
def test_every_column_sorts_up_then_down(page: webdriver.Chrome, report: MadeRun, column: str) -> None:
    texts = report.side_tables["pvi_queries"].filter(dataset="large")
    frame = chosen_run(report).join(texts, on="query_id").with_columns(
        bits=pl.col("pvi_bits").round(3), text=pl.col("text").str.to_lowercase()
    )  # fmt: skip
    button = page.find_element(By.CSS_SELECTOR, f".queries th[data-column={column}] button")
    for descending in (False, True):
        button.click()
        header = page.find_element(By.CSS_SELECTOR, f".queries th[data-column={column}]")
        assert header.get_attribute("aria-sort") == ("descending" if descending else "ascending")
        expected = frame.sort(column, "query_id", descending=[descending, False])["query_id"]
        shown = [row[0] for row in page.execute_script(IN_VIEW)]
        assert shown == expected.head(len(shown)).to_list()


def test_filters_leave_the_queries_that_pass_all_of_them(page: webdriver.Chrome, report: MadeRun) -> None:
    own = chosen_run(report)
    Select(field(page, "correct")).select_by_visible_text("wrong")
    assert count(page) == f"{(~own['correct']).sum():,} of 3,000 queries"
    Select(field(page, "gold")).select_by_visible_text("1")
    assert count(page) == f"{own.filter(~pl.col('correct'), gold=1).height:,} of 3,000 queries"
    Select(field(page, "pred")).select_by_visible_text("2")
    assert count(page) == f"{own.filter(gold=1, pred=2).height:,} of 3,000 queries"
    for name in ("correct", "gold", "pred"):
        Select(field(page, name)).select_by_index(0)
    field(page, "text").send_keys("NEEDLE")
    assert count(page) == "3 of 3,000 queries"
    assert sorted(row[0] for row in page.execute_script(IN_VIEW)) == [1000 * i + 7 for i in range(3)]
    field(page, "text").send_keys("s and threads")
    assert count(page) == "0 of 3,000 queries"
    assert page.execute_script(IN_VIEW) == []


def test_another_run_and_another_dataset_have_their_own_numbers(page: webdriver.Chrome, report: MadeRun) -> None:
    Select(field(page, "run")).select_by_visible_text("6-shot, set 1")
    rows = chosen_run(report, n_shots=6, number=1).with_columns(rank=pl.col("pvi_bits").rank("min"))
    shown = page.execute_script(IN_VIEW)
    expected = rows.sort("pvi_bits", "query_id").head(len(shown))
    assert [row[:5] for row in shown] == as_drawn(expected, LABELS["large"])
    choose_dataset(page, "small")
    # log P after the query less after the null prompt: -1 + 1.5, -1.5 + 1, -0.1 + 1 nats; the last has none.
    assert [row[:5] for row in page.execute_script(IN_VIEW)] == [
        [1, "1", "-0.721", "yes", "no"],
        [0, "2", "0.721", "no", "no"],
        [2, "3", "1.298", "yes", "yes"],
        [3, "–", "–", "no", "yes"],
    ]
    page.find_element(By.CSS_SELECTOR, ".queries th[data-column=bits] button").click()
    page.find_element(By.CSS_SELECTOR, ".queries th[data-column=bits] button").click()
    assert [row[0] for row in page.execute_script(IN_VIEW)] == [2, 0, 1, 3]


def test_a_chosen_query_is_read_in_full_by_pointer_and_by_keyboard(page: webdriver.Chrome) -> None:
    choose_dataset(page, "small")
    rows = page.find_elements(By.CSS_SELECTOR, ".queries .row")
    rows[1].click()
    detail = page.find_element(By.CSS_SELECTOR, ".detail")
    assert detail.text.startswith("Query 0 of small, gold no\n")
    assert detail.text.endswith(EVIL)
    assert page.execute_script("return window.broken") is None
    rows[0].send_keys(Keys.ENTER)
    assert detail.text.endswith("\n" + "x" * MAX_CHARACTERS + " …")
    assert [row.get_attribute("aria-selected") for row in rows] == ["true", "false", "false", "false"]


@pytest.mark.parametrize(
    ("what", "action"),
    [
        ("sorting by bits", "document.querySelector('.queries th[data-column=bits] button').click();"),
        ("sorting by text", "document.querySelector('.queries th[data-column=text] button').click();"),
        (
            "filtering by text",
            "const field = document.querySelector('.query-search [name=text]'); field.value = 'hypothesis 7';"
            "field.dispatchEvent(new Event('input', {bubbles: true}));",
        ),
        ("changing the run", "const run = document.querySelector('.query-search [name=run]'); run.selectedIndex = 3;"
         "run.dispatchEvent(new Event('change', {bubbles: true}));"),
    ],
)  # fmt: skip
def test_of_thousands_of_rows_only_those_in_view_are_drawn(page: webdriver.Chrome, what: str, action: str) -> None:
    rows, height = page.execute_script(DRAWN % action)
    assert 0 < rows < 100, what
    assert height > 20 * 100, f"{what}: at least a thirtieth of the rows can be scrolled to"


def test_a_page_of_390_pixels_is_as_wide_as_the_screen(narrow: None, page: webdriver.Chrome) -> None:  # noqa: ARG001
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    assert len(page.execute_script(IN_VIEW)) >= 5
    assert page.get_log("browser") == []


def test_another_definition_shows_its_own_tables(page: webdriver.Chrome) -> None:
    visible = """return [...document.querySelectorAll("table[data-table]")].filter((table) => table.checkVisibility())
      .map((table) => `${table.dataset.table} ${table.dataset.definition ?? ""}`.trim());"""
    rest = ["summary", "total-error", "consistency", "repeated-measures", "one-way", "annotators"]
    for definition in ("paper", "label_space"):
        page.find_element(By.CSS_SELECTOR, f"label:has(input[value={definition}])").click()
        shown = [name for name in page.execute_script(visible) if name != "heat-map"]
        assert shown == [f"{name} {definition}" for name in rest]


def test_equal_data_give_equal_bytes(report: MadeRun, pvi_path: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_rows, "MAX_NUMBERS", 1_000_000)
        assert write_run_page(report, tmp_path / "again.html").read_bytes() == pvi_path.read_bytes()


def test_pvi_of_another_program_is_a_row_on_the_page_below_those_of_the_suite(tmp_path: Path) -> None:
    given = answers({("small", 2, 0): Run([0, 1, 1], [[-1.0, -2.0], [-1.0, -3.0], [-2.0, -1.0]], [-1.5, -1.0])})
    texts = pl.DataFrame({"dataset": "small", "query_id": range(3), "row": range(3), "text": ["a", "b", "c"]})
    queries = texts.with_columns(gold=pl.Series([0, 1, 1]), asked=True).cast(dict(PVI_QUERIES))
    (tmp_path / "fine-tuned.csv").write_text("text,pvi\na,0.5\nb,-1\nc,2\n")
    pl.DataFrame({"text": ["a", "b", "c"], "label_count": [[3, 1], [1, 1], [4, 0]]}).write_parquet(
        tmp_path / "a.parquet"
    )
    tables = pvi_measures(given, queries, [tmp_path / "fine-tuned.csv", tmp_path / "a.parquet"])
    sections = {section.anchor: section for section in pvi_sections(pvi_run(tables, {"small": LABELS["small"]}))}
    group = sections["annotators"].content[1]
    assert isinstance(group, Group)
    (table,) = group.content
    assert isinstance(table, Table)
    names = dict.fromkeys(table.rows["set_name"])  # in the order of the page
    assert [*names] == ["random 0", "fine-tuned 0"]


def test_a_run_without_annotations_models_or_other_sets_says_so(browser: webdriver.Chrome, tmp_path: Path) -> None:
    given = answers({("small", 2, 0): Run([0, 1], [[-1.0, -2.0], [-1.0, -2.0]], [-1.5, -1.5])})
    queries = pl.DataFrame(schema=PVI_QUERIES)
    own = pvi_run(pvi_measures(given, queries), {"small": LABELS["small"]})
    page = open_fresh(browser, write_run_page(own, tmp_path / "report.html"))
    assert page.get_log("browser") == []
    body = page.find_element(By.TAG_NAME, "body").text
    assert "Each dataset has only one run, so there is nothing to compare." in body
    assert "text not recorded" in body
    assert "PVI and annotators" not in body
    assert "Demonstrations chosen by PVI" not in body
    assert "random" not in body
    assert count(with_table(page)) == "2 of 2 queries"


def chosen_report() -> MadeRun:
    """One random set of two shots and two hardest ones, of which the table and the choices are made up."""
    random = np.random.default_rng(5)

    def a_run() -> Run:
        return Run([0, 1] * 10, random.normal(-2, 1, (20, 2)).tolist(), random.normal(-2, 1, 2).tolist())

    own = {("small", 2, number): a_run() for number in range(2)}
    hardest = {"hardest_demonstrations": {("small", 2, number): a_run() for number in range(2)}}
    given = answers(own, hardest)
    tables = pvi_measures(given, pl.DataFrame(schema=PVI_QUERIES))
    rows = [
        {
            "dataset": "small",
            "demonstrations": "hardest",
            "n_shots": 2,
            "demonstration_set": number,
            "place": place,
            "row": 30 + place,
        }
        | {"definition": "paper", "training_row": place, "text": f"{EVIL} {number}", "gold": place, "pvi_bits": -1.5}
        for number in range(2)
        for place in range(2)
    ]
    tables["pvi_chosen"] = pl.DataFrame(rows, schema=PVI_CHOSEN)
    counted = pl.col("demonstrations") == "hardest"
    tables["pvi_demonstrations"] = tables["pvi_demonstrations"].with_columns(
        n_candidates=pl.when(counted).then(480), n_training=pl.when(counted).then(8551)
    )
    return pvi_run(tables, LABELS)


def test_chosen_demonstrations_are_shown_beside_the_random_ones(browser: webdriver.Chrome, tmp_path: Path) -> None:
    report = chosen_report()
    page = open_fresh(browser, write_run_page(report, tmp_path / "report.html"))
    assert page.get_log("browser") == []
    assert page.execute_script("return window.broken") is None
    table = report.tables["pvi_demonstrations"].row(by_predicate=pl.col("demonstrations") == "hardest", named=True)
    row = page.find_element(By.CSS_SELECTOR, "table[data-table=demonstrations] tr[data-run='2 hardest']")
    cells = [cell.text.replace("−", "-") for cell in row.find_elements(By.TAG_NAME, "td")]
    assert cells[:3] == ["hardest\n2", "2", "480\n8,551"]
    assert cells[3] == f"{table['accuracy']:.3f}\n20"
    for cell, name in ((cells[4], "accuracy"), (cells[12], "v_information")):
        ends = [table[f"{name}_{end}"] for end in ("low", "high", "two_way_low", "two_way_high")]
        shown = [
            f"{table[f'{name}_difference']:+.3f}",
            *(f"{low:+.3f} to {high:+.3f}" for low, high in (ends[:2], ends[2:])),
        ]
        assert cell.split("\n") == shown
    assert cells[5] == f"{table['best_accuracy']:.3f}\n{table['max_random']:.3f}"
    assert cells[6].split("\n") == [
        {"below both": "○", "between": "◐", "above both": "●"}[table["verdict"]] + f" {table['verdict']}",
        f"{10 ** table['log10_tail']:.3f}",
    ]
    assert cells[7] == f"{table['majority']:.3f}"
    assert cells[8] == f"{'yes' if table['better_than_uniform'] else 'no'}\np {table['p_holm']:.3f}"
    told = "yes" if table["p_majority_holm"] <= 0.05 else "no"
    assert cells[9] == f"{told}\np {table['p_majority_holm']:.3f}"
    assert cells[10] == f"{table['n_needed'] or '–'}\n{table['accuracy_lower_bound']:.3f}"
    own = page.find_element(By.CSS_SELECTOR, "table[data-table=demonstrations] tr[data-run='2 random']")
    assert [cell.text for cell in own.find_elements(By.CSS_SELECTOR, ".absent")] == ["–"] * 3
    listed = page.find_element(By.CSS_SELECTOR, "section#chosen details")
    listed.find_element(By.TAG_NAME, "summary").click()
    assert [title.text for title in listed.find_elements(By.TAG_NAME, "h3")] == [
        "2-shot, hardest 0",
        "2-shot, hardest 1",
    ]
    items = [item.text for item in listed.find_elements(By.TAG_NAME, "li")]
    assert items[1] == f"labelled yes, −1.500 bits, row 31\n{EVIL} 0"
    assert len(items) == 4


def test_runs_are_named_by_their_source_where_there_are_several(browser: webdriver.Chrome, tmp_path: Path) -> None:
    page = open_fresh(browser, write_run_page(chosen_report(), tmp_path / "report.html"))
    expected = ["2-shot, random 0", "2-shot, random 1", "2-shot, hardest 0", "2-shot, hardest 1"]
    with_table(page)
    assert [option.text for option in Select(field(page, "run")).options] == ["set 0", "set 1"]
    methods = [option.text for option in Select(field(page, "method")).options]
    assert methods == ["vanilla", "hardest_demonstrations"]
    panels = page.find_elements(By.CSS_SELECTOR, "#densities figcaption")
    assert [panel.text.split("\n")[0] for panel in panels] == expected
    summary = "table[data-table=summary][data-definition=paper] tbody tr"
    sets = [row.get_attribute("data-run") for row in page.find_elements(By.CSS_SELECTOR, summary)]
    assert sets == ["2 random 0", "2 random 1", "2 hardest 0", "2 hardest 1"]
    maps = page.find_elements(By.CSS_SELECTOR, "table[data-table=heat-map] caption")
    assert [caption.text for caption in maps] == ["small, random", "small, hardest"]
    tested = page.find_elements(By.CSS_SELECTOR, "table[data-table=repeated-measures][data-definition=paper] tbody tr")
    assert [row.text.split()[:3] for row in tested] == [["small", "random", "2"], ["small", "hardest", "2"]]
    legend = page.find_element(By.CSS_SELECTOR, "#deciles .legend")
    assert legend.text.split("\n") == ["random demonstrations", "hardest"]
    assert page.execute_script("return document.documentElement.scrollWidth") <= 1280


def test_a_page_of_random_answers_has_every_dataset(browser: webdriver.Chrome, tmp_path: Path) -> None:
    tables = pvi_measures(random_answers(), pl.DataFrame(schema=PVI_QUERIES))
    labels = {name: list("012") for name in ("a", "b")}
    own = pvi_run(tables, labels)
    page = open_fresh(browser, write_run_page(own, tmp_path / "report.html"))
    assert [option.text for option in Select(field(with_table(page), "dataset")).options] == ["a", "b"]
