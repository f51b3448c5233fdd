"""A program with limits ends, whatever it does, and says why."""

import pytest

from evaluator.process import run_limited


def test_a_program_returns_what_it_writes():
    assert run_limited("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", b"\x00abc") == b"cba\x00"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("while True: pass", "it takes more than 1 seconds"),
        ("'%99999999999d' % 1", "it takes more than 4 GiB of memory"),
        ("import os; os.abort()", "it takes more than 4 GiB of memory"),
        ("import ctypes; ctypes.string_at(0)", "its reader ends with signal 11"),
        ("raise OSError('no such thing\\nin detail')", "no such thing"),
        ("import evaluator_of_nobody", "No module named 'evaluator_of_nobody'"),
    ],
)
def test_a_program_that_reaches_a_limit_or_fails_is_one_sentence(program: str, message: str):
    with pytest.raises(ValueError, match=f"^{message}$"):
        run_limited(program, b"", seconds=1)


def test_no_module_comes_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('run')")
    monkeypatch.chdir(tmp_path)
    assert run_limited("import json; print(json.dumps([1]))", b"") == b"[1]\n"
