"""Sizes of files and memory in words."""


def size_text(n_bytes: int) -> str:
    """Return a number of bytes with its unit: "1.5 GiB"."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} bytes"
