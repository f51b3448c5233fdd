# ruff: noqa: N803, N806 - tensors carry their axes in their names
"""Hidden states times LM head: against SciPy in float64, and what is held meanwhile.

Shape legend: T rows or queries, A anchors, C centroids, V vocabulary, D hidden size.
"""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp, rel_entr, softmax
from torch.utils._python_dispatch import TorchDispatchMode

from evaluator_kernels import label_head
from evaluator_kernels.label_head import centroid_divergences, log_sum_exp, reference

CUDA = torch.device("cuda")
LOW_PRECISION = [torch.bfloat16, torch.float16]
# Sizes (T, D, V) around the tiles: one, just under, just over, and dividing nothing.
SIZES = [(1, 1, 1), (3, 7, 1023), (2, 33, 2049), (1025, 16, 2050), (37, 65, 1000)]


def states(n_rows: int, n_features: int, seed: int) -> torch.Tensor:
    return torch.randn(n_rows, n_features, generator=torch.Generator().manual_seed(seed))


def head(n_tokens: int, n_features: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Logits of `states` have a standard deviation of 4: some tokens are likely, most are not."""
    return (states(n_tokens, n_features, seed=1) * 4 / math.sqrt(n_features)).to(dtype)


def logits(hidden_TD: torch.Tensor, head_VD: torch.Tensor) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # an infinity times zero
        return hidden_TD.double().numpy() @ head_VD.double().numpy().T


def odd_rows() -> tuple[torch.Tensor, torch.Tensor]:
    """Seven rows over 2,100 tokens, in several tiles; the first and the last are ordinary."""
    head_VD = head(2_100, 4)
    head_VD[:, 3] = head_VD[:, 3].abs() + 0.1  # so that an infinity in the last feature has the same sign throughout
    hidden_TD = states(7, 4, seed=0)
    hidden_TD[1, 2] = math.nan
    hidden_TD[2, 0] = math.inf  # logits of both infinities
    hidden_TD[3, 3] = math.inf
    hidden_TD[4, 3] = -math.inf
    hidden_TD[5] = torch.tensor([0, 0, 0, -1e4])  # every logit below -1,000: exp() of it is 0 in fp32 and float64
    return hidden_TD, head_VD


def impossible_tokens() -> tuple[torch.Tensor, torch.Tensor]:
    """Four rows over 2,100 tokens; the second and the last give a logit of -inf to whole tiles and one token more."""
    head_VD = head(2_100, 4)
    head_VD[:, 0] = head_VD[:, 0].abs() + 0.1
    head_VD[:2_050, 3] = -math.inf
    head_VD[2_099, 2] = math.inf
    hidden_TD = states(4, 4, seed=0).abs()
    hidden_TD[1:, 2] *= -1
    hidden_TD[2, 3] *= -1  # makes the logits of -inf into +inf
    hidden_TD[3, 0] = -1e5  # every other logit below -1,000
    return hidden_TD, head_VD


CASES = {
    **{f"{T} rows, {D} features, {V} tokens": (states(T, D, seed=0), head(V, D)) for T, D, V in SIZES},
    **{f"{dtype} head": (states(37, 65, seed=0), head(300, 65, dtype)) for dtype in LOW_PRECISION},
    "strided": (states(20, 66, seed=0)[::2, ::2], head(33, 300).T),
    "no rows": (states(0, 8, seed=0), head(300, 8)),
    "odd rows": odd_rows(),
    "impossible tokens": impossible_tokens(),
}


@pytest.mark.parametrize("name", CASES)
def test_tiles_give_the_log_sum_exp_over_the_whole_vocabulary(name):
    with np.errstate(all="ignore"):
        expected = logsumexp(logits(*CASES[name]), axis=-1)
    answer = log_sum_exp(*CASES[name])
    assert answer.dtype == torch.float64
    np.testing.assert_allclose(answer.numpy(), expected, rtol=1e-6, atol=4e-6, err_msg=name)


def test_infinities_and_nan_give_what_the_docstring_says_and_leave_other_rows_alone():
    nan, inf = math.nan, math.inf
    answers = log_sum_exp(*CASES["odd rows"]).tolist()
    # NaN among the numbers; +inf and -inf among the logits; +inf alone; -inf alone.
    np.testing.assert_equal(answers[1:5], [nan, inf, inf, -inf])
    assert answers[5] < -1_000
    assert np.isfinite(answers[::6]).all()
    np.testing.assert_array_equal(log_sum_exp(*CASES["impossible tokens"]).isfinite(), [False, True, False, True])


def test_hand_worked_distributions():
    # Under the identity as head a hidden state is its own logits. Two tokens:
    #   1. weights 2 and 6: the sum is 8, the probabilities 1/4 and 3/4;
    #   2. weights 5 and 5: the sum is 10, the probabilities 1/2 and 1/2.
    head_VD = torch.eye(2)
    hidden_TD = torch.tensor([[2.0, 6.0], [5.0, 5.0]]).log()
    close = {"rel": 1e-6, "abs": 1e-6}
    assert log_sum_exp(hidden_TD, head_VD).tolist() == pytest.approx([math.log(8), math.log(10)], **close)

    # Anchors of (3/4, 1/4) and (1/4, 3/4); centroids: the first one, and the mean of both, (1/2, 1/2).
    anchors_AD = torch.tensor([[3.0, 1.0], [1.0, 3.0]]).log()
    weights_CA = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    kl_TC = centroid_divergences(hidden_TD, anchors_AD, weights_CA, head_VD)
    # From the first: to (1/4, 3/4) 3/4 ln 3 + 1/4 ln 1/3 = ln(3)/2; to (1/2, 1/2) 3/4 ln 3/2 + 1/4 ln 1/2.
    # From the mean: to (1/4, 3/4) 1/2 ln 2 + 1/2 ln 2/3 = ln(4/3)/2; to itself 0.
    assert kl_TC[0].tolist() == pytest.approx([math.log(3) / 2, math.log(4 / 3) / 2], **close)
    assert kl_TC[1].tolist() == pytest.approx([0.75 * math.log(1.5) + 0.25 * math.log(0.5), 0], **close)


def kl(queries_TD: torch.Tensor, anchors_AD: torch.Tensor, weights_CA: torch.Tensor, head_VD: torch.Tensor):
    """The divergences by SciPy in float64, token by token."""
    c_CV = weights_CA.double().numpy() @ softmax(logits(anchors_AD, head_VD), axis=-1)
    q_TV = softmax(logits(queries_TD, head_VD), axis=-1)
    return rel_entr(c_CV[None], q_TV[:, None]).sum(-1)


def means_of_labels(n_labels: int, n_anchors: int) -> torch.Tensor:
    labels_A = torch.arange(n_anchors) % n_labels
    one_hot_CA = torch.nn.functional.one_hot(labels_A, n_labels).T.double()
    return one_hot_CA / one_hot_CA.sum(-1, keepdim=True)


@pytest.mark.parametrize(("T", "D", "V"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_centroid_divergences_are_the_sums_of_relative_entropies(T, D, V, dtype):
    queries_TD, anchors_AD, head_VD = states(T, D, seed=0), states(11, D, seed=2), head(V, D)
    weights_CA = means_of_labels(3, 11).to(dtype)
    answer_TC = centroid_divergences(queries_TD, anchors_AD, weights_CA, head_VD)
    assert answer_TC.dtype == torch.float64
    np.testing.assert_allclose(answer_TC, kl(queries_TD, anchors_AD, weights_CA, head_VD), rtol=1e-5, atol=1e-5)


def test_the_identity_as_weights_gives_the_divergence_from_every_anchor():
    queries_TD, anchors_AD, head_VD = states(5, 9, seed=0), states(6, 9, seed=2), head(1_500, 9)
    answer_TA = centroid_divergences(queries_TD, anchors_AD, torch.eye(6), head_VD)
    for anchor in range(6):
        one = slice(anchor, anchor + 1)
        expected_T = kl(queries_TD, anchors_AD[one], torch.ones(1, 1), head_VD)
        np.testing.assert_allclose(answer_TA[:, one], expected_T, rtol=1e-5, atol=1e-5)


def test_weights_that_miss_a_sum_of_one_by_rounding_give_what_exact_ones_give():
    queries_TD, anchors_AD, head_VD = states(5, 4, seed=0), states(6, 4, seed=2), head(50, 4) / 4
    weights_CA = means_of_labels(2, 6)
    exact_TC = centroid_divergences(queries_TD, anchors_AD, weights_CA, head_VD)
    rounded_TC = centroid_divergences(queries_TD, anchors_AD, weights_CA * (1 + 9e-6), head_VD)
    np.testing.assert_allclose(rounded_TC, exact_TC, rtol=0, atol=1e-6)


@given(st.integers(0, 10_000), st.floats(0.1, 10), st.integers(1, 2_500))
def test_a_divergence_is_below_zero_by_rounding_at_most_and_zero_from_a_distribution_to_itself(seed, scale, n_tokens):
    queries_TD, head_VD = scale * states(6, 16, seed), head(n_tokens, 16)
    kl_TT = centroid_divergences(queries_TD, queries_TD, torch.eye(6), head_VD)
    rounding = 4e-5 * max(1, np.abs(logits(queries_TD, head_VD)).max() / 40)
    assert kl_TT.min() > -rounding
    assert kl_TT.diagonal().abs().max() < rounding


@pytest.mark.parametrize("dtype", [torch.float32, *LOW_PRECISION])
def test_errors_are_no_larger_than_those_of_the_plain_version_in_the_heads_dtype(dtype):
    queries_TD, anchors_AD, head_VD = states(50, 257, seed=0), states(21, 257, seed=2), head(3_001, 257, dtype)
    weights_CA = means_of_labels(4, 21)
    one_step = np.spacing(np.float32(np.abs(logits(queries_TD, head_VD)).max()))  # of fp32 at the largest logit
    operations = [
        (log_sum_exp, reference.log_sum_exp, (queries_TD, head_VD)),
        (centroid_divergences, reference.centroid_divergences, (queries_TD, anchors_AD, weights_CA, head_VD)),
    ]
    for ours, plain, arguments in operations:

        def computed_in(dtype, arguments=arguments, plain=plain):
            return plain(*(a.to(dtype) if a.is_floating_point() else a for a in arguments)).double()

        truth = computed_in(torch.float64)
        error = (ours(*arguments) - truth).abs().max().item()
        allowed = (computed_in(dtype) - truth).abs().max().item() + one_step
        assert error <= allowed, f"{ours.__name__}: off by {error:.2g}, the plain version in {dtype} by {allowed:.2g}"


def test_without_rows_or_centroids_the_answer_is_empty():
    none_TD, some_TD, head_VD = states(0, 8, seed=0), states(3, 8, seed=0), head(40, 8)
    assert log_sum_exp(none_TD, head_VD).shape == (0,)
    assert centroid_divergences(none_TD, some_TD, torch.eye(3), head_VD).shape == (0, 3)
    assert centroid_divergences(some_TD, none_TD, torch.zeros(0, 0), head_VD).shape == (3, 0)


def test_a_query_without_a_distribution_is_nan_in_its_own_row_of_divergences():
    hidden_TD, head_VD = CASES["odd rows"]
    anchors_AD, usual = states(4, 4, seed=2), [0, 6]
    kl_TA = centroid_divergences(hidden_TD, anchors_AD, torch.eye(4), head_VD)
    assert kl_TA[1:5].isnan().all()
    np.testing.assert_allclose(
        kl_TA[usual], kl(hidden_TD[usual], anchors_AD, torch.eye(4), head_VD), rtol=1e-5, atol=1e-5
    )


def test_an_anchor_without_a_distribution_is_nan_in_the_centroids_that_weigh_it_and_in_no_other():
    anchors_AD, head_VD = CASES["odd rows"]
    queries_TD = states(3, 4, seed=2)
    kl_TA = centroid_divergences(queries_TD, anchors_AD, torch.eye(7), head_VD)
    assert kl_TA.isnan().tolist() == [[False, True, True, True, True, False, False]] * 3
    mixed_CA = torch.zeros(2, 7)
    mixed_CA[0, [0, 6]] = mixed_CA[1, [0, 1]] = 0.5
    kl_TC = centroid_divergences(queries_TD, anchors_AD, mixed_CA, head_VD)
    usual = [0, 6]
    expected_T1 = kl(queries_TD, anchors_AD[usual], torch.full((1, 2), 0.5), head_VD)
    np.testing.assert_allclose(kl_TC[:, :1], expected_T1, rtol=1e-5, atol=1e-5)
    assert kl_TC[:, 1].isnan().all()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_head_that_is_not_finite_leaves_no_divergence_defined(number):
    head_VD = head(2_100, 4)
    head_VD[7, 2] = number
    kl_TA = centroid_divergences(states(5, 4, seed=0), states(6, 4, seed=2), torch.eye(6), head_VD)
    assert kl_TA.isnan().all()


class LargestTensor(TorchDispatchMode):
    """Sees every operation and keeps how many numbers the largest tensor that came out of one has."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (list, tuple)) else [made]:
            # Views of what was there, the head above all, are not made.
            if isinstance(tensor, torch.Tensor) and not func.is_view:
                self.numbers = max(self.numbers, tensor.numel())
        return made


@pytest.mark.parametrize("name", ["log_sum_exp", "centroid_divergences"])
def test_no_matrix_of_rows_by_vocabulary_is_ever_made(name):
    T, D, V = 1_100, 2, 50_000
    hidden_TD, head_VD = states(T, D, seed=0), head(V, D, torch.bfloat16)
    arguments = {
        "log_sum_exp": (hidden_TD, head_VD),
        "centroid_divergences": (hidden_TD, states(64, D, seed=2), torch.eye(64), head_VD),
    }[name]
    with LargestTensor() as ours:
        getattr(label_head, name)(*arguments)
    with LargestTensor() as plain:
        getattr(reference, name)(*arguments)
    assert plain.numbers == T * V
    assert ours.numbers == 1_024 * 2_048  # one block: a 26th of the matrix, and no more of a larger one


def test_a_head_that_is_being_trained_gives_numbers_without_a_history():
    head_VD = head(40, 8).requires_grad_()
    hidden_TD = states(3, 8, seed=0)
    answers = [
        log_sum_exp(hidden_TD, head_VD),
        centroid_divergences(hidden_TD, hidden_TD, torch.eye(3), head_VD),
    ]
    assert not any(answer.requires_grad for answer in answers)


def rows(n_rows: int, n_features: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    return torch.zeros(n_rows, n_features, dtype=dtype, device=device)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((rows(2, 3, torch.float64), rows(5, 3)), TypeError, "hidden_TD must be torch.float32, got torch.float64"),
        ((rows(2, 3), rows(5, 3, torch.float64)), TypeError, "head_VD must be one of .* got torch.float64"),
        ((rows(2, 4), rows(5, 3)), ValueError, r"hidden_TD must be \[rows, 3\], as wide as .* got shape \(2, 4\)"),
        ((torch.zeros(3), rows(5, 3)), ValueError, r"got shape \(3,\)"),
        ((rows(2, 3), torch.zeros(5, 3, 1)), ValueError, r"head_VD must be \[V, D\] .* got shape \(5, 3, 1\)"),
        ((rows(2, 3), rows(0, 3)), ValueError, r"at least one token, got shape \(0, 3\)"),
        ((rows(2, 3, device="meta"), rows(5, 3)), ValueError, "hidden_TD is on meta, not cpu"),
    ],
)
def test_arguments_that_are_not_hidden_states_and_a_head_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        log_sum_exp(*arguments)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (torch.eye(2, dtype=torch.int64), TypeError, "weights_CA must be torch.float32 or torch.float64, got"),
        (torch.eye(3), ValueError, r"weights_CA must be \[centroids, 2\], one column an anchor, got shape \(3, 3\)"),
        (torch.tensor([[1.0, 0.0], [0.7, 0.4]]), ValueError, "row 1 sums to 1.1 and its smallest weight is 0.4"),
        (torch.tensor([[1.5, -0.5]]), ValueError, "row 0 sums to 1 and its smallest weight is -0.5"),
        (torch.tensor([[math.nan, 1.0]]), ValueError, "row 0 sums to nan"),
        (torch.eye(2, device="meta"), ValueError, "weights_CA is on meta, not cpu"),
    ],
)
def test_weights_that_are_not_means_of_the_anchors_are_refused(weights, error, message):
    with pytest.raises(error, match=message):
        centroid_divergences(rows(2, 3), rows(2, 3), weights, rows(5, 3))


def test_a_centroid_of_no_anchors_is_refused():
    with pytest.raises(ValueError, match="row 0 sums to 0 and its smallest weight is 0"):
        centroid_divergences(rows(2, 3), rows(0, 3), torch.zeros(1, 0), rows(5, 3))


def test_shared_prefixes_do_not_wait_for_torch_to_be_imported():
    script = """if True:
        import sys
        import evaluator_kernels.shared_prefix
        print("torch" in sys.modules)
    """
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")
@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu_the_sum_is_what_the_reference_gives_in_float64(name):
    hidden_TD, head_VD = (tensor.to(CUDA) for tensor in CASES[name])
    expected_T = reference.log_sum_exp(hidden_TD.double(), head_VD).cpu()
    np.testing.assert_allclose(log_sum_exp(hidden_TD, head_VD).cpu(), expected_T, rtol=1e-6, atol=4e-6)
