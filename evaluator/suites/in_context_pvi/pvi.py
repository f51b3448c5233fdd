"""Compute in-context pointwise V-information (PVI) of every query in every run, from scores of input and null prompts.

Lu et al. 2023, equation 1: C(x, y) = -log2 G[p](y) + log2 G[p'](y). The prompt p' has demonstrations and the input; the
null prompt p is the same prompt without any input, neither of the query nor of demonstrations.

The method `pvi_released` computes the label scores of the definition `released` from hidden states, as the notebook of
Lu et al. 2023 does: log-probabilities after a filter.

Source: https://github.com/UKPLab/in-context-pvi, in_context_pvi.ipynb and `predict` in utils.py. The notebook reads the
scores that `generate` samples from: logits are divided by 0.8, logits below the 20th highest are removed, and a
log-softmax follows. The score of a removed label would be minus infinity. Some lines of the notebook, which are
commented out, replace it by the log-probability of the least probable token that was kept. These lines must have run
for the released results, which are all finite. We replace it too when PVI is computed.

In the notebook a prediction is a sampled text, not the most probable label. Here a token is drawn from the same
filtered distribution, with a seed. The notebook draws two tokens and counts the text as right only if the second token
adds nothing but white space to the label; so our accuracy is at least as high on average. It samples with CUDA's
generator, whose draws cannot be repeated here.
"""

import math
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

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
"""Values of `method` in schemas.LABEL_DISTANCES: NAME for scores of PVI, DRAWN for the log-probability that the token
of a label is drawn. They differ for a removed token, whose log-probability is -inf under DRAWN."""
STATES = {INPUT: "input_states", NULL: "null_states"}
"""Part of the suite pvi -> part with the hidden states of the same prompts."""

_RUN = ["dataset", "n_shots", "demonstration_set"]

TEMPERATURE, N_KEPT = 0.8, 20  # softmax temperature, and number of most probable tokens that the filter keeps
_MAX_PROMPTS = 256  # number of prompts whose logits over the vocabulary are in memory together
_MAX_VOCABULARY_ROWS = 16_384  # number of rows of the LM head that are in float32 together


def requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Build a request for the hidden state at the end of every input prompt and null prompt."""
    for rows in context.frames():
        yield rows.with_columns(part=pl.col("part").replace_strict(STATES), **ASKS_STATE).select(context.columns)


def label_probs(scored: ScoredRequests, _definition: Definition) -> pl.LazyFrame:
    """Return the requests of the part input with `label_probs`: the softmax of filtered log-likelihoods over labels."""
    probs = filtered_log_likelihoods(scored, INPUT).select(*ROW, label_probs=softmax(pl.col("filtered")))
    return scored.rows.filter(part=INPUT).join(probs, on=ROW, how="left", maintain_order="left")


def filtered_log_likelihoods(scored: ScoredRequests, part: str, method: str = NAME) -> pl.LazyFrame:
    """Return the requests of `part` with `filtered`: List[f64], nats, in label-space order.

    There are no rows if the method pvi_released did not run.

    Args:
        part: INPUT or NULL.
        method: NAME, or DRAWN, which has minus infinity for labels whose token was removed.
    """
    scores = scored.distances.filter(method=method).select("prompt_id", filtered="distances")
    rows = scored.states.filter(part=STATES[part]).drop("hidden_state").join(scores, on="prompt_id", how="left")
    # A prompt that several datasets share has scores for the longest of their label spaces.
    return rows.with_columns(pl.col("filtered").list.head(pl.col("label_names").list.len()))


def drawn_labels(scored: ScoredRequests, part: str, seed: int) -> pl.LazyFrame:
    """Draw the next token after every prompt of `part` from the filtered distribution.

    The draw of a query depends on the seed, the dataset, the number of shots, the demonstration set and the query_id,
    not on the number of queries.

    Returns dataset, n_shots, demonstration_set, query_id, `drawn` (Int64, index of the label whose token is drawn; null
    if another token is drawn) and `can_be_drawn` (false if a prompt has no scores).
    """
    rows = filtered_log_likelihoods(scored, part, DRAWN).select(*_RUN, "query_id", "filtered").collect()
    frames = [rows.clear().with_columns(uniform=pl.lit(0.0))]
    for (dataset, n_shots, number), queries in rows.group_by(_RUN, maintain_order=True):
        generator = np.random.default_rng([seed, zlib.crc32(str(dataset).encode()), int(n_shots), int(number)])
        query_ids = queries["query_id"].to_numpy()
        uniforms = generator.random(int(query_ids.max()) + 1)[query_ids]
        frames.append(queries.with_columns(uniform=pl.Series(uniforms)))
    # Invert the distribution function: draw the first label at which the cumulative probability exceeds the uniform
    # number. If it exceeds none, the remaining probability, of other tokens, is drawn.
    up_to = pl.col("filtered").list.eval(pl.element().exp().cum_sum())
    n_passed = (up_to - pl.col("uniform")).list.eval(pl.element() <= 0).list.sum().cast(pl.Int64)
    drawn = pl.when(n_passed < pl.col("filtered").list.len()).then(n_passed)
    can_be_drawn = pl.col("filtered").is_not_null()
    return pl.concat(frames).lazy().select(*_RUN, "query_id", drawn=drawn, can_be_drawn=can_be_drawn)


def distances(scored: ScoredRequests, head: "torch.Tensor") -> pl.DataFrame:
    """Compute schemas.LABEL_DISTANCES, where `distances` are log-probabilities of labels, in nats.

    Rows of method NAME are scores for PVI; rows of method DRAWN are for the draw of a token.

    Args:
        scored: has hidden states, and the tokens of prompts and labels.
        head: LM head [vocabulary, hidden size]; logits are computed on its device, in float32.

    Raises:
        LabelError: a label has several tokens, is merged with the end of the prompt, or has a token that is not in the
            head.
    """
    import torch

    labels = _label_tokens(scored)
    _require_tokens(labels, len(head))
    states = scored.states.select("prompt_id", "hidden_state").join(labels.lazy(), on="prompt_id").collect()
    frames = [pl.DataFrame(schema=LABEL_DISTANCES)]
    for chunk in states.unique("prompt_id", keep="any", maintain_order=True).iter_slices(_MAX_PROMPTS):
        hidden = torch.from_numpy(state_array(chunk)).to(head.device, torch.float32)
        label_ids = [torch.tensor(tokens) for tokens in chunk["labels"].to_list()]
        ids = torch.nn.utils.rnn.pad_sequence(label_ids, batch_first=True).to(head.device)
        for method, log_probs in filtered(hidden, head, ids).items():
            padded = pl.lit(pl.Series(log_probs.cpu().numpy()).arr.to_list())
            scores = padded.list.head(pl.col("labels").list.len())
            rows = chunk.select("prompt_id", method=pl.lit(method), definition=pl.lit("released"), distances=scores)
            frames.append(rows.select(LABEL_DISTANCES.names()).cast(LABEL_DISTANCES))
    return pl.concat(frames)


def filtered(hidden: "torch.Tensor", head: "torch.Tensor", labels: "torch.Tensor") -> "dict[str, torch.Tensor]":
    """Compute log-probabilities of labels at TEMPERATURE among the N_KEPT most probable next tokens.

    Tokens that tie with the least probable kept token are kept too, as in `generate`.

    Args:
        hidden: float32 [rows, hidden size], hidden states at the ends of prompts.
        head: [vocabulary, hidden size].
        labels: int64 [rows, labels], token ids.

    Returns method of LABEL_DISTANCES -> log-probabilities, float64 [rows, labels]. A removed label has the lowest
    log-probability of the kept tokens under NAME, and minus infinity under DRAWN.
    """
    import torch

    # Convert the head in slices, because the whole head in float32 may not fit into memory.
    scores = torch.cat([hidden @ rows.float().T for rows in head.split(_MAX_VOCABULARY_ROWS)], dim=1) / TEMPERATURE
    top = scores.topk(min(N_KEPT, len(head)), dim=1).values
    last = top[:, -1:]
    n_ties_outside = (scores == last).sum(1, keepdim=True) - (top == last).sum(1, keepdim=True)
    highest, lowest, label_scores = top[:, :1].double(), last.double(), scores.gather(1, labels).double()
    # Log-softmax over the kept tokens and their ties. Scores are relative to the highest, so that exp cannot overflow.
    total = (top.double() - highest).exp().sum(1, keepdim=True) + n_ties_outside * (lowest - highest).exp()
    replaced = torch.maximum(label_scores, lowest) - highest - total.log()
    return {NAME: replaced, DRAWN: torch.where(label_scores < lowest, -torch.inf, replaced)}


def _label_tokens(scored: ScoredRequests) -> pl.DataFrame:
    """Return prompt_id of every requested hidden state, and `labels`: List[i32], the token of each label.

    Raises LabelError for a label that is not one token after the prompt, or a prompt with labels in two orders.
    """
    tokens = scored.tokens.select("prompt_id", "continuations", n_context=pl.col("context").list.len())
    # Match each request for labels with the request for the hidden state of the same prompt, by part and row.
    requests = scored.rows.filter(pl.col("part").is_in([*STATES])).join(tokens, on="prompt_id")
    part = pl.col("part").replace_strict(STATES)
    with_labels = requests.select(*ROW, "label_names", "continuations", "n_context", part=part)
    with_states = scored.states.filter(pl.col("part").is_in([*STATES.values()])).select("part", *ROW, "prompt_id")
    bare = with_states.join(tokens.select("prompt_id", n_bare="n_context"), on="prompt_id")
    rows = bare.join(with_labels, on=["part", *ROW]).collect()
    _require_one_token(rows)
    labels = rows.select("prompt_id", labels=pl.col("continuations").list.eval(pl.element().list.first())).unique()
    # If several datasets share a prompt, use the longest label space. Others must be equal to its first labels.
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
    """Compute the PVI of every query after every demonstration set: sets of the suite, and sets chosen by PVI.

    PVI is the log-likelihood of the gold label after the input prompt minus that after the null prompt, in nats;
    divided by ln 2 it is in bits. It is null if one of the two is missing, NaN or infinite. No row is dropped.

    Log-likelihoods are over the whole vocabulary under `paper`, normalised over the labels under `label_space`, and
    filtered as in the released code under `released`. The latter has no rows for chosen sets, and no rows at all if the
    method pvi_released did not run. The prediction is the most probable label. Under `released` it is the label whose
    token is drawn, because the notebook judges sampled texts.

    Args:
        scored: requests of the suite pvi.
        source: source of the suite's demonstration sets.
        seed: seed of the predictions under `released`.

    Returns:
        schema.PVI, sorted by its key.

    Raises:
        MetricError: a label space of one label, or gold labels outside the label space.
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
    """Return the difference of two log-likelihoods in nats; null if one of them is missing, NaN or infinite.

    Source: Lu et al. 2023, equation 1, before division by ln 2.
    """
    difference = given_input - given_null
    # The difference is NaN or infinite if one of the two is, so that one check is enough.
    return pl.when(difference.is_finite()).then(difference)


def _pvi_of_part(
    scored: ScoredRequests, demonstrations: str, parts: tuple[str, str], definition: PviDefinition, seed: int
) -> pl.LazyFrame:
    """Compute the PVI of the queries of the first of two parts; the second has their null prompts.

    `demonstrations` is the value of the column, a PviSource or PviOrder.
    """
    inputs, nulls = (_log_likelihoods(scored, part, definition) for part in parts)
    # One row for each null prompt and label, so that queries can be joined by their gold labels.
    label = pl.int_ranges(pl.col("scores").list.len()).alias("gold")
    null_scores = nulls.select(*_RUN, label, given_null="scores").explode("gold", "given_null")
    predicted = inputs.with_columns(**_prediction(), given_input=pl.col("scores").list.get(pl.col("gold")))
    predicted = predicted.with_columns(correct=pl.col("pred") == pl.col("gold"))
    # The prediction is drawn; another token than a label is a wrong prediction.
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
    """Return `pred`, the label with the highest score (the first, if several tie), and `n_highest_labels`, the number
    of labels with this score. Both are null if a score is missing or NaN, or all scores are -inf.
    """
    scores, element = pl.col("scores"), pl.element()
    is_complete = scores.list.drop_nulls().list.len() == scores.list.len()
    # The sum is NaN if any term is.
    is_defined = is_complete & ~scores.list.sum().is_nan() & scores.list.max().is_finite()
    n_highest = scores.list.eval((element == element.max()).sum().cast(pl.Int64)).list.first()
    columns = {"pred": scores.list.arg_max(), "n_highest_labels": n_highest}
    return {name: pl.when(is_defined).then(value) for name, value in columns.items()}


def _log_likelihoods(scored: ScoredRequests, part: str, definition: PviDefinition) -> pl.LazyFrame:
    """Return dataset, n_shots, demonstration_set, query_id, gold and `scores` (log-likelihood of each label, nats) of a
    part. Under `released` there are no rows if the method pvi_released did not run."""
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
