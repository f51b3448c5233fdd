"""Train the embedded model, or resume a stopped training: `python -m benchmarks.embedded_model FOLDER`."""

import logging
import sys
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from benchmarks.embedded_model.development import development_scores
from benchmarks.embedded_model.rows import recipe_rows
from benchmarks.embedded_model.settings import VOCABULARY, Recipe
from benchmarks.embedded_model.tasks import TaskSequences
from benchmarks.embedded_model.token_embeddings import train_token_embeddings
from benchmarks.embedded_model.tokenized import tokenized
from benchmarks.embedded_model.tokenizer import compact_tokenizer, train_tokenizer
from benchmarks.embedded_model.training import train
from evaluator.models.embedded.llama import save_llama, save_tokenizer

logger = logging.getLogger("benchmarks.embedded_model")


def make_embedded_model(folder: Path, recipe: Recipe) -> None:
    """Train the model and write it, its tokenizer and a checkpoint to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = recipe_rows(seed=recipe.seed)
    for labelled in rows.training:
        logger.info("%s: %d training rows", labelled.dataset.name, len(labelled.texts))
    tokenizer = train_tokenizer(rows.training)
    training, development = tokenized(rows.training, tokenizer), tokenized(rows.development, tokenizer)
    embeddings = train_token_embeddings(
        training, vocabulary=VOCABULARY, width=recipe.size.hidden_size, seed=recipe.seed
    )

    def report(model: LlamaForCausalLM) -> None:
        for scores in development_scores(model, tokenizer, training, development, seed=recipe.seed):
            logger.info("  %s", scores)

    sequences = TaskSequences(training, tokenizer, length=recipe.length, seed=recipe.seed)
    model = train(sequences, embeddings, recipe, folder / "checkpoint.pt", report=report)
    save_tokenizer(folder, tokenizer, recipe.size.context_length)
    compact_tokenizer(folder)
    save_llama(folder, model, torch.bfloat16)  # half the size of float32


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    make_embedded_model(Path(sys.argv[1]), Recipe())
