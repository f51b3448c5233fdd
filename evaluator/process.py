"""Process-wide settings of third-party libraries, and programs that run in a limited process.

The command applies the settings when it starts, and so does a replica in its own process. Neither `import evaluator`
nor a function called from Python applies them, because other code may share that process.
"""

import ctypes
import gc
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from tempfile import gettempdir

from evaluator.errors import ConfigError

ALLOCATOR = "_RJEM_MALLOC_CONF"
"""Environment variable with the settings of jemalloc, the allocator of Polars."""

TABLE_MEMORY = "POLARS_OOC_MEMORY_BUDGET_MB"
"""Environment variable with the memory, in MB, that Polars' sorts and joins may use before they move rows to disk."""

_TABLE_MB, _TABLE_SHARE = (200, 1000), 25
"""Limits of TABLE_MEMORY in MB, and the divisor of the machine's memory that gives its value between these limits. A
sort or join of a few hundred thousand rows takes two to five times as long if it moves rows to disk."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of the parameters of mallopt, from malloc.h of glibc
_KEPT_BYTES = 2**31 - 1  # free memory that the process may keep: the largest value that mallopt accepts
_MAPPED_BYTES = 2**25  # the largest value that mallopt accepts; larger blocks are mapped, and returned once freed

# Thresholds of gc.set_threshold: new objects before a collection of the young generation, young collections before one
# of the middle generation, and middle collections before a full one.
_COLLECTIONS = (10_000, 10, 100)


def tune_process() -> None:
    """Configure the memory of Polars and of the C library, garbage collection and MLflow's retries, for the process.

    Call it before Polars is imported. Environment variables that the user has set are not changed.
    """
    # Return freed memory of tables to the system at once: by default it stays with the process and counts as its own.
    os.environ.setdefault(ALLOCATOR, "muzzy_decay_ms:0")
    memory_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 10**6
    os.environ.setdefault(TABLE_MEMORY, str(sorted((*_TABLE_MB, memory_mb // _TABLE_SHARE))[1]))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")  # by default, it waits minutes for a lost server
    keep_freed_memory()
    _collect_seldom()


def end_process() -> None:
    """Skip garbage collection at the end of the process; the system frees its memory anyway."""
    gc.freeze()


def keep_freed_memory() -> None:
    """Make the C library, which allocates PyTorch's CPU tensors, keep freed memory for later tensors.

    Each layer of a forward pass allocates and frees tensors of the same sizes. By default glibc returns much of that
    memory to the system, which clears every page before it is used again. This took a third of the time in some
    processes and none in others, depending on what was freed earlier. Does nothing if the C library is not glibc.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def _collect_seldom() -> None:
    """Make full garbage collections rare: they visit about a million objects of vLLM, transformers and torch.

    These objects live until the process ends, and a full collection takes half a second. Python runs several while
    modules are imported. vLLM requests three when it starts and three when it stops: these become collections of young
    objects only. vLLM also freezes all objects, the model among them, and unfreezes all when it stops: it does neither
    here, so that what leave_out_imports froze stays frozen. The engine runs a full collection before it starts vLLM and
    after it has stopped it.
    """
    gc.set_threshold(*_COLLECTIONS)
    collect = gc.collect

    def collect_young_for_vllm(generation: int = 2) -> int:
        return collect(min(generation, 1) if _is_called_by_vllm() else generation)

    gc.collect = collect_young_for_vllm
    gc.freeze, gc.unfreeze = _not_for_vllm(gc.freeze), _not_for_vllm(gc.unfreeze)


def leave_out_imports() -> None:
    """Leave the objects that now exist, those of imported modules, out of later garbage collections.

    Does nothing if tune_process did not configure this process, or after the first call.
    """
    if hasattr(gc.freeze, "__wrapped__") and not gc.get_freeze_count():
        gc.freeze()


def _not_for_vllm(function: Callable[[], None]) -> Callable[[], None]:
    """Return a function that does nothing if vLLM calls it."""

    @wraps(function)
    def called() -> None:
        if not _is_called_by_vllm():
            function()

    return called


def _is_called_by_vllm() -> bool:
    """Return whether vLLM called the function that asks."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).startswith("vllm.")


LIMITED_S, LIMITED_BYTES = 10, 2**32
"""Limits of run_limited: processor time by default, in seconds, and memory in bytes."""

_LIMITED = """
import resource, sys
for kind, most in ((resource.RLIMIT_CPU, {seconds}), (resource.RLIMIT_AS, {n_bytes}), (resource.RLIMIT_CORE, 0)):
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
sys.excepthook = lambda kind, error, place: print(str(error).split(chr(10))[0] or kind.__name__, file=sys.stderr)
"""


def run_limited(program: str, given: bytes, *, seconds: int = LIMITED_S) -> bytes:
    """Run a Python program in a process with limited time and memory, and return its standard output.

    For libraries that, on some files, never return, or abort the process when memory runs out.

    Args:
        program: source code; reads standard input and writes to standard output.
        given: the standard input.
        seconds: limit of processor time.

    Raises ValueError, with the reason for a user, if the program reaches a limit or raises an error.
    """
    code = _LIMITED.format(seconds=seconds, n_bytes=LIMITED_BYTES) + program
    # -P: import no module from the current folder.
    ended = subprocess.run([sys.executable, "-P", "-c", code], input=given, capture_output=True, check=False)
    message = ended.stderr.decode(errors="replace").strip().split("\n")[-1]
    if ended.returncode == -signal.SIGXCPU:
        raise ValueError(f"it takes more than {seconds} seconds")
    if ended.returncode in (-signal.SIGABRT, -signal.SIGKILL) or message == "MemoryError":
        raise ValueError(f"it takes more than {LIMITED_BYTES / 2**30:g} GiB of memory")
    if ended.returncode:
        raise ValueError(message if ended.returncode > 0 else f"its reader ends with signal {-ended.returncode}")
    return ended.stdout


@cache
def _first_process() -> int:
    """Return the id of the process of the first call; a forked process inherits the id of its parent."""
    return os.getpid()


def require_unforked() -> None:
    """Raise ConfigError in a process that was forked after a call in its parent: Polars would hang there."""
    if _first_process() != os.getpid():
        raise ConfigError("This process was forked after a call of evaluator, and Polars would hang in it. Use spawn.")


def in_this_process(function: Callable[..., object]) -> Callable[..., object]:
    """Return a function that does nothing in a forked process, whose parent still needs what it would remove."""
    pid = os.getpid()
    return lambda *args, **given: function(*args, **given) if os.getpid() == pid else None


def ensure_home() -> None:
    """Make a home folder for a user without one, as in many containers, because libraries need one.

    The folder is in the folder for temporary files, and only this user can write to it. Raises ConfigError if the
    folder belongs to another user.
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
