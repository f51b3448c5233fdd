"""Register the inference methods, which turn scores of labels into label probabilities, by name.

Other installed packages add methods by an entry point, so that none has to be written into this package. A package
states `[project.entry-points."evaluator.methods"]` with lines `name = "module:METHOD"`, where METHOD is a
methods.base.Method.
"""

import importlib
import importlib.metadata
import inspect
import logging
from collections.abc import Collection
from typing import NamedTuple

from evaluator.files.digests import code_digest
from evaluator.methods.base import Method
from evaluator.methods.calibration import (
    BATCH_CALIBRATION,
    CONTEXTUAL_CALIBRATION,
    DOMAIN_CALIBRATION,
    TEMPERATURE_SCALING,
    VECTOR_SCALING,
)
from evaluator.methods.nearest_demonstrations import SA_ICL, TOPK
from evaluator.methods.scoring_rules import NOISY_CHANNEL, PER_BYTE, PER_TOKEN, PPL_ICL, UNCONDITIONAL, VANILLA
from evaluator.methods.training_states import HIDDEN_CALIBRATION, KNN_CENTROID, KNN_NEIGHBOURS

logger = logging.getLogger(__name__)

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

GROUP = "evaluator.methods"


class PlugIn(NamedTuple):
    """A method of another package."""

    method: Method
    identity: str  # changes with the code of its module: part of what identifies prompts


def plug_ins(taken: Collection[str]) -> dict[str, PlugIn]:
    """Return the methods of other packages by name, sorted.

    An entry point that cannot be loaded, is no Method or has a name that is taken is left out with a warning: it must
    not end runs that do not use it.
    """
    found: dict[str, PlugIn] = {}
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        try:
            method = entry.load()
            if not isinstance(method, Method) or entry.name in {*taken, *found}:
                raise TypeError("its name is taken" if isinstance(method, Method) else f"{method!r:.60} is no Method")
            found[entry.name] = PlugIn(method, code_digest(inspect.getsource(importlib.import_module(entry.module))))
        except Exception as error:  # any code of others
            logger.warning("The method %s (%s) is left out: %s.", entry.name, entry.value, error)
    return found


PLUG_INS = plug_ins(METHODS)
METHODS |= {name: plug_in.method for name, plug_in in PLUG_INS.items()}

REFERENCE_METHOD = "vanilla"
"""Method that other methods are compared with, and under which models are compared."""
