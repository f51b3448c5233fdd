from collections.abc import Callable
from pathlib import Path

import pytest

from evaluator.compare.gate import read_policy
from evaluator.datasets.labelled_table import read_labels, read_table_text
from evaluator.errors import ConfigError, TemplateError
from evaluator.files.toml_files import read_toml
from evaluator.preflight.devices import Assumptions, chosen_devices

READERS: dict[str, Callable[[Path], object]] = {
    "template": read_table_text,
    "labels": lambda path: read_labels(str(path)),
    "policy": read_policy,
    "devices": lambda path: chosen_devices(Assumptions(file=path)),
}


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_bytes(b'\xef\xbb\xbfkey = "value"\n')
    assert read_toml(tmp_path / "file.toml", ConfigError) == {"key": "value"}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a = " + "[" * 100_000, "nested too deeply"),
        ("a = ", "is no TOML in UTF-8"),
        (".".join("a" * 100_000) + " = 1", "has a key with more than 50 dots"),
        (" . ".join(["'a'"] * 100) + " = 1", "has a key with more than 50 dots"),
        (b"a = '\xff'", "is no TOML in UTF-8"),
        (None, "cannot be read: No such file"),
    ],
    ids=["nested", "no TOML", "a long key", "a long key with spaces", "no UTF-8", "absent"],
)
def test_every_file_of_a_user_that_is_no_toml_is_refused_in_words(
    tmp_path: Path, reader: str, content: str | bytes | None, message: str
) -> None:
    path = tmp_path / "file.toml"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises((ConfigError, TemplateError), match=message) as refused:
        READERS[reader](path)
    assert "file.toml" in str(refused.value)


@pytest.mark.parametrize(
    ("reader", "content", "nearest"),
    [
        ("template", 'instructoin = "Classify."', "instruction"),
        ("policy", "margins = 0.1", "margin"),
        ("devices", "[mine]\nflops_16bit = 1", "flops_16_bit"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(
    tmp_path: Path, reader: str, content: str, nearest: str
) -> None:
    path = tmp_path / "file.toml"
    path.write_text(content)
    with pytest.raises((ConfigError, TemplateError), match=f"Did you mean '{nearest}'"):
        READERS[reader](path)
