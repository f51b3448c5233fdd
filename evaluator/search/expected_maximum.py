"""The best of fewer tries: what would have been found, on average, had only so many of the prompts been tried."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def expected_maximum(correct: Ints, tries: Ints) -> npt.NDArray[np.float64]:
    """Mean of the largest count over all subsets of `tries` prompts: exact, no resampling; shape of `tries`.

    Args:
        correct: [n_prompts], answers that each prompt has right.
        tries: from 1 to n_prompts.

    The maximum of m prompts drawn without replacement from T is at most v with probability C(N, m) / C(T, m), where N
    prompts have at most v right. Dodge et al. 2019, equation 6, draw with replacement, which counts a prompt that is
    drawn twice as two tries and so finds less.
    """
    values, counts = np.unique(correct, return_counts=True)
    drawn_before = np.arange(len(correct))
    at_most = counts.cumsum()[:-1, None]  # N of every value but the largest
    chosen = np.clip(at_most - drawn_before, 0, None) / (len(correct) - drawn_before)
    never_above = np.cumprod(chosen, axis=1)[:, np.asarray(tries) - 1]  # [value, tries]
    return np.asarray(values[-1] - np.diff(values) @ never_above)
