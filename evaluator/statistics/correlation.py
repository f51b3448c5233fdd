"""The p-value of a correlation."""

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

Floats = npt.NDArray[np.float64]


def correlation_p(r: npt.ArrayLike, n: npt.ArrayLike) -> Floats:
    """Return the two-sided probability of a correlation at least this far from 0 between n independent normal pairs.

    Broadcasts; NaN for NaN and for fewer than three pairs. For rank correlations it is an approximation, as in SciPy.

    Args:
        r: Pearson's correlation, or Spearman's.
        n: numbers of pairs.
    """
    correlation, size = np.asarray(r, dtype=np.float64), np.asarray(n, dtype=np.float64)
    half_df = np.where(size > 2, (size - 2) / 2, np.nan)
    # With t = r sqrt(df / (1 - r^2)), 1 - r^2 = df / (df + t^2), and Student's tails are a beta function of that.
    return np.asarray(betainc(half_df, 0.5, np.clip((1 - correlation) * (1 + correlation), 0, 1)), dtype=np.float64)
