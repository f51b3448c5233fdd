"""Shorten the errors of engines to one sentence, and say what to try."""

import re

_MAX_CHARACTERS = 300


def first_sentence(error: BaseException) -> str:
    """Return the sentence of an error that says what is wrong, without a full stop.

    That is the first of its message: of the first violation if pydantic lists them, and of the last line if the
    message has a traceback of another process.
    """
    listed = error.errors() if hasattr(error, "errors") else []
    text = str(listed[0]["msg"]).removeprefix("Value error, ") if listed else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    line = lines[-1] if any(each.startswith("Traceback") for each in lines) else lines[0]
    return re.split(r"[.!]\s+(?=[A-Z])", line, maxsplit=1)[0][:_MAX_CHARACTERS].rstrip(" .:!")


def way_out(error: BaseException, dtype: str) -> str:
    """Suggest an alternative after an engine refused a model in this dtype."""
    wants_bfloat16 = dtype != "bfloat16" and re.search(r"\bbf(loat)?16\b", str(error), re.IGNORECASE)
    return f"Try {'--dtype bfloat16, or ' if wants_bfloat16 else ''}--engine transformers."
