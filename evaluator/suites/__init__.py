"""The suites: what a benchmark asks for. Name -> suite."""

from evaluator.suites.base import Suite
from evaluator.suites.staicc_normal import STAICC_NORMAL

SUITES: dict[str, Suite] = {
    "staicc-normal": STAICC_NORMAL,
}
