"""Build the prompts that methods add to a suite's prompts.

Calibrating methods need training prompts, whose query is without content, random words, or a labelled example. Their
demonstrations are rows of the calibration split, drawn as in the toolkit under every definition: with repetition, so a
prompt can show an example twice. (With a user's data no prompt shows its own query: hidden_states.labelled_prompts.)

The noisy channel needs prompts that show the label before the text, with one request for each query and label.
"""

import dataclasses

import numpy as np
import polars as pl

from evaluator.arrays import Floats, Ints
from evaluator.config import Definition
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lcg import Lcg
from evaluator.errors import DatasetError
from evaluator.prompts.rows import (
    ASKS_TEXT,
    NOT_VARIED,
    classification_prompts,
    prompt_spans,
    render_prompts,
    with_query_span,
)

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = rf"[{_UNSPACED}]|[^ {_UNSPACED}]+"


def empty_queries(n_queries: int, n_fields: int) -> pl.Series:
    """Return queries whose text fields are all empty, List[String], [n_queries]."""
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
    """Draw queries of random words from the texts of `source`.

    Texts are split into words at spaces, under `paper` also into the characters of scripts without spaces. Cho & Inoue
    2025 (section 3.3, after Fei et al. 2023) draw tokens by their frequency instead; words make the prompts independent
    of the model. Under `paper` every occurrence of a word in the field is equally likely. Under `released`, as in the
    toolkit, a generator with a fixed seed draws a row and then one of its words, but never the last row or the last
    word. So a word of a short text is more likely than a word of a long text, and two consecutive spaces contain an
    empty word, which can be drawn.

    Args:
        source: a split, in the schema datasets.base.EXAMPLES.
        n_queries: number of queries.
        n_words: number of words of each text field, which are joined by spaces.
        definition: "paper" or "released".
        seed: seed of the draws under `paper`.
        source_name: name of the source in error messages.

    Returns:
        List[String], [n_queries], the texts of the fields.

    Raises DatasetError if a text field of the source has no words.
    """
    # The words of each row, List[String], for each text field.
    n_fields = len(source["texts"][0]) if source.height else 0
    texts = (source["texts"].list.get(field).str for field in range(n_fields))
    fields = [text.split(" ") if definition == "released" else text.extract_all(_WORD) for text in texts]
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
        occurrences = [words.explode().drop_nulls() for words in fields]
        ranks = [(draws[:, field].ravel() * len(words)).astype(np.int64) for field, words in enumerate(occurrences)]
        drawn = [words.gather(rank) for words, rank in zip(occurrences, ranks, strict=True)]
    return pl.select(
        pl.concat_list(pl.lit(words.reshape((n_queries, n_words)).arr.join(" ")) for words in drawn)
    ).to_series()


def _row_then_word(words: pl.Series, draws: Floats) -> pl.Series:
    """Return words drawn as in the toolkit, which scales draws to the number of items minus one and rounds down.

    Args:
        words: List[String], the words of each row.
        draws: numbers in [0, 1), in pairs for the row and for the word.
    """
    row_draws, word_draws = draws.reshape(-1, 2).T
    n_words = words.list.len().to_numpy().astype(np.int64)
    row = (row_draws * (len(words) - 1)).astype(np.int64)
    word = (word_draws * (n_words[row] - 1)).astype(np.int64)
    first_of_row = np.cumsum(n_words) - n_words
    return words.explode().gather(first_of_row[row] + word)


# Number of training prompts: "128 additional samples for the additional inference" (Cho & Inoue 2025, appendix B.2).
N_SAMPLES = 128


def training_draws(dataset: ClassificationDataset, *, n_draws: int, n_samples: int = N_SAMPLES) -> Ints:
    """Draw rows of the calibration split for training prompts.

    The rows of a prompt are its demonstrations in prompt order and, if its query is a labelled example, the query last.
    One generator draws for all prompts, so that prompts with a drawn query have other demonstrations than prompts with
    an artificial query.

    Returns:
        Rows of the calibration split, int64, [n_samples, n_draws].

    Raises DatasetError if the dataset has no calibration rows.
    """
    size = dataset.calibration.height
    if not size:
        raise DatasetError(
            f"{dataset.name} has no calibration examples, and calibrating methods learn from them. Give it more "
            "training rows, or leave out the methods that calibrate (--methods)."
        )
    # Multiply in float64 and round down, as the toolkit does: integer arithmetic would give other numbers.
    return (Lcg().floats(n_samples * n_draws) * size).astype(np.int64).reshape(n_samples, n_draws)


def training_requests(
    dataset: ClassificationDataset, *, part: str, queries: pl.Series, demonstration_ids: Ints
) -> pl.DataFrame:
    """Build one request for each training prompt, in the columns of Suite.requests; query_id and gold are null.

    Args:
        dataset: the dataset.
        part: `part` of the requests.
        queries: List[String], [n], the texts of each prompt's query.
        demonstration_ids: rows of the calibration split, [n, n_shots].
    """
    text = classification_prompts(
        dataset,
        queries=queries,
        demonstrations=dataset.calibration,
        demonstration_ids=demonstration_ids,
    )
    return text.with_columns(
        part=pl.lit(part),
        position=pl.int_range(pl.len()),
        query_id=pl.lit(None, pl.Int64),
        **NOT_VARIED,
        gold=pl.lit(None, pl.Int64),
    )


# Texts after the label and after the last text field, which the toolkit uses in place of those of the template.
LABEL_AFFIX = " "
LAST_INPUT_AFFIX = "\n"


def noisy_channel_requests(
    dataset: ClassificationDataset, rows: pl.DataFrame, *, part: str, n_shots: int, definition: Definition
) -> pl.DataFrame:
    r"""Build noisy-channel requests with the queries and demonstrations of `rows`, one for each label.

    With one demonstration of one text field, a text reads

        instruction
        label_prefix label " " prefix_0 text_0 "\n"                 (the demonstration)
        label_prefix label " " query_prefix prefix_0 text_0 "\n"    (the query, after the label that is tried)

    with nothing between the parts. Under `released` the request is for the likelihood of the whole text, under `paper`
    for that of only the query, from its first text field to the "\n". So the end of a text is scored too, as with the
    end token in the code of Min et al. 2022, and even an empty text has a likelihood. The words between several fields
    are scored as well; they are the same after every label. In `spans`, `label` is the start of the text after the
    label.

    Args:
        dataset: the dataset.
        rows: Normal requests with n_shots demonstrations, in the columns of Suite.requests.
        part: `part` of the new requests.
        n_shots: number of demonstrations.
        definition: "paper" or "released".

    Returns:
        Requests with the columns of `rows`. `label_tried` is the label; `position` is that of the Normal request times
        the number of labels, plus the label; other columns, except those of the prompt, are from the Normal request.
    """
    n_labels = len(dataset.verbalizer.label_names)
    label = _label(dataset, pl.col("label_tried"))
    start = dataset.template.input_prefixes[0]
    before, query = pl.concat_str("before", label, pl.lit(dataset.template.query_prefix)), pl.col("query")
    if definition == "paper":
        columns = {
            "prompt": pl.concat_str(before, pl.lit(start)),
            "ask": pl.lit("labels"),
            "continuations": pl.concat_list(query.str.strip_prefix(start)),
        }
    else:
        columns = {"prompt": pl.concat_str(before, query), **ASKS_TEXT}
    spans = with_query_span(pl.col("shown"), pl.col("before"), pl.concat_str(before, pl.lit(start)), columns["prompt"])
    # One row for each prompt and label.
    labels = pl.lit(list(range(n_labels)), pl.List(pl.Int64))
    each_label = _with_texts(dataset, rows, n_shots).with_columns(label_tried=labels).explode("label_tried")
    position = pl.col("position") * n_labels + pl.col("label_tried")
    return each_label.with_columns(part=pl.lit(part), position=position, spans=spans, **columns).select(rows.columns)


def _with_texts(dataset: ClassificationDataset, rows: pl.DataFrame, n_shots: int) -> pl.DataFrame:
    """Add the columns `before`, `shown` and `query` to requests.

    `before` is the text in front of the query's label, `shown` the spans of the demonstrations, and `query` the query's
    text after the label.
    """
    template = dataset.template
    label_first = dataclasses.replace(template, input_affixes=(*template.input_affixes[:-1], LAST_INPUT_AFFIX))
    inputs = label_first.inputs(pl.col("texts"))
    label = _label(dataset, pl.col("gold"))
    # Render each demonstration once, for all prompts that show it.
    ids = rows["demonstration_ids"].list.to_array(n_shots).to_numpy().reshape(rows.height, n_shots)
    distinct, places = np.unique(ids, return_inverse=True)
    shown = dataset.demonstration[distinct].select(
        text=pl.concat_str(label, inputs),
        label=pl.concat_str(label, pl.lit(template.input_prefixes[0])).str.len_chars(),
    )
    shown_rows = places.reshape(ids.shape)
    return rows.with_columns(
        before=render_prompts(template.instruction, shown["text"], shown_rows),
        shown=prompt_spans(template.instruction, shown, shown_rows),
        query=dataset.test[rows["query_id"]].select(text=inputs)["text"],
    )


def _label(dataset: ClassificationDataset, index: pl.Expr) -> pl.Expr:
    prefix = pl.lit(dataset.template.label_prefix)
    return pl.concat_str(prefix, dataset.verbalizer.text(index), pl.lit(LABEL_AFFIX))
