"""Make and write the sections of run.json for the stages build and score.

Protect finished runs: a run may use the folder of a finished run only if it extends that run.
"""

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluator import __version__
from evaluator.config import RunConfig, cache_folder
from evaluator.datasets.base import DecisionDataset, query_texts
from evaluator.engine import engine_identity
from evaluator.errors import ConfigError, plural
from evaluator.files.digests import fingerprint, list_fingerprint
from evaluator.files.json_files import read_manifest
from evaluator.files.whole import remove_tables
from evaluator.preflight.devices import peak_of_replicas
from evaluator.record import (
    ChatRecord,
    DoctorRecord,
    EngineRecord,
    ModelRecord,
    PromptsRecord,
    RunRecord,
    ScoresRecord,
    ThroughputRecord,
    TokensRecord,
)
from evaluator.run import folders
from evaluator.run.build import Built, files_read
from evaluator.run.resolved_models import ResolvedModel
from evaluator.run.score import Scored
from evaluator.scores.table import ShardRecord
from evaluator.suites import SUITES, methods_of
from evaluator.suites.base import Described


def prompts_record(built: Built, described: Described | None = None) -> PromptsRecord:
    """Return the record of a run's prompts.

    Args:
        built: the run, with its datasets.
        described: the settings of a run of imported answers; None: the suites describe their settings.
    """
    config, suites = built.config, [SUITES[name] for name in built.config.suites if name in SUITES]
    descriptions = [described] if described else [suite.describe(config) for suite in suites]
    taken = {name: [suite.take(dataset, config) for suite in suites] for name, dataset in built.datasets.items()}
    notes = {name: dict.fromkeys(note for each in every for note in each.notes) for name, every in taken.items()}
    # Files, other than typed questions, that the first suite reads.
    read = [files_read(suite, config) for suite in suites[:1]]
    files = [digest for digests in read for path, digest in digests.items() if path != config.data.questions]
    fingerprints = {name: first.fingerprint for name, (first, *_) in taken.items()}
    return PromptsRecord(
        fingerprint=built.store.fingerprint,
        config=folders.config_to_json(config),
        suites=list(config.suites),
        datasets=list(built.datasets),
        methods=list(config.methods),
        definitions=list(config.definitions),
        prompt_definition=config.prompt_definition,
        parts=built.parts,
        shots=", ".join(map(str, descriptions[0].shots)),
        n_shots=descriptions[0].n_shots,
        n_queries=config.n_queries,
        queries=f"{config.n_queries:,}" if config.n_queries else descriptions[0].every_query,
        notes={name: [*of_dataset] for name, of_dataset in notes.items() if of_dataset},
        left_out=dict(built.left_out),
        seeds={name: seed for description in descriptions for name, seed in description.seeds.items()},
        requests=built.store.manifest.n_requests,
        distinct_prompts=built.store.manifest.n_prompts,
        requests_of=dict(built.store.requests().group_by("dataset").len().sort("dataset").collect().iter_rows()),
        dataset_fingerprints={name: fingerprint(one, files) if files else one for name, one in fingerprints.items()},
        query_fingerprints={name: list_fingerprint(query_texts(dataset)) for name, dataset in built.datasets.items()},
        inputs={name: each.source for name, each in built.datasets.items() if isinstance(each, DecisionDataset)},
    )


def record_build(
    prompts: PromptsRecord, out: Path, data: Path, started: str, elapsed_s: float, *, force: bool
) -> RunRecord:
    """Write and return the record of a run whose prompts are built.

    Args:
        prompts: record of the prompts.
        out: folder of the run.
        data: folder of prompts and scores.
        started: time, as returned by run_log.now().
        elapsed_s: seconds of the build stage.
        force: whether this run replaces a finished run in the folder; otherwise it extends the finished run.
    """
    relative = os.path.relpath(data, out)
    if (out / relative).resolve() != data.resolve():  # `out` is a link: ".." leads to the parent of its target
        relative = os.path.relpath(data.resolve(), out.resolve())
    record = RunRecord(evaluator=__version__, started=started, finished=started, data=relative)
    if previous := folders.read_run_if_intact(out):  # its tables and receipts stay until this run has its own
        kept = {name: getattr(previous, name) for name in ("measures", "receipts", "receipt_table")}
        record = replace(record, **kept)
        if previous.measures and not force:
            record = replace(record, model=previous.model, engine=previous.engine, form=_form_of(previous))
    return folders.write_stage(out, record, "build", elapsed_s={"build": elapsed_s}, prompts=prompts)


def record_scores(record: RunRecord, scored: Scored, model: ModelRecord, out: Path) -> RunRecord:
    """Write and return the record of a run whose prompts are scored."""
    scores = _scores_record(scored, model)
    return folders.write_stage(
        out,
        record,
        "score",
        elapsed_s={**scored.elapsed_s, "score": scores.elapsed_s},
        tokens=_tokens_record(scored),
        model=model,
        engine=scored.engine,
        scores=scores,
        doctor=last_verdict(model.weights_fingerprint, scored.engine),
    )


def doctor_file(weights_fingerprint: str) -> Path:
    """Return the path of the last record of `evaluator doctor` about a model."""
    return cache_folder() / "doctor" / weights_fingerprint / "doctor.json"


def last_verdict(weights_fingerprint: str, engine: EngineRecord) -> str:
    """Return the last verdict of `evaluator doctor` about a model in an engine on this machine, with its date.

    Returns a sentence if only another engine or dtype was examined, and "" if the model was never examined here.
    """
    record = read_manifest(doctor_file(weights_fingerprint), DoctorRecord)
    if not (record and record.engine) or (record.host, record.engine.device) != (platform.node(), engine.device):
        return ""
    this, examined = (f"{each.name} in {each.dtypes}" for each in (engine, record.engine))
    if this != examined:
        return f"has not examined {this}; its last verdict is about {examined}, {record.made[:10]}."
    return f"{record.verdict} ({examined}, {record.made[:10]})"


def _tokens_record(scored: Scored) -> TokensRecord:
    block = scored.engine.prefix_block_tokens
    counts = [each.tokens.manifest.counts for each in scored.stores]
    floors = [each.block_floor_tokens.get(str(block)) for each in counts]
    return TokensRecord(
        request_tokens=sum(each.request_tokens for each in counts),
        tokens=sum(each.tokens for each in counts),
        floor_tokens=sum(each.floor_tokens for each in counts),
        block_tokens=block,
        block_floor_tokens=None if None in floors else sum(filter(None, floors)),
    )


def _scores_record(scored: Scored, model: ModelRecord) -> ScoresRecord:
    shards = [shard for each in scored.stores for shard in each.scores.manifest.counted_shards]
    rates = throughput(shards)
    plans = [plan for each in scored.stores for plan in each.scores.manifest.plans.values()]
    reused_prompts = sum(plan.reused_prompts for plan in plans)
    # A run that went on with more replicas keeps the plan that it began with.
    n_replicas = max(len(rates.replica_computed_tokens_per_s), *(plan.n_replicas for plan in plans), 1)
    return ScoresRecord(
        stores=[each.store.fingerprint for each in scored.stores],
        tokens=[each.tokens.folder.name for each in scored.stores],
        tables=[each.scores.name for each in scored.stores],
        left_out=dict(scored.left_out),
        label_boundary=scored.stores[0].tokens.manifest.label_boundary,
        chat=scored.stores[0].tokens.manifest.chat,
        prompts=sum(shard.prompts for shard in shards) + reused_prompts,
        reused_prompts=reused_prompts,
        prompt_tokens=sum(shard.prompt_tokens for shard in shards),
        cached_tokens=sum(shard.cached_tokens for shard in shards) if scored.engine.counts_cached_tokens else None,
        elapsed_s=rates.elapsed_s,
        replicas=n_replicas,
        throughput=_with_arithmetic(rates, model, scored.engine, n_replicas),
        costs=list(scored.costs),
        files={name: sha256 for each in scored.stores for name, sha256 in each.scores.files().items()},
    )


def _with_arithmetic(
    rates: ThroughputRecord, model: ModelRecord, engine: EngineRecord, n_replicas: int
) -> ThroughputRecord:
    """Add to the rates the FLOP/s of computed tokens, and its share of the devices' peak (model FLOP utilisation, MFU).

    If the engine does not tell which tokens were cached, the rates of computed tokens are 0 or empty.
    """
    if not engine.counts_cached_tokens:
        return replace(
            rates, computed_tokens_per_s=0.0, replica_computed_tokens_per_s=[], period_computed_tokens_per_s=[]
        )
    flop_per_s = rates.computed_tokens_per_s * (model.flop_per_token or 0)
    peak = peak_of_replicas(engine, n_replicas, model.quantization)
    return replace(rates, flop_per_s=flop_per_s, peak_share=flop_per_s / peak if peak and flop_per_s else None)


MAX_PERIODS = 60
"""Largest number of equal periods into which the scoring time is divided; with fewer shards, one for each shard."""


def throughput(shards: Sequence[ShardRecord]) -> ThroughputRecord:
    """Return the rates at which all processes together computed shards.

    Time in which no shard was computed, such as the time between two commands, is not counted. Requests and tokens are
    taken as evenly distributed over the time of their shard. Shards of imported answers took no time and are left out.
    """
    timed = [shard for shard in shards if shard.elapsed_s]
    shards = sorted(timed, key=lambda shard: shard.finished_s - shard.elapsed_s)
    if not shards:
        return ThroughputRecord()
    elapsed, ends = np.array([(shard.elapsed_s, shard.finished_s) for shard in shards]).T
    starts = ends - elapsed
    # Idle time before each shard but the first: from the latest end so far to its start.
    idle = np.maximum(starts[1:] - np.maximum.accumulate(ends)[:-1], 0)
    # Start and end of each shard on a clock that stands still in idle time.
    first = starts - starts[0] - np.concatenate([[0.0], np.cumsum(idle)])
    last = first + elapsed
    edges = np.linspace(0, last.max(), min(MAX_PERIODS, len(shards)) + 1)
    # The part of each shard that falls into each period: [period, shard].
    inside = np.minimum(edges[1:, None], last) - np.maximum(edges[:-1, None], first)
    parts = inside.clip(min=0) / elapsed
    requests = np.array([shard.prompts for shard in shards])
    computed = np.array([shard.prompt_tokens - shard.cached_tokens for shard in shards])
    period_s = edges[1]
    replicas = np.array([shard.replica for shard in shards])
    spent = np.bincount(replicas, weights=elapsed)
    replica_rates = np.bincount(replicas, weights=computed)[spent > 0] / spent[spent > 0]
    return ThroughputRecord(
        elapsed_s=round(float(edges[-1]), 3),
        requests_per_s=round(float(requests.sum() / edges[-1]), 3),
        computed_tokens_per_s=round(float(computed.sum() / edges[-1]), 3),
        replica_computed_tokens_per_s=np.round(replica_rates, 3).tolist(),
        period_s=round(float(period_s), 3),
        period_requests_per_s=np.round(parts @ requests / period_s, 3).tolist(),
        period_computed_tokens_per_s=np.round(parts @ computed / period_s, 3).tolist(),
    )


_LISTS = ("suites", "datasets", "parts", "methods", "definitions")
"""Fields of a configuration to which an extension may add entries, but from which it may remove none."""


def finished_run(out: Path, *, force: bool = False) -> RunRecord | None:
    """Return the record of the finished run in a folder, which must not be replaced; None if there is none.

    A finished run whose extension was interrupted counts as finished.

    Args:
        out: folder of the run.
        force: whether the run may be replaced; the result is then None.
    """
    record = None if force else folders.read_run_if_intact(out)
    return record if record and record.measures else None


def check_extension(
    out: Path,
    earlier: RunRecord | None,
    *,
    config: RunConfig,
    datasets: Mapping[str, str] | None = None,
    requests: Mapping[str, int] = {},
    model: ResolvedModel | None = None,
) -> None:
    """Raise ConfigError if a new run would replace a finished run instead of extending it.

    More suites, datasets, parts, methods, definitions or queries extend a run; everything else replaces it.

    Args:
        out: folder of the run.
        earlier: the record of the finished run; None if there is none.
        config: configuration of the new run.
        datasets: dataset -> fingerprint, of the new run: none may be missing or have other content; None: not compared.
        requests: dataset -> number of requests of the new run: no number may be smaller.
        model: model of the new run, with the form of its prompts; None: not compared.
    """
    if earlier is None or earlier.prompts is None or earlier.measures is None:
        return
    changes, known = list[str](), earlier.prompts.dataset_fingerprints
    asked = json.loads(json.dumps(folders.config_to_json(config)))  # tuples are lists in a record
    changes += _changed(earlier.prompts.config, asked)
    if (before := earlier.prompts.prompt_definition) != config.prompt_definition:
        parts = (part for of_suite in earlier.prompts.parts.values() for part in of_suite.items())
        differ = [name for name, part in parts if part.prompts_differ]
        methods = methods_of(config.suites)
        differ += [name for name in earlier.prompts.methods if name in methods and methods[name].prompts.differ]
        changes += [f"{name} with the prompts of {config.prompt_definition} instead of {before}" for name in differ]
    if datasets is not None:
        changes += [f"datasets without {name}" for name in known if name not in datasets]
        other = [name for name, digest in datasets.items() if known.get(name, digest) != digest]
        changes += [f"{name} with other rows, labels or texts around them, or other demonstrations" for name in other]
    had = earlier.prompts.requests_of
    fewer = [name for name, n in requests.items() if n < had.get(name, 0)]
    changes += [f"{plural(requests[name], 'request')} of {name} instead of {had[name]:,}" for name in fewer]
    if model is not None:
        changes += _other_model(earlier, model)
    if changes:
        raise _replaces(out, earlier, changes)


def check_comparison(out: Path, below: Sequence[Path], *, force: bool = False) -> None:
    """Raise ConfigError if a command would replace a finished run or comparison in a folder.

    A comparison of several models must not replace a finished run, and no command may replace a finished comparison
    with a model that the command lacks.

    Args:
        out: folder of the comparison, or of a run of one model.
        below: folders of the models' runs; empty for a run of one model.
        force: whether finished runs may be replaced.
    """
    if below and (record := finished_run(out, force=force)):
        raise _replaces(out, record, ["several models"])
    compared = folders.compared_models(out) if (out / folders.COMPARISON_PAGE).is_file() else []
    earlier = {path: record for path in compared if (record := finished_run(path, force=force))}
    if not earlier.keys() <= {*below}:
        models = [record.model.title if record.model else path.name for path, record in earlier.items()]
        asked = ", ".join(folder.name for folder in below) or "a single model"
        raise ConfigError(
            f"{out} holds a finished comparison of {', '.join(models)}, and this command is for {asked}. Choose "
            "another --out, or replace it with --force."
        )


def remove_replaced(out: Path, *, is_comparison: bool) -> None:
    """Remove the tables and page of the run, or of the comparison, that a command replaces in a folder.

    The models' runs of a replaced comparison stay, because they are complete runs.

    Args:
        out: the folder.
        is_comparison: whether a comparison replaces a run; otherwise a run replaces a comparison.
    """
    if is_comparison:
        record = folders.read_run_if_intact(out)
        if record and record.measures:
            remove_tables(out, record.measures.tables, ())
            (out / folders.PAGE).unlink(missing_ok=True)
            folders.write_run(out, replace(record, measures=None))
    elif folders.model_runs(out) and (out / folders.COMPARISON_FILE).is_file():
        remove_tables(out, folders.comparison_tables(out), ())
        (out / folders.COMPARISON_PAGE).unlink(missing_ok=True)
        (out / folders.COMPARISON_FILE).unlink()


def _replaces(out: Path, record: RunRecord, changes: Sequence[str]) -> ConfigError:
    assert record.prompts is not None, "it is measured"
    model = record.model.title if record.model else "an unknown model"
    held = f"{', '.join(record.prompts.suites)} on {', '.join(record.prompts.datasets)} with {model}"
    return ConfigError(
        f"{out} holds a finished run ({held}), and this command would replace it: {'; '.join(changes)}. Choose another "
        "--out, or replace it with --force."
    )


def _changed(earlier: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings of an earlier configuration that a new one lacks or changes; both as written in run.json."""
    for field in _LISTS:
        if asked[field] is None:  # all parts
            continue
        if earlier[field] is None:
            yield f"{field} {', '.join(asked[field])} instead of all"
        elif missing := [name for name in earlier[field] if name not in asked[field]]:
            yield f"{field} {', '.join(asked[field])} without {', '.join(missing)}"
    if earlier["n_shots"] != asked["n_shots"] and not asked["shots_by_labels"]:
        yield f"{plural(asked['n_shots'], 'shot')} instead of {earlier['n_shots']}"
    if asked["until"]["goal"] and asked["until"] != earlier.get("until"):
        yield f"until it is shown to be {asked['until']['goal']}"
    before, now = earlier["n_queries"], asked["n_queries"]
    if before and now and now < before:  # if one takes all queries, requests are compared after building
        yield f"{plural(now, 'query')} instead of {before}"
    for suite, options in earlier["suite_options"].items():
        for name, value in asked["suite_options"].get(suite, options).items():
            if name in options and options[name] != value:
                yield f"{name} {value} instead of {options[name]}"


def _other_model(record: RunRecord, resolved: ResolvedModel) -> Iterator[str]:
    """Yield the differences of a model from that of a finished run: weights, engine, dtype, form of prompts."""
    model, engine, now = record.model, record.engine, resolved.record
    if model is None or engine is None:
        return
    if model.weights_fingerprint != now.weights_fingerprint:
        yield f"model {now.title} {'with other weights' if model.title == now.title else f'instead of {model.title}'}"
    identity = engine_identity(resolved.source, resolved.config)
    for name, asked, known in (
        ("engine", identity.name, engine.name),
        ("quantization", identity.quantization or "none", engine.quantization or "none"),
        ("dtype", identity.dtype, engine.dtype),
        ("logits in", identity.head_dtype, engine.head_dtype),
    ):
        if asked and known and asked != known:
            yield f"{name} {asked} instead of {known}"
    if model.tokens_in_front not in (None, now.tokens_in_front):
        tokens = plural(resolved.tokens_in_front, "token")
        yield f"{tokens} in front of a prompt (--add-bos) instead of {model.tokens_in_front}"
    asked_form = _form_text(resolved.form.boundary, resolved.form.chat.record if resolved.form.chat else None)
    if (earlier := _form_of(record)) not in ("", asked_form):
        yield f"{asked_form} instead of {earlier}"


def _form_of(record: RunRecord) -> str:
    """Return the form of the prompts of a finished run, also while its extension has no scores; "" if not known."""
    return _form_text(record.scores.label_boundary, record.scores.chat) if record.scores else record.form


def _form_text(boundary: str, chat: ChatRecord | None) -> str:
    return f"{f'{chat.form}, {chat.sha256[:12]}' if chat else 'plain prompts'}, label boundary {boundary}"
