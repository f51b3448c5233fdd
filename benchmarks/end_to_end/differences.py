"""Measure by how much numbers move where papers and released code differ, and print docs/differences.md.

    python -m benchmarks.end_to_end.differences [queries of each dataset]     appends to results/differences.csv
    python -m benchmarks.end_to_end.differences --table                       prints the page from the latest rows

Numbers are those of the model that ships, on SST-5; of random baselines, those of the package
max-random-baseline and of the released results, where EVALUATOR_SHARED_DATA has them.
"""

import csv
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from max_random_baseline.max_random_baseline import max_random_baseline

from benchmarks.harness import RESULTS, SHARED_DATA, append_rows
from evaluator.config import LabelBoundary, ModelConfig, RunConfig
from evaluator.progress import finish
from evaluator.random_baselines.max_random import max_random_accuracy
from evaluator.run import pipeline
from evaluator.run.report import MeasuredFolder
from evaluator.suites import SUITES

DATASETS = ("sst5",)
STAICC = ("staicc-normal", "staicc-bias", "staicc-robustness")
N_QUERIES = 8
METHODS = SUITES["staicc-normal"].all_methods


class Difference(NamedTuple):
    """One of the points in which a paper and its released code differ."""

    number: int
    paper: str
    released: str
    ours: str
    unmeasured: str = ""  # why nothing is measured


class Moved(NamedTuple):
    """A number under both readings."""

    number: int  # of the difference
    quantity: str
    paper: float | None
    released: float | None


NO_SWITCH = "not measurable here: the released behaviour is an error and cannot be chosen"
NO_MODEL = "not measurable here: it concerns data or models that were used, not a formula"
SPLIT_LABELS = "not measurable here: the released method reads labels of one token, and the model that ships makes two"
SAME = "not measurable here: both give the same number where the released code does not fail"

DIFFERENCES = (
    Difference(
        1, "n times accuracy is a count", "floor(n acc - 1) in floating point", "whole counts are taken", NO_SWITCH
    ),
    Difference(2, "masses of a distribution", "a constant is added to each mass", "survival form, logarithms of tails"),
    Difference(
        3, "-", "a wrong number ends the process; longer lists are accepted", "every input is checked", NO_SWITCH
    ),
    Difference(
        4, "n of the examples", "n as stated, also where fewer were scored", "n from the data; both in the reproduction"
    ),
    Difference(
        5,
        "chance of the examples",
        "one constant for 3, 5 and 7 choices",
        "chance of each example; both in the reproduction",
    ),
    Difference(
        6,
        "whole prompts",
        "prompts cut at 512 tokens, ties wrong",
        "too long prompts are refused, ties drawn and counted",
        NO_SWITCH,
    ),
    Difference(
        7,
        "an instruction-tuned model",
        "the base model was loaded",
        "fingerprints of weights; equal losses are flagged",
        NO_MODEL,
    ),
    Difference(
        8,
        "number of prompts tried",
        "200, though fewer distinct ones ran",
        "distinct prompts; both in the reproduction",
    ),
    Difference(
        9, "one comparison", ">= in the table, > in the held-out script", "> everywhere; both in the reproduction"
    ),
    Difference(
        10,
        "probabilities as they are",
        "softmax over the matrix unless rows sum to exactly 1",
        "definitions paper, released, published",
    ),
    Difference(
        11, "last bin of the calibration error is closed", "confidence 1 is in no bin", "definitions paper, released"
    ),
    Difference(
        12,
        "slope over the noise rates",
        "slope over 1, .75, .25, -.5, -1.5",
        "definitions paper (shares of wrong labels in the prompts), released",
    ),
    Difference(13, "minus the mean entropy", "entropy of the mean", "definitions paper, released"),
    Difference(
        14,
        "KL divergence, 0 log 0 = 0",
        "division by zero for absent classes",
        "definitions paper (infinite, class named), released",
    ),
    Difference(15, "all labels", "as many as the highest prediction", "width of the label space", SAME),
    Difference(16, "normalised ratio", "softmax of ratio or difference", "definitions paper, released"),
    Difference(
        17,
        "log-likelihood of the query given the label",
        "mean loss of the whole prompt",
        "definitions paper, released",
    ),
    Difference(
        18, "whole labels", "last token; prompt and label apart", "definitions; --label-boundary separate, merged"
    ),
    Difference(19, "random orderings", "always the first ten permutations", "definitions paper (seeded), released"),
    Difference(20, "all demonstrations", "cut to 512 for later methods", "definitions paper, released"),
    Difference(21, "all words are drawn", "never a row's last word", "prompts of --definition paper, released"),
    Difference(22, "all queries", "first 100 queries; first 128 times 8", "prompts of --definition paper, released"),
    Difference(23, "-", "state is kept between runs", "none is", NO_SWITCH),
    Difference(
        24,
        "tables 4 to 6 of the paper",
        "labels in another order",
        "the code's prompts, byte for byte",
        "not measurable here: the paper's order was used nowhere",
    ),
    Difference(
        25, "queries of calibration words", "words of the demonstration set", "prompts of --definition paper, released"
    ),
    Difference(
        26,
        "512 queries",
        "each query twice",
        "intervals are clustered by query; n is stated",
        "not measurable here: it moves intervals that the toolkit does not have",
    ),
    Difference(
        27,
        "random wrong labels, rounded number",
        "the next label, number cut",
        "prompts of --definition paper, released",
    ),
    Difference(28, "draw from the other classes", "rejection that may not end", "draw from the filtered set", SAME),
    Difference(29, "-", "a failed dataset counts as 0", "left out of the mean and named", NO_SWITCH),
    Difference(30, "10 bins", "the argument is overridden", "10 bins", SAME),
    Difference(31, "KL divergence of distributions", "Euclidean distance of logits", "definitions paper, released"),
    Difference(
        32,
        "bits, whole vocabulary",
        "nats, temperature .8, 20 tokens",
        "definitions paper, released (pvi_released)",
        SPLIT_LABELS,
    ),
    Difference(
        33, "most probable label", "sampled text", "definitions paper, released (drawn by a seed)", SPLIT_LABELS
    ),
    Difference(34, "token of the label", "BOS on some tokenizers", "the label's token; several are refused", NO_SWITCH),
    Difference(
        35,
        "-",
        "targets outside the top 5 are dropped",
        "missing is counted",
        "not measurable here: needs the interface of a hosted model",
    ),
    Difference(36, "a fifth of the queries", "strictly beyond a quantile", "definitions paper, released", SPLIT_LABELS),
    Difference(37, "variance over queries", "over six run means", "both tests are tables of a run"),
    Difference(
        38,
        "10,000 rows, label codes of the corpus",
        "9,815 and 9,824 rows, 1 and 3 swapped",
        "rows are counted, codes are those of the prompts",
        NO_MODEL,
    ),
)


INTRODUCTION = """# Where papers and released code differ

Each row is a point in which the released code does something else than the paper: 1 to 9 Yauney & Mimno 2024, 10 to 31
Cho & Inoue 2025 (StaICC), 32 to 38 Lu et al. 2023. A result is computed by the paper's formula, and by the released one
where that is a definition; both are rows of the same tables, told apart by the column `definition`.

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
        # Written one after the other, because the last two take long.
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
        from evaluator.reproductions.yauney_mimno_2024.chances import best_prompt_mixes
        from evaluator.reproductions.yauney_mimno_2024.data import read_prompts, read_results
        from evaluator.reproductions.yauney_mimno_2024.rules import best_prompts, judge, totals

        results = read_results(data)
        best = best_prompts(read_prompts(results))
        ladder = dict(
            totals(judge(best, best_prompt_mixes(results, best))).select("rules", "disagreements").iter_rows()
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
    """Yield numbers of two runs of StaICC with either definition of prompts, one with merged labels, one of PVI."""
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
    """Return docs/differences.md from the latest rows of the file."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    latest = list({(row["number"], row["quantity"]): row for row in rows}.values())  # the last of each quantity
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
