"""Log-likelihoods of a chat-templated run on a real vLLM, against transformers' own template and softmax."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import evaluator
from tests.chat_models import NO_SYSTEM, SPACED
from tests.command_line import command

QWEN = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n"
    "{% endif %}{% for m in messages %}{% if m.role == 'user' %}<|im_start|>user\n{{ m.content }}<|im_end|>\n"
    "{% elif m.role == 'assistant' %}<|im_start|>assistant\n{% if loop.last %}<think>\n"
    "{% if enable_thinking is not defined or enable_thinking %}So many words.{% endif %}"
    "{{ '\n</think>\n\n' }}{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Takes a system message and writes thoughts, empty if thinking is off, before the last answer, as Qwen3's."""

SYSTEM = "Answer in one word."


def chat_model(folder: Path, tiny_model: Path, template: str) -> Path:
    folder.mkdir()
    for file in tiny_model.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def messages(prompt: str, system: str | None) -> list[dict[str, str]]:
    """The turns of a prompt of TREC: a line is a question and, but for the last, its answer."""
    turns = [{"role": "system", "content": system}] if system else []
    *shown, query = prompt.split("\n")
    for line in shown:
        question, _, answer = line.rpartition(" target: ")
        turns += [{"role": "user", "content": f"{question} target:"}, {"role": "assistant", "content": answer}]
    return [*turns, {"role": "user", "content": query.rstrip()}]


def log_likelihood(model: Any, tokenizer: Any, turns: list[dict[str, str]], label: str, opening: str) -> float:
    """The log-likelihood of what follows the opening of the last answer, up to the end of a label."""
    whole = [*turns, {"role": "assistant", "content": label}]
    text = tokenizer.apply_chat_template(whole, tokenize=False, enable_thinking=False)
    start = text.rindex(opening) + len(opening)
    end = text.index(label, start) + len(label)
    assert text[start:end].strip() == label
    encoded = tokenizer(text[:end], add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
    assert ids.count(tokenizer.bos_token_id) == 1
    with torch.inference_mode():
        log_probs = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    of_label = [place for place, (_, stop) in enumerate(offsets) if stop > start]
    return sum(float(log_probs[place - 1, ids[place]]) for place in of_label)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "template", "system", "opening"),
    [
        ("vllm", QWEN, SYSTEM, "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
        ("transformers", SPACED, None, "[/INST]"),
        ("transformers", NO_SYSTEM, None, "<|start|>model\n"),
    ],
    ids=["vllm, system, thinking off", "a space before the answer", "no system"],
)
def test_every_label_has_the_likelihood_that_transformers_gives_the_conversation(
    tmp_path, tiny_model, engine, template, system, opening
):
    folder = chat_model(tmp_path / "chatty", tiny_model, template)
    words = ("--datasets", "trec", "--queries", 3, "--model", folder, "--dtype", "float32", "--engine", engine)
    instruction = ("--system-instruction", system) if system else ()
    memory = ("--kv-cache-gib", 0.05) if engine == "vllm" else ()
    command(
        "run", "staicc-normal", *words, *memory, "--chat-template", "none,auto", *instruction, "--out", tmp_path / "out"
    )
    assert (tmp_path / "out" / "compare.html").is_file()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = (
        evaluator.read_scores(tmp_path / "out" / "models" / "chatty-chat").filter(pl.col("ask") == "labels").collect()
    )
    plain = evaluator.read_scores(tmp_path / "out" / "models" / "chatty").filter(pl.col("ask") == "labels").collect()
    assert rows["prompt_id"].to_list() == plain["prompt_id"].to_list()
    assert rows["label_log_likelihoods"].to_list() != plain["label_log_likelihoods"].to_list()
    for row in rows.unique("prompt_id", maintain_order=True).iter_rows(named=True):
        turns = messages(row["prompt"], system)
        expected = [log_likelihood(model, tokenizer, turns, label.strip(), opening) for label in row["continuations"]]
        assert row["label_log_likelihoods"] == pytest.approx(expected, abs=2e-4)
