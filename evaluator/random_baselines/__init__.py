"""Compute the distribution of the accuracy of the best of several random classifiers."""

from evaluator.random_baselines.max_random import (
    max_random_accuracy,
    max_random_cdf,
    max_random_pmf,
    max_random_quantile,
    max_random_tail,
)

__all__ = ["max_random_accuracy", "max_random_cdf", "max_random_pmf", "max_random_quantile", "max_random_tail"]
