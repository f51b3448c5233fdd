"""Score the prompts of a run, then the prompts that methods add once the first scores are known.

Show the work that is ahead before prompts are scored, and first results while others are still being scored.
"""

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from evaluator.config import Definition, ModelConfig, RunConfig
from evaluator.engine import ENGINES, engine_identity, engine_name
from evaluator.engine.devices import device_kind
from evaluator.engine.replicas import EngineLoader
from evaluator.errors import ConfigError, ModelError, ScoreError, StoreError
from evaluator.files.digests import fingerprint, source_fingerprint
from evaluator.files.json_files import MANIFEST, read_manifest
from evaluator.files.whole import size_text
from evaluator.methods import REFERENCE_METHOD
from evaluator.methods.base import MeasuredPart, Method, ScoredRequests, scored_definitions
from evaluator.metrics.classification import DEFINITIONS, per_request_columns
from evaluator.metrics.table import label_mass_metrics
from evaluator.models.source import ModelSource
from evaluator.preflight.devices import peak_of_replicas
from evaluator.progress import Progress, Stage
from evaluator.record import EngineRecord, ModelRecord
from evaluator.run.build import Built, added_rows, read_datasets, reasons_of, store_fingerprint
from evaluator.run.folders import lock_folder
from evaluator.run.measure import ScoredStore, on_disk, scored_run
from evaluator.run.resolved_models import ResolvedModel, Tokenised, tokenise_scorable
from evaluator.run.until import rounds_of
from evaluator.schemas import PROMPTS_KEY, TOKEN_SCORES
from evaluator.scores.compute import AfterShard, Arithmetic, score_rows
from evaluator.scores.plan import Plan, plan_rows
from evaluator.scores.table import Kind, ScoreManifest, ScoreTable, distances_file, open_scores, prompt_scores
from evaluator.store import PromptStore, id_numbers, kept, kept_requests, open_intact_store, write_shard, write_store
from evaluator.suites import chosen_methods, methods_of
from evaluator.tokens.rows import TokenRows

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

STAGE, SHARED_ONCE = "First results", "Tokens, shared prefixes once"
"""Stages of the progress that scoring yields."""

LOGS = "logs"  # folder of a run with a log file of each replica that ran in another process
SCORES_FORMAT = 1  # increased when the meaning of a row of scores changes

ID_BYTES = 40  # of a row's key, with its offset
PAGE_BYTES = 5_000_000  # most that a page takes
KEPT_BYTES = 250  # of a scored request without its numbers, on disk while a run is measured: twice where it is sorted


def show_outlook(
    built: Built, scored: ScoredStore, plans: Mapping[Kind, Plan], source: ModelSource, data: Path
) -> Stage[None]:
    """Show how many prompts are scored, how many have scores of earlier runs, and what is written.

    Prompts that methods add after the first scores do not count. Warns if the disk may become full.

    Args:
        built: the run.
        scored: its first store, with the scores that it has.
        plans: of the rows of this store.
        source: the model, for the size of its hidden states.
        data: folder of prompts and scores.
    """
    assert TOKEN_SCORES["log_likelihoods"] == pl.List(pl.Float64), "a continuation has 8 bytes, and 4 of a count"
    n_prompts, n_scored = 0, 0
    to_write = PAGE_BYTES + _table_bytes(built, scored)  # an estimate from above: files are compressed
    for kind, plan in plans.items():
        reused, planned = plan.record.reused_prompts, plan.record.prompts
        done = sum(shard.prompts for shard in scored.scores.manifest.shards_of([plan.key]))  # by an interrupted run
        n_prompts, n_scored = n_prompts + reused + planned, n_scored + reused + done
        n_rows = plan.rows.height * (planned - done) // max(planned, 1)
        n_continuations = plan.rows.column(pl.col("continuations").list.len()).sum()
        numbers = 4 * source.hidden_size if kind == "states" else 12 * n_continuations / max(plan.rows.height, 1)
        to_write += n_rows * (ID_BYTES + round(numbers))
    free = shutil.disk_usage(next(path for path in (data, *data.absolute().parents) if path.exists())).free
    to_score = f"{n_prompts - n_scored:,} prompts to score"
    if n_scored:
        to_score = f"Of {n_prompts:,} prompts {n_scored:,} have scores already, {n_prompts - n_scored:,} to score"
    line = f"{to_score}; at most {size_text(to_write)} to write, {size_text(free)} free"
    yield Progress(stage="Looking ahead", done=n_scored, total=n_prompts, unit="prompts", line=line)
    if to_write > free:
        logger.warning(
            "The disk of %s has %s free, and this run may write %s. Make room (`evaluator clean` says what can go), or "
            "take another disk with --store or --out.",
            data,
            size_text(free),
            size_text(to_write),
        )


def _table_bytes(built: Built, scored: ScoredStore) -> int:
    """Return the bytes of the large tables, and of the rows that measuring keeps on disk meanwhile.

    Predictions have a row for each request, method and definition; queries one for each request, with its text.
    """
    n_texts, n_bytes = pl.col("spans").list.len().clip(1), pl.col("prompt").str.len_bytes()
    prompts = scored.store.prompts().select(labels=pl.col("continuations").list.len(), query=n_bytes / n_texts)
    n_labels, query_bytes = (mean or 0 for mean in prompts.mean().collect().row(0))
    n_requests, config = scored.store.manifest.n_requests, built.config
    n_predictions = n_requests * len(config.methods) * len(scored_definitions(config.definitions))
    numbers = 8 * n_labels + 2 * ID_BYTES  # of each row
    return round(n_predictions * numbers + n_requests * (numbers + query_bytes + 2 * (numbers + KEPT_BYTES)))


def early_results(built: Built, scored: ScoredStore, plans: Mapping[Kind, Plan]) -> AfterShard | None:
    """Return a function that shows the accuracy and label mass of each dataset once its last prompt is scored.

    They are vanilla's in the run's first part of classification, as the table of metrics will have them. None for
    a run without such a part, or that chooses prompts by scores.
    """
    if REFERENCE_METHOD not in built.config.methods or rounds_of(built.config):
        return None
    for suite, parts in built.parts.items():
        for name, part in parts.items():
            shared = [each for each in DEFINITIONS if each in built.config.definitions and each in part.definitions]
            if part.kind == "classification" and shared:
                return _EarlyResults(built, scored, plans["scores"], suite, name, shared[0]).after_shard
    return None


@dataclass
class _EarlyResults:
    """Yields the accuracy of each dataset whose shards are finished, in one part of a suite under one definition."""

    built: Built
    scored: ScoredStore
    plan: Plan
    suite: str
    part: str
    definition: Definition
    unfinished: dict[str, list[str]] | None = None  # dataset -> shards that it waits for, the last first
    n_datasets: int = 0

    def after_shard(self, table: ScoreTable) -> Iterator[Progress]:
        """Yield the accuracies that a finished shard completes."""
        if self.unfinished is None:
            self.unfinished = self._shards_by_dataset(table)
            self.n_datasets = len(self.unfinished)
        for names in self.unfinished.values():
            while names and names[-1] in table.manifest.shards:
                names.pop()
        for dataset in sorted(name for name, names in self.unfinished.items() if not names):
            del self.unfinished[dataset]
            done = self.n_datasets - len(self.unfinished)
            line = f"{dataset}: {self._accuracy(dataset, table)} ({done} of {self.n_datasets} datasets scored)"
            yield Progress(stage=STAGE, done=done, total=self.n_datasets, unit="datasets", line=line)

    def _shards_by_dataset(self, table: ScoreTable) -> dict[str, list[str]]:
        """Return the shards of the plan that have rows of each dataset, the last first.

        A dataset whose scores are all of earlier runs has none.
        """
        shards = replace(self.plan, record=table.manifest.plans[str(self.plan.key)]).shards()
        names, n_rows = pl.Series([*shards], dtype=pl.String), [shard.n_rows for shard in shards.values()]
        ids = self.plan.rows.column(id_numbers("token_id"))
        planned = pl.LazyFrame({"token_id": ids, "shard": np.arange(len(shards)).repeat(n_rows)})
        requests = self.scored.store.requests().filter(suite=self.suite, part=self.part)
        tokens = self.scored.tokens.tokens().select(id_numbers("prompt_id"), id_numbers("token_id"))
        asked = requests.select("dataset", id_numbers("prompt_id")).join(tokens, on="prompt_id")
        rows = asked.join(planned, on="token_id", how="left").select("dataset", "shard").unique()
        shards_of = pl.col("shard").drop_nulls().sort(descending=True)
        by_dataset = rows.collect(engine="streaming").group_by("dataset").agg(shards_of)
        return {dataset: names.gather(numbers).to_list() for dataset, numbers in by_dataset.iter_rows()}

    def _accuracy(self, dataset: str, table: ScoreTable) -> str:
        suite, part, definition = self.suite, self.part, self.definition
        requests = self.scored.store.requests().filter(suite=suite, part=part, dataset=dataset)
        tokens = self.scored.tokens.tokens().join(requests.select(PROMPTS_KEY).unique(), on=PROMPTS_KEY, how="semi")
        rows = requests.join(prompt_scores(tokens, table.read("scores")), on=PROMPTS_KEY, maintain_order="left")
        record = self.built.parts[suite][part]
        parts = {part: MeasuredPart(record.kind, record.definitions)}
        method = methods_of(self.built.config.suites)[REFERENCE_METHOD]
        scored = ScoredRequests(rows=rows, tokens=tokens, parts=parts, answered_part=part)
        (of_scores,) = scored_definitions([definition])
        answers = method.label_probs(scored, of_scores).select("position", "query_id", "gold", "label_probs")
        predicted = answers.drop_nulls("gold").collect(engine="streaming")
        if predicted.is_empty():
            return "no true options to measure accuracy by"
        n_labels, where = len(predicted["label_probs"][0]), f"{suite}, {part}, {dataset}"
        correct = per_request_columns(predicted, n_labels, definition, where)["correct"]
        accuracy = f"accuracy {correct.sum() / predicted.height:.3f} on {predicted.height:,} requests"
        masses = label_mass_metrics(scored, [of_scores]).filter(dataset=dataset, metric="label_mass_median")
        return f"{accuracy}, label mass {masses['value'].item():.2g} (median)"


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
    keep_loaded: bool = False,
    tokenised: Tokenised | None = None,
) -> Stage[Scored]:
    """Score a store's prompts with a model, then the prompts of the second round.

    Scores of any run in the data folder are used again. The model is loaded only if some are missing.

    A dataset whose prompts are too long for the model, or whose labels it cannot tell apart, is left out as long as
    others are left.

    Args:
        built: the run's configuration and prompts.
        resolved: the model; devices are laid out.
        data: folder of prompts and scores.
        loader: of the model.
        keep_loaded: whether the model stays loaded after the last prompt.
        tokenised: the tokens of these prompts, if they are tokenised already.

    Raises LabelError or PromptTooLongError if no dataset can be scored, ModelError if the model cannot be loaded,
    ScoreError for scores that are not finite.
    """
    head = load_head(built, resolved.source)  # fail before scoring if the model has no LM head
    scores_of_model = scores_folder(resolved.source, resolved.config, data)
    score = partial(score_rows, loader=loader, adapter=resolved.source.adapter, arithmetic=_arithmetic(resolved.record))
    run, stores, left_out, tokenised_s = built, list[ScoredStore](), dict[str, str](), 0.0
    with _naming_bad_tensor(resolved.source), nullcontext() if keep_loaded else closing(loader):
        store: PromptStore | None = built.store
        while store:  # that of the first round, then that of the second
            tokens, errors, elapsed_s = tokenised or (yield from tokenise_scorable(run, store, resolved))
            if tokens is None:
                raise next(iter(errors.values()))
            tokenised, refused, counts = None, reasons_of(errors), tokens.manifest.counts
            yield Progress(stage=SHARED_ONCE, done=counts.floor_tokens, total=counts.tokens, unit="tokens")
            tokenised_s += elapsed_s
            run, left_out = run.without(refused), left_out | refused
            lock = yield from lock_folder(scores_of_model / tokens.fingerprint)
            with lock:
                scores = open_scores(scores_of_model / tokens.fingerprint)
                stores.append(ScoredStore(store.without(left_out), tokens, scores))
                plans = _plans(stores[-1])
                after_shard: AfterShard | None = None
                if len(stores) == 1:
                    yield from show_outlook(run, stores[0], plans, resolved.source, data)
                    after_shard = early_results(run, stores[0], plans)
                for plan in _steps(run, stores, plans):
                    show = after_shard if plan.key.kind == "scores" else None
                    scores = yield from score(plan, scores, after_shard=show)
                    stores[-1] = replace(stores[-1], scores=scores)
            store = (yield from build_second_round(run, stores[0], data)) if len(stores) == 1 else None
    stores = [replace(each, store=each.store.without(left_out)) for each in stores]
    if head is not None:
        # Only now, because an engine that is not kept loaded has left its memory.
        stores[0] = yield from write_distances(run, stores[0], head, loader)
    took_s = {"tokenise": round(tokenised_s, 3), "load": round(loader.take_waited_s(), 3)}
    return Scored(run, stores, left_out, _engine_facts(stores), took_s)


def _arithmetic(model: ModelRecord) -> Arithmetic | None:
    peak = partial(peak_of_replicas, saved_quantization=model.quantization)
    return Arithmetic(model.flop_per_token, peak) if model.flop_per_token else None


def _plans(scored: ScoredStore) -> dict[Kind, Plan]:
    """Return the plans of a store's rows by kind: log-likelihoods, then hidden states."""
    rows, is_state = scored.tokens.rows(), pl.col("ask") == "state"
    by_kind: dict[Kind, TokenRows] = {"scores": rows.filter(~is_state), "states": rows.filter(is_state)}
    return {kind: plan_rows(some, scored.scores, kind) for kind, some in by_kind.items() if some.height}


def _steps(run: Built, stores: Sequence[ScoredStore], plans: Mapping[Kind, Plan]) -> Iterator[Plan]:
    """Yield the plans to compute one after the other.

    A run that chooses prompts by the scores of earlier rounds (until.rounds_of) has a plan for each round of the first
    store, which is made once the round before it is scored.

    Args:
        run: the run's configuration and prompts.
        stores: scored stores; the last is at work, and its scores are read again for each round.
        plans: of all rows of the last store.
    """
    rounds = rounds_of(run.config)
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


def build_second_round(built: Built, first: ScoredStore, data: Path) -> Stage[PromptStore | None]:
    """Write the store of the requests that depend on the first scores, or open it; None if no method has such requests.

    Raises StoreError if the datasets or the code have changed since the first store was built.
    """
    if not any(method.prompts.follow_up for method in chosen_methods(built.config).values()):
        return None
    # The requests are determined by the first scores and the code that reads them, not by distances, which are made
    # after the second round.
    files = first.scores.files().items()
    answers = {name: sha256 for name, sha256 in files if not name.rsplit("/", 1)[1].startswith("distances-")}
    code = source_fingerprint("methods", "suites", "run")
    name = fingerprint(built.store.fingerprint, first.tokens.fingerprint, answers, code)
    folder = data / "store" / name
    lock = yield from lock_folder(folder)
    with lock:
        return open_intact_store(folder) or (yield from _write_second_round(built, first, folder))


def _write_second_round(built: Built, first: ScoredStore, folder: Path) -> Stage[PromptStore]:
    datasets = built.datasets
    if not datasets:
        datasets, _ = yield from read_datasets(built.config)
        if store_fingerprint(built.config, datasets.values()) != built.store.fingerprint:
            raise StoreError(
                f"The second round must be built from the datasets and the code of {built.store.folder}, and one of "
                "them has changed. Run `evaluator build` for this output folder again, then `evaluator score`."
            )
        datasets = {name: dataset for name, dataset in datasets.items() if name not in built.left_out}
    scored = scored_run(built, [first]).scored
    with ExitStack() as files:
        requests = []
        for done, (name, dataset) in enumerate(datasets.items()):
            yield Progress(stage="Building the second round", done=done, total=len(datasets), unit="datasets")
            for suite in built.config.suites:
                asked = built.store.requests().filter(dataset=name, suite=suite)
                prompts = built.store.prompts().join(asked.select(PROMPTS_KEY), on=PROMPTS_KEY, how="semi")
                joined = asked.join(prompts, on=PROMPTS_KEY, how="left", maintain_order="left")
                # Of all prompts only these are in memory.
                with kept(joined.drop("suite", "prompt_id", "for_part"), folder.parent) as rows:
                    added = added_rows(suite, dataset, rows, built.config, scored)
                    requests.append(files.enter_context(kept_requests(added, folder.parent)))
        yield Progress(stage="Building the second round", done=len(datasets), total=len(datasets), unit="datasets")
        return write_store(folder, pl.concat(requests))


def load_head(built: Built, source: ModelSource) -> "torch.Tensor | None":
    """Return the LM head, on the CPU, if a method of the run takes distances; else None.

    Raises ModelError as skeleton.load_lm_head does.
    """
    if not (methods := _distance_methods(built)):
        return None
    from evaluator.models.skeleton import load_lm_head  # here, because torch is slow to import

    return load_lm_head(source, f"the methods {', '.join(methods)}")


def write_distances(built: Built, part: ScoredStore, head: "torch.Tensor", loader: EngineLoader) -> Stage[ScoredStore]:
    """Compute schemas.LABEL_DISTANCES of each method that takes them and write them next to the hidden states.

    A model that is loaded stays loaded, unless it leaves too little of a GPU's memory: then it is released first.
    """
    import torch

    lock = yield from lock_folder(part.scores.folder)
    with lock:
        # Another run may have added to the same scores meanwhile.
        part = replace(part, scores=open_scores(part.scores.folder))
        try:
            return _compute_and_write(built, part, head)
        except torch.OutOfMemoryError:
            pass  # the error, with the tensors that it holds, is released here
        loader.close()
        return _compute_and_write(built, part, head)


def _distance_methods(built: Built) -> dict[str, Method]:
    return {name: method for name, method in chosen_methods(built.config).items() if method.distances}


def _compute_and_write(built: Built, part: ScoredStore, head: "torch.Tensor") -> ScoredStore:
    import torch

    head = head.to(device_kind())
    digests = {}
    with on_disk(scored_run(built, [part]), part.scores.folder) as run:
        for name, method in _distance_methods(built).items():
            assert method.distances is not None
            kinds = {*method.part_kinds} - {"null"}
            names = [part_name for part_name, measured in run.scored.parts.items() if measured.kind in kinds]
            frame = pl.concat(method.distances(run.scored.answering(part_name), head) for part_name in names)
            frame = frame.unique(maintain_order=True)
            digests[name] = write_shard(part.scores.folder / distances_file(name), frame)
    del head
    torch.cuda.empty_cache()  # for replicas in other processes
    manifest = part.scores.manifest
    table = part.scores.write_manifest(replace(manifest, distances=manifest.distances | digests))
    return replace(part, scores=table)


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


def begin_hashing(models: Sequence[ResolvedModel]) -> None:
    """Hash the weights of models in a thread, one model after the other. Who needs a hash waits for it."""

    def hash_all() -> None:
        with suppress(ModelError):  # raised again where the hash is needed
            for each in models:
                each.source.hash()

    Thread(target=hash_all, name="hashing weights", daemon=True).start()


def begin_loading(resolved: ResolvedModel, data: Path, loader: EngineLoader) -> Stage[None]:
    """Begin to load a model in other processes, unless the data folder holds scores of the model, which may suffice.

    Weights that are being hashed for the first time have no scores.
    """
    source = resolved.source
    if not (loader.is_here or (source.is_hashed and scores_folder(source, resolved.config, data).exists())):
        yield from loader.begin()


def _engine_facts(stores: Sequence[ScoredStore]) -> EngineRecord:
    """Return the facts of the engine that computed the scores, in this run or an earlier one."""
    folder = stores[0].scores.folder.parent
    earlier = (read_manifest(path, ScoreManifest) for path in sorted(folder.glob(f"*/{MANIFEST}")))
    manifests = chain((each.scores.manifest for each in stores), earlier)
    return next(manifest.engine for manifest in manifests if manifest and manifest.engine)
