"""Models that need no download: a trained model in this package, and a small random Llama made on first use.

The tokenizer of the random model is trained on the datasets.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path

import polars as pl

from evaluator.config import cache_folder
from evaluator.datasets import SOURCES
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.staicc import load_staicc
from evaluator.files.digests import fingerprint, source_fingerprint

LABEL_REPEATS = 1_000
"""Number of times that each label name is added to the tokenizer's training texts, so that it becomes one token."""


def random_model_folder() -> Path:
    """Return the folder of the random model, which is made on first use and cached."""
    from evaluator.models.embedded.llama import make_random_llama  # here, because it imports tokenizers

    datasets = [load_staicc(name) for name in SOURCES]
    made_from = fingerprint(source_fingerprint("models/embedded"), [dataset.fingerprint for dataset in datasets])
    folder = cache_folder() / "models" / f"random-{made_from}"
    return make_random_llama(folder, texts=tokenizer_texts(datasets))


def tokenizer_texts(datasets: Sequence[ClassificationDataset]) -> Iterator[str]:
    """Yield training texts for a tokenizer of these datasets: demonstrations as in prompts, and label names."""
    for dataset in datasets:
        label_text = dataset.verbalizer.text(pl.col("gold"))
        yield from dataset.demonstration.select(dataset.template.demonstration(pl.col("texts"), label_text)).to_series()
        for name in dataset.verbalizer.label_names:
            yield from repeat(name, LABEL_REPEATS)


EMBEDDED_MODELS: dict[str, Callable[[], Path]] = {
    "embedded": lambda: Path(__file__).with_name("model"),  # described in its MODEL_CARD.md
    "random": random_model_folder,
}
"""Model names that `--model` accepts in addition to folders and hub names -> function that returns the folder."""
