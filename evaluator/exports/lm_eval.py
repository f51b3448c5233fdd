"""Export results and samples in the files that lm-evaluation-harness writes.

A task is a suite, part and dataset; a filter is a method and a definition. `acc` is the accuracy; other metrics keep
their names. The standard error is "N/A", because intervals are not symmetric; `acc_ci95,FILTER` holds both ends.

Source: lm_eval/result_schema.py and loggers/evaluation_tracker.py of EleutherAI/lm-evaluation-harness at 4e7e0d4.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import polars as pl

from evaluator.exports import base
from evaluator.record import ChatRecord
from evaluator.schemas import MEAN_OVER_DATASETS


def _files(run: base.ExportedRun) -> Iterator[base.ExportedFile]:
    folder, date = base.file_name(run.model), run.finished.isoformat().replace(":", "-")
    hashes, names = dict[str, str](), set[str]()
    for task, groups in groupby(run.answers(), lambda group: _task(group.key)):
        samples = [sample for group in groups for sample in _samples(group)]
        of_samples = (one["doc_hash"] + one["prompt_hash"] + one["target_hash"] for one in samples)
        hashes[task] = base.sha256("".join(of_samples))
        name = base.distinct(base.file_name(task), names)
        yield base.ExportedFile(f"{folder}/samples_{name}_{date}.jsonl", base.json_lines(iter(samples)))
    results = base.json_text(_results(run) | {"task_hashes": hashes}, indent=2)
    yield base.ExportedFile(f"{folder}/results_{date}.json", results.encode())


def _task(row: Mapping[str, str]) -> str:
    return f"{row['suite']}_{row['part']}" + f"_{row['dataset']}" * bool(row["dataset"])  # "": mean over datasets


def _filter(row: Any) -> str:
    return f"{row['method']}-{row['definition']}"


def _metric(name: str) -> str:
    """Return the name of a metric in the harness."""
    return "acc" if name == "accuracy" else name


def _samples(group: base.AnsweredGroup) -> Iterator[dict[str, Any]]:
    """Yield the fields of the harness's SampleResult for each request.

    `filtered_resps` has log-probabilities normalised over the labels, `resps` log-likelihoods.
    """
    for row in group.rows.iter_rows(named=True):
        names = row["label_names"]
        doc = {"query_id": row["query_id"], "demonstration_set": row["demonstration_set"], "labels": names}
        target = names[row["gold"]]
        log_probs = [math.log(prob) if prob else -math.inf for prob in row["label_probs"] or []]
        measured = {"acc": float(row["correct"])}
        if row["true_label_prob"] is not None:
            measured["true_label_probability"] = row["true_label_prob"]
        yield {
            "doc_id": row["position"],
            "doc": doc,
            "target": target,
            "arguments": {
                f"gen_args_{number}": {"arg_0": row["prompt"], "arg_1": text}
                for number, text in enumerate(row["continuations"] or names)
            },
            "resps": [[response] for response in _responses(row["label_log_likelihoods"] or [])],
            "filtered_resps": _responses(log_probs),
            "filter": _filter(group.key),
            "metrics": list(measured),
            "doc_hash": base.sha256(json.dumps(doc, indent=2, ensure_ascii=False)),
            "prompt_hash": base.sha256(row["prompt"]),
            "target_hash": base.sha256(target),
            **measured,
        }


def _responses(log_probs: Sequence[float]) -> list[list[str]]:
    """Return [log-probability, is_greedy] of each label; is_greedy is "None", because it is not recorded."""
    return [[str(log_prob), "None"] for log_prob in log_probs]


def _results(run: base.ExportedRun) -> dict[str, Any]:
    record, is_mean, shots = run.record, pl.col("dataset") == MEAN_OVER_DATASETS, run.record.prompts.n_shots
    metrics, means = run.finite_metrics.filter(~is_mean), run.finite_metrics.filter(is_mean)
    results, groups = _task_metrics(metrics), _task_metrics(means.with_columns(dataset=pl.lit("")))
    directions: dict[str, dict[str, bool]] = defaultdict(dict)
    for row in metrics.iter_rows(named=True):
        directions[_task(row)][_metric(row["metric"])] = not run.texts.lower_is_better(row["metric"])
    return {
        "results": results,
        "groups": groups,
        "group_subtasks": {group: [task for task in results if task.startswith(f"{group}_")] for group in groups},
        "configs": {task: {"task": task, "output_type": "multiple_choice"} for task in results},
        "versions": dict.fromkeys(results, record.evaluator),
        **({"n-shot": dict.fromkeys(results, shots)} if shots is not None else {}),
        "higher_is_better": directions,
        "config": {
            "model": record.engine.name,
            "model_args": {"pretrained": run.model, "dtype": record.engine.dtype},
            "model_dtype": record.engine.dtype,
            **({"model_num_parameters": record.model.n_parameters} if record.model.n_parameters is not None else {}),
            **({"model_revision": record.model.revision} if record.model.revision else {}),
            "device": record.engine.device,
            "limit": record.prompts.n_queries,
        },
        "date": run.finished.timestamp(),
        **({"transformers_version": version} if (version := record.engine.versions.get("transformers")) else {}),
        **_chat(record.scores.chat),
        "max_length": record.model.context_tokens,
        "model_source": record.engine.name,
        "model_name": run.model,
        "model_name_sanitized": base.file_name(run.model),
        "total_evaluation_time_seconds": str(sum(record.elapsed_s.values())),
    }


def _chat(chat: ChatRecord | None) -> dict[str, Any]:
    """Return the fields about the chat template; `arguments` of samples have the prompts without the template."""
    if chat is None:
        return {}
    system = chat.system_instruction
    return {
        "system_instruction": system,
        "system_instruction_sha": None if system is None else base.sha256(system),
        "fewshot_as_multiturn": chat.demonstrations == "turns",
        "chat_template": chat.template,
        "chat_template_sha": chat.sha256,
    }


def _task_metrics(metrics: pl.DataFrame) -> dict[str, dict[str, Any]]:
    tasks: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in metrics.iter_rows(named=True):
        task = _task(row)
        name, filtered = _metric(row["metric"]), _filter(row)
        tasks[task] |= {
            "name": task,
            "alias": task,
            "sample_len": row["n_requests"],
            f"{name},{filtered}": row["value"],
            f"{name}_stderr,{filtered}": "N/A",
        }
        if row["ci_low"] is not None:
            tasks[task][f"{name}_ci95,{filtered}"] = [row["ci_low"], row["ci_high"]]
    return tasks


LM_EVAL = base.Format(
    summary="Results and samples of lm-evaluation-harness, which many tools read.", is_folder=True, files=_files
)
