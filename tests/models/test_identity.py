"""A score is known by what the engine opened: every edit of a model's folder changes its identity, or no number.

Identity is the fingerprint of the model and of its tokenizer; numbers are token ids, the text of a conversation and
log-likelihoods of the transformers engine.
"""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from evaluator.config import ModelConfig
from evaluator.engine import load_engine
from evaluator.engine.base import ContinuationRequest
from evaluator.errors import ModelError
from evaluator.models.embedded.llama import LlamaSize, make_random_llama
from evaluator.models.source import find_model

TEXTS = ["a review: fine\nsentiment: good", "the answer is 42, and the film was bad"]
LAYER = "model.layers.0.mlp.down_proj.weight"
Edit = Callable[[Path, random.Random], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    size = LlamaSize(vocab_size=300, context_length=64, n_layers=1)
    return make_random_llama(tmp_path_factory.mktemp("identity") / "whole", texts=TEXTS, size=size)


def single(whole: Path, folder: Path) -> Path:
    return Path(shutil.copytree(whole, folder))


def sharded(whole: Path, folder: Path) -> Path:
    """Two shards, one in a subfolder, and another version of it beside it that no index names."""
    single(whole, folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    (folder / "part").mkdir()
    last = {LAYER: weights.pop(LAYER)}
    save_file(weights, folder / "a.safetensors", metadata={"format": "pt"})
    save_file(last, folder / "part/b.safetensors", metadata={"format": "pt"})
    save_file({LAYER: last[LAYER] * 2}, folder / "part/c.safetensors", metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "a.safetensors") | {LAYER: "part/b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def pickled(whole: Path, folder: Path) -> Path:
    single(whole, folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


KINDS = {"single": single, "sharded": sharded, "pickled": pickled}


def identity(folder: Path) -> tuple[str, str]:
    source = find_model(ModelConfig(model=str(folder)))
    return source.fingerprint, source.tokenizer_fingerprint


def numbers(folder: Path) -> tuple[Any, ...]:
    config = ModelConfig(model=str(folder), engine="transformers")
    source = find_model(config)
    ids = source.tokenizer.token_ids(TEXTS, special_tokens=True)
    tokenizer = source.transformers_tokenizer
    chat = None
    if source.has_chat_template:
        chat = tokenizer.apply_chat_template([{"role": "user", "content": TEXTS[0]}], tokenize=False)
    engine = load_engine(source, config)
    try:
        fixed = [ContinuationRequest([1, 5, 9, 70], [[11], [12, 40]]), ContinuationRequest([2, 4], [[30]])]
        scores = sorted(engine.log_likelihoods(fixed), key=lambda one: one.index)
        return ids, chat, [one.token_log_probs for one in scores]
    finally:
        engine.close()


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def weight_file(folder: Path, rng: random.Random) -> Path:
    return rng.choice(sorted(path for path in folder.rglob("*") if path.suffix in (".safetensors", ".bin")))


def changed_weights(folder: Path, rng: random.Random) -> None:
    """Scale a tensor; keep the size of the file and its time of modification."""
    path = weight_file(folder, rng)
    status = path.stat()
    tensors = torch.load(path) if path.suffix == ".bin" else load_file(path)
    name = rng.choice(sorted(tensors))
    tensors[name] = tensors[name] * rng.choice([-1, 0.5, 2])
    if path.suffix == ".bin":
        torch.save(tensors, path)
    else:
        save_file(tensors, path, metadata={"format": "pt"})
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def configured(folder: Path, rng: random.Random) -> None:
    changes = [
        {"rms_norm_eps": 0.1}, {"hidden_act": "gelu"}, {"rope_parameters": {"rope_type": "default", "rope_theta": 3.0}},
        {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}, {"dtype": "bfloat16"},
        {"tie_word_embeddings": False}, {"num_hidden_layers": 2}, {"use_cache": False},
        {"transformers_weights": "x.bin"},
    ]  # fmt: skip
    edit_json(folder / "config.json", lambda content: content.update(rng.choice(changes)))


def tokenizer_edited(folder: Path, rng: random.Random) -> None:
    if rng.random() < 0.5:
        edit_json(folder / "tokenizer_config.json", lambda content: content.pop("tokenizer_class", None))
    else:
        edit_json(folder / "tokenizer.json", lambda content: content.update(post_processor=None))


def templated(folder: Path, rng: random.Random) -> None:
    text = "{% for m in messages %}" + rng.choice(["A", "B"]) + "{{ m.content }}{% endfor %}"
    edit_json(folder / "tokenizer_config.json", lambda content: content.update(chat_template=text))


def stray(folder: Path, rng: random.Random) -> None:
    name = rng.choice(["optimizer.safetensors", "optimizer.bin", "training_args.bin", "README.md", "s/w.safetensors",
                       "adapter_config.json", "generation_config.json", "notes.txt", "pytorch_model.bin"])  # fmt: skip
    (folder / name).parent.mkdir(exist_ok=True)
    if name.endswith(".safetensors"):
        save_file({LAYER: torch.ones(2)}, folder / name)
    else:
        (folder / name).write_text("{}")


def reindexed(folder: Path, rng: random.Random) -> None:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        index.write_text(json.dumps({"metadata": {}, "weight_map": {LAYER: "model.safetensors"}}))
    name = rng.choice(["part/c.safetensors", "../b.safetensors", "/b.safetensors", "none.safetensors", 3])
    edit_json(index, lambda content: content["weight_map"].update({LAYER: name}))


EDITS: list[Edit] = [changed_weights, configured, tokenizer_edited, templated, stray, reindexed]


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 40), marks=pytest.mark.exhaustive)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_an_edit_changes_the_identity_or_no_number(whole, tmp_path, kind, edit, seeds):
    before = KINDS[kind](whole, tmp_path / "model")
    known, computed = identity(before), None
    for seed in seeds:
        folder = tmp_path / "model"
        shutil.rmtree(folder)
        KINDS[kind](whole, folder)
        assert identity(folder) == known, "equal files have one identity"
        edit(folder, random.Random(seed))
        try:
            edited = identity(folder)
        except ModelError:
            continue
        if edited == known or edited[0] == known[0] or edited[1] == known[1]:
            if computed is None:
                computed = numbers(KINDS[kind](whole, tmp_path / "unedited"))
            try:
                ids, chat, scores = numbers(folder)
            except ModelError:
                continue
            if edited == known:
                assert chat == computed[1]
            if edited[1] == known[1]:
                assert ids == computed[0]
            if edited[0] == known[0]:
                assert scores == computed[2]


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (
            lambda f: save_file({"x": torch.ones(1)}, f / "more.safetensors"),
            "holds model.safetensors and beside it more",
        ),
        (lambda f: (f / "adapter_config.json").write_text("{}"), "holds a model and an adapter .* --adapter"),
        (
            lambda f: edit_json(f / "config.json", lambda c: c.update(transformers_weights="w.safetensors")),
            "names 'w.safetensors' as transformers_weights",
        ),
        (
            lambda f: edit_json(f / "config.json", lambda c: c.update(auto_map={"AutoConfig": "org/repo--m.C"})),
            "takes code from another repository",
        ),
    ],
)
def test_what_leaves_open_which_files_are_the_models_is_refused(whole, tmp_path, edit, sentence):
    edit(single(whole, tmp_path / "model"))
    with pytest.raises(ModelError, match=sentence):
        find_model(ModelConfig(model=str(tmp_path / "model")))


@pytest.mark.parametrize("name", ["../b.safetensors", "/b.safetensors", "b.bin", "", None, ["b.safetensors"]])
def test_an_index_that_leaves_the_folder_is_refused(whole, tmp_path, name):
    folder = sharded(whole, tmp_path / "model")
    edit_json(folder / "model.safetensors.index.json", lambda content: content["weight_map"].update({LAYER: name}))
    with pytest.raises(ModelError, match=r"index\.json names .*, which is no .safetensors file in the model's folder"):
        find_model(ModelConfig(model=str(folder)))


def test_a_data_file_of_a_models_own_code_is_part_of_it(whole, tmp_path):
    folder = single(whole, tmp_path / "model")
    config = ModelConfig(model=str(folder), trust_remote_code=True)
    (folder / "tables").mkdir()
    (folder / "tables/scale.dat").write_text("1")
    before = find_model(config)
    first = before.fingerprint, before.tokenizer_fingerprint
    (folder / "tables/scale.dat").write_text("2")
    after = find_model(config)
    assert after.fingerprint != first[0]
    assert after.tokenizer_fingerprint != first[1]
