"""Build the second round from the first scores: a store with the requests that methods add, and label distances."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from evaluator.engine.devices import device_kind
from evaluator.engine.replicas import EngineLoader
from evaluator.errors import StoreError
from evaluator.files.digests import fingerprint, source_fingerprint
from evaluator.methods.base import Method
from evaluator.models.source import ModelSource
from evaluator.progress import Progress, Stage
from evaluator.run.build import Built, method_contexts, read_datasets, store_fingerprint
from evaluator.run.folders import lock_folder
from evaluator.run.measure import ScoredStore, on_disk, scored_run
from evaluator.schemas import PROMPTS_KEY
from evaluator.scores.table import distances_file, open_scores
from evaluator.store import PromptStore, kept, kept_requests, open_intact_store, write_shard, write_store
from evaluator.suites import chosen_methods

if TYPE_CHECKING:
    import torch


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
        return open_intact_store(folder) or (yield from _write(built, first, folder))


def _write(built: Built, first: ScoredStore, folder: Path) -> Stage[PromptStore]:
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
                    frames = (
                        frame.with_columns(suite=pl.lit(suite), for_part=pl.lit(part))
                        for part, method, context in method_contexts(suite, dataset, rows, built.config)
                        if method.prompts.follow_up
                        for frame in method.prompts.follow_up(context, scored.answering(part, dataset.name))
                    )
                    requests.append(files.enter_context(kept_requests(frames, folder.parent)))
        yield Progress(stage="Building the second round", done=len(datasets), total=len(datasets), unit="datasets")
        return write_store(folder, pl.concat(requests))


def load_head(built: Built, source: ModelSource) -> "torch.Tensor | None":
    """Return the LM head, on the CPU, if a method of the run takes distances; else None.

    Raises ModelError as skeleton.load_lm_head does.
    """
    if not (methods := _methods(built)):
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


def _methods(built: Built) -> dict[str, Method]:
    return {name: method for name, method in chosen_methods(built.config).items() if method.distances}


def _compute_and_write(built: Built, part: ScoredStore, head: "torch.Tensor") -> ScoredStore:
    import torch

    head = head.to(device_kind())
    digests = {}
    with on_disk(scored_run(built, [part]), part.scores.folder) as run:
        for name, method in _methods(built).items():
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
