"""The last feed-forward network of a model in vLLM computes the tokens whose output is read, and no others."""

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from evaluator.engine.base import ContinuationRequest, Engine
from evaluator.engine.vllm_import import import_vllm
from tests.engine.cpu_only import cpu_only

pytestmark = cpu_only

CONTEXT = random.Random(1).choices(range(2, 258), k=50)
N_LAYERS = 3


@pytest.fixture(scope="module")
def module() -> Any:
    import_vllm()  # without its warnings
    from evaluator.engine import vllm_read_rows

    return vllm_read_rows


def feed_forward(llm: Any) -> Any:
    (network,) = llm.apply_model(lambda model: model.model.layers[-1].mlp)
    return network


@pytest.fixture
def computed(loaded_engine: Callable[[str], Engine]) -> Iterator[list[int]]:
    """The rows that each step of vLLM takes through the last feed-forward network."""
    engine: Any = loaded_engine("vllm")
    network, rows = feed_forward(engine._llm), []
    hook = network.act_fn.register_forward_pre_hook(lambda _module, given: rows.append(len(given[0])))
    yield rows
    hook.remove()


def ask(engine: Engine, *continuations: list[int]) -> None:
    assert len(list(engine.log_likelihoods([ContinuationRequest(CONTEXT, list(continuations))]))) == 1


def test_of_a_prompt_only_the_last_tokens_are_computed_where_labels_have_one_token(module, loaded_engine, computed):
    ask(loaded_engine("vllm"), [5], [6])
    # The last token, and so many before it that the product of a layer is that of many rows.
    assert computed == [1 + module._MIN_ROWS]


def test_of_many_prompts_only_the_last_token_each_is_computed(loaded_engine, computed):
    requests = [ContinuationRequest([token, *CONTEXT[:20]], [[5], [6]]) for token in range(2, 22)]
    assert len(list(loaded_engine("vllm").log_likelihoods(requests))) == 20
    assert sum(computed) < 4 * 20  # of 21 tokens each, in steps of 256


def test_all_tokens_are_computed_where_log_probabilities_of_the_prompt_are_read(module, loaded_engine, computed):
    labels = [CONTEXT[n : n + 20] for n in range(2)]
    ask(loaded_engine("vllm"), *labels)
    first_tokens, *rest = computed
    assert first_tokens == 1 + module._MIN_ROWS
    assert sum(rest) >= 2 * 20  # the labels, and the last token of the context again


def test_other_tokens_get_zeros_and_the_read_ones_what_the_network_gives(module, monkeypatch):
    rows = torch.tensor([1, 3])
    monkeypatch.setattr(module, "_read_rows", lambda _tokens: rows)
    tokens = torch.arange(8.0).reshape(4, 2)
    output = module.ReadRows(lambda some: 10 * some)(tokens)
    assert output.tolist() == [[0, 0], [20, 30], [0, 0], [60, 70]]
    output, bias = module.ReadRows(lambda some: (10 * some, "bias"))(tokens)
    assert output.tolist() == [[0, 0], [20, 30], [0, 0], [60, 70]]
    assert bias == "bias"


class Layer(torch.nn.Module):
    def __init__(self, mlp: torch.nn.Module) -> None:
        super().__init__()
        self.mlp = mlp


def model_of(networks: list[torch.nn.Module], n_layers: int = N_LAYERS) -> Any:
    model: Any = torch.nn.Module()
    model.layers = torch.nn.ModuleList([Layer(network) for network in networks])
    model.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(num_hidden_layers=n_layers))
    return model


def test_only_the_network_of_the_last_layer_is_changed(module):
    networks = [torch.nn.Linear(2, 2) for _ in range(N_LAYERS)]
    module.compute_read_rows_only(model_of(networks))
    assert [isinstance(network.forward, module.ReadRows) for network in networks] == [False, False, True]


def test_a_network_that_layers_share_is_left_alone(module):
    network = torch.nn.Linear(2, 2)
    module.compute_read_rows_only(model_of([network] * N_LAYERS))
    assert not isinstance(network.forward, module.ReadRows)


def test_a_model_whose_layers_are_not_found_is_left_alone(module):
    networks = [torch.nn.Linear(2, 2) for _ in range(N_LAYERS)]
    module.compute_read_rows_only(model_of(networks, n_layers=N_LAYERS + 1))
    assert not any(isinstance(network.forward, module.ReadRows) for network in networks)


def test_a_model_without_a_configuration_is_left_alone(module):
    model = model_of([torch.nn.Linear(2, 2)])
    del model.config
    module.compute_read_rows_only(model)
    assert not isinstance(model.layers[0].mlp.forward, module.ReadRows)
