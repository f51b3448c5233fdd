"""Registry of inference methods, which turn scores of labels into label probabilities.

Other installed packages add methods through entry points, without a change of this package. Such a package declares
`[project.entry-points."evaluator.methods"]` with lines `name = "module:METHOD"`, where METHOD is a
methods.base.Method.
"""

import importlib
import importlib.metadata
import inspect
import logging
from collections.abc import Collection
from typing import NamedTuple

from evaluator.files.digests import code_digest
from evaluator.methods import calibration, hidden_states, scoring_rules
from evaluator.methods.base import Method

logger = logging.getLogger(__name__)

METHODS: dict[str, Method] = {
    "vanilla": scoring_rules.VANILLA,
    "noisy_channel": scoring_rules.NOISY_CHANNEL,
    "contextual_calibration": calibration.CONTEXTUAL_CALIBRATION,
    "domain_calibration": calibration.DOMAIN_CALIBRATION,
    "batch_calibration": calibration.BATCH_CALIBRATION,
    "ppl_icl": scoring_rules.PPL_ICL,
    "topk": hidden_states.TOPK,
    "sa_icl": hidden_states.SA_ICL,
    "knn_centroid": hidden_states.KNN_CENTROID,
    "knn_neighbours": hidden_states.KNN_NEIGHBOURS,
    "hidden_calibration": hidden_states.HIDDEN_CALIBRATION,
    "vector_scaling": calibration.VECTOR_SCALING,
    "temperature_scaling": calibration.TEMPERATURE_SCALING,
    "per_token": scoring_rules.PER_TOKEN,
    "per_byte": scoring_rules.PER_BYTE,
    "unconditional": scoring_rules.UNCONDITIONAL,
}

GROUP = "evaluator.methods"


class PlugIn(NamedTuple):
    """An inference method of another package."""

    method: Method
    identity: str  # digest of the module's code, which is part of the fingerprint of prompts


def plug_ins(taken: Collection[str]) -> dict[str, PlugIn]:
    """Return the methods of other packages by name, sorted.

    An entry point that cannot be loaded, is not a Method, or has a name in `taken` is left out with a warning, so that
    it does not end runs that do not use it.
    """
    found: dict[str, PlugIn] = {}
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        try:
            method = entry.load()
            if not isinstance(method, Method) or entry.name in {*taken, *found}:
                raise TypeError("its name is taken" if isinstance(method, Method) else f"{method!r:.60} is no Method")
            found[entry.name] = PlugIn(method, code_digest(inspect.getsource(importlib.import_module(entry.module))))
        except Exception as error:  # code of other packages may raise anything
            logger.warning("The method %s (%s) is left out: %s.", entry.name, entry.value, error)
    return found


PLUG_INS = plug_ins(METHODS)
METHODS |= {name: plug_in.method for name, plug_in in PLUG_INS.items()}

REFERENCE_METHOD = "vanilla"
"""The method that other methods are compared with, and under which models are compared."""
