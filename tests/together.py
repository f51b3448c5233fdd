"""Files of tests that run one after the other in the same process: they share what takes long to make."""

from fnmatch import fnmatch
from functools import cache

from xdist.scheduler import LoadFileScheduling

TOGETHER = {
    "vLLM": (  # imported once; first those that share the engine of the fixture loaded_engine
        "tests/engine/test_engine_contract.py",
        "tests/engine/test_block_sharing.py",
        "tests/engine/test_vllm_settings.py",
        "tests/run/test_score.py",
        "tests/runs/test_receipt.py",
        "tests/engine/test_vllm_loading.py",
        "tests/engine/test_head_dtype.py",
        "tests/engine/test_adapters.py",
        "tests/engine/test_quantised_weights.py",
        "tests/engine/test_architectures.py",
        "tests/engine/test_server_engine.py",
        "tests/engine/test_without_connector.py",
        "tests/engine/test_vllm_import.py",
        "tests/decisions/test_questions.py",
        "tests/decisions/test_vllm_server.py",
        "tests/end_to_end/test_*vllm*.py",
        "tests/end_to_end/test_methods_against_toolkit.py",
        "tests/runs/test_doctor.py",
    ),
    "published experiments": ("tests/reproductions/yauney_mimno_2024/*",),
    "an exported run": ("tests/exports/*", "tests/runs/test_verify.py"),  # which import mlflow and wandb
    "the toolkit's experiments": (
        "tests/suites/staicc/test_against_toolkit.py",
        "tests/prompts/*",
        "tests/methods/*",
    ),
    "a browser": (
        "tests/report/*",
        "tests/suites/*/test_report.py",
        "tests/suites/in_context_pvi/test_compare.py",
        "tests/compare/test_report.py",
        "tests/runs/test_board.py",
        "tests/end_to_end/test_command_line.py",
        "tests/end_to_end/test_prompt_search.py",
    ),
}
"""What is shared -> patterns of files, in the order in which they run. The longest are first."""

_PLACES = [(group, pattern) for group, patterns in TOGETHER.items() for pattern in patterns]


@cache
def place_of(file: str) -> tuple[int, str]:
    """Return the place of a file among all, and the group that it belongs to: itself, if it shares nothing."""
    places = (n for n, (_, pattern) in enumerate(_PLACES) if fnmatch(file, pattern))
    place = next(places, len(_PLACES))
    return place, _PLACES[place][0] if place < len(_PLACES) else file


class TogetherScheduling(LoadFileScheduling):
    """Files go to processes as with --dist loadfile, but those that share something go to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        return place_of(nodeid.partition("::")[0])[1]
