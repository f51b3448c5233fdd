"""Simulate how often 95% intervals contain the true value, and write the table of docs/coverage.md.

A case draws many samples from a model with a known true value, computes the interval of the project's tables for every
sample, and counts the intervals that contain the true value. Cases are difficult ones: perfectly calibrated models, few
queries, accuracies near 0 and 1, ties, one demonstration set, few templates and sets, differences that all favour one
side. results/coverage.csv gets one row per case and number of queries; a stopped simulation resumes at the same commit.
The page has the last simulation of every case, with its commit. With `--missing`, only cases without a simulation are
simulated; `python -m benchmarks.columnar.coverage --table` only writes the page again.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from benchmarks.columnar import coverage_of_metrics as of_metrics
from benchmarks.columnar.coverage_samples import (
    Simulate,
    accuracy,
    accuracy_of_two_sets,
    batch_calibrated,
    calibration,
    chosen_sets,
    component,
    divergence,
    over_prompts,
    over_sets,
    over_templates,
    paired_accuracies,
    paired_mean,
    paired_probabilities,
    right_over_sets,
    trained,
)
from benchmarks.harness import RESULTS, ROOT, append_rows, code_commit, read_rows, with_block

SIZES = (32, 64, 128, 512)
N_RUNS = 2_000
PAGE, TABLE = ROOT / "docs" / "coverage.md", RESULTS / "coverage.csv"
COMMAND = "benchmarks.columnar.coverage --table"
"""Module and options in the marks around the table of the page."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model of answers, and the interval of a quantity."""

    value: str  # quantity that has the interval
    model: str  # description of the model of answers
    simulate: Simulate
    sizes: tuple[int, ...] = SIZES  # numbers of queries
    printed: str = "95%"  # coverage that the project states for the interval


AT_LEAST, NOT_TOTAL = "at least 95%", "95%, for these training prompts"
NEARLY = "92 to 97%"
FEW_QUERIES, BIASED = "95%, less on few queries", "95%, less where it is not 0"
FEW_DIFFER = "95%, less where few queries differ"
ECE, BIAS, MEAN_OF_TEMPLATES = "calibration error", "empirical bias", "accuracy, mean over templates"
LINE_ERRORS = {
    "normal errors": lambda rng, n: rng.normal(0, 0.05, n),
    "errors of Student's t with 5 degrees": lambda rng, n: 0.05 * rng.standard_t(5, n),
}
CASES = (
    *(Case(value="accuracy", model=f"{share}, one demonstration set", simulate=accuracy(share), printed=AT_LEAST)
      for share in (0.005, 0.02, 0.05, 0.2, 0.5, 0.8, 0.95, 0.98, 0.995)),
    *(Case(value="accuracy", model=f"0.9, two sets, {alike:.0%} alike", simulate=accuracy_of_two_sets(0.9, alike))
      for alike in (0.0, 0.5, 1.0)),
    Case(value="accuracy", model="batch calibration", simulate=batch_calibrated),
    Case(value="accuracy", model="trained on 16 prompts out of many", simulate=trained, printed=NOT_TOTAL),
    *(Case(value=ECE, model=f"{kind} confidence, {shift} too high" if shift else f"{kind} confidence, calibrated",
           simulate=calibration(kind, shift), printed=AT_LEAST)
      for kind in ("even", "high", "one value") for shift in (0.0, 0.03, 0.1, 0.3)),
    *(Case(value=f"{ECE}, mean over ten datasets", model=f"even confidence, {shift} too high", printed=AT_LEAST,
           simulate=calibration("even", shift, 10)) for shift in (0.0, 0.03, 0.1)),
    *(Case(value=BIAS, model=f"{n} labels, tilted by {tilt}", simulate=divergence(n, tilt), printed=AT_LEAST)
      for n in (2, 5) for tilt in (0.0, 0.1, 0.4, 1.0)),
    *(Case(value=MEAN_OF_TEMPLATES, model=f"templates differ by {spread}", sizes=(64, 512), printed=AT_LEAST,
           simulate=over_templates(spread, one_template=False)) for spread in (0.0, 0.03, 0.1)),
    *(Case(value="accuracy, total interval", model=f"templates differ by {spread}", sizes=(64, 512), printed=AT_LEAST,
           simulate=over_templates(spread, one_template=True)) for spread in (0.0, 0.03, 0.1)),
    *(Case(value=MEAN_OF_TEMPLATES, model=f"one attribute differs by {spread}", sizes=(64, 512), printed=AT_LEAST,
           simulate=over_templates(spread, one_template=False, attributes=1)) for spread in (0.03, 0.1)),
    *(Case(value="difference of accuracies", model=f"{better} better, {worse} worse", printed=AT_LEAST,
           simulate=paired_accuracies(better, worse))
      for better, worse in ((0.01, 0.0), (0.05, 0.0), (0.05, 0.05), (0.2, 0.1), (0.5, 0.1))),
    Case(value="difference of accuracies, mean over ten datasets", model="0.05 better, 0.0 worse", sizes=(32, 128),
         simulate=paired_mean(0.05, 0.0), printed=AT_LEAST),
    *(Case(value="difference of true-label probabilities", model=name, simulate=paired_probabilities(name),
           printed=printed)
      for name, printed in (("normal", "95%"), ("skewed", AT_LEAST), ("5% of queries differ", FEW_DIFFER))),
    *(Case(value="accuracy, total interval over sets", model=f"{n_sets} sets differ by {spread} logits",
           sizes=(64, 512), printed=AT_LEAST, simulate=right_over_sets(n_sets, spread))
      for n_sets in (2, 3, 8) for spread in (0.0, 0.3, 0.8)),
    *(Case(value="V-information, total interval", model=f"{n_sets} sets differ by {spread}", sizes=(64, 512),
           printed=AT_LEAST, simulate=over_sets(n_sets, spread)) for n_sets in (2, 3, 8) for spread in (0.0, 0.1, 0.6)),
    *(Case(value="chosen minus drawn sets", model=f"{n_sets} sets, choice varies by {of_choice}", sizes=(64, 512),
           printed=AT_LEAST, simulate=chosen_sets(n_sets, of_choice))
      for n_sets in (3, 5) for of_choice in (0.0, 0.3, 0.6)),
    *(Case(value="mean accuracy of a search", model=f"prompts differ by {spread}", sizes=(32, 200),
           simulate=over_prompts(spread, best=False)) for spread in (0.0, 0.1)),
    *(Case(value="best accuracy of a search", model=f"prompts differ by {spread}", sizes=(32, 200), printed=AT_LEAST,
           simulate=over_prompts(spread, best=True)) for spread in (0.0, 0.1)),
    *(Case(value=f"variance component: {name}", model="right and wrong answers", sizes=(64, 512), printed=AT_LEAST,
           simulate=component(name, truth))
      for name, truth in (("query", 0.04), ("level", 0.01), ("draw", 0.01), ("residual", 0.19))),
    *(Case(value=name, model=f"{model} model", simulate=of_metrics.mean_metric(name, model),
           printed=FEW_QUERIES if model == "good" and name in ("Brier score", "log loss") else "95%")
      for name in ("probability of the true label", "Brier score", "log loss") for model in of_metrics.MODELS),
    *(Case(value="macro-F1", model=f"{model} model", simulate=of_metrics.macro_f1(model),
           printed=FEW_QUERIES if model == "good" else "95%") for model in of_metrics.MODELS),
    *(Case(value="consistency", model=f"{n} prompts, a query's label pulls by {pull}", sizes=(64, 512),
           simulate=of_metrics.consistency(n, pull)) for n, pull in ((8, 0.0), (8, 3.0), (9, 1.0))),
    *(Case(value="label mass", model=f"quantile {share}", printed=AT_LEAST, simulate=of_metrics.label_mass(share))
      for share in (0.05, 0.5)),
    *(Case(value="slope of accuracy", model=f"{lost} of 0.8 are lost", simulate=of_metrics.accuracy_slope(lost))
      for lost in (0.0, 0.3)),
    *(Case(value="slope of calibration error", model=f"confidence up to {shift} too high", sizes=(64, 512),
           simulate=of_metrics.calibration_slope(shift), printed=BIASED if shift else AT_LEAST)
      for shift in (0.0, 0.3)),
    *(Case(value="accuracy above a chosen threshold", model=f"scores {shift} too high", sizes=(64, 128, 512),
           simulate=of_metrics.above_threshold(shift), printed=FEW_QUERIES if shift else AT_LEAST)
      for shift in (0.0, 0.1)),
    *(Case(value="area of risk and coverage", model=f"scores {shift} too high", sizes=(64, 128, 512),
           simulate=of_metrics.area(shift), printed=NEARLY) for shift in (0.0, 0.1)),
    *(Case(value="further model, from a line through as many models", model=name, sizes=(32,),
           simulate=of_metrics.further_model(errors)) for name, errors in LINE_ERRORS.items()),
)  # fmt: skip


def main() -> None:
    if "--table" not in sys.argv:
        commit = code_commit()
        done = pl.lit(True) if "--missing" in sys.argv else pl.col("commit") == commit
        known = {*read_rows(TABLE).filter(done).select("value", "model").rows()}
        for place, case in enumerate(CASES):
            if (case.value, case.model) in known:
                continue  # the case was simulated before
            rows = []
            for n in case.sizes:
                share, n_runs = case.simulate(np.random.default_rng([place, n]), n, N_RUNS)
                rows.append({"value": case.value, "model": case.model, "n_queries": n, "printed": case.printed,
                             "coverage": round(share, 4), "runs": n_runs})  # fmt: skip
                print(*rows[-1].values(), sep=", ", flush=True)
            append_rows("coverage", "95% intervals", ["numpy", "scipy", "polars"], rows)
    PAGE.write_text(with_block(PAGE.read_text(), COMMAND, last_table()))


def last_table() -> str:
    """Return a Markdown table of the last simulation of every case: coverage by number of queries."""
    rows = read_rows(TABLE)
    last = rows.filter(pl.col("commit") == pl.col("commit").last().over("value", "model"))
    cases = pl.DataFrame([(case.value, case.model) for case in CASES], ["value", "model"], orient="row")
    return "\n".join([*_lines(cases.join(last, on=["value", "model"], maintain_order="left_right")), ""])


def _lines(rows: pl.DataFrame) -> Iterator[str]:
    n_runs = rows.select(pl.col("runs").max()).item()
    yield (
        f"Coverage in %, {n_runs:,} samples each; of accuracies with one set exact. Columns: number of queries, and "
        "the commit of the simulation.\n"
    )
    sizes = sorted(rows["n_queries"].unique())
    yield "| value | model | printed as | " + " | ".join(map(str, sizes)) + " | commit |"
    yield "|---|---|---|" + "---:|" * len(sizes) + "---|"
    keys = ["value", "model", "printed", "commit"]
    for (value, model, printed, commit), group in rows.partition_by(keys, as_dict=True, maintain_order=True).items():
        shares = {size: f"{100 * share:.1f}" for size, share in group.select("n_queries", "coverage").iter_rows()}
        cells: list[object] = [value, model, printed, *(shares.get(size, "") for size in sizes), commit]
        yield f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
