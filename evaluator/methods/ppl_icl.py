"""PPL-ICL: begin every prompt with the instruction that has the lowest perplexity under the model.

Source: Gonen et al. 2023, "Demystifying Prompts in Language Models via Perplexity Estimation": prompts of lower
perplexity do better. The perplexity is that of the instruction alone, without any query, as in the toolkit
(`prompt_template_edit.py`). The two definitions differ only in the score of labels.
"""

from collections.abc import Iterator

import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import ConfigError
from evaluator.methods.base import (
    NO_QUERY,
    Method,
    MethodContext,
    MethodPrompts,
    ScoredRequests,
    label_score,
    softmax_of,
)
from evaluator.prompts.render import NO_SPANS, shifted
from evaluator.prompts.rows import ASKS_TEXT

CANDIDATES_PART = "ppl_icl_instructions"
PART = "ppl_icl"


def requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield a request for the text of each instruction of the dataset; `template` is its index.

    Raises ConfigError where the dataset has none.
    """
    dataset = context.classification
    if not dataset.instructions:
        raise ConfigError(
            f"The method ppl_icl chooses among a dataset's instructions, and {dataset.name} has none. Leave the method "
            "out (--methods), or name other datasets (--datasets)."
        )
    rows = pl.DataFrame({"prompt": dataset.instructions}).with_columns(
        part=pl.lit(CANDIDATES_PART),
        dataset=pl.lit(dataset.name),
        **NO_QUERY,
        label_names=pl.lit(list(dataset.verbalizer.label_names)),
        spans=NO_SPANS,
        **ASKS_TEXT,
    )
    instruction = pl.int_range(pl.len())
    yield rows.with_columns(template=instruction, position=instruction).select(context.columns)


def follow_up(context: MethodContext, scored: ScoredRequests) -> Iterator[pl.DataFrame]:
    """Yield the prompts of the classification part with the chosen instruction in place of the template's."""
    dataset = context.classification
    original, chosen = dataset.template.instruction, chosen_instruction(dataset, scored)
    instructed = pl.concat_str(pl.lit(chosen), pl.col("prompt").str.strip_prefix(original))
    spans = shifted(pl.col("spans"), len(chosen) - len(original))
    for rows in context.frames():
        yield rows.with_columns(part=pl.lit(PART), prompt=instructed, spans=spans)


def chosen_instruction(dataset: ClassificationDataset, scored: ScoredRequests) -> str:
    """Return the instruction with the lowest mean loss per token, hence the lowest perplexity; the first of equals."""
    mean = pl.col("label_log_likelihoods").list.first() / pl.col("label_token_counts").list.first()
    candidates = scored.rows.filter(part=CANDIDATES_PART, dataset=dataset.name)
    ranked = candidates.select("template", loss=-mean).sort("loss", "template").collect()
    instruction: int = ranked["template"][0]
    return dataset.instructions[instruction]


PPL_ICL = Method(
    summary="The most likely label after the instruction of the lowest perplexity.",
    label_probs=softmax_of(label_score, PART),
    prompts=MethodPrompts(requests=requests, follow_up=follow_up),
    part_kinds=("classification",),
)
