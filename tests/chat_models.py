"""Chat templates as models have them, and a tiny tokenizer that applies them, made on the spot."""

from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

ANY_ROLE = (
    "{{ bos_token }}{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
"""Takes every conversation, as Llama's and Qwen's."""

SPACED = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}"
    "{% endfor %}"
)
"""Writes a space before an answer and takes no system message, as Mistral's."""

THINKING = (
    "{{ bos_token }}{% for m in messages %}<|start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n"
    "{% if enable_thinking is not defined or enable_thinking %}Let me see.{% endif %}{{ '\n</think>\n\n' }}{% endif %}"
    "{{ m.content }}<|end|>\n{% endfor %}"
)
"""Writes thoughts before the last answer unless thinking is off, as Qwen3's."""

NO_SYSTEM = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<|start|>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<|end|>\n{% endfor %}"
)
"""Refuses a system message, as Gemma 2's."""

DATED = (
    "{{ bos_token }}Today is {{ strftime_now('%d %B %Y') }}, or {{ date_string }}.\n"
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
)
"""Writes the date, as Llama 3.1's."""

_TEXTS = ("Text: rain and sun and fog in the wet and dry season\nLabel: wet\n", "user assistant system question")


def chat_tokenizer(template: str | None, texts: Sequence[str] = _TEXTS) -> Any:
    """Return a byte-level tokenizer that begins texts with <s>, with a few merges."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True) for text in ("<s>", "</s>", "<|start|>", "<|end|>")]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = template
    return tokenizer
