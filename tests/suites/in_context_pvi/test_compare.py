"""How far models agree about PVI: what `evaluator compare` leaves of it, shows of it, and refuses."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy import stats
from selenium import webdriver
from selenium.webdriver.common.by import By

from evaluator.compare.gate import Policy
from evaluator.errors import ConfigError, StoreError
from evaluator.progress import finish
from evaluator.run.compare import compare, gate
from evaluator.schemas import PREDICTIONS
from evaluator.store import with_prompt_ids
from evaluator.suites.in_context_pvi.prompts import pvi_prompts, resolved_options
from evaluator.suites.in_context_pvi.schema import PVI_CONSISTENCY, PVI_KEY, PVI_MODELS
from tests.compare.run_folders import predictions, put_table, write_run
from tests.report.reading import addresses_asked_by, open_fresh
from tests.suites.in_context_pvi.pvi_answers import run_table
from tests.suites.in_context_pvi.pvi_config import pvi_config, read_dataset
from tests.suites.in_context_pvi.pvi_folder import write_folder
from tests.suites.in_context_pvi.pvi_run_folders import (
    DEFINITIONS,
    N_QUERIES,
    RUNS,
    asked_of,
    pvi_predictions,
    random_pvi,
    write_pvi_run,
)

Correlations = dict[tuple[str, int, int, str, str], float]
"""dataset, shots, set and the names of two models -> their correlation."""

MODELS = ("org/two", "org/one", "org/three")  # not in the order of the alphabet
SECTION = "section#pvi-models"
CELLS = """return [...document.querySelectorAll("section#pvi-models td.correlation")].map((cell) => {
  const { a, b, value } = cell.dataset;
  return [cell.closest("table").dataset.definition, a, b, Number(value), cell.textContent];
});"""
ROWS = """return [...document.querySelectorAll("table.pvi-models tr:has(td)")].map((row) => [
  row.closest("table").dataset.definition, row.dataset.dataset ?? "all",
  Object.fromEntries([...row.querySelectorAll("td[data-number]")].map(({ dataset }) =>
    [dataset.number, Number(dataset.value)]))]);"""
SHOWN = """return [...document.querySelectorAll("table.pvi-models[data-definition=paper] tbody tr")]
  .filter((row) => row.checkVisibility()).map((row) => row.dataset.dataset);"""


@pytest.fixture(scope="module")
def pvi_of() -> dict[str, pl.DataFrame]:
    return {model: random_pvi(seed) for seed, model in enumerate(MODELS)}


@pytest.fixture(scope="module")
def compared(pvi_of: dict[str, pl.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pvi")
    folders = [
        write_pvi_run(folder / model[4:], model, pvi_predictions(seed), pvi)
        for seed, (model, pvi) in enumerate(pvi_of.items())
    ]
    finish(compare(folders, folder / "out"))
    return folder / "out"


def test_a_gate_of_runs_whose_queries_share_their_sets_names_no_number_of_queries(pvi_of, tmp_path) -> None:
    folders = [
        write_pvi_run(tmp_path / model[4:], model, pvi_predictions(seed), pvi)
        for seed, (model, pvi) in enumerate(pvi_of.items())
    ]
    (check,) = finish(gate(folders[0], folders[1], Policy(margin=0.05))).checks
    assert (check.outcome, check.queries_needed) == ("INCONCLUSIVE", None)
    assert check.reason.endswith("a loss of 0.05, more demonstration sets are needed, too")


@pytest.fixture
def page(browser: webdriver.Chrome, compared: Path) -> webdriver.Chrome:
    return open_fresh(browser, compared / "compare.html")


def two_runs(folder: Path, first: pl.DataFrame | None, second: pl.DataFrame | None) -> list[Path]:
    """Two models with these tables/pvi.parquet; None: without."""
    return [
        write_pvi_run(folder / "one", "org/one", pvi_predictions(1), first),
        write_pvi_run(folder / "two", "org/two", pvi_predictions(2), second),
    ]


def by_scipy(pvi_of: dict[str, pl.DataFrame], definition: str, coefficient: str) -> Correlations:
    """One run and two models at a time."""
    correlate = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}[coefficient]
    found = {}
    for dataset, runs in RUNS.items():
        for n_shots, number in runs:
            run = {"dataset": dataset, "n_shots": n_shots, "demonstration_set": number, "definition": definition}
            values = {model: pvi.filter(**run).sort("query_id")["pvi_bits"][1:] for model, pvi in pvi_of.items()}
            for pair in combinations(MODELS, 2):
                r = correlate(*(values[model].to_numpy() for model in pair)).statistic
                found[(dataset, n_shots, number, *pair)] = r
    return found


def strengths(cases: list[float]) -> list[float]:
    return [float(np.mean(cases)), float(np.mean(np.array(cases) > 0.6)), float(np.mean(np.array(cases) < 0.3))]


def cases_of(correlations: Correlations, datasets: list[str]) -> list[float]:
    """The mean over pairs of models of every run."""
    runs = [(dataset, *run) for dataset in datasets for run in RUNS[dataset]]
    return [float(np.mean([r for key, r in correlations.items() if key[:3] == run])) for run in runs]


def test_every_two_models_are_correlated_run_by_run_as_by_scipy(
    compared: Path, pvi_of: dict[str, pl.DataFrame]
) -> None:
    found = pl.read_parquet(compared / "tables" / "pvi_models.parquet")
    assert found.schema == PVI_MODELS
    assert found.height == 2 * 8 * 3
    assert found["n"].unique().to_list() == [N_QUERIES - 1]
    for definition in DEFINITIONS:
        for coefficient in ("pearson", "spearman"):
            for (dataset, n_shots, number, *pair), r in by_scipy(pvi_of, definition, coefficient).items():
                first, second = sorted(pair)
                run = {"dataset": dataset, "n_shots": n_shots, "demonstration_set": number, "definition": definition}
                assert found.filter(**run, first=first, second=second)[coefficient].item() == pytest.approx(r)


def test_the_consistency_is_that_across_models_alone(compared: Path, pvi_of: dict[str, pl.DataFrame]) -> None:
    found = pl.read_parquet(compared / "tables" / "pvi_consistency.parquet")
    assert found.schema == PVI_CONSISTENCY
    assert found["across"].to_list() == ["models"] * 4
    for row in found.to_dicts():
        cases = cases_of(by_scipy(pvi_of, row["definition"], row["coefficient"]), list(RUNS))
        assert row["n"] == 8
        assert [row["mean"], row["strong_share"], row["weak_share"]] == pytest.approx(strengths(cases))
        assert row["median"] == pytest.approx(np.median(cases))


def test_the_triangle_has_the_mean_correlation_of_every_two_models_under_each_definition(
    page: webdriver.Chrome, pvi_of: dict[str, pl.DataFrame], compared: Path
) -> None:
    cells = {(definition, a, b): (value, text) for definition, a, b, value, text in page.execute_script(CELLS)}
    assert list(cells) == [
        (definition, *pair) for definition in DEFINITIONS for pair in (MODELS[:2], (MODELS[0], MODELS[2]), MODELS[1:])
    ]
    table = pl.read_parquet(compared / "tables" / "pvi_models.parquet")
    for (definition, a, b), (value, text) in cells.items():
        first, second = sorted((a, b))
        own = table.filter(definition=definition, first=first, second=second)["pearson"]
        assert own.len() == 8
        assert value == pytest.approx(np.mean(own.to_list()))
        expected = [r for key, r in by_scipy(pvi_of, definition, "pearson").items() if key[3:] == (a, b)]
        assert value == pytest.approx(np.mean(expected))
        assert text == f"{value:+.2f}".replace("-", "−")


def test_the_rows_by_dataset_have_both_coefficients_with_their_shares(
    page: webdriver.Chrome, pvi_of: dict[str, pl.DataFrame]
) -> None:
    rows = page.execute_script(ROWS)
    assert [row[:2] for row in rows] == [[name, own] for name in DEFINITIONS for own in ("zoo", "abc", "all")]
    for definition, dataset, numbers in rows:
        datasets = list(RUNS) if dataset == "all" else [dataset]
        assert numbers.pop("pearson n") == 4 * len(datasets)
        for coefficient in ("pearson", "spearman"):
            shown = [numbers.pop(f"{coefficient} {name}") for name in ("mean", "strong_share", "weak_share")]
            assert shown == pytest.approx(strengths(cases_of(by_scipy(pvi_of, definition, coefficient), datasets)))
        assert numbers == {}


def test_the_page_is_quiet_and_its_rows_follow_the_choice_of_datasets(page: webdriver.Chrome) -> None:
    assert page.get_log("browser") == []
    assert [one for one in addresses_asked_by(page) if not one.startswith(("file:", "data:"))] == []
    assert page.execute_script(SHOWN) == ["zoo", "abc"]
    page.execute_script("document.querySelector('input[name=dataset][value=zoo]').click()")
    assert page.execute_script(SHOWN) == ["abc"]
    page.find_element(By.CSS_SELECTOR, "label:has(input[value=released])").click()
    assert page.find_element(By.CSS_SELECTOR, SECTION).is_displayed()


def test_shares_and_means_worked_by_hand(tmp_path: Path) -> None:
    # Set 0: 1 2 3 beside 2 4 6, r = 1. Set 1: 1 2 3 beside 3 1 2, r = -1/2; deviations -1 0 1 and 1 -1 0, so that
    # r = -1 / sqrt(2 x 2). Mean 1/4; one of two above 0.6, one below 0.3. Ranks are the same numbers or half of them.
    values = {"one": ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), "two": ([2.0, 4.0, 6.0], [3.0, 1.0, 2.0])}
    tables = [
        pl.concat(
            [run_table(own, [True] * 3, dataset="zoo", demonstration_set=number) for number, own in enumerate(sets)]
        )
        for sets in values.values()
    ]
    finish(compare(two_runs(tmp_path, *tables), tmp_path / "out"))
    found = pl.read_parquet(tmp_path / "out" / "tables" / "pvi_consistency.parquet")
    columns = ("coefficient", "n", "mean", "strong_share", "weak_share")
    assert found.select(columns).rows() == [
        (name, 2, pytest.approx(0.25), 0.5, 0.5) for name in ("pearson", "spearman")
    ]


def test_demonstrations_chosen_by_pvi_are_counted_apart_and_left_off_the_page(
    pvi_of: dict[str, pl.DataFrame], compared: Path, tmp_path: Path
) -> None:
    chosen = {
        model: pl.concat([pvi, random_pvi(seed + 7).with_columns(demonstrations=pl.lit("hardest"))]).sort(PVI_KEY)
        for seed, (model, pvi) in enumerate(pvi_of.items())
    }
    folders = [
        write_pvi_run(tmp_path / model[4:], model, pvi_predictions(seed), pvi)
        for seed, (model, pvi) in enumerate(chosen.items())
    ]
    finish(compare(folders, tmp_path / "out"))
    for name in ("pvi_models", "pvi_consistency"):
        found = pl.read_parquet(tmp_path / "out" / "tables" / f"{name}.parquet")
        alone = pl.read_parquet(compared / "tables" / f"{name}.parquet")
        assert_frame_equal(found.filter(demonstrations="random"), alone)
        assert found.filter(demonstrations="hardest").height == alone.height
    pages = [(out / "compare.html").read_text() for out in (compared, tmp_path / "out")]
    sections = [page[page.index('id="pvi-models"') :].split("</section>")[0] for page in pages]
    assert sections[0] == sections[1]


def test_a_correlation_that_is_undefined_in_every_run_is_no_number(browser: webdriver.Chrome, tmp_path: Path) -> None:
    tables = [run_table(own, [True] * 3, dataset="zoo") for own in ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])]
    page = open_fresh(browser, finish(compare(two_runs(tmp_path, *tables), tmp_path / "out")).page)
    text = page.find_element(By.CSS_SELECTOR, SECTION).text
    assert "No correlation between models: undefined in every run." in text
    assert "1 undefined" in text


def test_only_what_all_runs_have_is_compared(tmp_path: Path) -> None:
    tables = [random_pvi(1, (*DEFINITIONS, "released")), random_pvi(2).filter(~pl.col("demonstration_set").eq(1))]
    finish(compare(two_runs(tmp_path, *tables), tmp_path / "out"))
    found = pl.read_parquet(tmp_path / "out" / "tables" / "pvi_models.parquet")
    assert found["definition"].unique().sort().to_list() == ["label_space", "paper"]
    assert found["demonstration_set"].unique().to_list() == [0]


def test_a_run_without_its_table_is_refused_with_what_to_run_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"two/tables/pvi.parquet is not there. Run `evaluator measure .*two`"):
        finish(compare(two_runs(tmp_path, random_pvi(1), None), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_runs_of_other_suites_have_no_section_whatever_an_earlier_run_left(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / name, f"org/{name}", predictions(0.5, seed=seed, datasets=["zoo"]))
        for seed, name in enumerate(("one", "two"))
    ]
    before = finish(compare(folders, tmp_path / "before")).page.read_bytes()
    for seed, folder in enumerate(folders):
        random_pvi(seed).write_parquet(folder / "tables" / "pvi.parquet")
    after = finish(compare(folders, tmp_path / "after")).page.read_bytes()
    assert after == before
    assert b"pvi" not in after.lower()


@pytest.mark.parametrize("place", [2, 3], ids=["demonstration set", "query"])
def test_runs_with_another_demonstration_set_or_other_queries_are_refused(tmp_path: Path, place: int) -> None:
    def other(*asked: object) -> str:
        return asked_of(*asked, "changed" if asked[place] == 1 else "")

    def same(*asked: object) -> str:
        return asked_of(*asked, "")

    folders = [
        write_pvi_run(tmp_path / "one", "org/one", pvi_predictions(1, same), random_pvi(1)),
        write_pvi_run(tmp_path / "two", "org/two", pvi_predictions(2, other), random_pvi(2)),
    ]
    # One of two sets, or one of twelve queries, of 2 x 4 runs.
    n_changed = {2: 48, 3: 8}[place]
    with pytest.raises(ConfigError, match=f"have different prompts: {n_changed} of 96, "):
        finish(compare(folders, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def real_predictions(folder: Path, options: dict[str, Any]) -> pl.DataFrame:
    """What the suite asks of SNLI under these options, all of it answered with label 0."""
    config = pvi_config(folder, **({"sets": 2} | options))
    requests = pl.concat(pvi_prompts(read_dataset(config), resolved_options(config), None).rows)
    asked = with_prompt_ids(requests).filter(part="input")
    said = {"suite": "pvi", "method": "vanilla", "definition": "paper", "pred": 0}
    answered = asked.with_columns(**{name: pl.lit(value) for name, value in said.items()}, label_probs=[0.5, 0.3, 0.2])
    return answered.select(pl.col(name).cast(dtype) for name, dtype in PREDICTIONS.items())


@pytest.mark.parametrize("changed", [{"seed": 43}, {"sets": 3}, {"source": "published"}])
def test_what_the_suite_asks_under_other_options_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    (tmp_path / "data").mkdir()
    data = write_folder(tmp_path / "data")
    folders = [
        write_pvi_run(tmp_path / name, f"org/{name}", real_predictions(data, options), random_pvi(1))
        for name, options in (("one", {}), ("two", changed), ("three", {}))
    ]
    with pytest.raises(ConfigError, match=r"have different (prompts|queries)"):
        finish(compare(folders[:2], tmp_path / "out"))
    finish(compare([folders[0], folders[2]], tmp_path / "out"))


def test_a_comparison_is_not_written_over_the_tables_of_a_run(tmp_path: Path) -> None:
    folders = two_runs(tmp_path, random_pvi(1), random_pvi(2))
    put_table(folders[0], "pvi_consistency", PVI_CONSISTENCY.to_frame())
    before = (folders[0] / "tables" / "pvi_consistency.parquet").read_bytes()
    with pytest.raises(ConfigError, match=r"one holds a finished run, .* Choose another --out"):
        finish(compare(folders, folders[0]))
    assert (folders[0] / "tables" / "pvi_consistency.parquet").read_bytes() == before
