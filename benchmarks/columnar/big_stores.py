"""Measure time and memory with millions of rows: a store of prompts, the metrics of predictions, and a whole run.

    python -m benchmarks.columnar.big_stores [prompts] [predictions]

Rows are synthetic. Every task runs in a separate process, whose peak resident memory is measured. A tenth of the
prompts is tokenised, by the tokenizer of the model that ships. The fake engine, which computes nothing, scores the
prompts: `evaluator score` and `evaluator run`, which also builds, measures and writes the page in the same
process, score two fifths and all of them. For both commands, the growth of peak memory per prompt between the two
numbers is reported. With fewer prompts the growth would be that of sorts and joins, which stay in memory up to a budget
(docs/scale.md).
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.columnar import metrics
from benchmarks.harness import ROOT, Target, append_rows, print_targets
from evaluator.files.json_files import MANIFEST
from evaluator.progress import finish
from evaluator.store import open_intact_store, open_store

N_WORDS = 20  # number of words in a text
TRAINING_ROWS = 1000
FAKE = ("--model", "fake", "--engine", "fake")
COLUMNS = ("--input-column", "text", "--gold-column", "label", "--training-rows", str(TRAINING_ROWS))


def main(n_prompts: int = 2_000_000, n_predictions: int = 10_000_000) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [*stores(folder, n_prompts), *measures(folder, n_predictions), *runs(folder, n_prompts)]
    for row in rows:
        append_rows("big_stores", str(row.pop("case")), ["polars", "pyarrow"], [row])
    found = {str(row["contestant"]): row for row in rows}
    print_targets(
        Target(what="store of 2 M prompts built, s", value=_number(found["evaluator, build"]["seconds"]), at_most=300),
        Target(what="peak, GiB", value=_number(found["evaluator, build"]["peak_mib"]) / 1024, at_most=6),
        Target(what="opened, s", value=_number(found["evaluator, open"]["seconds"]), at_most=0.2),
        Target(what="10 M predictions measured, s", value=_number(found["evaluator, all"]["seconds"]), at_most=15),
        Target(what="peak, GiB", value=_number(found["evaluator, all"]["peak_mib"]) / 1024, at_most=4),
        *(
            Target(what=f"memory of {name}, bytes a prompt", value=_number(found[name]["bytes_a_prompt"]), at_most=500)
            for name in ("evaluator score", "evaluator run")
        ),
    )


def stores(folder: Path, n_prompts: int) -> list[dict[str, object]]:
    """Measure building, opening, verifying and tokenising a store of n_prompts prompts; return rows of results."""
    case = f"a store of {n_prompts:,} prompts"
    built_s, built_mib = command("build", *asked(folder / "texts.parquet", n_prompts), "--out", str(folder / "built"))
    store = _store(folder / "built")
    open_s = float(np.median([timed(lambda: open_store(store)) for _ in range(5)]))
    verify_s = float(np.median([timed(lambda: open_intact_store(store)) for _ in range(5)]))
    some = n_prompts // 10
    command("build", *asked(folder / "some.parquet", some), "--out", str(folder / "some"))
    tokens_s, tokens_mib = child("tokenise", str(_store(folder / "some")))
    return [
        _row(case, "evaluator, build", n_prompts, "prompts", built_s, built_mib),
        _row(case, "evaluator, open", n_prompts, "prompts", open_s, None),
        _row(case, "evaluator, open and verify", n_prompts, "prompts", verify_s, None),
        _row(f"a store of {some:,} prompts", "evaluator, tokenise", some, "prompts", tokens_s, tokens_mib),
    ]


def _store(out: Path) -> Path:
    (manifest,) = (out / "store").glob(f"*/{MANIFEST}")
    return manifest.parent


def measures(folder: Path, n_predictions: int) -> list[dict[str, object]]:
    """Time all metrics and diagnostics of n_predictions predictions; return rows of results."""
    path = folder / "predictions"
    path.mkdir()
    child("predict", str(path), str(n_predictions))
    n_rows = pl.scan_parquet(path / "*.parquet").select(pl.len()).collect().item()
    seconds, peak_mib = child("measure", str(path))
    return [_row(f"metrics of {n_rows:,} predictions", "evaluator, all", n_rows, "predictions", seconds, peak_mib)]


def runs(folder: Path, n_prompts: int) -> list[dict[str, object]]:
    """Measure `evaluator score` and `evaluator run` with the fake engine, for two numbers of prompts each."""
    numbers = (2 * n_prompts // 5, n_prompts)
    return [
        *_grown("evaluator score", [scored(folder, n) for n in numbers]),
        *_grown("evaluator run", [whole_run(folder, n) for n in numbers]),
    ]


def scored(folder: Path, n_prompts: int) -> tuple[int, float, float]:
    """Build n_prompts prompts and run `evaluator score`; return the number of prompts, seconds and peak MiB."""
    built = folder / f"built-{n_prompts}"
    command("build", *asked(folder / f"{n_prompts}.parquet", n_prompts), "--out", str(built))
    return (n_prompts, *command("score", str(built), *FAKE))


def whole_run(folder: Path, n_prompts: int) -> tuple[int, float, float]:
    """Run `evaluator run` for n_prompts prompts; return the number of prompts, seconds and peak MiB."""
    words, out = asked(folder / f"{n_prompts}.parquet", n_prompts), str(folder / f"run-{n_prompts}")
    return (n_prompts, *command("run", *words, *FAKE, "--out", out))


def _grown(name: str, measured: list[tuple[int, float, float]]) -> list[dict[str, object]]:
    """Return the rows for a smaller and a larger number of prompts; the second has the growth in bytes per prompt."""
    (n_before, _, mib_before), (n, _, mib) = measured
    rows = [_row(f"{each:,} prompts, fake engine", name, each, "prompts", s, peak) for each, s, peak in measured]
    rows[-1]["bytes_a_prompt"] = round((mib - mib_before) * 2**20 / (n - n_before))
    return rows


def asked(path: Path, n_prompts: int) -> list[str]:
    """Write a table, and return the arguments of a command with n_prompts prompts, two per query."""
    write_texts(path, n_prompts // 2 + 10)  # 10 more rows, because drawing demonstrations by label rounds up
    return ["classify", "--data", str(path), *COLUMNS, "--queries", str(n_prompts // 2)]


def write_texts(path: Path, n_rows: int) -> None:
    """Write a table of n_rows + TRAINING_ROWS texts of random words with two labels."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{number}" if number % 3 else f"w{number}" for number in range(3000)])
    n_rows += TRAINING_ROWS
    drawn = words[rng.zipf(1.3, size=(n_rows, N_WORDS)) % len(words)]
    labels = np.array(["negative", "positive"])[rng.integers(0, 2, n_rows)]
    columns = {f"w{place}": drawn[:, place] for place in range(N_WORDS)}
    text = pl.concat_str([*columns], separator=" ")
    pl.DataFrame(columns).select(text=text).with_columns(label=labels).write_parquet(path)


def command(*words: str) -> tuple[float, float]:
    """Run a command of this project; return its seconds and peak MiB."""
    return child("command", *words)


def child(what: str, *arguments: str) -> tuple[float, float]:
    """Run one task in a separate process; return its seconds and peak MiB."""
    words = [sys.executable, "-m", "benchmarks.columnar.big_stores", what, *arguments]
    done = subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    seconds, peak_mib = json.loads(done.stdout.splitlines()[-1])
    return float(seconds), float(peak_mib)


def serve(what: str, *arguments: str) -> None:
    """Run one task in this process, and print its seconds and peak MiB as JSON."""
    pieces: dict[str, Callable[..., None]] = {
        "tokenise": tokenise,
        "predict": predict,
        "measure": measure,
        "command": run_command,
    }
    seconds = timed(lambda: pieces[what](*arguments))
    children_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps([seconds, (children_kib if what == "command" else own_peak_kib()) / 1024]))


def own_peak_kib() -> int:
    """Return the peak resident memory of this process in KiB.

    (ru_maxrss also counts the memory that its parent had when it started this process.)
    """
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1])


def run_command(*words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "evaluator", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def tokenise(store: str) -> None:
    from evaluator.config import ModelConfig
    from evaluator.engine import find_source
    from evaluator.tokens.table import tokenise_store

    opened, source = open_store(Path(store)), find_source(ModelConfig(model="embedded"))
    assert opened is not None, "the store was built"
    finish(tokenise_store(opened, source.tokenizer, source.tokenizer_fingerprint, "merged", ["paper"]))


def predict(folder: str, n_predictions: str) -> None:
    settings = sum(settings * sets for settings, sets in metrics.PARTS.values())
    metrics.N_QUERIES = int(n_predictions) // (2 * len(metrics.N_LABELS) * settings)
    for index, n_labels in enumerate(metrics.N_LABELS):
        frames = [metrics._predictions(index, n_labels, part) for part in metrics.PARTS]
        pl.concat(frames).write_parquet(Path(folder) / f"{index}.parquet")


def measure(folder: str) -> None:
    from evaluator.metrics.groups import measured_groups
    from evaluator.metrics.table import metrics_table
    from evaluator.suites.staicc.diagnostics import DIAGNOSTIC_PARTS, DIAGNOSTICS

    predictions = pl.scan_parquet(f"{folder}/*.parquet")
    metrics_table(measured_groups(predictions, metrics.PARTS.keys() - {*DIAGNOSTIC_PARTS}, DIAGNOSTICS))


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _row(case: str, name: str, items: int, unit: str, seconds: float, peak_mib: float | None) -> dict[str, object]:
    peak = None if peak_mib is None else round(peak_mib)
    rate = items / seconds
    print(f"{case}, {name}: {seconds:.2f} s, {rate:,.0f} {unit}/s, peak {peak} MiB", flush=True)
    row: dict[str, object] = {"case": case, "contestant": name, "items": items, "unit": unit}
    return row | {"seconds": round(seconds, 6), "peak_mib": peak, "bytes_a_prompt": None}


def _number(value: object) -> float:
    return float(str(value))


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].isdigit():
        serve(*sys.argv[1:])
    else:
        main(*map(int, sys.argv[1:]))
