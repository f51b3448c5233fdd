"""Words that options take: lists of names, and `all`; and numbers that an option refuses."""

import polars as pl
import pytest

from evaluator.cli.options import NAMES, names_or_all
from evaluator.config import ModelConfig, ServerConfig
from evaluator.errors import ConfigError
from evaluator.run.folder import read_requests
from tests.command_line import command


@pytest.mark.parametrize(
    ("given", "found"), [("a,b", ("a", "b")), (" a , ,b", ("a", "b")), ("all", ("all",)), ((), ())]
)
def test_a_list_of_names_is_split_at_commas(given, found):
    assert NAMES.convert(given, None, None) == found


def test_all_stands_for_all_names_alone():
    assert names_or_all(("all",), "xy") == ("x", "y")
    assert names_or_all(("all", "x"), "xy") == ("all", "x")


def test_a_column_can_be_called_all(tmp_path):
    rows = {"all": [f"told {n}" for n in range(40)], "text": ["not this"] * 40, "label": ["no", "yes"] * 20}
    pl.DataFrame(rows).write_csv(tmp_path / "mine.csv")
    command("build", "classify", "--data", tmp_path / "mine.csv", "--input-column", "all", "--out", tmp_path / "out")
    prompts = read_requests(tmp_path / "out").collect()["prompt"]
    assert prompts.str.contains("told").all()
    assert not prompts.str.contains("not this").any()


def test_all_parts_are_those_of_no_option(tmp_path):
    words = ("build", "staicc-bias", "--datasets", "sst5", "--queries", 2)
    command(*words, "--parts", "all", "--out", tmp_path / "all")
    command(*words, "--out", tmp_path / "none")
    one, other = (read_requests(tmp_path / name).collect() for name in ("all", "none"))
    assert one.equals(other)


@pytest.mark.parametrize("size", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_size_of_the_cache_that_is_no_number_of_bytes_is_refused(size):
    with pytest.raises(ConfigError, match="--kv-cache-gib must be a number above 0"):
        ModelConfig(model="m", kv_cache_gib=size)


@pytest.mark.parametrize("loads_a_model", [{"head_dtype": "float32"}, {"kv_cache_gib": 1.0}])
def test_an_option_of_a_model_that_is_loaded_here_is_refused_for_a_server(loads_a_model):
    server = ServerConfig(urls=("http://localhost:8000",))
    with pytest.raises(ConfigError, match="--head-dtype and --kv-cache-gib are for a model that is loaded here"):
        ModelConfig(model="m", engine="server", server=server, **loads_a_model)
