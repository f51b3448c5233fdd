"""Build the report sections of typed questions: answers, effects of variations, baselines and graded scores."""

from collections.abc import Iterator, Sequence

import polars as pl

from evaluator.decisions.questions import REPEAT, VARIED
from evaluator.record import ReceiptRecord
from evaluator.report.methods import datasets_of
from evaluator.report.section import MeasuredRun, Section, texts
from evaluator.report.table import Column, Table, p_text, percent, signed, text_column
from evaluator.report.total_error import total_error_sections
from evaluator.statistics.selective import proportion_interval
from evaluator.suites.base import classification_page
from evaluator.suites.decide.consistency import ACCURACY, DISTANCE, FIRST, FLIPS, TITLES
from evaluator.suites.staicc.report import learning_curve_sections

TEXTS = texts("evaluator.suites.decide")


def decide_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of a run of decide."""
    notes: list[str] = [TEXTS["baselines_note"]]
    baselines = _section("baselines", "Cheap baselines", "Baselines", notes, run.table("baselines"), BASELINES)
    yield from answer_sections(run, [*learning_curve_sections(run), *baselines])


def answer_sections(run: MeasuredRun, further: Sequence[Section] = ()) -> Iterator[Section]:
    """Yield the sections of answers to typed questions, from a run of decide or imported.

    `further` sections follow the section of effects.
    """
    notes: list[str] = [TEXTS["graded_note"]]
    scores = run.table("graded").with_columns(title=pl.col("metric").str.replace_all("_", " "))
    graded = _section("graded", "Levels, distributions and labels", "Levels", notes, scores, GRADED)
    yield from classification_page(run, VARIED, [*effects_sections(run), *further, *graded])


def _section(
    anchor: str, title: str, short: str, notes: list[str], rows: pl.DataFrame, columns: Sequence[Column], name: str = ""
) -> Iterator[Section]:
    """Yield a section with one table, if it has rows. A part or method that is the same in all rows is in the subtitle,
    not in a column."""
    if rows.is_empty():
        return
    alike = {each: rows[each][0] for each in ("part", "method") if each in rows.columns and rows[each].n_unique() == 1}
    table = Table(rows, [each for each in columns if each.value not in alike], data={"table": name or anchor})
    yield Section(anchor, title, [*notes, table], navigation=short, subtitle=", ".join(alike.values()))


def effects_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of the effects of variations (parts VARIED) and of the total error; nothing without them."""
    metrics = run.table("metrics").filter(pl.col("part").is_in(VARIED))
    if metrics.is_empty():
        return
    # Noise of repeated calls: in the part `repeat` of the run if there is one, otherwise in its receipts.
    effects = effects_table(metrics, run.table("variance_components"))
    floor, noise = repeat_noise([*run.record.receipts.values()])
    if REPEAT in metrics["part"]:
        floor, noise = None, TEXTS["repeated"]
    repeated = effects.filter(what=TITLES[REPEAT]).select("dataset", "method", floor=pl.col(FLIPS).struct["ci_high"])
    # A variation is above the noise if the interval of its changed answers is above the noise's upper limit.
    is_above = pl.col(FLIPS).struct["ci_low"] > pl.coalesce("floor", pl.lit(floor, pl.Float64))
    told = pl.when(is_above).then(pl.lit("yes")).when(~is_above).then(pl.lit("no")).otherwise(pl.lit("not known"))
    rows = effects.join(repeated, on=["dataset", "method"], how="left", maintain_order="left").with_columns(above=told)
    title, short = "What should not matter, and does", "What should not matter"
    notes: list[str] = [TEXTS["effects_note"], noise]
    yield from _section("effects", title, short, notes, rows, EFFECTS, "what-should-not-matter")
    yield from total_error_sections(run, datasets_of(run))


def repeat_noise(receipts: Sequence[ReceiptRecord]) -> tuple[float | None, str]:
    """Return the largest share of answers that repeated scoring may change, and a sentence about it.

    The share is the upper end of the 95% interval for the share of prompts whose answer changed when a receipt scored
    them again; of several receipts, the largest. None without receipts.
    """
    floors = [float(proportion_interval(one.flipped, one.predictions)[1]) for one in receipts]
    if not floors:
        return None, TEXTS["no_receipt"]
    floor, one = max(zip(floors, receipts, strict=True), key=lambda pair: pair[0])
    return floor, TEXTS["repeat_noise"].format(one.flipped, one.predictions, percent(floor))


def effects_table(metrics: pl.DataFrame, components: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each question, part and method: `dataset`, `what` (title of the part), `method`, a struct of
    value and interval for each of FLIPS, DISTANCE, ACCURACY and FIRST, and `share` in the variance of the accuracy.

    Args:
        metrics: rows of schemas.METRICS for the parts VARIED.
        components: schemas.VARIANCE_COMPONENTS.
    """
    rows = metrics.filter(pl.col("metric").str.starts_with(pl.col("part") + "_"))
    # The name of a metric is PART_MEASURE: one column for each measure.
    measure, key = pl.col("metric").str.strip_prefix(pl.col("part") + pl.lit("_")), ["dataset", "what", "method"]
    named = rows.filter(pl.col("dataset") != "mean").with_columns(what=pl.col("part").replace(TITLES))
    cells = named.select(*key, measure=measure, cell=pl.struct("value", "ci_low", "ci_high"))
    wide = cells.pivot(on="measure", on_columns=(FLIPS, DISTANCE, ACCURACY, FIRST), index=key, values="cell")
    # Components of the main part, each named by the part whose variation it is.
    of_accuracy = components.filter(~pl.col("part").is_in(VARIED))
    shares = of_accuracy.select("dataset", "method", "share", what=pl.col("component").replace(TITLES))
    return wide.join(shares, on=key, how="left", maintain_order="left")


def _share(title: str, of: str) -> Column:
    return Column(title, "value", of=of, interval=("ci_low", "ci_high"))


QUESTION, METHOD = text_column("Question", "dataset"), text_column("Method", "method")
ASKED = [QUESTION, text_column("Asked as", "part"), METHOD]
EFFECTS = [
    QUESTION,
    text_column("Variation", "what"),
    METHOD,
    _share("Changed answers", FLIPS),
    _share("Distance of probabilities", DISTANCE),
    _share("Accuracy over all variations", ACCURACY),
    _share("First option named", FIRST),
    Column("Share in total error", "share", show=percent),
    text_column("Above repeat noise", "above"),
]
BASELINES = [
    *ASKED,
    text_column("Baseline", "baseline"),
    Column("Baseline accuracy", "accuracy", interval=("ci_low", "ci_high")),
    Column("Method minus baseline", "difference", show=signed, interval=("difference_low", "difference_high")),
    Column("p", "p_value", show=p_text),
]
GRADED = [
    *ASKED,
    text_column("Score", "title"),
    Column("Value", "value", interval=("ci_low", "ci_high")),
    Column("Guessing", "guess"),
]
