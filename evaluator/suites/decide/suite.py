"""Define the suite decide: typed questions about the rows of a table, answered with label probabilities.

Answers that were imported from a file are measured and reported here too, by the family IMPORTED_ANSWERS: as
classification, and with the effects of variations if the file has variations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import polars as pl

from evaluator.config import Definition, RunConfig
from evaluator.datasets.conversions import as_decision
from evaluator.decisions.forms import FORMS
from evaluator.decisions.questions import REPEAT, VARIED
from evaluator.errors import ConfigError
from evaluator.imports.answers import IMPORTED, NUMBERS, WITH_REFUSALS
from evaluator.methods import REFERENCE_METHOD
from evaluator.methods.base import Method, MethodPrompts, ScoredRequests, label_score, softmax
from evaluator.metrics.graded import multi_label_scores, ordered_scores, soft_scores
from evaluator.metrics.groups import PredictionGroup
from evaluator.metrics.total_error import crossed_cells
from evaluator.report.section import MeasuredRun
from evaluator.report.table import MetricText, percent
from evaluator.schemas import GRADED, GRADED_KEY, MEAN_OVER_DATASETS, PREDICTIONS_KEY
from evaluator.suites import base
from evaluator.suites.decide import consistency, prompts
from evaluator.suites.decide.report import answer_sections, decide_sections
from evaluator.suites.staicc.learning_curve import PART, learning_curve

_QUERY = ["suite", "dataset", "query_id", "demonstration_set"]


def order_averaged_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return the queries with `label_probs`: the geometric mean of the probabilities over all orders of the options,
    normalised."""
    score = label_score(definition)
    probs = {"label": pl.int_ranges(score.list.len()), "score": softmax(score)}
    # Mean log-probability of each label over orders. Lists of sorted rows are summed in a fixed order, so that the last
    # digit of a mean does not vary between runs.
    own = scored.rows.filter(part=prompts.ORDER_AVERAGED).sort(*_QUERY, "template").select(*_QUERY, **probs)
    by_label = own.explode("label", "score").group_by(*_QUERY, "label", maintain_order=True).agg(pl.col("score").log())
    return _with_softmax(scored.queries, by_label.with_columns(pl.col("score").list.mean()))


def one_by_one_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return the queries with `label_probs`: P(yes) for the question whether an option is the answer, normalised over
    the options. A yes-or-no question keeps its own probabilities, as vanilla has them."""
    yes = softmax(label_score(definition)).list.get(1)
    own = scored.rows.filter(part=prompts.ONE_BY_ONE).select(*_QUERY, "label_tried", score=yes.log())
    queries = _with_softmax(scored.queries, own.sort(*_QUERY, "label_tried"))
    return queries.with_columns(pl.coalesce("label_probs", softmax(label_score(definition))))


def _with_softmax(queries: pl.LazyFrame, scores: pl.LazyFrame) -> pl.LazyFrame:
    """Add `label_probs` to queries: the softmax of the query's rows in `scores`, which are in label-space order."""
    lists = scores.group_by(_QUERY, maintain_order=True).agg("score")
    probs = lists.select(*_QUERY, label_probs=softmax(pl.col("score")))
    return queries.join(probs, on=_QUERY, how="left", maintain_order="left")


_AVERAGED = Method(
    summary="The geometric mean of the probabilities over all orders of the options.",
    label_probs=order_averaged_probs,
    prompts=MethodPrompts(requests=prompts.added_orders),
    part_kinds=("classification",),
    definitions=("paper",),
)
_ALONE = replace(
    _AVERAGED,
    summary="A yes-or-no question for each option in place of one choice.",
    label_probs=one_by_one_probs,
    prompts=MethodPrompts(requests=prompts.added_single_options),
)
OWN_METHODS = {prompts.ORDER_AVERAGED: _AVERAGED, prompts.ONE_BY_ONE: _ALONE}

METHODS = ("vanilla", *OWN_METHODS, "batch_calibration", "temperature_scaling")
"""Methods of the suite. Other methods build prompts from one label space, and here options can differ between rows."""


def check(config: RunConfig) -> None:
    """Raise ConfigError for a run without questions, or with options or methods that typed questions do not have."""
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
    data, columns = config.data, config.data.columns
    unread: dict[str, object] = {
        "--labels": data.labels or None,
        "--instruction": data.instruction,
        "--template": data.template,
    }
    unread |= {"--training-rows": data.training_rows, "--gold-column": columns.gold}
    unread |= {"--choices-column": columns.choices, "--id-column": columns.example_id}
    if given := [name for name, value in unread.items() if value is not None]:
        raise ConfigError(
            f"decide takes no {', '.join(given)}. The file of --questions has instructions, options and the column of "
            "true ones, and --shots is the number of demonstrations."
        )
    unfit = [name for name in config.methods if name not in METHODS]
    if unfit:
        raise ConfigError(f"decide has no method {', '.join(unfit)}. Choose from {', '.join(METHODS)}.")


def describe(config: RunConfig) -> base.Described:
    options = config.options_of(prompts.DecideOptions)
    return base.Described(options.shots, "every row", {"demonstrations and orders of options": options.seed})


def measure(run: base.ScoredRun) -> Iterator[base.Table]:
    """Yield the tables of classification, graded scores, effects of variations, baselines and the learning curve."""
    options = run.config.options_of(prompts.DecideOptions)
    graded = GradedAnswers(run, options.forms)
    errors = consistency.total_errors(options.forms[0], graded.independent)
    baselines = consistency.Baselines(run.store.table("inputs", prompts.INPUTS), options.seed, options.forms)
    readers, shared = [graded.add, errors.add, baselines.add], "demonstrations" * bool(options.shots[0])
    yield from base.classification_tables(run, graded.diagnostics, shared=shared, further=readers, inputs=graded.inputs)
    yield "graded", graded.table()
    yield from consistency.total_error_of_accuracies(errors, run.config.definitions).items()
    yield "baselines", baselines.table()
    if PART in run.scored.parts and options.shots[0]:
        yield "learning_curve", learning_curve(run, options.forms[0], graded.independent)


class GradedAnswers:
    """Collect graded scores: of levels, of answers whose gold is a distribution, and of several yes-or-no questions
    about one table, which are labels of its rows.

    Args:
        run: has the side tables question_kinds and soft_gold.
        parts: parts to score; their prompts are unchanged questions.
    """

    def __init__(self, run: base.ScoredRun, parts: Sequence[str]) -> None:
        kinds = run.store.table("question_kinds", prompts.QUESTION_KINDS).collect()
        self._asked = {dataset: (kind, table) for dataset, kind, table in kinds.iter_rows()}
        self.inputs, self.independent = dict(kinds["dataset", "table"].iter_rows()), kinds["table"].is_unique().all()
        self.diagnostics = consistency.diagnostics({name: kind for name, (kind, _) in self._asked.items() if kind})
        self._labels: dict[tuple[str, ...], list[PredictionGroup]] = {}  # table and key -> yes-or-no questions
        self._soft = run.store.table("soft_gold", prompts.SOFT_GOLD).collect()
        self._parts, self._found = parts, [GRADED.to_frame()]

    def add(self, group: PredictionGroup) -> None:
        """Score a group of predictions if it belongs to one of the parts."""
        if group.key["part"] not in self._parts or group.definition != "paper":
            return
        rows = group.rows.filter(demonstration_set=0)  # requests of one query are not independent
        probs = rows["label_probs"].list.to_array(group.n_labels).to_numpy()
        kind, table = self._asked.get(group.key["dataset"], ("", ""))
        if kind == "score":
            self._keep(group.key, ordered_scores(probs, rows["gold"].to_numpy()))
        # Yes-or-no questions are scored together by `table`, when all questions about a table have been added.
        if kind == "yes-no":
            slim = replace(group, rows=rows.select("query_id", "gold", yes=pl.col("label_probs").list.get(1)))
            self._labels.setdefault((table, *(v for k, v in group.key.items() if k != "dataset")), []).append(slim)
        of_dataset = self._soft.filter(dataset=group.key["dataset"])
        soft = rows.select("query_id").join(of_dataset, on="query_id", how="left", maintain_order="left")["soft_gold"]
        if soft.is_not_null().any():
            distributions = soft.drop_nulls().list.to_array(group.n_labels).to_numpy()
            self._keep(group.key, soft_scores(probs[soft.is_not_null().to_numpy()], distributions))

    def _keep(self, group_key: dict[str, str], scores: pl.DataFrame) -> None:
        key = {name: pl.lit(value) for name, value in group_key.items()}
        self._found.append(scores.with_columns(**key).select(GRADED.names()).cast(GRADED))

    def _score_labels(self, groups: Sequence[PredictionGroup]) -> None:
        """Score the yes-or-no questions about a table as labels of its rows, for rows with all true answers."""
        rows = pl.concat(group.rows.with_columns(question=n) for n, group in enumerate(groups))
        yes, gold = (crossed_cells(rows, name, "question", None)[0][:, :, 0] for name in ("yes", "gold"))
        if len(groups) > 1 and len(gold):
            datasets = " + ".join(group.key["dataset"] for group in groups)
            scores = multi_label_scores(yes, gold.astype(bool), one_true=bool((gold.sum(axis=1) == 1).all()))
            self._keep(groups[0].key | {"dataset": datasets}, scores)

    def table(self) -> pl.DataFrame:
        """Return GRADED, sorted by its key."""
        for groups in self._labels.values():
            self._score_labels(groups)
        return pl.concat(self._found).sort(GRADED_KEY)


def summary_lines(run: MeasuredRun) -> Iterator[str]:
    """Yield a line for each part of variations: the share of changed answers of vanilla, as a mean over questions."""
    metrics = run.table("metrics").filter(method=REFERENCE_METHOD)
    for part, title in consistency.TITLES.items():
        rows = metrics.filter(part=part, metric=f"{part}_{consistency.FLIPS}")
        of_all = rows.filter(dataset=MEAN_OVER_DATASETS)
        for row in (rows if of_all.is_empty() else of_all).iter_rows(named=True):
            value, low, high = (percent(row[name]) for name in ("value", "ci_low", "ci_high"))
            ends = "no interval" if row["ci_low"] is None else f"{low} to {high}"
            yield f"{title}: {value} of answers change ({ends})"


METRIC_TEXTS = {
    name: MetricText(title, lower_is_better=name.endswith((consistency.FLIPS, consistency.DISTANCE)))
    for each in consistency.diagnostics({})
    for name, title in {each.metric: each.title, **each.titles}.items()
}

SUITES = {
    "decide": base.Suite(
        summary="Typed questions about your table: how often right, how sure, and what changes the answers.",
        parts={form: base.Part() for form in FORMS}
        | {PART: base.Part(kind="null")}
        # There is no part REPEAT, because equal prompts are scored once.
        | {part: base.Part(kind="diagnostic") for part in (prompts.ZERO_SHOT, *VARIED) if part != REPEAT},
        methods=METHODS,
        own_methods=OWN_METHODS,
        definitions=("paper",),
        label_boundary="merged",
        options=prompts.DecideOptions,
        take=lambda dataset, _config: as_decision(dataset),
        requests=prompts.decide_requests,
        describe=describe,
        check=check,
        files=lambda config: [config.data.questions],
        queries_every_row=lambda _config: True,
        family=base.Family(
            measure=measure,
            sections=decide_sections,
            summary_lines=summary_lines,
            metric_texts=METRIC_TEXTS,
        ),
    )
}

ANSWERED_METRICS = ("accuracy", "macro_f1")
"""Metrics of predicted labels, which need no probabilities."""

OF_PROBABILITIES = ("reliability", "coverage", "risk_coverage", "thresholds")
"""Tables that are defined only for probabilities."""


def imported_tables(run: base.ScoredRun) -> Iterator[base.Table]:
    """Yield the tables of imported answers, without metrics that need more than the imported numbers."""
    imported = run.store.table(IMPORTED, NUMBERS).collect()
    numbers = imported["numbers"][0]
    # Metrics by the kind of numbers. With refusals counted as wrong, only metrics of labels are defined.
    kept = {
        "log-likelihoods": pl.lit(True),
        "probabilities": ~pl.col("metric").str.starts_with("label_mass"),
        "labels": pl.col("metric").is_in(ANSWERED_METRICS),
    }[numbers] & (pl.col("part").ne(WITH_REFUSALS) | pl.col("metric").is_in(ANSWERED_METRICS))
    graded = GradedAnswers(run, [IMPORTED])
    errors = consistency.total_errors(IMPORTED, graded.independent)
    readers = [graded.add, errors.add]
    changed = partial(_with_floored, imported=imported)
    tables = base.classification_tables(run, graded.diagnostics, further=readers, inputs=graded.inputs, changed=changed)
    for name, table in tables:
        if name == "metrics":
            table = table.filter(kept)
        elif name in OF_PROBABILITIES:
            table = table.clear() if numbers == "labels" else table.filter(pl.col("part") != WITH_REFUSALS)
        yield name, table
    yield "graded", graded.table()
    if {*VARIED} & {*run.scored.parts}:
        yield from consistency.total_error_of_accuracies(errors, run.config.definitions).items()


def _with_floored(predictions: pl.LazyFrame, imported: pl.DataFrame) -> pl.LazyFrame:
    """Add predictions under the definition `floored`, if a dataset has a reported probability of zero.

    Under `floored`, probabilities below the floor of a dataset are raised to it and normalised again. Datasets without
    reported zeros have the floor 0, so that their probabilities are unchanged. Parts of variations are left out.
    """
    floored = imported.filter(~pl.col("part").is_in(VARIED)).with_columns(pl.col("floor").fill_null(0.0))
    floors = floored.partition_by("floor", as_dict=True)
    if not {*floors} - {(0.0,)}:
        return predictions
    tables = [predictions]
    for (floor,), datasets in floors.items():
        raised = pl.max_horizontal(pl.element(), pl.lit(floor))
        of_datasets = predictions.join(datasets.select("dataset", "part").lazy(), on=["dataset", "part"], how="semi")
        probs = pl.col("label_probs").list.eval(raised / raised.sum())
        tables.append(of_datasets.with_columns(label_probs=probs, definition=pl.lit("floored")))
    return pl.concat(tables).sort(PREDICTIONS_KEY)


IMPORTED_ANSWERS = base.Family(
    measure=imported_tables,
    sections=answer_sections,
    summary_lines=summary_lines,
    metric_texts=METRIC_TEXTS,
)
"""Measures, report sections and terminal lines of imported answers."""
