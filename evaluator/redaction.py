"""Remove secrets, control codes and formulas from texts that are stored or shown: records, logs, messages, CSV.

This package reads no hub token: the hub's library reads it from the environment. But users may type a token into a
command or an address, and libraries repeat addresses in their messages.
"""

import os
import re
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # not imported at run time, so that commands without tables, such as --help, do not wait for Polars
    import polars as pl

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASS$|CREDENTIAL|AUTHORIZATION|_AUTH$|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|_KEY$", re.IGNORECASE
)
"""Pattern of the names of environment variables whose values count as secrets."""

MIN_LENGTH = 8
"""Minimum length in characters of a secret from the environment; hiding shorter values would hide ordinary words."""

# In every pattern the first group is text before the secret, which is kept.
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(://)[^/\s]+(?=@)",  # user and password of an address
        r"([?&;#][\w.-]*(?:token|key|secret|passw|\bsig\b|signature|credential|auth)[\w.-]*=)[^&;\s'\"]+",
        r"((?:authorization|api[-_]?key)['\"]?\s*[:=]\s*['\"]?(?:(?:bearer|basic|token|\w*key)\s+)?)[^\s'\",]+",
        r"(\bbearer\s+)[\w.~+/=-]{8,}",
        r"(\b)(?:hf_|sk-|gh[a-z]_|github_pat_|glpat-|AKIA|AIza|gsk_|nvapi-|xox[a-z]-)[\w-]{12,}",  # well-known tokens
    )
)


def without_secrets(text: str) -> str:
    """Return the text with passwords and tokens replaced by HIDDEN.

    Secrets are the values of environment variables with names such as HF_TOKEN, user and password of an address,
    parameters of an address such as `token=`, values of authorization headers, and tokens of well-known forms.
    """
    values = [value for name, value in os.environ.items() if _SECRET_NAME.search(name) and len(value) >= MIN_LENGTH]
    for value in sorted(values, key=len, reverse=True):  # longest first, as one value may be part of another
        if value in text and not os.path.exists(value):  # the path of a key file is no secret
            text = text.replace(value, HIDDEN)
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text


# C0 and C1 controls except line feed and tab; delete; line and paragraph separators; marks that change the writing
# direction; lone surrogates, which represent bytes that are not UTF-8; characters that XML does not allow.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    r"""Return the text with control codes escaped, as in \x1b, so that no text of a file controls the terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def all_printable(value: Any) -> Any:
    """Return a JSON value with the control codes of its texts escaped; keys are not changed."""
    if isinstance(value, Mapping):
        return {name: all_printable(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [all_printable(entry) for entry in value]
    return printable(value) if isinstance(value, str) else value


def folded(text: str) -> str:
    """Return a text in a form for comparison: case-folded, NFKC-normalised, without format characters.

    White space at the ends is removed, and white space within the text becomes single spaces.
    """
    printed = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    return " ".join(printed.casefold().split())


def name_fault(name: str) -> str | None:
    r"""Return the fault of a dataset's or label's name, if it holds a line break, tab or control code; else None."""
    is_line = control_code(name) is None and "\n" not in name and "\t" not in name
    return None if is_line else f"{name!r} holds a line break, a tab or another control code"


def control_code(text: str) -> str | None:
    r"""Return the first control code of a text, escaped as in \x1b, or None."""
    found = _CONTROL.search(text)
    return None if found is None else printable(found[0])


# First characters that make spreadsheets read a text as a formula; the last four are full-width forms of the first.
_FORMULA = re.compile(r"^([=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")


def csv_text(table: "pl.DataFrame") -> str:
    """Return a table as CSV. Texts and column names that a spreadsheet would read as a formula get a ' in front."""
    import polars as pl

    texts = [name for name, kind in table.schema.items() if kind in (pl.String, pl.Categorical, pl.Enum)]
    guarded = pl.col(texts).cast(pl.String).str.replace(_FORMULA.pattern, "'${1}")
    return table.with_columns(guarded).rename(lambda name: _FORMULA.sub(r"'\1", name)).write_csv()
