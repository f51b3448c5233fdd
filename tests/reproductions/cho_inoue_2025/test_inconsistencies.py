"""What printed tables say against each other: found in the paper's tables, and in tables with drawn errors."""

import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evaluator.reproductions.cho_inoue_2025.inconsistencies import UNEXPLAINED, _equal_values, findings, judged_cells
from evaluator.suites.staicc.published import printed_tables

METHODS = ("Vanilla ICL", "Noisy Channel", "k-NN")
MEASURES = ("Accuracy", "ATL", "F1", "ECE-1")


def sound_tables(seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return an appendix with distinct values, and tables 2 and 3 that agree with it."""
    appendix, main = printed_tables()
    rng = np.random.default_rng(seed)
    models = appendix.select("order", "model", "parameters_b", "instruct", "awq").unique().sort("order")
    rows = [(8, method, measure) for method in METHODS for measure in MEASURES]
    rows += [(7, None, name) for name in ("Contextual Bias", "Template Robust.", "GLER")]
    # No two cells of the appendix are equal to four decimals, nor to two in percent.
    values = (1000 + 7 * rng.permutation(len(rows) * models.height)) / 10_000
    cells = [(*row, *model) for row in rows for model in models.rows()]
    appendix = pl.DataFrame(
        [(*cell, value) for cell, value in zip(cells, values, strict=True)],
        schema=["table", "method", "measure", "order", "model", "parameters_b", "instruct", "awq", "value"],
        orient="row",
    )
    main = main.join(appendix.drop("table", "value"), on=["model", "method", "measure"], how="semi", nulls_equal=True)
    factors = pl.when(pl.col("measure") == "Contextual Bias").then(1.0).when(pl.col("measure") == "GLER").then(10.0)
    joined = main.join(
        appendix.select("model", "method", "measure", v="value"), on=["model", "method", "measure"], nulls_equal=True
    )
    return appendix, joined.with_columns(value=(pl.col("v") * factors.otherwise(100.0)).round(4)).drop("v")


def kinds(main: pl.DataFrame, appendix: pl.DataFrame) -> list[str]:
    # Star, name and caption are headings of the paper itself, which these tables leave as they are.
    return [kind for kind in findings(main, appendix)["kind"] if kind not in ("heading", "caption", "unit")]


def changed(frame: pl.DataFrame, value: float, **place: object) -> pl.DataFrame:
    is_cell = pl.all_horizontal(pl.col(name).eq_missing(pl.lit(wanted)) for name, wanted in place.items())
    assert frame.filter(is_cell).height == 1
    return frame.with_columns(pl.when(is_cell).then(value).otherwise("value").alias("value"))


def value_of(frame: pl.DataFrame, **place: object) -> float:
    value: float = frame.filter(**place)["value"].item()
    return value


few = settings(max_examples=6)  # each error is found in every example
SEEDS = st.integers(0, 2**16)
MODELS = printed_tables()[1]["model"].unique(maintain_order=True).to_list()


@given(SEEDS)
def test_tables_that_agree_have_no_finding_but_their_units(seed: int) -> None:
    appendix, main = sound_tables(seed)
    assert kinds(main, appendix) == []
    units = findings(main, appendix).filter(kind="unit")
    assert sorted(units["cause"]) == ["percent in place of shares"] * 2 + ["the slope is divided by 0.1"]


@few
@given(SEEDS, st.permutations(MODELS), st.sampled_from(METHODS))
def test_exchanged_cells_are_found_with_the_columns_that_they_belong_to(
    seed: int, models: list[str], method: str
) -> None:
    appendix, main = sound_tables(seed)
    first, second = models[:2]
    of = {"method": method, "measure": "Accuracy", "table": 2}
    values = [value_of(main, model=model, **of) for model in (first, second)]
    main = changed(changed(main, values[1], model=first, **of), values[0], model=second, **of)
    found = findings(main, appendix).filter(kind="cell")
    assert dict(zip(found["place"], found["cause"], strict=True)) == {
        f"{method}, Accuracy, {first}": f"the value of another column: {second}",
        f"{method}, Accuracy, {second}": f"the value of another column: {first}",
    }


@few
@given(SEEDS, st.sampled_from(MODELS), st.permutations(METHODS))
def test_the_value_of_another_row_is_found(seed: int, model: str, methods: list[str]) -> None:
    appendix, main = sound_tables(seed)
    place = {"model": model, "measure": "Accuracy", "table": 2}
    other = value_of(main, method=methods[1], **place)
    found = findings(changed(main, other, method=methods[0], **place), appendix).filter(kind="cell")
    assert found["cause"].to_list() == [f"the value of another row: {methods[1]}, Accuracy"]


@few
@given(SEEDS, st.sampled_from(MODELS), st.sampled_from(METHODS))
def test_a_cell_that_is_nowhere_else_is_unexplained(seed: int, model: str, method: str) -> None:
    appendix, main = sound_tables(seed)
    place = {"model": model, "measure": "Accuracy", "table": 2, "method": method}
    found = findings(changed(main, 99.99, **place), appendix).filter(kind="cell")
    assert found["cause"].to_list() == [UNEXPLAINED]


@few
@given(SEEDS, st.sampled_from(MODELS))
def test_digits_that_were_cut_are_told_from_rounded_ones(seed: int, model: str) -> None:
    appendix, main = sound_tables(seed)
    appendix = appendix.with_columns((pl.col("value") + 0.00006).round(5))  # 0.66 of a unit of table 2
    place = {"method": None, "measure": "GLER"}
    main = main.filter(pl.col("measure") == "GLER").with_columns(pl.col("value").round(2))
    cut = value_of(appendix, model=model, measure="GLER")
    appendix = changed(appendix, round(float(np.floor(cut * 1000) / 1000) + 0.0008, 4), model=model, **place)
    shown = float(np.floor(cut * 1000) / 100)
    cells = judged_cells(changed(main, shown, model=model, **place), appendix).filter(column=model)
    assert cells["verdict"].to_list() == ["differs"]
    assert cells["note"].to_list() == ["the digits were cut, not rounded"]


@few
@given(SEEDS, st.permutations(printed_tables()[0]["model"].unique(maintain_order=True).to_list()))
def test_a_block_that_was_printed_for_two_models_is_found(seed: int, models: list[str]) -> None:
    appendix, main = sound_tables(seed)
    source, target = models[:2]
    for measure in MEASURES:
        of = {"method": "Noisy Channel", "measure": measure}
        appendix = changed(appendix, value_of(appendix, model=source, **of), model=target, **of)
    found = findings(main, appendix).filter(kind="block")
    assert found.height == 1
    assert {*found["place"][0].split(", ")} == {source, target}
    assert "same values in 4 rows of Noisy Channel" in found["finding"][0]
    parameters = dict(appendix.select("model", "parameters_b").iter_rows())
    assert (found["cause"][0] == UNEXPLAINED) == (parameters[source] != parameters[target])
    assert kinds(main, appendix).count("equal values") == 0


@few
@given(SEEDS, st.sampled_from([0.01, 0.1, 10.0]), st.just("Contextual Bias"))
@example(0, 10.0, "Template Robust.")  # in percent, which explains a factor of 100 alone
def test_a_row_in_another_unit_is_found(seed: int, factor: float, measure: str) -> None:
    appendix, main = sound_tables(seed)
    value = pl.when(pl.col("measure") == measure).then(pl.col("value") * factor).otherwise("value")
    units = findings(main.with_columns(value.alias("value")), appendix).filter(kind="unit", place=measure)
    assert units["cause"].to_list() == [UNEXPLAINED]
    assert f"prints {factor * (100 if measure == 'Template Robust.' else 1):g} times" in units["finding"][0]


@few
@given(SEEDS, st.sampled_from(MODELS), st.sampled_from([10.0, 0.1]))
def test_a_single_cell_in_another_unit_is_found(seed: int, model: str, factor: float) -> None:
    appendix, main = sound_tables(seed)
    place = {"model": model, "measure": "GLER", "table": 3, "method": None}
    value = value_of(main.with_columns(pl.col("method").fill_null("")), **place | {"method": ""})
    found = findings(changed(main, round(value * factor, 6), **place), appendix).filter(kind="cell")
    assert found["cause"].to_list() == [f"another unit: {factor:g} times the value"]


@few
@given(SEEDS, st.sampled_from(MODELS))
def test_a_share_that_is_printed_as_percent_among_shares_is_found(seed: int, model: str) -> None:
    appendix, main = sound_tables(seed)
    row = appendix.filter(method="k-NN", measure="F1").with_columns(value=0.4 + pl.col("order") / 1000)
    appendix = pl.concat([appendix.filter(pl.col("method").ne_missing("k-NN")), row.cast(appendix.schema)])
    place = {"method": "k-NN", "measure": "F1", "model": model}
    changed_appendix = changed(appendix, 100 * value_of(appendix, **place), **place)
    found = findings(main.filter(pl.col("method").ne_missing("k-NN")), changed_appendix).filter(kind="unit")
    assert f"k-NN, F1, {model}" in found["place"].to_list()


def test_equal_values_are_called_chance_as_often_as_the_level_says() -> None:
    appendix, main = sound_tables(0)
    rng = np.random.default_rng(1)
    called = []
    for _ in range(12):
        drawn = appendix.with_columns(value=pl.Series(rng.normal(0.5, 0.002, appendix.height).round(4)))
        found = findings(main, drawn).filter(pl.col("finding").str.contains("columns"), kind="equal values", table="8")
        called += [UNEXPLAINED in cause for cause in found["cause"]]
    assert len(called) > 100
    assert np.mean(called) < 0.1  # of the groups with equal values: neighbours, and other columns


def test_the_papers_tables_contradict_each_other_in_these_places() -> None:
    appendix, main = printed_tables()
    found = findings(main, appendix)
    cells = found.filter(kind="cell")
    assert dict(zip(cells["place"], cells["cause"], strict=True)) == {
        "Batch Calibration, Accuracy, OPT 2.7B": UNEXPLAINED,
        "k-NN, Accuracy, GPT-2 1.6B": "the value of another column: Llama 2 7B",
        "k-NN, Accuracy, OPT 2.7B": "the value of another column: GPT-2 1.6B",
        "k-NN, Accuracy, Llama 2 7B": "the value of another column: OPT 2.7B",
        "GLER, GPT-2 1.6B": "the value of another column: GPT-2 380M or Pythia 160M",
        "GLER, Qwen2 72B Instruct AWQ": "the digits were cut, not rounded",
    }
    assert found.filter(kind="block")["place"].to_list() == [
        "OPT 2.7B, GPT-Neo 2.7B",
        "OPT 2.7B, GPT-Neo 2.7B",
        "OPT 1.3B, GPT-Neo 1.3B",
    ]
    headed = [cause.partition(", and one repeats the other")[0] for cause in found.filter(kind="block")["cause"]]
    assert headed == [f"both columns are headed {size} B" for size in ("2.7", "2.7", "1.3")]
    assert found.filter(kind="heading")["place"].to_list() == ["Qwen2 7B Instruct", "Qwen 7B", "Llama 2 34B AWQ"]
    assert found.filter(kind="caption").height == 1
    cells = judged_cells(main, appendix)
    assert cells.filter(verdict="not in the data").height == 24
    assert 0.00005 in cells["input_reach"].round(12).to_list()  # of four decimals, in the appendix's own unit


def test_the_order_of_findings_does_not_depend_on_the_hashes_of_texts() -> None:
    program = (
        "from evaluator.reproductions.cho_inoue_2025.inconsistencies import findings\n"
        "from evaluator.suites.staicc.published import printed_tables\n"
        "appendix, main = printed_tables()\n"
        "print(findings(main, appendix).write_csv())"
    )
    outputs = [
        subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True)
        for seed in ("1", "2")
    ]
    assert len(outputs[0].stdout) > 1000, outputs[0].stderr
    assert outputs[0].stdout == outputs[1].stdout


@pytest.mark.parametrize(("is_neighbour", "expected"), [(True, "0.4"), (False, "1")])
def test_equal_values_are_expected_in_pairs_of_neighbours_or_in_all_pairs(is_neighbour: bool, expected: str) -> None:
    # Of five models four pairs are neighbours, and ten are pairs; each is equal with a probability of 0.1.
    about = {"table": 7, "name": "accuracy", "is_block": False, "n_models": 5, "chance": 0.1, "value": 0.5}
    pairs = pl.DataFrame([about | {"is_neighbour": is_neighbour, "model": "a", "model_b": "b"}])
    ((*_, cause),) = _equal_values(pairs)
    assert cause == f"chance, of which {expected} are expected"
