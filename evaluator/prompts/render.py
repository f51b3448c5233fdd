"""Join rendered demonstrations and queries to prompts. (Templates render single examples.)"""

import polars as pl

from evaluator.datasets.lcg import Ints
from evaluator.templates.template import MetaTemplate, Verbalizer


def render_prompts(opening: str, demonstrations: pl.Series, rows: Ints, queries: pl.Series | None = None) -> pl.Series:
    """Join each prompt's opening, demonstrations and query, with nothing between them: String [n].

    Args:
        opening: text at the start of every prompt.
        demonstrations: String, rendered examples to show.
        rows: which of them each prompt shows, in prompt order, [n, n_shots].
        queries: String [n], rendered; if left out, prompts end before the query.
    """
    openings = pl.Series([opening]).new_from_index(0, len(rows))
    shown = [demonstrations.gather(column) for column in rows.T]
    parts = [openings, *shown] if queries is None else [openings, *shown, queries]
    return pl.select(prompt=pl.concat_str(map(pl.lit, parts)))["prompt"]


def classification_prompts(
    template: MetaTemplate,
    verbalizer: Verbalizer,
    *,
    queries: pl.Series,
    demonstrations: pl.DataFrame,
    demonstration_ids: Ints,
    shown_labels: Ints | None = None,
) -> pl.Series:
    """Render labelled examples and join them to prompts: String [n].

    Args:
        queries: List[String] [n], the texts of each prompt's query, one per field of the template.
        demonstrations: any split, of the schema datasets.base.EXAMPLES.
        demonstration_ids: rows of `demonstrations` that each prompt shows, [n, n_shots].
        shown_labels: indices of the labels that they are shown with, [n, n_shots]; the gold labels if left out.
    """
    if shown_labels is None:
        shown_labels = demonstrations["gold"].to_numpy()[demonstration_ids]
    # Render each example once with each label, however many prompts show it: row = example * number of labels + label.
    n_labels = len(verbalizer.label_names)
    each_label = demonstrations.select("texts", label=pl.lit(list(range(n_labels)))).explode("label")
    rendered = each_label.select(text=template.demonstration(pl.col("texts"), verbalizer.text(pl.col("label"))))
    rendered_queries = pl.select(text=template.query(pl.lit(queries)))["text"]
    rows = demonstration_ids * n_labels + shown_labels
    return render_prompts(template.instruction, rendered["text"], rows, rendered_queries)
