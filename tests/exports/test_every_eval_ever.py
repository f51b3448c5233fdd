"""Every Eval Ever: its own schemas, the rules of its validator between files, and the run's numbers."""

import hashlib
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from evaluator.exports.every_eval_ever import EVERY_EVAL_EVER
from evaluator.runs.export import export

SCHEMAS = Path(__file__).parent / "schemas"
STEM = r"data/evaluator/unknown/fake/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


@pytest.fixture(scope="module")
def folder(measured_folder, tmp_path_factory):
    target = tmp_path_factory.mktemp("eee")
    export(measured_folder, "every-eval-ever", target)
    return target


@pytest.fixture(scope="module")
def results(folder):
    [path] = folder.rglob("*.json")
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def samples(folder):
    [path] = folder.rglob("*.jsonl")
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def validator(name):
    return jsonschema.Draft7Validator(json.loads((SCHEMAS / f"every_eval_ever_{name}.schema.json").read_text()))


def test_results_follow_the_schema(results):
    validator("eval").validate(results)


def test_every_row_follows_the_schema(samples):
    rows = validator("instance_level_eval")
    assert samples
    for sample in samples:
        rows.validate(sample)


def test_files_lie_where_the_repository_wants_them(folder, results):
    paths = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    stem = paths[0].removesuffix(".json")
    assert re.fullmatch(STEM, stem)
    assert paths == [f"{stem}.json", f"{stem}_samples.jsonl"]
    assert results["detailed_evaluation_results"]["file_path"] == paths[1]


def test_results_under_other_definitions_have_files_of_their_own(made):
    names = {
        definition: {file.name for file in EVERY_EVAL_EVER.files(replace(made, metrics=rows))}
        for (definition,), rows in made.metrics.partition_by("definition", as_dict=True).items()
    }
    assert len({*names["paper"], *names["released"]}) == len(names["paper"]) + len(names["released"])


def test_rows_belong_to_the_results(folder, results, samples):
    detailed = results["detailed_evaluation_results"]
    content = (folder / detailed["file_path"]).read_bytes()
    assert detailed["checksum"] == hashlib.sha256(content).hexdigest()
    assert detailed["total_rows"] == len(samples)
    assert {sample["evaluation_id"] for sample in samples} == {results["evaluation_id"]}
    assert {sample["model_id"] for sample in samples} == {results["model_info"]["id"]}
    ids = Counter(result["evaluation_result_id"] for result in results["evaluation_results"])
    assert set(ids.values()) == {1}
    assert {sample["evaluation_result_id"] for sample in samples} <= set(ids)


def test_scores_and_intervals_are_those_of_the_table_and_within_their_bounds(run, results):
    by_id = {result["evaluation_result_id"]: result for result in results["evaluation_results"]}
    assert len(by_id) == run.finite_metrics.height
    for row in run.finite_metrics.iter_rows(named=True):
        place = "/".join(row[name] for name in ("suite", "part", "dataset", "method", "metric", "definition"))
        result = by_id[place]
        score, config = result["score_details"]["score"], result["metric_config"]
        assert score == row["value"]
        uncertainty = result["score_details"]["uncertainty"]
        assert uncertainty["num_samples"] == row["n_queries"]  # those that the interval is over
        interval = uncertainty.get("confidence_interval", {})
        assert (interval.get("lower"), interval.get("upper")) == (row["ci_low"], row["ci_high"])
        if config.get("score_type") == "continuous":
            assert float(config["min_score"]) <= score <= float(config["max_score"])
        else:
            assert config["additional_details"] == {"bounds_status": "unknown"}


def test_correct_rows_average_to_the_accuracy(results, samples):
    scores = {
        result["evaluation_result_id"]: result["score_details"]["score"] for result in results["evaluation_results"]
    }
    for name in {row["evaluation_result_id"] for row in samples}:
        right = [row["evaluation"]["is_correct"] for row in samples if row["evaluation_result_id"] == name]
        assert sum(right) / len(right) == pytest.approx(scores[name], abs=1e-15)


def test_a_row_is_the_same_whichever_model_answered_it(samples):
    row = samples[0]
    content = {"raw": row["input"]["raw"], "reference": row["input"]["reference"]}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert row["sample_hash"] == hashlib.sha256(text.encode()).hexdigest()
    assert row["input"]["reference"][0] in row["input"]["choices"]
