# ruff: noqa: N803, N806 - tensors carry their axes in their names
"""Compute log-sum-exps of logits over tiles of the vocabulary, in torch.

A block of logits is held in fp32 until its maximum and the sum of its exponentials are taken.

Shape legend: T rows, D hidden size, V tokens of the vocabulary or of a tile, P tiles.
"""

import math

import torch

# Blocks of 8 MiB. Smaller blocks, down to a core's cache, are not faster on an idle machine and far slower on a busy
# one, because every operation on a block waits for all threads.
ROWS = 1024
TOKENS = 2048


def log_sum_exp(hidden_TD: torch.Tensor, head_VD: torch.Tensor) -> torch.Tensor:
    """Return log_sum_exp of the package, in float64, without checks."""
    tiles = head_VD.split(TOKENS)
    max_TP = hidden_TD.new_empty(len(hidden_TD), len(tiles))
    sum_TP = torch.empty_like(max_TP)
    block = hidden_TD.new_empty(min(ROWS, len(hidden_TD)) * min(TOKENS, len(head_VD)))  # reused: allocation is slow
    for tile, tile_VD in enumerate(tiles):
        tile_DV = tile_VD.float().T
        for start in range(0, len(hidden_TD), ROWS):
            rows = slice(start, start + ROWS)
            rows_TD = hidden_TD[rows]
            shape = len(rows_TD), len(tile_VD)
            logits_TV = torch.mm(rows_TD, tile_DV, out=block[: math.prod(shape)].view(shape))
            max_T = max_TP[rows, tile] = logits_TV.amax(-1)
            sum_TP[rows, tile] = logits_TV.sub_(finite_or_zero(max_T)[:, None]).exp_().sum(-1)
    # Join the tiles, whose sums are of exp(logit - finite_or_zero(maximum)).
    max_TP = max_TP.double()
    shift_T = finite_or_zero(max_TP.amax(-1))
    return shift_T + (sum_TP * (max_TP - shift_T[:, None]).exp()).sum(-1).log()


def finite_or_zero(max_T: torch.Tensor) -> torch.Tensor:
    """Return the number to subtract before exponentiation: 0 for an infinite maximum, since inf - inf would be NaN."""
    return torch.where(max_T.isfinite(), max_T, 0)
