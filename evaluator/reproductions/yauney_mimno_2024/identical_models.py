"""Pairs of models whose losses are equal bit for bit, so that they were one and the same model."""

import polars as pl

from evaluator.reproductions.yauney_mimno_2024.schema import PUBLISHED_IDENTICAL

SHARED = ["dataset", "shots", "demonstration_ids"]
"""What makes prompts of two models the same prompt."""


def identical_models(prompts: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_IDENTICAL: pairs of models with prompts on which every loss of both is the same, bit for bit.

    Different weights do not give equal losses on whole prompts, so such models were loaded from the same ones.
    Prompts that lost their query are left out: what they leave may be the same for anyone. Models are compared where
    they happened to draw the same demonstrations, mostly with one shot; elsewhere nothing is known.

    Args:
        prompts: rows of `read_prompts` with the column `with_query`.
    """
    usable = prompts.filter("with_query").select("model", "losses_fingerprint", *SHARED)
    shared = _pairs(usable, SHARED).rename({"prompts": "shared_prompts"})
    identical = _pairs(usable, [*SHARED, "losses_fingerprint"]).rename({"prompts": "identical_prompts"})
    pairs = identical.join(shared, on=["dataset", "shots", "model", "other_model"], how="left")
    return pairs.select(list(PUBLISHED_IDENTICAL)).cast(PUBLISHED_IDENTICAL).sort("dataset", "shots", "model")


def _pairs(prompts: pl.DataFrame, on: list[str]) -> pl.DataFrame:
    """How many different prompts two models have in common, for each pair that has any."""
    both = prompts.join(prompts.rename({"model": "other_model"}).select("other_model", *on), on=on, how="inner")
    return (
        both.filter(pl.col("model") < pl.col("other_model"))
        .group_by("dataset", "shots", "model", "other_model")
        .agg(prompts=pl.col("demonstration_ids").n_unique())
    )


def same_losses_as(experiments: pl.DataFrame, pairs: pl.DataFrame) -> pl.Series:
    """For each experiment, the other model that is the same there, or null."""
    swapped = pairs.rename({"model": "other_model", "other_model": "model"}).select(pairs.columns)
    others = pl.concat([pairs, swapped]).group_by("dataset", "shots", "model").agg(pl.col("other_model").sort())
    found = experiments.select("dataset", pl.col("shots").cast(pl.Int64), "model").join(
        others, on=["dataset", "shots", "model"], how="left", maintain_order="left"
    )
    return found["other_model"].list.join(", ").rename("same_losses_as")
