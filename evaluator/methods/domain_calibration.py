"""Domain calibration: divide label probabilities by their mean over queries of random words of the task's texts."""

from collections.abc import Iterator

import polars as pl

from evaluator.methods.base import Method, MethodContext, ScoredRequests
from evaluator.methods.contextual_calibration import calibrated
from evaluator.prompts.pseudo_queries import domain_queries
from evaluator.prompts.training_prompts import N_SAMPLES, training_demonstrations, training_requests
from evaluator.schemas import Definition

PART = "domain_calibration"
N_WORDS = 64  # "we fix the sample length to 64" (Cho & Inoue 2025, appendix B.2)


def label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return the queries, calibrated by the mean label probabilities after queries of random words.

    Source: Fei et al. 2023, "Mitigating Label Biases for In-context Learning" (domain-context calibration). Formulas
    are those of contextual calibration; number and length of the queries are those of Cho & Inoue 2025, appendix B.2.
    """
    return calibrated(scored, definition, PART)


def requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield queries of random words after demonstrations of the calibration split; DatasetError if it is empty."""
    dataset = context.classification
    shown = training_demonstrations(dataset, n_shots=context.config.n_shots)
    queries = domain_queries(
        dataset.calibration,
        n_queries=N_SAMPLES,
        n_words=N_WORDS,
        definition=context.config.prompt_definition,
        source_name=f"The calibration split of {dataset.name}",
    )
    yield training_requests(dataset, part=PART, queries=queries, demonstration_ids=shown)


DOMAIN_CALIBRATION = Method(
    summary="The label that the query makes likelier than random words of its kind do, by the largest factor.",
    label_probs=label_probs,
    drawn_once="training prompts",
    requests=requests,
    part_kinds=("classification",),
    prompts_differ=True,
    labelled_examples=lambda n_shots: N_SAMPLES * n_shots,
)
