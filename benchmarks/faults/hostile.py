"""Give the evaluator models, tables and texts that are damaged or malicious."""

import csv
import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.faults import damage
from benchmarks.faults.cases import FAKE, Undisturbed, finished_fault, message_fault
from benchmarks.faults.forked import Outcome, run
from benchmarks.faults.trials import Trial

MODEL = Path(__file__).parents[2] / "evaluator" / "models" / "embedded" / "model"
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")

TASK = {
    "name": "task",
    "examples": [{"input": f"{n}?", "target_scores": {"yes": n % 2, "no": 1 - n % 2, "maybe": 0}} for n in range(12)],
}
CHOICE_ROWS = [{"id": n, "input": f"{n}?", "choices": ["yes", "no"], "gold": n % 2} for n in range(12)]
TEXTS = (
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "{{ 7 * 7 }}{% for x in y %}", "$(touch x)",
    "\0", "\u202e", "\u2028", "\ufeff", "\\ud800", "a" * 100_000, "", " ", "\n\n", "e\u0301" * 300, "]]>", "\x1b[2J",
    "=cmd|' /C calc'!A0", "%s%n{0}{x!r}", "\U0001f468\u200d\U0001f469", "NaN", "null", "../../etc/passwd",
)  # fmt: skip
ACTIVE = ("<script>alert", "<img src=x")
"""Beginnings of HTML that a page must never contain unescaped."""


def model_trials(case: Undisturbed, n_trials: int) -> Iterator[Trial]:
    """Yield trials in which a damaged copy of the embedded model scores the prompts of a built run."""
    for number in range(n_trials):
        name = MODEL_FILES[number % len(MODEL_FILES)]
        edits = [*damage.BYTES, *(damage.JSON if name.endswith(".json") else (_edit_header, _edit_header))]
        edit = edits[number // len(MODEL_FILES) % len(edits)]
        yield Trial("hostile model", f"{name}: {edit.__name__} {number}", partial(_model, case, name, edit))


def data_trials(n_trials: int) -> Iterator[Trial]:
    """Yield trials with damaged tables and tasks, and with tables of unusual texts."""
    contents = {
        "task.json": json.dumps(TASK).encode(),
        "table.jsonl": "".join(json.dumps(row) + "\n" for row in CHOICE_ROWS).encode(),
        "table.csv": ("text,label\n" + "".join(f"text {n},{'ab'[n % 2]}\n" for n in range(24))).encode(),
    }
    for number in range(n_trials):
        name = list(contents)[number % len(contents)]
        edits = [*damage.BYTES, *(damage.JSON if name.endswith("json") else (damage.insert_token,))]
        edit = edits[number // len(contents) % len(edits)]
        yield Trial("hostile data", f"{name}: {edit.__name__} {number}", partial(_data, name, contents[name], edit))
    for text in TEXTS:
        yield Trial("hostile text", repr(text[:40]), partial(_text, text))


def _edit_header(content: bytes, rng: Random) -> bytes:
    """Damage the JSON header of a safetensors file, and possibly the stated length of the header."""
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length]
    edited = rng.choice((*damage.JSON, damage.flip_bit, damage.truncate))(header, rng)
    stated = rng.choice((len(edited), len(edited), 0, length, 2**40, 2**63))
    return stated.to_bytes(8, "little") + edited + content[8 + length :]


def _model(case: Undisturbed, name: str, edit: damage.Damage, out: Path, rng: Random) -> str | None:
    model = out / "model"
    model.mkdir()
    for file in MODEL_FILES:
        (model / file).symlink_to(MODEL / file)
    (model / name).unlink()
    (model / name).write_bytes(edit((MODEL / name).read_bytes(), rng))
    shutil.copytree(case.before["score"], out / "out")
    return _fault(run(["score", out / "out", "--model", model, "--engine", "transformers"]))


def _data(name: str, content: bytes, edit: damage.Damage, out: Path, rng: Random) -> str | None:
    path = out / name
    path.write_bytes(edit(content, rng))
    return _fault(run([*_words(path), "--out", out / "out"]))


def _words(data: Path) -> list[str]:
    if data.suffix == ".csv":
        return ["run", "pvi", "--data", str(data), "--sets", "1", "--queries", "2", *FAKE]
    return ["run", "prompt-search", "--data", str(data), "--tries", "2", "--shots", "1", "--queries", "3", *FAKE]


def _text(text: str, out: Path, _rng: Random) -> str | None:
    """Run a table whose texts, labels and file name contain the given text; return the fault or None."""
    name = "".join(letter for letter in text[:20] if letter.isprintable() and letter != "/") or "table"
    path = out / f"{name.strip(' .') or 'table'}.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows([f"{text} {n}" if n else text, text or "empty" if n % 2 else "other"] for n in range(24))
    outcome = run([*_words(path), "--out", out / "out"])
    page = out / "out" / "report.html"
    if outcome.status == 0 and any(active in page.read_text("utf-8") for active in ACTIVE):
        return "the page holds the text as it is"
    return _fault(outcome)


def _fault(outcome: Outcome) -> str | None:
    return finished_fault(outcome) if outcome.status == 0 else message_fault(outcome)
