"""What a reader must know before the numbers."""

from collections.abc import Mapping
from dataclasses import replace

import polars as pl
import pytest

from evaluator.config import Definition
from evaluator.record import MeasuredRecord, PartRecord, measured_record
from evaluator.report.notes import majority_warnings, missing_class_notes, prompt_definition_notes
from evaluator.schemas import CONFUSION, LABEL_SPACES, METRICS
from tests.report.made_record import made_record, run_record
from tests.report.made_run import MadeRun

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
    assert "prompts for the part domain. This run has the prompts of released" in note
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


@pytest.mark.parametrize(("value", "warned"), [(0.625, ["a"]), (0.626, [])])
def test_own_data_on_which_vanilla_is_not_above_the_majority_label_have_a_warning(
    value: float, warned: list[str]
) -> None:
    key = {"suite": "s", "part": "p", "dataset": "a"}
    accuracy = {**key, "method": "vanilla", "metric": "accuracy", "definition": "paper"}
    counts = [(0, 0, 5), (0, 1, 0), (1, 0, 3), (1, 1, 0)]
    confusion = [{**key, "method": "vanilla", "gold": g, "pred": pred, "n_requests": n} for g, pred, n in counts]
    run = MadeRun(
        record=measured_record(run_record({"confusion": "-"}, prompts={"config": {"datasets": []}}), "OUT"),
        tables={
            "metrics": pl.DataFrame([{**accuracy, "value": value, "majority": 0.625}], schema=METRICS),
            "confusion": pl.DataFrame(confusion, schema=CONFUSION),
            "label_spaces": pl.DataFrame([{**key, "label_names": ["no", "yes"]}], schema=LABEL_SPACES),
        },
    )
    said = list(majority_warnings(run))
    assert [sentence.partition(":")[0] for sentence in said] == warned
    assert all("the model answers “no” to 100% of the prompts" in sentence for sentence in said)
    assert not any("--chat-template" in sentence for sentence in said)
    template = replace(run.record, model=replace(run.record.model, has_chat_template=True))
    said = list(majority_warnings(replace(run, record=template)))
    assert all("--chat-template none,auto" in sentence for sentence in said)
    twice = run.tables["metrics"].with_columns(part=pl.lit("q"), value=pl.lit(0.9))
    both = replace(run, tables={**run.tables, "metrics": pl.concat([run.tables["metrics"], twice])})
    assert [sentence.partition(":")[0] for sentence in majority_warnings(both)] == [f"{name}, p" for name in warned]
    published = replace(run, record=measured_record(run_record({"confusion": "-"}), "OUT"))
    assert list(majority_warnings(published)) == []
    released = replace(run, tables={**run.tables, "confusion": CONFUSION.to_frame()})
    assert list(majority_warnings(released)) == []
