"""Numerical receipts: of engines whose drift is known, and of vLLM, whose order and batches change."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest

import evaluator
from evaluator.config import ModelConfig, ReceiptConfig, RunConfig
from evaluator.engine import ENGINES, EngineKind
from evaluator.engine.base import Engine, FakeEngine
from evaluator.models.fake_source import fake_model_source
from evaluator.progress import finish
from evaluator.record import ReceiptRecord
from evaluator.run import pipeline
from evaluator.run.folders import read_run, write_run
from evaluator.runs.receipt import ScoredAgain, _model_again, drifts, make_receipt
from evaluator.schemas import RECEIPT, SCORES, TOKENS
from tests.command_line import command

pytestmark = pytest.mark.usefixtures("without_pages")

CONFIG = RunConfig(suites=("staicc-normal",), datasets=("sst5", "trec"), n_queries=16, n_shots=1)
FAKE = ModelConfig(model="fake", engine="fake")
ALL = 10_000
SHIFT = 0.25
MAX_DRIFT_NATS = 1e-4
"""Of fp32: a run that was once off by 6e-4 had computed something else."""


class Recording(FakeEngine):
    """Keeps the contexts of each call, and makes the first label likelier by SHIFT."""

    calls: ClassVar[list[list[list[int]]]] = []

    def log_likelihoods(self, requests):
        self.calls.append([list(request.context) for request in requests])
        for answer in super().log_likelihoods(requests):
            first, *others = answer.token_log_probs
            yield replace(answer, token_log_probs=[[first[0] + SHIFT, *first[1:]], *others])


class Single(FakeEngine):
    def __init__(self):
        super().__init__()
        self.facts = replace(self.facts, dtype="float32")


def kind_of(engine: type[FakeEngine]) -> EngineKind:
    return EngineKind(
        summary="Made up.",
        find=lambda _config, **_: fake_model_source(),
        load=lambda _source, _config: engine(),
        versions=dict,
        runs_a_model=False,
    )


@pytest.fixture(scope="module")
def scored(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("receipt") / "out"
    finish(pipeline.run(CONFIG, FAKE, out))
    return out


@pytest.fixture
def measured(scored, tmp_path) -> Path:
    shutil.copytree(scored, tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def out(measured) -> Path:
    """A run that is scored and not measured, so that a receipt writes no page, which takes its time."""
    write_run(measured, replace(read_run(measured), measures=None))
    return measured


def receipt(out: Path, engine: type[FakeEngine] = FakeEngine, **config: object) -> ReceiptRecord:
    with patch.dict(ENGINES, {"fake": kind_of(engine)}):
        return finish(make_receipt(out, ReceiptConfig(**config)))[1]


def kept(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "tables" / "receipt.parquet")


def test_an_engine_whose_numbers_depend_on_tokens_alone_does_not_drift(out):
    made = receipt(out, n_prompts=ALL)
    assert (made.max_drift_nats, made.flipped, made.changed_verdicts) == (0.0, 0, [])
    assert made.prompts == made.predictions == 64
    assert made.verdicts == 9  # two datasets and their mean, three definitions
    table = kept(out)
    assert table.schema == RECEIPT
    assert table["receipt"].unique().to_list() == ["fake float64"]
    assert read_run(out).receipts == {"fake float64": made}


def test_drift_flips_and_changed_verdicts_are_those_of_a_run_of_the_other_engine(out, tmp_path):
    made = receipt(out, Recording, n_prompts=ALL)
    # Sums of labels of several tokens round differently.
    assert made.max_drift_nats == pytest.approx(SHIFT, abs=1e-12)
    assert made.median_drift_nats == pytest.approx(SHIFT, abs=1e-12)
    before = evaluator.read_scores(out).collect()["label_log_likelihoods"].to_list()
    flipped = sum(np.argmax(row) != np.argmax([row[0] + SHIFT, *row[1:]]) for row in before)
    assert 0 < flipped == made.flipped
    with patch.dict(ENGINES, {"fake": kind_of(Recording)}):
        finish(pipeline.run(CONFIG, FAKE, tmp_path / "other"))
    key = ["dataset", "definition"]
    ours, theirs = (
        pl.read_parquet(folder / "tables" / "metrics.parquet").filter(metric="accuracy").sort(key)["verdict"]
        for folder in (out, tmp_path / "other")
    )
    assert len(made.changed_verdicts) == (ours != theirs).sum()


def test_the_sample_is_sent_in_another_order_and_in_several_batches(out):
    Recording.calls.clear()
    made = receipt(out, Recording, n_prompts=ALL, seed=3)
    assert made.batches == len(Recording.calls) > 1
    sent = [context for call in Recording.calls for context in call]
    assert sorted(sent) != sent
    assert len(sent) == 64


def test_a_seed_names_the_sample(out):
    samples = []
    for seed in (1, 1, 2):
        receipt(out, n_prompts=10, seed=seed)
        samples.append(set(kept(out)["prompt_id"]))
    assert samples[0] == samples[1] != samples[2]
    assert len(samples[0]) == 10


def test_receipts_of_several_dtypes_stand_beside_each_other_and_the_last_of_each_counts(out):
    receipt(out, n_prompts=5)
    receipt(out, Single, n_prompts=6)
    receipt(out, n_prompts=7)
    assert dict(kept(out)["receipt"].value_counts().iter_rows()) == {"fake float64": 7, "fake float32": 6}
    assert {name: one.prompts for name, one in read_run(out).receipts.items()} == {
        "fake float64": 7,
        "fake float32": 6,
    }


@pytest.mark.usefixtures("pages")
def test_the_command_prints_the_drift_and_the_page_shows_it(measured):
    said = command("receipt", measured, "--n", 20, "--seed", 4)
    assert "20 prompts scored again, shuffled, in " in said
    assert "Drift: at most 0 nats, 99% at most 0, 95% at most 0, median 0" in said
    assert "Flipped predictions: 0 of 20" in said
    assert "Changed verdicts: 0 of 9" in said
    page = (measured / "report.html").read_text()
    assert 'data-receipt="fake float64"' in page
    assert "float64, batch invariance off" in page
    drifts = re.findall(r'<td class="number drift" data-number="(\w+)_drift_nats" data-value="0.0">0</td>', page)
    assert drifts == ["median", "p95", "p99", "max"]
    assert "evaluator receipt" in page  # among the commands


def test_a_prompt_with_one_continuation_drifts_and_predicts_nothing():
    asked = {"prompt_id": ["a", "b"], "token_id": ["1", "2"], "ask": "labels"}
    tokens = pl.DataFrame(asked | {"context": [[1], [1]], "continuations": [[[2]], [[2], [3]]]}, schema=TOKENS)
    before, again = (
        pl.DataFrame(
            {
                "prompt_id": ["a", "b"],
                "label_log_likelihoods": numbers,
                "last_token_log_probs": numbers,
                "label_token_counts": [[1], [1, 1]],
            },
            schema=SCORES,
        )
        for numbers in ([[-1.0], [-1.0, -2.0]], [[-1.5], [-3.0, -2.0]])
    )
    found = drifts(ScoredAgain(tokens, again, 1), before.lazy(), "other")
    numbers = found.select("drift_nats", "pred", "pred_again", "margin_nats").rows()
    assert numbers == [(0.5, None, None, None), (2.0, 0, 1, 1.0)]


@pytest.mark.usefixtures("pages")
def test_a_receipt_of_earlier_scores_is_not_shown_with_new_ones(out):
    receipt(out, Single, n_prompts=5)
    command("score", out, "--model", "fake", "--engine", "fake", "--label-boundary", "merged")
    command("measure", out)
    command("report", out)
    assert "Numerical receipt" not in (out / "report.html").read_text()
    receipt(out, n_prompts=5)
    assert [*read_run(out).receipts] == kept(out)["receipt"].unique().to_list() == ["fake float64"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--n", 0), "--n must be 1 or more, got 0"),
        (("--seed", -1), "--seed must be 0 or more, got -1"),
        (("--kv-cache-gib", "nan"), "--kv-cache-gib must be a number above 0, got nan"),
        (("--engine", "transformers", "--model", "embedded"), "Name the run's model with --model."),
        (("--engine", "warp"), "'warp' is not one of 'vllm', 'transformers', 'fake'"),
    ],
)
def test_what_cannot_be_compared_is_refused(out, words, message):
    before = (out / "run.json").read_bytes()
    assert message in command("receipt", out, *words, exits=2)
    assert (out / "run.json").read_bytes() == before


@pytest.mark.parametrize(("engine", "expected"), [(None, "fp8"), ("vllm", "fp8"), ("transformers", None)])
def test_a_model_that_was_quantised_while_it_was_loaded_is_again_where_the_engine_can(out, engine, expected):
    record = read_run(out)
    quantised = replace(record.engine, name="vllm", quantization="fp8")
    again = _model_again(record.model, quantised, ReceiptConfig(engine=engine))
    assert again.quantization == expected


def test_a_folder_without_scores_says_what_to_run(tmp_path):
    assert "holds no run" in command("receipt", tmp_path, exits=2)


class Shared:
    """An engine that all tests share, which nobody closes."""

    def __init__(self, engine: Engine):
        self.facts, self.counts = engine.facts, engine.counts
        self.log_likelihoods, self.hidden_states = engine.log_likelihoods, engine.hidden_states

    def close(self):
        pass


def test_vllm_in_fp32_keeps_its_numbers_within_a_ten_thousandth_and_they_are_those_of_transformers(
    loaded_engine, tiny_model, tmp_path
):
    """In another order, batch size and cache state; and a text at a time, without cache or batches."""
    shared = {name: Shared(loaded_engine(name)) for name in ("vllm", "transformers")}
    engines = {name: replace(ENGINES[name], load=lambda _source, config: shared[config.engine]) for name in shared}
    model = ModelConfig(model=str(tiny_model), engine="vllm", dtype="float32")
    # Labels of several tokens, under two methods and both definitions: every way of asking.
    config = replace(CONFIG, datasets=("sst5",), methods=("vanilla", "noisy_channel"), n_queries=8)
    with patch.dict(ENGINES, engines):
        finish(pipeline.run(config, model, tmp_path))
        for name in engines:
            _, made = finish(make_receipt(tmp_path, ReceiptConfig(n_prompts=64, engine=name)))
            assert made.engine.name == name
            assert made.engine.dtype == "float32"
            assert made.threads >= 1
            assert made.prompts == 64
            assert made.max_drift_nats <= MAX_DRIFT_NATS
            record = json.loads((tmp_path / "run.json").read_text())
            assert record["receipts"][f"{name} float32"]["max_drift_nats"] == made.max_drift_nats


def test_a_table_of_receipts_that_was_changed_is_named_by_verify_and_never_read_again(out):
    class Single(FakeEngine):
        def __init__(self):
            super().__init__()
            self.facts = replace(self.facts, dtype="float32")

    receipt(out, n_prompts=5)
    assert "every file is as it was written" in command("verify", out)
    path = out / "tables" / "receipt.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert f"Run: evaluator receipt {out}" in command("verify", out, exits=2)
    receipt(out, Single, n_prompts=5)
    assert list(read_run(out).receipts) == ["fake float32"]
    assert "every file is as it was written" in command("verify", out)


@pytest.mark.usefixtures("pages")
def test_a_receipt_stays_with_its_scores_when_the_run_is_made_again(measured):
    receipt(measured)
    finish(pipeline.run(CONFIG, FAKE, measured))
    assert [*read_run(measured).receipts] == ["fake float64"]
    assert "Numerical receipt" in (measured / "report.html").read_text()
    assert "every file is as it was written" in command("verify", measured)
    finish(pipeline.run(replace(CONFIG, n_queries=17), FAKE, measured))
    assert "Numerical receipt" not in (measured / "report.html").read_text()
