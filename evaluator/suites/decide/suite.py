"""Define the suite decide: typed questions about a table, by any model that answers with label probabilities."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.conversions import as_decision
from evaluator.decisions.forms import FORMS
from evaluator.decisions.questions import REPEAT, VARIED
from evaluator.errors import ConfigError
from evaluator.methods import REFERENCE_METHOD
from evaluator.methods.base import Method, MethodPrompts, ScoredRequests, label_score, softmax
from evaluator.metrics.graded import multi_label_scores, ordered_scores, soft_scores
from evaluator.metrics.groups import PredictionGroup
from evaluator.report.section import MeasuredRun
from evaluator.report.table import MetricText, interval, percent
from evaluator.schemas import GRADED, GRADED_KEY, MEAN_OVER_DATASETS, Definition
from evaluator.suites.base import (
    Described,
    Family,
    Part,
    Plan,
    ScoredRun,
    Suite,
    Table,
    classification_tables,
    described,
)
from evaluator.suites.decide.baselines import Baselines
from evaluator.suites.decide.consistency import DIAGNOSTICS, FLIPS, TITLES, VariedAnswers
from evaluator.suites.decide.prompts import (
    INPUTS,
    ONE_BY_ONE,
    ORDER_AVERAGED,
    QUESTION_KINDS,
    SOFT_GOLD,
    ZERO_SHOT,
    DecideOptions,
    added_orders,
    added_single_options,
    decide_requests,
)
from evaluator.suites.decide.report import decide_sections
from evaluator.suites.staicc.learning_curve import PART, learning_curve

_QUERY = ["suite", "dataset", "query_id", "demonstration_set"]


def order_averaged_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return the geometric mean, normalised, of the probabilities over all orders of the options."""
    score = label_score(definition)
    own = scored.rows.filter(part=ORDER_AVERAGED).select(
        *_QUERY, label=pl.int_ranges(score.list.len()), score=softmax(score)
    )
    means = own.explode("label", "score").group_by(*_QUERY, "label").agg(pl.col("score").log().mean())
    lists = means.sort(*_QUERY, "label").group_by(_QUERY, maintain_order=True).agg(label_probs=softmax_all("score"))
    return scored.queries.join(lists, on=_QUERY, how="left", maintain_order="left")


def one_by_one_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return P(yes) of each option's own question, normalised over the options; of a yes-or-no question its softmax."""
    yes = softmax(label_score(definition)).list.get(1)
    own = scored.rows.filter(part=ONE_BY_ONE).select(*_QUERY, "label_tried", score=yes.log())
    lists = own.sort(*_QUERY, "label_tried").group_by(_QUERY, maintain_order=True).agg(own_probs=softmax_all("score"))
    queries = scored.queries.join(lists, on=_QUERY, how="left", maintain_order="left")
    return queries.with_columns(label_probs=pl.coalesce("own_probs", softmax(label_score(definition)))).drop(
        "own_probs"
    )


def softmax_all(column: str) -> pl.Expr:
    """Return the softmax over all rows of a group."""
    scaled = (pl.col(column) - pl.col(column).max()).exp()
    return scaled / scaled.sum()


OWN_METHODS = {
    ORDER_AVERAGED: Method(
        summary="The geometric mean of the probabilities over all orders of the options.",
        label_probs=order_averaged_probs,
        prompts=MethodPrompts(requests=added_orders),
        part_kinds=("classification",),
        definitions=("paper",),
    ),
    ONE_BY_ONE: Method(
        summary="A yes-or-no question for each option in place of one choice.",
        label_probs=one_by_one_probs,
        prompts=MethodPrompts(requests=added_single_options),
        part_kinds=("classification",),
        definitions=("paper",),
    ),
}

METHODS = ("vanilla", *OWN_METHODS, "batch_calibration", "temperature_scaling")
"""Methods for typed questions: the others write prompts from a label space that all rows share."""


def check(config: RunConfig) -> None:
    """Raise ConfigError for a run without questions, and for methods that do not fit them."""
    if REPEAT in (config.parts or ()):
        raise ConfigError(
            "decide scores equal prompts once and has no part repeat. `evaluator receipt DIR` scores prompts of its "
            "finished run again in other batches, and the page then has the share of changed answers."
        )
    if config.data.questions is None or not config.data.paths:
        raise ConfigError(
            "decide asks typed questions about a table. Name both: --data tickets.csv --questions questions.toml "
            "(docs/decisions.md)."
        )
    unfit = [name for name in config.methods if name not in METHODS]
    if unfit:
        raise ConfigError(f"decide has no method {', '.join(unfit)}. Choose from {', '.join(METHODS)}.")


def files(config: RunConfig) -> Iterable[Path]:
    return [config.data.questions] if config.data.questions else []


def describe(config: RunConfig) -> Described:
    options = config.options_of(DecideOptions)
    seeds = {"demonstrations and orders of options": options.seed}
    return described(config, shots=options.shots, every_query="every row", seeds=seeds)


def measure(run: ScoredRun) -> Iterator[Table]:
    """Yield the tables of classification, what should not matter, and scores of levels, distributions and labels."""
    options = run.config.options_of(DecideOptions)
    graded, varied = GradedAnswers(run, options.forms), VariedAnswers(options.forms[0])
    baselines = Baselines(run.store.table("inputs", INPUTS), options.seed, options.forms)

    def read(group: PredictionGroup) -> None:
        graded.add(group)
        varied.add(group)
        baselines.add(group)

    yield from classification_tables(run, DIAGNOSTICS, shared="demonstrations" * bool(options.shots[0]), further=read)
    yield "graded", graded.table()
    yield from varied.tables().items()
    yield "baselines", baselines.table()
    if PART in run.scored.parts and options.shots[0]:
        yield "learning_curve", learning_curve(run.scored, run.config.definitions, options.forms[0])


class GradedAnswers:
    """Scores of levels, of answers whose gold is a distribution, and of all yes-or-no questions about a table."""

    def __init__(self, run: ScoredRun, parts: Sequence[str]) -> None:
        kinds = run.store.table("question_kinds", QUESTION_KINDS).collect()
        self._asked = {dataset: (kind, table) for dataset, kind, table in kinds.iter_rows()}
        self._labels: dict[tuple[str, ...], list[PredictionGroup]] = {}  # groups of yes-or-no questions asked alike
        self._soft = run.store.table("soft_gold", SOFT_GOLD).collect()
        self._parts, self._found = parts, [GRADED.to_frame()]

    def add(self, group: PredictionGroup) -> None:
        """Score a group of a part that is no variation."""
        if group.key["part"] not in self._parts or group.definition != "paper":
            return
        rows = group.rows.filter(demonstration_set=0)  # requests of a query are not independent
        probs = rows["label_probs"].list.to_array(group.n_labels).to_numpy()
        kind, table = self._asked.get(group.key["dataset"], ("", ""))
        if kind == "score":
            self._keep(group.key, ordered_scores(probs, rows["gold"].to_numpy()))
        if kind == "yes-no":
            slim = replace(group, rows=rows.select("query_id", "gold", yes=pl.col("label_probs").list.get(1)))
            self._labels.setdefault((table, *(v for k, v in group.key.items() if k != "dataset")), []).append(slim)
        soft = rows.select("query_id").join(
            self._soft.filter(dataset=group.key["dataset"]), on="query_id", how="left", maintain_order="left"
        )["soft_gold"]
        if soft.is_not_null().any():
            has_soft = soft.is_not_null().to_numpy()
            distributions = soft.drop_nulls().list.to_array(group.n_labels).to_numpy()
            self._keep(group.key, soft_scores(probs[has_soft], distributions))

    def _keep(self, group_key: dict[str, str], scores: pl.DataFrame) -> None:
        key = {name: pl.lit(value) for name, value in group_key.items()}
        self._found.append(scores.with_columns(**key).select(GRADED.names()).cast(GRADED))

    def _score_labels(self, groups: Sequence[PredictionGroup]) -> None:
        """Score the yes-or-no questions about a table as labels of the rows that have every true answer."""
        named = [group.rows.rename({"gold": f"gold {n}", "yes": f"yes {n}"}) for n, group in enumerate(groups)]
        rows = reduce(lambda left, right: left.join(right, on="query_id", maintain_order="left"), named)
        yes, gold = (rows.select(f"{name} {n}" for n in range(len(groups))).to_numpy() for name in ("yes", "gold"))
        if len(groups) > 1 and len(rows):
            datasets = " + ".join(group.key["dataset"] for group in groups)
            one_true = bool((gold.sum(axis=1) == 1).all())
            scores = multi_label_scores(yes, gold.astype(bool), one_true=one_true)
            self._keep(groups[0].key | {"dataset": datasets}, scores)

    def table(self) -> pl.DataFrame:
        """Return GRADED, sorted by its key."""
        for groups in self._labels.values():
            self._score_labels(groups)
        return pl.concat(self._found).sort(GRADED_KEY)


def summary_lines(run: MeasuredRun) -> Iterator[str]:
    """Yield how many answers of vanilla change, for each part that should not matter, over all questions."""
    metrics = run.table("metrics").filter(method=REFERENCE_METHOD)
    for part, title in TITLES.items():
        rows = metrics.filter(part=part, metric=f"{part}_{FLIPS}")
        of_all = rows.filter(dataset=MEAN_OVER_DATASETS)
        for row in (rows if of_all.is_empty() else of_all).iter_rows(named=True):
            ends = interval(row["ci_low"], row["ci_high"])
            yield f"{title}: {percent(row['value'])} of answers change ({ends})"


METRIC_TEXTS = {
    name: MetricText(title, lower_is_better=each.lower_is_better)
    for each in DIAGNOSTICS
    for name, title in {each.metric: each.title, **each.titles}.items()
}

SUITES = {
    "decide": Suite(
        summary="Typed questions about your table: how often right, how sure, and what changes the answers.",
        parts={form: Part() for form in FORMS}
        | {PART: Part(kind="null")}
        | {part: Part(kind="diagnostic") for part in (ZERO_SHOT, *VARIED) if part != REPEAT},  # equal prompts are one
        methods=METHODS,
        own_methods=OWN_METHODS,
        definitions=("paper",),
        label_boundary="merged",
        options=DecideOptions,
        take=lambda dataset, _config: as_decision(dataset),
        requests=decide_requests,
        describe=describe,
        plan=Plan(check=check, files=files, queries_every_row=lambda _config: True),
        family=Family(
            measure=measure, sections=decide_sections, summary_lines=summary_lines, metric_texts=METRIC_TEXTS
        ),
    )
}
