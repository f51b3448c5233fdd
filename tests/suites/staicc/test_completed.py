"""Any labelled dataset, completed with what StaICC's ten datasets have."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from evaluator.config import DataOptions, RunConfig
from evaluator.datasets.base import OwnDemonstrations
from evaluator.datasets.sources import load_datasets
from evaluator.datasets.staicc import load_staicc
from evaluator.suites.staicc.suite import completed as completed_in


def loaded(folder, n_rows, **data):
    """A table of `n_rows` reviews: first two thirds "bad", then one third "good"."""
    labels = ["bad"] * (2 * n_rows // 3) + ["good"] * (n_rows - 2 * n_rows // 3)
    pl.DataFrame({"text": [f"text {n}" for n in range(n_rows)], "label": labels}).write_csv(folder / "mine.csv")
    (dataset,) = load_datasets((), DataOptions(paths=(folder / "mine.csv",), **data))
    return dataset


OWN = RunConfig(suites=("staicc-normal",), data=DataOptions(paths=(Path("mine.csv"),)))
CALIBRATED = replace(OWN, methods=("vanilla", "knn_centroid"))


def completed(dataset, config=CALIBRATED):
    return completed_in(dataset, config)


def rows_of(*splits):
    return [row for split in splits for row in split["source_row"].to_list()]


def test_splits_are_disjoint_have_every_row_and_their_sizes_are_stated(tmp_path):
    dataset = completed(loaded(tmp_path, 300))
    splits = (dataset.calibration, dataset.demonstration, dataset.test)
    assert sorted(rows_of(*splits)) == list(range(300))
    # A tenth of 200 and of 100 rows is set aside, half of these calibrate.
    assert [split["gold"].value_counts(sort=True).rows() for split in splits] == [
        [(0, 10), (1, 5)],
        [(0, 10), (1, 5)],
        [(0, 180), (1, 90)],
    ]
    assert dataset.notes[-1] == (
        "15 of 30 training rows, drawn by label with seed 42, calibrate methods and are no demonstrations: "
        "15 demonstrations, 270 queries in all"
    )


def test_every_beginning_of_the_queries_has_the_share_of_each_label(tmp_path):
    gold = completed(loaded(tmp_path, 300)).test["gold"]
    # 180 of 270 queries are label 0; the table itself begins with 200 of them.
    for n in range(1, 271):
        assert abs((gold.head(n) == 0).sum() - n * 2 / 3) <= 1


def test_equal_tables_give_equal_splits_and_other_rows_other_ones(tmp_path):
    first, again = (completed(loaded(tmp_path, 90)) for _ in range(2))
    assert rows_of(first.calibration, first.test) == rows_of(again.calibration, again.test)
    assert rows_of(first.calibration) != sorted(rows_of(first.demonstration))


def test_a_stated_number_of_training_rows_is_drawn_in_proportion(tmp_path):
    dataset = completed(loaded(tmp_path, 90, training_rows=30))
    assert dataset.test["gold"].value_counts(sort=True).rows() == [(0, 40), (1, 20)]
    assert dataset.demonstration.height == dataset.calibration.height == 15


def test_fewer_training_rows_than_stated_are_noted(tmp_path):
    notes = completed(loaded(tmp_path, 90, training_rows=80)).notes
    assert [note for note in notes if "45 of 90 rows" in note and "fewer than --training-rows 80" in note]
    assert not [note for note in completed(loaded(tmp_path, 90, training_rows=45)).notes if "fewer" in note]


def test_training_rows_of_a_file_are_halved_and_all_queries_stay(tmp_path):
    texts = {"text": [f"shown {n}" for n in range(10)], "label": ["bad", "good"] * 5}
    pl.DataFrame(texts).write_csv(tmp_path / "other.csv")
    dataset = completed(loaded(tmp_path, 30, training=tmp_path / "other.csv"))
    assert (dataset.test.height, dataset.demonstration.height, dataset.calibration.height) == (30, 5, 5)
    assert all(texts[0].startswith("shown") for texts in dataset.calibration["texts"])


def test_nine_templates_differ_from_the_default_in_each_attribute(tmp_path):
    dataset = completed(loaded(tmp_path, 60))
    templates = dataset.alternative_templates
    assert templates[0] == dataset.template
    # L9(3^4): each of three levels of each attribute is in three templates.
    for levels in (
        ["", "Classify the following text. ", "Which label fits this text? "],
        [("text: ",), ("input: ",), ("sentence: ",)],
        ["label: ", "Label: ", "answer: "],
        ["\n\n", " ", "\t"],
    ):
        attribute = next(
            name
            for name in ("instruction", "input_prefixes", "label_prefix", "label_affix")
            if getattr(templates[0], name) == levels[0]
        )
        values = [getattr(template, attribute) for template in templates]
        assert {value: values.count(value) for value in levels} == dict.fromkeys(levels, 3)
    assert len(dataset.instructions) == 5


def test_a_dataset_of_staicc_is_returned_unchanged():
    dataset = load_staicc("sst5")
    assert completed(dataset) is dataset


@pytest.mark.parametrize("methods", [("vanilla",), ("vanilla", "topk", "batch_calibration", "noisy_channel")])
def test_without_a_method_that_calibrates_all_training_rows_of_a_table_of_ones_own_are_demonstrations(
    tmp_path, methods
):
    dataset = completed(loaded(tmp_path, 300), replace(OWN, methods=methods))
    assert [split.height for split in (dataset.calibration, dataset.demonstration, dataset.test)] == [0, 30, 270]
    assert dataset.own_demonstrations == OwnDemonstrations("balanced", 2, 42)
    halved = completed(loaded(tmp_path, 300))
    assert halved.calibration.height == 15
    assert halved.fingerprint != dataset.fingerprint  # other demonstrations: a run with them is no extension
    assert completed(loaded(tmp_path, 300), replace(OWN, suites=("staicc-bias",))).calibration.height == 15


def test_of_many_rows_a_thousand_are_queries_unless_more_are_asked_for(tmp_path):
    dataset = completed(loaded(tmp_path, 3000), OWN)
    assert dataset.test["gold"].value_counts(sort=True).rows() == [(0, 667), (1, 333)]
    assert dataset.notes[-1] == "1,000 of 2,700 queries, drawn by label; --queries asks for more"
    every = completed(loaded(tmp_path, 3000), replace(OWN, n_queries=2000))
    assert every.test.height == 2700
    assert every.test.head(1000).equals(dataset.test)


def test_of_named_datasets_nothing_of_this_holds(tmp_path):
    named = replace(OWN, datasets=("cola",))
    dataset = completed(loaded(tmp_path, 3000), named)
    assert (dataset.calibration.height, dataset.test.height, dataset.own_demonstrations) == (150, 2700, None)


def test_the_only_training_row_of_a_label_is_a_demonstration(tmp_path):
    # 40 rows of two labels and 3 of two others, of which one row each is set aside.
    labels = ["a", "b"] * 40 + ["c", "d"] * 3
    pl.DataFrame({"text": [f"text {n}" for n in range(86)], "label": labels}).write_csv(tmp_path / "rare.csv")
    (dataset,) = load_datasets((), DataOptions(paths=(tmp_path / "rare.csv",)))
    assert dict(dataset.demonstration["gold"].value_counts().iter_rows()) == {0: 8, 1: 8, 2: 1, 3: 1}
    split = completed(dataset)
    assert dict(split.demonstration["gold"].value_counts().iter_rows())[2] == 1
    assert dict(split.demonstration["gold"].value_counts().iter_rows())[3] == 1
    assert split.calibration.height == 9
