"""Hand-made run folders: what `evaluator run` leaves, of models that are numbers drawn with a seed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from evaluator.compare.results import request_results
from evaluator.compare.runs import ComparedRun
from evaluator.files.json_files import write_record
from evaluator.files.whole import write_table
from evaluator.run.folders import RUN_FILE, read_run
from evaluator.schemas import METRICS, PREDICTIONS
from tests.metrics.measured import metrics_of
from tests.report.made_record import run_record

LABELS = {"zoo": ["cat", "dog"], "abc": ["x", "y", "z", "w"], "mid": ["no", "yes"], "odd": ["one", "two", "three"]}
PARAMETERS = {"acme/tiny": 10**6, "acme/small": 10**7, "acme/mid": 10**8, "acme/large": 10**9}
N_QUERIES, REPEATS = 12, 2
DIAGNOSTICS = {"staicc-bias / contextual": "contextual_bias", "staicc-robustness / sampling": "sampling_consistency"}


def predictions(
    skill: float,
    *,
    seed: int,
    datasets: Sequence[str] = tuple(LABELS),
    methods: Sequence[str] = ("vanilla", "topk"),
    definitions: Sequence[str] = ("paper", "released"),
    prompts: str = "p",
) -> pl.DataFrame:
    """Probabilities at random with `skill` more weight on the true label; alike under both definitions."""
    rows = []
    for dataset in datasets:
        for method in methods:
            # Of its own, so that a dataset's numbers do not depend on which others a run has.
            rng = np.random.default_rng([seed, list(LABELS).index(dataset), len(method)])
            for position in range(N_QUERIES * REPEATS):
                gold = (position * 7 // 3) % len(LABELS[dataset])
                weights = rng.random(len(LABELS[dataset]))
                weights[gold] += skill
                probs = (weights / weights.sum()).tolist()
                place = {
                    "position": position,
                    "query_id": position % N_QUERIES,
                    "demonstration_set": position // N_QUERIES,
                }
                about = {"suite": "staicc-normal", "part": "normal", "dataset": dataset, "method": method}
                said = {"gold": gold, "pred": int(np.argmax(probs)), "label_probs": probs}
                asked = {
                    "prompt_id": f"{prompts} {dataset} {position}",
                    "label_names": LABELS[dataset],
                    "n_shots": 2,
                    "template": 0,
                    "noise_rate": 0.0,
                    "n_wrong_labels": 0,
                }
                rows += [about | place | asked | said | {"definition": definition} for definition in definitions]
    return pl.DataFrame(rows, schema=PREDICTIONS)


def diagnostics(values: dict[str, Sequence[float]], datasets: Sequence[str] = tuple(LABELS)) -> pl.DataFrame:
    """Rows of schemas.METRICS: the suite and part a metric is measured in -> a value for each dataset."""
    rows = [
        dict(zip(("suite", "part"), place.split(" / "), strict=True))
        | {"dataset": dataset, "method": "vanilla", "metric": DIAGNOSTICS[place], "definition": definition}
        | {"value": value, "ci_low": value - 0.1, "ci_high": value + 0.1, "n_queries": N_QUERIES, "n_requests": 24}
        for place, own in values.items()
        for dataset, value in zip(datasets, own, strict=True)
        for definition in ("paper", "released", "published")
    ]
    return pl.DataFrame(rows, schema=METRICS)


def write_run(
    folder: Path, name: str, answers: pl.DataFrame, measured: pl.DataFrame | None = None, **changed: dict[str, Any]
) -> Path:
    """A run's folder; `changed` are entries of sections of its record, `measured` rows beside its own metrics."""
    model = {"name": name, "weights_fingerprint": f"weights of {folder.name}", "n_parameters": PARAMETERS.get(name)}
    sections: dict[str, dict[str, Any]] = {"model": model, "prompts": {"datasets": list(LABELS)}}
    sections |= {section: sections.get(section, {}) | entries for section, entries in changed.items()}
    metrics = pl.concat([metrics_of(answers), *([measured] if measured is not None else [])])
    tables = {
        name: write_table(folder, name, table) for name, table in (("predictions", answers), ("metrics", metrics))
    }
    write_record(folder / RUN_FILE, run_record(tables, **sections))
    return folder


def results_of(runs: Sequence[ComparedRun]) -> list[pl.DataFrame]:
    """How each run answered each request, as a comparison takes it."""
    return [request_results(run.table("predictions"), run.metrics) for run in runs]


def four_runs(folder: Path) -> list[Path]:
    """Models that get better with size; sampling consistency falls, contextual bias goes up and down."""
    folders = []
    for place, model in enumerate(PARAMETERS):
        answers = predictions(0.2 + 0.3 * place, seed=place)
        values: dict[str, Sequence[float]] = {
            "staicc-bias / contextual": [-0.9 + 0.1 * place * (-1) ** place + 0.01 * d for d in range(len(LABELS))],
            "staicc-robustness / sampling": [0.95 - 0.1 * place + 0.02 * d for d in range(len(LABELS))],
        }
        folders.append(write_run(folder / model.split("/")[1], model, answers, diagnostics(values)))
    return folders


def put_table(folder: Path, name: str, table: pl.DataFrame) -> None:
    """Write one more table of a measured run, or another in its place, with its digest in the record."""
    record = read_run(folder)
    assert record.measures is not None
    tables = record.measures.tables | {name: write_table(folder, name, table)}
    write_record(folder / RUN_FILE, replace(record, measures=replace(record.measures, tables=tables)))
