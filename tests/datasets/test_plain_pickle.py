import io
import pickle
from pathlib import Path

import pytest

from evaluator.datasets.staicc import read_examples
from evaluator.errors import DatasetError

PATH = Path("some.dataset")
GOOD = [(["first"], 0), (["zweites – ünïcode 🙂"], 1), ([""], 0)]


def read(rows: object, n_fields: int = 1) -> list[dict[str, object]]:
    content = rows if isinstance(rows, bytes) else pickle.dumps(rows)
    fields = ("premise", "hypothesis")[:n_fields]
    return read_examples(content, PATH, text_fields=fields, n_labels=2).to_pylist()


class Touch:
    """A pickle of this makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_examples_come_back_in_their_order():
    assert read(GOOD) == [{"texts": texts, "gold": label} for texts, label in GOOD]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_pickle_protocol_is_read(protocol: int):
    assert len(read(pickle.dumps(GOOD, protocol))) == 3


def test_two_text_fields_are_kept_apart():
    assert read([(["a", "b"], 1)], n_fields=2) == [{"texts": ["a", "b"], "gold": 1}]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_code_is_refused_and_nothing_runs(tmp_path: Path, protocol: int):
    made = tmp_path / "made"
    content = pickle.dumps([*GOOD, Touch(made)], protocol)
    with pytest.raises(DatasetError, match=r"some\.dataset: asks for the global .*Nothing was run"):
        read(content)
    assert not made.exists()
    pickle.loads(content)  # the trap is a real one
    assert made.exists()


def test_a_global_that_is_never_called_is_refused_by_name():
    with pytest.raises(DatasetError, match=r"some\.dataset: asks for the global builtins\.len"):
        read([*GOOD, len])


def test_a_reference_to_an_outside_object_is_refused():
    class Outside(pickle.Pickler):
        def persistent_id(self, obj: object) -> str | None:
            return "elsewhere" if obj == "first" else None

    buffer = io.BytesIO()
    Outside(buffer, 4).dump(GOOD)
    with pytest.raises(DatasetError, match="outside object 'elsewhere'"):
        read(buffer.getvalue())


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_truncated_pickle_is_refused_wherever_it_ends(protocol: int):
    content = pickle.dumps(GOOD, protocol)
    for end in range(len(content)):
        with pytest.raises(DatasetError, match=r"some\.dataset: not a whole pickle"):
            read(content[:end])


@pytest.mark.parametrize(
    "bad",
    [
        ["text", 0],
        (["text"],),
        (["text"], 0, 0),
        ("text", 0),
        ([], 0),
        (["a", "b"], 0),
        ([b"text"], 0),
        (["half \ud800 pair"], 0),
        (["text"], 2),
        (["text"], -1),
        (["text"], True),
        (["text"], "0"),
        (["text"], None),
        None,
    ],
    ids=repr,
)
def test_a_row_that_is_no_example_is_refused_by_its_number(bad: object):
    with pytest.raises(DatasetError, match=r"some\.dataset, row 3: expected \(\[premise\], label\).*from 0 to 1"):
        read([*GOOD, bad])


def test_anything_but_a_list_is_refused():
    with pytest.raises(DatasetError, match="expected a list of examples, found dict"):
        read({"texts": []})
