"""The tables for README: the latest race of every case, whoever was faster, with the commit it was measured at."""

from pathlib import Path

from benchmarks.readme_table import markdown, throughput_lines, throughput_table

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


def test_other_data_types_are_not_compared(tmp_path: Path) -> None:
    path = races(
        tmp_path,
        '2026-01-01,abc1234,CPU,v,a,1,x,"peer, float32",3,9.0',
        '2026-01-01,abc1234,CPU,v,a,1,x,"evaluator, bf16",3,1.0',
        '2026-01-01,abc1234,CPU,v,a,1,x,"evaluator, fp32",3,3.0',
    )
    assert markdown([path]).count("peer") == 1
    assert "peer, float32: 9 s (3 times as fast)" in markdown([path])


def test_a_time_that_was_rounded_to_nothing_has_no_rate(tmp_path: Path) -> None:
    table = markdown([races(tmp_path, "2026-01-01,abc1234,CPU,v,a,1,x,evaluator,3,0.0")])
    assert "| 0 s |  | abc1234 |" in table


def test_files_without_times_are_left_out(tmp_path: Path) -> None:
    path = races(tmp_path, "2026-01-01,abc1234,CPU,v,a,1,x,evaluator,3,1.0")
    (tmp_path / "coverage.csv").write_text("case,coverage\na,0.95\n")
    assert markdown([tmp_path / "coverage.csv", path]) == markdown([path])


THROUGHPUT_HEAD = (
    "date,commit,device,versions,case,contestant,requests,all_prompts,items,unit,runs,median_s,q1_s,q3_s,min_s,max_s,"
    "prompts_per_s,whole_s,whole_q1_s,whole_q3_s,peak_mib,evaluator_times"
)


def test_the_fullest_commit_is_shown_whole_and_elsewhere_the_latest_race_of_each_case(
    tmp_path: Path,
) -> None:
    rows = [
        "2026-01-01,old0000,CPU,v,PVI,evaluator,9,8,8,prompts,3,1,1,1,1,1,77,9,9,9,100,1",
        "2026-01-02,new0000,CPU,v,PVI,evaluator,9,8,8,prompts,3,4,3,5,3,5,2,9,8,10,100,1",
        "2026-01-02,new0000,CPU,v,PVI,plain vLLM,9,8,8,prompts,3,2,2,2,2,2,4,5,5,5,90,0.5",
        "2026-01-03,new0000,CPU,v,one dataset,evaluator,9,8,8,prompts,3,4,3,5,3,5,2.5,7,7,7,100,1",
        "2026-01-04,few0000,GPU,v,search,evaluator,9,8,8,prompts,3,4,3,5,3,5,33,7,7,7,100,1",
        "2026-01-05,one0000,CPU 2,v,PVI,evaluator,9,8,8,prompts,3,4,3,5,3,5,6,7,7,7,100,1",
    ]
    path = tmp_path / "throughput.csv"
    path.write_text("\n".join([THROUGHPUT_HEAD, *rows]) + "\n")
    table = throughput_table(path)
    assert "| prompts/s | evaluator | plain vLLM | whole command | plain vLLM, first scores |" in table
    assert "| PVI | 2 | 4 | 9 s | 5 s |" in table  # a race that was lost
    assert "| one dataset | 2.5 |  | 7 s |  |" in table
    assert table.endswith("Commit new0000; CPU.\n")
    assert not {"77", "33"} & {*table.split()}
    lines = throughput_lines(path)
    assert "| PVI | evaluator | 2 | 4 (3-5), 8 of 8 | 9 (8-10) | 100 | 1 times as fast | new0000 | CPU |" in lines
    assert "| search | evaluator | 33 | 4 (3-5), 8 of 8 | 7 (7-7) | 100 | 1 times as fast | few0000 | GPU |" in lines
    assert "| PVI | evaluator | 6 | 4 (3-5), 8 of 8 | 7 (7-7) | 100 | 1 times as fast | one0000 | CPU 2 |" in lines
    assert "old0000" not in lines
