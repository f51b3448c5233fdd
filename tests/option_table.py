"""The table of all options in docs/running.md, made of what the commands take: `make golden` writes it again."""

from pathlib import Path

import click

from evaluator.cli.main import cli

PAGE = Path(__file__).parents[1] / "docs" / "running.md"
BAR = "\\|"
HEAD = "| option | commands | what it decides |\n|---|---|---|\n"


def option_table() -> str:
    """Return a row for every option with the commands that take it; for each help, where commands differ."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, command in cli.commands.items():
        context = click.Context(command)
        for param in command.get_params(context):
            if isinstance(param, click.Option) and "--help" not in param.opts:
                flags, text = param.get_help_record(context) or ("", "")
                rows.setdefault((flags, " ".join(text.split())), []).append(name)
    cells = [(f"`{flags}`", ", ".join(names), text) for (flags, text), names in rows.items()]
    return HEAD + "".join(f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |\n" for row in cells)


def with_table(page: str) -> str:
    """Return the page with the table as it is now in place of the one that it has, its last part."""
    return page[: page.index(HEAD)] + option_table()


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
