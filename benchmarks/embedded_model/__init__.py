"""The training recipe of the embedded model: `python -m benchmarks.embedded_model FOLDER` trains it from the datasets.

Rows outside the calibration and test splits (`rows.py`) train a tokenizer (`tokenizer.py`) and token embeddings that
separate the labels (`token_embeddings.py`). They also form training sequences; in many sequences, only the
demonstrations show the meaning of a label word (`tasks.py`). A Llama initialised with these embeddings
(`initial_weights.py`) is trained on the sequences (`training.py`) and evaluated during training on development rows
(`development.py`). `python -m benchmarks.embedded_model.evaluation` prints the numbers of
evaluator/models/embedded/model/MODEL_CARD.md.
"""
