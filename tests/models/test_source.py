import json
import math
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from huggingface_hub import snapshot_download
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from evaluator.config import ModelConfig
from evaluator.engine import ENGINES, load_engine
from evaluator.errors import ConfigError, ModelError
from evaluator.files.whole import file_digest
from evaluator.models import source, weights
from evaluator.models.embedded.llama import LlamaSize, make_random_llama
from evaluator.models.source import ModelSource, find_model, loaded_bytes
from evaluator.tokens.boundary import tokenise_prompts
from tests.command_line import command
from tests.datasets.hub_server import Hub
from tests.datasets.test_lu_2023_hub import hub

__all__ = ["hub"]


@pytest.fixture
def copied(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "copy"))


def found(folder: Path, **options: Any) -> ModelSource:
    return find_model(ModelConfig(model=str(folder), **options))


def edit_config(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    described = json.loads((folder / "config.json").read_text())
    edit(described)
    (folder / "config.json").write_text(json.dumps(described))


def test_a_missing_folder_is_refused_by_name(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="'no/such-model' was not found"):
        find_model(ModelConfig(model="no/such-model"))


@pytest.mark.parametrize(("name", "is_hosted"), [("gpt-4o", True), ("x/claude-9", True), ("x/gpt-neo", False)])
def test_a_name_like_those_of_hosted_services_points_to_the_command_that_asks_them(monkeypatch, name, is_hosted):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="was not found") as refused:
        find_model(ModelConfig(model=name))
    assert ("`evaluator ask` asks models of hosted services" in str(refused.value)) == is_hosted


def test_a_revision_of_a_folder_is_refused(tiny_model):
    with pytest.raises(ModelError, match="--revision main names a commit of a hub model"):
        find_model(ModelConfig(model=str(tiny_model), revision="main"))


@pytest.mark.parametrize("name", ["", "  "])
def test_a_blank_name_is_not_the_current_folder(monkeypatch, copied, name):
    monkeypatch.chdir(copied)
    with pytest.raises(ModelError, match="The name of the model is blank"):
        find_model(ModelConfig(model=name))


@pytest.mark.parametrize("option", ["--model", "--adapter", "--data"])
def test_the_home_folder_of_a_user_who_does_not_exist_is_a_folder_that_is_missing(option, tmp_path):
    # A shell leaves ~no-such-user as it is, and pathlib raises RuntimeError for it.
    given = {"--model": "embedded", "--out": tmp_path / "out", option: "~no-such-user/name"}
    suite = "classify" if option == "--data" else "staicc-normal"
    assert "~no-such-user" in command("run", suite, *chain.from_iterable(given.items()), exits=2)


def test_a_path_that_cannot_be_a_hub_name_is_refused_as_such():
    with pytest.raises(ModelError, match=r"is not a hub name .*There is no folder .* either"):
        find_model(ModelConfig(model="/no/such/folder/at all"))


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no config\.json"):
        found(tmp_path)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (
            "x/model.Q4_K.gguf",
            r"is a model in GGUF.*pip install gguf.*gguf_file='model\.Q4_K\.gguf'.*--model model\.Q4_K\.",
        ),
        ("x", r"is a model in GGUF, which is not read\. Make a model folder"),
        ("adapter", r"is an adapter\. Name its base, and the adapter: --model org/base --adapter .*/adapter\."),
        ("copy/model.safetensors", r"is a file, and a model is a folder .* Give .*/copy\."),
        ("notes.txt", r"is a file, and a model is a folder of weights, config\.json and tokenizer\. Give the folder"),
        ("training", r"no config\.json\. There is one in .*/training/checkpoint-10: name that folder\."),
        ("cpoy", r"There is no folder .*/cpoy' either\. Did you mean '.*/copy'\?"),
    ],
)
@pytest.mark.usefixtures("copied")
def test_what_is_no_model_folder_gets_the_way_to_one(tmp_path, named, message):
    for name in ("x/model.Q4_K.gguf", "notes.txt", "training/checkpoint-10/config.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter/adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    with pytest.raises(ModelError, match=message):
        found(tmp_path / named)


@pytest.mark.parametrize(("name", "meant"), [("embeded", "embedded"), ("Random", "random"), ("EMBEDDED", "embedded")])
def test_a_misspelt_shipped_model_is_suggested(monkeypatch, name, meant):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=rf"no folder '{name}' either\. Did you mean '{meant}'\?"):
        find_model(ModelConfig(model=name))


def test_a_damaged_configuration_is_refused(copied):
    (copied / "config.json").write_text("{")
    with pytest.raises(ModelError, match="is damaged or not JSON"):
        found(copied)
    described = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "quantization_config": "fp8"}
    (copied / "config.json").write_text(json.dumps(described))
    with pytest.raises(ModelError, match=r"config\.json: quantization_config must be an object, got 'fp8'"):
        found(copied)


@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [("BertForSequenceClassification", "bert"), ("T5ForConditionalGeneration", "t5"), ("LlamaModel", "llama")],
)
def test_a_model_that_is_not_causal_is_refused(copied, architecture, model_type):
    edit_config(copied, lambda described: described.update(architectures=[architecture], model_type=model_type))
    with pytest.raises(ModelError, match=f"not a causal language model.*{architecture}"):
        found(copied)


def test_a_causal_model_with_another_kind_of_name_is_accepted(copied):
    edit_config(copied, lambda described: described.update(architectures=["GPT2LMHeadModel"], model_type="gpt2"))
    assert found(copied).architecture == "GPT2LMHeadModel"


def test_a_model_without_weights_is_refused(copied):
    (copied / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="no weights"):
        found(copied)


def test_a_model_without_a_tokenizer_is_refused(copied):
    for file in copied.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelError, match="has no tokenizer"):
        found(copied)


def test_a_model_without_a_context_length_has_no_limit(copied):
    edit_config(copied, lambda described: described.pop("max_position_embeddings"))
    assert found(copied).context_length is None


def test_a_model_that_reads_images_and_text_is_accepted_as_text(copied):
    edit_config(
        copied,
        lambda described: described.update(
            architectures=["LlavaForConditionalGeneration"], model_type="llava", text_config={**described}
        ),
    )
    source = found(copied)
    assert (source.architecture, source.vocab_size) == ("LlavaForConditionalGeneration", 1024)


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_dtype_of_the_whole_model_is_that_of_its_text_part(copied, key):
    def wrap(described):
        text = {name: value for name, value in described.items() if name not in ("dtype", "torch_dtype")}
        described.pop("dtype", None)
        described |= {"architectures": ["LlavaForConditionalGeneration"], "text_config": text, key: "bfloat16"}

    edit_config(copied, wrap)
    assert found(copied).dtype == "bfloat16"


def test_what_else_generates_text_is_for_the_engine_to_say(copied):
    edit_config(copied, lambda described: described.update(architectures=["NewModel"], model_type="new"))
    config = ModelConfig(model=str(copied))
    assert find_model(config, lambda name: name == "NewModel").architecture == "NewModel"
    with pytest.raises(ModelError, match=r"not a causal language model.*NewModel"):
        find_model(config, lambda _name: False)


def test_an_encoder_with_a_decoder_is_refused_whatever_the_engine_says(copied):
    edit_config(
        copied,
        lambda described: described.update(
            architectures=["T5ForConditionalGeneration"], model_type="t5", is_encoder_decoder=True
        ),
    )
    with pytest.raises(ModelError, match="not a causal language model"):
        find_model(ModelConfig(model=str(copied)), lambda _name: True)


def test_facts_are_those_of_the_configuration(tiny_source):
    assert tiny_source.architecture == "LlamaForCausalLM"
    assert (tiny_source.context_length, tiny_source.vocab_size) == (2048, 1024)
    assert tiny_source.kv_values_per_token == 2 * 2 * 64  # keys and values of 2 layers of width 64


def test_a_copy_elsewhere_has_the_same_fingerprints(tiny_source, copied):
    assert found(copied).fingerprint == tiny_source.fingerprint
    assert found(copied).tokenizer_fingerprint == tiny_source.tokenizer_fingerprint


def test_one_changed_byte_of_the_weights_changes_the_models_fingerprint_alone(tiny_source, copied):
    weights = bytearray((copied / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copied / "model.safetensors").write_bytes(weights)
    assert found(copied).fingerprint != tiny_source.fingerprint
    assert found(copied).tokenizer_fingerprint == tiny_source.tokenizer_fingerprint


def test_another_tokenizer_changes_its_fingerprint(tiny_source, copied):
    (copied / "tokenizer.json").write_text((copied / "tokenizer.json").read_text() + "\n")
    assert found(copied).tokenizer_fingerprint != tiny_source.tokenizer_fingerprint


def test_code_that_comes_with_a_model_is_part_of_it_where_it_is_run(copied):
    def prints(trust: bool) -> tuple[str, str]:
        source = find_model(ModelConfig(model=str(copied), trust_remote_code=trust))
        return source.fingerprint, source.tokenizer_fingerprint

    code = copied / "modeling_own.py"
    code.write_text("SCALE = 1\n")
    before = prints(True), prints(False)
    code.write_text("SCALE = 2\n")
    after = prints(True), prints(False)
    assert before[0][0] != after[0][0]
    assert before[0][1] != after[0][1]
    assert before[1] == after[1]


@pytest.mark.parametrize("adds_bos", [True, False])
def test_contexts_are_the_ids_that_the_models_own_tokenizer_gives(tmp_path, adds_bos):
    texts = ["a review: fine\nsentiment: ", "", " spaces  and ünïcödé 漢字 ", "x" * 3000]
    folder = make_random_llama(
        tmp_path / "m", texts=texts, size=LlamaSize(vocab_size=300, context_length=64), adds_bos=adds_bos
    )
    prompts = texts if adds_bos else texts[0:1] + texts[2:]
    n = len(prompts)
    contexts = tokenise_prompts(found(folder).tokenizer, prompts, ["labels"] * n, [["a"]] * n, "separate").contexts
    theirs = AutoTokenizer.from_pretrained(str(folder))
    assert contexts.to_pylist() == [theirs(prompt, truncation=False)["input_ids"] for prompt in prompts]


def test_a_random_model_is_the_same_in_the_same_seed_and_another_in_another(tmp_path):
    one, same, other = (
        make_random_llama(tmp_path / name, texts=["some text to learn from"], size=LlamaSize(vocab_size=300), seed=seed)
        for name, seed in [("one", 1), ("same", 1), ("other", 2)]
    )
    assert found(one).fingerprint == found(same).fingerprint != found(other).fingerprint
    assert found(one).tokenizer_fingerprint == found(same).tokenizer_fingerprint


def test_weights_take_the_memory_of_their_number_whatever_dtype_they_are_saved_in(tmp_path):
    size = LlamaSize(vocab_size=300, n_kv_heads=1)
    sources = [
        found(make_random_llama(tmp_path / dtype, texts=["some text to learn from"], size=size, dtype=dtype))
        for dtype in ("float32", "bfloat16")
    ]
    # 300 embeddings of 64. A layer: queries and outputs 64 x 64 each, keys and values 64 x 32 each, feed-forward
    # 3 x 64 x 176, two norms of 64; one norm at the end.
    n_parameters = 300 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 176 + 2 * 64) + 64
    assert [loaded_bytes(source, ModelConfig(model="m", dtype="float32")) for source in sources] == [
        4 * n_parameters
    ] * 2


class Closable:
    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("changed", ["model.safetensors", "config.json"])
def test_files_that_change_while_they_are_loaded_are_refused(copied, monkeypatch, changed):
    """Also in a process that is sent the model after they changed."""
    engine, path = Closable(), copied / changed
    before = path.read_bytes()

    def load(_source, _config):
        path.write_bytes(before.replace(b"e", b"f", 1))
        return engine

    kind = replace(ENGINES["transformers"], load=load)
    monkeypatch.setitem(ENGINES, "transformers", kind)
    config = ModelConfig(model=str(copied), engine="transformers")
    with pytest.raises(ModelError, match="changed while they were loaded"):
        load_engine(found(copied), config)
    assert engine.closed
    path.write_bytes(before)
    source = found(copied)
    sent = pickle.loads(pickle.dumps(source.to_send()))
    assert sent.fingerprint == source.fingerprint
    path.write_bytes(before.replace(b"e", b"f", 1))
    with pytest.raises(ModelError, match="changed while they were loaded"):
        load_engine(sent, config)


def test_weights_load_while_they_are_hashed_and_an_engine_is_ready_when_both_are_done(copied, monkeypatch, tmp_path):
    loading, hashed = Event(), list[Path]()

    def load(_source, _config):
        loading.set()
        return Closable()

    def digest(path):
        assert loading.wait(600)
        hashed.append(path)
        return file_digest(path)

    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "file_digest", digest)
    monkeypatch.setitem(ENGINES, "transformers", replace(ENGINES["transformers"], load=load))
    source = found(copied)
    assert not source.is_hashed
    load_engine(source, ModelConfig(model=str(copied), engine="transformers"))
    assert copied / "model.safetensors" in hashed
    assert found(copied).is_hashed
    assert found(copied).fingerprint == source.fingerprint


def test_files_that_change_after_they_were_loaded_and_before_they_are_hashed_are_refused(copied, monkeypatch, tmp_path):
    """The hash is that of the new weights, and the scores would be those of the old."""
    path, loaded = copied / "model.safetensors", Event()

    def load(_source, _config):
        path.write_bytes(path.read_bytes().replace(b"e", b"f", 1))
        loaded.set()
        return Closable()

    def digest(path):
        assert loaded.wait(600)
        return file_digest(path)

    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "file_digest", digest)
    monkeypatch.setitem(ENGINES, "transformers", replace(ENGINES["transformers"], load=load))
    with pytest.raises(ModelError, match="changed while they were loaded"):
        load_engine(found(copied), ModelConfig(model=str(copied), engine="transformers"))


def test_an_unknown_engine_is_refused_and_the_known_ones_named(tiny_source, tiny_model):
    with pytest.raises(ConfigError, match=f"no engine 'vlm'.*{', '.join(ENGINES)}"):
        load_engine(tiny_source, ModelConfig(model=str(tiny_model), engine="vlm"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_kv_cache_larger_than_the_memory_is_refused_before_anything_is_loaded(tiny_source, tiny_model, dtype):
    config = ModelConfig(model=str(tiny_model), engine="vllm", kv_cache_gib=1e6, dtype=dtype)
    with pytest.raises(ModelError, match=r"1000000\.0 GiB for the KV cache.*--kv-cache-gib"):
        load_engine(tiny_source, config)


ENTRIES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "text_config",
    "quantization_config",
    "architectures",
    "model_type",
    "torch_dtype",
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.dictionaries(st.sampled_from(ENTRIES), JSON_VALUES, max_size=3), gone=st.sets(st.sampled_from(ENTRIES))
)
def test_any_value_in_a_configuration_is_a_model_with_sizes_or_one_sentence(tiny_model, tmp_path, changes, gone):
    for file in tiny_model.iterdir():
        if not (tmp_path / file.name).exists():
            (tmp_path / file.name).symlink_to(file)
    described = json.loads((tiny_model / "config.json").read_text()) | changes
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({key: described[key] for key in described if key not in gone}))
    try:
        source = found(tmp_path)
    except ModelError as error:
        assert str(tmp_path) in str(error)  # noqa: PT017
    else:
        assert source.vocab_size > 0
        assert source.context_length is None or source.context_length > 0  # None: no limit
        assert source.kv_values_per_token >= 0


@pytest.mark.parametrize("value", [math.inf, math.nan, -1, 2**31, "1024", [1024], 1024.0, True])
def test_a_size_that_is_no_whole_number_in_its_range_is_named(copied, value):
    edit_config(copied, lambda described: described.update(vocab_size=value))
    with pytest.raises(ModelError, match=r"config\.json: vocab_size must be a whole number from 0 to 2,147,483,647"):
        found(copied)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\x00"])
def test_a_damaged_tokenizer_is_one_sentence_with_its_folder(copied, name, content):
    (copied / name).write_bytes(content)
    with pytest.raises(ModelError, match=rf"The tokenizer in {copied} cannot be loaded"):
        assert found(copied).tokenizer


@pytest.mark.parametrize("damage", ["truncated", "empty", "swapped"])
def test_damaged_weights_are_refused_before_they_are_loaded(copied, damage):
    path = copied / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes({"truncated": whole[:-7], "empty": b"", "swapped": whole[::-1]}[damage])
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged or no safetensors file"):
        found(copied)


def test_a_pipe_among_the_weights_is_never_waited_for(copied):
    (copied / "model.safetensors").unlink()
    os.mkfifo(copied / "model.safetensors")
    with pytest.raises(ModelError, match="no weights"):
        found(copied)


@pytest.mark.parametrize(
    ("files", "needs_weights", "asked"),
    [
        (["config.json", "pytorch_model.bin"], True, [True, True]),
        (["config.json", "model.safetensors", "pytorch_model.bin"], True, [True]),
        (["config.json", "pytorch_model.bin"], False, [True]),
    ],
)
def test_pickled_weights_are_downloaded_only_where_a_hub_model_has_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], needs_weights: bool, asked: list[bool]
) -> None:
    downloads: list[bool] = []

    def hub(_name: str, _kind: str, patterns: list[str], **_options: object) -> Path:
        downloads.append(True)
        for name in files:
            if any(Path(name).match(pattern) for pattern in patterns):
                (tmp_path / name).write_bytes(b"{}")
        return tmp_path

    monkeypatch.setattr(source, "hub_snapshot", hub)
    assert source._hub_folder(ModelConfig(model="org/name"), needs_weights) == tmp_path
    assert downloads == asked
    weights = {path.name for path in tmp_path.iterdir()} - {"config.json"}
    expected = {"pytorch_model.bin"} if len(asked) == 2 else {"model.safetensors"} & {*files}
    assert weights == (expected if needs_weights else set())


UNREAD = ["original/params.json", "consolidated.safetensors", "LICENSE.txt", "modeling.py"]


@pytest.fixture
def published(hub: Hub, tiny_model: Path) -> list[str]:
    """Publish the tiny model as org/name on a hub, with files that no engine reads; return the files that one reads."""
    files = {path.name: path.read_bytes() for path in tiny_model.iterdir()}
    hub.repositories["org/name"] = files | {name: name.encode() for name in UNREAD}
    return sorted(f"org/name/{name}" for name in files)


def test_of_a_hub_model_only_files_that_an_engine_reads_are_downloaded(hub, published, tiny_model):
    assert find_model(ModelConfig(model="org/name")).fingerprint == found(tiny_model).fingerprint
    assert sorted(hub.asked) == published
    find_model(ModelConfig(model="org/name", trust_remote_code=True))
    assert {*hub.asked} - {*published} == {"org/name/original/params.json", "org/name/modeling.py"}


def test_a_hub_model_that_another_program_has_downloaded_is_read_without_a_network(
    hub, published, tiny_model, monkeypatch
):
    # As vLLM downloads models: weights, and JSON files of the top.
    patterns = {
        "allow_patterns": ["*.safetensors", "*.json"],
        "ignore_patterns": ["original/*", "onnx/*", "consolidated*"],
    }
    snapshot_download("org/name", **patterns)
    assert sorted(hub.asked) == published
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert find_model(ModelConfig(model="org/name")).fingerprint == found(tiny_model).fingerprint


def test_sizes_at_the_ends_of_their_ranges_are_taken(copied):
    changes = {"vocab_size": 2**31 - 1, "num_hidden_layers": 10_000, "head_dim": 0}
    edit_config(copied, lambda described: described.update(changes))
    source = found(copied)
    assert source.vocab_size == 2**31 - 1
    # A head dimension of 0 is one that is not stated; keys and values of each layer have as many numbers.
    assert source.kv_values_per_token == 2 * 10_000 * source.n_kv_heads * source.hidden_size // source.n_heads
