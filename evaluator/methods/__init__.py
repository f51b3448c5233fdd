"""The inference methods: from label scores to label probabilities. Name -> method."""

from evaluator.methods.base import Method
from evaluator.methods.per_byte import PER_BYTE
from evaluator.methods.per_token import PER_TOKEN
from evaluator.methods.unconditional import UNCONDITIONAL
from evaluator.methods.vanilla import VANILLA

METHODS: dict[str, Method] = {
    "vanilla": VANILLA,
    "per_token": PER_TOKEN,
    "per_byte": PER_BYTE,
    "unconditional": UNCONDITIONAL,
}
