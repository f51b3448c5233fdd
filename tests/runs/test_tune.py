"""Settings that the doctor tries, and the file that commands take them from."""

import tomllib
from dataclasses import replace
from itertools import chain, repeat
from types import SimpleNamespace

import polars as pl
import pytest

from evaluator.config import DevicesConfig, ModelConfig, StepsConfig
from evaluator.engine import replicas
from evaluator.engine.base import FakeEngine
from evaluator.engine.devices import Machine
from evaluator.engine.vllm_settings import SETTINGS, StepSettings, step_settings
from evaluator.progress import finish
from evaluator.runs import tune
from tests.command_line import command

EMBEDDED = ModelConfig(model="embedded", engine="vllm")


@pytest.fixture
def paced(monkeypatch):
    """Have engines take 1 ms a prompt, and half of that with steps of 1,024 tokens, by a clock of their own.

    With steps of 4,096 tokens the first dataset takes 1 ms a prompt, and the others take .1 ms. Steps of 64 prompts
    halve all times. The first prompts that an engine scores take a second each. The returned `slower` has factors of
    the times of the engines that are loaded first.
    """
    clock = SimpleNamespace(now=0.0, slower=[])

    class Paced(FakeEngine):
        def __init__(self, config: ModelConfig) -> None:
            super().__init__()
            later = {1024: 5e-4, 4096: 1e-4}.get(config.steps.max_tokens, 1e-3)
            self.seconds = chain([1, 5e-4 if config.steps.max_tokens == 1024 else 1e-3], repeat(later))
            self.factor = clock.slower.pop(0) if clock.slower else 1
            self.factor /= 2 if config.steps.max_sequences == 64 else 1

        def log_likelihoods(self, requests):
            clock.now += next(self.seconds) * self.factor * len(requests)
            yield from super().log_likelihoods(requests)

    monkeypatch.setattr(tune, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(replicas, "load_engine", lambda _source, config: Paced(config))
    tried = [*({"step_tokens": n} for n in (512, 1024, 4096)), {"step_prompts": 64}]
    monkeypatch.setattr(tune, "candidates", lambda *_: iter(tried))
    return clock


@pytest.mark.usefixtures("paced")
def test_the_faster_settings_are_kept_together_and_a_run_takes_them_from_the_file(tmp_path):
    lines = finish(tune.tune(EMBEDDED, tmp_path / "best.toml"))
    assert [line.rpartition(": ")[2] for line in lines[1:5]] == ["not kept", "kept", "not kept", "kept"]
    assert "1,000.0 prompts/s" in lines[1]
    assert "2,000.0 prompts/s (2,000.0 to 2,000.0 by dataset), 2.00 x as fast, at most 0 nats apart" in lines[2]
    assert lines[5].startswith("4.00 x as fast as without")
    assert tomllib.loads((tmp_path / "best.toml").read_text()) == {"step_tokens": 1024, "step_prompts": 64}


def test_a_setting_no_faster_than_one_of_two_trials_without_it_is_not_kept(paced, monkeypatch, tmp_path):
    paced.slower += [1, 1.25, 1.02]  # of two trials without a setting, the second is slower by noise alone
    monkeypatch.setattr(tune, "_DATASETS", ("sst5",))
    monkeypatch.setattr(tune, "candidates", lambda *_: iter([{"step_tokens": 512}]))
    lines = finish(tune.tune(EMBEDDED, tmp_path / "best.toml"))
    assert lines[0].endswith("a second trial differed by 25.0%")
    assert lines[1].endswith("1.23 x as fast, at most 0 nats apart: not kept")


def test_the_drift_of_a_trial_is_the_largest_difference_in_either_direction():
    first, second = (
        tune.Trial([1.0], pl.DataFrame({"prompt_id": ["a", "b"], "label_log_likelihoods": numbers}))
        for numbers in ([[-1.0, -3.0], [-2.0, -2.0]], [[-1.5, -2.9], [-2.0, -2.25]])
    )
    assert second.drift_nats(first) == first.drift_nats(second) == 0.5


@pytest.mark.parametrize(("n_rounds", "kept"), [(1, {}), (2, {"step_tokens": 4096})])
@pytest.mark.usefixtures("paced")
def test_the_fastest_round_of_a_dataset_counts(n_rounds, kept, monkeypatch, tmp_path):
    """With steps of 4,096 tokens only the first dataset of the first round is slow."""
    monkeypatch.setattr(tune, "_ROUNDS", {"cpu": n_rounds})
    monkeypatch.setattr(tune, "candidates", lambda *_: iter([{"step_tokens": 4096}]))
    finish(tune.tune(EMBEDDED, tmp_path / "best.toml"))
    assert tomllib.loads((tmp_path / "best.toml").read_text()) == kept


def test_a_settings_file_gives_defaults_of_options(tmp_path):
    (tmp_path / "best.toml").write_text("step_tokens = 1024\neager = true\nengine = 'vllm'\n")
    words = ("preflight", "staicc-normal", "--datasets", "sst5", "--queries", 1, "--model", "embedded")
    refused = "--step-tokens, --step-prompts and --eager are settings of vLLM"
    assert refused in command(*words, "--settings", tmp_path / "best.toml", "--engine", "transformers", exits=2)
    (tmp_path / "worse.toml").write_text("step_token = 1024\n")
    shown = command(*words, "--settings", tmp_path / "worse.toml", exits=2)
    assert "there is no option 'step_token'" in shown
    assert "Did you mean 'step_tokens'" in shown
    none = tmp_path / "none.toml"
    assert f"--settings {none} cannot be read" in command(*words, "--settings", none, exits=2)


def test_what_the_user_chooses_stands_in_place_of_the_table():
    chosen = step_settings(StepsConfig(max_tokens=512, max_sequences=8, eager=True))
    assert chosen == StepSettings(
        block_tokens=SETTINGS["cpu"].block_tokens, max_tokens=512, max_sequences=8, compiled=False
    )


def test_candidates_of_a_node_are_layouts_that_its_devices_allow():
    gpus = Machine("cuda", "a GPU", 8, 8, 80 * 2**30)
    config = replace(EMBEDDED, devices=DevicesConfig(n=4, tensor_parallel=1))
    found = [*tune.candidates("vllm", gpus, config)]
    assert {"tensor_parallel": 4} in found
    assert {"tensor_parallel": 8} not in found
    laid_out = [tune.with_settings(config, change) for change in found]
    assert {one.devices.tensor_parallel for one in laid_out} == {1, 2, 4}
    assert {one.steps.max_tokens for one in laid_out} == {None, 4096, 8192, 16384, 32768}
    split = [*tune.candidates("transformers", Machine("cpu", "two cores", 1, 2), config)]
    assert split == [{"devices": 2}]
