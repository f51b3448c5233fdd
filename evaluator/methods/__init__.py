"""The inference methods: from label scores to label probabilities. Name -> method."""

from evaluator.methods.base import Method
from evaluator.methods.vanilla import VANILLA

METHODS: dict[str, Method] = {
    "vanilla": VANILLA,
}
