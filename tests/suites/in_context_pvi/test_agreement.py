"""PVI against annotators: measures by hand and by ChaosNLI's own column, correlations by SciPy."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.errors import DatasetError
from evaluator.suites.in_context_pvi.agreement import ANNOTATIONS, TEXTS, annotators_table, read_annotations
from evaluator.suites.in_context_pvi.schema import PVI_ANNOTATORS
from tests.shared_data import shared_data
from tests.suites.in_context_pvi.pvi_answers import run_table

OF_FIVE = ["nneec", "nnnec", "nnnn", "nnnnn"]
"""What each pair's annotators said, a letter each; the third pair has four of them."""


def annotations(path: Path) -> Path:
    """Four pairs, of whose hundred annotators 0, 25, 50 and 75 say something else than the first label."""
    pl.DataFrame(
        {
            "premise": [f"premise {i}" for i in range(4)],
            "hypothesis": [f"hypothesis {i}" for i in range(4)],
            "old_labels": [list(labels) for labels in OF_FIVE],
            "label_count": [[100 - 25 * i, 25 * i, 0] for i in range(4)],
        }
    ).write_parquet(path)
    return path


def queries(texts: list[list[str]]) -> pl.DataFrame:
    return pl.DataFrame({"dataset": "d", "query_id": range(len(texts)), "text": ["\n".join(own) for own in texts]})


def pairs(order: list[int]) -> pl.DataFrame:
    return queries([[f"premise {i}", f"hypothesis {i}"] for i in order])


def test_measures_are_worked_by_hand(tmp_path: Path) -> None:
    found = read_annotations([annotations(tmp_path / "a.parquet")]).filter(annotations="label_count")
    assert found["agreement"].to_list() == [1.0, 0.75, 0.5, 0.75]
    assert found["variation_ratio"].to_list() == [0, 0.25, 0.5, 0.25]
    # 3/4 log2 4/3 + 1/4 log2 4 = 2 - 3/4 log2 3; two halves are one bit.
    assert found["entropy"].to_list() == pytest.approx([0, 2 - 0.75 * np.log2(3), 1, 2 - 0.75 * np.log2(3)])
    old = read_annotations([annotations(tmp_path / "a.parquet")]).filter(annotations="old_labels")
    assert old["agreement"].to_list() == pytest.approx([0.4, 0.6, 1, 1])
    assert old["entropy"][0] == pytest.approx(-(2 * 0.4 * np.log2(0.4) + 0.2 * np.log2(0.2)))


def test_queries_are_matched_by_both_texts_and_correlated_as_by_scipy(tmp_path: Path) -> None:
    order = [3, 0, 9, 1, 2]  # the third query is not annotated
    values = [0.5, -1.0, 100.0, 2.0, 1.5]
    table = run_table(values, [True] * 5)
    found = annotators_table(table, pairs(order), read_annotations([annotations(tmp_path / "a.parquet")]))
    assert found.schema == PVI_ANNOTATORS
    assert found.select("annotations", "measure").rows() == [
        (name, measure) for name in sorted(ANNOTATIONS) for measure in ("agreement", "entropy", "variation_ratio")
    ]
    row = found.filter(annotations="label_count", measure="agreement").row(0, named=True)
    own, agreement = [0.5, -1.0, 2.0, 1.5], [0.75, 1.0, 0.75, 0.5]
    assert (row["n"], row["n_annotated"]) == (4, 4)
    pearson, spearman = stats.pearsonr(own, agreement), stats.spearmanr(own, agreement)
    assert (row["pearson"], row["pearson_p"]) == pytest.approx(tuple(pearson))
    assert (row["spearman"], row["spearman_p"]) == pytest.approx(tuple(spearman))
    other = found.filter(annotations="label_count", measure="variation_ratio").row(0, named=True)
    assert other["pearson"] == pytest.approx(-row["pearson"])


def test_annotated_queries_without_a_pvi_are_counted(tmp_path: Path) -> None:
    table = run_table([1.0, None, 2.0, 0.0], [True] * 4)
    given = read_annotations([annotations(tmp_path / "a.parquet")])
    found = annotators_table(table, pairs([0, 1, 2, 3]), given)
    assert found.select("n", "n_annotated").unique().rows() == [(3, 4)]
    nothing = annotators_table(run_table([None] * 4, [True] * 4), pairs([0, 1, 2, 3]), given)
    assert nothing.select("n", "pearson", "n_annotated").unique().rows() == [(0, None, 4)]


@pytest.mark.parametrize("gone", [*TEXTS, *ANNOTATIONS])
def test_a_missing_column_is_named_with_those_that_are_there(tmp_path: Path, gone: str) -> None:
    path = annotations(tmp_path / "a.parquet")
    pl.read_parquet(path).drop(gone).write_parquet(path)
    with pytest.raises(DatasetError, match=f"a.parquet has no column '{gone}'. It has"):
        read_annotations([path])


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    path = annotations(tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match="cannot be read as Parquet"):
        read_annotations([tmp_path / "absent.parquet"])
    with pytest.raises(DatasetError, match="8 annotated pairs are in more than one row"):
        read_annotations([path, path])
    with pytest.raises(DatasetError, match="None of the 4 annotated pairs is a query of d"):
        annotators_table(run_table([1.0], [True]), queries([["other", "text"]]), read_annotations([path]))


def test_a_dataset_of_one_text_has_no_annotated_query(tmp_path: Path) -> None:
    given = read_annotations([annotations(tmp_path / "a.parquet")])
    with pytest.raises(DatasetError, match="None of"):
        annotators_table(run_table([1.0], [True]), queries([["premise 0"]]), given)


@pytest.mark.parametrize(
    ("file", "source"),
    [("chaosnli_snli", "snli_dev"), ("chaosnli_mnli_m", "multinli_dev_matched")],
)
def test_every_pair_of_chaosnli_is_found_and_has_the_entropy_that_the_file_states(file: str, source: str) -> None:
    folder = shared_data("pvi")
    path, data = folder / f"{file}.parquet", pl.read_parquet(folder / f"{source}.parquet")
    given = read_annotations([path]).filter(annotations="label_count")
    published = pl.read_parquet(path).join(given, on=TEXTS, suffix="_found")
    assert published["entropy_found"].to_numpy() == pytest.approx(published["entropy"].to_numpy(), abs=1e-9)
    text = pl.concat_str("sentence1", "sentence2", separator="\n")
    own = data.select("sentence1", "sentence2", dataset=pl.lit("d"), query_id=pl.int_range(pl.len()), text=text)
    values = np.random.default_rng(0).normal(size=own.height)
    table = run_table(values.tolist(), [True] * own.height)
    row = annotators_table(table, own, given).filter(measure="entropy").row(0, named=True)
    matched = own.with_columns(value=values).join(given, left_on=["sentence1", "sentence2"], right_on=TEXTS)
    assert row["n_annotated"] == row["n"] == matched.height == published.height
    expected = stats.pearsonr(matched["value"], matched["entropy"])
    assert (row["pearson"], row["pearson_p"]) == pytest.approx(tuple(expected), abs=1e-9)
