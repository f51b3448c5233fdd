"""Export a measured run to formats of other tools. A format has an entry in FORMATS or TRACKERS."""

from evaluator.exports.base import Format
from evaluator.exports.every_eval_ever import EVERY_EVAL_EVER
from evaluator.exports.lm_eval import LM_EVAL
from evaluator.exports.metrics_tables import CSV, LATEX, MARKDOWN, MODEL_INDEX
from evaluator.exports.trackers import MLFLOW, WANDB, Tracker

FORMATS: dict[str, Format] = {
    "csv": CSV,
    "markdown": MARKDOWN,
    "latex": LATEX,
    "model-index": MODEL_INDEX,
    "lm-eval": LM_EVAL,
    "every-eval-ever": EVERY_EVAL_EVER,
}
"""Formats that this package writes itself."""

TRACKERS: dict[str, Tracker] = {"wandb": WANDB, "mlflow": MLFLOW}
"""Formats that the Python clients of experiment trackers write."""
