"""`python -m evaluator.models.embedded.recipe FOLDER`: make the embedded model anew, or resume a stopped training."""

import logging
import sys
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from evaluator.models.embedded.model_folder import save_llama, save_tokenizer
from evaluator.models.embedded.recipe.development import watch
from evaluator.models.embedded.recipe.rows import recipe_rows
from evaluator.models.embedded.recipe.settings import VOCABULARY, Recipe
from evaluator.models.embedded.recipe.tasks import TaskSequences
from evaluator.models.embedded.recipe.token_embeddings import train_token_embeddings
from evaluator.models.embedded.recipe.tokenized import tokenized
from evaluator.models.embedded.recipe.tokenizer import compact_tokenizer, train_tokenizer
from evaluator.models.embedded.recipe.training import train

logger = logging.getLogger("evaluator.models.embedded.recipe")


def make_embedded_model(folder: Path, recipe: Recipe) -> None:
    """Write the model, its tokenizer and, until it is done, a checkpoint to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = recipe_rows(seed=recipe.seed)
    for of_dataset in rows.training:
        logger.info("%s: %d rows to learn from", of_dataset.dataset.name, len(of_dataset.texts))
    tokenizer = train_tokenizer(rows.training)
    training, development = tokenized(rows.training, tokenizer), tokenized(rows.development, tokenizer)
    embeddings = train_token_embeddings(
        training, vocabulary=VOCABULARY, width=recipe.size.hidden_size, seed=recipe.seed
    )

    def report(model: LlamaForCausalLM) -> None:
        for scores in watch(model, tokenizer, training, development, seed=recipe.seed):
            logger.info("  %s", scores)

    sequences = TaskSequences(training, tokenizer, length=recipe.length, seed=recipe.seed)
    model = train(sequences, embeddings, recipe, folder / "checkpoint.pt", watch=report)
    save_tokenizer(folder, tokenizer, recipe.size.context_length)
    compact_tokenizer(folder)
    save_llama(folder, model, torch.bfloat16)  # half the bytes to ship


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    make_embedded_model(Path(sys.argv[1]), Recipe())
