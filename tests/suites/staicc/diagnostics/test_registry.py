"""Which part has which diagnostics."""

from evaluator.metrics.per_request import DIAGNOSTIC_PARTS
from evaluator.suites.staicc.diagnostics.registry import DIAGNOSTICS


def test_every_disturbed_part_has_diagnostics_and_of_the_others_normal_alone() -> None:
    assert set(DIAGNOSTICS) == {*DIAGNOSTIC_PARTS, "normal"}
