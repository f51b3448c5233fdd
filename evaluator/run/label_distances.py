"""Compute the distances that methods take from hidden states and the LM head, once all prompts are scored."""

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from evaluator.engine.devices import device_kind
from evaluator.engine.replicas import EngineLoader
from evaluator.methods.base import Method
from evaluator.models.source import ModelSource
from evaluator.progress import Stage
from evaluator.run.build import Built
from evaluator.run.folders import lock_folder
from evaluator.run.scored_run import ScoredStore, scored_run
from evaluator.scores.table import distances_file, open_scores
from evaluator.store import shards
from evaluator.suites import chosen_methods

if TYPE_CHECKING:
    import torch


def load_head(built: Built, source: ModelSource) -> "torch.Tensor | None":
    """Return the LM head, on the CPU, if a method of the run takes distances; else None.

    Raises ModelError as skeleton.load_lm_head does.
    """
    methods = _methods(built)
    if not methods:
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
            pass  # and let go of what the error holds
        loader.close()
        return _compute_and_write(built, part, head)


def _methods(built: Built) -> dict[str, Method]:
    return {name: method for name, method in chosen_methods(built.config).items() if method.distances}


def _compute_and_write(built: Built, part: ScoredStore, head: "torch.Tensor") -> ScoredStore:
    import torch

    head = head.to(device_kind())
    scored = scored_run(built, [part]).scored
    digests = {}
    for name, method in _methods(built).items():
        assert method.distances is not None
        kinds = {*method.part_kinds} - {"null"}
        names = [part_name for part_name, measured in scored.parts.items() if measured.kind in kinds]
        frame = pl.concat(method.distances(scored.answering(part_name), head) for part_name in names)
        frame = frame.unique(maintain_order=True)
        digests[name] = shards.write_shard(part.scores.folder / distances_file(name), frame)
    del head
    torch.cuda.empty_cache()  # for replicas in other processes
    manifest = part.scores.manifest
    table = part.scores.write_manifest(replace(manifest, distances=manifest.distances | digests))
    return replace(part, scores=table)
