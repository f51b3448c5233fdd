"""PVI against annotators: measures by hand and by ChaosNLI's own column, correlations by SciPy."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.errors import DatasetError
from evaluator.suites.in_context_pvi.correlations import annotators_table, read_annotations
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


def wide(annotations: pl.DataFrame, name: str) -> pl.DataFrame:
    """The measures of one column of annotations, a row a text."""
    found = annotations.filter(annotations=name)
    return found.pivot(on="measure", index="text", values="value", maintain_order=True)


def pairs(order: list[int]) -> pl.DataFrame:
    return queries([[f"premise {i}", f"hypothesis {i}"] for i in order])


def test_measures_are_worked_by_hand(tmp_path: Path) -> None:
    given = read_annotations([annotations(tmp_path / "a.parquet")])
    found = wide(given, "label_count")
    assert found["agreement"].to_list() == [1.0, 0.75, 0.5, 0.75]
    assert found["variation_ratio"].to_list() == [0, 0.25, 0.5, 0.25]
    # 3/4 log2 4/3 + 1/4 log2 4 = 2 - 3/4 log2 3; two halves are one bit.
    assert found["entropy"].to_list() == pytest.approx([0, 2 - 0.75 * np.log2(3), 1, 2 - 0.75 * np.log2(3)])
    old = wide(given, "old_labels")
    assert old["agreement"].to_list() == pytest.approx([0.4, 0.6, 1, 1])
    assert old["entropy"][0] == pytest.approx(-(2 * 0.4 * np.log2(0.4) + 0.2 * np.log2(0.2)))


def test_queries_are_matched_by_both_texts_and_correlated_as_by_scipy(tmp_path: Path) -> None:
    order = [3, 0, 9, 1, 2]  # the third query is not annotated
    values = [0.5, -1.0, 100.0, 2.0, 1.5]
    table = run_table(values, [True] * 5)
    found = annotators_table(table, pairs(order), read_annotations([annotations(tmp_path / "a.parquet")]))
    assert found.schema == PVI_ANNOTATORS
    assert found.select("annotations", "measure").rows() == [
        (name, measure)
        for name in ("label_count", "old_labels")
        for measure in ("agreement", "entropy", "variation_ratio")
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


ROWS = [("a b", "c", ["x", "x", "y"]), ("d", "e", ["x", "y", "z"]), ("f", "g", ["x", "x", "x"])]
AGREEMENT = [2 / 3, 1 / 3, 1]


def layouts(folder: Path) -> list[Path]:
    """The same annotations in the layouts of ChaosNLI, SNLI and MultiNLI, and of a table of one's own."""
    paths = [folder / name for name in ("chaosnli.jsonl", "snli.jsonl", "multinli.csv", "own.parquet")]
    lines = [
        {"uid": "1", "label_count": [labels.count(name) for name in "xyz"], "old_labels": labels, "entropy": 0.5}
        | {"label_counter": {name: labels.count(name) for name in {*labels}}, "majority_label": "x"}
        | {"example": {"uid": "1", "premise": premise, "hypothesis": hypothesis, "source_label": "x"}}
        for premise, hypothesis, labels in ROWS
    ]
    paths[0].write_text("".join(json.dumps(line) + "\n" for line in lines))
    lines = [
        {"sentence1": premise, "sentence2": hypothesis, "gold_label": "-", "annotator_labels": [*labels, ""]}
        for premise, hypothesis, labels in ROWS
    ]
    paths[1].write_text("".join(json.dumps(line) + "\n" for line in lines))
    header = "sentence1,sentence2,label1,label2,label3,label4,label5\n"
    paths[2].write_text(header + "".join(f"{p},{h},{','.join(labels)},,\n" for p, h, labels in ROWS))
    texts = [f"{premise}\n{hypothesis}" for premise, hypothesis, _ in ROWS]
    pl.DataFrame({"text": texts, "annotator_labels": [labels for *_, labels in ROWS]}).write_parquet(paths[3])
    return paths


def test_every_layout_gives_the_same_measures(tmp_path: Path) -> None:
    for path in layouts(tmp_path):
        found = read_annotations([path])
        for name in {*found["annotations"]}:
            measured = wide(found, name)
            assert measured["text"].to_list() == ["a b\nc", "d\ne", "f\ng"], path
            assert measured["agreement"].to_list() == pytest.approx(AGREEMENT)
            assert measured["entropy"].to_list() == pytest.approx([np.log2(3) - 2 / 3, np.log2(3), 0])
    assert {*read_annotations([layouts(tmp_path)[0]])["annotations"]} == {"label_count", "old_labels"}


def test_pvi_of_another_program_is_correlated_with_annotators_and_with_the_models(tmp_path: Path) -> None:
    labels = layouts(tmp_path)[1]
    foreign = tmp_path / "bert.csv"
    foreign.write_text(
        "premise,hypothesis,pvi\n" + "".join(f"{p},{h},{n}\n" for (p, h, _), n in zip(ROWS, (0.5, -1, 2), strict=True))
    )
    texts = queries([[premise, hypothesis] for premise, hypothesis, _ in ROWS])
    own = [1.0, 3.0, 2.5]
    found = annotators_table(run_table(own, [True] * 3), texts, read_annotations([labels, foreign]))
    by_source = {(row["demonstrations"], row["measure"]): row["pearson"] for row in found.to_dicts()}
    source = next(name for name, _ in by_source if name != "bert")
    assert by_source["bert", "agreement"] == pytest.approx(stats.pearsonr([0.5, -1, 2], AGREEMENT)[0])
    assert by_source[source, "foreign_pvi"] == pytest.approx(stats.pearsonr(own, [0.5, -1, 2])[0])
    assert by_source[source, "agreement"] == pytest.approx(stats.pearsonr(own, AGREEMENT)[0])
    assert ("bert", "foreign_pvi") not in by_source


def test_rows_that_differ_in_their_spaces_alone_are_one(tmp_path: Path) -> None:
    labels = {"text": ["a b", "a  b ", "c"], "annotator_labels": [["x", "y"], ["y", "x"], ["x", "x"]]}
    pl.DataFrame(labels).write_parquet(tmp_path / "own.parquet")
    found = read_annotations([tmp_path / "own.parquet"]).filter(measure="agreement")
    assert found.select("text", "value").rows() == [("a b", 0.5), ("c", 1.0)]


def test_pvi_in_a_file_that_is_named_as_a_source_of_demonstrations_is_correlated_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "random.csv").write_text("text,pvi\na,0.5\nb,-1\nc,2\n")
    own, foreign = [1.0, 3.0, 2.5], read_annotations([tmp_path / "random.csv"])
    runs = run_table(own, [True] * 3, demonstrations="random")
    (row,) = annotators_table(runs, queries([["a"], ["b"], ["c"]]), foreign).to_dicts()
    assert (row["demonstrations"], row["annotations"], row["n"]) == ("random", "random", 3)
    assert row["pearson"] == pytest.approx(stats.pearsonr(own, [0.5, -1, 2])[0])


def test_correlations_are_averaged_over_sets_too(tmp_path: Path) -> None:
    runs = [run_table(values, [True] * 3) for values in ([1.0, 3.0, 2.5], [0.0, 1.0, 5.0])]
    table = pl.concat(run.with_columns(demonstration_set=pl.lit(n, pl.Int64)) for n, run in enumerate(runs))
    texts = queries([[premise, hypothesis] for premise, hypothesis, _ in ROWS])
    found = annotators_table(table, texts, read_annotations([layouts(tmp_path)[1]])).filter(measure="agreement")
    assert found.height == 2
    assert found["pearson_over_sets"].to_list() == pytest.approx([found["pearson"].mean()] * 2)


def test_what_lacks_texts_or_annotations_is_refused_with_what_is_there(tmp_path: Path) -> None:
    path = annotations(tmp_path / "a.parquet")
    whole = pl.read_parquet(path)
    whole.drop("hypothesis").write_parquet(path)
    with pytest.raises(
        DatasetError, match=r"has no columns premise and hypothesis or sentence1.* It has: premise, old"
    ):
        read_annotations([path])
    whole.select("premise", "hypothesis").write_parquet(path)
    with pytest.raises(DatasetError, match=r"has no columns old_labels, .*, pvi. It has: premise, hypothesis"):
        read_annotations([path])
    whole.with_columns(pvi=pl.lit("high")).write_parquet(path)
    with pytest.raises(DatasetError, match="cannot be read as annotations"):
        read_annotations([path])
    (tmp_path / "a.csv").write_text("text,annotator_labels\na,e;e;n\n")
    with pytest.raises(DatasetError, match=r"annotator_labels must hold lists and holds String\. .*: label1, label2, "):
        read_annotations([tmp_path / "a.csv"])


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    path = annotations(tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match="cannot be read as Parquet"):
        read_annotations([tmp_path / "absent.parquet"])
    assert read_annotations([path, path]).equals(read_annotations([path]))
    other = tmp_path / "b.parquet"
    pl.read_parquet(path).with_columns(label_count=pl.lit([5, 5, 1])).write_parquet(other)
    with pytest.raises(DatasetError, match="4 annotated texts have several rows that differ"):
        read_annotations([path, other])
    with pytest.raises(DatasetError, match="None of the 4 annotated texts is a query of d"):
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
    text = pl.concat_str("premise", "hypothesis", separator="\n")
    published = (
        pl.read_parquet(path).with_columns(text=text).join(wide(given, "label_count"), on="text", suffix="_found")
    )
    assert published["entropy_found"].to_numpy() == pytest.approx(published["entropy"].to_numpy(), abs=1e-9)
    text = pl.concat_str("sentence1", "sentence2", separator="\n")
    own = data.select("sentence1", "sentence2", dataset=pl.lit("d"), query_id=pl.int_range(pl.len()), text=text)
    values = np.random.default_rng(0).normal(size=own.height)
    table = run_table(values.tolist(), [True] * own.height)
    row = annotators_table(table, own, given).filter(measure="entropy").row(0, named=True)
    matched = own.with_columns(value=values).join(wide(given, "label_count"), on="text")
    assert row["n_annotated"] == row["n"] == matched.height == published.height
    expected = stats.pearsonr(matched["value"], matched["entropy"])
    assert (row["pearson"], row["pearson_p"]) == pytest.approx(tuple(expected), abs=1e-9)


def test_texts_match_whatever_their_spaces_and_the_composition_of_their_accents(tmp_path: Path) -> None:
    given = read_annotations([annotations(tmp_path / "a.parquet")])
    texts = given["text"].unique(maintain_order=True).to_list()
    own = queries([[text] for text in texts])
    spaced = own.with_columns(
        text=" " + pl.col("text").str.replace_all(" ", "  ").str.replace_all("\n", " \r\n") + "\n"
    )
    assert not set(spaced["text"]) & set(texts)
    table = run_table([float(number) for number in range(len(texts))], [True] * len(texts))
    found = annotators_table(table, spaced, given)
    assert found["n_annotated"].min() > 0
    assert found.equals(annotators_table(table, own, given))
    composed, apart = ("caf\u00e9", "cafe\u0301")
    accents = given.with_columns(text=pl.col("text") + composed)
    assert annotators_table(table, own.with_columns(text=pl.col("text") + apart), accents).equals(found)


def test_chaosnli_has_pairs_of_the_development_sets_and_none_of_the_test_set() -> None:
    folder = shared_data("pvi")
    given = read_annotations([folder / "chaosnli_snli.parquet"])
    for source, n_annotated in (("snli_dev", 70), ("snli_test", 0)):  # among the first 400 rows, counted by hand
        rows = pl.read_parquet(folder / f"{source}.parquet").head(400)
        own = queries(rows.select("sentence1", "sentence2").rows())
        table = run_table(np.random.default_rng(0).normal(size=400).tolist(), [True] * 400)
        if n_annotated:
            assert set(annotators_table(table, own, given)["n_annotated"]) == {n_annotated}
        else:
            with pytest.raises(DatasetError, match="ChaosNLI has pairs of snli_dev and multinli, and none of snli"):
                annotators_table(table, own, given)
