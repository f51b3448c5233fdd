"""Settings of other people's libraries that hold for a whole process: only where all of the process is the evaluator's.

The command makes them when it starts, and so does a replica in a process of its own. Neither `import evaluator` nor a
function called from Python changes any of them.
"""

import ctypes
import gc
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import gettempdir

from evaluator.errors import ConfigError

ALLOCATOR = "_RJEM_MALLOC_CONF"
"""Variable with the settings of jemalloc, which Polars allocates with."""

TABLE_MEMORY = "POLARS_OOC_MEMORY_BUDGET_MB"
"""Variable with the memory that Polars' sorts and joins may take before they move rows to disk."""

_TABLE_MB, _TABLE_SHARE = (200, 1000), 25
"""Least and most megabytes for TABLE_MEMORY, which else is the machine's memory over the share: a sort or join of a few
hundred thousand rows takes two to five times as long where it moves them to disk."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt, in malloc.h of glibc
_KEPT_BYTES = 2**31 - 1  # the most that mallopt takes
_MAPPED_BYTES = 2**25  # the most that it takes; a larger block is memory of its own, returned as soon as it is freed

# New objects until the young generation is collected; such collections until the next generation is, and until all are.
_COLLECTIONS = (10_000, 10, 100)


def tune_process() -> None:
    """Set the memory of Polars and of the C library, and Python's garbage collector, for a command's whole process.

    Call it before Polars is imported. Variables that the user has set stay.
    """
    # What tables no longer need goes back to the system. By default it stays with the process and counts as its memory.
    os.environ.setdefault(ALLOCATOR, "muzzy_decay_ms:0")
    memory_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 10**6
    os.environ.setdefault(TABLE_MEMORY, str(sorted((*_TABLE_MB, memory_mb // _TABLE_SHARE))[1]))
    keep_freed_memory()
    _collect_seldom()


def end_process() -> None:
    """Let the process end without a search for garbage: its memory goes back to the system with it."""
    gc.freeze()


def keep_freed_memory() -> None:
    """Have the C library, from which PyTorch takes tensors on a CPU, keep what is freed for the next ones.

    Each layer of a forward pass allocates and frees the same large tensors. By default glibc returns much of that to
    the system, which clears every page before it gives it out again: in some processes a third of the time, in others
    nothing, depending on what was freed earlier. Does nothing if the C library is not glibc.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def _collect_seldom() -> None:
    """Have the garbage collector look seldom at the million objects of vLLM's, transformers' and torch's modules.

    They live until the process ends, and a full collection takes half a second. Python makes several while modules are
    imported. vLLM asks for three when it starts and three when it stops: here these collect young objects only. The
    engine makes a full one before it starts vLLM and after it has stopped.
    """
    gc.set_threshold(*_COLLECTIONS)
    collect = gc.collect

    def collect_young_for_vllm(generation: int = 2) -> int:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return collect(min(generation, 1) if caller.startswith("vllm.") else generation)

    gc.collect = collect_young_for_vllm


LIMITED_S, LIMITED_BYTES = 10, 2**32
"""Processor time and memory of a program that run_limited runs, by default."""

_LIMITED = """
import resource, sys
for kind, most in ((resource.RLIMIT_CPU, {seconds}), (resource.RLIMIT_AS, {n_bytes}), (resource.RLIMIT_CORE, 0)):
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
sys.excepthook = lambda kind, error, place: print(str(error).split(chr(10))[0] or kind.__name__, file=sys.stderr)
"""


def run_limited(program: str, given: bytes, *, seconds: int = LIMITED_S) -> bytes:
    """Run a Python program in a process with limits, and return what it writes.

    On some files a library runs without end, or aborts the whole process where memory ends.

    Args:
        program: imports what it needs, reads standard input and writes to standard output.
        given: what it reads.
        seconds: processor time that it may take.

    Raises ValueError, in words, for a program that reaches a limit or raises an error.
    """
    code = _LIMITED.format(seconds=seconds, n_bytes=LIMITED_BYTES) + program
    # -P: no module comes from the current folder.
    ended = subprocess.run([sys.executable, "-P", "-c", code], input=given, capture_output=True, check=False)
    message = ended.stderr.decode(errors="replace").strip().split("\n")[-1]
    if ended.returncode == -signal.SIGXCPU:
        raise ValueError(f"it takes more than {seconds} seconds")
    if ended.returncode in (-signal.SIGABRT, -signal.SIGKILL) or message == "MemoryError":
        raise ValueError(f"it takes more than {LIMITED_BYTES / 2**30:g} GiB of memory")
    if ended.returncode:
        raise ValueError(message if ended.returncode > 0 else f"its reader ends with signal {-ended.returncode}")
    return ended.stdout


def ensure_home() -> None:
    """Give a user without a home, as in many containers, one in the folder for temporary files: libraries need it.

    Nobody else can write to it. Raises ConfigError where somebody else has made it.
    """
    try:
        Path.home()
    except RuntimeError:  # neither HOME nor an entry in the list of users
        home = Path(gettempdir()) / f"evaluator-{os.getuid()}"
        home.mkdir(mode=0o700, exist_ok=True)
        if home.is_symlink() or home.stat().st_uid != os.getuid():
            raise ConfigError(f"This user has no home, and {home} is another user's. Set HOME to a folder.") from None
        os.environ["HOME"] = str(home)
        os.environ.setdefault("USER", str(os.getuid()))
        logging.getLogger(__name__).warning("This user has no home: what is kept between runs is in %s.", home)
