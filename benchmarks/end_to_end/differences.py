"""Measure by how much numbers move where papers and released code differ, and print docs/differences.md.

    python -m benchmarks.end_to_end.differences [queries per dataset]     appends to results/differences.csv
    python -m benchmarks.end_to_end.differences --table                   prints the page from the latest rows

Numbers are measured with the model that ships, on SST-5. Numbers of random baselines are computed with the package
max-random-baseline and from the released results, if EVALUATOR_SHARED_DATA has them.
"""

import csv
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from max_random_baseline.max_random_baseline import max_random_baseline

from benchmarks.end_to_end.difference_points import DIFFERENCES
from benchmarks.harness import RESULTS, SHARED_DATA, append_rows
from evaluator.config import LabelBoundary, ModelConfig, RunConfig
from evaluator.progress import finish
from evaluator.random_baselines.max_random import max_random_accuracy
from evaluator.run import pipeline
from evaluator.run.folder import MeasuredFolder
from evaluator.suites import SUITES

DATASETS = ("sst5",)
STAICC = ("staicc-normal", "staicc-bias", "staicc-robustness")
N_QUERIES = 8
METHODS = SUITES["staicc-normal"].methods


class Moved(NamedTuple):
    """A quantity by the paper and by the released code."""

    number: int  # number of the difference
    quantity: str
    paper: float | None
    released: float | None


INTRODUCTION = """# Where papers and released code differ

Each row is a point in which the released code does something else than the paper: 1 to 9 Yauney & Mimno 2024, 10 to 31
Cho & Inoue 2025 (StaICC), 32 to 38 Lu et al. 2023; 11 and 39 are points in which this project once did. A result is
computed by the paper's formula, and by the released one where that is a definition; both are rows of the same tables,
told apart by the column `definition`.

Measured at commit {commit}: {case} (2, 4, 5, 8 and 9: the package and the released results).
`python -m benchmarks.end_to_end.differences` measures again and prints this page. A number of few queries shows that a
difference matters or does not, not how much it would matter elsewhere.

| # | paper | released code | here | measured: paper, then released |
|---|---|---|---|---|"""


def main() -> None:
    if "--table" in sys.argv:
        print(page(RESULTS / "differences.csv"), end="")
        return
    n_queries = int(sys.argv[1]) if len(sys.argv) > 1 else N_QUERIES
    case = f"embedded, {' and '.join(DATASETS)}, {n_queries} queries"
    with tempfile.TemporaryDirectory() as folder:
        # Rows are appended after every step, because the last two steps take long.
        _append("package and released results", _baselines())
        _append(case, _pvi(Path(folder) / "pvi", n_queries))
        _append(case, _of_runs(Path(folder), n_queries))
    print(page(RESULTS / "differences.csv"), end="")


def _append(case: str, moved: Iterator[Moved]) -> None:
    rows = [{name: getattr(each, name) for name in Moved._fields} for each in moved]
    append_rows("differences", case, ["polars"], rows)


def _baselines() -> Iterator[Moved]:
    theirs, ours = max_random_baseline(1000, 0.5, 10**10), float(max_random_accuracy(1000, 0.5, 10**10))
    yield Moved(2, "baseline of 1,000 examples, chance 1/2, 1e10 tries", ours, float(theirs))
    if (data := SHARED_DATA / "random_baselines").is_dir():
        from evaluator.reproductions.yauney_mimno_2024.data import best_prompt_chances, read_prompts, read_results
        from evaluator.reproductions.yauney_mimno_2024.recompute import best_prompts, judge, verdict_totals

        results = read_results(data)
        best = best_prompts(read_prompts(results))
        ladder = dict(
            verdict_totals(judge(best, best_prompt_chances(results, best))).select("rules", "disagreements").iter_rows()
        )
        for number, after, before in (
            (4, "n present", "released"),
            (5, "+ choices of logical_deduction", "n present"),
            (8, "distinct prompts alone", "released"),
            (9, "sound", "+ distinct prompts"),
        ):
            yield Moved(
                number, f"disagreements of 288 experiments, {after}", float(ladder[after]), float(ladder[before])
            )


def _of_runs(folder: Path, n_queries: int) -> Iterator[Moved]:
    """Yield numbers of three StaICC runs: with the paper's prompts, the released prompts, and merged labels."""
    paper = _run(folder / "paper", RunConfig(suites=STAICC, datasets=DATASETS, n_queries=n_queries, methods=METHODS))
    config = RunConfig(
        suites=STAICC,
        datasets=DATASETS,
        n_queries=n_queries,
        methods=METHODS,
        definitions=("released", "published"),
    )
    released = _run(folder / "released", config)
    normal = RunConfig(suites=("staicc-normal",), datasets=DATASETS, n_queries=n_queries)
    merged = _run(folder / "merged", normal, "merged")

    def of(
        run: MeasuredFolder, metric: str, definition: str, method: str = "vanilla", part: str = "normal"
    ) -> float | None:
        rows = run.table("metrics").filter(
            dataset="mean", metric=metric, definition=definition, method=method, part=part
        )
        return rows["value"].item() if rows.height else None

    tlp, ece = "true_label_probability", "expected_calibration_error"
    for metric in (tlp, ece):
        yield Moved(10, f"{metric}, vanilla", of(paper, metric, "published"), of(paper, metric, "released"))
    yield Moved(11, f"{ece}, vanilla", of(paper, ece, "paper"), of(paper, ece, "published"))
    slopes = of(paper, "gler", "paper", part="gler"), of(released, "gler", "released", part="gler")
    yield Moved(12, "gler: axis and wrong labels together", *slopes)
    for part in ("contextual", "domain"):
        values = [of(paper, f"{part}_bias", name, part=part) for name in ("paper", "released")]
        values[1] = values[1] if values[1] is not None else of(released, f"{part}_bias", "released", part=part)
        yield Moved(13, f"{part}_bias, nats", *values)
    yield Moved(
        14, "empirical_bias, nats", of(paper, "empirical_bias", "paper"), of(paper, "empirical_bias", "released")
    )
    for method in ("contextual_calibration", "domain_calibration", "batch_calibration"):
        both = (
            of(paper, tlp, "paper", method),
            of(paper, tlp, "published", method) or of(released, tlp, "published", method),
        )
        yield Moved(16, f"{tlp}, {method}", *both)
    for number, method in ((17, "noisy_channel"), (19, "sa_icl"), (20, "topk")):
        both = of(paper, "accuracy", "paper", method), of(released, "accuracy", "published", method)
        yield Moved(number, f"accuracy, {method}", *both)
    yield Moved(
        18, "accuracy, vanilla: merged, separate", of(merged, "accuracy", "paper"), of(paper, "accuracy", "paper")
    )
    for number in (21, 25):
        bias = of(paper, "domain_bias", "paper", part="domain"), of(released, "domain_bias", "released", part="domain")
        yield Moved(number, "domain_bias, nats: formula and queries together", *bias)
    for part in ("template", "sampling"):
        name = f"{part}_consistency"
        yield Moved(22, name, of(paper, name, "paper", part=part), of(released, name, "released", part=part))
    wrong = [
        run.table("group_metrics")
        .filter(part="gler", dataset="mean", metric="accuracy", method="vanilla", definition=name, noise_rate=1.0)[
            "value"
        ]
        .item()
        for run, name in ((paper, "paper"), (released, "released"))
    ]
    yield Moved(27, "accuracy with every demonstration label wrong", *wrong)
    for method in ("knn_centroid", "knn_neighbours"):
        yield Moved(
            31,
            f"accuracy, {method}",
            of(paper, "accuracy", "paper", method),
            of(paper, "accuracy", "published", method),
        )


def _pvi(folder: Path, n_queries: int) -> Iterator[Moved]:
    run = _run(folder, RunConfig(suites=("pvi",), datasets=("sst5",), n_queries=n_queries))
    tests = [
        run.table(name).filter(definition="paper")["p"].mean() for name in ("pvi_repeated_measures", "pvi_one_way")
    ]
    yield Moved(
        37, "mean p of the test over demonstration sets", *(float(str(p)) if p is not None else None for p in tests)
    )


def _run(folder: Path, config: RunConfig, boundary: LabelBoundary | None = None) -> MeasuredFolder:
    model = ModelConfig(model="embedded", engine="transformers", dtype="float32", label_boundary=boundary)
    return finish(pipeline.run(config, model, folder, data=folder.parent / "data")).run


def page(path: Path) -> str:
    """Return the content of docs/differences.md, with the latest rows of the file."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    latest = list({(row["number"], row["quantity"]): row for row in rows}.values())  # last row per quantity
    lines = [INTRODUCTION.format(**rows[-1])]
    for each in DIFFERENCES:
        said = "; ".join(_said(row) for row in latest if int(row["number"]) == each.number)
        cells = (each.number, each.paper, each.released, each.ours, each.unmeasured or said or "not measured")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, ""])


def _said(row: dict[str, str]) -> str:
    values = [f"{float(row[name]):.4g}" if row[name] else "none" for name in ("paper", "released")]
    moved = "no change" if values[0] == values[1] else f"{values[0]}, {values[1]}"
    return f"{row['quantity']}: {moved}"


if __name__ == "__main__":
    main()
