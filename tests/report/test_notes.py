"""What a reader must know before the numbers."""

from collections.abc import Mapping

import polars as pl

from evaluator.record import MeasuredRecord, PartRecord
from evaluator.report.notes import missing_class_notes, prompt_definition_notes
from evaluator.schemas import METRICS, Definition
from tests.report.made_record import made_record

PARTS = {"staicc-normal": {"normal": False}, "staicc-bias": {"domain": True, "contextual": False}}


def record(definition: Definition, parts: Mapping[str, Mapping[str, bool]] = PARTS) -> MeasuredRecord:
    """Return the record of a run; `parts`: suite -> part -> whether its prompts differ between definitions."""
    own = {suite: {name: part_record(differ) for name, differ in of.items()} for suite, of in parts.items()}
    return made_record(prompts={"prompt_definition": definition, "parts": own})


def part_record(prompts_differ: bool) -> PartRecord:
    return PartRecord(kind="diagnostic", definitions=["paper", "released"], prompts_differ=prompts_differ)


def metrics(*groups: tuple[str, str, str]) -> pl.DataFrame:
    return pl.DataFrame(
        [dict(zip(("suite", "part", "method"), group, strict=True)) for group in groups], schema=METRICS
    )


def test_where_no_prompts_differ_between_definitions_there_is_no_note() -> None:
    same = metrics(("staicc-normal", "normal", "vanilla"), ("staicc-normal", "normal", "batch_calibration"))
    assert [*prompt_definition_notes(record("paper"), same)] == []


def test_a_run_of_the_released_prompts_names_the_papers_as_the_others() -> None:
    domain = metrics(("staicc-bias", "domain", "vanilla"), ("staicc-bias", "contextual", "vanilla"))
    (note,) = [*prompt_definition_notes(record("released"), domain)]
    assert "prompts for the part domain. Here they are those of released" in note
    assert note.endswith("a run with --definition paper has them.")


def test_suites_and_methods_that_are_not_ours_are_left_alone() -> None:
    own = metrics(("mine", "domain", "other"))
    assert [*prompt_definition_notes(record("paper", {"mine": {"domain": False}}), own)] == []


def test_methods_that_miss_the_same_classes_of_a_dataset_share_a_note() -> None:
    rows = [
        ("b", "knn_centroid", "y"),
        ("b", "knn_centroid", "x"),
        ("b", "topk", "x"),
        ("b", "topk", "y"),
        ("a", "topk", "z"),
    ]
    missing = pl.DataFrame(rows, schema=["dataset", "method", "label"], orient="row")
    first, second = missing_class_notes(missing)
    assert first.startswith("a: none of the training prompts of topk has the label “z”. Under paper they give it no")
    assert second.startswith("b: none of the training prompts of knn_centroid and topk has the labels “x” and “y”.")
