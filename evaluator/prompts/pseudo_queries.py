"""Make queries without content: empty texts, or words drawn at random from a split."""

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
    """Draw queries of `n_words` words per text field from `source`, joined by spaces; List[String] [n_queries].

    Texts are split into words at spaces. Cho & Inoue 2025 (section 3.3, after Fei et al. 2023) draw tokens by their
    frequency instead; words make the prompts independent of the model. Under `paper` every occurrence of a word in its
    field is equally likely. Under `released`, as in the toolkit, a row is drawn and then one of its words, but never
    the last row or the last word, by a generator with a fixed seed. So a word of a short text is more likely than one
    of a long text, and two spaces in a row contain an empty word, which can be drawn.

    Args:
        source: a split, of the schema datasets.base.EXAMPLES.
        seed: of the draws under `paper`.
        source_name: name of the source in error messages.

    Raises DatasetError if a text field of the source has no words.
    """
    fields = _words_by_field(source)
    if not fields or any(words.list.join("").str.len_bytes().sum() == 0 for words in fields):
        raise DatasetError(
            f"{source_name} has no words to draw domain queries from. Give it rows with words, or leave out the suites "
            "and methods that ask domain queries."
        )
    shape = (n_queries, len(fields), n_words)
    if definition == "released":
        draws = Lcg().floats(2 * n_queries * len(fields) * n_words).reshape(*shape, 2)
        drawn = [_row_then_word(words, draws[:, field]) for field, words in enumerate(fields)]
    else:
        draws = np.random.default_rng(seed).random(shape)
        drawn = [_any_word(words, draws[:, field]) for field, words in enumerate(fields)]
    return pl.select(
        pl.concat_list(pl.lit(words.reshape((n_queries, n_words)).arr.join(" ")) for words in drawn)
    ).to_series()


def _words_by_field(source: pl.DataFrame) -> list[pl.Series]:
    """Return for each text field the words of each row, List[String]."""
    n_fields = len(source["texts"][0]) if source.height else 0
    return [source["texts"].list.get(field).str.split(" ") for field in range(n_fields)]


def _any_word(words: pl.Series, draws: npt.NDArray[np.float64]) -> pl.Series:
    occurrences = words.explode()
    occurrences = occurrences.filter(occurrences != "")
    return occurrences.gather((draws.ravel() * len(occurrences)).astype(np.int64))


def _row_then_word(words: pl.Series, draws: npt.NDArray[np.float64]) -> pl.Series:
    """Draw a row and one of its words as the toolkit does: it scales draws to the number minus one, and rounds down."""
    row_draws, word_draws = draws.reshape(-1, 2).T
    n_words = words.list.len().to_numpy().astype(np.int64)
    row = (row_draws * (len(words) - 1)).astype(np.int64)
    word = (word_draws * (n_words[row] - 1)).astype(np.int64)
    first_of_row = np.cumsum(n_words) - n_words
    return words.explode().gather(first_of_row[row] + word)
