"""Where the suites of StaICC find the sections of their page and their lines for a terminal."""

from collections.abc import Iterator

from evaluator.report.section import MeasuredRun, Section


def sections(run: MeasuredRun) -> Iterator[Section]:
    """The sections of a run of one or more suites of StaICC."""
    from evaluator.suites.staicc.report import staicc_sections  # here, because only a report needs figures

    return staicc_sections(run)


def summary_lines(run: MeasuredRun) -> Iterator[str]:
    """A line a diagnostic that was measured."""
    from evaluator.suites.staicc.terminal import diagnostic_lines

    return diagnostic_lines(run)
