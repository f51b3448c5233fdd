"""Where the suites of StaICC find the sections of their page."""

from collections.abc import Iterator

from evaluator.report.section import MeasuredRun, Section


def sections(run: MeasuredRun) -> Iterator[Section]:
    """The sections of a run of one or more suites of StaICC."""
    from evaluator.suites.staicc.report import staicc_sections  # here, because only a report needs figures

    return staicc_sections(run)
