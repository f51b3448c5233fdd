"""`evaluator doctor --tune`: try settings of an engine on this machine one by one, and keep those that are faster."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from evaluator.config import DevicesConfig, ModelConfig, StepsConfig, option_fields
from evaluator.engine import engine_name, find_machine, find_source, with_devices
from evaluator.engine.devices import Machine
from evaluator.engine.replicas import EngineLoader
from evaluator.errors import EvaluatorError
from evaluator.files.whole import write_bytes
from evaluator.models.source import ModelSource
from evaluator.progress import Progress, Stage, finish
from evaluator.runs.doctor_prompts import staicc_prompts
from evaluator.runs.receipt import score_in_jobs
from evaluator.tokens.table import tokenise

_DATASETS = ("sst5", "trec", "agnews", "tweet_eval_emotion")
"""Datasets that a trial scores one after the other. Each gives a time, with prompts that are not in the cache."""

_QUERIES = {"cpu": 16, "cuda": 512}  # queries of each dataset, each with two demonstration sets
_ROUNDS = {"cpu": 1, "cuda": 3}  # times that a trial scores a dataset: on a GPU in less than a second, with much noise
_WARM_UP = 16  # prompts scored before times are taken, because kernels are compiled and chosen when they are first used
_JOBS_OF_A_REPLICA = 4

Settings = Mapping[str, Any]
"""Name of an option, as in a settings file -> value to try."""


@dataclass(frozen=True)
class Trial:
    """The times and scores of one trial of an engine with some settings."""

    seconds: list[float]  # for each dataset of _DATASETS, of the fastest round
    scores: pl.DataFrame  # schemas.SCORES

    def speed(self, base: "Trial") -> float:
        """Return the speed relative to another trial: the median over datasets of the ratio of times."""
        return float(np.median(np.array(base.seconds) / self.seconds))

    def drift_nats(self, base: "Trial") -> float:
        """Return the largest absolute difference of a log-likelihood from another trial, in nats."""
        names = ["label_log_likelihoods", "label_log_likelihoods_base"]
        both = self.scores.join(base.scores, on="prompt_id", suffix="_base").explode(names)
        difference = pl.col(names[0]) - pl.col(names[1])
        return float(both.select(difference.abs().max()).item())


def candidates(engine: str, machine: Machine, config: ModelConfig) -> Iterator[Settings]:
    """Yield settings to try, each in addition to the settings that were kept before."""
    on_gpu, n_devices = machine.kind == "cuda", config.devices.n
    if on_gpu:
        yield from ({"engines_per_device": n} for n in (2, 4) if config.devices.per_replica == 1)
    elif machine.max_devices > 1:
        yield {"devices": machine.max_devices}
    if engine == "vllm":
        if on_gpu:
            yield {"eager": True}
            yield from ({"tensor_parallel": n} for n in (2, 4, 8) if isinstance(n_devices, int) and n_devices % n == 0)
        yield from ({"step_tokens": n} for n in ((4096, 8192, 16384, 32768) if on_gpu else (512, 1024, 4096)))
        yield from ({"step_prompts": n} for n in ((256, 2048) if on_gpu else (64,)))


def tune(config: ModelConfig, out: Path) -> Stage[list[str]]:
    """Try settings, write the faster ones to `out`, and return a line about each trial.

    Settings are faster if they take less time for every dataset, and if the median gain exceeds the difference between
    two trials of the unchanged settings.

    Raises ConfigError or ModelError if the model cannot be loaded as it is configured.
    """
    source, engine = find_source(config), engine_name(config)
    config, machine = with_devices(source, config), find_machine(config)
    prompts = (staicc_prompts(name, n_shots=4, n_queries=_QUERIES[machine.kind]) for name in _DATASETS)
    tables = [tokenise(source.tokenizer, rows, "separate").sort("context") for rows in prompts]
    kept, lines = dict[str, Any](), list[str]()
    yield Progress(stage="Tuning: as it is, twice", done=0, total=1, unit="settings")
    first, best = (_trial(source, config, tables) for _ in range(2))
    noise = max(best.speed(first), first.speed(best)) - 1
    lines.append(f"as it is: {_rate(best, tables)}; a second trial differed by {noise:.1%}")
    tried = [*candidates(engine, machine, config)]
    for number, change in enumerate(tried):
        text = _toml(change).strip().replace("\n", ", ")
        yield Progress(stage=f"Tuning: {text}", done=number, total=len(tried), unit="settings")
        try:
            trial = _trial(source, with_settings(config, kept | dict(change)), tables)
        except EvaluatorError as error:
            lines.append(f"{text}: {error}")
            continue
        is_faster = trial.speed(best) > 1 + noise and bool(np.all(np.array(trial.seconds) < best.seconds))
        verdict = "kept" if is_faster else "not kept"
        about = f"{trial.speed(best):.2f} x as fast, at most {trial.drift_nats(best):.2g} nats apart: {verdict}"
        lines.append(f"{text}: {_rate(trial, tables)}, {about}")
        if is_faster:
            best, kept = trial, kept | dict(change)
    found = f"{best.speed(first):.2f} x as fast as without" if kept else "nothing was faster than without"
    write_bytes(out, f"# evaluator doctor --tune, {source.title} on {machine.name}: {found}\n{_toml(kept)}".encode())
    return [*lines, f"{found}: {out}"]


def with_settings(config: ModelConfig, settings: Settings) -> ModelConfig:
    """Return the configuration with options of its `steps` or `devices` set to these values."""
    for name, value in settings.items():
        part, kind = ("steps", StepsConfig) if name in option_fields(StepsConfig) else ("devices", DevicesConfig)
        field = option_fields(kind)[name].field.name
        config = replace(config, **{part: replace(getattr(config, part), **{field: value})})
    return config


def _toml(settings: Settings) -> str:
    return "".join(f"{name} = {str(value).lower()}\n" for name, value in settings.items())


def _rate(trial: Trial, tables: list[pl.DataFrame]) -> str:
    rates = [table.height / seconds for table, seconds in zip(tables, trial.seconds, strict=True)]
    return f"{np.median(rates):,.1f} prompts/s ({min(rates):,.1f} to {max(rates):,.1f} by dataset)"


def _trial(source: ModelSource, config: ModelConfig, tables: list[pl.DataFrame]) -> Trial:
    """Load an engine, or its replicas, and score each table in every round."""
    config, n_rounds = with_devices(source, config), _ROUNDS[find_machine(config).kind]
    longest = max(len(context) for table in tables for context in table["context"]) + 64  # room for the longest label
    with TemporaryDirectory() as folder, closing(EngineLoader(source, config, Path(folder))) as loader:
        replicas = finish(loader.replicas(longest))

        def score(table: pl.DataFrame) -> tuple[float, pl.DataFrame]:
            n_jobs = 1 if replicas.n == 1 else _JOBS_OF_A_REPLICA * replicas.n
            clock = time.monotonic()
            scores = pl.concat([part.scores for part in score_in_jobs(replicas, table, source.adapter, n_jobs)])
            return time.monotonic() - clock, scores

        score(tables[0].head(_WARM_UP))
        rounds = [[score(table) for table in tables] for _ in range(n_rounds)]
    seconds = [min(times) for times in zip(*([time for time, _ in one] for one in rounds), strict=True)]
    return Trial(seconds, pl.concat([scores for _, scores in rounds[-1]]))
