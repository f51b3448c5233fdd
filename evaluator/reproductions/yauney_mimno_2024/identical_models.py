"""Find pairs of models whose losses are equal bit for bit, so that they had the same weights."""

import polars as pl

from evaluator.reproductions.yauney_mimno_2024.schema import PUBLISHED_IDENTICAL

SHARED = ["dataset", "shots", "demonstration_ids"]
"""Columns that are equal for the same prompt of two models."""


def identical_models(prompts: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_IDENTICAL: pairs of models with prompts on which every loss of both is equal, bit for bit.

    Different weights do not give equal losses on all examples of a prompt, so such models were loaded from the same
    weights. Prompts that lost their query are left out, because any two models may agree on them. Models can be
    compared only if they happen to have prompts with the same demonstrations, which is so mostly with one shot.

    Args:
        prompts: rows of `read_prompts` with the column `with_query`.
    """
    usable = prompts.filter("with_query").select("model", "losses_fingerprint", *SHARED)
    shared = _pairs(usable, SHARED).rename({"prompts": "shared_prompts"})
    identical = _pairs(usable, [*SHARED, "losses_fingerprint"]).rename({"prompts": "identical_prompts"})
    pairs = identical.join(shared, on=["dataset", "shots", "model", "other_model"], how="left")
    return pairs.select(list(PUBLISHED_IDENTICAL)).cast(PUBLISHED_IDENTICAL).sort("dataset", "shots", "model")


def _pairs(prompts: pl.DataFrame, on: list[str]) -> pl.DataFrame:
    """Count the different prompts that two models share, for each pair of models that shares any."""
    both = prompts.join(prompts.rename({"model": "other_model"}).select("other_model", *on), on=on, how="inner")
    return (
        both.filter(pl.col("model") < pl.col("other_model"))
        .group_by("dataset", "shots", "model", "other_model")
        .agg(prompts=pl.col("demonstration_ids").n_unique())
    )


def same_losses_as(experiments: pl.DataFrame, pairs: pl.DataFrame) -> pl.Series:
    """Return, for each experiment, the names of models with the same losses in it, or null."""
    # Each pair in both directions, so that both of its models have a row.
    swapped = pairs.rename({"model": "other_model", "other_model": "model"}).select(pairs.columns)
    others = pl.concat([pairs, swapped]).group_by("dataset", "shots", "model").agg(pl.col("other_model").sort())
    rows = experiments.select("dataset", pl.col("shots").cast(pl.Int64), "model").join(
        others, on=["dataset", "shots", "model"], how="left", maintain_order="left"
    )
    return rows["other_model"].list.join(", ").rename("same_losses_as")
