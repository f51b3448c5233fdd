"""What `evaluator` and `python -m evaluator` run."""

import signal


def main() -> None:
    """Run the command that was typed. Ctrl-C while its modules are imported ends the process without a traceback."""
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
