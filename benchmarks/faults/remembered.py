"""Cache results of slow pure functions across forked trials: digests of source code, drawings, compiled templates.

A result depends only on the arguments, which are its key, so a trial with other numbers draws another picture. Files of
a run are not involved, so the cache cannot hide a fault. A trial takes a third of the time.
"""

import hashlib
import io
import json
import marshal
import tempfile
from collections.abc import Callable, Sequence
from typing import IO, Any

from benchmarks.faults.forked import Outcome, run

_answers: dict[bytes, bytes] = {}
_journals: list[IO[bytes]] = []
"""File to which a running command writes new results; empty if no command with a journal runs."""


def install() -> None:
    """Replace the slow functions by caching functions, in this process and its later children."""
    import jinja2
    import vl_convert

    from evaluator.files import digests
    from evaluator.report import figures

    _remember(digests, "code_digest", lambda source: source)
    for name in [name for name, value in vars(figures).items() if hasattr(value, "cache_info")]:
        _remember(figures, name, lambda *drawn, **named: repr((drawn, named)))  # compiled charts
    _remember(vl_convert, "vegalite_to_vega", lambda spec, vl_version: [spec, vl_version])
    _remember(vl_convert, "vega_to_svg", lambda spec: spec)
    _remember(jinja2.Environment, "compile", lambda _environment, source, *names: [source, *names])


def run_and_learn(words: Sequence[object], prepare: Callable[[], None] | None = None) -> Outcome:
    """Run a command as forked.run does, and add the results that it computed to the cache."""
    with tempfile.TemporaryFile() as journal:
        _journals.append(journal)
        outcome = run(words, prepare=prepare)
        _journals.pop()
        journal.seek(0)
        content = io.BytesIO(journal.read())
    while content.tell() < len(content.getbuffer()):
        key, answer = marshal.load(content)  # noqa: S302  (written by a child of this process)
        _answers[key] = answer
    return outcome


def _remember(owner: Any, name: str, arguments: Callable[..., Any]) -> None:
    """Replace a function of `owner` by a caching function.

    Args:
        owner: module or class.
        name: name of the function.
        arguments: returns, from the arguments of a call, the values on which the result depends, as JSON.
    """
    compute = getattr(owner, name)

    def answer(*given: Any, **named: Any) -> Any:
        key = _key(f"{owner.__name__}.{name}", arguments(*given, **named))
        if key not in _answers:
            _answers[key] = marshal.dumps(compute(*given, **named))
            for journal in _journals:
                journal.write(marshal.dumps((key, _answers[key])))
                journal.flush()
        return marshal.loads(_answers[key])  # noqa: S302  (of this process)

    setattr(owner, name, answer)


def _key(name: str, arguments: Any) -> bytes:
    return hashlib.blake2b(json.dumps([name, arguments]).encode(), digest_size=16).digest()
