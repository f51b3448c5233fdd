"""List the points in which the papers and their released code differ: the rows of docs/differences.md."""

from typing import NamedTuple


class Difference(NamedTuple):
    """A point in which a paper and its released code differ."""

    number: int
    paper: str  # behaviour by the paper
    released: str  # behaviour of the released code
    ours: str  # behaviour of this project
    unmeasured: str = ""  # why the effect is not measured; empty: it is measured


NO_SWITCH = "not measurable here: the released behaviour is an error and cannot be chosen"
NO_MODEL = "not measurable here: it concerns data or models that were used, not a formula"
SPLIT_LABELS = "not measurable here: the released method reads labels of one token, and the model that ships makes two"
SAME = "not measurable here: both give the same number where the released code does not fail"

DIFFERENCES = (
    Difference(
        1, "n times accuracy is a count", "floor(n acc - 1) in floating point", "whole counts are taken", NO_SWITCH
    ),
    Difference(2, "masses of a distribution", "a constant is added to each mass", "survival form, logarithms of tails"),
    Difference(
        3, "-", "a wrong number ends the process; longer lists are accepted", "every input is checked", NO_SWITCH
    ),
    Difference(
        4, "n of the examples", "n as stated, also where fewer were scored", "n from the data; both in the reproduction"
    ),
    Difference(
        5,
        "chance of the examples",
        "one constant for 3, 5 and 7 choices",
        "chance of each example; both in the reproduction",
    ),
    Difference(
        6,
        "whole prompts",
        "prompts cut at 512 tokens, ties wrong",
        "too long prompts are refused, ties drawn and counted",
        NO_SWITCH,
    ),
    Difference(
        7,
        "an instruction-tuned model",
        "the base model was loaded",
        "fingerprints of weights; equal losses are flagged",
        NO_MODEL,
    ),
    Difference(
        8,
        "number of prompts tried",
        "200, though fewer distinct ones ran",
        "distinct prompts; both in the reproduction",
    ),
    Difference(
        9, "one comparison", ">= in the table, > in the held-out script", "> everywhere; both in the reproduction"
    ),
    Difference(
        10,
        "probabilities as they are",
        "softmax over the matrix unless rows sum to exactly 1",
        "definitions paper, released, published",
    ),
    Difference(
        11,
        "bins [(b - 1) / B, b / B): confidence 1 is in none",
        "the same",
        "half-open under every definition; closed in the parts of proper scores",
        SAME,
    ),
    Difference(
        12,
        "slope over the noise rates",
        "slope over 1, .75, .25, -.5, -1.5",
        "definitions paper (shares of wrong labels in the prompts), released; gler_per_tenth and gler_toolkit_axis as "
        "tables 3 and 7 print it",
    ),
    Difference(13, "minus the mean entropy", "entropy of the mean", "definitions paper, released"),
    Difference(
        14,
        "KL divergence, 0 log 0 = 0",
        "division by zero for absent classes",
        "definitions paper (infinite, class named), released",
    ),
    Difference(15, "all labels", "as many as the highest prediction", "width of the label space", SAME),
    Difference(16, "normalised ratio", "softmax of ratio or difference", "definitions paper, released"),
    Difference(
        17,
        "log-likelihood of the query given the label",
        "mean loss of the whole prompt",
        "definitions paper, released",
    ),
    Difference(
        18, "whole labels", "last token; prompt and label apart", "definitions; --label-boundary separate, merged"
    ),
    Difference(19, "random orderings", "always the first ten permutations", "definitions paper (seeded), released"),
    Difference(20, "all demonstrations", "cut to 512 for later methods", "definitions paper, released"),
    Difference(21, "all words are drawn", "never a row's last word", "prompts of --definition paper, released"),
    Difference(22, "all queries", "first 100 queries; first 128 times 8", "prompts of --definition paper, released"),
    Difference(23, "-", "state is kept between runs", "none is", NO_SWITCH),
    Difference(
        24,
        "tables 4 to 6 of the paper",
        "labels in another order",
        "the code's prompts, byte for byte",
        "not measurable here: the paper's order was used nowhere",
    ),
    Difference(
        25, "queries of calibration words", "words of the demonstration set", "prompts of --definition paper, released"
    ),
    Difference(
        26,
        "512 queries",
        "each query twice",
        "intervals are clustered by query; n is stated",
        "not measurable here: it moves intervals that the toolkit does not have",
    ),
    Difference(
        27,
        "random wrong labels, rounded number",
        "the next label, number cut",
        "prompts of --definition paper, released",
    ),
    Difference(28, "draw from the other classes", "rejection that may not end", "draw from the filtered set", SAME),
    Difference(29, "-", "a failed dataset counts as 0", "left out of the mean and named", NO_SWITCH),
    Difference(30, "10 bins", "the argument is overridden", "10 bins", SAME),
    Difference(31, "KL divergence of distributions", "Euclidean distance of logits", "definitions paper, released"),
    Difference(
        32,
        "bits, whole vocabulary",
        "nats, temperature .8, 20 tokens",
        "definitions paper, released (pvi_released)",
        SPLIT_LABELS,
    ),
    Difference(
        33, "most probable label", "sampled text", "definitions paper, released (drawn by a seed)", SPLIT_LABELS
    ),
    Difference(34, "token of the label", "BOS on some tokenizers", "the label's token; several are refused", NO_SWITCH),
    Difference(
        35,
        "-",
        "targets outside the top 5 are dropped",
        "missing is counted",
        "not measurable here: needs the interface of a hosted model",
    ),
    Difference(36, "a fifth of the queries", "strictly beyond a quantile", "definitions paper, released", SPLIT_LABELS),
    Difference(37, "variance over queries", "over six run means", "both tests are tables of a run"),
    Difference(
        38,
        "10,000 rows, label codes of the corpus",
        "9,815 and 9,824 rows, 1 and 3 swapped",
        "rows are counted, codes are those of the prompts",
        NO_MODEL,
    ),
    Difference(
        39,
        "the best of fewer prompts, drawn with replacement (Dodge et al. 2019)",
        "the same",
        "definitions paper, distinct (mean over subsets of different prompts) of search_curves",
        SAME,
    ),
)
