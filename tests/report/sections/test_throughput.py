"""The folded section of throughput over time."""

from dataclasses import replace

from evaluator.record import ThroughputRecord
from evaluator.report.sections.run_record import ThroughputContext, tokens_section
from tests.report.made_record import made_record


def test_each_period_has_its_rate_in_the_figures() -> None:
    throughput = ThroughputRecord(
        period_s=30, period_requests_per_s=[12.5, 10], period_computed_tokens_per_s=[2400, 2000]
    )
    record = made_record()
    record = replace(record, scores=replace(record.scores, throughput=throughput))
    (section,) = tokens_section(record).sections
    assert section.is_folded
    assert isinstance(section.context, ThroughputContext)
    requests, tokens = section.context.figures
    assert "0 to 30 s: 12.5 prompts/s" in requests
    assert "30 to 60 s: 10.0 prompts/s" in requests
    assert "30 to 60 s: 2,000.0 tokens computed/s" in tokens


def test_where_it_is_not_told_what_was_computed_only_prompts_have_a_figure() -> None:
    throughput = ThroughputRecord(period_s=30, period_requests_per_s=[12.5, 10])
    record = made_record()
    (section,) = tokens_section(replace(record, scores=replace(record.scores, throughput=throughput))).sections
    assert isinstance(section.context, ThroughputContext)
    (requests,) = section.context.figures
    assert "prompts/s" in requests


def test_a_run_of_one_shard_has_no_course_of_time() -> None:
    assert tokens_section(made_record()).sections == ()
