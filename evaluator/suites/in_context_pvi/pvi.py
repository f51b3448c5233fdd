"""Compute in-context pointwise V-information, one PVI for each query and run, from scores of input and null prompts.

Lu et al. 2023, equation 1: C(x, y) = -log2 G[p](y) + log2 G[p'](y), where p' has the input after its demonstrations
and p is the same prompt with every input removed, also the inputs of demonstrations.

Compute label scores from hidden states as the notebook of Lu et al. 2023 does: filtered log-probabilities.

Source: https://github.com/UKPLab/in-context-pvi, in_context_pvi.ipynb and `predict` in utils.py. The notebook reads the
scores that `generate` samples from: logits divided by 0.8, logits below the 20th highest removed, then log-softmax. A
removed label would have minus infinity; lines that are commented out there, but must have run for the released results,
which are all finite, give it the log-probability of the least probable token that was kept. We do the same for PVI.

The notebook's accuracy is that of a sampled text, not of the most probable label. Here a token is drawn from the same
filtered distribution, by a seed. The notebook draws two and is right only if the second adds nothing but white space to
the label, so that our accuracy is at least as high on average. Its generator is CUDA's, whose draws are not repeated.
"""

import math
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from evaluator.config import Definition
from evaluator.errors import LabelError, MetricError
from evaluator.methods.base import Method, MethodContext, MethodPrompts, ScoredRequests, softmax
from evaluator.methods.calibration import log_softmax
from evaluator.methods.hidden_states import ROW, state_array
from evaluator.metrics.classification import require_gold
from evaluator.prompts.rows import ASKS_STATE
from evaluator.schemas import LABEL_DISTANCES
from evaluator.suites.in_context_pvi.prompts import INPUT, NULL, PviSource, null_part
from evaluator.suites.in_context_pvi.schema import CHOSEN, PVI, PVI_DEFINITIONS, PVI_KEY, PviDefinition

if TYPE_CHECKING:
    import torch

NAME = "pvi_released"
DRAWN = "pvi_released_drawn"
"""Value of `method` in schemas.LABEL_DISTANCES for the log-probability that a label's token is drawn: -inf where the
token is removed."""
STATES = {INPUT: "input_states", NULL: "null_states"}
"""Part of the suite pvi -> the part with hidden states of the same prompts."""

_RUN = ["dataset", "n_shots", "demonstration_set"]

TEMPERATURE, N_KEPT = 0.8, 20
_MAX_PROMPTS = 256  # in memory at a time, each with logits over the vocabulary
_MAX_VOCABULARY_ROWS = 16_384  # of the LM head, in float32 at a time


def requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Build a request for the hidden state after every input and null prompt."""
    for rows in context.frames():
        yield rows.with_columns(part=pl.col("part").replace_strict(STATES), **ASKS_STATE).select(context.columns)


def label_probs(scored: ScoredRequests, _definition: Definition) -> pl.LazyFrame:
    """Return the part input with probabilities: the softmax over the label space of the filtered log-likelihoods."""
    probs = filtered_log_likelihoods(scored, INPUT).select(*ROW, label_probs=softmax(pl.col("filtered")))
    return scored.rows.filter(part=INPUT).join(probs, on=ROW, how="left", maintain_order="left")


def filtered_log_likelihoods(scored: ScoredRequests, part: str, method: str = NAME) -> pl.LazyFrame:
    """Return the requests of `part` with `filtered`: List[f64], nats, in label-space order.

    No rows where the method did not run.

    Args:
        method: NAME, or DRAWN for minus infinity where a label's token is removed.
    """
    scores = scored.distances.filter(method=method).select("prompt_id", filtered="distances")
    rows = scored.states.filter(part=STATES[part]).drop("hidden_state").join(scores, on="prompt_id", how="left")
    # A prompt that several datasets share was scored for the longest of their label spaces.
    return rows.with_columns(pl.col("filtered").list.head(pl.col("label_names").list.len()))


def drawn_labels(scored: ScoredRequests, part: str, seed: int) -> pl.LazyFrame:
    """Draw the next token after every prompt of `part` from the filtered distribution.

    Returns dataset, n_shots, demonstration_set, query_id, `drawn` (Int64, index of the label whose token is drawn; null
    where it is another token) and `can_be_drawn` (false where a prompt has no scores). A query's draw depends on the
    seed, the dataset, the shots, the set and its number, not on how many queries there are.
    """
    rows = filtered_log_likelihoods(scored, part, DRAWN).select(*_RUN, "query_id", "filtered").collect()
    frames = [rows.clear().with_columns(uniform=pl.lit(0.0))]
    for (dataset, n_shots, number), queries in rows.group_by(_RUN, maintain_order=True):
        generator = np.random.default_rng([seed, zlib.crc32(str(dataset).encode()), int(n_shots), int(number)])
        query_ids = queries["query_id"].to_numpy()
        uniforms = generator.random(int(query_ids.max()) + 1)[query_ids]
        frames.append(queries.with_columns(uniform=pl.Series(uniforms)))
    # The first label up to which probabilities add up to more than the uniform number is drawn.
    up_to = pl.col("filtered").list.eval(pl.element().exp().cum_sum())
    n_passed = (up_to - pl.col("uniform")).list.eval(pl.element() <= 0).list.sum().cast(pl.Int64)
    drawn = pl.when(n_passed < pl.col("filtered").list.len()).then(n_passed)
    can_be_drawn = pl.col("filtered").is_not_null()
    return pl.concat(frames).lazy().select(*_RUN, "query_id", drawn=drawn, can_be_drawn=can_be_drawn)


def distances(scored: ScoredRequests, head: "torch.Tensor") -> pl.DataFrame:
    """Compute schemas.LABEL_DISTANCES with the log-probabilities of labels as `distances`, in nats.

    Rows of method NAME are for PVI, rows of method DRAWN for drawing a token.

    Args:
        scored: has the tokens of prompts and labels.
        head: LM head [vocabulary, hidden size]; logits are computed on its device, in float32.

    Raises:
        LabelError: a label of several tokens, one that does not begin where the prompt without a label ends, or one
            whose token the head does not have.
    """
    import torch

    labels = _label_tokens(scored)
    _require_tokens(labels, len(head))
    states = scored.states.select("prompt_id", "hidden_state").join(labels.lazy(), on="prompt_id").collect()
    prompts = states.unique("prompt_id", keep="any", maintain_order=True)
    frames = [pl.DataFrame(schema=LABEL_DISTANCES)]
    for chunk in prompts.iter_slices(_MAX_PROMPTS):
        hidden = torch.from_numpy(state_array(chunk)).to(head.device, torch.float32)
        label_ids = [torch.tensor(tokens) for tokens in chunk["labels"].to_list()]
        ids = torch.nn.utils.rnn.pad_sequence(label_ids, batch_first=True).to(head.device)
        for method, log_probs in zip((NAME, DRAWN), filtered(hidden, head, ids), strict=True):
            padded = pl.lit(pl.Series(log_probs.cpu().numpy()).arr.to_list())
            scores = padded.list.head(pl.col("labels").list.len())
            rows = chunk.select("prompt_id", method=pl.lit(method), definition=pl.lit("released"), distances=scores)
            frames.append(rows.select(LABEL_DISTANCES.names()).cast(LABEL_DISTANCES))
    return pl.concat(frames)


class Filtered(NamedTuple):
    """Log-probabilities of labels among the most probable next tokens; float64 [rows, labels]."""

    replaced: "torch.Tensor"  # a label that is not kept has the lowest log-probability of the kept tokens
    drawn: "torch.Tensor"  # a label that is not kept has minus infinity


def filtered(hidden: "torch.Tensor", head: "torch.Tensor", labels: "torch.Tensor") -> Filtered:
    """Compute log-probabilities of labels among the N_KEPT most probable next tokens.

    Probabilities are at TEMPERATURE. Tokens that tie with the least probable kept token are kept too, as in `generate`.

    Args:
        hidden: float32 [rows, hidden size].
        head: [vocabulary, hidden size].
        labels: int64 [rows, labels], token ids.
    """
    import torch

    # In slices of the head, because all of it in float32 may not fit in memory.
    scores = torch.cat([hidden @ rows.float().T for rows in head.split(_MAX_VOCABULARY_ROWS)], dim=1) / TEMPERATURE
    top = scores.topk(min(N_KEPT, len(head)), dim=1).values
    last = top[:, -1:]
    n_ties_outside = (scores == last).sum(1, keepdim=True) - (top == last).sum(1, keepdim=True)
    highest, lowest, label_scores = top[:, :1].double(), last.double(), scores.gather(1, labels).double()
    # Log-softmax over the kept tokens and their ties, relative to the highest score so that exp does not overflow.
    total = (top.double() - highest).exp().sum(1, keepdim=True) + n_ties_outside * (lowest - highest).exp()
    replaced = torch.maximum(label_scores, lowest) - highest - total.log()
    return Filtered(replaced, torch.where(label_scores < lowest, -torch.inf, replaced))


def _label_tokens(scored: ScoredRequests) -> pl.DataFrame:
    """Return prompt_id of every requested hidden state, and `labels`: List[i32], the token of each label."""
    tokens = scored.tokens.select("prompt_id", "continuations", n_context=pl.col("context").list.len())
    # Prompts with labels, and the same prompts without, which have hidden states; matched by part and row.
    requests = scored.rows.filter(pl.col("part").is_in([*STATES])).join(tokens, on="prompt_id")
    part = pl.col("part").replace_strict(STATES)
    with_labels = requests.select(*ROW, "label_names", "continuations", "n_context", part=part)
    with_states = scored.states.filter(pl.col("part").is_in([*STATES.values()])).select("part", *ROW, "prompt_id")
    bare = with_states.join(tokens.select("prompt_id", n_bare="n_context"), on="prompt_id")
    rows = bare.join(with_labels, on=["part", *ROW]).collect()
    _require_one_token(rows)
    labels = rows.select("prompt_id", labels=pl.col("continuations").list.eval(pl.element().list.first())).unique()
    # Of datasets that share a prompt, the longest label space counts; shorter ones must be its beginnings.
    size = pl.col("labels").list.len()
    longest = labels.with_columns(longest=pl.col("labels").sort_by(size).last().over("prompt_id"))
    if longest.select((pl.col("longest").list.head(size) != pl.col("labels")).any()).item():
        raise LabelError(
            f"Two datasets have the same prompt with labels in different orders, which the method {NAME} cannot tell "
            "apart. Run them one by one (--datasets)."
        )
    return longest.select("prompt_id", labels="longest").unique()


def _require_one_token(rows: pl.DataFrame) -> None:
    n_tokens = pl.col("continuations").list.eval(pl.element().list.len()).list.max()
    bad = rows.filter((n_tokens > 1) | (pl.col("n_context") != pl.col("n_bare")))
    if not bad.is_empty():
        first = bad.sort("part", *ROW).row(0, named=True)
        raise LabelError(
            f"{first['dataset']}, position {first['position']}: the method {NAME} takes a label's probability from the "
            f"one token after the prompt, and this tokenizer makes several tokens of one of {first['label_names']}, or "
            "merges it with the end of the prompt. Leave the method out (--methods), or use another --label-boundary.",
            first["label_names"],
        )


def _require_tokens(labels: pl.DataFrame, n_tokens: int) -> None:
    highest = labels.select(pl.col("labels").list.max().max()).item()
    if highest is not None and highest >= n_tokens:
        raise LabelError(
            f"A label is the token {highest}, and the LM head has {n_tokens} rows, so that the method {NAME} cannot "
            "read its score: the engine has no model (fake), or the tokenizer and the weights are of different models. "
            "Leave the method out (--methods), or use another model."
        )


PVI_RELEASED = Method(
    summary="The label of the highest filtered score, as in the notebook of in-context PVI.",
    label_probs=label_probs,
    prompts=MethodPrompts(requests=requests, need_states=True),
    distances=distances,
    part_kinds=("classification", "null"),
    definitions=("released",),
    max_label_tokens=1,
)


def pvi_table(scored: ScoredRequests, source: PviSource = "random", *, seed: int = 0) -> pl.DataFrame:
    """Compute the PVI of every query after every demonstration set, drawn, published or chosen by PVI.

    Under `paper` log-likelihoods of the gold label are over the whole vocabulary, under `label_space` normalised over
    the labels, under `released` filtered as in the released code; the latter has no rows for chosen sets, and none at
    all unless the method pvi_released ran. PVI is the difference of two log-likelihoods, in nats, and divided by ln 2
    in bits. It is null if one of them is missing, NaN or infinite; both keep their values, and no row is dropped. The
    prediction is the most probable label, but under `released` the label whose token is drawn, as the notebook judges
    sampled texts.

    Args:
        scored: of the suite pvi.
        source: where the suite's demonstration sets come from.
        seed: of the predictions under `released`.

    Returns:
        schema.PVI, sorted by its key.

    Raises:
        MetricError: a label space of one label, or gold labels outside it.
    """
    _require_labels(scored)
    parts = {source: (INPUT, NULL)} | {order: (method, null_part(method)) for method, order in CHOSEN.items()}
    frames = [
        _pvi_of_part(scored, demonstrations, pair, definition, seed)
        for demonstrations, pair in parts.items()
        for definition in PVI_DEFINITIONS
        if definition != "released" or demonstrations == source
    ]
    return pl.concat(frames).collect().sort(PVI_KEY)


def gain_nats(given_input: pl.Expr, given_null: pl.Expr) -> pl.Expr:
    """Subtract log-likelihoods of a label in nats; null where one of the two is missing, NaN or infinite.

    Source: Lu et al. 2023, equation 1, before division by ln 2.
    """
    difference = given_input - given_null
    # The difference of two infinities is NaN or infinite, so that one check covers both.
    return pl.when(difference.is_finite()).then(difference)


def _pvi_of_part(
    scored: ScoredRequests, demonstrations: str, parts: tuple[str, str], definition: PviDefinition, seed: int
) -> pl.LazyFrame:
    """Compute the PVI of the queries of the first part, with the null prompts of the second."""
    inputs, nulls = (_log_likelihoods(scored, part, definition) for part in parts)
    # One row for each label of each null prompt, to join by the gold label of a query.
    label = pl.int_ranges(pl.col("scores").list.len()).alias("gold")
    null_scores = nulls.select(*_RUN, label, given_null="scores").explode("gold", "given_null")
    predicted = inputs.with_columns(**_prediction(), given_input=pl.col("scores").list.get(pl.col("gold")))
    predicted = predicted.with_columns(correct=pl.col("pred") == pl.col("gold"))
    if definition == "released":
        drawn = drawn_labels(scored, parts[0], seed)
        right = pl.when("can_be_drawn").then((pl.col("drawn") == pl.col("gold")).fill_null(False))
        predicted = predicted.join(drawn, on=[*_RUN, "query_id"], how="left").with_columns(pred="drawn", correct=right)
    both = predicted.join(null_scores, on=[*_RUN, "gold"], how="left", validate="m:1")
    rows = both.with_columns(pvi_nats=gain_nats(pl.col("given_input"), pl.col("given_null"))).with_columns(
        pvi_bits=pl.col("pvi_nats") / math.log(2),
        definition=pl.lit(definition),
        demonstrations=pl.lit(demonstrations),
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in PVI.items())


def _prediction() -> dict[str, pl.Expr]:
    """Return `pred`, the label of the highest of `scores`, the first of equals, and `n_highest_labels`, their number.

    Both are null where a score is missing or NaN, or all are -inf.
    """
    scores, element = pl.col("scores"), pl.element()
    is_complete = scores.list.drop_nulls().list.len() == scores.list.len()
    # The sum is NaN if any term is.
    is_defined = is_complete & ~scores.list.sum().is_nan() & scores.list.max().is_finite()
    n_highest = scores.list.eval((element == element.max()).sum().cast(pl.Int64)).list.first()
    columns = {"pred": scores.list.arg_max(), "n_highest_labels": n_highest}
    return {name: pl.when(is_defined).then(value) for name, value in columns.items()}


def _log_likelihoods(scored: ScoredRequests, part: str, definition: PviDefinition) -> pl.LazyFrame:
    """Return dataset, n_shots, demonstration_set, query_id, gold and `scores` of a part: one log-likelihood for each
    label, in nats. Under `released` there are no rows where the method pvi_released did not run."""
    rows, scores = scored.rows.filter(part=part), pl.col("label_log_likelihoods")
    if definition == "released":
        rows, scores = filtered_log_likelihoods(scored, part), pl.col("filtered")
    elif definition == "label_space":
        scores = log_softmax(scores)
    return rows.select(*_RUN, "query_id", "gold", scores=scores)


def _require_labels(scored: ScoredRequests) -> None:
    rows = scored.rows.filter(part=INPUT).select("dataset", "gold", n_labels=pl.col("label_names").list.len()).collect()
    for (dataset, n_labels), group in rows.group_by("dataset", "n_labels", maintain_order=True):
        if int(n_labels) < 2:
            raise MetricError(
                f"{dataset} has {n_labels} label, and PVI needs two or more: with one label an input gives no "
                "information. Leave the dataset out (--datasets), or give all of its labels."
            )
        require_gold(group["gold"], int(n_labels), str(dataset))
