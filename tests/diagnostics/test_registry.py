"""Which part has which diagnostics."""

from evaluator.diagnostics.registry import DIAGNOSTICS
from evaluator.metrics.requests import DIAGNOSTIC_PARTS


def test_every_disturbed_part_has_diagnostics_and_of_the_others_normal_alone() -> None:
    assert set(DIAGNOSTICS) == {*DIAGNOSTIC_PARTS, "normal"}
