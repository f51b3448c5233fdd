"""The last lines of a run of in-context PVI."""

import polars as pl

from evaluator.suites.in_context_pvi.schema import PVI_SUMMARY
from evaluator.suites.in_context_pvi.suite import v_information_lines
from evaluator.suites.in_context_pvi.summary import means_table
from tests.report.made_record import made_record
from tests.report.made_run import MadeRun


def test_v_information_and_accuracy_are_means_over_demonstration_sets_under_the_papers_definition() -> None:
    rows = [
        {"dataset": "zoo", "n_shots": 4, "demonstrations": "random", "demonstration_set": number}
        | {"definition": definition, "v_information": bits, "accuracy": 0.25 + number / 2}
        for definition, shift in (("paper", 0.0), ("label_space", 9.0))
        for number, bits in enumerate((shift, shift + 1.0))
    ]
    summary = pl.DataFrame(rows, schema=PVI_SUMMARY)
    assert list(v_information_lines(MadeRun(record=made_record(), tables={"pvi_means": means_table(summary)}))) == [
        "zoo, 4-shot, random demonstrations: V-information 0.500 bits, accuracy 0.500, over 2 sets"
    ]
