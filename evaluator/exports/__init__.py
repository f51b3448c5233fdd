"""Export a measured run to formats that other tools read: one module a format, and its line in FORMATS or TRACKERS."""

from evaluator.exports.base import Format
from evaluator.exports.every_eval_ever import EVERY_EVAL_EVER
from evaluator.exports.latex import LATEX
from evaluator.exports.lm_eval import LM_EVAL
from evaluator.exports.markdown import MARKDOWN
from evaluator.exports.metrics_csv import METRICS_CSV
from evaluator.exports.mlflow import MLFLOW
from evaluator.exports.model_index import MODEL_INDEX
from evaluator.exports.tracked import Tracker
from evaluator.exports.wandb import WANDB

FORMATS: dict[str, Format] = {
    "csv": METRICS_CSV,
    "markdown": MARKDOWN,
    "latex": LATEX,
    "model-index": MODEL_INDEX,
    "lm-eval": LM_EVAL,
    "every-eval-ever": EVERY_EVAL_EVER,
}

TRACKERS: dict[str, Tracker] = {"wandb": WANDB, "mlflow": MLFLOW}
"""Formats that the clients of experiment trackers write."""
