"""Look at the tokens that are sent: the first of each prompt, control tokens in texts, and texts that are changed."""

from collections.abc import Iterator, Sequence

import polars as pl

from evaluator.config import LabelBoundary
from evaluator.models.source import ModelSource
from evaluator.preflight.findings import finding
from evaluator.record import FindingRecord
from evaluator.schemas import PROMPTS_KEY
from evaluator.store.prompt_store import PromptStore
from evaluator.tokens.chat import ChatForm
from evaluator.tokens.faults import TextFault


def first_token_findings(
    source: ModelSource, chat: ChatForm | None, store: PromptStore, tokens: pl.LazyFrame
) -> Iterator[FindingRecord]:
    """Yield findings about prompts that begin without the token that the model expects first, or with it twice.

    Args:
        source: the model.
        chat: its chat template, if prompts go through one.
        store: prompts.
        tokens: schemas.TOKENS of these prompts, as they are sent.
    """
    if source.bos is None:
        return
    first, second = (pl.col("context").list.get(place, null_on_oob=True) == source.bos for place in (0, 1))
    rows = tokens.select("prompt_id", lacks=~first, repeats=first & second.fill_null(False))
    n_lacking, n_repeating, n_rows = (
        rows.select(pl.col("lacks").sum(), pl.col("repeats").sum(), n=pl.len()).collect(engine="streaming").row(0)
    )
    bos = source.tokenizer.pieces([source.bos])[0]
    if n_lacking:
        lacking = rows.filter("lacks").join(store.prompts(), on=PROMPTS_KEY).select("prompt").sort("prompt").head(1)
        prompt = lacking.collect(engine="streaming").item()
        why = "which the chat template does not write" if chat else "which the tokenizer does not put there"
        yield finding(
            "missing-bos",
            f"{n_lacking:,} of {n_rows:,} prompts, the first {prompt[:40]!r}..., do not begin with {bos!r} (token "
            f"{source.bos}), the model's BOS, {why}. Models that were trained with it can lose much accuracy: "
            "--add-bos puts it there.",
        )
    if n_repeating:
        yield finding(
            "repeated-bos",
            f"{n_repeating:,} of {n_rows:,} prompts begin with {bos!r} (token {source.bos}) twice: the text itself "
            "begins with BOS, which the tokenizer adds. Remove it from the text.",
        )


def fault_findings(faults: Sequence[TextFault], n_prompts: int, boundary: LabelBoundary) -> Iterator[FindingRecord]:
    """Yield a finding for each kind of difference between prompts and their tokens.

    Args:
        faults: found while the prompts were tokenised.
        n_prompts: of the run.
        boundary: where a label begins.
    """
    other = "merged" if boundary == "separate" else "separate"
    for fault in faults:
        n = f"{fault.n_prompts:,} of {n_prompts:,} prompts"
        if fault.kind == "control token":
            yield finding(
                "control-tokens",
                f"{n} contain control tokens in their own texts or labels; the first: {fault.written!r}. The model "
                f"reads {fault.read!r} as the token of a conversation or of the end of a text, not as these letters. "
                "Remove or rewrite it in the data (--data) or in the label names (--labels).",
            )
        elif fault.kind == "label":
            yield finding(
                "changed-labels",
                f"In {n} a label is not what its tokens say: {fault.written!r} becomes {fault.read!r} (tokens "
                f"{' '.join(fault.tokens)}). Try --label-boundary {other}, or other label names (--labels).",
            )
        else:
            yield finding(
                "changed-prompts",
                f"{n} are not what their tokens say: {fault.written!r} becomes {fault.read!r}. The tokenizer does not "
                "have these characters, or changes them: rewrite them in the data (--data), or choose a --model that "
                "reads them.",
            )


def template_findings(source: ModelSource, chat: ChatForm | None) -> Iterator[FindingRecord]:
    """Yield findings about a chat template that is not applied, or opens answers with a thought."""
    if chat is None and source.has_chat_template:
        yield finding(
            "chat-template-unused",
            "The model's tokenizer has a chat template; prompts are sent as plain text, as the benchmark defines them. "
            "--chat-template auto applies it.",
        )
    thought = chat.unwritten_thought() if chat else None
    if thought:
        yield finding(
            "unwritten-thought",
            f"The chat template opens an answer with {thought!r}, so that the model would think before it answers, and "
            "labels are scored without a thought. Name a --chat-template FILE that writes no thought, or one that is "
            "empty.",
        )
