"""Print the latest row of every benchmark as Markdown tables, one for each machine: README's section "How fast".

    python -m benchmarks.readme_table

Nothing is chosen: every case of every file in results/ has its latest rows, also those in which another tool is faster,
and each line names the commit that was measured (a + after it: with changes that were not committed).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from benchmarks.harness import RESULTS

OURS = (
    "evaluator",
    "cold",
    "there already",
    "measure",
    "public",
    "sort",
    "token floor",
    "blocks of",
    "two replicas",
    "on Ray",
)
"""Beginnings of the names of contestants that are this project's."""

RACE = ["benchmark", "device", "case"]
"""Key of a race; the latest one of each counts."""

SCORES_ALONE = "log-likelihoods alone"  # of staicc.csv: compared with that part of our time

TIMES = {"contestant": pl.String(), "seconds": pl.Float64(), "items": pl.Int64(), "unit": pl.String()}


def main() -> None:
    print(markdown(sorted(RESULTS.glob("*.csv"))))


def markdown(files: Sequence[Path]) -> str:
    """Return the tables. Files without times of contestants are left out."""
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
    """Return RACE, date, commit and TIMES of a file; `part_s` is the time of what lm-evaluation-harness can do."""
    rows = pl.read_csv(path, infer_schema_length=None)
    if "contestant" not in rows.columns or not {"median_s", "seconds"} & {*rows.columns}:
        return None
    part_s = pl.col("log_likelihoods_s") if "log_likelihoods_s" in rows.columns else pl.lit(None)
    count = {name: pl.col(name) if name in rows.columns else pl.lit(None) for name in ("items", "unit")}
    return rows.select(
        *(pl.col(name).cast(pl.String) for name in ("date", "commit", "device", "case", "contestant")),
        benchmark=pl.lit(path.stem),
        seconds=pl.col("median_s" if "median_s" in rows.columns else "seconds").cast(pl.Float64),
        part_s=part_s.cast(pl.Float64),
        items=count["items"].cast(pl.Int64),
        unit=count["unit"].cast(pl.String),
    )


def _lines(race: pl.DataFrame) -> Iterator[str]:
    """Yield a line for each contestant of this project."""
    rows = race.to_dicts()
    others = [row for row in rows if not row["contestant"].startswith(OURS)]
    for row in rows:
        if row["contestant"].startswith(OURS):
            rate = f", {_short(row['items'] / row['seconds'])} {row['unit']}/s" if row["items"] else ""
            compared = "; ".join(filter(None, (_compared(row, other) for other in others)))
            name = f"{row['benchmark']}: {row['case']}, {row['contestant']}"
            yield f"| {name} | {_short(row['seconds'])} s{rate} | {compared} | {row['commit']} |"


def _compared(ours: dict[str, object], other: dict[str, object]) -> str:
    """Return another tool's time, and how many times as fast or as slow this project is; "" for another data type."""
    name, seconds = str(other["contestant"]), float(str(other["seconds"]))
    if {_dtype(name), _dtype(str(ours["contestant"]))} == {"float32", "bfloat16"}:
        return ""
    own_s, what = float(str(ours["seconds"])), ""
    if SCORES_ALONE in name:
        if ours["part_s"] is None:
            return ""
        own_s = float(str(ours["part_s"]))
        what = f" for our {_short(own_s)} s"
    ratio = (
        f"{_short(seconds / own_s)} times as fast" if seconds >= own_s else f"{_short(own_s / seconds)} times slower"
    )
    return f"{name}: {_short(seconds)} s{what} ({ratio})"


def _dtype(contestant: str) -> str | None:
    """Return the data type that a contestant's name states."""
    words = {"fp32": "float32", "float32": "float32", "bf16": "bfloat16", "bfloat16": "bfloat16"}
    return next((words[word] for word in contestant.split(", ") if word in words), None)


def _short(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
