"""Numeric kernels. Every folder has a reference, a fast implementation, and the function that checks and calls it."""

_chosen: dict[str, str] = {}


def implementations() -> dict[str, str]:
    """Return kernel -> implementation in use in this process, so that a fallback to a slower one is visible.

    For example {"shared_prefix": "numba"}. A kernel chooses its implementation on the first call. Kernels that were not
    called, or have one implementation, are absent, so this function neither imports torch nor compiles anything.
    """
    return dict(sorted(_chosen.items()))


def record_choice(kernel: str, implementation: str) -> None:
    """Record the implementation that a kernel has chosen."""
    _chosen[kernel] = implementation
