"""What `evaluator` and `python -m evaluator` run."""

import os
import signal

ALLOCATOR = "_RJEM_MALLOC_CONF"
"""Variable with the settings of jemalloc, which Polars allocates with."""

TABLE_MEMORY = "POLARS_OOC_MEMORY_BUDGET_MB"
"""Variable with the memory that Polars' sorts and joins may take before they move rows to disk."""


def main() -> None:
    """Run the command that was typed. Ctrl-C while its modules are imported ends the process without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What tables no longer need goes back to the system. By default it stays with the process and counts as its memory.
    os.environ.setdefault(ALLOCATOR, "muzzy_decay_ms:0")
    os.environ.setdefault(TABLE_MEMORY, "200")
    from evaluator.cli.main import main as command
    from evaluator.garbage import set_aside

    try:
        command()
    finally:
        set_aside()  # memory goes back to the system with the process


if __name__ == "__main__":
    main()
