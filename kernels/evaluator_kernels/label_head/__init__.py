# ruff: noqa: N803, N806 - tensors carry their axes in their names
"""Compute sums over next-token distributions from hidden states and an LM head, without a [rows, vocabulary] matrix.

A row is a hidden state after the final norm, its logits are head @ hidden, and its distribution q is their softmax over
the whole vocabulary. Everything is computed in fp32, whatever the head was saved in, and summed in float64.

Undefined results are NaN: a row with a NaN gives NaN and affects no other row. An infinity in a row gives logits that
are infinite or NaN; a row with a logit of +inf, or with none above -inf, has no distribution. A head that is not finite
affects every row.

Shape legend: T rows or queries, A anchors, C centroids, V vocabulary, D hidden size.
"""

import torch

from evaluator_kernels.label_head import tiled

HEAD_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
WEIGHT_TOLERANCE = 1e-5  # largest deviation of a row's sum from one; that of a thousand weights in fp32 is smaller


def log_sum_exp(hidden_TD: torch.Tensor, head_VD: torch.Tensor) -> torch.Tensor:
    """Return the log of the sum of exp(logit) over the whole vocabulary, which normalises logits.

    Args:
        hidden_TD: float32 of [T, D]; T may be 0.
        head_VD: float32, bfloat16 or float16 of [V, D] on the same device.

    Returns:
        float64 of [T], nats. NaN where a logit is NaN, else inf where one is, -inf where all are.

    Raises:
        TypeError: another dtype.
        ValueError: other shapes, devices that differ, or an empty vocabulary.
    """
    _check_head(head_VD)
    _check_rows("hidden_TD", hidden_TD, head_VD)
    with torch.no_grad():
        return tiled.log_sum_exp(hidden_TD, head_VD)


def centroid_divergences(
    queries_TD: torch.Tensor, anchors_AD: torch.Tensor, weights_CA: torch.Tensor, head_VD: torch.Tensor
) -> torch.Tensor:
    """Return KL(c || q) from each centroid c to each query's distribution q, over the whole vocabulary.

    A centroid is a weighted mean of anchors' distributions. Equal weights over the anchors of a label give that label's
    centroid; the identity gives the divergence from every single anchor.

    Args:
        queries_TD: float32 of [T, D].
        anchors_AD: float32 of [A, D].
        weights_CA: float32 or float64 of [C, A], none negative, rows that sum to one.
        head_VD: as for log_sum_exp.

    Returns:
        float64 of [T, C], nats. Rounding can give values slightly below 0 (a few 1e-5 where logits reach 40). NaN for a
        query without a distribution, for a centroid with weight on such an anchor, and everywhere if the head is not
        finite.

    Raises:
        TypeError, ValueError: as log_sum_exp, and for weights that are negative or do not sum to one.
    """
    _check_head(head_VD)
    _check_rows("queries_TD", queries_TD, head_VD)
    _check_rows("anchors_AD", anchors_AD, head_VD)
    _check_weights(weights_CA, anchors_AD)
    with torch.no_grad():
        return tiled.divergences(queries_TD, anchors_AD, weights_CA, head_VD)


def _check_head(head_VD: torch.Tensor) -> None:
    if head_VD.dtype not in HEAD_DTYPES:
        raise TypeError(f"head_VD must be one of {HEAD_DTYPES}, got {head_VD.dtype}.")
    if head_VD.ndim != 2 or len(head_VD) == 0:
        raise ValueError(f"head_VD must be [V, D] with at least one token, got shape {tuple(head_VD.shape)}.")


def _check_rows(name: str, rows_TD: torch.Tensor, head_VD: torch.Tensor) -> None:
    width = head_VD.shape[1]
    _check(name, rows_TD, [torch.float32], width, f"[rows, {width}], as wide as head_VD", head_VD.device)


def _check(
    name: str, rows: torch.Tensor, dtypes: list[torch.dtype], width: int, shape: str, device: torch.device
) -> None:
    if rows.dtype not in dtypes:
        raise TypeError(f"{name} must be {' or '.join(map(str, dtypes))}, got {rows.dtype}.")
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"{name} must be {shape}, got shape {tuple(rows.shape)}.")
    if rows.device != device:
        raise ValueError(f"All tensors must be on one device, but {name} is on {rows.device}, not {device}.")


def _check_weights(weights_CA: torch.Tensor, anchors_AD: torch.Tensor) -> None:
    shape = f"[centroids, {len(anchors_AD)}], one column an anchor"
    dtypes = [torch.float32, torch.float64]
    _check("weights_CA", weights_CA, dtypes, len(anchors_AD), shape, anchors_AD.device)
    sums_C = weights_CA.sum(-1, dtype=torch.float64)
    is_distribution_C = (weights_CA >= 0).all(-1) & ((sums_C - 1).abs() <= WEIGHT_TOLERANCE)
    if not is_distribution_C.all():
        row = int(is_distribution_C.int().argmin())
        raise ValueError(
            f"weights_CA must have rows that are not negative and sum to one, but row {row} sums to "
            f"{sums_C[row].item():g} and its smallest weight is {min(weights_CA[row].tolist(), default=0):g}."
        )
