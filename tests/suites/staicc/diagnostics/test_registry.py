"""Which part has which diagnostics, and what a reader is told of them."""

from evaluator.suites import SUITES
from evaluator.suites.staicc.diagnostics import DIAGNOSTIC_PARTS, DIAGNOSTICS, HEADLINES
from evaluator.suites.staicc.suite import STAICC


def test_every_disturbed_part_has_diagnostics_and_of_the_others_normal_alone() -> None:
    staicc = [suite for suite in SUITES.values() if suite.family is STAICC]
    disturbed = {part for suite in staicc for part, about in suite.parts.items() if about.kind == "diagnostic"}
    assert set(DIAGNOSTIC_PARTS) == disturbed
    assert {each.part for each in DIAGNOSTICS} == {*disturbed, "normal"}


def test_each_headline_has_a_title_of_its_own_and_a_reading_under_both_definitions() -> None:
    assert len({each.title for each in HEADLINES.values()} - {""}) == len(HEADLINES) == 6
    assert all(set(each.readings) == {"paper", "released"} for each in HEADLINES.values())
