"""How the embedded model was made: `python -m evaluator.embedded.recipe FOLDER`, from the datasets alone.

Rows that no split of calibration or test holds (`rows.py`) become a tokenizer (`tokenizer.py`), token embeddings
that tell the classes apart (`token_embeddings.py`), sequences in which only the demonstrations can tell what a label
word means (`tasks.py`), and from these a Llama (`training.py`), watched on rows of its own (`development.py`).
"""
