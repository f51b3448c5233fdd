"""Time the way from stored answers to the page: three questions about 10,000 rows, and 1,000,000 imported answers.

    python -m benchmarks.end_to_end.decisions [rows of the run] [answers in the log]

Answers are random. Every command runs in a separate process, and the time includes its start.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Target, append_rows, print_targets

QUEUES, LEVELS = ("billing", "technical", "spam"), ("calm", "cross", "furious")
ASKED: dict[str, dict[str, Any]] = {
    "queue": {"type": "choice", "instructions": "Which team should read this?", "options": QUEUES},
    "refund": {"type": "yes-no", "instructions": "Does the customer ask for money back?"},
    "anger": {"type": "score", "instructions": "How angry is the customer?", "levels": LEVELS},
}
WORDS = ("refund", "invoice", "late", "parcel", "thanks", "broken", "login", "password", "price", "cancel", "please")


def main(n_rows: int = 10_000, n_answers: int = 1_000_000) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_s, run_gib = stored_answers(folder, n_rows)
        import_s, import_gib = logged_answers(folder, n_answers // len(ASKED))
    rows = [
        {"contestant": "evaluator run decide", "seconds": round(run_s, 2), "peak_gib": round(run_gib, 2)},
        {"contestant": "evaluator import", "seconds": round(import_s, 2), "peak_gib": round(import_gib, 2)},
    ]
    for case, row in zip((f"{n_rows:,} rows x 3, stored answers", f"{n_answers:,} logged answers"), rows, strict=True):
        append_rows("decisions", case, ["polars", "numpy"], [row])
    print_targets(
        Target(what="10,000 rows x 3 questions, stored answers to page, s", value=run_s, at_most=20),
        Target(what="1,000,000 logged answers imported and measured, s", value=import_s, at_most=90),
        Target(what="its memory, GiB", value=import_gib, at_most=4),
    )


def stored_answers(folder: Path, n: int) -> tuple[float, float]:
    """Run the fake engine, remove tables and page, and time the command that writes them again from stored answers.

    Returns seconds and peak GiB, as `timed` does.
    """
    rng = np.random.default_rng(0)
    columns = {"queue": QUEUES, "refund": ("yes", "no"), "anger": LEVELS}
    texts = [" ".join(words) + f" {number}" for number, words in enumerate(rng.choice(WORDS, (n, 12)))]
    table = pl.DataFrame({"text": texts} | {name: rng.choice(options, n) for name, options in columns.items()})
    table.write_csv(folder / "tickets.csv")
    lines = [[f"[{name}]", f'gold = "{name}"', *(f"{key} = {json.dumps(v)}" for key, v in asked.items())]
             for name, asked in ASKED.items()]  # fmt: skip
    (folder / "questions.toml").write_text("\n".join(line for each in lines for line in each))
    words = ["run", "decide", "--data", "tickets.csv", "--input-column", "text", "--questions", "questions.toml"]
    words += ["--engine", "fake", "--model", "fake", "--out", "run"]
    timed(folder, *words)
    shutil.rmtree(folder / "run" / "tables")
    (folder / "run" / "report.html").unlink()
    return timed(folder, *words)


def logged_answers(folder: Path, n: int) -> tuple[float, float]:
    """Write a log in the format of System One, with three answers per line, and time its import."""
    rng = np.random.default_rng(0)
    queue, anger, yes = rng.dirichlet([0.6] * 3, n).round(2), rng.dirichlet([1.0] * 3, n).round(2), rng.random(n)
    # After rounding to two decimals, change the last share so that the three shares sum to 1 again.
    queue[:, 2], anger[:, 2] = (np.clip(1 - each[:, :2].sum(axis=1), 0, 1).round(2) for each in (queue, anger))
    gold = zip(rng.choice(QUEUES, n), rng.random(n) < yes, rng.choice(LEVELS, n), strict=True)
    questions = {
        "queue": ASKED["queue"] | {"criteria": dict.fromkeys(QUEUES)},
        "refund": ASKED["refund"] | {"type": "noul"},
        "anger": ASKED["anger"] | {"criteria": LEVELS},
    }
    with (folder / "log.jsonl").open("w") as file:
        for number, true in enumerate(gold):
            answers = {
                "queue": {"type": "choice", "probabilities": dict(zip(QUEUES, queue[number], strict=True))},
                "refund": {"type": "noul", "noul": round(yes[number], 2)},
                "anger": {"type": "score", "legend": {str(level): label for level, label in enumerate(LEVELS)},
                          "probabilities": {str(level): share for level, share in enumerate(anger[number])}},
            }  # fmt: skip
            labels = dict(zip(ASKED, (str(true[0]), bool(true[1]), str(true[2])), strict=True))
            line = {"request": {"state": f"Ticket {number}", "questions": questions}, "labels": labels}
            file.write(json.dumps(line | {"response": {"model": "drawn", "answers": answers}}) + "\n")
    return timed(folder, "import", "log.jsonl", "--out", "imported")


def timed(folder: Path, *words: str) -> tuple[float, float]:
    """Run a command; return its seconds and its peak resident memory in GiB."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "evaluator", *words], cwd=folder)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"evaluator {' '.join(words)} failed.")
    return time.perf_counter() - start, usage.ru_maxrss / 2**20


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
