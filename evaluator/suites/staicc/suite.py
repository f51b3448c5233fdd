"""Define the suites of StaICC. They share datasets, options, methods, tables, report sections and terminal lines.

Source: Cho & Inoue 2025, sections 3.2 and 3.3.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, get_args

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets import SOURCES
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lcg import SEED
from evaluator.errors import ConfigError
from evaluator.metrics.groups import PredictionGroup
from evaluator.prompts.demonstrations import LabelDomain, domain_demonstrations
from evaluator.prompts.rows import benchmark_plan, normal_requests, of_parts, requests
from evaluator.schemas import ABSENT_LABELS, ABSENT_LABELS_KEY
from evaluator.suites import base
from evaluator.suites.staicc import robustness
from evaluator.suites.staicc.completed import DemonstrationOptions, completed
from evaluator.suites.staicc.diagnostics import DIAGNOSTICS, METRIC_TEXTS, diagnostic_lines
from evaluator.suites.staicc.label_bias import absent_labels, bias_requests
from evaluator.suites.staicc.learning_curve import PART, learning_curve, learning_curve_requests
from evaluator.suites.staicc.published import published_results
from evaluator.suites.staicc.report import staicc_sections
from evaluator.suites.staicc.standing import published_comparison, standing_lines

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
        yield "learning_curve", learning_curve(run.scored, run.config.definitions)


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
    plan = base.Plan(check=_check_demonstrations)
    shared: dict[str, Any] = {"plan": plan, "take": completed, "describe": _describe}
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
    n_shots, definition = config.n_shots, config.prompt_definition
    for part in LABEL_DOMAINS:
        rows = domain_demonstrations(dataset, part, n_shots=n_shots, definition=definition)
        plan = replace(benchmark_plan(dataset, n_shots=n_shots), demonstration_ids=rows)
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
        plan=base.Plan(check=_require_shots),
    ),
}
