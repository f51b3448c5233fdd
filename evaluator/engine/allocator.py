"""The C library's memory, from which PyTorch takes tensors on a CPU."""

import ctypes

_C_LIBRARY = ctypes.CDLL(None)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt, in malloc.h of glibc
_KEPT_BYTES = 2**31 - 1  # the most that mallopt takes
_MAPPED_BYTES = 2**25  # the most that it takes; a larger block is memory of its own, returned as soon as it is freed


def keep_freed_memory() -> None:
    """Keep what is freed for the next tensors. Does nothing if the C library is not glibc.

    Each layer of a forward pass allocates and frees the same large tensors. By default glibc returns much of that to
    the system, which clears every page before it gives it out again: in some processes a third of the time, in others
    nothing, depending on what was freed earlier.
    """
    if mallopt := getattr(_C_LIBRARY, "mallopt", None):
        mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def return_freed_memory() -> None:
    """Return to the system what is free. Does nothing if the C library is not glibc."""
    if malloc_trim := getattr(_C_LIBRARY, "malloc_trim", None):
        malloc_trim(0)
