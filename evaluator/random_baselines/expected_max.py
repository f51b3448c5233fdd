"""Compute the expected best value of several prompts from the values of all prompts.

The prompts are drawn without replacement (expected_maximum, for the curve of a search) or with replacement
(expected_maximum_of_draws, for the published figures).
"""

import numpy as np
import numpy.typing as npt

from evaluator.random_baselines.binomial import FloatArray


def expected_maximum(values: npt.ArrayLike, tries: npt.ArrayLike) -> FloatArray:
    """Return the mean of the highest value over all subsets of `tries` prompts, exactly; shape of `tries`.

    Args:
        values: [prompts], one accuracy or count a prompt, in any order.
        tries: whole numbers from 1 to the number of prompts; the last gives the highest value.

    The highest of m prompts out of T is at most v with probability C(N, m) / C(T, m), where N prompts have at most v.
    """
    distinct, at_most = _steps(values)
    n_prompts, n_tries = np.size(values), np.asarray(tries)
    assert ((n_tries >= 1) & (n_tries <= n_prompts)).all(), "tries are from 1 to the number of prompts"
    # C(N, m) / C(T, m) is the product of (N - i) / (T - i) over i = 0, ..., m - 1.
    drawn_before = np.arange(n_prompts)
    chosen = np.clip(at_most[:, None] - drawn_before, 0, None) / (n_prompts - drawn_before)
    return _mean(distinct, np.cumprod(chosen, axis=1)[:, n_tries - 1])


def expected_maximum_of_draws(values: npt.ArrayLike, tries: npt.ArrayLike) -> FloatArray:
    """Return the expected highest value among `tries` prompts drawn with replacement; shape of `tries`.

    Args:
        values: [prompts], one accuracy or count a prompt, in any order.
        tries: whole numbers from 1; the result approaches the highest value but never reaches it.

    Source: Dodge et al. 2019, "Show Your Work", section 3.1; used in Yauney & Mimno 2024, section 5.1.
    """
    distinct, at_most = _steps(values)
    n_tries = np.asarray(tries)
    assert (n_tries >= 1).all(), "tries are at least 1"
    return _mean(distinct, np.power.outer(at_most / np.size(values), n_tries))


def _steps(values: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the distinct values, ascending, and for each but the highest, how many prompts have at most it."""
    distinct, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    assert len(distinct), "there is at least one prompt"
    return distinct, counts.cumsum()[:-1].astype(np.float64)


def _mean(distinct: FloatArray, at_most: FloatArray) -> FloatArray:
    """Return the mean of a maximum, from P(maximum <= value) for each distinct value but the last, [value, ...]."""
    return np.asarray(distinct[-1] - np.diff(distinct) @ at_most)
