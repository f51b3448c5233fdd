"""The command line: the group of commands, and what becomes of an error.

Exit codes: 0 done; 2 something the user can mend, said in one message; 130 stopped by Ctrl-C, and the same command
resumes. Heavy imports are inside the commands, so that `--help` answers at once.
"""

import sys

import click

from evaluator import __version__
from evaluator.cli.build import build
from evaluator.cli.compare import compare
from evaluator.cli.lists import datasets, engines, methods, suites
from evaluator.cli.random_baseline import random_baseline
from evaluator.cli.reproduce import reproduce
from evaluator.cli.run import run
from evaluator.cli.stages import measure, report, score
from evaluator.errors import EvaluatorError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__)
def cli() -> None:
    """Evaluate how well a language model classifies in context."""


for command in (
    run, build, score, measure, report, compare, random_baseline, reproduce, suites, datasets, methods, engines,
):  # fmt: skip
    cli.add_command(command)


def main() -> None:
    """The entry point; see the module's docstring for the exit codes."""
    try:
        status = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        status = _interrupted()
    except KeyboardInterrupt:
        status = _interrupted()
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except EvaluatorError as error:
        click.echo(f"Error: {error}", err=True)
        status = 2
    sys.exit(status)


def _interrupted() -> int:
    from evaluator.run.record import command_line

    click.echo(f"\nStopped. What was scored is kept; this goes on from there:\n  {command_line()}", err=True)
    return 130
