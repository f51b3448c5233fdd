"""Results and samples of lm-evaluation-harness: its documented types, its hashes, and the run's numbers."""

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import polars as pl
import pytest

from evaluator.exports.base import answered_groups
from evaluator.exports.lm_eval import LM_EVAL
from evaluator.run.folders import read_run
from evaluator.runs.export import export
from evaluator.schemas import MEAN_OVER_DATASETS
from tests.command_line import command
from tests.compare.run_folders import predictions
from tests.metrics.measured import metrics_of

SCHEMAS = Path(__file__).parent / "schemas"


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(scope="module")
def written(measured_folder, tmp_path_factory):
    return export(measured_folder, "lm-eval", tmp_path_factory.mktemp("lm-eval"))


@pytest.fixture(scope="module")
def results(written):
    return json.loads(written[-1].read_text())


@pytest.fixture(scope="module")
def samples(written):
    return {path.name: [json.loads(line) for line in path.read_text().split("\n")[:-1]] for path in written[:-1]}


def test_results_have_the_documented_fields_and_types(results):
    jsonschema.validate(results, json.loads((SCHEMAS / "lm_eval_results.schema.json").read_text()))


def test_every_sample_has_the_documented_fields_and_types(samples):
    schema = json.loads((SCHEMAS / "lm_eval_sample.schema.json").read_text())
    validator = jsonschema.Draft7Validator(schema)
    assert samples
    assert all(samples.values())
    for sample in (sample for rows in samples.values() for sample in rows):
        validator.validate(sample)
        assert all(isinstance(sample[metric], float) for metric in sample["metrics"])


def test_every_finite_metric_is_there_with_its_interval(run, results):
    assert run.metrics["value"].is_finite().sum() > 10
    for row in run.metrics.iter_rows(named=True):
        value, low, high = row["value"], row["ci_low"], row["ci_high"]
        metric = "acc" if row["metric"] == "accuracy" else row["metric"]
        filtered = f"{row['method']}-{row['definition']}"
        group = f"{row['suite']}_{row['part']}"
        is_mean = row["dataset"] == MEAN_OVER_DATASETS
        task = results["groups"][group] if is_mean else results["results"][f"{group}_{row['dataset']}"]
        if value is None or not math.isfinite(value):
            assert f"{metric},{filtered}" not in task
            continue
        assert task[f"{metric},{filtered}"] == value
        assert task[f"{metric}_stderr,{filtered}"] == "N/A"
        has_ends = low is not None and math.isfinite(low) and math.isfinite(high)
        assert task.get(f"{metric}_ci95,{filtered}") == ([low, high] if has_ends else None)


def test_higher_is_better_but_for_errors(results):
    directions = results["higher_is_better"]["staicc-bias_normal_sst5"]
    assert directions["acc"]
    assert not directions["expected_calibration_error"]


def test_the_time_is_that_of_all_stages(made):
    record = replace(made.record, elapsed_s={"build": 1.5, "load": 4.0, "score": 2.0})
    *_, results = LM_EVAL.files(replace(made, record=record))
    assert json.loads(results.content)["total_evaluation_time_seconds"] == "7.5"


def test_samples_average_to_the_accuracy_of_their_task(results, samples):
    n_averaged = 0
    for task, metrics in results["results"].items():
        rows = next((rows for name, rows in samples.items() if name.startswith(f"samples_{task}_")), [])
        for filtered in {row["filter"] for row in rows}:
            correct = [row["acc"] for row in rows if row["filter"] == filtered]
            assert sum(correct) / len(correct) == pytest.approx(metrics[f"acc,{filtered}"], abs=1e-15)
            n_averaged += 1
    assert n_averaged == sum(len({row["filter"] for row in rows}) for rows in samples.values()) > 2
    assert len(samples) == 2  # the diagnostic has no accuracy


def test_the_likeliest_response_is_right_where_the_sample_says_so(samples):
    n_raw = 0
    for row in (row for rows in samples.values() for row in rows):
        log_probs = [float(log_prob) for log_prob, _ in row["filtered_resps"]]
        best = row["doc"]["labels"][log_probs.index(max(log_probs))]
        assert (best == row["target"]) == bool(row["acc"])
        n_raw += row["filter"] == "vanilla-paper"
        if row["filter"] == "vanilla-paper":
            raw = [float(responses[0][0]) for responses in row["resps"]]
            assert raw.index(max(raw)) == log_probs.index(max(log_probs))
    assert n_raw > 0


def test_a_probability_of_zero_is_the_log_probability_of_no_chance(run):
    """As json.dumps writes what math.log has no value for."""
    groups = list(run.answers())
    zeros = pl.col("label_probs").list.eval(pl.element() * 0.0)
    answers = [group._replace(rows=group.rows.with_columns(label_probs=zeros)) for group in groups]
    files = [*LM_EVAL.files(replace(run, answers=lambda: iter(answers)))][:-1]
    responses = [
        response
        for file in files
        for line in file.content.splitlines()
        for response in json.loads(line)["filtered_resps"]
    ]
    assert len(responses) > 10
    assert {tuple(response) for response in responses} == {("-inf", "None")}


def test_a_method_that_scores_no_labels_has_no_raw_responses(samples):
    rows = next(iter(samples.values()))
    assert {row["filter"]: bool(row["resps"]) for row in rows} == {
        "knn_centroid-paper": True,
        "noisy_channel-paper": False,
        "vanilla-paper": True,
    }


def test_what_is_imported_again_has_the_numbers_of_its_first_method(run, written, tmp_path):
    # knn_centroid chooses other labels than the raw responses, which are those of vanilla; noisy_channel has none.
    command("import", *written[:-1], "--out", tmp_path)
    again = pl.read_parquet(tmp_path / "tables" / "metrics.parquet").filter(definition="paper")
    assert not [name for name in again["metric"] if name.startswith("label_mass")]
    for dataset in ("sst5", "trec"):
        own = run.metrics.filter(dataset=dataset, part="normal", method="knn_centroid", definition="paper")
        found = again.filter(dataset=f"staicc-bias_normal_{dataset}")
        for metric in ("accuracy", "true_label_probability", "brier_score"):
            value = own.filter(metric=metric)["value"].item()
            assert found.filter(metric=metric)["value"].item() == pytest.approx(value, abs=1e-9), metric
    notes = read_run(tmp_path).prompts.notes["staicc-bias_normal_sst5"]
    assert any(note.startswith("of the filters knn_centroid-paper, ") for note in notes)


def test_hashes_are_those_of_the_harness(results, samples):
    assert samples
    for name, rows in samples.items():
        for row in rows:
            assert row["doc_hash"] == sha256(json.dumps(row["doc"], indent=2, ensure_ascii=False))
            assert row["prompt_hash"] == sha256(row["arguments"]["gen_args_0"]["arg_0"])
            assert row["target_hash"] == sha256(row["target"])
        # The task's name is what the harness reads out of a file's name.
        task = name[name.find("_") + 1 : name.rfind("_")]
        together = "".join(row["doc_hash"] + row["prompt_hash"] + row["target_hash"] for row in rows)
        assert results["task_hashes"][task] == sha256(together)


def test_datasets_whose_names_make_one_file_name_have_a_file_each(run):
    group = next(run.answers())
    groups = [group._replace(key=group.key | {"dataset": name}) for name in ("law:a", "law/a", "law|a", "ä" * 120)]
    files = [*LM_EVAL.files(replace(run, answers=lambda: iter(groups)))]
    assert len({file.name for file in files}) == len(files) == 5
    assert max(len(part.encode()) for file in files for part in file.name.split("/")) <= 255


@pytest.mark.parametrize("name", ["lm-eval", "every-eval-ever"])
def test_answers_without_a_true_option_are_no_samples(tmp_path, name):
    rows = [(f"text {n}", "" if n % 3 == 0 else "yes" if n % 2 else "no") for n in range(12)]
    pl.DataFrame(rows, schema=["text", "truth"], orient="row").write_csv(tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text('[spam]\ntype = "yes-no"\ninstructions = "Spam?"\ngold = "truth"\n')
    words = ("--data", tmp_path / "t.csv", "--questions", tmp_path / "q.toml", "--model", "fake", "--engine", "fake")
    command("run", "decide", *words, "--parts", "letters", "--out", tmp_path / "run")
    files = export(tmp_path / "run", name, tmp_path / "out")
    (samples,) = [path.read_text().splitlines() for path in files if path.suffix == ".jsonl"]
    assert len(samples) == 8


def test_a_dataset_that_ends_in_an_underscore_is_a_task_of_its_own(made):
    names = pl.col("dataset").replace({"plain": "a", "[x]&{y}": "a_"})
    results = json.loads([*LM_EVAL.files(replace(made, metrics=made.metrics.with_columns(names)))][-1].content)
    assert {"staicc-normal_normal_a", "staicc-normal_normal_a_"} <= {*results["results"]}
    assert {*results["results"]} == {*results["higher_is_better"]}


def test_a_group_has_the_tasks_of_its_own_part_and_not_of_one_whose_name_begins_so(made):
    metrics = pl.concat([made.metrics, made.metrics.with_columns(part=pl.lit("normal-other"))])
    results = json.loads([*LM_EVAL.files(replace(made, metrics=metrics))][-1].content)
    names = {*made.metrics["dataset"]} - {MEAN_OVER_DATASETS}
    assert {group: {*tasks} for group, tasks in results["group_subtasks"].items()} == {
        group: {f"{group}_{name}" for name in names} for group in ("staicc-normal_normal", "staicc-normal_normal-other")
    }


@pytest.mark.parametrize(("n_texts", "n_kept"), [(1, 0), (2, 24), (3, 0)])
def test_scored_texts_are_kept_if_there_is_one_for_each_label(n_texts, n_kept):
    rows = predictions(0.5, seed=0, datasets=["mid"], methods=["vanilla"])
    texts = {"continuations": pl.lit(["a"] * n_texts), "label_log_likelihoods": pl.lit([-1.0] * n_texts)}
    prompts = rows.select("prompt_id").unique().with_columns(prompt=pl.lit("p"), **texts)
    (group,) = answered_groups(rows, metrics_of(rows), prompts)
    assert group.rows.select(pl.col(*texts).count()).row(0) == (n_kept, n_kept)
