# ruff: noqa: N803, N806 - tensors carry their axes in their names
"""Compute log-sum-exps of logits over tiles of the vocabulary, in Triton.

It is a matrix product that stores two numbers per row and tile instead of the tile itself. It was tested under Triton's
interpreter, which gives no timing: whether it is faster than torch.compile of the reference is not known.

Shape legend: T rows, D hidden size, V tokens of the vocabulary, P tiles of it. Inside the kernel T, D and V are those
of one block.
"""

import torch
import triton
import triton.language as tl

from evaluator_kernels.label_head.tiled import join_tiles

ROWS = 64
TOKENS = 128
FEATURES = 32


def log_sum_exp(hidden_TD: torch.Tensor, head_VD: torch.Tensor) -> torch.Tensor:
    """Return log_sum_exp of the package, without checks."""
    n_rows, n_features = hidden_TD.shape
    n_tokens = len(head_VD)
    n_tiles = triton.cdiv(n_tokens, TOKENS)
    max_TP = hidden_TD.new_empty(n_rows, n_tiles)
    sum_TP = torch.empty_like(max_TP)
    if n_rows:
        with torch.cuda.device_of(hidden_TD):
            # Blocks of rows vary fastest: concurrent ones share a tile of the head, by far the larger operand.
            _tile_sums[(triton.cdiv(n_rows, ROWS), n_tiles)](
                hidden_TD,
                head_VD,
                max_TP,
                sum_TP,
                *(n_rows, n_tokens, n_features, n_tiles),
                *hidden_TD.stride(),
                *head_VD.stride(),
                ROWS=ROWS,
                TOKENS=TOKENS,
                FEATURES=FEATURES,
            )
    return join_tiles(max_TP, sum_TP)


@triton.jit  # type: ignore[untyped-decorator]
def _tile_sums(
    hidden_TD: tl.tensor,
    head_VD: tl.tensor,
    max_TP: tl.tensor,
    sum_TP: tl.tensor,
    n_rows: int,
    n_tokens: int,
    n_features: int,
    n_tiles: int,
    hidden_stride_T: int,
    hidden_stride_D: int,
    head_stride_V: int,
    head_stride_D: int,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
    FEATURES: tl.constexpr,
) -> None:
    """Store the maximum of a block of logits and the sum of exp(logit - maximum), for each row of a tile."""
    tile = tl.program_id(1)
    # 64 bits, because a head can have more than 2**31 numbers.
    t_T = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    v_V = tile.to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    logits_TV = tl.zeros((ROWS, TOKENS), tl.float32)
    for first in range(0, n_features, FEATURES):
        d_D = first + tl.arange(0, FEATURES)
        hidden_at_TD = hidden_TD + t_T[:, None] * hidden_stride_T + d_D[None, :] * hidden_stride_D
        head_at_DV = head_VD + v_V[None, :] * head_stride_V + d_D[:, None] * head_stride_D
        block_TD = tl.load(hidden_at_TD, mask=(t_T[:, None] < n_rows) & (d_D[None, :] < n_features), other=0.0)
        block_DV = tl.load(head_at_DV, mask=(v_V[None, :] < n_tokens) & (d_D[:, None] < n_features), other=0.0)
        logits_TV = tl.dot(block_TD, block_DV.to(tl.float32), logits_TV, input_precision="ieee")
    logits_TV = tl.where(v_V[None, :] < n_tokens, logits_TV, float("-inf"))
    max_T = tl.max(logits_TV, axis=1)
    # As finite_or_zero. The maximum ignores a NaN, but the sum does not.
    shift_T = tl.where(tl.abs(max_T) < float("inf"), max_T, 0.0)
    sum_T = tl.sum(tl.exp(logits_TV - shift_T[:, None]), axis=1)
    tl.store(max_TP + t_T * n_tiles + tile, max_T, mask=t_T < n_rows)
    tl.store(sum_TP + t_T * n_tiles + tile, sum_T, mask=t_T < n_rows)
