"""The tables for README: the latest race of every case, whoever was faster, with the commit it was measured at."""

from pathlib import Path

import pytest

from benchmarks.readme_table import markdown

HEAD = "date,commit,device,versions,case,items,unit,contestant,runs,median_s"


def races(folder: Path, *rows: str) -> Path:
    path = folder / "metrics.csv"
    path.write_text("\n".join([HEAD, *rows]) + "\n")
    return path


def test_a_race_that_was_lost_is_shown_with_its_factor(tmp_path: Path) -> None:
    lost = races(
        tmp_path,
        "2026-01-01,abc1234,CPU,v,ten datasets,100,requests,toolkit,3,0.25",
        "2026-01-01,abc1234,CPU,v,ten datasets,100,requests,evaluator,3,0.5",
    )
    table = markdown([lost])
    # 100 requests in half a second are 200 a second; a quarter of a second is half as long.
    assert (
        "| metrics: ten datasets, evaluator | 0.5 s, 200 requests/s | toolkit: 0.25 s (2 times slower) | abc1234 |"
        in table
    )


def test_the_latest_race_of_a_case_and_machine_counts(tmp_path: Path) -> None:
    path = races(
        tmp_path,
        "2026-01-01,old0000,CPU,v,a,1,x,peer,3,9.0",
        "2026-01-01,old0000,CPU,v,a,1,x,evaluator,3,1.0",
        "2026-01-02,new0000,CPU,v,a,1,x,peer,3,4.0",
        "2026-01-02,new0000,CPU,v,a,1,x,evaluator,3,2.0",
        "2026-01-01,old0000,GPU,v,a,1,x,evaluator,3,1.0",
    )
    table = markdown([path])
    assert "peer: 4 s (2 times as fast) | new0000 |" in table
    assert "9 s" not in table
    assert table.count("old0000") == 1  # on the other machine it is the latest
    assert "On CPU:" in table
    assert "On GPU:" in table


@pytest.mark.parametrize(
    ("ours", "theirs", "shown"),
    [
        (
            "evaluator, fp32,20,8",
            "lm-eval, float32, log-likelihoods alone, scaled",
            "80 s for our 8 s (10 times as fast)",
        ),
        ("evaluator, bf16,20,8", "lm-eval, float32, log-likelihoods alone, scaled", None),
        ("evaluator, fp32,20,8", "toolkit, fp32, scaled", "80 s (4 times as fast)"),
    ],
)
def test_a_tool_that_does_a_part_of_the_work_is_compared_with_that_part(
    tmp_path: Path, ours: str, theirs: str, shown: str | None
) -> None:
    name, seconds, part = ours.rsplit(",", 2)
    path = tmp_path / "staicc.csv"
    path.write_text(
        "date,commit,device,versions,case,contestant,seconds,log_likelihoods_s\n"
        f'2026-01-01,abc1234,CPU,v,whole,"{name}",{seconds},{part}\n'
        f'2026-01-01,abc1234,CPU,v,whole,"{theirs}",80,\n'
    )
    table = markdown([path])
    assert (shown in table) if shown else (theirs not in table)


def test_files_without_times_are_left_out(tmp_path: Path) -> None:
    path = races(tmp_path, "2026-01-01,abc1234,CPU,v,a,1,x,evaluator,3,1.0")
    (tmp_path / "coverage.csv").write_text("case,coverage\na,0.95\n")
    assert markdown([tmp_path / "coverage.csv", path]) == markdown([path])
