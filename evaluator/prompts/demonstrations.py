"""Draw the demonstrations of each query."""

from typing import Literal

import numpy as np
import numpy.typing as npt

from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lcg import Ints, Lcg
from evaluator.errors import TemplateError
from evaluator.schemas import Definition

N_DEMONSTRATION_SETS = 2  # the toolkit shows each query behind two demonstration sets; the paper does not say

LabelDomain = Literal["in_domain", "out_of_domain"]
"""Whether a prompt's demonstrations must, or must not, show the query's own label."""

REJECTION_BATCH = 2**16  # samples
MAX_REJECTION_DRAWS = 2**26  # demonstrations drawn for one dataset: seconds here, hours in the toolkit


def sample_demonstrations(
    *, n_shots: int, n_demonstrations: int, n_queries: int, n_demonstration_sets: int = N_DEMONSTRATION_SETS
) -> Ints:
    """Draw rows of the demonstration split for each prompt: shape [n_demonstration_sets, n_queries, n_shots], in prompt
    order.

    One generator runs through all prompts, the first set of all queries first, so give the whole test split's size as
    `n_queries` and slice: a run of fewer queries then has the same prompts as the full one, and one of more
    demonstration sets begins with them.

    Raises TemplateError where there are fewer demonstrations than shots; the toolkit then draws with repetition and
    reports zeros.
    """
    shape = (n_demonstration_sets, n_queries, n_shots)
    return _sample(Lcg(), n_shots, n_demonstrations, n_demonstration_sets * n_queries).reshape(shape)


def domain_demonstrations(
    dataset: ClassificationDataset, label_domain: LabelDomain, *, n_shots: int, definition: Definition
) -> Ints:
    """Draw rows of the demonstration split for each prompt: [N_DEMONSTRATION_SETS * test queries, n_shots], in prompt
    order.

    In-domain prompts show the query's label at least once, out-of-domain ones never. Those of sample_demonstrations
    that do stay as they are; the generator then goes on for the others. Under `released` it draws whole prompts, one
    query after the other, until one fits, as the toolkit does. Under `paper` it draws from the demonstrations of
    fitting labels: out-of-domain all `n_shots`, in-domain one, which takes the place of one of the prompt's own; so
    nothing is drawn in vain. The paper itself does not say how such prompts are sampled.

    Raises TemplateError, naming the label, where no prompt can fit: there are fewer than `n_shots` demonstrations of
    other labels or, in-domain, none of the label or no place for one. Under `released` also where
    MAX_REJECTION_DRAWS draws were not enough.
    """
    labels = dataset.demonstration["gold"].to_numpy()
    gold = np.tile(dataset.test["gold"].to_numpy(), N_DEMONSTRATION_SETS)
    random = Lcg()
    sampled = _sample(random, n_shots, len(labels), len(gold))
    shows_own = (labels[sampled] == gold[:, None]).any(axis=1)
    unfit = np.flatnonzero(shows_own == (label_domain == "out_of_domain"))
    by_label = {label: unfit[gold[unfit] == label] for label in np.unique(gold[unfit]).tolist()}
    for label in by_label:
        _require_fitting(dataset, label_domain, label, n_shots)
    if definition == "released":
        sampled[unfit] = _rejection_samples(dataset, label_domain, random, gold[unfit], n_shots)
    elif label_domain == "out_of_domain":
        for label, prompts in by_label.items():
            others = np.flatnonzero(labels != label)
            sampled[prompts] = others[random.samples(len(prompts), n_shots, len(others))]
    else:
        for label, prompts in by_label.items():
            own = np.flatnonzero(labels == label)
            place = random.samples(len(prompts), 1, n_shots)[:, 0]
            sampled[prompts, place] = own[random.samples(len(prompts), 1, len(own))[:, 0]]
    return sampled


def _sample(random: Lcg, n_shots: int, n_demonstrations: int, n_prompts: int) -> Ints:
    if n_shots > n_demonstrations:
        raise TemplateError(
            f"{n_shots} shots were asked for, but the demonstration split has {n_demonstrations} examples. "
            f"Choose --shots from 0 to {n_demonstrations}."
        )
    return random.samples(n_prompts, n_shots, n_demonstrations)


def _require_fitting(dataset: ClassificationDataset, label_domain: LabelDomain, label: int, n_shots: int) -> None:
    name = dataset.verbalizer.label_names[label]
    is_own = dataset.demonstration["gold"] == label
    n_own, n_others = int(is_own.sum()), int((~is_own).sum())
    if label_domain == "in_domain" and n_shots == 0:
        raise TemplateError(
            f"{dataset.name}: without demonstrations no prompt shows the label {name!r}. Choose --shots of 1 or more."
        )
    if label_domain == "in_domain" and n_own == 0:
        raise TemplateError(
            f"{dataset.name}: queries are labelled {name!r}, but no demonstration is, so none can be in-domain. "
            "Leave the dataset out, or split it otherwise."
        )
    if label_domain == "out_of_domain" and n_others < n_shots:
        raise TemplateError(
            f"{dataset.name}: {n_others} demonstrations are not labelled {name!r}, but {n_shots} must stand "
            f"out-of-domain before a query that is. Choose --shots from 0 to {n_others}."
        )


def _rejection_samples(
    dataset: ClassificationDataset, label_domain: LabelDomain, random: Lcg, gold: Ints, n_shots: int
) -> Ints:
    """Draw for each label of `gold` [n] in turn the next sample that fits it, [n, n_shots]; none is used twice."""
    labels = dataset.demonstration["gold"].to_numpy()
    found: list[Ints] = []
    n_drawn = 0
    while len(found) < len(gold):
        if n_drawn * n_shots >= MAX_REJECTION_DRAWS:
            raise TemplateError(
                f"{dataset.name}: after {n_drawn:,} samples of {n_shots} demonstrations {len(gold) - len(found)} of "
                f"{len(gold)} prompts still lack one that is {label_domain.replace('_', '-')}, first one for the label "
                f"{dataset.verbalizer.label_names[gold[len(found)]]!r}. Choose fewer --shots, or --definition paper, "
                "which draws none in vain."
            )
        drawn = random.samples(REJECTION_BATCH, n_shots, len(labels))
        n_drawn += REJECTION_BATCH
        found.extend(drawn[_first_fitting(labels[drawn], gold[len(found) :], label_domain)])
    return np.array(found, dtype=np.int64).reshape(len(gold), n_shots)


def _first_fitting(shown: Ints, gold: Ints, label_domain: LabelDomain) -> list[int]:
    """Return the rows of `shown` [n_samples, n_shots] that `gold` takes, each the next one that fits its label."""
    fitting: dict[int, npt.NDArray[np.int64]] = {}
    for label in np.unique(gold):
        shows_label = (shown == label).any(axis=1)
        fitting[int(label)] = np.flatnonzero(shows_label == (label_domain == "in_domain"))
    taken: list[int] = []
    # One step a prompt, because where one begins to look depends on where the one before it stopped.
    for label in gold.tolist():
        rows = fitting[label]
        nearest = np.searchsorted(rows, taken[-1] + 1 if taken else 0)
        if nearest == len(rows):
            break
        taken.append(int(rows[nearest]))
    return taken
