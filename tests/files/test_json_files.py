import json
import os
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.errors import StoreError
from evaluator.files import json_files

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=8).filter(lambda name: name != json_files.DIGEST), JSON_VALUES, max_size=4)


def test_a_pipe_in_the_place_of_a_file_is_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(StoreError, match=r"run\.json cannot be read: it is no regular file"):
        json_files.read_json(tmp_path / "run.json")


@given(content=OBJECTS)
def test_an_object_is_read_as_it_was_written(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("json") / "file.json"
    json_files.write_json(path, content)
    assert json_files.read_json(path) == content


def test_letters_are_written_as_they_are(tmp_path):
    json_files.write_json(tmp_path / "file.json", {"label": "naïve", "text": "好"})
    assert '"label": "naïve",\n  "text": "好",\n' in (tmp_path / "file.json").read_text("utf-8")


@given(content=OBJECTS, data=st.data())
def test_no_flipped_bit_cut_or_doubled_byte_gives_another_object(tmp_path_factory, content, data):
    path = tmp_path_factory.mktemp("json") / "file.json"
    json_files.write_json(path, content)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytes([whole[at] ^ (1 << data.draw(st.integers(0, 7)))])
    damage = data.draw(st.sampled_from([flipped + whole[at + 1 :], whole[at : at + 1] + whole[at:], b""]))
    path.write_bytes(whole[:at] + damage)
    with suppress(StoreError):  # a space more changes nothing
        assert json_files.read_json(path) == content


@given(damage=st.binary(max_size=64) | st.builds(lambda value: json.dumps(value).encode(), JSON_VALUES))
def test_any_bytes_are_an_object_or_one_sentence(tmp_path_factory, damage):
    path = tmp_path_factory.mktemp("json") / "file.json"
    path.write_bytes(damage)
    with pytest.raises(StoreError, match=r"file\.json is damaged"):
        json_files.read_json(path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '["\\ud800"]', "9" * 5_000])
def test_json_that_nothing_could_write_is_refused_in_words(text):
    with pytest.raises(ValueError, match=r"nested too deeply|half of a surrogate pair|integer string conversion"):
        json_files.parse_json(text)


@dataclass(frozen=True, kw_only=True)
class Record:
    """One of each kind of field that ours have."""

    name: str
    count: int
    share: float
    shards: dict[str, str] = field(default_factory=dict)
    maybe: int | None = None


@given(content=OBJECTS | st.fixed_dictionaries({"name": JSON_VALUES, "count": JSON_VALUES, "share": JSON_VALUES}))
def test_any_object_is_a_record_or_one_sentence_that_names_the_file_and_the_way_out(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("record") / "run.json"
    json_files.write_json(path, content)
    try:
        said = repr(json_files.read_record(path, Record, "Run it again."))
    except StoreError as error:
        said = str(error)
    refused = said.startswith(f"{path} is damaged or of another version") and said.endswith("Run it again.")
    assert refused or said.startswith("Record(")


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"\xff"])
def test_a_damaged_manifest_is_an_error_that_names_it(tmp_path, damage):
    path = tmp_path / "manifest.json"
    path.write_bytes(damage)
    with pytest.raises(StoreError, match=r"manifest\.json is damaged"):
        json_files.read_json(path)


def test_a_manifest_of_an_earlier_version_does_not_count_and_says_so(tmp_path, caplog):
    (tmp_path / "manifest.json").write_text('{"name": "a", "count": 1, "share": 0.5}')
    assert json_files.read_manifest(tmp_path / "manifest.json", Record) is None
    assert "manifest.json is damaged or of another version" in caplog.text
