"""What a search over prompts is expected to find: accuracies go in, the expected best of several comes out."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def expected_max_accuracy(accuracies: npt.ArrayLike, tries: npt.ArrayLike) -> FloatArray:
    """Expected highest accuracy among `tries` prompts drawn at random, with replacement, from those evaluated.

    Args:
        accuracies: [prompts], one accuracy a prompt, in any order.
        tries: [...], whole numbers from 1.

    Returns:
        [...], the sum over i of a_i ((i / N)^t - ((i - 1) / N)^t), accuracies a_1 <= ... <= a_N. With t = 1 it is the
        mean; as t grows it comes near the highest accuracy and, drawn with replacement, never quite reaches it.

    Source: Dodge et al. 2019, "Show Your Work", section 3.1; used in Yauney & Mimno 2024, section 5.1.
    """
    ascending = np.sort(np.asarray(accuracies, dtype=np.float64))
    n_tries = np.asarray(tries, dtype=np.float64)
    assert len(ascending), "accuracies of one prompt at least"
    assert (n_tries >= 1).all(), "one try at least"
    cdf = np.arange(len(ascending) + 1) / len(ascending)
    return np.diff(cdf ** n_tries[..., None], axis=-1) @ ascending
