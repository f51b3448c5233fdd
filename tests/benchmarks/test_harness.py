"""What benchmarks append to the tables of results."""

import csv

import pytest

from benchmarks import harness


def test_rows_are_appended_below_a_header_and_others_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    harness.append_rows("speed", "small", ["polars"], [{"items": 1, "seconds": 0.5}])
    harness.append_rows("speed", "large", ["polars"], [{"items": 2, "seconds": 3.5}])
    with pytest.raises(ValueError, match=r"and the rows have .*case, seconds, items"):
        harness.append_rows("speed", "large", ["polars"], [{"seconds": 3.5, "items": 2}])
    with (tmp_path / "speed.csv").open() as table:
        found = [(row["case"], row["items"], row["seconds"]) for row in csv.DictReader(table)]
    assert found == [("small", "1", "0.5"), ("large", "2", "3.5")]
