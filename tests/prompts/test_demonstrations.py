import pytest
from StaICC.util.dataset_interface import demonstration_sampler

from evaluator.errors import TemplateError
from evaluator.prompts.demonstrations import sample_demonstrations


@pytest.mark.parametrize("n_shots", [0, 1, 2, 3, 7, 16, 50])
def test_demonstrations_are_those_of_the_toolkit_repeat_by_repeat(n_shots: int):
    # The toolkit takes its sample number (query + repeat * number of queries) for a prompt.
    toolkit = demonstration_sampler(n_shots, 50, 2 * 30)
    drawn = sample_demonstrations(n_shots=n_shots, n_demonstrations=50, n_queries=30)
    assert drawn.shape == (2, 30, n_shots)
    for repeat in range(2):
        for query in range(30):
            assert drawn[repeat, query].tolist() == toolkit[query + repeat * 30]


def test_no_demonstration_is_shown_twice_in_a_prompt():
    drawn = sample_demonstrations(n_shots=8, n_demonstrations=9, n_queries=40)
    assert all(len(set(shown)) == 8 for shown in drawn.reshape(-1, 8).tolist())


def test_more_shots_than_demonstrations_are_refused():
    with pytest.raises(TemplateError, match="513 shots were asked for, but the demonstration split has 512"):
        sample_demonstrations(n_shots=513, n_demonstrations=512, n_queries=1)
