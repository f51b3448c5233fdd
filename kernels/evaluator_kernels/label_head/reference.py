# ruff: noqa: N803, N806 - tensors carry their axes in their names
"""Reference implementations in plain torch, which define the operations; see the package for arguments.

They hold [rows, vocabulary] matrices, and compute and return the dtype of the hidden states: float64 gives the truth.
"""

import torch


def log_sum_exp(hidden_TD: torch.Tensor, head_VD: torch.Tensor) -> torch.Tensor:
    """Compute log-sum-exps of the logits of each row."""
    return _logits(hidden_TD, head_VD).logsumexp(-1)


def centroid_divergences(
    queries_TD: torch.Tensor, anchors_AD: torch.Tensor, weights_CA: torch.Tensor, head_VD: torch.Tensor
) -> torch.Tensor:
    """Compute KL(c || q) from each centroid to each query: sum of c log c - c log q over the vocabulary."""
    log_q_TV = _logits(queries_TD, head_VD).log_softmax(-1)
    c_CV = weights_CA.to(queries_TD.dtype) @ _logits(anchors_AD, head_VD).softmax(-1)
    return torch.xlogy(c_CV, c_CV).sum(-1) - log_q_TV @ c_CV.T


def _logits(hidden_TD: torch.Tensor, head_VD: torch.Tensor) -> torch.Tensor:
    return hidden_TD @ head_VD.to(hidden_TD.dtype).T
