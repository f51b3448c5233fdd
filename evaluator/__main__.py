"""Entry point of the command `evaluator` and of `python -m evaluator`."""

import os
import signal
import subprocess
import sys


def main() -> None:
    """Run the command line. Ctrl-C while modules are imported ends the process without a traceback."""
    if sys.flags.optimize > 1:  # -OO removes docstrings, which libraries read: start the same command with -O
        os.environ["PYTHONOPTIMIZE"] = "1"
        flags = [flag for flag in subprocess._args_from_interpreter_flags() if flag != "-OO"]  # type: ignore[attr-defined]
        os.execv(sys.executable, [sys.executable, *flags, "-O", "-m", "evaluator", *sys.argv[1:]])  # noqa: S606
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from evaluator.process import end_process, tune_process

    tune_process()
    from evaluator.cli.main import main as command

    try:
        command()
    finally:
        end_process()


if __name__ == "__main__":
    main()
