"""Write the tables of measurements in README's section "How fast" and in docs/benchmarks.md.

    python -m benchmarks.readme_table [--write]

README has the throughput of every workload and tool at one commit: the commit with the most workloads and tools in
results/throughput.csv, or the latest of several. docs/benchmarks.md has the latest rows of every case and machine of
every benchmark, including lost races; every line names the measured commit (with a + if there were uncommitted
changes).
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.harness import RESULTS, ROOT, read_rows, with_block

THROUGHPUT = RESULTS / "throughput.csv"
COMMAND = "benchmarks.readme_table --write"
"""Module and options in the marks around the tables of both pages."""

REPLACED = ("scoring", "prompt_search", "pvi", "staicc")
"""Result files of benchmarks that benchmarks.throughput replaced; their rows are kept as history."""

OURS = (
    "evaluator",
    "cold",
    "there already",
    "measure",
    "public (tiled)",
    "sort",
    "token floor",
    "blocks of",
    "two replicas",
    "on Ray",
)
"""First words of the names of contestants that are this project."""

PLAIN = "plain vLLM"

RACE = ["benchmark", "device", "case"]
"""Key of a race; only the latest rows with the same key count."""

TIMES = {"contestant": pl.String(), "seconds": pl.Float64(), "items": pl.Int64(), "unit": pl.String()}


def main() -> None:
    short, full = throughput_table(THROUGHPUT), all_tables(RESULTS)
    if "--write" in sys.argv:
        for page, text in ((ROOT / "README.md", short), (ROOT / "docs" / "benchmarks.md", full)):
            page.write_text(with_block(page.read_text(), COMMAND, text))
    else:
        print(short, full, sep="\n")


def all_tables(results: Path) -> str:
    """Return the tables of docs/benchmarks.md, as Markdown."""
    files = [path for path in sorted(results.glob("*.csv")) if path.stem not in (*REPLACED, "throughput")]
    return f"## Throughput\n\n{throughput_lines(results / 'throughput.csv')}\n## Everything else\n\n{markdown(files)}"


def throughput_table(path: Path) -> str:
    """Return a Markdown table with one row per workload, small models first, for the commit with the most cases.

    Columns are the prompts per second of every tool, and the seconds of whole processes.
    """
    rows = _latest(_of_fullest_commit(read_rows(path)))
    tools = rows["contestant"].unique(maintain_order=True).to_list()
    heads = ["prompts/s", *tools, "whole command", f"{PLAIN}, first scores"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    cases = rows.partition_by("case", as_dict=True, maintain_order=True)
    for (case,), of_case in sorted(cases.items(), key=lambda item: _millions(item[0][0])):
        rates = dict(of_case.select("contestant", "prompts_per_s").iter_rows())
        whole = dict(of_case.select("contestant", "whole_s").iter_rows())
        cells = [_short(rates[tool]) if tool in rates else "" for tool in tools]
        cells += [f"{_short(whole[tool])} s" if whole.get(tool) else "" for tool in ("evaluator", PLAIN)]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Commit {rows['commit'][-1]}; {rows['device'][-1]}.", ""])


def _millions(case: str) -> int:
    """Return the size of the model in the name of a case, in millions of parameters; 0 without a size."""
    size = re.search(r"\b(\d+)([MB])\b", case)
    return int(size[1]) * {"M": 1, "B": 1000}[size[2]] if size else 0


def throughput_lines(path: Path) -> str:
    """Return a Markdown table of the latest race of every workload and machine, with quartiles of each tool's times."""
    rows = _latest(read_rows(path))
    heads = ["workload", "tool", "prompts/s", "scoring: median s (quartiles), prompts", "whole: median s (quartiles)"]
    heads += ["MiB", "evaluator is", "commit", "device"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [f"| {' | '.join(_throughput_cells(row))} |" for row in rows.to_dicts()]
    return "\n".join([*lines, ""])


def _throughput_cells(row: dict[str, Any]) -> list[str]:
    def spread(prefix: str, median: str) -> str:
        if row[median] is None:
            return ""
        return f"{_short(row[median])} ({_short(row[f'{prefix}q1_s'])}-{_short(row[f'{prefix}q3_s'])})"

    return [
        row["case"],
        row["contestant"],
        _short(row["prompts_per_s"]),
        f"{spread('', 'median_s')}, {row['items']:,} of {row['all_prompts']:,}",
        spread("whole_", "whole_s"),
        f"{row['peak_mib']:,}",
        f"{_short(row['evaluator_times'])} times as fast",
        row["commit"],
        row["device"],
    ]


def _latest(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the latest race of every case on every machine."""
    return rows.filter(pl.col("date") == pl.col("date").max().over("case", "device"))


def _of_fullest_commit(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the commit and device with the most pairs of case and tool; the latest of several."""
    n_turns = pl.struct("case", "contestant").n_unique().over("commit", "device")
    most = rows.filter(n_turns == n_turns.max())
    return most.filter(pl.col("commit") == pl.col("commit").last(), pl.col("device") == pl.col("device").last())


def markdown(files: Sequence[Path]) -> str:
    """Return Markdown tables of the latest races, one per device. Files without times of contestants are left out."""
    rows = pl.concat([times for path in files if (times := _times(path)) is not None])
    latest = rows.filter(pl.col("date") == pl.col("date").max().over(RACE))
    lines = []
    for (device,), of_device in (
        latest.sort(RACE, maintain_order=True).partition_by("device", as_dict=True, maintain_order=True).items()
    ):
        lines += [f"On {device}:", "", "| what | evaluator | compared with | commit |", "|---|---|---|---|"]
        for race in of_device.partition_by(RACE, maintain_order=True):
            lines += _lines(race)
        lines.append("")
    return "\n".join(lines)


def _times(path: Path) -> pl.DataFrame | None:
    """Read RACE, date, commit and TIMES of a file; None if it has no times of contestants."""
    rows = read_rows(path)
    if "contestant" not in rows.columns or not {"median_s", "seconds"} & {*rows.columns}:
        return None
    count = {name: pl.col(name) if name in rows.columns else pl.lit(None) for name in ("items", "unit")}
    return rows.select(
        *(pl.col(name).cast(pl.String) for name in ("date", "commit", "device", "case", "contestant")),
        benchmark=pl.lit(path.stem),
        seconds=pl.col("median_s" if "median_s" in rows.columns else "seconds").cast(pl.Float64),
        items=count["items"].cast(pl.Int64),
        unit=count["unit"].cast(pl.String),
    )


def _lines(race: pl.DataFrame) -> Iterator[str]:
    """Yield one table line per contestant that is this project."""
    rows = race.to_dicts()
    others = [row for row in rows if not row["contestant"].startswith(OURS)]
    for row in rows:
        if row["contestant"].startswith(OURS):
            # A time that was rounded to 0 gives no rate.
            has_rate = row["items"] and row["seconds"]
            rate = f", {_short(row['items'] / row['seconds'])} {row['unit']}/s" if has_rate else ""
            compared = "; ".join(filter(None, (_compared(row, other) for other in others)))
            name = f"{row['benchmark']}: {row['case']}, {row['contestant']}"
            yield f"| {name} | {_short(row['seconds'])} s{rate} | {compared} | {row['commit']} |"


def _compared(ours: dict[str, object], other: dict[str, object]) -> str:
    """Return the time of another tool, and how many times as fast or slow this project is; "" if data types differ."""
    name, seconds = str(other["contestant"]), float(str(other["seconds"]))
    if {_dtype(name), _dtype(str(ours["contestant"]))} == {"float32", "bfloat16"}:
        return ""
    own_s = float(str(ours["seconds"]))
    ratio = (
        f"{_short(seconds / own_s)} times as fast" if seconds >= own_s else f"{_short(own_s / seconds)} times slower"
    )
    return f"{name}: {_short(seconds)} s ({ratio})"


def _dtype(contestant: str) -> str | None:
    """Return the data type in the name of a contestant, or None."""
    words = {"fp32": "float32", "float32": "float32", "bf16": "bfloat16", "bfloat16": "bfloat16"}
    return next((words[word] for word in contestant.split(", ") if word in words), None)


def _short(value: float) -> str:
    """Format a number with three significant digits, or as a whole number from 100."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
