"""What methods request once a model has answered: a second store, of one model."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from evaluator.datasets.multiple_choice import AnyDataset
from evaluator.errors import StoreError
from evaluator.files import fingerprint, source_fingerprint
from evaluator.methods.base import Method, ScoredRequests
from evaluator.progress import Progress, Stage
from evaluator.run.build import Built, method_contexts, read_datasets, store_fingerprint, without_repeats
from evaluator.run.locks import held
from evaluator.run.scored_run import ScoredStore, scored_run
from evaluator.store.prompt_store import PromptStore, open_store, with_prompt_ids, write_store


def build_second_round(
    built: Built, first: ScoredStore, methods: Mapping[str, Method], data: Path
) -> Stage[PromptStore | None]:
    """Write the requests that follow from the first answers, or find them; None where no method has any.

    Raises StoreError where the data that the store was built from, or the program, have changed since.
    """
    if not any(method.follow_up for method in methods.values()):
        return None
    # What is requested follows from these very scores and from the code that reads them.
    name = fingerprint(built.store.fingerprint, first.scores.digests(), source_fingerprint("methods", "suites", "run"))
    lock = yield from held(data / "store" / name)
    with lock:
        return open_store(data / "store" / name) or (yield from _write(built, first, data / "store" / name))


def _write(built: Built, first: ScoredStore, folder: Path) -> Stage[PromptStore]:
    datasets = built.datasets
    if not datasets:
        datasets = yield from read_datasets(built.config)
        if store_fingerprint(built.config, datasets.values()) != built.store.fingerprint:
            raise StoreError(
                f"What follows from a model's answers is built from the same data as {built.store.folder}, and these, "
                "or the program, have changed since. Run `evaluator build` for this output folder again, then score."
            )
    scored = scored_run(built, [first]).scored
    requests = built.store.requests_with_prompts()
    frames: list[pl.DataFrame] = []
    for done, (name, dataset) in enumerate(datasets.items()):
        yield Progress(stage="Building the second round", done=done, total=len(datasets), unit="datasets")
        of_dataset, own = requests.filter(dataset=name), scored.of_dataset(name)
        for suite in built.config.suites:
            rows = of_dataset.filter(suite=suite).drop("suite", "prompt_id", "for_part").collect()
            frames += without_repeats(list(_requests(suite, dataset, rows, own, built)), suite)
    yield Progress(stage="Building the second round", done=len(datasets), total=len(datasets), unit="datasets")
    return write_store(folder, with_prompt_ids(pl.concat(frame.select(sorted(frame.columns)) for frame in frames)), {})


def _requests(
    suite: str, dataset: AnyDataset, rows: pl.DataFrame, scored: ScoredRequests, built: Built
) -> Iterator[pl.DataFrame]:
    for part, method, context in method_contexts(suite, dataset, rows, built.config):
        if method.follow_up:
            yield method.follow_up(context, scored.answering(part)).with_columns(for_part=pl.lit(part))
