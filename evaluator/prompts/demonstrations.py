"""Which demonstrations stand before which query."""

from evaluator.datasets.lcg import Ints, Lcg
from evaluator.errors import TemplateError

N_REPEATS = 2  # the toolkit shows each query behind two demonstration sets; the paper does not say


def sample_demonstrations(*, n_shots: int, n_demonstrations: int, n_queries: int, n_repeats: int = N_REPEATS) -> Ints:
    """Rows of the demonstration split for each prompt, shape [n_repeats, n_queries, n_shots], in prompt order.

    One generator runs through all prompts, first repeat first, so give the whole test split's size as `n_queries` and
    slice: a run of fewer queries then has the same prompts as the full one.

    Raises TemplateError where there are fewer demonstrations than shots; the toolkit then draws with repetition and
    reports zeros.
    """
    if n_shots > n_demonstrations:
        raise TemplateError(
            f"{n_shots} shots were asked for, but the demonstration split has {n_demonstrations} examples. "
            f"Choose --shots from 0 to {n_demonstrations}."
        )
    drawn = Lcg().samples(n_repeats * n_queries, n_shots, n_demonstrations)
    return drawn.reshape(n_repeats, n_queries, n_shots)
