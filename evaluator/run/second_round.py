"""What methods ask once a model has answered: a second store, of one model, beside the one that all models share."""

from pathlib import Path

import polars as pl

from evaluator.config import StoreConfig
from evaluator.datasets.multiple_choice import AnyDataset
from evaluator.errors import StoreError
from evaluator.files import fingerprint, source_fingerprint
from evaluator.methods.base import Answers
from evaluator.progress import Progress, Stage
from evaluator.run.build import (
    PromptStore,
    asked_of,
    open_store,
    read_datasets,
    store_fingerprint,
    with_prompt_ids,
    with_suite,
    write_store,
)
from evaluator.run.config_record import stored_config
from evaluator.suites import ALL_METHODS as METHODS
from evaluator.suites import SUITES


def build_follow_up(
    store: PromptStore, answers: Answers, scores_fingerprint: str, out: Path
) -> Stage[PromptStore | None]:
    """Write the requests that follow from `answers` under `out`, or find them there; None where no method has any.

    Raises StoreError where the data that the store was built from, or the program, have changed since.
    """
    methods = [name for name in store.manifest["methods"] if METHODS[name].follow_up]
    if not methods:
        return None
    config = stored_config(store.manifest)
    # What is asked follows from these scores and from the code that reads them.
    folder = out / "store" / fingerprint(store.fingerprint, scores_fingerprint, source_fingerprint("methods", "run"))
    if (found := open_store(folder)) is not None:
        return found
    datasets = yield from read_datasets(config)
    if store_fingerprint(config, datasets.values()) != store.fingerprint:
        raise StoreError(
            f"What follows from a model's answers is built from the same data as {store.folder}, and these, or the "
            "program, have changed since. Run `evaluator build` for this output folder again, then score."
        )
    frames = []
    for done, (name, dataset) in enumerate(datasets.items()):
        yield Progress(stage="Building what follows", done=done, total=len(datasets), unit="datasets")
        own = answers.of_dataset(name)
        for suite in config.suites:
            frames += _requests(suite, methods, dataset, own, config)
    yield Progress(stage="Building what follows", done=len(datasets), total=len(datasets), unit="datasets")
    return write_store(folder, config, datasets.values(), with_prompt_ids(pl.concat(frames)), {})


def _requests(
    suite: str, methods: list[str], dataset: AnyDataset, answers: Answers, config: StoreConfig
) -> list[pl.DataFrame]:
    answerable = {part for name in methods for part in METHODS[name].parts or SUITES[suite].parts}
    if not answerable & {*SUITES[suite].parts}:
        return []
    rows = SUITES[suite].requests(dataset, config)
    frames = []
    for name in methods:
        ask, asked = METHODS[name].follow_up, asked_of(name, dataset, rows, config)
        if ask and asked:
            frames.append(ask(asked, answers))
    return with_suite(frames, suite)
