"""Queries that ask about nothing: empty ones, and words drawn at random from a split."""

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.datasets.lcg import Lcg
from evaluator.errors import DatasetError
from evaluator.schemas import Definition


def empty_queries(n_queries: int, n_fields: int) -> pl.Series:
    """Return queries of empty texts, List[String] [n_queries]."""
    return pl.Series([[""] * n_fields], dtype=pl.List(pl.String)).new_from_index(0, n_queries)


def domain_queries(
    source: pl.DataFrame,
    *,
    n_queries: int,
    n_words: int,
    definition: Definition,
    seed: int = 0,
    source_name: str = "The split",
) -> pl.Series:
    """Draw queries of `n_words` words a text field from `source`, joined by spaces; List[String] [n_queries].

    Words are what stands between spaces, so that prompts do not depend on a model: they take the place of the tokens
    that Cho & Inoue 2025 (section 3.3, after Fei et al. 2023) draw by their frequency. Under `paper` every occurrence
    of a word in its field is as likely as any other. Under `released` the toolkit draws a row and then one of its
    words, never the last of either, by a fresh generator of its own that `seed` does not change; so a word of a short
    text is likelier than one of a long text, and where a text has two spaces in a row the empty word is one as well.

    Args:
        source: a split, of the schema datasets.base.EXAMPLES.
        source_name: what an error calls it.

    Raises DatasetError where a text field of the source has no words.
    """
    lists = _words_by_field(source)
    if not lists or any(words.list.join("").str.len_bytes().sum() == 0 for words in lists):
        raise DatasetError(
            f"{source_name} has no words to draw domain queries from. Give it rows with words, or leave out the suites "
            "and methods that ask domain queries."
        )
    shape = (n_queries, len(lists), n_words)
    if definition == "released":
        draws = Lcg().floats(2 * n_queries * len(lists) * n_words).reshape(*shape, 2)
        drawn = [_row_then_word(words, draws[:, field]) for field, words in enumerate(lists)]
    else:
        draws = np.random.default_rng(seed).random(shape)
        drawn = [_any_word(words, draws[:, field]) for field, words in enumerate(lists)]
    return pl.select(
        pl.concat_list(pl.lit(words.reshape((n_queries, n_words)).arr.join(" ")) for words in drawn)
    ).to_series()


def _words_by_field(source: pl.DataFrame) -> list[pl.Series]:
    """Return the words of each row, List[String] a text field."""
    n_fields = len(source["texts"][0]) if source.height else 0
    return [source["texts"].list.get(field).str.split(" ") for field in range(n_fields)]


def _any_word(words: pl.Series, draws: npt.NDArray[np.float64]) -> pl.Series:
    occurrences = words.explode()
    occurrences = occurrences.filter(occurrences != "")
    return occurrences.gather((draws.ravel() * len(occurrences)).astype(np.int64))


def _row_then_word(words: pl.Series, draws: npt.NDArray[np.float64]) -> pl.Series:
    """Draw as the toolkit does: cut towards zero from one less than there are, so that the last is never reached."""
    of_row, of_word = draws.reshape(-1, 2).T
    n_words = words.list.len().to_numpy().astype(np.int64)
    row = (of_row * (len(words) - 1)).astype(np.int64)
    word = (of_word * (n_words[row] - 1)).astype(np.int64)
    first_of_row = np.cumsum(n_words) - n_words
    return words.explode().gather(first_of_row[row] + word)
