"""Measure the cost of verifying the files of a run before they are read: time every stage with and without digests.

The run is StaICC-Normal with the fake engine, which makes up scores and hidden states. `evaluator verify` is timed too.

    python -m benchmarks.end_to_end.verification [runs]
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY, patch

from benchmarks.harness import Target, Work, print_targets, race
from evaluator.config import ModelConfig, RunConfig
from evaluator.datasets import SOURCES
from evaluator.files.json_files import DIGEST
from evaluator.progress import Stage, finish
from evaluator.run import pipeline
from evaluator.runs.verify import verify

FAKE = ModelConfig(model="fake", engine="fake")
CONFIG = RunConfig(suites=("staicc-normal",), datasets=tuple(SOURCES), methods=("vanilla", "knn_centroid"))
N_REQUESTS = 10_240


def main(runs: int = 5) -> None:
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        finish(pipeline.run(CONFIG, FAKE, out))
        stages: dict[str, Callable[[], Stage[object]]] = {
            "score, all there": lambda: pipeline.score(out, FAKE),
            "measure": lambda: pipeline.measure(out),
            "report": lambda: pipeline.report(out),
        }
        shares = {case: share(case, stage, runs) for case, stage in stages.items()}
        alone = race(work("verify"), {"verify": lambda: len(finish(verify(out)))}, runs=runs)
    print_targets(
        *(Target(what=f"{case}, times without digests", value=value, at_most=1.05) for case, value in shares.items()),
        Target(what="evaluator verify, seconds", value=alone["verify"].median_s, at_most=10),
    )


def share(case: str, stage: Callable[[], Stage[object]], runs: int) -> float:
    """Return the time of a stage with digests / its time without digests."""

    def plain() -> None:
        with (
            patch("evaluator.store.changed", lambda *_: []),
            patch("evaluator.scores.table.changed", lambda *_: []),
            patch("evaluator.scores.plan.changed", lambda *_: []),
            patch("evaluator.run.folder.file_digest", lambda _: ANY),
            patch("evaluator.files.json_files.read_json", unchecked),
        ):
            finish(stage())

    def verified() -> None:
        finish(stage())

    timings = race(work(case), {"verified": verified, "without digests": plain}, runs=runs)
    return timings["verified"].median_s / timings["without digests"].median_s


def unchecked(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    return {name: value for name, value in json.loads(path.read_bytes()).items() if name != DIGEST}


def work(case: str) -> Work:
    packages = ("polars", "pyarrow", "msgspec")
    return Work(benchmark="verification", case=case, items=N_REQUESTS, unit="requests", packages=packages)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
