"""The model behind `--model random`: a small random Llama whose tokenizer was made from the datasets' demonstrations."""

from itertools import chain
from pathlib import Path

from evaluator.config import cache_folder
from evaluator.datasets import DATASETS
from evaluator.embedded.random_llama import make_random_llama
from evaluator.store.shards import fingerprint

NAME = "random"


def random_model_folder() -> Path:
    """The folder of the random model, made on first use and kept in the cache."""
    datasets = [load() for load in DATASETS.values()]
    folder = cache_folder() / "models" / f"random-{fingerprint([dataset.fingerprint for dataset in datasets])}"
    if not folder.is_dir():
        texts = (dataset.demonstration["texts"].explode().to_list() for dataset in datasets)
        make_random_llama(folder, texts=chain.from_iterable(texts))
    return folder
