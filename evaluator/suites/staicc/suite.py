"""Define the suites of StaICC. They share datasets, options, methods, tables, report sections and terminal lines.

`completed` gives other labelled datasets the calibration rows, templates and instructions that StaICC's have.

Source: Cho & Inoue 2025, sections 3.2 and 3.3.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.config import Options, RunConfig, option
from evaluator.datasets import SOURCES
from evaluator.datasets.base import AnyDataset, ClassificationDataset, OwnDemonstrations, OwnDraw
from evaluator.datasets.conversions import as_classification
from evaluator.datasets.lcg import SEED
from evaluator.datasets.staicc import SIZES
from evaluator.errors import ConfigError
from evaluator.files.digests import fingerprint
from evaluator.methods import METHODS
from evaluator.metrics.groups import PredictionGroup
from evaluator.prompts.demonstrations import LabelDomain, domain_demonstrations
from evaluator.prompts.rows import benchmark_plan, normal_requests, of_parts, requests
from evaluator.schemas import ABSENT_LABELS, ABSENT_LABELS_KEY
from evaluator.suites import base
from evaluator.suites.staicc import robustness
from evaluator.suites.staicc.diagnostics import DIAGNOSTICS, METRIC_TEXTS, diagnostic_lines
from evaluator.suites.staicc.label_bias import absent_labels, bias_requests
from evaluator.suites.staicc.learning_curve import PART, learning_curve, learning_curve_requests
from evaluator.suites.staicc.published import published_results
from evaluator.suites.staicc.report import staicc_sections
from evaluator.suites.staicc.standing import published_comparison, standing_lines
from evaluator.templates.template import INSTRUCTIONS, Alternatives, nine_templates

INFERENCE_METHODS = (
    "vanilla",
    "noisy_channel",
    "contextual_calibration",
    "domain_calibration",
    "batch_calibration",
    "ppl_icl",
    "topk",
    "sa_icl",
    "knn_centroid",
    "knn_neighbours",
    "hidden_calibration",
)
"""The methods of Cho & Inoue 2025, table 2, with both forms of k-NN prompting."""

LABEL_DOMAINS: tuple[LabelDomain, ...] = get_args(LabelDomain)


@dataclass(frozen=True, kw_only=True)
class DemonstrationOptions(Options):
    """Options for the choice of demonstrations from a user's data."""

    demonstrations: OwnDraw = option(
        "balanced",
        "For your own data: each label equally often (if left out), each label at least once, or the first rows.",
    )
    sets: int = option(2, "For your own data: demonstration sets for each query, 2 if left out.", minimum=1)
    seed: int = option(SEED, "For your own data: seed of all random draws.", minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.demonstrations == "first" and self.sets != 1:
            raise ConfigError("--demonstrations first has one set, the first rows. Add --sets 1.")


MAX_OWN_QUERIES = 1000
"""Largest number of queries of a user's dataset in a run without --queries."""


def completed(dataset: AnyDataset, config: RunConfig) -> ClassificationDataset:
    """Return the dataset with all fields that the suites of StaICC need; a dataset of StaICC is returned unchanged.

    Half of the training rows, drawn by label and at most 1,024 as in StaICC, become calibration rows; with a user's
    data only if a method or suite of the run uses calibration rows. The queries are sorted so that for every N the
    first N have about the label frequencies of all queries; so --queries is a stratified sample.

    Raises the errors of as_classification.
    """
    dataset = as_classification(dataset)
    if not dataset.calibration.is_empty():
        return dataset
    shown, test = dataset.demonstration, dataset.test[_stratified_order(dataset.test["gold"])]
    is_own, notes, digest = config.is_own_data, [*dataset.notes], dataset.fingerprint
    if is_own and not _calibrates(config):
        calibration, demonstration = shown.clear(), shown  # all training rows are demonstrations
    else:
        order, is_only = _stratified_order(shown["gold"]), shown["gold"].is_unique().to_numpy()
        order = order[np.argsort(is_only[order], kind="stable")]  # the only row of a label stays a demonstration
        n_calibration = min(shown.height // 2, shown.height - int(is_only.sum()), SIZES.calibration)
        calibration, demonstration = (shown[np.sort(rows)] for rows in np.split(order, [n_calibration]))
        notes.append(
            f"{n_calibration} of {shown.height} training rows, drawn by label with seed {SEED}, calibrate methods and "
            f"are no demonstrations: {demonstration.height} demonstrations, {test.height} queries in all"
        )
        digest = fingerprint(digest, n_calibration) if is_own else digest  # the demonstrations change
    if is_own and config.n_queries is None and test.height > MAX_OWN_QUERIES:
        notes.append(f"{MAX_OWN_QUERIES:,} of {test.height:,} queries, drawn by label; --queries asks for more")
        test = test[:MAX_OWN_QUERIES]
    own = config.options_of(DemonstrationOptions)
    return replace(
        dataset,
        calibration=calibration,
        demonstration=demonstration,
        test=test,
        own_demonstrations=OwnDemonstrations(own.demonstrations, own.sets, own.seed) if is_own else None,
        alternative_templates=dataset.alternative_templates or nine_templates(dataset.template, Alternatives()),
        instructions=dataset.instructions or INSTRUCTIONS,
        notes=tuple(notes),
        fingerprint=digest,
    )


def _calibrates(config: RunConfig) -> bool:
    """Return whether the run uses calibration rows: for training prompts of a method, or for words of staicc-bias."""
    methods = (METHODS[name] for name in config.methods)
    return "staicc-bias" in config.suites or any(0 < each.labelled_examples(1) < math.inf for each in methods)


def _stratified_order(gold: pl.Series) -> Ints:
    """Return row numbers in a random order whose first n rows, for every n, have the label shares to within one row."""
    rows = pl.DataFrame({"gold": gold, "draw": np.random.default_rng(SEED).random(len(gold))})
    # Row j of the n rows of a label, from 0, has the sort key (j + 1/2) / n.
    rank = pl.col("draw").rank("ordinal").over("gold")
    place = rows.select((rank - 0.5) / pl.len().over("gold")).to_series().to_numpy()
    return np.asarray(np.lexsort((rows["draw"].to_numpy(), place)))


def measure(run: base.ScoredRun) -> Iterator[base.Table]:
    """Yield the tables of a classification run with diagnostics, absent labels, total error and learning curve."""
    absent, crossed = [ABSENT_LABELS.to_frame()], robustness.total_errors()

    def keep_absent(group: PredictionGroup) -> None:
        if group.key["part"] == "normal" and group.definition != "published":
            absent.append(absent_labels(group))

    yield from base.classification_tables(run, DIAGNOSTICS, further=[crossed.add, keep_absent])
    yield "absent_labels", pl.concat(absent).sort(ABSENT_LABELS_KEY)
    yield from crossed.tables(run.config.definitions).items()
    if PART in run.scored.parts:
        yield "learning_curve", learning_curve(run)


def published() -> pl.DataFrame:
    """Return the published accuracies, as rows of the suite staicc-normal, for a board (see base.Family.published)."""
    accuracies = published_results().filter(metric="accuracy").with_columns(suite=pl.lit("staicc-normal"))
    return accuracies.select("suite", "model", "family", "n_parameters", "method", "value")


STAICC = base.Family(
    measure=measure,
    sections=staicc_sections,
    summary_lines=lambda run: [*diagnostic_lines(run), *standing_lines(run)],
    metric_texts=METRIC_TEXTS,
    comparison=published_comparison,
    published=published,
)


def _describe(config: RunConfig) -> base.Described:
    seed = config.options_of(DemonstrationOptions).seed
    seeds = {"splits and demonstrations": SEED} if seed == SEED else {"splits": SEED, "demonstrations": seed}
    return base.Described((config.n_shots,), "the whole test split", seeds)


def _check_demonstrations(config: RunConfig) -> None:
    """Raise ConfigError if options choose demonstrations for StaICC's datasets, or for a suite without that choice."""
    others = [name for name in config.suites if name not in SUITES_OF_OWN_DATA]
    if config.options_of(DemonstrationOptions) != DemonstrationOptions() and (others or not config.is_own_data):
        where = ", ".join(others) or "StaICC's datasets, whose demonstrations are those of its toolkit"
        raise ConfigError(
            "--demonstrations, --sets and --seed choose the demonstrations of your own data (--data) in "
            f"{' and '.join(sorted(SUITES_OF_OWN_DATA))}; not for {where}. Leave them out."
        )


SUITES_OF_OWN_DATA = {"staicc-normal", "staicc-learning-curve"}
"""Suites that accept DemonstrationOptions for a user's data."""


def _suite(build: Callable[[ClassificationDataset, RunConfig], Iterable[pl.DataFrame]], **further: Any) -> base.Suite:
    """Return a suite of StaICC.

    Args:
        build: function that yields the requests for a dataset.
        further: fields of Suite that differ from the fields that all suites of StaICC share.
    """
    shared: dict[str, Any] = {"check": _check_demonstrations, "take": completed, "describe": _describe}
    return base.Suite(
        requests=lambda dataset, config: base.Requests(build(dataset, config)),
        default_datasets=tuple(SOURCES),
        joins_others=True,
        family=STAICC,
        **shared | further,
    )


def _robustness_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield StaICC-Normal's prompts with five rates of wrong labels, with nine templates, and with eight demonstration
    sets.

    Under `released`, templates and demonstration sets are tried on fewer queries, as in the toolkit. The paper (section
    3.3) does not mention these limits.
    """
    return of_parts(
        {
            "gler": robustness.label_noise_requests(dataset, config),
            "template": robustness.template_requests(dataset, config),
            "sampling": robustness.sampling_requests(dataset, config),
        }
    )


def _demonstration_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield the queries of StaICC-Normal after in-domain and after out-of-domain demonstrations."""
    for part in LABEL_DOMAINS:
        rows = domain_demonstrations(dataset, part, n_shots=config.n_shots, definition=config.prompt_definition)
        plan = replace(benchmark_plan(dataset, n_shots=config.n_shots), demonstration_ids=rows)
        yield from of_parts({part: requests(dataset, plan, n_queries=config.n_queries)})


def _require_shots(config: RunConfig) -> None:
    _check_demonstrations(config)
    if config.n_shots == 0:
        raise ConfigError("staicc-learning-curve asks for the label of every demonstration: --shots must be 1 or more.")


SUITES = {
    "staicc-normal": _suite(
        lambda dataset, config: of_parts(
            {"normal": normal_requests(dataset, n_shots=config.n_shots, n_queries=config.n_queries)}
        ),
        summary="Ten datasets, 512 queries each after two demonstration sets: accuracy, probability, F1, calibration.",
        parts={"normal": base.Part()},
        methods=INFERENCE_METHODS,
        options=DemonstrationOptions,
    ),
    "staicc-bias": _suite(
        bias_requests,
        summary="Label bias: empty queries, queries of random words, and the queries of staicc-normal.",
        parts={
            "normal": base.Part(),
            "contextual": base.Part(kind="diagnostic"),
            "domain": base.Part(kind="diagnostic", prompts_differ=True),
        },
        methods=INFERENCE_METHODS,
    ),
    "staicc-robustness": _suite(
        _robustness_requests,
        summary="Robustness of answers to wrong labels in demonstrations, nine templates and eight demonstration sets.",
        parts={name: base.Part(kind="diagnostic", prompts_differ=True) for name in ("gler", "template", "sampling")},
    ),
    "staicc-variables": _suite(
        robustness.variable_requests,
        summary="Macro-F1 over eight connectors, verbalizers, demonstration orders and splits, as in figure 2.",
        parts={name: base.Part(kind="diagnostic") for name in robustness.VARIABLES},
    ),
    "staicc-demonstrations": _suite(
        _demonstration_requests,
        summary="Demonstrations that show the query's label at least once, and demonstrations that never do.",
        parts={name: base.Part(prompts_differ=True) for name in LABEL_DOMAINS},
    ),
    "staicc-learning-curve": _suite(
        learning_curve_requests,
        summary="Label probabilities at every demonstration of StaICC-Normal's prompts: accuracy after 0, 1, ...",
        parts={"normal": base.Part(), PART: base.Part(kind="null")},
        methods=INFERENCE_METHODS,
        options=DemonstrationOptions,
        check=_require_shots,
    ),
}
