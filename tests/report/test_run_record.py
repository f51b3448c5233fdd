"""The sections about a run."""

from dataclasses import replace

from evaluator.record import ThroughputRecord
from evaluator.report.run_record import tokens_section
from evaluator.report.section import Panels, Section
from tests.report.made_record import made_record


def throughput_section(throughput: ThroughputRecord) -> Section | None:
    record = made_record()
    section = tokens_section(replace(record, scores=replace(record.scores, throughput=throughput)))
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


def test_a_run_of_one_shard_has_no_course_of_time() -> None:
    assert throughput_section(made_record().scores.throughput) is None
