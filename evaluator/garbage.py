"""Python's garbage collector, and the million objects of vLLM's, transformers' and torch's modules.

They live until the process ends, and each collection looks at all of them, which takes half a second. vLLM collects on
its own four times when it stops, Python several times while modules are imported and while the process ends.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_collected() -> Iterator[None]:
    """Leave garbage alone for as long as the context lasts: while modules are imported, which make none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def set_aside() -> None:
    """Have collections skip every object that exists, garbage as well, until `take_back`."""
    gc.freeze()


def take_back() -> None:
    """Have collections look at the objects that were set aside."""
    gc.unfreeze()


@contextmanager
def collected_once() -> Iterator[None]:
    """Collect garbage when the context ends, and not before, however often code in it asks for that."""
    collect = gc.collect
    gc.collect = lambda _generation=2: 0  # type: ignore[assignment]
    try:
        yield
    finally:
        gc.collect = collect
        gc.collect()
