"""The measure stage: every suite makes the tables of its run."""

from collections.abc import Iterator

from evaluator.suites import SUITES
from evaluator.suites.base import ScoredRun, Table


def measured_tables(run: ScoredRun) -> Iterator[Table]:
    """Yield the tables of a run by name. A function that several suites share is called once for all of them."""
    for measure in dict.fromkeys(SUITES[name].measure for name in run.config.suites):
        yield from measure(run)
