"""Tiny random models of many architectures, each through transformers and vLLM: do their scores agree?

python -m tests.engine.architectures docs/models.md      # writes the table of what was measured
"""

import random
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from evaluator.config import Dtype, ModelConfig
from evaluator.engine import find_source, load_engine
from evaluator.engine.base import ContinuationRequest, vllm_version
from evaluator.engine.devices import device_kind
from evaluator.errors import EvaluatorError
from evaluator.models.embedded.llama import byte_level_tokenizer, save_tokenizer

ENGINES = ("transformers", "vllm")
VOCAB_SIZE, WIDTH, N_HEADS, CONTEXT_LENGTH = 300, 128, 4, 512
DECODER = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": N_HEADS,
    "max_position_embeddings": CONTEXT_LENGTH,
    "initializer_range": WIDTH**-0.5,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
GATED = DECODER | {"intermediate_size": 256, "num_key_value_heads": 2}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
HEAD = {"head_dim": WIDTH // N_HEADS}
WINDOW = {"sliding_window": 32}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}


class Architecture(NamedTuple):
    """A tiny model: the name of its class and of its configuration's class in transformers, and what it is made of."""

    model: str
    config: str
    options: dict[str, Any]
    tolerance: float = 1e-5  # nats
    dtype: Dtype = "float32"  # that both engines compute in


ARCHITECTURES = {
    "GPT-2": Architecture("GPT2LMHeadModel", "GPT2Config", DECODER),
    "OPT": Architecture("OPTForCausalLM", "OPTConfig", DECODER | {"ffn_dim": 256, "word_embed_proj_dim": WIDTH}),
    "Llama": Architecture("LlamaForCausalLM", "LlamaConfig", GATED),
    "Qwen2": Architecture("Qwen2ForCausalLM", "Qwen2Config", GATED),
    "Qwen3": Architecture("Qwen3ForCausalLM", "Qwen3Config", GATED | HEAD),
    "Qwen3-MoE": Architecture("Qwen3MoeForCausalLM", "Qwen3MoeConfig", GATED | HEAD | EXPERTS),
    "Mistral": Architecture("MistralForCausalLM", "MistralConfig", GATED | HEAD | {"sliding_window": None}),
    "Mistral, sliding window": Architecture("MistralForCausalLM", "MistralConfig", GATED | HEAD | WINDOW),
    "Mixtral": Architecture("MixtralForCausalLM", "MixtralConfig", GATED | EXPERTS),
    "Phi": Architecture("PhiForCausalLM", "PhiConfig", DECODER | {"intermediate_size": 256}),
    "Phi-3": Architecture("Phi3ForCausalLM", "Phi3Config", GATED),
    "GPT-NeoX": Architecture("GPTNeoXForCausalLM", "GPTNeoXConfig", DECODER | {"intermediate_size": 256}),
    "Falcon": Architecture("FalconForCausalLM", "FalconConfig", DECODER),
    "Falcon, ALiBi": Architecture(
        "FalconForCausalLM", "FalconConfig", DECODER | {"alibi": True, "multi_query": False, "parallel_attn": False}
    ),
    "Gemma": Architecture("GemmaForCausalLM", "GemmaConfig", GATED | HEAD),
    "Gemma 2": Architecture(
        "Gemma2ForCausalLM",
        "Gemma2Config",
        GATED | HEAD | WINDOW | {"attn_logit_softcapping": 2.0, "query_pre_attn_scalar": WIDTH // N_HEADS},
    ),
    "Gemma 3, text": Architecture("Gemma3ForCausalLM", "Gemma3TextConfig", GATED | HEAD | WINDOW),
    "Gemma 3": Architecture(
        "Gemma3ForConditionalGeneration",
        "Gemma3Config",
        {"text_config": GATED | HEAD | WINDOW, "vision_config": VISION},
    ),
    "Idefics3": Architecture(
        "Idefics3ForConditionalGeneration",
        "Idefics3Config",
        {"text_config": GATED | {"model_type": "llama"}, "vision_config": VISION, "image_token_id": VOCAB_SIZE - 1},
    ),
    "PaliGemma": Architecture(
        "PaliGemmaForConditionalGeneration",
        "PaliGemmaConfig",
        {
            "text_config": GATED | HEAD | {"model_type": "gemma"},
            "vision_config": VISION | {"model_type": "siglip_vision_model", "projection_dim": WIDTH},
            "image_token_index": VOCAB_SIZE - 1,
        },
    ),
    "OLMo 2": Architecture("Olmo2ForCausalLM", "Olmo2Config", GATED),
    "gpt-oss": Architecture("GptOssForCausalLM", "GptOssConfig", GATED | HEAD | EXPERTS | WINDOW),
    "StableLM": Architecture("StableLmForCausalLM", "StableLmConfig", GATED),
    "StarCoder2": Architecture("Starcoder2ForCausalLM", "Starcoder2Config", GATED),
    "Granite": Architecture("GraniteForCausalLM", "GraniteConfig", GATED),
    "Cohere": Architecture("CohereForCausalLM", "CohereConfig", GATED),
    "BLOOM": Architecture(
        "BloomForCausalLM", "BloomConfig", {"vocab_size": VOCAB_SIZE, "hidden_size": WIDTH, "n_layer": 2, "n_head": 4}
    ),
    "Mamba": Architecture(
        "MambaForCausalLM",
        "MambaConfig",
        {"vocab_size": VOCAB_SIZE, "hidden_size": WIDTH, "state_size": 16, "num_hidden_layers": 2},
    ),
    # vLLM computes its recurrent layers on a CPU in bf16 alone. All experts are used, so that rounding chooses none.
    "Qwen3-Next, bf16": Architecture(
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        GATED
        | HEAD
        | EXPERTS
        | {
            "num_experts_per_tok": 4,
            "shared_expert_intermediate_size": 64,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "layer_types": ["linear_attention", "full_attention"],
        },
        tolerance=0.1,
        dtype="bfloat16",
    ),
    "LFM2": Architecture(
        "Lfm2ForCausalLM",
        "Lfm2Config",
        GATED
        | {
            "layer_types": ["conv", "full_attention"],
            "conv_dim": WIDTH,
            "block_dim": WIDTH,
            "block_multiple_of": 32,
            "block_auto_adjust_ff_dim": False,
        },
    ),
    "Qwen3.5, bf16": Architecture(
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5Config",
        {
            "text_config": GATED
            | HEAD
            | {
                "linear_num_key_heads": 2,
                "linear_num_value_heads": 4,
                "linear_key_head_dim": 128,
                "linear_value_head_dim": 128,
                "layer_types": ["linear_attention", "full_attention"],
            },
            "vision_config": {
                "hidden_size": 32,
                "intermediate_size": 32,
                "depth": 1,
                "num_heads": 2,
                "out_hidden_size": WIDTH,
            },
        },
        tolerance=0.1,
        dtype="bfloat16",
    ),
}


class Outcome(NamedTuple):
    """What became of a model: the largest difference of its scores in nats, or who refused it with which words."""

    difference: float | None
    refusals: dict[str, str]  # engine -> message


def save_model(folder: Path, architecture: Architecture, seed: int = 0) -> Path:
    """Write a random fp32 model of this architecture with a byte-level tokenizer."""
    import torch
    import transformers

    config = getattr(transformers, architecture.config)(**architecture.options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, architecture.model)(config).float()
    model.save_pretrained(folder)
    save_tokenizer(folder, byte_level_tokenizer([], vocab_size=VOCAB_SIZE, adds_bos=True), CONTEXT_LENGTH)
    return folder


def requests() -> list[ContinuationRequest]:
    """Prompts in prefix order, of up to a hundred tokens, with labels of one to six tokens."""
    rng = random.Random(0)

    def tokens(n: int) -> list[int]:
        return rng.choices(range(2, 258), k=n)

    shared = tokens(90)
    labels = [[5], [6], *(tokens(n) for n in range(2, 7))]
    contexts = sorted(shared[: rng.randrange(1, 90)] + tokens(rng.randrange(1, 12)) for _ in range(16))
    return [ContinuationRequest(context, labels) for context in contexts]


def scores(folder: Path, engine_name: str, dtype: Dtype) -> list[float]:
    """Log-probabilities of all label tokens, in order. Raises as the engine does."""
    config = ModelConfig(model=str(folder), engine=engine_name, dtype=dtype)
    engine = load_engine(find_source(config), config)
    try:
        answers = sorted(engine.log_likelihoods(requests()), key=lambda answer: answer.index)
    finally:
        engine.close()
    return [value for answer in answers for label in answer.token_log_probs for value in label]


def measure(folder: Path, dtype: Dtype = "float32") -> Outcome:
    """Score the model in a folder with both engines."""
    given: dict[str, list[float]] = {}
    refusals: dict[str, str] = {}
    for engine_name in ENGINES:
        try:
            given[engine_name] = scores(folder, engine_name, dtype)
        except EvaluatorError as error:
            refusals[engine_name] = str(error).replace(str(folder), "MODEL")
    if refusals:
        return Outcome(None, refusals)
    pairs = zip(given["transformers"], given["vllm"], strict=True)
    return Outcome(max(abs(one - other) for one, other in pairs), {})


def table(outcomes: dict[str, Outcome]) -> str:
    """Return the page with what became of each architecture."""
    rows = []
    for name, outcome in outcomes.items():
        said = [outcome.refusals.get(engine, "yes") for engine in ENGINES]
        difference = "" if outcome.difference is None else f"{outcome.difference:.0e}"
        rows.append(f"| {name} | `{ARCHITECTURES[name].model}` | {' | '.join(said)} | {difference} |")
    return PAGE.format(
        vllm=vllm_version(),
        transformers=version("transformers"),
        torch=version("torch"),
        device=device_kind(),
        n_prompts=len(requests()),
        rows="\n".join(rows),
    )


PAGE = """# Models

You can evaluate every text model that vLLM serves. `--engine transformers` takes every causal language model of
transformers, and models that read images and text. A name other than `...ForCausalLM` is looked up in the engine's
registry. Models with an encoder and a decoder are refused. A `config.json` without a context length means no limit.

Below, a tiny random model of each architecture scored {n_prompts} prompts with seven labels of one to six tokens each,
in fp32 unless its name says otherwise, with vLLM {vllm}, transformers {transformers} and torch {torch} ({device}). The
last column is the largest difference between the two engines of any token's log-probability, in nats. Where an engine
refuses a model, the table has its error message. `make models` writes this page again.

| model | architecture | transformers | vLLM | largest difference |
|---|---|---|---|---:|
{rows}

## Models that read images as well

They are evaluated as text, without an image. Most need torchvision. The set-up without a GPU leaves it out, because
PyPI has it for CUDA only. The table lists two models that vLLM refuses without torchvision. With torchvision and a CUDA
build of torch, on a CPU, vLLM 0.32 accepts both: Gemma 3 is within 3e-6 nats of transformers in fp32, Qwen3.5 within
0.08 in bf16. None was tried on a GPU.

## Where the two engines compute something else

- **BLOOM**: vLLM's feed-forward layers have the exact GELU, those of transformers, and of the model's authors, its tanh
  approximation. With larger random weights than those above, the two differ by 2e-4 to 5e-4 nats; computed in double
  precision with tanh, transformers is within 7e-7, and with the exact GELU vLLM is within 4e-6. ALiBi itself agrees. An
  fp32 run was once off by 6e-4 and never explained; a BLOOM model on vLLM is off by as much.
- **Falcon with ALiBi**: transformers rounds ALiBi's distances to bf16, which changes those beyond 256 tokens; vLLM does
  not. A random model differs by 4e-5 nats after 100 tokens and by 0.07 to 0.3 after 500 to 1,900; with distances in
  double precision vLLM is within 7e-5 of transformers.
- **LongRoPE** (Phi-3 with 128k, Phi-4-mini): transformers turns positions by short factors up to the context of the
  training (4,096 tokens) and by long ones beyond; vLLM by one kind for all prompts. A tiny model with the long factors
  in place of the short ones was off by 2.0 and 3.4 nats. With vLLM such a model has its short context: both engines
  agree; `--engine transformers` takes longer prompts.

`--engine transformers` has the numbers of the authors of BLOOM and Falcon; a run warns of them (`engines-differ`).

**LFM2** is refused on a CPU: vLLM 0.32 computes its attention wrongly there. Random models with attention layers alone
differ by 0.2 to 2.5 nats from transformers once a prompt has two tokens, and from run to run. LFM2-MoE has the same
attention and is refused as well, unmeasured. On a GPU neither was tried.

## Weights of fewer bits

Weights that were saved quantised (FP8, AWQ, GPTQ, compressed-tensors) are loaded as they are, with the parameters
they stand for. Tried on a CPU: a random Llama in bf16 with weights of four bits in groups of 32, saved as
compressed-tensors, GPTQ and AWQ pack them. vLLM differs by 0.05 nats at most from transformers on the same weights as
plain numbers. These differ by 1.4 to 1.6 nats from the model before it was quantised. On a CPU, vLLM needs AVX-512
for such layers, and sides that are multiples of 32; otherwise the run ends with one sentence. transformers reads
compressed-tensors; for GPTQ and AWQ it needs further packages, which were not tried. FP8 weights and `--quantization
fp8` need a GPU and were not tried: on a CPU vLLM 0.32 lacks their kernels, and says so. The memory of the quantised
weights, with embeddings and LM head as they were, decides how many devices a replica takes.

## Models with a recurrent state

Layers like those of Qwen3-Next, Qwen3.5 or Nemotron-H sum up all tokens before them in a state. vLLM keeps that state
for few places of a prompt, in blocks of hundreds of tokens, so that shorter prompts share nothing. Here states are kept
at multiples of 16 tokens (`prefix_match_unit`), and a beginning that several prompts share is sent first, as a prompt
of its own, where that saves at least 64 tokens. Of a tiny Qwen3-Next on a CPU and 19 prompts of 60 to 239 tokens, most
of which share 80 or 200, vLLM computed 3,633 tokens without such prompts and 1,060 with them, for the same scores. On a
GPU it was not tried. Hidden states are computed without it.

## GGUF files

`--model` does not take a `.gguf` file. The error message has the line of Python that converts it to a model folder with
transformers, after `pip install gguf`. The folder has the weights of the file as floats, without further loss.
"""


def main(page: Path) -> None:
    outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, architecture) in enumerate(ARCHITECTURES.items()):
            outcomes[name] = measure(save_model(Path(folder) / str(number), architecture), architecture.dtype)
            print(name, outcomes[name], flush=True)
    page.write_text(table(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
