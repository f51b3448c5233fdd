# ruff: noqa: N803, N806 - tensors carry their axes in their names
"""Compute divergences from centroids of next-token distributions, given log-sum-exps.

KL(c || q) = sum_v c_v log c_v - sum_v c_v z_qv + lse_q, and the logits z_qv = h_q . w_v are linear in the hidden state.
So sum_v c_v z_qv = h_q . (sum_v c_v w_v): given the log-sum-exps, no logit of a query is needed.
Logits of anchors are computed twice, once for their log-sum-exps. With 1,024 queries on one thread, this takes 3% less
processor time than torch.compile of the reference for 128 anchors, and 10% more for 640, without the matrix of queries
by vocabulary.

Shape legend: T queries, A anchors, C centroids, D hidden size, V tokens of a tile of the vocabulary.
"""

import torch

TOKENS = 4096  # a hundred anchors take 1.6 MiB a tile


def divergences(
    queries_TD: torch.Tensor,
    query_lse_T: torch.Tensor,
    anchors_AD: torch.Tensor,
    anchor_lse_A: torch.Tensor,
    weights_CA: torch.Tensor,
    head_VD: torch.Tensor,
) -> torch.Tensor:
    """Return centroid_divergences of the package, without checks; rows without distribution have NaN log-sum-exps."""
    is_undefined_A = anchor_lse_A.isnan()
    negentropy_C, mean_head_CD = _centroids(
        # Zeros replace an anchor without a distribution, so that its NaN does not reach centroids with weight 0 on it.
        anchors_AD.masked_fill(is_undefined_A[:, None], 0),
        anchor_lse_A.masked_fill(is_undefined_A, 0),
        weights_CA.float(),
        head_VD,
    )
    kl_TC = negentropy_C - queries_TD.double() @ mean_head_CD.T + query_lse_T[:, None]
    is_undefined_C = ((weights_CA != 0) & is_undefined_A).any(-1)
    return kl_TC.masked_fill(is_undefined_C, torch.nan)


def _centroids(
    anchors_AD: torch.Tensor, anchor_lse_A: torch.Tensor, weights_CA: torch.Tensor, head_VD: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the negentropy of each centroid, nats, and its mean row of the head, weighted by token probabilities.

    Matrix products are in fp32 within a tile, sums over tiles in float64.

    Sums are divided by the actual mass of c, so that rounding errors of log-sum-exps and weights cancel.
    """
    n_centroids, n_features = len(weights_CA), head_VD.shape[1]
    mass_C = head_VD.new_zeros(n_centroids, dtype=torch.float64)
    negentropy_C = torch.zeros_like(mass_C)
    mean_head_CD = head_VD.new_zeros(n_centroids, n_features, dtype=torch.float64)
    lse_A1 = anchor_lse_A.float()[:, None]
    for tile_VD in head_VD.split(TOKENS):
        tile_VD = tile_VD.float()
        c_CV = weights_CA @ (anchors_AD @ tile_VD.T).sub_(lse_A1).exp_()
        mass_C += c_CV.sum(-1, dtype=torch.float64)
        negentropy_C += torch.xlogy(c_CV, c_CV).sum(-1, dtype=torch.float64)
        mean_head_CD += c_CV @ tile_VD
    return negentropy_C / mass_C - mass_C.log(), mean_head_CD / mass_C[:, None]
