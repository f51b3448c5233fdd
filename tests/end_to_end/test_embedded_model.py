"""What the model that ships can do, on the test queries it never saw: the claims of its MODEL_CARD.md."""

import polars as pl
import pytest

from evaluator.config import ModelConfig
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.models.source import find_model
from tests.command_line import command

FOLDER = EMBEDDED_MODELS["embedded"]()


@pytest.fixture(scope="module")
def accuracies(tmp_path_factory) -> pl.DataFrame:
    """Return accuracies on a quarter of the queries of ten datasets, by the paper's definition."""
    out = tmp_path_factory.mktemp("embedded")
    command("run", "staicc-normal", "--model", "embedded", "--engine", "vllm", "--queries", 128, "--out", out)
    metrics = pl.read_parquet(out / "tables" / "metrics.parquet")
    return metrics.filter(pl.col("dataset") != "mean", metric="accuracy", definition="paper")


def test_weights_and_tokenizer_take_at_most_eight_megabytes():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 8_000_000


def test_it_is_an_ordinary_llama_folder_with_its_own_tokenizer():
    source = find_model(ModelConfig(model=str(FOLDER)))
    assert source.dtype == "float32"
    assert source.n_parameters < 4_000_000
    assert {path.name for path in FOLDER.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}


@pytest.mark.slow
def test_seven_of_ten_datasets_lie_above_the_random_baseline(accuracies):
    assert accuracies.height == 10
    assert accuracies.filter(pl.col("log10_tail") < -6).height >= 7


@pytest.mark.slow
def test_six_of_ten_datasets_lie_above_the_majority_class(accuracies):
    assert accuracies.filter(pl.col("value") > pl.col("majority")).height >= 6
