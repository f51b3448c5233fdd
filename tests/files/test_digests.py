from itertools import pairwise

import polars as pl
import pytest

from evaluator.errors import StoreError
from evaluator.files import digests
from evaluator.files.digests import code_digest, fingerprint, list_fingerprint, source_fingerprint


def test_a_fingerprint_changes_with_every_part_and_not_with_key_order():
    base = fingerprint({"a": 1, "b": [1, 2]}, "x")
    assert base == fingerprint({"b": [1, 2], "a": 1}, "x")
    changed = [
        fingerprint({"a": 2, "b": [1, 2]}, "x"),
        fingerprint({"a": 1, "b": [2, 1]}, "x"),
        fingerprint({"a": 1, "b": [1, 2]}, "y"),
        fingerprint({"a": 1, "b": [1, 2]}),
    ]
    assert len({base, *changed}) == 5


def test_the_fingerprint_of_a_list_does_not_depend_on_the_parts_that_it_comes_in():
    texts = ["a", 'quoted "b"', "ä", "", "c"]
    whole = fingerprint(texts)
    for cuts in ([0, 5], [0, 2, 5], [0, 0, 1, 4, 5, 5]):
        assert list_fingerprint(pl.Series(texts[start:end], dtype=pl.String) for start, end in pairwise(cuts)) == whole
    assert list_fingerprint([]) == list_fingerprint([pl.Series(dtype=pl.String)]) == fingerprint([])


CODE = """
'''What the module is for.'''
LIMIT = 3
'''Of something.'''

class Table:
    '''Rows.'''

    def height(self):
        '''Return the number of rows.'''
        return LIMIT  # for now
"""


def test_comments_docstrings_and_layout_do_not_count_as_code():
    bare = "LIMIT=3\nclass Table:\n  def height(self):\n    return (LIMIT)\n"
    assert code_digest(CODE) == code_digest(bare)


@pytest.mark.parametrize(
    "edit",
    [("LIMIT = 3", "LIMIT = 4"), ("return LIMIT", "return 'LIMIT'"), ("height", "width"), ("(self)", "(self, x)")],
)
def test_an_edit_of_the_code_changes_its_digest(edit):
    assert code_digest(CODE) != code_digest(CODE.replace(*edit))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of one folder with one below it, in place of the evaluator's; its fingerprints are not cached."""
    (tmp_path / "engine" / "vllm").mkdir(parents=True)
    (tmp_path / "engine" / "base.py").write_text(CODE)
    (tmp_path / "engine" / "vllm" / "loading.py").write_text("BLOCK = 16\n")
    monkeypatch.setattr(digests, "__file__", str(tmp_path / "files" / "digests.py"))
    monkeypatch.setattr(digests, "source_fingerprint", source_fingerprint.__wrapped__)
    return tmp_path


def test_the_fingerprint_of_source_changes_with_code_in_folders_below_and_with_the_names_of_modules(package):
    before = digests.source_fingerprint("engine")
    nested = package / "engine" / "vllm" / "loading.py"
    nested.write_text("BLOCK = 32\n")
    changed = digests.source_fingerprint("engine")
    nested.rename(package / "engine" / "loading.py")
    moved = digests.source_fingerprint("engine")
    assert len({before, changed, moved}) == 3


def test_the_fingerprint_of_source_stays_when_a_docstring_is_edited(package):
    before = digests.source_fingerprint("engine")
    module = package / "engine" / "base.py"
    module.write_text(CODE.replace("Rows.", "Rows, in order."))
    assert digests.source_fingerprint("engine") == before == digests.source_fingerprint("engine/base.py", "engine")


def test_the_fingerprint_of_source_changes_with_data_and_their_order_but_not_with_comments_or_words_of_pages(package):
    data = package / "engine" / "assets" / "sizes.toml"
    data.parent.mkdir()
    data.write_text("[a]\nsize = 1\n[b]\nsize = 2\n")
    before = digests.source_fingerprint("engine")
    data.write_text("# in bytes\n[a]\nsize = 1\n\n[b]\nsize = 2\n")
    (data.parent / "texts.toml").write_text("title = 'Sizes'\n")
    assert digests.source_fingerprint("engine") == before
    data.write_text("[b]\nsize = 2\n[a]\nsize = 1\n")
    swapped = digests.source_fingerprint("engine")
    data.write_text("[a]\nsize = 1\n[b]\nsize = 3\n")
    assert len({before, swapped, digests.source_fingerprint("engine")}) == 3


def test_a_fingerprint_of_source_is_kept_and_made_again_where_its_file_is_damaged(package, monkeypatch):
    monkeypatch.setenv("EVALUATOR_CACHE", str(package / "cache"))
    before = digests.source_fingerprint("engine")
    monkeypatch.setattr(digests, "code_digest", lambda _: pytest.fail("read as syntax again"))
    assert digests.source_fingerprint("engine") == before
    (kept,) = (package / "cache" / "digests").iterdir()
    kept.write_bytes(kept.read_bytes().replace(before.encode(), b"0" * 16))
    monkeypatch.setattr(digests, "code_digest", code_digest)
    assert digests.source_fingerprint("engine") == before


@pytest.mark.usefixtures("package")
def test_a_folder_without_code_has_no_fingerprint():
    with pytest.raises(StoreError, match="engines holds no Python code"):
        digests.source_fingerprint("engines")
