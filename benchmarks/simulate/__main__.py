"""Predict how long runs take on machines that are not available, with a cost model that is fitted to measured runs.

    python -m benchmarks.simulate measure   run commands on this machine; append rows to results/simulate.csv
    python -m benchmarks.simulate check     fit the cost model to some of these rows and predict the others
    python -m benchmarks.simulate predict   predict StaICC, a prompt search and PVI on many GPUs (options: --help)
    python -m benchmarks.simulate hits      share of their tokens that prefix caches of several sizes hold

The project's own planner computes shards, prefix order and floors on real stores (cost_model.py). `--write` puts the
tables into docs/scale.md.
"""

import argparse
from collections.abc import Callable

from benchmarks.harness import ROOT, with_block
from benchmarks.simulate.check import checked_table
from benchmarks.simulate.hits import hits_table
from benchmarks.simulate.measure import POINTS, measure
from benchmarks.simulate.predict import predicted_table

TABLES: dict[str, Callable[[argparse.Namespace], str]] = {
    "check": lambda _: checked_table(),
    "predict": predicted_table,
    "hits": hits_table,
}


def main() -> None:
    arguments = _arguments()
    if arguments.what == "measure":
        measure(POINTS)
        return
    text = TABLES[arguments.what](arguments)
    print(text)
    if arguments.write:
        page = ROOT / "docs" / "scale.md"
        page.write_text(with_block(page.read_text(), f"benchmarks.simulate {arguments.what} --write", text))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate")
    parser.add_argument("what", choices=["measure", *TABLES])
    parser.add_argument("--write", action="store_true", help="put the table into docs/scale.md")
    parser.add_argument("--model", default="embedded", help="whose tokenizer cuts the prompts")
    parser.add_argument("--device", default="H200", help="a name that `evaluator preflight --help` tells of")
    parser.add_argument("--utilisation", type=float, default=0.55, help="share of the peak that prefill reaches")
    parser.add_argument("--bandwidth", type=float, default=4.8e12, help="bytes/s of the device's memory")
    parser.add_argument("--request-s", type=float, default=0.001, help="the engine's own time for a request")
    parser.add_argument("--tensor-parallel-efficiency", type=float, default=0.85, help="of each doubling")
    parser.add_argument("--start-s", type=float, default=60, help="imports, compiled graphs and Ray")
    parser.add_argument("--load-bandwidth", type=float, default=2e9, help="bytes/s of weights from disk to a device")
    parser.add_argument("--prompts-per-s", type=float, default=6000, help="built and tokenised by the driver")
    parser.add_argument("--step-tokens", type=int, default=16_384, help="vLLM's own on an H100 or H200; else 8192")
    parser.add_argument("--gpus", type=int, nargs="+", default=[8], help="GPUs: a row for each number")
    parser.add_argument(
        "--replicas", type=int, nargs="+", default=[1000], help="a row for each number too, whatever GPUs that takes"
    )
    parser.add_argument("--queries", help="of each dataset, instead of the scenarios' own: for a trial")
    return parser.parse_args()


main()
