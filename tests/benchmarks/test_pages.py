"""Pages show the rows that are in benchmarks/results."""

import pytest

from benchmarks import readme_table
from benchmarks.columnar import coverage
from benchmarks.harness import RESULTS, ROOT, with_block
from benchmarks.simulate.check import checked_table


@pytest.mark.parametrize(
    ("page", "command", "text"),
    [
        ("README.md", readme_table.COMMAND, lambda: readme_table.throughput_table(readme_table.THROUGHPUT)),
        ("docs/benchmarks.md", readme_table.COMMAND, lambda: readme_table.all_tables(RESULTS)),
        ("docs/scale.md", "benchmarks.simulate check --write", checked_table),
        ("docs/coverage.md", coverage.COMMAND, coverage.last_table),
    ],
)
def test_a_page_has_the_table_that_its_command_writes(page, command, text):
    shown = (ROOT / page).read_text("utf-8")
    assert with_block(shown, command, text()) == shown
