"""Judge the best prompt of each published experiment by several sets of rules, the authors' and sounder ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import polars as pl

from evaluator.arrays import Floats
from evaluator.random_baselines.max_random import is_above, max_random_accuracy, verdict, verdict_counts
from evaluator.reproductions.yauney_mimno_2024.data import EXPERIMENT, EXPERIMENT_COLUMNS, TASKS, Mix
from evaluator.schemas import declare

PUBLISHED_VERDICTS = declare(  # one row an experiment and set of rules; rules.py has them
    **EXPERIMENT_COLUMNS,
    rules=pl.String(),
    n=pl.Int64(),  # examples the baselines are for
    chance=pl.Float64(),  # the standard baseline: mean chance of guessing an example right
    tries=pl.Int64(),
    max_random=pl.Float64(),  # expected accuracy of the best of `tries` random classifiers
    verdict=pl.String(),  # Verdict of random_baselines/max_random.py
)
PUBLISHED_TOTALS = declare(
    rules=pl.String(),
    n_experiments=pl.Int64(),
    above_standard=pl.Int64(),
    above_max=pl.Int64(),
    disagreements=pl.Int64(),  # above the standard baseline and not above the maximum random one
    flipped_share=pl.Float64(),  # disagreements / above_standard
)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """A set of rules for judging an experiment; "stated" is the rule of the authors' `full-results.py`."""

    name: str
    # Examples: rows of the task minus demonstrations, at most 200 | the examples with a prediction.
    n: Literal["stated", "present"]
    # Chances: one for each task | one for each example, in logical_deduction only | one for each example.
    chance: Literal["stated", "logical_deduction", "task"]
    # Prompts: 200, or the rows of a smaller task with one shot | the different prompts that were run.
    tries: Literal["stated", "distinct"]
    # Above a baseline: >= the standard one and > the maximum one | > both, as in the rest of this package.
    above: Literal["stated", "more"]


RELEASED = Rules(name="released", n="stated", chance="stated", tries="stated", above="stated")
N_PRESENT = Rules(name="n present", n="present", chance="stated", tries="stated", above="stated")
LOGICAL_DEDUCTION = replace(N_PRESENT, name="+ choices of logical_deduction", chance="logical_deduction")
ALL_CHOICES = Rules(name="+ choices of every task", n="present", chance="task", tries="stated", above="stated")
DISTINCT = Rules(name="+ distinct prompts", n="present", chance="task", tries="distinct", above="stated")
SOUND = Rules(name="sound", n="present", chance="task", tries="distinct", above="more")
DISTINCT_ALONE = Rules(name="distinct prompts alone", n="stated", chance="stated", tries="distinct", above="stated")

STEPS = (RELEASED, N_PRESENT, LOGICAL_DEDUCTION, ALL_CHOICES, DISTINCT, SOUND)
"""From the authors' rules to sound ones, with one change a step: the reason for a verdict that changes at that step."""

ALL_RULES = (*STEPS, DISTINCT_ALONE)


def best_prompts(prompts: pl.DataFrame) -> pl.DataFrame:
    """Return the best prompt of each experiment (the lowest id of equals), its accuracy, and counts of prompts.

    Args:
        prompts: rows of `read_prompts`.
    """
    measured = prompts.with_columns(accuracy=pl.col("correct") / pl.col("n_examples"))
    best_first = measured.sort([*EXPERIMENT, -pl.col("accuracy"), "prompt_id"])
    return best_first.group_by(EXPERIMENT, maintain_order=True).agg(
        best_prompt=pl.col("prompt_id").first(),
        n=pl.col("n_examples").first(),
        correct=pl.col("correct").first(),
        accuracy=pl.col("accuracy").first(),
        n_best=(pl.col("accuracy") == pl.col("accuracy").first()).sum(),
        n_prompts=pl.len(),
        n_distinct_prompts=pl.col("demonstration_ids").n_unique(),
        n_without_query=(~pl.col("with_query")).sum(),
        best_without_query=~pl.col("with_query").first(),
        demonstration_ids=pl.col("demonstration_ids").first(),
    )


def judge(experiments: pl.DataFrame, mixes: Sequence[Mix]) -> pl.DataFrame:
    """Return PUBLISHED_VERDICTS: every experiment under each of ALL_RULES, rules in their order.

    Args:
        experiments: rows of `best_prompts`.
        mixes: for each, the chances of the examples that its best prompt was scored on.
    """
    return pl.concat([_judge(experiments, mixes, rules) for rules in ALL_RULES])


def _judge(experiments: pl.DataFrame, mixes: Sequence[Mix], rules: Rules) -> pl.DataFrame:
    n, used, tries = [], list[Mix](), []
    for row, mix in zip(experiments.to_dicts(), mixes, strict=True):
        task = TASKS[row["dataset"]]
        n.append(row["n"] if rules.n == "present" else task.stated_n(row["shots"]))
        used.append(mix if rules.chance in ("task", row["dataset"]) else {task.stated_chance: n[-1]})
        tries.append(row["n_distinct_prompts"] if rules.tries == "distinct" else task.stated_tries(row["shots"]))
    chances = [sum((chance * count for chance, count in mix.items()), Fraction()) / sum(mix.values()) for mix in used]
    judged = experiments.select(
        *EXPERIMENT,
        pl.lit(rules.name).alias("rules"),
        pl.Series("n", n),
        pl.Series("chance", [float(chance) for chance in chances]),
        pl.Series("tries", tries),
        pl.Series("max_random", np.asarray(max_random_accuracy(n, [per_example(mix) for mix in used], tries))),
        "accuracy",
    )
    return judged.with_columns(verdict=_verdict(rules)).drop("accuracy").cast(PUBLISHED_VERDICTS)


def per_example(mix: Mix) -> Floats:
    """Return the chances of all examples, [examples], in any order."""
    return np.repeat([float(chance) for chance in mix], list(mix.values()))


def _verdict(rules: Rules) -> pl.Expr:
    """Return the verdict on an accuracy.

    The two ways to judge differ where the accuracy equals chance, which is the case in no published experiment.
    """
    accuracy, chance, max_random = pl.col("accuracy"), pl.col("chance"), pl.col("max_random")
    if rules.above == "more":
        return verdict(accuracy, chance, max_random)
    return (
        pl.when(is_above(chance, accuracy))
        .then(pl.lit("below both"))
        .when(is_above(accuracy, max_random))
        .then(pl.lit("above both"))
        .otherwise(pl.lit("between"))
    )


def totals(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_TOTALS: counts of verdicts under each set of rules, in the order of the verdicts' rows."""
    by_rules = verdicts.group_by("rules", maintain_order=True)
    return by_rules.agg(n_experiments=pl.len(), **verdict_counts()).cast(PUBLISHED_TOTALS)


def reasons(verdicts: pl.DataFrame) -> list[str | None]:
    """Explain why the sound verdict of each experiment differs from the released one; None where it does not.

    Each of STEPS keeps the changes before it. An explanation names the steps at which the verdict changed.

    Args:
        verdicts: of one or more experiments under all rules of STEPS.
    """
    by_rules = {name: rows for (name,), rows in verdicts.partition_by("rules", as_dict=True).items()}
    steps = [by_rules[rules.name].iter_rows(named=True) for rules in STEPS]
    return [_reason(rows) for rows in zip(*steps, strict=True)]


def _reason(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Explain one experiment, given its rows in the order of STEPS."""
    if rows[0]["verdict"] == rows[-1]["verdict"]:
        return None
    steps = [(before, after) for before, after in pairwise(rows) if before["verdict"] != after["verdict"]]
    return "; ".join(f"{_change(before, after)}: {after['verdict']}" for before, after in steps)


def _change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if before["n"] != after["n"]:
        return f"{after['n']} examples are there, not {before['n']}"
    if before["tries"] != after["tries"]:
        return f"{after['tries']} different prompts ran, not {before['tries']}"
    if before["chance"] != after["chance"]:
        return f"a guess is right with probability {after['chance']:.4g}, not {before['chance']:.4g}"
    return "an accuracy equal to a baseline is not above it"
