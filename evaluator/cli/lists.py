"""The commands that list the suites, datasets, methods and engines."""

from collections.abc import Iterable

import click

from evaluator.cli.terminal import echo


@click.command()
def suites() -> None:
    """List the suites and their parts."""
    from evaluator.suites import SUITE_GROUPS, SUITES

    _show((name, f"{suite.summary} Parts: {', '.join(suite.parts)}.") for name, suite in SUITES.items())
    _show((name, f"stands for {', '.join(members)}") for name, members in SUITE_GROUPS.items())


@click.command()
def datasets() -> None:
    """List the named datasets."""
    from evaluator.datasets import DATASETS

    _show((name, dataset.description) for name, dataset in DATASETS.items())


@click.command()
def methods() -> None:
    """List the inference methods."""
    from evaluator.suites import SUITES, methods_of

    _show((name, method.summary) for name, method in methods_of(SUITES).items())


@click.command()
def engines() -> None:
    """List the engines."""
    from evaluator.engine import ENGINES

    _show((name, engine.summary) for name, engine in ENGINES.items())


def _show(rows: Iterable[tuple[str, str]]) -> None:
    lines = list(rows)
    width = max(len(name) for name, _ in lines)
    for name, summary in lines:
        echo(f"{name:{width}}  {summary}".rstrip())
