"""Draw demonstrations: sets for each query, and different sequences from a pool."""

import math
import random
from collections.abc import Callable
from typing import Literal

import numpy as np

from evaluator.arrays import Ints
from evaluator.config import Definition
from evaluator.datasets.base import ClassificationDataset, OwnDraw
from evaluator.datasets.lcg import SEED, Lcg, places_before_removals
from evaluator.errors import TemplateError, plural

N_DEMONSTRATION_SETS = 2  # sets of each query in the toolkit; the paper states no number

LabelDomain = Literal["in_domain", "out_of_domain"]
"""Whether the demonstrations of a prompt must show the query's true label, or must not."""

REJECTION_BATCH = 2**9  # samples that are drawn and checked at a time
MAX_REJECTION_DRAWS = 2**26  # limit of demonstrations drawn for a dataset: seconds here, hours in the toolkit


def sample_demonstrations(
    *, n_shots: int, n_demonstrations: int, n_queries: int, n_demonstration_sets: int = N_DEMONSTRATION_SETS
) -> Ints:
    """Draw the demonstrations of each prompt with the toolkit's generator.

    One generator draws for all prompts: the first set of all queries, then the second set. So pass the size of the test
    split as `n_queries` and slice the result: then a run of fewer queries has the prompts of the full run, and more
    demonstration sets leave the first ones unchanged.

    Returns:
        Rows of the demonstration split in prompt order, int64, [n_demonstration_sets, n_queries, n_shots].

    Raises TemplateError if there are fewer demonstrations than shots. (The toolkit draws with repetition in that case,
    and reports zeros.)
    """
    _require_enough(n_shots, n_demonstrations)
    drawn = Lcg().samples(n_demonstration_sets * n_queries, n_shots, n_demonstrations)
    return drawn.reshape(n_demonstration_sets, n_queries, n_shots)


def own_demonstrations(
    how: OwnDraw, gold: Ints, *, n_shots: int, n_queries: int, n_demonstration_sets: int = 2, seed: int = SEED
) -> Ints:
    """Draw the demonstrations of each prompt of a user's data.

    With fewer queries, or more sets, the other demonstrations do not change.

    Args:
        how: key of OWN_DRAWS.
        gold: label indices of the demonstration split.
        n_shots, n_queries, n_demonstration_sets: numbers of demonstrations, queries and sets.
        seed: seed of the draws; every set has its own generator.

    Returns:
        Rows of the demonstration split in prompt order, int64, [n_demonstration_sets, n_queries, n_shots].

    Raises TemplateError if there are fewer demonstrations than shots.
    """
    _require_enough(n_shots, len(gold))
    generators = [np.random.default_rng([seed, number]) for number in range(n_demonstration_sets)]
    return np.stack([OWN_DRAWS[how](gold, n_shots, n_queries, draw) for draw in generators])


def _labels_in_turn(gold: Ints, n_shots: int, n_queries: int, draw: np.random.Generator) -> Ints:
    """Draw balanced demonstrations: the labels take turns. Returns rows, [n_queries, n_shots].

    Each turn has every label once, in random order; a label without remaining rows drops out of the turns. With fewer
    shots than labels, the labels shown are all different.
    """
    # Rows of each label, the number of turns that give enough demonstrations, and the turns that each label is in.
    rows = [np.flatnonzero(gold == label) for label in np.unique(gold)]
    n_turns = next(n for n in range(n_shots + 1) if sum(min(len(each), n) for each in rows) >= n_shots)
    turns = [np.arange(min(len(each), n_turns)) for each in rows]
    turn = np.concatenate(turns)
    # Two random numbers for each candidate: one draws a row of the label, one the order within the turn.
    uniform = draw.random((n_queries, 2, len(turn)))
    of_labels = np.split(uniform[:, 0], np.cumsum([len(each) for each in turns])[:-1], axis=1)
    drawn = [  # rows of each label, without replacement
        each[places_before_removals((draws * (len(each) - removed)).astype(np.int64))]
        for each, removed, draws in zip(rows, turns, of_labels, strict=True)
    ]
    order = np.argsort(turn + uniform[:, 1], axis=1)[:, :n_shots]
    return np.take_along_axis(np.concatenate(drawn, axis=1), order, axis=1)


def _labels_covered(gold: Ints, n_shots: int, n_queries: int, draw: np.random.Generator) -> Ints:
    """Draw demonstrations that show every label at least once. Returns rows, [n_queries, n_shots].

    All rows are put in random order. The first row of each label and as many of the first other rows as needed are
    shown, in this order. With fewer shots than labels, the labels shown are all different.
    """
    drawn = np.empty((n_queries, n_shots), np.int64)
    for query in range(n_queries):
        order = draw.permutation(len(gold))
        firsts = np.sort(np.unique(gold[order], return_index=True)[1])
        others = np.setdiff1d(np.arange(n_shots + len(firsts)), firsts)
        drawn[query] = order[np.sort(np.concatenate([firsts, others])[:n_shots])]
    return drawn


OWN_DRAWS: dict[OwnDraw, Callable[[Ints, int, int, np.random.Generator], Ints]] = {
    "balanced": _labels_in_turn,
    "cover": _labels_covered,
    "first": lambda _gold, n_shots, n_queries, _draw: np.tile(np.arange(n_shots), (n_queries, 1)),
}
"""Ways to choose the demonstrations of a user's data (datasets.base.OwnDemonstrations)."""


def domain_demonstrations(
    dataset: ClassificationDataset, label_domain: LabelDomain, *, n_shots: int, definition: Definition
) -> Ints:
    """Draw the demonstrations of each prompt, in-domain or out-of-domain.

    In-domain prompts show the query's true label at least once, out-of-domain prompts never. Prompts of
    sample_demonstrations that satisfy this are kept. For the others, the same generator draws again:

    - under `released`, all demonstrations of a prompt until they fit, one query after the other, as the toolkit does;
    - under `paper`, only demonstrations of allowed labels: out-of-domain all `n_shots`; in-domain a single one, which
      replaces one of the prompt's demonstrations. The paper does not say how such prompts are sampled.

    Returns:
        Rows of the demonstration split in prompt order, int64, [N_DEMONSTRATION_SETS * n test queries, n_shots].

    Raises TemplateError, naming the label, if no prompt can fit: out-of-domain, there are fewer than `n_shots`
    demonstrations of other labels; in-domain, there is no demonstration of the label, or `n_shots` is 0. Under
    `released` also if MAX_REJECTION_DRAWS draws are not enough.
    """
    labels = dataset.demonstration["gold"].to_numpy()
    gold = np.tile(dataset.test["gold"].to_numpy(), N_DEMONSTRATION_SETS)
    _require_enough(n_shots, len(labels))
    random = Lcg()
    sampled = random.samples(len(gold), n_shots, len(labels))
    # Find the prompts that do not fit, and check that every label among them can have a fitting prompt.
    shows_gold = (labels[sampled] == gold[:, None]).any(axis=1)
    unfit = np.flatnonzero(shows_gold == (label_domain == "out_of_domain"))
    by_label = {label: unfit[gold[unfit] == label] for label in np.unique(gold[unfit]).tolist()}
    for label in by_label:
        _require_fitting(dataset, label_domain, label, n_shots)
    if definition == "released":
        sampled[unfit] = _rejection_samples(dataset, label_domain, random, gold[unfit], n_shots)
        return sampled
    # Replace one random place of an in-domain prompt, or all places of an out-of-domain prompt.
    for label, prompts in by_label.items():
        if label_domain == "in_domain":
            rows, places = np.flatnonzero(labels == label), random.samples(len(prompts), 1, n_shots)
        else:
            rows, places = np.flatnonzero(labels != label), np.arange(n_shots)[None]
        sampled[prompts[:, None], places] = rows[random.samples(len(prompts), places.shape[1], len(rows))]
    return sampled


def _require_enough(n_shots: int, n_demonstrations: int) -> None:
    if n_shots > n_demonstrations:
        raise TemplateError(
            f"{n_shots} shots were asked for, but the demonstration split has {plural(n_demonstrations, 'example')}. "
            f"Choose --shots from 0 to {n_demonstrations}."
        )


def _require_fitting(dataset: ClassificationDataset, label_domain: LabelDomain, label: int, n_shots: int) -> None:
    name = dataset.verbalizer.label_names[label]
    has_label = dataset.demonstration["gold"] == label
    n_with, n_others = int(has_label.sum()), int((~has_label).sum())
    if label_domain == "in_domain" and n_shots == 0:
        raise TemplateError(
            f"{dataset.name}: without demonstrations no prompt shows the label {name!r}. Choose --shots of 1 or more."
        )
    if label_domain == "in_domain" and n_with == 0:
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
    """Draw samples of demonstrations for each label of `gold`, [n], until one fits; return them, [n, n_shots]."""
    labels, is_in_domain = dataset.demonstration["gold"].to_numpy(), label_domain == "in_domain"
    samples, n_drawn = np.empty((len(gold), n_shots), np.int64), 0
    left = samples[:0]  # drawn samples that come after the previous prompt's sample
    for prompt, label in enumerate(gold.tolist()):
        while not (fits := (labels[left] == label).any(axis=1) == is_in_domain).any():
            if n_drawn * n_shots >= MAX_REJECTION_DRAWS:
                raise TemplateError(
                    f"{dataset.name}: after {n_drawn:,} samples of {n_shots} demonstrations {len(gold) - prompt} of "
                    f"{len(gold)} prompts still lack one that is {label_domain.replace('_', '-')}, first one for the "
                    f"label {dataset.verbalizer.label_names[label]!r}. Choose fewer --shots, or --definition paper, "
                    "which draws none in vain."
                )
            left = random.samples(REJECTION_BATCH, n_shots, len(labels))
            n_drawn += REJECTION_BATCH
        place = int(fits.argmax())
        samples[prompt], left = left[place], left[place + 1 :]
    return samples


MAX_LISTED = 2**16  # up to this number of sequences all are shuffled; beyond it, numbers are drawn until enough differ


def demonstration_sequences(*, n_pool: int, n_shots: int, n_sequences: int, seed: int) -> Ints:
    """Draw different sequences of n_shots demonstrations from a pool of n_pool.

    A smaller `n_sequences` gives the first rows of the result for a larger one.

    Returns:
        Indices into the pool, int64, [n, n_shots], n being `n_sequences` or, if smaller, the number of possible
        sequences.
    """
    # Draw different numbers, each of which encodes a sequence.
    n_possible = math.perm(n_pool, n_shots)
    draw = random.Random(f"demonstrations, {n_shots} shots, seed {seed}")
    if n_possible <= MAX_LISTED:
        numbers = draw.sample(range(n_possible), n_possible)[:n_sequences]
    else:
        drawn: dict[int, None] = {}
        while len(drawn) < n_sequences:
            drawn[draw.randrange(n_possible)] = None
        numbers = list(drawn)
    # Decode: in the mixed base n_pool, n_pool - 1, ... each digit of a number is a rank among the remaining examples.
    ranks = np.empty((len(numbers), n_shots), np.int64)
    for row, number in enumerate(numbers):
        for place in range(n_shots):
            number, ranks[row, place] = divmod(number, n_pool - place)
    return places_before_removals(ranks)
