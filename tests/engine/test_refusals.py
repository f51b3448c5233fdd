"""One sentence of an error, whatever an engine raised."""

from contextlib import closing

import pydantic
import pytest

from evaluator.config import ModelConfig
from evaluator.engine import load_engine
from evaluator.engine.base import ContinuationRequest, first_sentence, way_out
from evaluator.errors import ModelError


class Dtype(pydantic.BaseModel):
    bits: int

    @pydantic.field_validator("bits")
    @classmethod
    def is_even(cls, bits: int) -> int:
        if bits % 2:
            raise ValueError(f"{bits} bits are odd. Even ones are better.")
        return bits


def test_of_pydantics_several_lines_the_violation_is_kept():
    with pytest.raises(pydantic.ValidationError) as raised:
        Dtype(bits=3)
    assert len(str(raised.value).splitlines()) > 2
    assert first_sentence(raised.value) == "3 bits are odd"


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("No module named 'x.y'", "No module named 'x.y'"),
        ("It failed.\n  Because of this.", "It failed"),
        ("\n\nModel ['A'] is not supported for now. Supported are: B, C", "Model ['A'] is not supported for now"),
        ("Error:\nTraceback (most recent call last):\n  File ...\nTypeError: no kernel", "TypeError: no kernel"),
        ("", "RuntimeError"),
    ],
)
def test_of_other_messages_the_first_sentence_is_kept(message, sentence):
    assert first_sentence(RuntimeError(message)) == sentence


def test_a_sentence_has_an_end():
    assert len(first_sentence(RuntimeError("word " * 1000))) < 301


@pytest.mark.parametrize(
    ("message", "dtype", "tried"),
    [
        ("CPU GDN requires BF16 weights", "float32", "Try --dtype bfloat16, or --engine transformers."),
        ("expected bfloat16, got float", "float16", "Try --dtype bfloat16, or --engine transformers."),
        ("CPU GDN requires BF16 weights", "bfloat16", "Try --engine transformers."),
        ("no kernel image", "float32", "Try --engine transformers."),
        ("Logits in head_dtype float32 are not supported", "bfloat16", "Use --head-dtype model."),
    ],
)
def test_another_dtype_is_named_where_that_is_what_the_engine_asks_for(message, dtype, tried):
    assert way_out(RuntimeError(message), dtype) == tried


def test_what_a_model_raises_while_transformers_computes_is_one_sentence(tiny_source, tiny_model, monkeypatch):
    config = ModelConfig(model=str(tiny_model), engine="transformers", dtype="float32")
    with closing(load_engine(tiny_source, config)) as engine:

        def fails(*_arguments, **_named):
            raise RuntimeError("no kernel image is available. More lines.")

        monkeypatch.setattr(engine._model, "forward", fails)
        with pytest.raises(ModelError, match=r"transformers cannot run .*tiny-llama: no kernel image is available\."):
            list(engine.log_likelihoods([ContinuationRequest([1, 2], [[3]])]))
