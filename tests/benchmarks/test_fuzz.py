"""A part of the fuzzing in every run of the tests: damaged bytes for every parser, and what was found before."""

import io
import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.faults import damage
from benchmarks.faults.fuzz import fuzz
from benchmarks.faults.parsers import Parser, fault_of, parsers
from evaluator.errors import EvaluatorError

PARSERS = parsers()
INPUTS = 120
"""Damaged inputs for each parser; `make fuzz` has a million for all together."""

NESTED = b"[" * damage.DEPTH
ROW = b'0,Is it?,"[""a"", ""b""]",'
SAMPLE = PARSERS["imported samples"].seeds[0]


def parquet(metadata: dict[bytes, bytes]) -> bytes:
    """Return a table whose column of lists has elements with these metadata."""
    content = io.BytesIO()
    choices = pa.array([["a", "b"]], pa.list_(pa.field("element", pa.string(), metadata=metadata)))
    pq.write_table(pa.table({"id": [0], "input": ["Is it?"], "choices": choices, "gold": [0]}), content)
    return content.getvalue()


FOUND = [
    ("labelled csv", b"text,label\nx," + b"y" * 2**17 + b"\xff\n"),  # a cell longer than Python's reader takes
    ("choices csv", b"id,input,choices,gold\n" + ROW + b"0\x1d\n"),  # a separator, which int() does not strip
    ("choices parquet", parquet({b"made\xffby": b"\xff"})),  # Polars panics
    ("template", b"input_prefixes = " + NESTED),
    ("label names", b"a = " + NESTED),
    ("imported samples", SAMPLE.replace(b"-1.5", b"9" * 400)),
    ("imported samples", SAMPLE.replace(b'"1"', b'"' + b"9" * 5000 + b'"')),
    ("imported csv", b'gold,label_probs,label_names\n0,"[' + b"9" * 400 + b', 0]","[""a"", ""b""]"\n'),
    ("imported csv", b"gold,label_probs,label_names\n" + b"9" * 5000 + b',"[1, 0]","[""a"", ""b""]"\n'),
    ("server answer", b'{"model": "mod\xedl", "choices": []}'),
    ("server answer", b'{"model": ' + NESTED),
]
"""What parsers once failed on, made small, with the parser."""


@pytest.mark.parametrize("name", PARSERS)
def test_every_valid_example_is_read(name: str, tmp_path: Path) -> None:
    parser = PARSERS[name]
    for number, content in enumerate(parser.seeds):
        path = tmp_path / str(number) / parser.file_name
        path.parent.mkdir()
        path.write_bytes(content)
        parser.parse(path)


@pytest.mark.parametrize("name", PARSERS)
def test_damaged_bytes_are_read_or_refused_in_a_sentence(name: str) -> None:
    assert fuzz(PARSERS[name], INPUTS, Random(f"0 {name}")) == {}


@pytest.mark.parametrize(("name", "content"), FOUND, ids=[name for name, _ in FOUND])
def test_what_was_found_before_is_not_found_again(name: str, content: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    assert content not in PARSERS[name].seeds
    assert fault_of(PARSERS[name], content) is None
    assert "panicked" not in capfd.readouterr().err


def test_the_fuzzer_finds_what_a_parser_raises_and_keeps_the_smallest_input() -> None:
    def parse(path: Path) -> None:
        content = path.read_bytes()
        if b"[" in content:
            raise ValueError("found")
        if len(content) > 1:
            raise EvaluatorError("refused")

    found = fuzz(Parser("file", parse, (b"ab",)), 500, Random(0))
    (content,) = found.values()
    assert [*found] == ["ValueError in ?"]
    assert content in (b"[", b"[]")


def test_an_odd_value_is_never_equal_to_the_one_it_replaces():
    before = {"flag": True, "count": 0, "rate": 0.0, "name": "", "rest": []}
    whole = json.dumps(before).encode()
    for seed in range(500):
        assert repr(json.loads(damage.odd_value(whole, Random(seed)))) != repr(before)


@pytest.mark.parametrize("edit", [*damage.BYTES, *damage.JSON], ids=lambda edit: edit.__name__)
def test_every_damage_takes_any_bytes_and_is_the_same_for_a_seed(edit: damage.Damage) -> None:
    for content in (b"", b"1", b"\xff\x00", b"[]", b'{"a": [1, {"b": null}]}', b'{"a": 1}\n{"a": 2}\n'):
        assert edit(content, Random(1)) == edit(content, Random(1))
