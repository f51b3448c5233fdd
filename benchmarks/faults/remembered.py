"""Remember answers of slow pure functions in all forked trials: digests of source code, drawings, compiled templates.

An answer depends on nothing but the arguments, which are its key, so that a trial with other numbers draws another
picture. No file of a run has a part in it, and no fault can hide behind it; a trial takes a third of the time.
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
"""The file that a command writes new answers to, while one runs that may."""


def install() -> None:
    """Put the remembering functions in the place of those of the evaluator, in this process and its later children."""
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
    """Run a command as forked.run does, and remember the answers that it needed."""
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
    """Replace a function by one that remembers; `arguments` returns what its answer depends on, as JSON."""
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
