"""A safetensors file is read if the library opens it, and else refused in one sentence that names it."""

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from evaluator.errors import ModelError
from evaluator.files.whole import file_digest
from evaluator.models import weights
from evaluator.models.weights import Tensor, file_digests, first_not_finite, read_header

WHOLE = {
    "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
    "a": {"dtype": "F16", "shape": [2, 1], "data_offsets": [0, 4]},
}


def write(path: Path, header: object, numbers: bytes = bytes(12)) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + numbers)
    return path


def opened_by_the_library(path: Path) -> bool:
    try:
        with safe_open(path, framework="np") as file:
            file.keys()
    except (SafetensorError, OSError, ValueError):
        return False
    return True


def accepted(path: Path) -> bool:
    try:
        read_header(path)
    except ModelError as error:
        assert str(error).startswith(f"{path} is damaged or no safetensors file: ")  # noqa: PT017
        return False
    return True


def test_tensors_have_the_dtypes_and_shapes_of_the_header(tmp_path):
    tensors = read_header(write(tmp_path / "m.safetensors", WHOLE | {"__metadata__": {"format": "pt"}}))
    assert sorted(tensors) == [Tensor("a", "F16", (2, 1)), Tensor("b", "F32", (2,))]


@pytest.mark.parametrize(
    "header",
    [
        [],
        {"a": 3},
        {"a": WHOLE["a"] | {"dtype": "F13"}},
        {"a": WHOLE["a"] | {"shape": [1e9]}},
        {"a": WHOLE["a"] | {"shape": [2**62, 4]}},
        {"a": WHOLE["a"] | {"data_offsets": [4, 0]}},
        {"b": WHOLE["b"]},
        {"a": WHOLE["a"]},
    ],
)
def test_a_header_that_does_not_describe_its_file_is_refused_with_its_name(tmp_path, header):
    assert not accepted(write(tmp_path / "m.safetensors", header))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["half", "single", "double"])
def test_the_first_tensor_with_a_number_that_is_not_finite_is_named(tmp_path, name, value):
    tensors = {
        "half": np.full(3, np.finfo(np.float16).max, np.float16),
        "single": np.zeros((2, 2), np.float32),
        "double": np.full(1, np.finfo(np.float64).tiny),
        "whole": np.full(4, -1, np.int64),  # all bits set, and no float
    }
    save_file(tensors, tmp_path / "m.safetensors")
    assert first_not_finite(tmp_path / "m.safetensors") is None
    tensors[name].flat[-1] = value
    save_file(tensors, tmp_path / "m.safetensors")
    assert first_not_finite(tmp_path / "m.safetensors") == name


@pytest.mark.parametrize("content", [b"", b"\x00" * 7, b"\xff" * 8 + b"{}", (2**40).to_bytes(8, "little") + b"{}"])
def test_a_header_longer_than_its_file_is_never_read(tmp_path, content):
    (tmp_path / "m.safetensors").write_bytes(content)
    assert not accepted(tmp_path / "m.safetensors")


@given(data=st.data())
def test_a_damaged_file_is_accepted_only_if_the_library_opens_it(tmp_path_factory, data):
    path = write(tmp_path_factory.mktemp("weights") / "m.safetensors", WHOLE)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)) | st.just(len(whole)))])
    assert not accepted(path) or opened_by_the_library(path)


ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "U8", "f32", None, 3]),
        "shape": st.lists(st.integers(-1, 4), max_size=3) | st.just("2"),
        "data_offsets": st.lists(st.integers(-1, 24), max_size=3),
    }
)


@given(header=st.dictionaries(st.text(max_size=4), ENTRIES | st.none(), max_size=3) | st.lists(ENTRIES, max_size=1))
def test_a_made_up_header_is_accepted_only_if_the_library_opens_it(tmp_path_factory, header):
    path = write(tmp_path_factory.mktemp("weights") / "m.safetensors", header)
    assert not accepted(path) or opened_by_the_library(path)


def test_replicas_that_start_together_hash_a_file_once(tmp_path, monkeypatch):
    read = []

    def slowly(path):
        read.append(path)
        time.sleep(0.2)
        return file_digest(path)

    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "file_digest", slowly)
    monkeypatch.setattr(weights, "_LARGE_BYTES", 1)
    (tmp_path / "model.safetensors").write_bytes(b"numbers")
    with ThreadPoolExecutor(4) as pool:
        digests = [*pool.map(lambda _: file_digests(tmp_path, [tmp_path / "model.safetensors"]), range(4))]
    assert digests == [{"model.safetensors": hashlib.sha256(b"numbers").hexdigest()}] * 4
    assert len(read) == 1


def test_a_file_that_changes_while_it_is_hashed_is_hashed_again(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"

    def changing(file):
        digest = file_digest(file)
        if path.read_bytes() == b"early":
            path.write_bytes(b"later")
        return digest

    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "file_digest", changing)
    path.write_bytes(b"early")
    for _ in range(2):
        assert file_digests(tmp_path, [path]) == {path.name: hashlib.sha256(b"later").hexdigest()}
