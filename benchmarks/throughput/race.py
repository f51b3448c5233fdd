"""Race this project against other tools over whole workloads, with random Llamas of several sizes or real models.

    python -m benchmarks.throughput.race [--workload NAME] [--shape 28M] [--dtype float32] [--queries N] [--runs N]
    python -m benchmarks.throughput.race --loaded-once --kv-cache-gib 12 --contestant evaluator "plain vLLM" ...

In every round the contestants run one after the other, each in a new process that loads, scores twice and ends. Two
times are measured: the second scoring, after warm-up, and the time from the start of the process to the first scores.
For this project, the latter is the time of the whole command: prompts, tokens, loading, scores, metrics and the page.
Outputs are compared after the first round; if they differ, no time is reported. Slow tools score only blocks of
adjacent prompts, so rates are compared and not times.

With `--loaded-once`, every contestant is loaded once for all workloads, and all are loaded at the same time. They take
turns in the order A B B A, so that a slow moment of the machine meets all of them. Only scoring is measured. For
machines where loading takes minutes, and where times differ much from turn to turn.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count, product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Target, append_rows, peak_memory, print_targets
from benchmarks.throughput.contestants import CONTESTANTS, Contestant
from benchmarks.throughput.processes import Turn, loaded, turn
from benchmarks.throughput.workloads import (
    REAL_MODELS,
    SHAPES,
    WORKLOADS,
    Job,
    Prepared,
    Scores,
    evaluator,
    prepare,
    requests,
)

OURS = "evaluator"
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25}
"""Dtype -> allowed difference between two tools, in nats and relative to the log-likelihood; tools round differently in
bfloat16."""

N_BLOCKS = 8  # blocks of adjacent rows, evenly spread over the workload, for tools that score a part of it

AT_LEAST = {"one dataset": 1.0, "all StaICC parts": 1.1, "PVI": 1.35, "prompt search": 3.0}
"""Workload -> target for prompts per second of scoring, as a multiple of plain vLLM."""
TOOLKIT_AT_LEAST = 8.5  # target for requests per second, as a multiple of the toolkit, for all methods in bfloat16


class Result(NamedTuple):
    """The turns of one contestant over a workload."""

    items: int  # number of prompts that the contestant scores
    turns: list[Turn]

    @property
    def rate(self) -> float:
        """Return the prompts per second of the median second scoring."""
        return self.items / float(np.median([one.score_s for one in self.turns]))


def main() -> None:
    arguments = _arguments()
    names = arguments.workload
    n_queries = arguments.queries if len(arguments.queries) == len(names) else arguments.queries * len(names)
    queries = dict(zip(names, n_queries, strict=True))
    groups = [names] if arguments.loaded_once else [[name] for name in names]
    for shape, group in product(arguments.shape, groups):
        with tempfile.TemporaryDirectory() as folder:
            prepared = prepare(group, shape, Path(folder), [queries[name] for name in group])
            for dtype in arguments.dtype:
                for one, results in _races(prepared, dtype, arguments, Path(folder)):
                    report(one, f"{one.name}, {shape}, {dtype}", results, append=not arguments.trial)
                    print_targets(*targets(one, dtype, results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput.race")
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=[*WORKLOADS])
    parser.add_argument(
        "--shape", nargs="+", choices=[*SHAPES, *REAL_MODELS], default=["28M"], help="of the model; 1B and 8B for a GPU"
    )
    parser.add_argument("--dtype", nargs="+", choices=TOLERANCE, default=[*TOLERANCE])
    parser.add_argument("--contestant", nargs="+", choices=CONTESTANTS, default=[*CONTESTANTS])
    parser.add_argument(
        "--queries", type=int, nargs="+", default=[None], help="of each dataset; one, or one a workload"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--slow-runs", type=int, help="of tools that score a part of the prompts; as many if left out")
    parser.add_argument("--loaded-once", action="store_true", help="keep all contestants loaded; measure only scoring")
    parser.add_argument("--kv-cache-gib", type=float, help="of each contestant that uses vLLM, if all are loaded")
    parser.add_argument("--trial", action="store_true", help="append no rows to results/throughput.csv")
    return parser.parse_args()


Results = Mapping[str, Result]  # by name of contestant


def _races(
    prepared: Sequence[Prepared], dtype: str, options: argparse.Namespace, folder: Path
) -> Iterator[tuple[Prepared, Results]]:
    """Yield each workload with its results."""
    if options.loaded_once:
        yield from race_loaded(prepared, dtype, options)
    else:
        for one in prepared:
            yield one, race(one, dtype, options, folder)


def _jobs(prepared: Prepared, dtype: str, options: argparse.Namespace) -> dict[str, Job]:
    """Return the jobs of the contestants that support a workload, by name."""
    able = [name for name in options.contestant if CONTESTANTS[name].has_states or "state" not in
            requests(prepared.job)["ask"]]  # fmt: skip
    whole = prepared.job._replace(dtype=dtype, kv_cache_gib=options.kv_cache_gib)
    return {name: part(whole, CONTESTANTS[name]) for name in able}


def race(prepared: Prepared, dtype: str, options: argparse.Namespace, folder: Path) -> Results:
    """Let the contestants that support a workload take turns. Raises SystemExit if their outputs differ."""
    runs = options.runs
    slow_runs = runs if options.slow_runs is None else options.slow_runs
    jobs = _jobs(prepared, dtype, options)
    results = {name: Result(len(job.rows), []) for name, job in jobs.items()}
    folders = (folder / f"run-{dtype}-{number}" for number in count())
    for number in range(runs):
        for name, job in jobs.items():
            if number >= slow_runs and CONTESTANTS[name].max_rows is not None:
                continue
            one = turn(name, job)
            if name == OURS:
                one = one._replace(whole_s=command(prepared, dtype, next(folders)))
            print(f"  {name}: {results[name].items / one.score_s:.1f} prompts/s, whole {one.whole_s:.1f} s", flush=True)
            results[name].turns.append(one)
        if number == 0:
            require_equal(prepared.job, jobs, {name: result.turns[0].scores for name, result in results.items()}, dtype)
    return results


def race_loaded(
    prepared: Sequence[Prepared], dtype: str, options: argparse.Namespace
) -> Iterator[tuple[Prepared, Results]]:
    """Load every contestant once, one after the other; let them take turns. Raises SystemExit if outputs differ."""
    jobs = [_jobs(one, dtype, options) for one in prepared]
    names = [name for name in options.contestant if all(name in of_one for of_one in jobs)]
    with ExitStack() as stack:
        score, peaks = {}, {}
        for name in names:
            with peak_memory() as memory:
                score[name] = stack.enter_context(loaded(name, [of_one[name] for of_one in jobs]))
                score[name](0)  # until it is loaded: vLLM measures the free memory of a device meanwhile
            peaks[name] = memory.peak_mib - memory.start_mib
            print(f"  {name}: loaded", flush=True)
        for number, (one, of_one) in enumerate(zip(prepared, jobs, strict=True)):
            first = {name: score[name](number)[0] for name in names}
            require_equal(one.job, of_one, first, dtype)
            results = {name: Result(len(of_one[name].rows), []) for name in names}
            for run in range(options.runs):
                for name in names if run % 2 == 0 else names[::-1]:
                    scores, seconds = score[name](number)
                    print(f"  {one.name}, {name}: {results[name].items / seconds:.1f} prompts/s", flush=True)
                    results[name].turns.append(Turn(scores, seconds, None, peaks[name]))
            yield one, results


def part(job: Job, contestant: Contestant) -> Job:
    """Return the job of a contestant: all rows, or N_BLOCKS evenly spread blocks of adjacent rows."""
    n_rows = len(job.rows)
    if contestant.max_rows is None or n_rows <= contestant.max_rows:
        return job
    size = contestant.max_rows // N_BLOCKS
    starts = np.linspace(0, n_rows - size, N_BLOCKS).astype(int).tolist()
    return job._replace(rows=sorted({row for start in starts for row in range(start, start + size)}))


def command(prepared: Prepared, dtype: str, out: Path) -> float:
    """Run the whole command; return the seconds from its start to the written page."""
    start = time.perf_counter()
    evaluator("run", *prepared.words, "--dtype", dtype, "--out", str(out))
    return time.perf_counter() - start


def require_equal(all_rows: Job, jobs: Mapping[str, Job], scores: Mapping[str, Scores], dtype: str) -> None:
    """Raise SystemExit if the scores of a contestant differ from the first contestant's, which scored all rows.

    Args:
        all_rows: the job with all rows.
        jobs, scores: job and scores by name of contestant.
        dtype: key of TOLERANCE.
    """
    frame = requests(all_rows)
    first, *others = scores
    reference = _by_row(all_rows, scores[first])
    for name in others:
        found = _by_row(jobs[name], scores[name])
        for row, theirs in found.items():
            ours, several = reference[row], frame["continuations"][row].list.len().max() != 1
            if CONTESTANTS[name].last_token_only:
                if several:  # the tool scores only the last token, so labels of several tokens are not comparable
                    continue
                theirs, ours = np.log(theirs), ours - np.logaddexp.reduce(ours)
            try:
                np.testing.assert_allclose(theirs, ours, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
            except AssertionError as difference:
                raise SystemExit(
                    f"{name} differs from {first} at row {row}, so nothing is reported.\n{difference}"
                ) from None


def _by_row(job: Job, scores: Scores) -> dict[int, Scores]:
    """Return row -> its scores, for rows with continuations."""
    frame = requests(job)
    sizes = frame["continuations"].list.len().to_list()
    parts = np.split(scores, np.cumsum(sizes)[:-1])
    return {row: part for row, part, size in zip(job.rows, parts, sizes, strict=True) if size}


def report(prepared: Prepared, case: str, results: Results, *, append: bool) -> None:
    """Print the rates, and append one row per contestant to results/throughput.csv."""
    rows = [_row(prepared, name, result, results) for name, result in results.items()]
    if append:
        append_rows("throughput", case, ["torch", "transformers", "lm-eval", "StaICC"], rows)
    print(f"\n{case}: {len(prepared.job.rows):,} distinct prompts for {prepared.n_requests:,} requests")
    for row in rows:
        print(f"{row['contestant']:32}{row['prompts_per_s']:>10} prompts/s{row['median_s']:>10} s of scoring "
              f"({row['q1_s']}-{row['q3_s']}), {row['whole_s'] or '-'} s whole, {row['peak_mib']:,} MiB, "
              f"x{row['evaluator_times']}")  # fmt: skip


def _row(prepared: Prepared, name: str, result: Result, results: Results) -> dict[str, object]:
    seconds = [one.score_s for one in result.turns]
    q1, median, q3 = np.quantile(seconds, [0.25, 0.5, 0.75]).round(3).tolist()
    times = [one.whole_s for one in result.turns if one.whole_s is not None]
    whole = np.quantile(times, [0.25, 0.5, 0.75]).round(2).tolist() if times else [None] * 3
    return {
        "contestant": name,
        "requests": prepared.n_requests,
        "all_prompts": len(prepared.job.rows),
        "items": result.items,
        "unit": "prompts",
        "runs": len(seconds),
        "median_s": median,
        "q1_s": q1,
        "q3_s": q3,
        "min_s": round(min(seconds), 3),
        "max_s": round(max(seconds), 3),
        "prompts_per_s": round(result.rate, 2),
        "whole_s": whole[1],
        "whole_q1_s": whole[0],
        "whole_q3_s": whole[2],
        "peak_mib": round(max(one.peak_mib for one in result.turns)),
        "evaluator_times": round(results[OURS].rate / result.rate, 3) if OURS in results else None,
    }


def targets(prepared: Prepared, dtype: str, results: Results) -> list[Target]:
    """Return the targets for which the results have both contestants."""
    ours = results.get(OURS)
    found = []
    if ours and (plain := results.get("plain vLLM")) and prepared.name in AT_LEAST:
        what = f"{prepared.name}, {dtype}, times plain vLLM"
        found.append(Target(what=what, value=ours.rate / plain.rate, at_least=AT_LEAST[prepared.name]))
    if ours and (toolkit := results.get("StaICC toolkit")) and prepared.name == "all StaICC parts and methods":
        requests_per_prompt = prepared.n_requests / len(prepared.job.rows)
        what = f"{prepared.name}, {dtype}, times the toolkit, which scores every request"
        value = ours.rate / toolkit.rate * requests_per_prompt
        found.append(Target(what=what, value=value, at_least=TOOLKIT_AT_LEAST if dtype == "bfloat16" else 4.0))
    return found


if __name__ == "__main__":
    main()
