"""How the embedded model was made: `python -m evaluator.models.embedded.recipe FOLDER`, from the datasets alone.

Rows that no split of calibration or test holds (`rows.py`) become a tokenizer (`tokenizer.py`), token embeddings
that tell the classes apart (`token_embeddings.py`) and sequences in many of which only the demonstrations tell what a
label word means (`tasks.py`). A Llama that begins with these embeddings (`initial_weights.py`) learns from them all
(`training.py`), watched on rows of its own (`development.py`). `evaluation.py` prints the numbers of MODEL_CARD.md.
"""
