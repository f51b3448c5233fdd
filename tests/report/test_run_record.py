"""The sections about a run."""

from dataclasses import replace

from evaluator.record import ThroughputRecord
from evaluator.report.figures import Drawing
from evaluator.report.run_record import cost_section, record_section
from evaluator.report.section import Group, Panels, Section
from evaluator.report.table import Table
from tests.report.made_record import made_record


def throughput_section(throughput: ThroughputRecord) -> Section | None:
    record = made_record()
    section = cost_section(replace(record, scores=replace(record.scores, throughput=throughput)))
    assert section
    return next((block for block in section.content if isinstance(block, Section)), None)


def drawings(throughput: ThroughputRecord) -> list[str]:
    section = throughput_section(throughput)
    assert section
    assert section.is_folded
    (panels,) = (block for block in section.content if isinstance(block, Panels))
    return [drawing for panel in panels.panels for drawing in panel.drawings]


def test_each_period_has_its_rate_in_the_figures() -> None:
    requests, tokens = drawings(
        ThroughputRecord(period_s=30, period_requests_per_s=[12.5, 10], period_computed_tokens_per_s=[2400, 2000])
    )
    assert "0 to 30 s: 12.5 prompts/s" in requests
    assert "30 to 60 s: 10.0 prompts/s" in requests
    assert "30 to 60 s: 2,000.0 tokens computed/s" in tokens


def test_where_it_is_not_told_what_was_computed_only_prompts_have_a_figure() -> None:
    (requests,) = drawings(ThroughputRecord(period_s=30, period_requests_per_s=[12.5, 10]))
    assert "prompts/s" in requests


def test_the_stages_of_a_run_follow_one_another_in_a_time_line() -> None:
    section = record_section(replace(made_record(), elapsed_s={"measure": 2.0, "build": 1.5, "score": 598.0}))
    (group,) = (part for part in section.content if isinstance(part, Group) and part.title.startswith("Time"))
    (panels,) = group.content
    assert isinstance(panels, Panels)
    (drawing,) = panels.panels[0].drawings
    assert isinstance(drawing, Drawing)
    rows = [line.split(",")[:3] for line in drawing.csv.splitlines()[1:]]
    assert rows == [["Build", "0.0", "1.5"], ["Score", "1.5", "599.5"], ["Measure", "599.5", "601.5"]]
    assert "Score: 598.0 s, until 599.5 s" in drawing
    assert not any(
        isinstance(part, Group) and part.title.startswith("Time")
        for part in record_section(replace(made_record(), elapsed_s={})).content
    )


def test_a_run_of_one_shard_has_no_course_of_time() -> None:
    assert throughput_section(made_record().scores.throughput) is None


def test_each_count_of_tokens_has_a_bar_as_long_as_its_share_of_all() -> None:
    section = cost_section(made_record())
    assert section
    (table,) = (block for block in section.content if isinstance(block, Table))
    shares = [str(cells[3].text).partition("--share: ")[2].partition("%")[0] for _, cells in table.body]
    # Of 2,400 tokens: 2,000 distinct and sent, 1,250 computed, 1,100 and 1,000 of the floors.
    assert shares == ["100.00", "83.33", "83.33", "52.08", "45.83", "41.67"]
