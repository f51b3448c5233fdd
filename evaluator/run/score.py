"""Score the prompts of a run, then the prompts that methods add once the first scores are known."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.config import ModelConfig, RunConfig
from evaluator.engine import ENGINES, engine_identity, engine_name
from evaluator.engine.replicas import EngineLoader
from evaluator.errors import ConfigError, ScoreError
from evaluator.files.digests import fingerprint, source_fingerprint
from evaluator.files.json_files import MANIFEST, read_manifest
from evaluator.models.source import ModelSource
from evaluator.preflight.devices import peak_of_replicas
from evaluator.progress import Progress, Stage
from evaluator.record import EngineRecord, ModelRecord
from evaluator.run.build import Built
from evaluator.run.folders import lock_folder
from evaluator.run.measure import ScoredStore, scored_run
from evaluator.run.outlook import early_results, show_outlook
from evaluator.run.resolved_models import ResolvedModel
from evaluator.run.second_round import build_second_round, load_head, write_distances
from evaluator.run.tokenise import tokenise_scorable
from evaluator.run_log import seconds_since
from evaluator.scores.compute import AfterShard, Arithmetic, no_progress, score_rows
from evaluator.scores.plan import Plan, plan_rows
from evaluator.scores.table import Kind, ScoreManifest, open_scores
from evaluator.store.prompt_store import PromptStore
from evaluator.suites import SUITES, chosen_methods
from evaluator.tokens.rows import TokenRows
from evaluator.tokens.table import TokenTable

logger = logging.getLogger(__name__)

SHARED_ONCE = "Tokens, shared prefixes once"
LOGS = "logs"  # folder of a run with a log file of each replica that ran in another process
SCORES_FORMAT = 1  # increased when the meaning of a row of scores changes


class Scored(NamedTuple):
    """The scored stores of a run: that of the first round, then that of the second if there is one."""

    built: Built  # without the datasets that are left out
    stores: Sequence[ScoredStore]
    left_out: Mapping[str, str]  # dataset that cannot be scored with this model -> why
    engine: EngineRecord
    elapsed_s: Mapping[str, float]


def check_capabilities(config: RunConfig, model: ModelConfig) -> None:
    """Raise ConfigError for methods that need hidden states if the engine has none."""
    engine = engine_name(model)
    with_states = [name for name, method in chosen_methods(config).items() if method.prompts.need_states]
    if with_states and not ENGINES[engine].has_hidden_states:
        raise ConfigError(
            f"{', '.join(with_states)}: methods that need hidden states, and the engine {engine} has none. Take "
            "another --engine, or leave these methods out (--methods)."
        )


def score_run(
    built: Built,
    resolved: ResolvedModel,
    data: Path,
    loader: EngineLoader,
    *,
    keep_loaded: bool = False,
    tokenised_s: float = 0.0,
) -> Stage[Scored]:
    """Score a store's prompts with a model, then the prompts of the second round.

    Scores that are in the data folder already, from any run, are used again. The model is loaded only if some are
    missing.

    A dataset whose prompts are too long for the model, or whose labels it cannot tell apart, is left out as long as
    others are left.

    Args:
        built: the run's configuration and prompts.
        resolved: the model; devices are laid out.
        data: folder of prompts and scores.
        loader: of the model.
        keep_loaded: whether the model stays loaded after the last prompt.
        tokenised_s: seconds that tokenising these prompts has taken already, for the record.

    Raises LabelError or PromptTooLongError if no dataset can be scored, ModelError if the model cannot be loaded,
    ScoreError for scores that are not finite.
    """
    head = load_head(built, resolved.source)  # fail before scoring if the model has no LM head
    scores_of_model = scores_folder(resolved.source, resolved.config, data)
    score = partial(score_rows, loader=loader, adapter=resolved.source.adapter, arithmetic=_arithmetic(resolved.record))
    run, stores, left_out = built, list[ScoredStore](), dict[str, str]()
    with _naming_bad_tensor(resolved.source), nullcontext() if keep_loaded else closing(loader):
        store: PromptStore | None = built.store
        while store:  # that of the first round, then that of the second
            clock = time.monotonic()
            tokens, refused = yield from _tokenised(run, store, resolved)
            tokenised_s += seconds_since(clock)
            run, left_out = run.without(refused), left_out | refused
            lock = yield from lock_folder(scores_of_model / tokens.fingerprint)
            with lock:
                scores = open_scores(scores_of_model / tokens.fingerprint)
                stores.append(ScoredStore(store.without(left_out), tokens, scores))
                plans = _plans(stores[-1])
                after_shard: AfterShard = no_progress
                if len(stores) == 1:
                    yield from show_outlook(run, stores[0], plans, resolved.source, data)
                    after_shard = early_results(run, stores[0], plans)
                for plan in _steps(run, stores, plans):
                    show = after_shard if plan.key.kind == "scores" else no_progress
                    scores = yield from score(plan, scores, after_shard=show)
                    stores[-1] = replace(stores[-1], scores=scores)
            store = (yield from build_second_round(run, stores[0], data)) if len(stores) == 1 else None
    stores = [replace(each, store=each.store.without(left_out)) for each in stores]
    if head is not None:
        # Only now, because an engine that is not kept loaded has left its memory.
        stores[0] = yield from write_distances(run, stores[0], head, loader)
    elapsed_s = {"tokenise": round(tokenised_s, 3), "load": round(loader.take_waited_s(), 3)}
    return Scored(run, stores, left_out, _engine_facts(stores), elapsed_s)


def _plans(scored: ScoredStore) -> dict[Kind, Plan]:
    """Return the plans of a store's rows by kind: log-likelihoods, then hidden states."""
    rows, is_state = scored.tokens.rows(), pl.col("ask") == "state"
    by_kind: dict[Kind, TokenRows] = {"scores": rows.filter(~is_state), "states": rows.filter(is_state)}
    return {kind: plan_rows(some, scored.scores, kind) for kind, some in by_kind.items() if some.height}


def _steps(run: Built, stores: Sequence[ScoredStore], plans: Mapping[Kind, Plan]) -> Iterator[Plan]:
    """Yield the plans to compute one after the other.

    A suite that chooses prompts by the scores of earlier rounds (Family.rounds) has a plan for each round of the first
    store, which is made once the round before it is scored.

    Args:
        run: the run's configuration and prompts.
        stores: scored stores; the last is at work, and its scores are read again for each round.
        plans: of all rows of the last store.
    """
    rounds = SUITES[run.config.suites[0]].family.rounds
    if rounds is None or len(stores) > 1:
        yield from plans.values()
        return
    rows = stores[0].tokens.rows().filter(pl.col("ask") != "state")
    for number in count():
        prompts = next(islice(rounds(scored_run(run, stores)), number, None), None)
        if prompts is None:
            break
        chosen = rows.filter(pl.col("prompt_id").is_in(prompts["prompt_id"].implode()))
        yield plan_rows(chosen, stores[0].scores, "scores")
    if "states" in plans:
        yield plans["states"]


def _tokenised(built: Built, store: PromptStore, resolved: ResolvedModel) -> Stage[tuple[TokenTable, dict[str, str]]]:
    """Return the tokens of the datasets that can be scored, and the reason for each other dataset."""
    tokens, errors = yield from tokenise_scorable(built, store, resolved)
    left_out = {dataset: str(error) for dataset, error in errors.items()}
    for dataset, reason in left_out.items():
        logger.warning("%s is left out of this run: %s", dataset, reason)
    counts = tokens.manifest.counts
    yield Progress(stage=SHARED_ONCE, done=counts.floor_tokens, total=counts.tokens, unit="tokens")
    return tokens, left_out


@contextmanager
def _naming_bad_tensor(source: ModelSource) -> Iterator[None]:
    """Add to a ScoreError which tensor of the model is not finite, if one is."""
    try:
        yield
    except ScoreError as error:
        if tensor := source.not_finite():
            raise ScoreError(f"{error} The weights hold a NaN or an infinity: tensor {tensor}.") from error
        raise


def scores_folder(source: ModelSource, model: ModelConfig, data: Path) -> Path:
    """Return the folder of a model's scores with this engine and dtype, for all runs."""
    identity = asdict(engine_identity(source, model))
    return data / "scores" / fingerprint(SCORES_FORMAT, source.fingerprint, identity, source_fingerprint("engine"))


def begin_loading(resolved: ResolvedModel, data: Path, loader: EngineLoader) -> Stage[None]:
    """Begin to load a model in other processes, unless the data folder holds scores of the model, which may suffice."""
    if not scores_folder(resolved.source, resolved.config, data).exists():
        yield from loader.begin()


def _arithmetic(model: ModelRecord) -> Arithmetic | None:
    peak = partial(peak_of_replicas, saved_quantization=model.quantization)
    return Arithmetic(model.flop_per_token, peak) if model.flop_per_token else None


def _engine_facts(stores: Sequence[ScoredStore]) -> EngineRecord:
    """Return the facts of the engine that computed the scores, in this run or an earlier one."""
    folder = stores[0].scores.folder.parent
    earlier = (read_manifest(path, ScoreManifest) for path in sorted(folder.glob(f"*/{MANIFEST}")))
    manifests = chain((each.scores.manifest for each in stores), earlier)
    return next(manifest.engine for manifest in manifests if manifest and manifest.engine)
