"""The recipe of the embedded model: `python -m benchmarks.embedded_model FOLDER` trains it, from the datasets alone.

Rows outside the calibration and test splits (`rows.py`) train a tokenizer (`tokenizer.py`) and token embeddings that
separate the classes (`token_embeddings.py`), and form sequences in many of which only the demonstrations show what a
label word means (`tasks.py`). A Llama initialised with these embeddings (`initial_weights.py`) is trained on the
sequences (`training.py`) and evaluated meanwhile on development rows (`development.py`). `python -m
benchmarks.embedded_model.evaluation` prints the numbers of evaluator/models/embedded/model/MODEL_CARD.md.
"""
