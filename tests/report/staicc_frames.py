"""Hand-made frames of a run with several methods and on disturbed prompts. No number comes from our own metrics."""

import math
from typing import Any

import polars as pl

from evaluator.compare.schema import DIFFERENCES
from evaluator.record import PartRecord
from evaluator.schemas import GROUP_METRICS, METRICS
from tests.report.made_record import NORMAL, changed_record
from tests.report.made_run import MadeRun

DATASETS = ("zoo", "mid", "abc", "mean")
METHODS = ("topk", "knn_centroid")  # beside vanilla

# What each method is above vanilla in accuracy, and whether the interval, 1/8 to either side, holds 0.
# Vanilla's accuracies are zoo 0.1235, mid 0.5, abc 0.9 and mean 0.5078 under `paper`.
GAINS = {
    "topk": {"zoo": 0.25, "mid": -0.25, "abc": 0.0625, "mean": 1 / 48},
    "knn_centroid": {"zoo": 0.5, "mid": 0.0625, "abc": -0.0625, "mean": 1 / 6},
}
HALF_WIDTH = 0.125


def disturbed_part(*, prompts_differ: bool) -> PartRecord:
    return PartRecord(kind="diagnostic", definitions=["paper", "released"], prompts_differ=prompts_differ)


# part -> metric -> value; every dataset has the value, shifted by a number of its own.
DISTURBED = {
    "contextual": {"contextual_bias": -0.75},
    "domain": {"domain_bias": -0.5},
    "normal": {"empirical_bias": 0.25},
    "gler": {"gler": 0.125, "gler_per_tenth": 1.25, "gler_toolkit_axis": 0.375, "gler_macro_f1": 0.0625},
    "template": {
        "template_consistency": 0.625, "accuracy_mean_over_templates": 0.5, "accuracy_sd_over_templates": 0.03125
    },
    "sampling": {"sampling_consistency": 0.6875, "accuracy_mean_over_demonstration_sets": 0.375},
}  # fmt: skip
SUITES = {"contextual": "staicc-bias", "domain": "staicc-bias", "normal": "staicc-normal"}
SHIFT = {"zoo": 0.0, "mid": 1 / 64, "abc": 1 / 32, "mean": 1 / 64}
PARTS = {
    "staicc-normal": {"normal": NORMAL},
    "staicc-bias": {
        "contextual": disturbed_part(prompts_differ=False), "domain": disturbed_part(prompts_differ=True)
    },
    "staicc-robustness": {part: disturbed_part(prompts_differ=True) for part in ("gler", "template", "sampling")},
}  # fmt: skip
RELEASED_PARTS = ("contextual", "normal")  # whose prompts do not differ between definitions

GROUP_SIZES = {"gler": 5, "template": 9, "sampling": 8}


def staicc_data(plain: MadeRun) -> MadeRun:
    """`plain`, a run of vanilla on the part normal, with two more methods and all diagnostics."""
    metrics = plain.table("metrics")
    return plain.but(
        record=changed_record(plain.record, prompts={"suites": list(PARTS), "parts": PARTS}),
        metrics=pl.concat([metrics, *(method_metrics(metrics, name) for name in METHODS), diagnostics()]),
        reliability=with_methods(plain.table("reliability")),
        confusion=with_methods(plain.table("confusion")),
        method_differences=differences(),
        group_metrics=group_metrics(),
        missing_classes=pl.DataFrame({"dataset": ["abc"], "method": ["knn_centroid"], "label": ["w"]}),
        absent_labels=absent_labels(),
    )


def with_methods(frame: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([frame, *(frame.with_columns(method=pl.lit(name)) for name in METHODS)])


def method_metrics(vanilla: pl.DataFrame, method: str) -> pl.DataFrame:
    """Accuracy as GAINS have it, all else as vanilla's; topk answers each query once, under `paper` alone."""
    gain = pl.col("dataset").replace_strict(GAINS[method], return_dtype=pl.Float64)
    rows = vanilla.with_columns(
        method=pl.lit(method), value=pl.when(metric="accuracy").then(pl.col("value") + gain).otherwise("value")
    )
    if method == "topk":
        rows = rows.filter(definition="paper").with_columns(n_requests="n_queries")
    return rows


def differences() -> pl.DataFrame:
    sides = {"suite": "staicc-normal", "part": "normal", "model_a": "acme/small", "model_b": "acme/small"}
    rows: list[dict[str, Any]] = [
        sides
        | {"metric": metric, "definition": definition, "method_a": method, "method_b": "vanilla", "dataset": dataset}
        | {"difference": value, "ci_low": value - HALF_WIDTH, "ci_high": value + HALF_WIDTH, "n_queries": 4}
        | {"p_value": 0.0125 if abs(value) > HALF_WIDTH else 0.2, "p_holm": 0.0375 if abs(value) > HALF_WIDTH else 0.6}
        | {"n_tests": 16, "test": "McNemar", "min_detectable": 0.25}
        for method in METHODS
        for definition in (("paper",) if method == "topk" else ("paper", "released", "published"))
        for metric in ("accuracy", "true_label_probability")
        for dataset, gain in GAINS[method].items()
        for value in [gain if metric == "accuracy" else 0.0]
    ]
    return pl.DataFrame(rows, schema=DIFFERENCES)


def diagnostics() -> pl.DataFrame:
    """Empirical bias is infinite on abc and so over all datasets, under `released` undefined."""
    rows: list[dict[str, Any]] = []
    for definition in ("paper", "released"):
        for part, measured in DISTURBED.items():
            if definition == "paper" or part in RELEASED_PARTS:
                for metric, value in measured.items():
                    rows += [
                        {"suite": SUITES.get(part, "staicc-robustness"), "part": part, "method": "vanilla"}
                        | {"dataset": dataset, "metric": metric, "definition": definition, "n_queries": 4}
                        | numbers(metric, dataset, value + SHIFT[dataset], definition)
                        for dataset in DATASETS
                    ]
    return pl.DataFrame(rows, schema=METRICS)


def numbers(metric: str, dataset: str, value: float, definition: str) -> dict[str, Any]:
    if metric == "empirical_bias" and dataset in ("abc", "mean"):
        return {
            "value": math.inf if definition == "paper" else math.nan,
            "ci_low": None,
            "ci_high": None,
            "n_requests": 8,
        }
    return {"value": value, "ci_low": value - 1 / 16, "ci_high": value + 1 / 16, "n_requests": 8}


def group_metrics() -> pl.DataFrame:
    """Accuracies in steps of 1/16 from 1/16 upwards, on mid a step higher, on abc two; one GLER a rate, and so on."""
    rows: list[dict[str, Any]] = [
        {"suite": "staicc-robustness", "part": part, "dataset": dataset, "method": "vanilla", "metric": "accuracy"}
        | {"definition": "paper", "noise_rate": place / 4 if part == "gler" else None}
        | {"template": place if part == "template" else None}
        | {"demonstration_set": place if part == "sampling" else None}
        | {"value": (1 + place + step) / 16, "n_requests": 8}
        for part, size in GROUP_SIZES.items()
        for step, dataset in enumerate(DATASETS)
        for place in range(size)
    ]
    return pl.DataFrame(rows, schema=GROUP_METRICS)


def absent_labels() -> pl.DataFrame:
    about = {"suite": "staicc-normal", "part": "normal", "dataset": "abc", "method": "vanilla"}
    return pl.DataFrame(
        [
            about | {"definition": definition, "label_name": label, "mean_probability": 0.125}
            for definition in ("paper", "released")
            for label in ("z", "w")
        ]
    )
