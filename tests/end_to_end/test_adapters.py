"""Several LoRA adapters of one base in one command: each is a model of the comparison, and the base is loaded once."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest

import evaluator
from evaluator.engine import replicas
from evaluator.engine.devices import this_processor
from tests.command_line import command
from tests.lora import EVERY_MODULE, merged, save_adapter

pytestmark = pytest.mark.usefixtures("without_pages")


@pytest.fixture(scope="module")
def adapters(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return [
        save_adapter(folder / "one", tiny_model, ["q_proj", "v_proj"], rank=4, seed=1),
        save_adapter(folder / "two", tiny_model, EVERY_MODULE, rank=8, seed=2),
    ]


def words(model: Path, out: Path) -> tuple[object, ...]:
    run = ("run", "staicc-normal", "--datasets", "sst5", "--queries", 2, "--shots", 1)
    methods = ("--methods", "vanilla,hidden_calibration,knn_centroid")  # the last two need states, one the LM head too
    return (*run, *methods, "--engine", "transformers", "--dtype", "float32", "--model", model, "--out", out)


class Compared(NamedTuple):
    words: tuple[object, ...]
    out: Path
    n_loads: int


@pytest.fixture(scope="module")
def compared(tiny_model: Path, adapters: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """A run of the base and both adapters in one process; nothing may change it."""
    out = tmp_path_factory.mktemp("compared") / "out"
    asked = (*words(tiny_model, out), *(word for name in ("none", *adapters) for word in ("--adapter", name)))
    with patch.object(replicas, "load_engine", wraps=replicas.load_engine) as load:
        command(*asked)
    return Compared(asked, out, load.call_count)


def log_likelihoods(run: Path) -> pl.Series:
    scores = evaluator.read_scores(run).collect().sort("prompt_id", "dataset", "position")
    return scores["label_log_likelihoods"].explode()


def test_adapters_and_their_base_are_compared_and_the_base_is_loaded_once(
    tiny_model: Path, adapters: list[Path], compared: Compared, tmp_path: Path
) -> None:
    _, two = adapters
    assert compared.n_loads == 1
    with patch.object(replicas, "load_engine", wraps=replicas.load_engine) as load:
        command(*compared.words)  # every answer is there already
        assert load.call_count == 0
    runs = {path.name: path for path in (compared.out / "models").iterdir()}
    assert set(runs) == {tiny_model.name, f"{tiny_model.name}-one", f"{tiny_model.name}-two"}
    record = json.loads((runs[f"{tiny_model.name}-two"] / "run.json").read_text())
    assert record["model"]["adapter"]["name"] == str(two)
    assert record["model"]["adapter"]["rank"] == 8
    assert (
        len({json.loads((run / "run.json").read_text())["model"]["weights_fingerprint"] for run in runs.values()}) == 3
    )
    page = next(compared.out.glob("*.html")).read_text()
    assert f"{tiny_model} + {two}" in page
    command(*words(merged(tiny_model, two, tmp_path / "merged"), tmp_path / "alone"))
    pairs = log_likelihoods(runs[f"{tiny_model.name}-two"]), log_likelihoods(tmp_path / "alone")
    np.testing.assert_allclose(*pairs, rtol=0, atol=1e-4)


@pytest.mark.exhaustive  # the jobs of a replica with adapters are in tests/engine/test_adapters.py
@pytest.mark.skipif(this_processor().max_devices < 2, reason="one core")
def test_two_replicas_score_with_every_adapter_as_one_process_does(compared: Compared, tmp_path: Path) -> None:
    command(*compared.words, "--out", tmp_path, "--devices", 2)
    alone, shared = ({path.name: path for path in (out / "models").iterdir()} for out in (compared.out, tmp_path))
    assert alone.keys() == shared.keys()
    for name in alone:
        pairs = log_likelihoods(alone[name]), log_likelihoods(shared[name])
        np.testing.assert_allclose(*pairs, rtol=0, atol=1e-5)


def test_a_receipt_scores_again_with_the_adapter(
    tiny_model: Path, adapters: list[Path], compared: Compared, tmp_path: Path
) -> None:
    shutil.copytree(compared.out, tmp_path / "out")
    run = tmp_path / "out" / "models" / f"{tiny_model.name}-one"
    command("receipt", run, "--n", 4)
    (receipt,) = json.loads((run / "run.json").read_text())["receipts"].values()
    assert receipt["max_drift_nats"] < 1e-4
    command("receipt", run, "--n", 4, "--adapter", adapters[1], exits=2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--adapter", "none", "--adapter", "none"), "--adapter names something twice"),
        (("--adapter", "a", "--model", "embedded"), "--adapter belongs to one model"),
        (("--adapter", "nowhere"), "There is no folder 'nowhere' either"),
    ],
)
def test_adapters_that_cannot_be_compared_are_refused(
    tiny_model: Path, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    assert says in command(*words(tiny_model, tmp_path / "out"), *options, exits=2)
    assert not (tmp_path / "out" / "prompts").exists()
