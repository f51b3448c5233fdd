"""Score the prompts of a run, then the prompts that methods add once the first scores are known.

Before scoring, show the remaining work; during scoring, show the results of each dataset that is complete.
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
from evaluator.errors import ConfigError, ModelError, ScoreError, StoreError, plural
from evaluator.files.digests import fingerprint, source_fingerprint
from evaluator.files.json_files import MANIFEST, read_manifest
from evaluator.files.whole import size_text
from evaluator.methods import REFERENCE_METHOD
from evaluator.methods.base import Method, ScoredRequests, scored_definitions
from evaluator.metrics.classification import DEFINITIONS, per_request_columns
from evaluator.metrics.table import label_mass_metrics
from evaluator.models.source import ModelSource
from evaluator.preflight.devices import peak_of_replicas
from evaluator.progress import Progress, Stage
from evaluator.record import EngineRecord
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
from evaluator.suites import SUITES, chosen_methods, methods_of
from evaluator.tokens.rows import TokenRows

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

STAGE, SHARED_ONCE = "First results", "Tokens, shared prefixes once"
"""Names of progress stages: results of complete datasets; tokens to compute if shared prefixes are computed once."""

LOGS = "logs"  # subfolder of a run with a log file for each replica in another process
SCORES_FORMAT = 1  # increased when the meaning of a row of scores changes

ID_BYTES = 40  # bytes of a row's key and its offset
PAGE_BYTES = 5_000_000  # largest size of a page
KEPT_BYTES = 250  # bytes on disk of a scored request without its numbers while a run is measured; sorting doubles them


def show_outlook(
    built: Built, scored: ScoredStore, plans: Mapping[Kind, Plan], source: ModelSource, data: Path
) -> Stage[None]:
    """Show how many prompts remain to be scored, how many have scores already, and how many bytes may be written.

    Prompts of the second round are not counted. Logs a warning if the disk may become full.

    Args:
        built: the run's configuration and prompts.
        scored: the store of the first round, with its scores so far.
        plans: kind of results -> plan for the rows of this store.
        source: the model, which gives the size of hidden states.
        data: folder of prompts and scores.
    """
    assert TOKEN_SCORES["log_likelihoods"] == pl.List(pl.Float64), "a continuation has 8 bytes, and 4 of a count"
    n_prompts, n_scored = 0, 0
    to_write = PAGE_BYTES + _table_bytes(built, scored)  # an upper bound, because files are compressed
    for kind, plan in plans.items():
        reused, planned = plan.record.reused_prompts, plan.record.prompts
        done = sum(shard.prompts for shard in scored.scores.manifest.shards_of([plan.key]))  # in an interrupted run
        n_prompts, n_scored = n_prompts + reused + planned, n_scored + reused + done
        # Rows to write, in proportion to the prompts to score; bytes of numbers in a row.
        n_rows = plan.rows.height * (planned - done) // max(planned, 1)
        n_continuations = plan.rows.column(pl.col("continuations").list.len()).sum()
        numbers = 4 * source.hidden_size if kind == "states" else 12 * n_continuations / max(plan.rows.height, 1)
        to_write += n_rows * (ID_BYTES + round(numbers))
    free = shutil.disk_usage(next(path for path in (data, *data.absolute().parents) if path.exists())).free
    to_score = f"{plural(n_prompts - n_scored, 'prompt')} to score"
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
    """Estimate the bytes of the large tables, and of the temporary files of the measure stage.

    The table `predictions` has a row for each request, method and definition; the table `queries` has at most one row
    for each request, with the text of the query.
    """
    # Demonstrations and the query are taken as equally long parts of the prompt.
    n_texts, n_bytes = pl.col("spans").list.len().clip(1), pl.col("prompt").str.len_bytes()
    prompts = scored.store.prompts().select(labels=pl.col("continuations").list.len(), query=n_bytes / n_texts)
    n_labels, query_bytes = (mean or 0 for mean in prompts.mean().collect().row(0))
    n_requests, config = scored.store.manifest.n_requests, built.config
    n_predictions = n_requests * len(config.methods) * len(scored_definitions(config.definitions))
    numbers = 8 * n_labels + 2 * ID_BYTES  # bytes of a row's numbers and keys
    return round(n_predictions * numbers + n_requests * (numbers + query_bytes + 2 * (numbers + KEPT_BYTES)))


def early_results(built: Built, scored: ScoredStore, plans: Mapping[Kind, Plan]) -> AfterShard | None:
    """Return a function that shows accuracy and label mass of each dataset once its last prompt is scored.

    The values are those that the table `metrics` will have for the method vanilla in the first classification part.
    Returns None if the run has no such part or method, or if it chooses prompts by scores.
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
    """Shows results of each dataset whose shards are finished, for one part of a suite under one definition."""

    built: Built
    scored: ScoredStore
    plan: Plan
    suite: str
    part: str
    definition: Definition
    unfinished: dict[str, list[str]] | None = None  # dataset -> its unfinished shards, the last one first
    n_datasets: int = 0

    def after_shard(self, table: ScoreTable) -> Iterator[Progress]:
        """Yield a line for each dataset that is complete after a finished shard."""
        if self.unfinished is None:
            self.unfinished = self._shards_by_dataset(table)
            self.n_datasets = len(self.unfinished)
        for names in self.unfinished.values():
            while names and names[-1] in table.manifest.shards:
                names.pop()
        for dataset in sorted(name for name, names in self.unfinished.items() if not names):
            del self.unfinished[dataset]
            done = self.n_datasets - len(self.unfinished)
            of_all = plural(self.n_datasets, "dataset")
            line = f"{dataset}: {self._accuracy(dataset, table)} ({done} of {of_all} scored)"
            yield Progress(stage=STAGE, done=done, total=self.n_datasets, unit="datasets", line=line)

    def _shards_by_dataset(self, table: ScoreTable) -> dict[str, list[str]]:
        """Return dataset -> names of the plan's shards that hold rows of the dataset, the last one first.

        The list is empty if all scores of the dataset are from earlier runs.
        """
        shards = replace(self.plan, record=table.manifest.plans[str(self.plan.key)]).shards()
        names, n_rows = pl.Series([*shards], dtype=pl.String), [shard.n_rows for shard in shards.values()]
        ids = self.plan.rows.column(id_numbers("token_id"))
        planned = pl.LazyFrame({"token_id": ids, "shard": np.arange(len(shards)).repeat(n_rows)})
        # Join requests with their tokens, and tokens with the shard that computes them; null: no shard of the plan.
        requests = self.scored.store.requests().filter(suite=self.suite, part=self.part)
        tokens = self.scored.tokens.tokens.select(id_numbers("prompt_id"), id_numbers("token_id"))
        asked = requests.select("dataset", id_numbers("prompt_id")).join(tokens, on="prompt_id")
        rows = asked.join(planned, on="token_id", how="left").select("dataset", "shard").unique()
        shards_of = pl.col("shard").drop_nulls().sort(descending=True)
        by_dataset = rows.collect(engine="streaming").group_by("dataset").agg(shards_of)
        return {dataset: names.gather(numbers).to_list() for dataset, numbers in by_dataset.iter_rows()}

    def _accuracy(self, dataset: str, table: ScoreTable) -> str:
        suite, part, definition = self.suite, self.part, self.definition
        requests = self.scored.store.requests().filter(suite=suite, part=part, dataset=dataset)
        tokens = self.scored.tokens.tokens.join(requests.select(PROMPTS_KEY).unique(), on=PROMPTS_KEY, how="semi")
        rows = requests.join(prompt_scores(tokens, table.read("scores")), on=PROMPTS_KEY, maintain_order="left")
        # Predict and measure these requests alone, as the measure stage does with all.
        method = methods_of(self.built.config.suites)[REFERENCE_METHOD]
        scored = ScoredRequests(rows=rows, tokens=tokens, parts=self.built.parts[suite], answered_part=part)
        (of_scores,) = scored_definitions([definition])
        answers = method.label_probs(scored, of_scores).select("position", "query_id", "gold", "label_probs")
        predicted = answers.drop_nulls("gold").collect(engine="streaming")
        if predicted.is_empty():
            return "no true options to measure accuracy by"
        n_labels, where = len(predicted["label_probs"][0]), f"{suite}, {part}, {dataset}"
        correct = per_request_columns(predicted, n_labels, definition, where)["correct"]
        accuracy = f"accuracy {correct.sum() / predicted.height:.3f} on {plural(predicted.height, 'request')}"
        masses = label_mass_metrics(scored, [of_scores]).filter(dataset=dataset, metric="label_mass_median")
        return f"{accuracy}, label mass {masses['value'].item():.2g} (median)"


class Scored(NamedTuple):
    """The result of scoring a run."""

    built: Built  # without the datasets that are left out
    stores: Sequence[ScoredStore]  # of the first round, then of the second round if there is one
    left_out: Mapping[str, str]  # dataset that cannot be scored with this model -> why
    engine: EngineRecord
    elapsed_s: Mapping[str, float]  # "tokenise" and "load" -> seconds
    costs: Sequence[str] = ()  # lines about the cost of a service's answers


def check_capabilities(config: RunConfig, *models: ModelConfig) -> None:
    """Raise ConfigError if methods of the run need hidden states, and the engine of a model cannot compute them."""
    with_states = [name for name, method in chosen_methods(config).items() if method.prompts.need_states]
    unable = [engine for engine in map(engine_name, models) if not ENGINES[engine].has_hidden_states]
    if with_states and unable:
        raise ConfigError(
            f"{', '.join(with_states)}: methods that need hidden states, and the engine {unable[0]} has none. Take "
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
    """Score the prompts of a run with a model, then the prompts of the second round.

    Scores of any run in the data folder are reused. The model is loaded only if scores are missing.

    A dataset is left out if its prompts are too long for the model or its labels cannot be told apart, as long as
    other datasets remain.

    Args:
        built: the run's configuration and prompts.
        resolved: the model, with the number of its devices.
        data: folder of prompts and scores.
        loader: loader of the model's engine.
        keep_loaded: whether the model stays loaded after the last prompt.
        tokenised: tokens of the first round's prompts; None: they are tokenised here.

    Raises LabelError or PromptTooLongError if no dataset can be scored, ModelError if the model cannot be loaded,
    ScoreError for scores that are not finite.
    """
    head = load_head(built, resolved.source)  # fail before scoring if the model has no LM head
    scores_of_model = scores_folder(resolved.source, resolved.config, data)
    adapter, flop = resolved.source.adapter, _arithmetic(resolved)
    run, stores, left_out, tokenised_s = built, list[ScoredStore](), dict[str, str](), 0.0
    with _naming_bad_tensor(resolved.source), nullcontext() if keep_loaded else closing(loader):
        for is_first in (True, False):
            store = built.store if is_first else (yield from build_second_round(run, stores[0], data))
            if store is None:
                break
            if tokenised is None or not is_first:
                tokenised = yield from tokenise_scorable(run, store, resolved)
            if (tokens := tokenised.table) is None:
                raise next(iter(tokenised.refused.values()))
            refused = reasons_of(tokenised.refused)
            counts, tokenised_s = tokens.manifest.counts, tokenised_s + tokenised.elapsed_s
            yield Progress(stage=SHARED_ONCE, done=counts.floor_tokens, total=counts.tokens, unit="tokens")
            run, left_out = run.without(refused), left_out | refused
            folder, after_shard = scores_of_model / tokens.fingerprint, None
            with (yield from lock_folder(folder)):
                stores.append(ScoredStore(store.without(left_out), tokens, open_scores(folder)))
                plans = _plans(stores[-1])
                if is_first:
                    yield from show_outlook(run, stores[0], plans, resolved.source, data)
                    after_shard = early_results(run, stores[0], plans)
                for plan in _steps(run, stores, plans):
                    show = after_shard if plan.key.kind == "scores" else None
                    scores = yield from score_rows(plan, stores[-1].scores, loader, adapter, show, arithmetic=flop)
                    stores[-1] = replace(stores[-1], scores=scores)
    stores = [replace(each, store=each.store.without(left_out)) for each in stores]
    if head is not None:
        # After scoring, when an engine that is not kept loaded has released its memory.
        stores[0] = yield from write_distances(run, stores[0], head, loader)
    took_s = {"tokenise": round(tokenised_s, 3), "load": round(loader.take_waited_s(), 3)}
    return Scored(run, stores, left_out, _engine_facts(stores), took_s)


def _arithmetic(resolved: ResolvedModel) -> Arithmetic | None:
    """Return the operations of a token and the peak of devices; None if the operations are unknown."""
    record = resolved.record
    peak = partial(peak_of_replicas, saved_quantization=record.quantization)
    return Arithmetic(record.flop_per_token, peak) if record.flop_per_token else None


def _plans(scored: ScoredStore) -> dict[Kind, Plan]:
    """Return kind -> plan for the rows of a store: log-likelihoods, then hidden states."""
    rows, is_state = scored.tokens.rows(), pl.col("ask") == "state"
    by_kind: dict[Kind, TokenRows] = {"scores": rows.filter(~is_state), "states": rows.filter(is_state)}
    return {kind: plan_rows(some, scored.scores, kind) for kind, some in by_kind.items() if some.height}


def _steps(run: Built, stores: Sequence[ScoredStore], plans: Mapping[Kind, Plan]) -> Iterator[Plan]:
    """Yield the plans to compute, one after the other.

    If the run chooses prompts by the scores of earlier rounds (until.rounds_of), the first store has a plan for each
    round, which is made after the round before it is scored.

    Args:
        run: the run's configuration and prompts.
        stores: the scored stores; the caller updates the scores of the last store after each plan.
        plans: kind of results -> plan for all rows of the last store.
    """
    rounds = rounds_of(run.config)
    if rounds is None or len(stores) > 1:
        yield from plans.values()
        return
    rows = stores[0].tokens.rows().filter(pl.col("ask") != "state")
    for number in count():
        # The rounds are replayed with the scores so far, up to the round that follows.
        prompts = next(islice(rounds(scored_run(run, stores)), number, None), None)
        if prompts is None:
            break
        chosen = rows.filter(pl.col("prompt_id").is_in(prompts["prompt_id"].implode()))
        yield plan_rows(chosen, stores[0].scores, "scores")
    if "states" in plans:
        yield plans["states"]


def build_second_round(built: Built, first: ScoredStore, data: Path) -> Stage[PromptStore | None]:
    """Build the store of the requests that depend on the first scores, or open it; None if no method has such requests.

    Raises StoreError if the datasets or the code have changed since the first store was built.
    """
    if not any(method.prompts.follow_up for method in chosen_methods(built.config).values()):
        return None
    # The requests depend on the first scores and the code that reads them, but not on label distances, which are
    # computed after the second round.
    files = first.scores.files().items()
    answers = {name: sha256 for name, sha256 in files if not name.rsplit("/", 1)[1].startswith("distances-")}
    code = source_fingerprint("methods", "suites", "run")
    name = fingerprint(built.store.fingerprint, first.tokens.fingerprint, answers, code)
    folder = data / "store" / name
    with (yield from lock_folder(folder)):
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
                # Only the rows of one dataset and suite are kept, in a temporary file.
                with kept(joined.drop("suite", "prompt_id", "for_part"), folder.parent) as rows:
                    added = added_rows(suite, SUITES[suite].take(dataset, built.config), rows, built.config, scored)
                    requests.append(files.enter_context(kept_requests(added, folder.parent)))
        yield Progress(stage="Building the second round", done=len(datasets), total=len(datasets), unit="datasets")
        return write_store(folder, pl.concat(requests))


def load_head(built: Built, source: ModelSource) -> "torch.Tensor | None":
    """Return the LM head [vocabulary, hidden size] on the CPU if a method of the run computes distances; else None.

    Raises ModelError as skeleton.load_lm_head does.
    """
    if not (methods := _distance_methods(built)):
        return None
    from evaluator.models.skeleton import load_lm_head  # here, because torch is slow to import

    return load_lm_head(source, f"the methods {', '.join(methods)}")


def write_distances(built: Built, part: ScoredStore, head: "torch.Tensor", loader: EngineLoader) -> Stage[ScoredStore]:
    """Compute label distances (schemas.LABEL_DISTANCES) for each method that uses them, and write them to its scores.

    The files are written next to the hidden states. A loaded model stays loaded, unless it leaves too little of the
    GPU's memory: then it is released.
    """
    import torch

    with (yield from lock_folder(part.scores.folder)):
        # Another run may have added scores to the folder meanwhile.
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
    """Name a tensor of the model in a ScoreError if the tensor holds numbers that are not finite."""
    try:
        yield
    except ScoreError as error:
        if tensor := source.not_finite():
            raise ScoreError(f"{error} The weights hold a NaN or an infinity: tensor {tensor}.") from error
        raise


def scores_folder(source: ModelSource, model: ModelConfig, data: Path) -> Path:
    """Return the folder of a model's scores by this engine with its settings, for all runs that share `data`."""
    identity = asdict(engine_identity(source, model))
    return data / "scores" / fingerprint(SCORES_FORMAT, source.fingerprint, identity, source_fingerprint("engine"))


def begin_hashing(models: Sequence[ResolvedModel]) -> None:
    """Hash the weights of models in a thread, one model after the other. Code that needs a hash waits for it."""

    def hash_all() -> None:
        with suppress(ModelError):  # raised again where the hash is needed
            for each in models:
                each.source.hash()

    Thread(target=hash_all, name="hashing weights", daemon=True).start()


def begin_loading(resolved: ResolvedModel, data: Path, loader: EngineLoader) -> Stage[None]:
    """Begin to load a model in other processes, unless existing scores of the model may suffice.

    Scores are stored under the hash of the weights: a model whose weights were never hashed has none.
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
