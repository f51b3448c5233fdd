"""What tokens say against what was written: expected texts are those that transformers decodes from its own ids."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from evaluator.config import ModelConfig
from evaluator.models.source import find_model
from evaluator.tokens.boundary import TextFault, TextFaults, tokenise_prompts, tokens_around
from evaluator.tokens.tokenizer import FastTokenizer, TextTokenizer
from tests.shared_data import real_model

TEXTS = ["text: a Warm and funny film\nlabel: ", "text: rain\nlabel: ", "text: dull plot\nlabel: "]
LABELS = ["wet", "dry"]


def trained(
    normalizer: Any = None, pre_tokenizer: Any = None, decoder: Any = None, alphabet: bool = True, front: bool = False
) -> Any:
    """A tokenizer of transformers that has seen lower-case letters only."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    if normalizer:
        backend.normalizer = normalizer
    backend.pre_tokenizer, backend.decoder = pre_tokenizer, decoder
    special = [AddedToken(text, special=True) for text in ("<unk>", "<s>", "</s>", "<|turn|>")]
    initial = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=special, initial_alphabet=initial, show_progress=False)
    backend.train_from_iterator([text.lower() for text in TEXTS] * 3 + LABELS * 5, trainer)
    if front:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


BYTES = {
    "pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "decoder": decoders.ByteLevel(),
}
PREFIXED = {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True), "decoder": decoders.ByteLevel()}
WORDS = {
    "normalizer": normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    "decoder": decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    "alphabet": False,
}


def faults(
    tokenizer: TextTokenizer, texts: list[str] = TEXTS, labels: list[str] = LABELS, boundary: Any = "merged"
) -> dict[str, TextFault]:
    found = TextFaults(tokenizer)
    spaces = [labels] * len(texts)
    rows = tokenise_prompts(tokenizer, texts, ["labels"] * len(texts), spaces, boundary)
    prompts = pl.DataFrame({"prompt": texts, "continuations": spaces})
    found.add(prompts, texts, spaces, rows, tokens_around(tokenizer)[0])
    return {fault.kind: fault for fault in found.found}


def fast(tokenizer: Any) -> FastTokenizer:
    return FastTokenizer(tokenizer.backend_tokenizer)


@pytest.mark.parametrize("front", [False, True])
@pytest.mark.parametrize("boundary", ["merged", "separate"])
def test_bytes_say_what_was_written(boundary, front):
    assert not faults(fast(trained(**BYTES, front=front)), boundary=boundary)


@pytest.mark.parametrize("settings", [PREFIXED, WORDS])
def test_a_space_that_a_label_gains_when_it_is_tokenised_alone_is_found(settings):
    tokenizer = trained(**settings)
    texts = ["text: rain\nlabel: ", "text: dull plot\nlabel: "]
    expected = tokenizer.decode(
        tokenizer.encode(texts[0], add_special_tokens=False) + tokenizer.encode("wet", add_special_tokens=False)
    ).strip()
    fault = faults(fast(tokenizer), texts, boundary="separate")["label"]
    assert fault.n_prompts == 2
    assert expected == "text: rain\nlabel:  wet"
    assert (fault.written, fault.read) == (texts[0] + "wet", expected)
    assert fault.tokens == tokenizer.tokenize("wet")
    assert not faults(fast(tokenizer), texts, boundary="merged")


@pytest.mark.parametrize("decoder", [None, WORDS["decoder"]])
def test_characters_that_become_the_unknown_token_are_found_in_prompts_and_in_any_label(decoder):
    tokenizer = fast(trained(**WORDS | {"decoder": decoder}))
    fault = faults(tokenizer)["prompt"]
    assert (fault.n_prompts, fault.written[:9], fault.read[:7]) == (1, "text: a W", "text: a")
    assert "<unk>" in fault.read
    fault = faults(tokenizer, TEXTS[1:], ["wet", "ЖЖ"])["label"]
    assert fault.n_prompts == 2, "every prompt has the second label"
    assert "<unk>" in fault.tokens


@pytest.mark.parametrize(
    ("normalizer", "written", "read"),
    [
        (normalizers.Lowercase(), "Warm", "warm"),
        (normalizers.NFKC(), "½ fog", "1⁄2 fog"),
        (normalizers.Replace("\u200b", ""), "fo\u200bg", "fog"),
        (normalizers.Replace("  ", " "), "fog  dog", "fog dog"),
    ],
)
def test_whatever_a_tokenizer_changes_is_found(normalizer, written, read):
    tokenizer = trained(**BYTES, normalizer=normalizer)
    assert tokenizer.decode(tokenizer.encode(written, add_special_tokens=False)) == read
    clean = "text: fog\nlabel: "
    fault = faults(fast(tokenizer), [clean, f"text: {written}\nlabel: "])["prompt"]
    assert fault.n_prompts == 1
    assert read[:2] in fault.read
    label = faults(fast(tokenizer), [clean], ["dry", written])["label"]
    assert (label.written, label.read) == (clean + written, clean + read)


@pytest.mark.parametrize("mark", ["<|turn|>", "</s>", "<s>"])
@pytest.mark.parametrize("settings", [BYTES, WORDS])
def test_control_tokens_inside_texts_and_labels_are_found(mark, settings):
    tokenizer = trained(**settings)
    (token,) = tokenizer.encode(mark, add_special_tokens=False)
    assert token in tokenizer.all_special_ids or token in tokenizer.added_tokens_decoder
    fault = faults(fast(tokenizer), ["text: rain\nlabel: ", f"text: rain{mark} fog\nlabel: "])["control token"]
    assert (fault.n_prompts, fault.read, fault.tokens) == (1, mark, [mark])
    assert fault.written.endswith(f"rain{mark}")
    assert faults(fast(tokenizer), ["text: rain\nlabel: "], ["wet", f"dry{mark}"])["control token"].read == mark
    assert "control token" not in faults(fast(tokenizer), ["text: < |turn| >\nlabel: "])


@pytest.mark.parametrize("name", ["smollm2-135m-instruct", "gemma-3-270m"])
def test_real_tokenizers_say_what_was_written_and_control_tokens_are_found(name):
    folder = real_model(name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    source = find_model(ModelConfig(model=str(folder)), needs_weights=False)
    texts = [*TEXTS, "text: naïve 😀 Ж\u200b  two  spaces\nlabel: "]
    for boundary in ("separate", "merged"):
        assert not faults(source.tokenizer, texts, boundary=boundary)
    mark = tokenizer.eos_token
    assert faults(source.tokenizer, [f"text: rain{mark}\nlabel: "])["control token"].read == mark


@pytest.mark.parametrize("is_added", [False, True])
def test_bos_is_what_a_model_expects_first_and_add_bos_puts_it_there(tmp_path: Path, tiny_model: Path, is_added):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    trained(**BYTES, front=is_added).save_pretrained(folder)
    source = find_model(ModelConfig(model=str(folder)))
    assert source.bos == 1
    added = find_model(ModelConfig(model=str(folder), add_bos=True))
    ids = AutoTokenizer.from_pretrained(folder).encode("rain", add_special_tokens=False)
    texts = ["rain", "<s>rain"]
    assert added.tokenizer.token_ids(["rain"], special_tokens=True) == [[1, *ids]]
    assert added.tokenizer.token_ids(texts, special_tokens=False) == [ids, [1, *ids]]
    assert added.tokenizer_fingerprint != source.tokenizer_fingerprint


@pytest.mark.parametrize(
    "changes", [{"bos_token": None}, {"bos_token": "</s>"}, {"chat_template": "<s>a{{ messages }}<s>"}]
)
def test_a_model_expects_no_bos_without_one_where_it_ends_texts_or_opens_turns(tmp_path, tiny_model, changes):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    trained(**BYTES).save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    assert find_model(ModelConfig(model=str(folder))).bos is None
