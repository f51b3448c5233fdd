"""Adapters that do not fit are refused in one sentence, before any weights are loaded."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from evaluator.config import ModelConfig
from evaluator.errors import ModelError
from evaluator.models.embedded.llama import LlamaSize, make_random_llama
from evaluator.models.source import find_model
from evaluator.models.weights import find_adapter, weight_files
from tests.lora import save_adapter

MODULE = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.fixture
def adapter(tiny_model: Path, tmp_path: Path) -> Path:
    return save_adapter(tmp_path / "adapter", tiny_model, ["q_proj", "down_proj"], rank=4, seed=1)


def found(adapter: Path | str, base: Path):
    return find_adapter(str(adapter), str(base), weight_files(base))


def with_settings(folder: Path, **changed: object) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def with_tensors(folder: Path, **shapes: tuple[int, ...]) -> None:
    tensors = {f"{MODULE}.{name}.weight": torch.ones(shape) for name, shape in shapes.items()}
    save_file(tensors, folder / "adapter_model.safetensors")


def without_tensors(folder: Path, part: str) -> None:
    path = folder / "adapter_model.safetensors"
    save_file({name: tensor for name, tensor in load_file(path).items() if part not in name}, path)


def test_an_adapter_says_its_rank_modules_and_parameters(adapter: Path, tiny_model: Path) -> None:
    about = found(adapter, tiny_model)
    assert (about.rank, about.modules) == (4, {"q_proj", "down_proj"})
    files = [len(file.read_bytes()) for file in adapter.glob("*.safetensors")]
    assert 0 < 4 * about.n_parameters < files[0]


def test_the_rank_of_an_adapter_is_that_of_its_largest_matrices(
    adapter: Path, tiny_model: Path, tmp_path: Path
) -> None:
    other = save_adapter(tmp_path / "other", tiny_model, ["q_proj"], rank=2, seed=1)
    both = [load_file(folder / "adapter_model.safetensors") for folder in (adapter, other)]
    save_file(both[0] | both[1], adapter / "adapter_model.safetensors")
    with_settings(adapter, rank_pattern={"q_proj": 2})
    assert found(adapter, tiny_model).rank == 4


def test_the_digest_changes_with_the_weights_and_the_scale_and_not_with_the_folder(
    adapter: Path, tiny_model: Path, tmp_path: Path
) -> None:
    other = save_adapter(tmp_path / "same", tiny_model, ["q_proj", "down_proj"], rank=4, seed=1)
    scaled = save_adapter(tmp_path / "scaled", tiny_model, ["q_proj", "down_proj"], rank=4, seed=1)
    trained = save_adapter(tmp_path / "trained", tiny_model, ["q_proj", "down_proj"], rank=4, seed=2)
    with_settings(scaled, lora_alpha=1)
    digests = [found(folder, tiny_model).fingerprint for folder in (adapter, other, scaled, trained)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def pickled(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")


REFUSED = {
    "no configuration": (without("adapter_config.json"), "is no LoRA adapter: it has no adapter_config.json"),
    "no weights": (without("adapter_model.safetensors"), "adapter_model.safetensors is missing"),
    "pickled weights": (pickled, "a pickle, which can run code"),
    "a broken configuration": (
        lambda folder: (folder / "adapter_config.json").write_text("{"),
        "is damaged or not JSON",
    ),
    "a list": (lambda folder: (folder / "adapter_config.json").write_text("[]"), "an object was expected"),
    "another kind": (lambda folder: with_settings(folder, peft_type="IA3"), "of kind 'IA3', but only LORA"),
    "DoRA": (lambda folder: with_settings(folder, use_dora=True), "more than a plain LoRA adapter .use_dora"),
    "a trained head": (lambda folder: with_settings(folder, modules_to_save=["lm_head"]), "modules_to_save"),
    "biases": (lambda folder: with_settings(folder, bias="all"), "bias = 'all'"),
    "PiSSA": (lambda folder: with_settings(folder, init_lora_weights="pissa_niter_4"), "init_lora_weights"),
    "another rank": (lambda folder: with_settings(folder, r=8), "matrices of rank 4, and its .* says 8"),
    "other tensors": (lambda folder: with_tensors(folder, bias=(3, 3)), "no matrix of a LoRA adapter"),
    "matrices of no target": (
        lambda folder: with_settings(folder, target_modules=["q_proj"]),
        r"has matrices for model\.layers\.0\.mlp\.down_proj, which its adapter_config\.json does not choose",
    ),
    "no match of the expression": (lambda folder: with_settings(folder, target_modules=r".*\.q_proj"), "not choose"),
    "a broken expression": (lambda folder: with_settings(folder, target_modules="("), "not choose"),
    "one layer": (lambda folder: with_settings(folder, layers_to_transform=1), r"for model\.layers\.0\..* not choose"),
    "an excluded target": (lambda folder: with_settings(folder, exclude_modules=["down_proj"]), "not choose"),
    "layers left out": (
        lambda folder: with_settings(folder, layers_to_transform=[0]),
        r"for model\.layers\.1\..* not choose",
    ),
    "half a pair": (lambda folder: with_tensors(folder, lora_A=(4, 64)), "no pair of matrices"),
    "a layer without matrices": (
        lambda folder: without_tensors(folder, "layers.1."),
        r"has no matrices for model\.layers\.1\.\S+_proj, which its adapter_config\.json chooses",
    ),
    "a module without matrices in one layer": (
        lambda folder: without_tensors(folder, "layers.0.self_attn.q_proj"),
        r"has no matrices for model\.layers\.0\.self_attn\.q_proj, ",
    ),
    "broken weights": (lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"x" * 9), "its header"),
}


@pytest.mark.parametrize(("spoil", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_plain_adapter_is_refused(
    adapter: Path, tiny_model: Path, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(adapter)
    with pytest.raises(ModelError, match=words) as refusal:
        found(adapter, tiny_model)
    assert "\n" not in str(refusal.value)


def test_layers_that_the_configuration_leaves_out_need_no_matrices(adapter: Path, tiny_model: Path) -> None:
    with_settings(adapter, layers_to_transform=[0])
    without_tensors(adapter, "layers.1.")
    assert found(adapter, tiny_model).modules == {"q_proj", "down_proj"}


@pytest.mark.parametrize(
    "chosen",
    [
        {"target_modules": "all-linear"},
        {"target_modules": None},
        {"target_modules": r".*\.(q|down)_proj", "layers_to_transform": [7]},  # not of an expression
        {"target_modules": ["self_attn.q_proj", "down_proj", "up_proj"], "layers_to_transform": [1, 0]},
        {"exclude_modules": ["layers.5.mlp.down_proj"], "layers_to_transform": []},
    ],
)
def test_an_adapter_of_chosen_modules_is_taken_as_peft_takes_it(
    adapter: Path, tiny_model: Path, chosen: dict[str, object]
) -> None:
    with_settings(adapter, **chosen)
    assert found(adapter, tiny_model).modules == {"q_proj", "down_proj"}


def test_a_rank_larger_than_vllm_takes_is_refused(adapter: Path, tiny_model: Path) -> None:
    with_tensors(adapter, lora_A=(600, 64), lora_B=(64, 600))
    with_settings(adapter, r=600)
    with pytest.raises(ModelError, match="has rank 600, and 512 is the largest"):
        found(adapter, tiny_model)


def test_an_lm_head_that_is_tied_to_the_embeddings_takes_an_adapter(adapter: Path, tiny_model: Path) -> None:
    with_settings(adapter, target_modules=["lm_head"])
    for hidden_size in (64, 32):
        shapes = {"lora_A": (4, hidden_size), "lora_B": (1024, 4)}
        tensors = {f"base_model.model.lm_head.{name}.weight": torch.ones(shape) for name, shape in shapes.items()}
        save_file(tensors, adapter / "adapter_model.safetensors")
        if hidden_size == 64:
            assert found(adapter, tiny_model).modules == {"lm_head"}
    with pytest.raises(ModelError, match="its lm_head has 32 inputs and 1024 outputs, and the base's is 64 by 1024"):
        found(adapter, tiny_model)


@pytest.mark.parametrize("other", [{"hidden_size": 32}, {"n_layers": 1}], ids=["narrower", "fewer layers"])
def test_an_adapter_of_another_base_is_refused(adapter: Path, tmp_path: Path, other: dict[str, int]) -> None:
    base = make_random_llama(tmp_path / "base", texts=["a b c"], size=LlamaSize(vocab_size=300, **other))
    with pytest.raises(ModelError, match=r"was made for another base than .*base"):
        found(adapter, base)


def test_an_adapter_that_was_trained_on_a_base_of_another_name_is_warned_about(
    adapter: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found(adapter, tiny_model)
    assert not caplog.messages
    with_settings(adapter, base_model_name_or_path="org/another")
    found(adapter, tiny_model)
    assert "was trained on org/another" in caplog.text


def test_a_name_that_is_neither_folder_nor_hub_name_is_refused(tiny_model: Path) -> None:
    with pytest.raises(ModelError, match="There is no folder 'nowhere' either"):
        found("nowhere", tiny_model)


def test_an_adapter_that_changes_while_all_are_loaded_is_refused_by_name(tiny_model: Path, tmp_path: Path) -> None:
    folders = [save_adapter(tmp_path / name, tiny_model, ["q_proj"], rank=2, seed=1) for name in ("one", "two")]
    source = find_model(ModelConfig(model=str(tiny_model)))
    source = replace(source, adapters=tuple(found(folder, tiny_model) for folder in folders))
    before = source.state
    source.to_send()  # with all fingerprints
    source.require_unchanged(before)
    path = folders[1] / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ModelError, match=r"The files of .*two changed while they were loaded"):
        source.require_unchanged(before)
