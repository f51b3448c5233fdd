"""Runs that do not compare are refused, with what to do; what is only to be known is said."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evaluator.compare.results import comparison_notes, comparison_table, request_results
from evaluator.errors import ConfigError, StoreError
from evaluator.files.json_files import write_record
from evaluator.run.compare import read_runs
from evaluator.run.folders import RUN_FILE, read_run
from tests.compare.run_folders import predictions, put_table, write_run

ANSWERS = predictions(0.5, seed=1, datasets=["zoo"], methods=["vanilla"])


def two_runs(folder: Path, **changed: dict[str, Any]) -> list[Path]:
    """The second of them changed."""
    return [
        write_run(folder / "first", "acme/tiny", ANSWERS),
        write_run(folder / "second", "acme/mid", ANSWERS, **changed),
    ]


def notes_of(folders: list[Path]) -> list[str]:
    runs = read_runs(folders)
    return comparison_notes(runs, comparison_table(runs))


def test_runs_keep_their_order_and_are_numbered_from_one(run_folders: list[Path]) -> None:
    runs = read_runs([run_folders[2], run_folders[0]])
    assert [(run.number, run.model, run.name, run.record.model.n_parameters) for run in runs] == [
        (1, "acme/mid", "mid", 10**8),
        (2, "acme/tiny", "tiny", 10**6),
    ]


def test_one_run_is_no_comparison(run_folders: list[Path]) -> None:
    with pytest.raises(ConfigError, match="takes two runs or more, got 1"):
        read_runs(run_folders[:1])


def test_a_folder_without_a_run_or_without_metrics_is_refused(tmp_path: Path, run_folders: list[Path]) -> None:
    with pytest.raises(StoreError, match="holds no run"):
        read_runs([run_folders[0], tmp_path])
    folders = two_runs(tmp_path)
    (folders[1] / "tables" / "metrics.parquet").unlink()
    with pytest.raises(StoreError, match=r"metrics.parquet is not there. Run `evaluator measure"):
        read_runs(folders)


def test_a_run_that_measures_no_metrics_is_refused_with_its_suite(tmp_path: Path) -> None:
    folders = two_runs(tmp_path, prompts={"suites": ["prompt-search"]})
    metrics = pl.read_parquet(folders[1] / "tables" / "metrics.parquet")
    put_table(folders[1], "metrics", metrics.clear())
    with pytest.raises(StoreError, match="has no metrics to compare: prompt-search measures none"):
        read_runs(folders)
    put_table(folders[0], "metrics", metrics.clear())
    assert all(run.metrics.is_empty() for run in read_runs(folders))  # what their suites compare is left
    with pytest.raises(StoreError, match="has no metrics to compare"):
        read_runs(folders, of_one_model=True)


def test_metrics_of_earlier_scores_are_refused(tmp_path: Path) -> None:
    first, second = two_runs(tmp_path)
    record = read_run(second)
    write_record(second / RUN_FILE, replace(record, scores=replace(record.scores, files={"0123/a.arrow": "other"})))
    with pytest.raises(StoreError, match="are those of earlier scores"):
        read_runs([first, second])


def test_the_same_model_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"first and .*second are the same model in the same settings: weights weights of first, float32",
    ):
        read_runs(two_runs(tmp_path, model={"weights_fingerprint": "weights of first"}))


def test_the_same_weights_in_another_dtype_are_compared_and_that_is_said(tmp_path: Path) -> None:
    same = {"model": {"weights_fingerprint": "weights of first"}, "engine": {"dtype": "bfloat16"}}
    (note,) = notes_of(two_runs(tmp_path, **same))
    assert note.startswith(
        "acme/tiny and acme/mid have the same weights. Correlations and line fits are over the first"
    )


@pytest.mark.parametrize(
    ("changed", "setting", "names"),
    [
        ({"prompts": {"shots": "16", "n_shots": 16}}, "shots", ["4 shots", "16 shots"]),
        (
            {"scores": {"label_boundary": "merged"}},
            "label boundary",
            ["label boundary separate", "label boundary merged"],
        ),
        (
            {"prompts": {"config": {"data": {"instruction": "Be brief."}}}},
            "instruction",
            ["no instruction", "instruction 'Be brief.'"],
        ),
        (
            {"prompts": {"config": {"data": {"labels": {"0": "bad"}}}}},
            "labels",
            ["no labels", "labels {'0': 'bad'}"],
        ),
        ({"model": {"tokenizer_fingerprint": "0123456789"}}, "tokenizer", ["tokenizer ", "tokenizer 01234567"]),
        ({"engine": {"dtype": "bfloat16"}}, None, ["float32", "bfloat16"]),
    ],
)
def test_one_model_in_two_settings_is_compared_and_the_setting_is_named(
    tmp_path: Path, changed: dict[str, Any], setting: str | None, names: list[str]
) -> None:
    changed["model"] = {"weights_fingerprint": "weights of first", "name": "acme/tiny"} | changed.get("model", {})
    folders = two_runs(tmp_path, **changed)
    assert [run.model for run in read_runs(folders)] == [f"acme/tiny, {name}" for name in names]
    notes = notes_of(folders)
    differ = [note for note in notes if note.startswith("The runs differ in their ")]
    assert [note.split(",")[0] for note in differ] == ([f"The runs differ in their {setting}"] if setting else [])
    assert any("have the same weights" in note for note in notes)


def test_runs_of_different_numbers_of_queries_are_refused_naming_both(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"differ in their queries of each dataset: all in .*first, 8 in .*--queries"):
        read_runs(two_runs(tmp_path, prompts={"n_queries": 8}))


def test_runs_are_compared_under_the_definitions_that_all_have(tmp_path: Path) -> None:
    only_paper = ANSWERS.filter(definition="paper")
    folders = [write_run(tmp_path / "a", "acme/tiny", ANSWERS), write_run(tmp_path / "b", "acme/mid", only_paper)]
    assert [{*run.metrics["definition"]} for run in read_runs(folders)] == [{"paper"}, {"paper"}]
    only_released = ANSWERS.filter(definition="released")
    folders[0] = write_run(tmp_path / "c", "acme/tiny", only_released)
    metrics = pl.read_parquet(folders[0] / "tables" / "metrics.parquet")
    put_table(folders[0], "metrics", metrics.filter(definition="released"))
    with pytest.raises(ConfigError, match=r"no definition in common: released in .*c; paper in .*b"):
        read_runs(folders)


def test_two_models_with_the_same_scores_are_named(tmp_path: Path) -> None:
    runs = read_runs(two_runs(tmp_path))
    results = [request_results(run.table("predictions"), run.metrics) for run in runs]
    (note,) = comparison_notes(runs, comparison_table(runs), results)
    assert note.startswith("acme/tiny and acme/mid have the same scores to the last digit")
    results[1] = results[1].with_columns(true_label_prob=pl.col("true_label_prob") * (1 + 1e-9))
    assert not comparison_notes(runs, comparison_table(runs), results)
    without = [rows.with_columns(true_label_prob=pl.lit(None, pl.Float64)) for rows in results]
    assert not comparison_notes(runs, comparison_table(runs), without)  # answers without probabilities


def test_models_of_one_name_are_told_apart_by_their_runs(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, "acme/tiny", ANSWERS) for name in ("x", "y")]
    assert [run.model for run in read_runs(folders)] == ["acme/tiny (x)", "acme/tiny (y)"]


def test_runs_of_one_folder_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / place / "out", model, ANSWERS, model={"weights_fingerprint": place})
        for place, model in (("a", "acme/tiny"), ("b", "acme/mid"))
    ]
    assert [run.name for run in read_runs(folders)] == [str(folder) for folder in folders]


def test_a_model_of_unknown_size_is_said_not_to_be_drawn(tmp_path: Path) -> None:
    assert notes_of(two_runs(tmp_path, model={"n_parameters": None})) == [
        "Not in the figures by size, because their number of parameters was not recorded: acme/mid."
    ]


def test_datasets_that_not_all_runs_have_are_named_with_those_that_do(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "a", "acme/tiny", predictions(0.5, seed=1, datasets=["zoo", "mid"], methods=["vanilla"])),
        write_run(tmp_path / "b", "acme/mid", predictions(0.5, seed=2, datasets=["abc", "zoo"], methods=["vanilla"])),
    ]
    assert notes_of(folders) == [
        "Only datasets that all runs have are compared. Left out: staicc-normal / normal, abc (only in acme/mid); "
        "staicc-normal / normal, mid (only in acme/tiny)."
    ]


def test_methods_that_a_model_was_not_run_with_are_named(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "a", "acme/tiny", predictions(0.5, seed=1, datasets=["zoo"])),
        write_run(tmp_path / "b", "acme/mid", ANSWERS),
    ]
    assert notes_of(folders) == ["acme/mid has no results of topk in staicc-normal / normal."]


def test_runs_without_a_common_dataset_are_refused_with_what_each_has(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "a", "acme/tiny", ANSWERS),
        write_run(tmp_path / "b", "acme/mid", predictions(0.5, seed=2, datasets=["abc"])),
    ]
    with pytest.raises(
        ConfigError, match=r"No dataset is in the same part of all runs: .*a has normal zoo; .*b has normal abc"
    ):
        comparison_table(read_runs(folders))
