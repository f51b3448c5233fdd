"""LaTeX tables with the rules of the package booktabs."""

from collections.abc import Iterator, Sequence

from evaluator.exports.base import ExportedFile, ExportedRun, Format
from evaluator.exports.tables import TextTable, text_tables

SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
        **{character: f"{{{character}}}" for character in "[]"},  # after \\ they would be an argument
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
        "∞": r"$\infty$",
    }
)


def _files(run: ExportedRun) -> Iterator[ExportedFile]:
    head = "% \\usepackage{booktabs} goes into the preamble. 95\\% intervals are in brackets.\n"
    text = "\n".join(_table(table, run) for table in text_tables(run))
    yield ExportedFile("results.tex", (head + text).encode())


def _table(table: TextTable, run: ExportedRun) -> str:
    lines = [
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{_escaped(run.model)}: {_escaped(table.title)}. 95\\% intervals in brackets.}}",
        f"  \\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        r"    \toprule",
        _row(table.columns),
        r"    \midrule",
        *map(_row, table.rows),
        *([r"    \midrule", _row(table.mean)] if table.mean else []),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"    {' & '.join(map(_escaped, cells))} \\\\"


def _escaped(text: str) -> str:
    return text.translate(SPECIAL)


LATEX = Format(summary="Tables with the rules of booktabs.", files=_files)
