"""Numeric kernels: each folder has a reference, a fast implementation, and the function that checks and calls it."""

_chosen: dict[str, str] = {}


def implementations() -> dict[str, str]:
    """Return which implementation each kernel uses in this process, so that a fallback to a slower one is visible.

    For example {"shared_prefix": "numba"}. A kernel chooses on its first call; a kernel that was not called, or has no
    choice, is absent, so that this function neither imports torch nor compiles anything.
    """
    return dict(sorted(_chosen.items()))


def record_choice(kernel: str, implementation: str) -> None:
    """Record the implementation that a kernel has chosen."""
    _chosen[kernel] = implementation
