"""Export to Every Eval Ever 0.3.0: one JSON file of results, and JSON lines with the answer to each request.

Source: every_eval_ever/schemas of evaleval/every_eval_ever at 9bce413; for paths and ids, the validator there.
"""

import hashlib
import json
import math
import uuid
from collections.abc import Iterator
from typing import Any

from evaluator.exports.base import ExportedFile, ExportedRun, Format, file_name, json_lines, json_text, sha256
from evaluator.metrics import METRICS

SCHEMA_VERSION = "0.3.0"
COLLECTION = "evaluator"  # folder of the format for the results of one tool
DETAILS = ("n_requests", "reduced_bias", "chance", "majority", "max_random", "tries", "verdict", "p_holm")
"""Columns of schemas.METRICS that have no field in the format; they are written as details of a score."""


def _files(run: ExportedRun) -> Iterator[ExportedFile]:
    stem = f"data/{COLLECTION}/{file_name(_developer(run))}/{file_name(run.model.rpartition('/')[2])}/{_uuid(run)}"
    content, results = json_lines(_samples(run)), _results(run)
    if content:
        yield ExportedFile(f"{stem}_samples.jsonl", content)
        results["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": f"{stem}_samples.jsonl",
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(content).hexdigest(),
            "total_rows": content.count(b"\n"),
        }
    yield ExportedFile(f"{stem}.json", json_text(results, indent=2).encode())


def _developer(run: ExportedRun) -> str:
    return run.model.partition("/")[0] if "/" in run.model else "unknown"


def _uuid(run: ExportedRun) -> uuid.UUID:
    """Return a digest of scores and tables in the form of a UUID of version 4, which the format requires."""
    identity = json_text([run.record.scores.fingerprint, run.record.tables, sorted(set(run.metrics["definition"]))])
    return uuid.UUID(hex=sha256(identity)[:32], version=4)


def _timestamp(run: ExportedRun) -> str:
    return str(int(run.finished.timestamp()))


def _evaluation_id(run: ExportedRun) -> str:
    return f"{'+'.join(run.record.prompts.suites)}/{run.model}/{_timestamp(run)}"


def _evaluation_name(row: Any) -> str:
    return f"{row['suite']}/{row['part']}/{row['dataset']}"


def _result_id(row: Any, metric: str) -> str:
    return f"{_evaluation_name(row)}/{row['method']}/{metric}/{row['definition']}"


def _results(run: ExportedRun) -> dict[str, Any]:
    record = run.record
    model, engine = record.model, record.engine
    details = {"weights_fingerprint": model.weights_fingerprint, "dtype": engine.dtype, "revision": model.revision}
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": _evaluation_id(run),
        "evaluation_timestamp": _timestamp(run),
        "retrieved_timestamp": _timestamp(run),
        "source_metadata": {
            "source_name": "evaluator",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "evaluator", "version": record.evaluator},
        "model_info": {
            "name": run.model,
            "id": run.model,
            "developer": _developer(run),
            "inference_engine": {"name": engine.name, "version": engine.versions.get(engine.name, "unknown")},
            "additional_details": {
                "deployment_type": "self_deployed",
                "model_availability": "open_weights" if model.kind == "hub" else "unknown",
                **_strings(details | {"n_parameters": model.n_parameters}),
            },
        },
        "evaluation_results": [_result(run, row) for row in run.finite_metrics.iter_rows(named=True)],
    }


def _result(run: ExportedRun, row: dict[str, Any]) -> dict[str, Any]:
    settings = {"method": row["method"], "definition": row["definition"], "shots": run.record.prompts.shots}
    return {
        "evaluation_result_id": _result_id(row, row["metric"]),
        "evaluation_name": _evaluation_name(row),
        "evaluation_timestamp": _timestamp(run),
        "source_data": {"dataset_name": row["dataset"], "source_type": "other"},
        "metric_config": {
            "metric_id": row["metric"],
            "metric_name": run.texts.title(row["metric"]),
            "metric_parameters": {"definition": row["definition"]},
            "lower_is_better": run.texts.lower_is_better(row["metric"]),
            **_bounds(row["metric"]),
        },
        "score_details": {
            "score": row["value"],
            "details": _strings({name: row[name] for name in DETAILS}),
            "uncertainty": _uncertainty(row),
        },
        "generation_config": {"additional_details": settings | {"label_boundary": run.record.scores.label_boundary}},
    }


def _uncertainty(row: dict[str, Any]) -> dict[str, Any]:
    """Return the number of queries of a row, and its 95% interval, if it has one."""
    if row["ci_low"] is None:
        return {"num_samples": row["n_queries"]}
    interval = {"lower": row["ci_low"], "upper": row["ci_high"], "confidence_level": 0.95}
    over = {"method": f"over {row['ci_over']}"} if row["ci_over"] else {}
    return {"num_samples": row["n_queries"], "confidence_interval": interval | over}


def _bounds(metric: str) -> dict[str, Any]:
    """Return the fields about the range of a metric; without known limits it cannot be declared continuous."""
    if metric not in METRICS:
        return {"additional_details": {"bounds_status": "unknown"}}
    limits = METRICS[metric].limits
    low, high = (limit if math.isfinite(limit) else f"{'-' * (limit < 0)}Infinity" for limit in limits)
    return {"score_type": "continuous", "min_score": low, "max_score": high}


def _samples(run: ExportedRun) -> Iterator[dict[str, Any]]:
    """Yield a row for each request and method; its score is that of the metric accuracy."""
    for group in run.answers():
        about = {
            "schema_version": SCHEMA_VERSION,
            "evaluation_id": _evaluation_id(run),
            "model_id": run.model,
            "evaluation_name": _evaluation_name(group.key),
            "evaluation_result_id": _result_id(group.key, "accuracy"),
        }
        for row in group.rows.iter_rows(named=True):
            names, prompt = row["label_names"], row["prompt"]
            reference, answer = [names[row["gold"]]], names[row["pred"]]
            asked = {"raw": prompt, "reference": reference}
            extracted = {"turn_idx": 0, "source": "output.raw", "extracted_value": answer}
            yield about | {
                "sample_id": str(row["position"]),
                "sample_hash": sha256(json.dumps(asked, sort_keys=True, separators=(",", ":"))),
                "interaction_type": "single_turn",
                "input": asked | {"choices": names},
                "output": {"raw": [answer]},
                "answer_attribution": [extracted | {"extraction_method": "most probable label", "is_terminal": True}],
                "evaluation": {"score": float(row["correct"]), "is_correct": row["correct"]},
                "metadata": _strings(
                    {"query_id": row["query_id"], "true_label_probability": row["true_label_prob"]}
                    | {"label_probs": row["label_probs"] and json.dumps(row["label_probs"])}
                ),
            }


def _strings(values: dict[str, Any]) -> dict[str, str]:
    """Return the values as texts, the only type that the format allows in details; missing values are left out."""
    return {name: str(value) for name, value in values.items() if value is not None}


EVERY_EVAL_EVER = Format(
    summary="Every Eval Ever 0.3.0: results, and the answer to each request.", is_folder=True, files=_files
)
