"""Prompts whose demonstrations show wrong labels: does a model read what they say, or only what they look like?"""

import numpy as np
import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lcg import Ints
from evaluator.errors import TemplateError
from evaluator.prompts.build import requests
from evaluator.prompts.demonstrations import sample_demonstrations

NOISE_RATES = (0.0, 0.25, 0.5, 0.75, 1.0)  # Cho & Inoue 2025, section 3.4: five rates, evenly spaced


def label_noise_requests(
    dataset: ClassificationDataset, *, n_shots: int, rate: float, n_queries: int | None, seed: int = 0
) -> pl.DataFrame:
    """The prompts of normal_requests, round(rate * n_shots) of the labels they show replaced by wrong ones.

    Which demonstrations lie and what they say is drawn once for all rates: what is wrong at one rate is the same wrong
    label at every higher one, so that accuracies at two rates differ by the noise alone. The toolkit shows the next
    label of the label space instead of a drawn one, and always in the first demonstrations.

    Columns as normal_requests gives them. Raises as it does, and TemplateError for a label space of one label, which
    has no wrong label, or a rate outside [0, 1].
    """
    n_labels = len(dataset.verbalizer.label_names)
    if n_labels < 2:
        raise TemplateError(f"{dataset.name} has one label: none of its demonstrations can show a wrong one.")
    if not 0 <= rate <= 1:
        raise TemplateError(f"A noise rate lies between 0 and 1, got {rate}.")
    n_test = dataset.test.height
    sampled = sample_demonstrations(n_shots=n_shots, n_demonstrations=dataset.demonstration.height, n_queries=n_test)
    own = dataset.demonstration["gold"].to_numpy()[sampled]
    shown = falsified_labels(own, n_labels=n_labels, n_wrong=int(rate * n_shots + 0.5), seed=seed)
    kept = sampled[:, :n_queries]
    repeat, query_id = (index.ravel() for index in np.indices(kept.shape[:2]))
    return requests(
        dataset,
        repeat=repeat,
        query_id=query_id,
        demonstration_ids=kept.reshape(len(query_id), n_shots),
        shown_labels=shown[:, :n_queries].reshape(len(query_id), n_shots),
    )


def falsified_labels(labels: Ints, *, n_labels: int, n_wrong: int, seed: int) -> Ints:
    """Label indices [..., n_shots], `n_wrong` of each row replaced by a wrong label, drawn evenly among the wrong ones.

    The draws depend on the shape and the seed, not on `n_wrong`: with more of them, the same ones stay wrong.
    """
    random = np.random.default_rng(seed)
    rank = random.random(labels.shape).argsort(axis=-1).argsort(axis=-1)  # in which order demonstrations turn wrong
    wrong = (labels + random.integers(1, n_labels, size=labels.shape)) % n_labels
    return np.where(rank < n_wrong, wrong, labels)
