# ruff: noqa: N803, N806 - tensors carry their axes in their names
"""Reference implementations in plain torch, which define the operations; the package describes the arguments.

They hold [rows, vocabulary] matrices, and compute in the dtype of the hidden states, which is also the dtype of the
result; float64 gives reference values.
"""

import torch


def log_sum_exp(hidden_TD: torch.Tensor, head_VD: torch.Tensor) -> torch.Tensor:
    """Compute the log-sum-exp of the logits of every row."""
    return _logits(hidden_TD, head_VD).logsumexp(-1)


def centroid_divergences(
    queries_TD: torch.Tensor, anchors_AD: torch.Tensor, weights_CA: torch.Tensor, head_VD: torch.Tensor
) -> torch.Tensor:
    """Compute KL(c || q) from every centroid to every query: the sum of c log c - c log q over the vocabulary."""
    log_q_TV = _logits(queries_TD, head_VD).log_softmax(-1)
    c_CV = weights_CA.to(queries_TD.dtype) @ _logits(anchors_AD, head_VD).softmax(-1)
    return torch.xlogy(c_CV, c_CV).sum(-1) - log_q_TV @ c_CV.T


def _logits(hidden_TD: torch.Tensor, head_VD: torch.Tensor) -> torch.Tensor:
    return hidden_TD @ head_VD.to(hidden_TD.dtype).T
