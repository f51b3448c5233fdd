"""What the embedded model can do before its first step of training."""

import pytest
import torch

from benchmarks.embedded_model.settings import Recipe

VOCABULARY = 1_000
N_TOKENS = 300


@pytest.fixture(scope="module")
def model():
    from benchmarks.embedded_model.initial_weights import initial_model  # and transformers' Llama, which takes seconds

    torch.manual_seed(0)
    recipe = Recipe()
    embeddings = torch.nn.functional.normalize(torch.randn(VOCABULARY, recipe.size.hidden_size), dim=-1)
    model = initial_model(embeddings, recipe)
    model.set_attn_implementation("eager")
    return model.eval()


@torch.inference_mode()
def test_each_head_of_the_first_layer_attends_as_far_back_as_its_reach(model):
    from benchmarks.embedded_model.initial_weights import NEARBY_TOKENS

    token_ids = torch.randint(VOCABULARY, (16, N_TOKENS))
    attention = model(input_ids=token_ids, output_attentions=True).attentions[0][:, :, -1].mean(0).flip(-1)
    for head, reach in zip(attention, NEARBY_TOKENS, strict=True):  # [distance from the last place]
        assert head[: 2 * reach].sum() > 0.8
        assert head[:5].mean() > 5 * head[2 * reach : 3 * reach].mean()


@torch.inference_mode()
def test_nearby_tokens_raise_the_logits_of_similar_words(model):
    # Texts of tokens drawn around one of two label words must point to that word, as they do when simply averaged.
    embeddings = model.model.embed_tokens.weight
    labels = torch.tensor([10, 20])
    likeness = embeddings[:, 1:] @ embeddings[labels, 1:].T  # [vocabulary, label]
    for own, other in ((0, 1), (1, 0)):
        like = (likeness[:, own] - likeness[:, other]).argsort(descending=True)[2:60]
        texts = like[torch.randint(len(like), (32, 24))]
        logits = model(input_ids=texts).logits[:, -1, labels]
        assert (logits[:, own] > logits[:, other]).float().mean() > 0.9


@torch.inference_mode()
def test_the_entry_that_all_tokens_share_does_not_change_logits(model):
    hidden = model.model(input_ids=torch.randint(VOCABULARY, (2, 20))).last_hidden_state
    assert (hidden[..., 0] == 0).all()
