"""What the notebook of Lu et al. 2023 takes for log-likelihoods: hidden states go in, filtered scores come out.

Source: https://github.com/UKPLab/in-context-pvi, in_context_pvi.ipynb and `predict` in utils.py. The notebook reads the
scores that `generate` samples from: logits divided by 0.8, those below the 20th highest removed, then log-softmax. A
label that was removed is minus infinity there; lines that are commented out, but must have run for the released
results, which are all finite, give it the log-probability of the least probable token that was kept. So it is here.
"""

from typing import TYPE_CHECKING

import polars as pl

from evaluator.datasets.lcg import Ints
from evaluator.errors import LabelError
from evaluator.methods.base import Answers, Asked, Method, softmax
from evaluator.methods.training_states import ROW, state_array
from evaluator.prompts.rows import ASKS_STATE
from evaluator.schemas import LABEL_DISTANCES, Definition
from evaluator.suites.in_context_pvi.prompts import INPUT, NULL

if TYPE_CHECKING:
    import torch

NAME = "pvi_released"
STATES = {INPUT: "input_states", NULL: "null_states"}
"""Part of the suite pvi -> the part that asks for the hidden states after the same prompts."""

TEMPERATURE, N_KEPT = 0.8, 20
_ROWS, _VOCABULARY_ROWS = 256, 16_384
"""Of logits that are held at a time, each as long as the vocabulary; of the head that are held in float32."""


def requests(asked: Asked) -> list[pl.DataFrame]:
    """Every input and null prompt once more, for its hidden state."""
    rows = asked.rows.with_columns(part=pl.col("part").replace_strict(STATES), **ASKS_STATE)
    return [rows.select(asked.rows.columns)]


def label_probs(answers: Answers, _definition: Definition) -> pl.LazyFrame:
    """The part input, with the softmax over the label space of the filtered log-likelihoods."""
    found = filtered_log_likelihoods(answers, INPUT).select(*ROW, label_probs=softmax(pl.col("filtered")))
    return answers.part(INPUT).join(found, on=ROW, how="left", maintain_order="left")


def filtered_log_likelihoods(answers: Answers, part: str) -> pl.LazyFrame:
    """The requests of `part` with `filtered`: List[f64], nats, in label-space order; no rows where none were asked."""
    own = answers.distances.filter(method=NAME).select("prompt_id", filtered="distances")
    rows = answers.states_of(STATES[part]).drop("hidden_state").join(own, on="prompt_id", how="left")
    # A prompt that datasets share has the labels of the one with the most.
    return rows.with_columns(pl.col("filtered").list.head(pl.col("label_names").list.len()))


def distances(answers: Answers, head: "torch.Tensor") -> pl.DataFrame:
    """schemas.LABEL_DISTANCES with the filtered log-likelihoods of labels as `distances`: nats, one a label.

    Args:
        answers: with the tokens of prompts and labels.
        head: LM head [vocabulary, hidden size]; what it takes is computed on its device, in float32.

    Raises:
        LabelError: a label of several tokens, one that does not begin where the bare prompt ends, or one whose token
            the head does not have.
    """
    import torch

    labels = _label_tokens(answers)
    _refuse_unknown_tokens(labels, len(head))
    states = answers.states.select("prompt_id", "hidden_state").join(labels.lazy(), on="prompt_id").collect()
    rows = states.unique("prompt_id", keep="any", maintain_order=True)
    frames = [pl.DataFrame(schema=LABEL_DISTANCES)]
    for chunk in rows.iter_slices(_ROWS):
        hidden = torch.from_numpy(state_array(chunk)).to(head.device, torch.float32)
        ids = torch.tensor(_padded(chunk["labels"]), device=head.device)
        found = pl.Series(filtered(hidden, head, ids).cpu().numpy()).arr.to_list()
        lists = chunk.select("prompt_id", distances=found, n=pl.col("labels").list.len())
        frames.append(
            lists.select(
                method=pl.lit(NAME),
                definition=pl.lit("released"),
                prompt_id="prompt_id",
                distances=pl.col("distances").list.head("n"),
            ).cast(LABEL_DISTANCES)
        )
    return pl.concat(frames)


def filtered(hidden: "torch.Tensor", head: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
    """Log-probabilities of labels among the N_KEPT most probable next tokens at TEMPERATURE; float64 [rows, labels].

    Tokens as probable as the last of these are kept as well, as `generate` does. A label that is not kept gets the
    lowest log-probability of those that are.

    Args:
        hidden: float32 [rows, hidden size].
        head: [vocabulary, hidden size].
        labels: int64 [rows, labels], token ids.
    """
    import torch

    scores = torch.cat([hidden @ rows.float().T for rows in head.split(_VOCABULARY_ROWS)], dim=1) / TEMPERATURE
    top = scores.topk(min(N_KEPT, len(head)), dim=1).values
    last = top[:, -1:]
    n_more = (scores == last).sum(1, keepdim=True) - (top == last).sum(1, keepdim=True)
    highest, lowest, own = top[:, :1].double(), last.double(), scores.gather(1, labels).double()
    total = (top.double() - highest).exp().sum(1, keepdim=True) + n_more * (lowest - highest).exp()
    return torch.maximum(own, lowest) - highest - total.log()


def _label_tokens(answers: Answers) -> pl.DataFrame:
    """prompt_id of every state that was asked, and `labels`: List[i32], the token of each label."""
    tokens = answers.tokens.select("prompt_id", "continuations", n_context=pl.col("context").list.len())
    scored = answers.scored.filter(pl.col("part").is_in([*STATES])).join(tokens, on="prompt_id")
    asked = answers.states.filter(pl.col("part").is_in([*STATES.values()])).select("part", *ROW, "prompt_id")
    bare = asked.join(tokens.select("prompt_id", n_bare="n_context"), on="prompt_id")
    own = scored.select(*ROW, "label_names", "continuations", "n_context", part=pl.col("part").replace_strict(STATES))
    rows = bare.join(own, on=["part", *ROW]).collect()
    _refuse_unscorable(rows)
    labels = rows.select("prompt_id", labels=pl.col("continuations").list.eval(pl.element().list.first())).unique()
    return _longest(labels)


def _refuse_unscorable(rows: pl.DataFrame) -> None:
    longest = pl.col("continuations").list.eval(pl.element().list.len()).list.max()
    bad = rows.filter((longest > 1) | (pl.col("n_context") != pl.col("n_bare")))
    if not bad.is_empty():
        first = bad.sort("part", *ROW).row(0, named=True)
        raise LabelError(
            f"{first['dataset']}, position {first['position']}: the method {NAME} takes a label's probability from the "
            f"one token after the prompt, and this tokenizer makes more of one of {first['label_names']}, or merges it "
            "with the end of the prompt. Leave the method out (--methods), or take another --label-boundary.",
            first["label_names"],
        )


def _refuse_unknown_tokens(labels: pl.DataFrame, n_tokens: int) -> None:
    highest = labels.select(pl.col("labels").list.max().max()).item()
    if highest is not None and highest >= n_tokens:
        raise LabelError(
            f"A label is the token {highest}, and the LM head has {n_tokens} rows, so that the method {NAME} cannot "
            "read its score: no model stands behind these tokens (the engine fake), or tokenizer and weights do not "
            "belong together. Leave the method out (--methods), or take another model."
        )


def _longest(labels: pl.DataFrame) -> pl.DataFrame:
    """One row a prompt: of several label spaces the longest, which must begin as the others are."""
    size = pl.col("labels").list.len()
    longest = labels.with_columns(longest=pl.col("labels").sort_by(size).last().over("prompt_id"))
    if longest.select((pl.col("longest").list.head(size) != pl.col("labels")).any()).item():
        raise LabelError(
            f"Two datasets ask the same prompt with labels in another order, which the method {NAME} cannot keep "
            "apart. Run them one by one (--datasets)."
        )
    return longest.select("prompt_id", labels="longest").unique()


def _padded(labels: pl.Series) -> Ints:
    """Token ids [rows, most labels]; behind a row's own stands the token 0."""
    most = int(labels.list.len().to_numpy().max())
    rows = labels.to_frame("labels").select(pl.col("labels").list.gather(list(range(most)), null_on_oob=True))
    padded: Ints = rows["labels"].cast(pl.List(pl.Int64)).list.to_array(most).arr.explode().fill_null(0).to_numpy()
    return padded.reshape(-1, most)


PVI_RELEASED = Method(
    summary="The label of the highest filtered score, as the notebook of in-context PVI reads it.",
    label_probs=label_probs,
    requests=requests,
    distances=distances,
    part_kinds=("classification", "null"),
    needs_states=True,
    definitions=("released",),
    max_label_tokens=1,
)
