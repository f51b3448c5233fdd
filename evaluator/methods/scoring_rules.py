"""Inference methods that predict from log-likelihoods alone.

vanilla, per_token, per_byte and unconditional use the log-likelihoods of labels after the prompt, plain or normalised.
noisy_channel uses the log-likelihood of the query after each label.

ppl_icl begins every prompt with the instruction that has the lowest perplexity under the model. Source: Gonen et al.
2023, "Demystifying Prompts in Language Models via Perplexity Estimation": prompts of lower perplexity do better. Here
it is the perplexity of only the instruction, without a query, as in the toolkit (`prompt_template_edit.py`). The two
definitions of ppl_icl differ only in the score of labels.
"""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from evaluator.config import Definition
from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import ConfigError
from evaluator.methods import base
from evaluator.prompts.method_prompts import noisy_channel_requests
from evaluator.prompts.rows import ASKS_TEXT, NO_SPANS, asks_labels, shifted, with_query_span
from evaluator.schemas import PROMPTS

UNCONDITIONAL_PART, NOISY_CHANNEL_PART = "unconditional", "noisy_channel"
CONTEXT = "Answer:"
"""Context of the unconditional log-likelihood of a label."""

_SPACE = ["suite", "dataset", "label_names"]
_PROMPT = ["suite", "dataset", "query_id", "demonstration_set"]
"""Columns that identify a prompt of the classification part; noisy channel has one request for each label of it."""


VANILLA = base.Method(
    # Cho & Inoue 2025, equation 1.
    summary="The label the model finds most likely after the prompt.",
    label_probs=base.softmax_of(base.label_score),
)


def log_likelihood_per_token(_definition: Definition) -> pl.Expr:
    """Return each label's log-likelihood divided by its number of tokens, List[f64], nats per token.

    So long labels are not penalised.

    Source: Yauney & Mimno 2024, appendix B ("the highest average log-likelihood per token"). Similar methods divide by
    bytes (per_byte), subtract the label's log-likelihood without the prompt (unconditional), or do neither (vanilla);
    all four are in Gao 2021, "Multiple Choice Normalization in LM Evaluation" (blog.eleuther.ai).
    """
    return pl.col("label_log_likelihoods") / pl.col("label_token_counts").cast(pl.List(pl.Float64))


def log_likelihood_per_byte(_definition: Definition) -> pl.Expr:
    """Return each label's log-likelihood divided by the number of UTF-8 bytes of its name, List[f64], nats per byte.

    The divisor does not depend on the tokenizer.

    Source: Gao 2021, "Multiple Choice Normalization in LM Evaluation" (blog.eleuther.ai), "byte-length normalized". A
    space in front of a label is scored but not counted here; Gao 2021 counts every byte of the label's tokens.
    """
    n_bytes = pl.col("label_names").list.eval(pl.element().str.len_bytes().cast(pl.Float64))
    return pl.col("label_log_likelihoods") / n_bytes


PER_TOKEN = base.Method(
    summary="The label of the highest mean log-likelihood per token.",
    label_probs=base.softmax_of(log_likelihood_per_token),
    definitions=("paper",),
)

PER_BYTE = replace(
    PER_TOKEN,
    summary="The label of the highest log-likelihood per byte of its name.",
    label_probs=base.softmax_of(log_likelihood_per_byte),
)


def unconditional_probs(scored: base.ScoredRequests, _definition: Definition) -> pl.LazyFrame:
    """Return queries with the softmax over labels of log P(label | prompt) - log P(label | "Answer:") (PMI).

    Source: Gao 2021, "Multiple Choice Normalization in LM Evaluation" (blog.eleuther.ai), "unconditional likelihood
    normalized", after Brown et al. 2020. The context "Answer:" is the same for all templates, although their prompts
    end differently.
    """
    spaces = scored.rows.filter(part=UNCONDITIONAL_PART).select(*_SPACE, unconditional="label_log_likelihoods")
    queries = scored.queries.join(spaces, on=_SPACE, how="left", maintain_order="left")
    gain = pl.col("label_log_likelihoods") - pl.col("unconditional")
    return queries.with_columns(label_probs=base.softmax(gain)).drop("unconditional")


def unconditional_requests(context: base.MethodContext) -> Iterator[pl.DataFrame]:
    """Yield a frame with one request for each distinct label space. It has no query: query_id and gold are null."""
    spaces = context.rows.select("dataset", "label_names", "continuations").unique(maintain_order=True).collect()
    spaced = pl.col("continuations").list.first().str.starts_with(" ")
    prompt = pl.when(spaced).then(pl.lit(CONTEXT)).otherwise(pl.lit(f"{CONTEXT} "))
    rows = spaces.with_columns(
        part=pl.lit(UNCONDITIONAL_PART),
        position=pl.int_range(pl.len()),
        **base.NO_QUERY,
        prompt=prompt,
        spans=with_query_span(pl.lit([], PROMPTS["spans"]), pl.lit(""), prompt, prompt),
        ask=pl.lit("labels"),
    )
    yield rows.select(context.columns)


UNCONDITIONAL = replace(
    PER_TOKEN,
    summary='The label that the prompt makes likelier than "Answer:" alone does, by the largest factor.',
    label_probs=unconditional_probs,
    prompts=base.MethodPrompts(requests=unconditional_requests),
)


def noisy_channel_probs(scored: base.ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return queries with the softmax, over labels, of the query's log-likelihood after each label.

    `paper`: log P(query | demonstrations, label), summed over the query's tokens (Min et al. 2022, "Noisy Channel
    Language Model Prompting", with a uniform prior over labels). `released` (`model_kernel.py`): minus the mean
    loss over the whole prompt, demonstrations included, which is nearly the same for every label.

    The `prompt_id` of a row is the id of the prompt with the first label.
    """
    # The request of each label has one log-likelihood; the lists of a prompt are collected in label-space order.
    score = pl.col("label_log_likelihoods").list.first()
    if definition == "released":
        score = score / pl.col("label_token_counts").list.first()
    tried = scored.rows.filter(part=NOISY_CHANNEL_PART).sort(*_PROMPT, "label_tried")
    by_prompt = tried.group_by(_PROMPT, maintain_order=True).agg(pl.col("prompt_id").first(), score)
    probs = by_prompt.select(*_PROMPT, "prompt_id", label_probs=base.softmax(pl.col("label_log_likelihoods")))
    return scored.queries.drop("prompt_id").join(probs, on=_PROMPT, maintain_order="left")


def channel_requests(context: base.MethodContext) -> Iterator[pl.DataFrame]:
    """Yield a request for each prompt of the classification part and each label; its text ends in the query."""
    dataset = context.classification
    n_shots, definition = context.config.n_shots, context.config.prompt_definition
    for rows in context.frames():
        yield noisy_channel_requests(dataset, rows, part=NOISY_CHANNEL_PART, n_shots=n_shots, definition=definition)


NOISY_CHANNEL = base.Method(
    summary="The label that makes the query likeliest.",
    label_probs=noisy_channel_probs,
    prompts=base.MethodPrompts(requests=channel_requests, differ=True),
    part_kinds=("classification",),
)


CANDIDATES_PART = "ppl_icl_instructions"
PART = "ppl_icl"


def requests(context: base.MethodContext) -> Iterator[pl.DataFrame]:
    """Yield requests for the likelihood of each instruction of the dataset; `template` is the instruction's index.

    Raises ConfigError if the dataset has no instructions.
    """
    dataset = context.classification
    if not dataset.instructions:
        raise ConfigError(
            f"The method ppl_icl chooses among a dataset's instructions, and {dataset.name} has none. Leave the method "
            "out (--methods), or name other datasets (--datasets)."
        )
    rows = pl.DataFrame({"prompt": dataset.instructions}).with_columns(
        part=pl.lit(CANDIDATES_PART), spans=NO_SPANS, **base.NO_QUERY | asks_labels(dataset) | ASKS_TEXT
    )
    instruction = pl.int_range(pl.len())
    yield rows.with_columns(template=instruction, position=instruction).select(context.columns)


def follow_up(context: base.MethodContext, scored: base.ScoredRequests) -> Iterator[pl.DataFrame]:
    """Yield the requests of the classification part with the chosen instruction in place of the template's."""
    dataset = context.classification
    original, chosen = dataset.template.instruction, chosen_instruction(dataset, scored)
    instructed = pl.concat_str(pl.lit(chosen), pl.col("prompt").str.strip_prefix(original))
    spans = shifted(pl.col("spans"), len(chosen) - len(original))
    for rows in context.frames():
        yield rows.with_columns(part=pl.lit(PART), prompt=instructed, spans=spans)


def chosen_instruction(dataset: ClassificationDataset, scored: base.ScoredRequests) -> str:
    """Return the instruction of lowest perplexity, that is, lowest mean loss per token; the first of equal ones."""
    mean = pl.col("label_log_likelihoods").list.first() / pl.col("label_token_counts").list.first()
    candidates = scored.rows.filter(part=CANDIDATES_PART, dataset=dataset.name)
    ranked = candidates.select("template", loss=-mean).sort("loss", "template").collect()
    return dataset.instructions[int(ranked["template"][0])]


PPL_ICL = base.Method(
    summary="The most likely label after the instruction of the lowest perplexity.",
    label_probs=base.softmax_of(base.label_score, PART),
    prompts=base.MethodPrompts(requests=requests, follow_up=follow_up),
    part_kinds=("classification",),
)
