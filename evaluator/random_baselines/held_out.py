"""Search for the best prompt on a part of the examples, and compare it with guessing on that part and on held-out ones.

Examples are split at random into a train and a test part, many times. The best of several prompts on the train part is
evaluated on the test part. Source: Yauney & Mimno 2024, section 5.2.

held_out_prediction then measures how well a train accuracy above a baseline predicts a held-out accuracy above chance.
ROC and precision-recall curves are implemented here because scikit-learn is only a development dependency; the tests
compare them with scikit-learn's.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.arrays import Bools, Floats, Ints
from evaluator.errors import DatasetError
from evaluator.random_baselines.max_random import is_above, max_random_accuracy, max_random_tail
from evaluator.schemas import declare

HELD_OUT_PREDICTION = declare(  # columns after the grouping columns
    predictor=pl.String(),  # "standard" | "max": verdict, above this baseline; "standard tail" | "max tail": score
    n_trials=pl.Int64(),
    held_out_share=pl.Float64(),  # share of trials whose held-out accuracy is above the standard baseline
    accuracy=pl.Float64(),  # accuracy, precision and recall are null for scores, and NaN for 0 / 0
    precision=pl.Float64(),
    recall=pl.Float64(),
    auroc=pl.Float64(),  # NaN where all trials have one outcome
    aupr=pl.Float64(),  # average precision; NaN where no trial is above the baseline
)

VERDICTS = {"standard": "above_standard_on_train", "max": "above_max_on_train"}
SCORES = {"standard tail": "log10_standard_tail", "max tail": "log10_max_tail"}
"""Predictors (verdicts and scores) with their columns of HELD_OUT_TRIALS; a smaller tail is stronger evidence against
guessing."""

OUTCOME = "above_standard_on_test"


def held_out_prediction(trials: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return accuracy, precision, recall, AUROC and AUPR of predicting that held-out accuracy is above chance.

    Args:
        trials: HELD_OUT_TRIALS; only the columns of the predictors, OUTCOME and `by` are read.
        by: columns to group by; none: one row a predictor.

    Returns:
        The `by` columns and HELD_OUT_PREDICTION, groups in order of first appearance. Verdicts are predictions, and
        have areas as scores of 0 and 1; tails are scores only. The distribution function as score would give the same
        areas, because it is monotone in the tail.

    Source: Yauney & Mimno 2024, section 5.2, figure 5 and tables 3 and 4.
    """
    groups = trials.group_by(by, maintain_order=True) if by else [((), trials)]
    rows = [
        dict(zip(by, key, strict=True)) | row for key, group in groups if group.height for row in _predictors(group)
    ]
    return pl.DataFrame(rows, schema={name: trials.schema[name] for name in by} | dict(HELD_OUT_PREDICTION))


def _predictors(trials: pl.DataFrame) -> Iterator[dict[str, str | int | float | None]]:
    outcome = trials[OUTCOME].cast(pl.Boolean)
    shared = {"n_trials": trials.height, "held_out_share": float(outcome.sum()) / trials.height}
    for predictor, column in VERDICTS.items():
        predicted = trials[column].cast(pl.Boolean)
        yield {"predictor": predictor, **shared, **_scores(predicted, outcome), **areas(predicted, outcome)}
    for predictor, column in SCORES.items():
        yield {"predictor": predictor, **shared, **areas(-trials[column], outcome)}


def _scores(predicted: pl.Series, outcome: pl.Series) -> dict[str, float]:
    hits = int((predicted & outcome).sum())
    counts = {"accuracy": (int((predicted == outcome).sum()), len(outcome))}
    counts |= {"precision": (hits, int(predicted.sum())), "recall": (hits, int(outcome.sum()))}
    return {name: count / total if total else float("nan") for name, (count, total) in counts.items()}


class Curves(NamedTuple):
    """Points of the ROC and precision-recall curves: for a threshold above all scores, then for each lower score."""

    false_positive_rate: Floats
    true_positive_rate: Floats  # also the recall
    precision: Floats  # 1 at the first point, where no trial is predicted to have outcome 1


def areas(score: npt.ArrayLike, outcome: npt.ArrayLike) -> dict[str, float]:
    """Return the areas under the ROC curve (auroc) and under the precision-recall curve (aupr).

    Args:
        score: [trials], higher for trials that are predicted to have outcome 1; may be predictions of 0 or 1.
        outcome: [trials], 0 or 1, or booleans.

    Returns:
        auroc: the probability that a trial of outcome 1 scores higher than a trial of outcome 0, where equal scores
            count half. NaN where all trials have the same outcome. Source: Hanley & McNeil 1982.
        aupr: the mean precision over thresholds, weighted by the increase in recall; NaN where no trial has outcome 1.
            This is the step-wise sum of scikit-learn's `average_precision_score`, which Yauney & Mimno 2024 report;
            linear interpolation would be too optimistic.
    """
    curves = ranking_curves(score, outcome)
    auroc = np.trapezoid(curves.true_positive_rate, curves.false_positive_rate)
    average_precision = np.sum(np.diff(curves.true_positive_rate) * curves.precision[1:])
    return {"auroc": float(auroc), "aupr": float(average_precision)}


def ranking_curves(score: npt.ArrayLike, outcome: npt.ArrayLike) -> Curves:
    """Compute the ROC and the precision-recall curve, with one point for each distinct score; rates of 0 / 0 are NaN.

    Args:
        score, outcome: as for areas.
    """
    scores, outcomes = np.asarray(score, dtype=np.float64), np.asarray(outcome, dtype=np.bool_)
    assert scores.shape == outcomes.shape, "one score a trial"
    assert not np.isnan(scores).any(), "a score that is not a number has no rank"
    # Equal scores form one group; groups are numbered from the highest score down.
    _, group = np.unique(-scores, return_inverse=True)
    n_groups = int(group.max()) + 1 if len(group) else 0
    # Number of trials, and of trials with outcome 1, at or above each threshold.
    positives = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=n_groups))])
    true_positives = np.concatenate([[0.0], np.cumsum(np.bincount(group, weights=outcomes, minlength=n_groups))])
    with np.errstate(invalid="ignore"):
        return Curves(
            false_positive_rate=(positives - true_positives) / np.float64(len(scores) - true_positives[-1]),
            true_positive_rate=true_positives / true_positives[-1],
            precision=np.concatenate([[1.0], true_positives[1:] / positives[1:]]),
        )


CORRECTNESS = ["experiment", "prompt", "example", "correct"]
"""Columns of answers: name of the search, such as "known_unknowns/4-shot"; id of the prompt; id of the example that the
prompt was scored on, which is never a demonstration of the prompt; whether the answer is right."""

CHANCES = declare(
    experiment=pl.String(),
    example=pl.Int64(),
    chance=pl.Float64(),  # probability that a random guess is right, above 0 and below 1
)

HELD_OUT_KEY = ["experiment", "tries", "split"]
HELD_OUT_SEARCHES = declare(
    experiment=pl.String(),
    tries=pl.Int64(),  # requested number of prompts to search
    split=pl.Int64(),  # index of the split, from 0
    n_prompts=pl.Int64(),  # number of prompts searched: `tries`, or all prompts if there are fewer
    prompt=pl.Int64(),  # id of the best prompt on the train part; of ties, the lowest id
    n_train=pl.Int64(),  # number of train examples that this prompt was scored on
    correct_train=pl.Int64(),  # number of these with a right answer
    n_test=pl.Int64(),
    correct_test=pl.Int64(),
    train_chances=pl.List(pl.Float64()),  # distinct chances of the experiment's examples, ascending
    train_counts=pl.List(pl.Int64()),  # number of the n_train examples with each of train_chances
    standard_on_train=pl.Float64(),  # mean chance of the n_train examples
    standard_on_test=pl.Float64(),
)
HELD_OUT_TRIALS = declare(
    **HELD_OUT_SEARCHES,
    max_random_on_train=pl.Float64(),  # expected accuracy of the best of n_prompts random classifiers
    log10_standard_tail=pl.Float64(),  # log10 probability that one random classifier has correct_train or more right
    log10_max_tail=pl.Float64(),  # log10 probability for the best of n_prompts random classifiers
    above_standard_on_train=pl.Boolean(),  # whether the accuracy is strictly above the baseline
    above_max_on_train=pl.Boolean(),
    above_standard_on_test=pl.Boolean(),
)

TRAIN_SHARE = 0.75
"""Share of the examples in the train part, rounded down to whole examples."""

SETTING = ["train_chances", "train_counts", "n_prompts", "correct_train"]
"""Columns that determine the train baseline and the tails of a search."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A set of prompts and the examples that they were scored on, as arrays."""

    name: str
    prompts: Ints  # [prompts], ids, ascending
    scored: Bools  # [prompts, examples]
    correct: Bools  # [prompts, examples], False where not scored
    chance: Floats  # [examples], probability that a random guess is right


def held_out_trials(
    correctness: pl.LazyFrame,
    chances: pl.DataFrame,
    *,
    tries: Sequence[int],
    n_splits: int = 100,
    seed: int = 0,
) -> pl.DataFrame:
    """Search for the best prompt in every split, and compare it with the baselines on the train and the test part.

    Args:
        correctness: CORRECTNESS, in any order and any integer width, without two prompts of the same text, so that each
            prompt counts as one try. `experiment` may be categorical.
        chances: CHANCES, one row for every example of every experiment.
        tries: numbers of prompts to search; each number is searched in all splits. If there are fewer prompts, all are
            searched and the baselines are for their number.
        n_splits: number of random splits of the examples of each experiment.
        seed: seed of the splits and of the order in which prompts are tried. Both depend only on the seed, n_splits,
            the experiment's name, and its numbers of examples and prompts.

    Returns:
        HELD_OUT_TRIALS, one row for each experiment, number of tries and split, sorted by these. An accuracy is above a
        baseline if it is strictly larger (max_random.is_above); both are over the examples that the prompt was scored
        on.

    Raises DatasetError for repeated or missing rows, and where a part of a split would be empty.
    Source: Yauney & Mimno 2024, section 5.2. Their released script counts demonstrations among the examples, and uses
    200 tries where fewer prompts are possible.
    """
    experiments = read_experiments(correctness, chances)
    return with_baselines(pl.concat(search(each, tries, n_splits=n_splits, seed=seed) for each in experiments))


def read_experiments(correctness: pl.LazyFrame, chances: pl.DataFrame) -> Iterator[Experiment]:
    """Yield each experiment as arrays, in the order of first appearance; raise DatasetError for inconsistent rows."""
    rows = correctness.select(CORRECTNESS).cast({"correct": pl.Boolean}).collect(engine="streaming")
    if rows.is_empty():
        raise DatasetError("The correctness table has no rows, so there is nothing to split.")
    if any(rows.null_count().row(0)):
        raise DatasetError(f"Correctness has missing values, {rows.null_count().row(0, named=True)}: fill every row.")
    chances_by_name = dict(chances.partition_by("experiment", as_dict=True))
    for (name,), scored in rows.group_by("experiment", maintain_order=True):
        yield _experiment(str(name), scored, chances_by_name.get((str(name),), chances.clear()))


def _experiment(name: str, rows: pl.DataFrame, chances: pl.DataFrame) -> Experiment:
    # Map ids of prompts and examples to indices of arrays [prompts, examples].
    prompts, prompt = np.unique(rows["prompt"].to_numpy(), return_inverse=True)
    examples, example = np.unique(rows["example"].to_numpy(), return_inverse=True)
    scored = np.zeros((len(prompts), len(examples)), dtype=np.bool_)
    scored[prompt, example] = True
    if scored.sum() < rows.height:
        twice = rows.filter(pl.struct(CORRECTNESS[:3]).is_duplicated()).row(0)
        raise DatasetError(f"{name}: prompt {twice[1]} was scored twice on example {twice[2]}. Give each row once.")
    correct = np.zeros_like(scored)
    correct[prompt, example] = rows["correct"].to_numpy()
    chance = _chance_of(name, examples, chances)
    return Experiment(name=name, prompts=prompts.astype(np.int64), scored=scored, correct=correct, chance=chance)


def _chance_of(name: str, examples: Ints, chances: pl.DataFrame) -> Floats:
    ids = pl.DataFrame({"example": examples.astype(np.int64)})
    rows = ids.join(chances.cast({"example": pl.Int64}), on="example", how="left", maintain_order="left")
    if rows.height > ids.height:
        raise DatasetError(f"{name}: an example has several chances. Give one row for each experiment and example.")
    wrong = rows.filter(~pl.col("chance").is_between(0, 1, closed="none").fill_null(False))
    if wrong.height:
        example, given = wrong.select("example", "chance").row(0)
        raise DatasetError(f"{name}: example {example} has chance {given}; give one between 0 and 1, both excluded.")
    return np.asarray(rows["chance"], dtype=np.float64)


def search(experiment: Experiment, tries: Sequence[int], *, n_splits: int = 100, seed: int = 0) -> pl.DataFrame:
    """Return the best prompt for every number of tries and split: rows of HELD_OUT_SEARCHES.

    The prompts to try are drawn at random for each split; a smaller number of tries uses a subset of the prompts of a
    larger number. The best prompt has the highest accuracy on the train part; of ties, the lowest id.

    Args:
        experiment: prompts with their scored examples.
        tries, n_splits, seed: as for held_out_trials.

    Raises DatasetError where a part would be empty.
    """
    n_prompts, n_examples = experiment.scored.shape
    n_train = train_size(n_examples)
    if not 0 < n_train < n_examples:
        raise DatasetError(
            f"{experiment.name} has {n_examples} examples, too few to split: a train part of {TRAIN_SHARE:g} of "
            f"them would hold {n_train}. Take more examples."
        )
    rng = np.random.default_rng((seed, zlib.crc32(experiment.name.encode())))
    in_train = _orders(rng, n_splits, n_examples) < n_train  # [splits, examples]
    order = _orders(rng, n_splits, n_prompts)  # [splits, prompts], position of each prompt in the order of tries
    # Counts [prompts, splits] as matrix products by BLAS; float32 holds whole numbers up to 2^24 exactly.
    train = in_train.T.astype(np.float32)
    n_scored, n_correct = (table.astype(np.float32) @ train for table in (experiment.scored, experiment.correct))
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = np.where(n_scored > 0, n_correct.astype(np.float64) / n_scored, -1.0)
    # Untried prompts get -2, below the -1 of tried prompts without scored train examples; argmax takes the lowest id
    # of ties.
    best = np.array([np.where(np.less(order.T, n_tries), accuracy, -2.0).argmax(axis=0) for n_tries in tries])
    return _search_rows(experiment, in_train, np.asarray(tries), best)


def train_size(n_examples: int) -> int:
    """Return the number of examples in the train part."""
    return int(TRAIN_SHARE * n_examples)


def _orders(rng: np.random.Generator, n_splits: int, size: int) -> Ints:
    """Draw a permutation of 0, ..., size - 1 for each split."""
    return rng.permuted(np.tile(np.arange(size), (n_splits, 1)), axis=1)


def _search_rows(experiment: Experiment, in_train: Bools, tries: Ints, best: Ints) -> pl.DataFrame:
    """Build rows of HELD_OUT_SEARCHES.

    Args:
        in_train: [splits, examples].
        tries: [tries].
        best: [tries, splits], index of the best prompt.
    """
    n_tries, split = np.broadcast_to(tries[:, None], best.shape).ravel(), np.tile(np.arange(best.shape[1]), len(best))
    best = best.ravel()
    scored, correct, train = experiment.scored[best], experiment.correct[best], in_train[split]
    # Count the examples of each distinct chance (level) in both parts.
    levels, level = np.unique(experiment.chance, return_inverse=True)
    of_level = np.eye(len(levels), dtype=np.int64)[level]  # [examples, levels]
    train_counts, test_counts = (scored & train) @ of_level, (scored & ~train) @ of_level
    n_train, n_test = train_counts.sum(axis=1), test_counts.sum(axis=1)
    if (empty := (n_train == 0) | (n_test == 0)).any():
        first = int(empty.argmax())
        raise DatasetError(
            f"{experiment.name}: prompt {experiment.prompts[best[first]]} was scored on {n_train[first]} examples of "
            f"the train part and {n_test[first]} of the test part of split {split[first]}, and needs one of each."
        )
    columns = {
        "experiment": np.repeat(experiment.name, len(best)),
        "tries": n_tries,
        "split": split,
        "n_prompts": np.minimum(n_tries, len(experiment.prompts)),
        "prompt": experiment.prompts[best],
        "n_train": n_train,
        "correct_train": (correct & train).sum(axis=1),
        "n_test": n_test,
        "correct_test": (correct & ~train).sum(axis=1),
        "train_chances": np.tile(levels, (len(best), 1)),
        "train_counts": train_counts,
        "standard_on_train": train_counts @ levels / n_train,
        "standard_on_test": test_counts @ levels / n_test,
    }
    return pl.DataFrame(columns).cast(HELD_OUT_SEARCHES)


def with_baselines(searches: pl.DataFrame) -> pl.DataFrame:
    """Add baselines, tails and verdicts to HELD_OUT_SEARCHES; return HELD_OUT_TRIALS."""
    baselines = _baselines(searches.select(SETTING).unique(maintain_order=True))  # each distinct setting once
    trials = searches.join(baselines, on=SETTING, how="left", maintain_order="left")
    on_train, on_test = (pl.col(f"correct_{part}") / pl.col(f"n_{part}") for part in ("train", "test"))
    judged = trials.with_columns(
        above_standard_on_train=is_above(on_train, pl.col("standard_on_train")),
        above_max_on_train=is_above(on_train, pl.col("max_random_on_train")),
        above_standard_on_test=is_above(on_test, pl.col("standard_on_test")),
    )
    return judged.select(HELD_OUT_TRIALS.names()).sort(HELD_OUT_KEY)


def _baselines(settings: pl.DataFrame) -> pl.DataFrame:
    """Add the maximum random baseline and both tails to SETTING rows."""
    counts = settings["train_counts"]
    tries, correct, n = (column.to_numpy() for column in (*settings["n_prompts", "correct_train"], counts.list.sum()))
    chance = [np.repeat(*row) for row in settings.select("train_chances", "train_counts").iter_rows()]
    # Compute both tails in one call, because computing the distribution takes most of the time.
    tails = np.asarray(max_random_tail(correct, n, chance, np.stack([np.ones_like(tries), tries]), log10=True))
    return settings.with_columns(
        max_random_on_train=pl.Series(np.asarray(max_random_accuracy(n, chance, tries))),
        log10_standard_tail=pl.Series(tails[0]),
        log10_max_tail=pl.Series(tails[1]),
    )
