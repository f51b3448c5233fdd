"""Race a vLLM server on this machine, over HTTP, against the engine in this process, on the same cores.

Both score the same prompts with a random Llama of 28 million parameters in fp32: prompts of SST-5 with labels of
several tokens and of one token (little shared), and prompts that share their demonstrations. Outputs are compared
first.

    python -m benchmarks.end_to_end.server [prompts] [runs] [HTTP requests in flight]

Race two servers with one core each, at two addresses, against one server on one core. The prompts, for the model that
ships, have 16 different beginnings; the number of computed tokens shows whether prompts with the same beginning are
sent to the same server.

    python -m benchmarks.end_to_end.server two [runs] [HTTP requests in flight]
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.engine_work import Answers, answers, random_llama, sst5_requests
from benchmarks.harness import Target, Work, print_targets, race
from evaluator.config import ModelConfig, ServerConfig
from evaluator.engine import load_engine
from evaluator.engine.base import ContinuationRequest, Engine
from evaluator.engine.devices import cores
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.models.source import find_model
from tests.engine.vllm_server import running_server, vllm_server

TOLERANCE_NATS = 1e-5
N_FAMILIES = 16  # number of different beginnings, and of prompts per beginning
ONE, TWO = "one server on one core", "two servers with a core each"


def main(n_prompts: int = 256, runs: int = 5, concurrency: int = 16) -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        model = random_llama(Path(name))
        source = find_model(ModelConfig(model=str(model)))
        url = stack.enter_context(vllm_server(model, Path(name) / "server.log"))
        served = ServerConfig(urls=(url,), concurrency=concurrency)
        over_http = load_engine(source, ModelConfig(model=str(model), engine="server", server=served, dtype="float32"))
        stack.callback(over_http.close)
        here = load_engine(source, ModelConfig(model=str(model), engine="vllm", dtype="float32"))
        stack.callback(here.close)
        apart = sst5_requests(source, n_prompts)
        cases = {
            "labels of several tokens, little shared": apart,
            "labels of one token, little shared": [
                request._replace(continuations=[[token] for token in sorted({c[0] for c in request.continuations})])
                for request in apart
            ],
            "labels of one token, all but 30 tokens shared": sharing(apart),
        }
        shares = {case: rate_over_http(case, some, here, over_http, runs) for case, some in cases.items()}
    print_targets(*(Target(what=f"{case}: share of the rate", value=v, at_least=0.8) for case, v in shares.items()))


def rate_over_http(case: str, some: Sequence[ContinuationRequest], here: Engine, over_http: Engine, runs: int) -> float:
    """Compare scores, then return the rate over HTTP / the rate of the engine in this process.

    Args:
        case: name of the case.
        some: requests to score.
        here, over_http: the two engines.
        runs: number of timed runs.
    """
    packages = ("torch", "transformers", "urllib3")
    title = f"28 M random Llama, fp32, {len(some)} prompts, {case}"
    work = Work(benchmark="server", case=title, items=len(some), unit="prompts", packages=packages)
    contestants = {"in this process": partial(answers, here, some), "server": partial(answers, over_http, some)}
    seconds = race(work, contestants, runs=runs, same=same)
    return seconds["in this process"].median_s / seconds["server"].median_s


def two(runs: int = 3, concurrency: int = 16) -> None:
    """Race two servers against one server. With two cores, the client uses a part of the second core."""
    folder = str(EMBEDDED_MODELS["embedded"]())
    source = find_model(ModelConfig(model=folder))
    some = families(sst5_requests(source, 256))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        engines: dict[str, Engine] = {}
        for contestant, numbers in {ONE: cores()[:1], TWO: cores()[:2]}.items():
            urls = []
            for core in numbers:
                log = Path(name) / f"{contestant}, {core}.log"
                with on_core(core):
                    server = stack.enter_context(running_server(Path(folder), log, "--enable-prompt-tokens-details"))
                urls.append(server.url)
            served = ServerConfig(urls=tuple(urls), concurrency=concurrency)
            config = ModelConfig(model=folder, engine="server", server=served, dtype="float32")
            engines[contestant] = load_engine(source, config)
            stack.callback(engines[contestant].close)
        for contestant, engine in engines.items():
            print(f"{contestant}: {answers(engine, some).computed_tokens:,} tokens computed")
        title = f"embedded model, fp32, {len(some)} prompts with {N_FAMILIES} beginnings"
        packages = ("torch", "transformers", "urllib3")
        work = Work(benchmark="server", case=title, items=len(some), unit="prompts", packages=packages)
        seconds = race(work, {who: partial(answers, one, some) for who, one in engines.items()}, runs=runs, same=same)
    times = seconds[ONE].median_s / seconds[TWO].median_s
    print_targets(Target(what="two servers, times one", value=times, at_least=1.5))


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Restrict processes that start within this context to one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def families(apart: Sequence[ContinuationRequest]) -> list[ContinuationRequest]:
    """Return all combinations of the beginnings of 16 prompts with the last 30 tokens of 16 prompts."""
    fronts = [request.context[:-30] for request in apart[:: len(apart) // N_FAMILIES]][:N_FAMILIES]
    labels = [[continuation[0]] for continuation in apart[0].continuations]
    return sorted(
        ContinuationRequest([*front, *request.context[-30:]], labels)
        for front, request in product(fronts, apart[:N_FAMILIES])
    )


def same(expected: Answers, found: Answers) -> None:
    np.testing.assert_allclose(found.log_probs, expected.log_probs, rtol=0, atol=TOLERANCE_NATS)


def sharing(apart: Sequence[ContinuationRequest]) -> list[ContinuationRequest]:
    """Replace all but the last 30 tokens of every prompt by those of the first prompt."""
    front = apart[0].context[:-30]
    labels = [[continuation[0]] for continuation in apart[0].continuations]
    return sorted(ContinuationRequest([*front, *request.context[-30:]], labels) for request in apart)


if __name__ == "__main__":
    chosen, numbers = (two, sys.argv[2:]) if sys.argv[1:2] == ["two"] else (main, sys.argv[1:])
    chosen(*map(int, numbers))
