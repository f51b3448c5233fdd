"""Where a run stands among the models that the StaICC paper published."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm

from evaluator.compare.schema import DIFFERENCES
from evaluator.datasets import SOURCES
from evaluator.record import ChatRecord, MeasuredRecord, measured_record
from evaluator.report.section import List
from evaluator.schemas import METRICS
from evaluator.suites.staicc.published import figure_points, published_results
from evaluator.suites.staicc.standing import (
    differing_settings,
    neighbours,
    published_sections,
    standing_lines,
    standings,
)
from tests.report.made_record import run_record
from tests.report.made_run import MadeRun

SIZE = 8_030_000_000
VALUES = {"accuracy": 0.66, "true_label_probability": 0.61, "gler": 0.5, "gler_toolkit_axis": 0.07}
CHAT = ChatRecord(
    template="auto", sha256="", demonstrations="turns", system_instruction=None, thinking="off", date="2026-01-01"
)


def record(**changed: dict[str, Any]) -> MeasuredRecord:
    sections: dict[str, dict[str, Any]] = {"model": {"name": "mine", "n_parameters": SIZE}}
    sections |= {section: sections.get(section, {}) | entries for section, entries in changed.items()}
    return measured_record(run_record({}, **sections), "run")


def metrics(
    datasets: tuple[str, ...] = (*SOURCES, "mean"), definitions: tuple[str, ...] = ("published", "paper")
) -> pl.DataFrame:
    rows = [
        {"suite": "staicc-normal", "part": "gler" if metric.startswith("gler") else "normal", "dataset": dataset}
        | {"method": "vanilla", "metric": metric, "definition": definition}
        | {"value": value, "ci_low": value - 0.02, "ci_high": value + 0.02}
        for dataset in datasets
        for definition in definitions
        for metric, value in VALUES.items()
    ]
    return pl.DataFrame(rows, schema=METRICS)


def differences() -> pl.DataFrame:
    about = {"suite": "staicc-normal", "part": "normal", "dataset": "mean", "metric": "accuracy"}
    about |= {"definition": "published", "model_a": "mine", "model_b": "mine", "method_b": "vanilla"}
    row = about | {"method_a": "topk", "difference": 0.1, "ci_low": 0.08, "ci_high": 0.12}
    return pl.DataFrame([row], schema=DIFFERENCES)


def made(measured: pl.DataFrame | None = None, **changed: dict[str, Any]) -> MadeRun:
    tables = {"metrics": metrics() if measured is None else measured, "method_differences": differences()}
    return MadeRun(record=record(**changed), tables=tables)


def test_a_run_stands_in_each_figure_with_its_own_interval_and_the_prediction_of_statsmodels() -> None:
    placed = standings(made())
    assert placed.select("figure", "method", "metric", "value", "ci_low").rows() == [
        (4, "vanilla", "accuracy", 0.66, pytest.approx(0.64)),
        (4, "vanilla", "true_label_probability", 0.61, pytest.approx(0.59)),
        (5, "topk", "accuracy", 0.1, 0.08),
        (7, "vanilla", "gler", 0.07, pytest.approx(0.05)),
    ]
    for row in placed.iter_rows(named=True):
        points = figure_points().filter(**{name: row[name] for name in ("figure", "method", "metric")})
        fit = sm.OLS(points["value"].to_numpy(), sm.add_constant(points["x"].to_numpy())).fit()
        at = fit.get_prediction(np.array([[1.0, np.log10(SIZE)]]))
        wanted = (at.predicted_mean[0], *at.conf_int(obs=True)[0])
        assert (row["expected"], row["low"], row["high"]) == pytest.approx(wanted, abs=1e-9)


def test_the_text_says_what_is_usual_at_the_size_and_names_the_nearest_models() -> None:
    (line,) = standing_lines(made())
    assert "accuracy 0.66, models of 8 B: 0.49 to 0.68" in line
    assert line.endswith("Nearest in size, by accuracy: Llama 3 8B 0.64, Qwen 7B 0.58, Qwen2 7B 0.61.")
    low = metrics().with_columns(pl.col("value") - 0.4)
    assert "accuracy 0.26, models of 8 B: 0.49 to 0.68 (not usual at this size)" in next(standing_lines(made(low)))


def test_neighbours_are_the_nearest_in_size_with_the_best_of_their_printed_methods() -> None:
    nearest = neighbours(SIZE)
    sizes = published_results().select("model", "n_parameters").unique()
    distance = np.abs(np.log10(sizes["n_parameters"].to_numpy()) - np.log10(SIZE))
    assert {*nearest["model"].head(4)} == {
        sizes["model"][int(place)] for place in np.argsort(distance)[:4]
    }  # the fifth ties
    assert nearest.row(0, named=True) == {
        "model": "Llama 3 8B", "n_parameters": 8_000_000_000, "accuracy": 0.6442, "true_label_probability": 0.5872,
        "best_method": "sa_icl", "best_accuracy": pytest.approx(0.7713), "n_methods": 10,
    }  # fmt: skip
    # 35 M is half of 70 M and 2.5 times 14 M.
    assert neighbours(35_000_000)["n_parameters"][0] == 70_000_000


def test_a_gain_is_the_accuracy_of_a_method_less_that_of_vanilla() -> None:
    printed = published_results().filter(metric="accuracy")
    accuracy = {(model, method): value for model, method, value in printed.select("model", "method", "value").rows()}
    gains = figure_points().filter(figure=5)
    assert "vanilla" not in gains["method"]
    found = {(model, method): value for model, method, value in gains.select("model", "method", "value").rows()}
    of_llama = {method: value for (model, method), value in found.items() if model == "Llama 3 8B"}
    assert of_llama["sa_icl"] == pytest.approx(0.7713 - 0.6442)
    assert found == pytest.approx({key: accuracy[key] - accuracy[key[0], "vanilla"] for key in found})


@pytest.mark.parametrize(
    ("measured", "changed", "settings"),
    [
        (None, {"prompts": {"n_queries": 64}}, "64 queries of each dataset, not 512"),
        (None, {"prompts": {"n_shots": 8, "shots": "8"}}, "shots 8, not 4"),
        (None, {"prompts": {"definitions": ["paper"]}}, "without definition published"),
        (None, {"prompts": {"config": {"data": {"paths": ["mine.csv"]}}}}, "own data or templates"),
        (None, {"scores": {"chat": CHAT}}, "its chat template, demonstrations as turns, not plain prompts"),
        (None, {"scores": {"label_boundary": "merged"}}, "labels merged, not separate"),
        (None, {"model": {"kind": "imported"}}, "answers from elsewhere"),
        (None, {"model": {"n_parameters": None}}, "number of parameters not known"),
        (metrics((*SOURCES, "zoo", "mean")), {}, "also zoo"),
        (metrics((*[*SOURCES][1:], "mean")), {}, "without glue_sst2"),
    ],
)
def test_a_run_with_other_settings_is_not_compared_and_the_page_lists_them(
    measured: pl.DataFrame | None, changed: dict[str, dict[str, Any]], settings: str
) -> None:
    run = made(measured, **changed)
    assert differing_settings(run.record, run.table("metrics")) == [settings]
    assert [*standing_lines(run)] == []
    (section,) = published_sections([(run, "", "mine")])
    assert section is not None
    assert section.content[1:] == [List([f"mine: {settings}."])]
    assert not section.navigation


def test_a_run_without_published_measures_has_no_section() -> None:
    assert not [*published_sections([(made(metrics().filter(pl.col("metric") == "none")), "", "mine")])]


def test_a_run_that_stopped_early_is_not_compared() -> None:
    stopped = replace(record(), measures=replace(record().measures, is_stopped=True))
    assert differing_settings(stopped, metrics()) == ["stopped before its last query"]


def test_512_queries_are_all_of_them() -> None:
    run = made(**{"prompts": {"n_queries": 512}})
    assert differing_settings(run.record, run.table("metrics")) == []


def test_a_section_of_several_runs_has_all_of_them_in_each_figure() -> None:
    other = made()
    other = other.but(record=replace(other.record, model=replace(other.record.model, n_parameters=10**8)))
    (section,) = published_sections([(made(), "1", "mine"), (other, "2", "small")])
    assert section is not None
    drawings = [
        panel.drawings[0].csv for block in section.content if hasattr(block, "panels") for panel in block.panels
    ]
    assert len(drawings) == 2
    assert all("mine" in csv and "small" in csv and "Llama 3 8B" in csv for csv in drawings)
