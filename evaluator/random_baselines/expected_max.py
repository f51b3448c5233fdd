"""What a search is expected to find: a value of each prompt goes in, the expected best of several of them comes out.

Two ways to take the several, of which a search's own curve has the first and the published figures the second: prompts
that are all different, and draws in which a prompt may come again, counts as another try, and finds nothing new.
"""

import numpy as np
import numpy.typing as npt

from evaluator.random_baselines.binomial import FloatArray


def expected_maximum(values: npt.ArrayLike, tries: npt.ArrayLike) -> FloatArray:
    """Mean of the highest value over all subsets of `tries` prompts: exact, no resampling; shape of `tries`.

    Args:
        values: [prompts], one accuracy or count a prompt, in any order.
        tries: whole numbers from 1 to the number of prompts; all of them find the highest value.

    The highest of m prompts out of T is at most v with probability C(N, m) / C(T, m), where N prompts have at most v.
    """
    distinct, at_most = _steps(values)
    n_prompts, n_tries = np.size(values), np.asarray(tries)
    assert ((n_tries >= 1) & (n_tries <= n_prompts)).all(), "from one try to as many as there are prompts"
    drawn_before = np.arange(n_prompts)
    chosen = np.clip(at_most[:, None] - drawn_before, 0, None) / (n_prompts - drawn_before)
    return _mean(distinct, np.cumprod(chosen, axis=1)[:, n_tries - 1])


def expected_maximum_of_draws(values: npt.ArrayLike, tries: npt.ArrayLike) -> FloatArray:
    """Expected highest value among `tries` prompts drawn at random, with replacement; shape of `tries`.

    Args:
        values: [prompts], one accuracy or count a prompt, in any order.
        tries: whole numbers from 1; however many, they never quite find the highest value.

    Source: Dodge et al. 2019, "Show Your Work", section 3.1; used in Yauney & Mimno 2024, section 5.1.
    """
    distinct, at_most = _steps(values)
    n_tries = np.asarray(tries)
    assert (n_tries >= 1).all(), "one try at least"
    return _mean(distinct, np.power.outer(at_most / np.size(values), n_tries))


def _steps(values: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The distinct values, ascending, and how many prompts have at most each of them but the highest."""
    distinct, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    assert len(distinct), "values of one prompt at least"
    return distinct, counts.cumsum()[:-1].astype(np.float64)


def _mean(distinct: FloatArray, at_most: FloatArray) -> FloatArray:
    """Mean of a highest value that is at most each of the distinct ones but the last with probability [value, ...]."""
    return np.asarray(distinct[-1] - np.diff(distinct) @ at_most)
