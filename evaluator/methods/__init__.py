"""Register the inference methods, which turn scores of labels into label probabilities, by name."""

from evaluator.methods.base import Method
from evaluator.methods.calibration import BATCH_CALIBRATION, CONTEXTUAL_CALIBRATION, DOMAIN_CALIBRATION
from evaluator.methods.knn_prompting import KNN_CENTROID, KNN_NEIGHBOURS
from evaluator.methods.nearest_demonstrations import SA_ICL, TOPK
from evaluator.methods.plug_ins import plug_ins
from evaluator.methods.scoring_rules import NOISY_CHANNEL, PER_BYTE, PER_TOKEN, PPL_ICL, UNCONDITIONAL, VANILLA
from evaluator.methods.training_states import HIDDEN_CALIBRATION
from evaluator.methods.vector_scaling import TEMPERATURE_SCALING, VECTOR_SCALING

METHODS: dict[str, Method] = {
    "vanilla": VANILLA,
    "noisy_channel": NOISY_CHANNEL,
    "contextual_calibration": CONTEXTUAL_CALIBRATION,
    "domain_calibration": DOMAIN_CALIBRATION,
    "batch_calibration": BATCH_CALIBRATION,
    "ppl_icl": PPL_ICL,
    "topk": TOPK,
    "sa_icl": SA_ICL,
    "knn_centroid": KNN_CENTROID,
    "knn_neighbours": KNN_NEIGHBOURS,
    "hidden_calibration": HIDDEN_CALIBRATION,
    "vector_scaling": VECTOR_SCALING,
    "temperature_scaling": TEMPERATURE_SCALING,
    "per_token": PER_TOKEN,
    "per_byte": PER_BYTE,
    "unconditional": UNCONDITIONAL,
}

PLUG_INS = plug_ins(METHODS)
METHODS |= {name: plug_in.method for name, plug_in in PLUG_INS.items()}

REFERENCE_METHOD = "vanilla"
"""Method that other methods are compared with, and under which models are compared."""
