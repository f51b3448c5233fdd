"""How the six diagnostics of StaICC read: what they are called, in which unit, and what more of one means.

Definitions differ in signs and units: diagnostics/__init__.py says in which.
"""

from typing import NamedTuple


class Reading(NamedTuple):
    """What a reader needs beside a diagnostic's number."""

    unit: str
    meaning: str  # what more of it, or its sign, says


TITLES = {
    "contextual_bias": "Contextual bias",
    "domain_bias": "Domain bias",
    "empirical_bias": "Empirical bias",
    "template_consistency": "Template consistency",
    "sampling_consistency": "Sampling consistency",
    "gler": "GLER",
}
"""The six, by their names in the tables."""

_BIAS, _CONSISTENCY = Reading("nats", "more is more bias"), Reading("share", "more is steadier")
_READINGS = {
    "contextual_bias": _BIAS,
    "domain_bias": _BIAS,
    "empirical_bias": _BIAS,
    "template_consistency": _CONSISTENCY,
    "sampling_consistency": _CONSISTENCY,
    "gler": Reading("accuracy per unit of noise", "above 0 where labels are read"),
}
_RELEASED = _READINGS | {
    "contextual_bias": Reading("nats", "less is more bias"),
    "domain_bias": Reading("nats", "less is more bias"),
    "gler": Reading("accuracy per unit of the toolkit's axis", "above 0 where labels are read"),
}


def reading(metric: str, definition: str) -> Reading:
    """Of one of TITLES."""
    return (_RELEASED if definition == "released" else _READINGS)[metric]
