"""The page of differences between papers and released code has every one of them, with a number or a reason."""

from pathlib import Path

from benchmarks.end_to_end.difference_points import DIFFERENCES
from benchmarks.end_to_end.differences import page

HEAD = "date,commit,device,versions,case,number,quantity,paper,released"


def table(path: Path, *rows: str) -> dict[int, str]:
    """Number of the difference -> last cell of its row."""
    path.write_text("\n".join([HEAD, *rows]) + "\n")
    lines = [line.strip("| ").split(" | ") for line in page(path).splitlines() if line.startswith("| ")]
    return {int(cells[0]): cells[-1] for cells in lines if cells[0].isdigit()}


def test_every_difference_has_one_row_with_a_measured_number_or_the_reason_for_none(tmp_path: Path) -> None:
    shown = table(
        tmp_path / "differences.csv",
        "2026-01-01,old,CPU,v,16 queries,10,calibration error,0.9,0.8",
        "2026-01-02,new,CPU,v,16 queries,10,calibration error,0.25,0.125",
        "2026-01-02,new,CPU,v,16 queries,20,accuracy,0.5,0.5",
        "2026-01-02,new,CPU,v,16 queries,13,bias,-1.5,",
    )
    assert list(shown) == list(range(1, 40))
    assert shown[10] == "calibration error: 0.25, 0.125"
    assert shown[20] == "accuracy: no change"
    assert shown[13] == "bias: -1.5, none"
    assert shown[1].startswith("not measurable here: ")
    assert shown[12] == "not measured"


def test_the_page_in_the_docs_has_the_rows_of_the_list() -> None:
    written = (Path(__file__).parents[2] / "docs" / "differences.md").read_text("utf-8")
    for each in DIFFERENCES:
        assert f"| {each.number} | {each.paper} | {each.released} | {each.ours} | " in written
