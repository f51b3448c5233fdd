"""What a reader must know before the numbers."""

import polars as pl

from evaluator.report.notes import reader_notes
from evaluator.schemas import METRICS

NOTHING = pl.DataFrame()


def metrics(*groups: tuple[str, str, str]) -> pl.DataFrame:
    return pl.DataFrame(
        [dict(zip(("suite", "part", "method"), group, strict=True)) for group in groups], schema=METRICS
    )


def test_where_no_prompts_differ_between_definitions_there_is_no_note() -> None:
    same = metrics(("staicc-normal", "normal", "vanilla"), ("staicc-normal", "normal", "batch_calibration"))
    assert reader_notes({"store": {"prompt_definition": "paper"}}, same, NOTHING, NOTHING) == []


def test_a_run_of_the_released_prompts_names_the_papers_as_the_others() -> None:
    domain = metrics(("staicc-bias", "domain", "vanilla"), ("staicc-bias", "contextual", "vanilla"))
    (note,) = reader_notes({"store": {"prompt_definition": "released"}}, domain, NOTHING, NOTHING)
    assert "prompts for the part domain. Here they are those of released" in note
    assert note.endswith("a run with --definition paper has them.")


def test_whose_prompts_they_are_is_not_guessed_where_it_was_not_recorded() -> None:
    assert reader_notes({}, metrics(("staicc-bias", "domain", "vanilla")), NOTHING, NOTHING) == []


def test_suites_and_methods_that_are_not_ours_are_left_alone() -> None:
    own = metrics(("mine", "domain", "other"))
    assert reader_notes({"store": {"prompt_definition": "paper"}}, own, NOTHING, NOTHING) == []


def test_methods_that_miss_the_same_classes_of_a_dataset_share_a_note() -> None:
    rows = [
        ("b", "knn_centroid", "y"),
        ("b", "knn_centroid", "x"),
        ("b", "topk", "x"),
        ("b", "topk", "y"),
        ("a", "topk", "z"),
    ]
    missing = pl.DataFrame(rows, schema=["dataset", "method", "label"], orient="row")
    first, second = reader_notes({}, metrics(), missing, NOTHING)
    assert first.startswith("a: none of the training prompts of topk has the label “z”. Under paper they give it no")
    assert second.startswith("b: none of the training prompts of knn_centroid and topk has the labels “x” and “y”.")


def test_an_absent_label_is_named_once_however_many_methods_miss_it() -> None:
    rows = [("a", method, "paper", "x") for method in ("vanilla", "topk")]
    absent = pl.DataFrame(rows, schema=["dataset", "method", "definition", "label_name"], orient="row")
    assert reader_notes({}, metrics(), NOTHING, absent) == [
        "a: no query has the label “x”. The empirical bias of a method that gives it probability is infinite under "
        "paper, and so is the mean over datasets."
    ]
