"""`evaluator compare`: what it leaves, what it says, and what it refuses."""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from markupsafe import escape
from scipy.stats import binom

from evaluator.cli.runs import compare
from evaluator.compare import schema as schemas
from evaluator.compare.differences import _estimate
from evaluator.compare.results import _needed_text
from evaluator.errors import ConfigError
from evaluator.runs.export import export
from evaluator.statistics.paired import TWO_WAY, Spread, detectable_difference, detectable_in_advance
from tests.command_line import command
from tests.compare.run_folders import diagnostics, predictions, put_table, write_run

TABLES = {
    "comparison": schemas.COMPARISON,
    "differences": schemas.DIFFERENCES,
    "rank_correlations": schemas.RANK_CORRELATIONS,
    "scaling": schemas.SCALING,
}


def run_compare(folders: list[Path], out: Path, *more: str) -> str:
    words = [*map(str, folders), "--out", str(out), *more]
    return CliRunner().invoke(compare, words, catch_exceptions=False).output


class Compared(NamedTuple):
    out: Path
    said: str


@pytest.fixture(scope="module")
def four(run_folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """All four runs; nothing may change the tables and the page."""
    out = tmp_path_factory.mktemp("four") / "out"
    return Compared(out, run_compare(run_folders, out))


def test_it_leaves_four_tables_and_a_page_and_says_where(four: Compared) -> None:
    for name, schema in TABLES.items():
        assert pl.read_parquet(four.out / "tables" / f"{name}.parquet").schema == schema
    page = four.out / "compare.html"
    assert page.read_text().startswith("<!doctype html>")
    *_, places, where, answer = four.said.splitlines()
    assert [places, where] == [f"Tables: {four.out / 'tables'}", f"Page: {page}"]
    assert f'<h1>4 models compared</h1>\n  <p class="answer"><strong>{escape(answer)}' in page.read_text()
    assert "Note:" not in four.said


def test_the_last_line_has_the_difference_its_interval_and_corrected_p_of_the_table(tmp_path: Path) -> None:
    for skill, verdict in ((2.0, "acme/b is better than acme/a by "), (0.5, "No difference is shown between ")):
        folders = [
            write_run(tmp_path / f"{skill}" / name, f"acme/{name}", predictions(of_run, seed=seed))
            for seed, (name, of_run) in enumerate({"a": 0.5, "b": skill}.items())
        ]
        line = run_compare(folders, tmp_path / "out").splitlines()[-1]
        table = pl.read_parquet(tmp_path / "out" / "tables" / "differences.parquet")
        (row,) = table.filter(definition="paper", metric="accuracy", dataset="mean", method_a="vanilla").to_dicts()
        assert line.startswith(verdict)
        ends = sorted(abs(100 * row[name]) for name in ("ci_low", "ci_high"))
        shown = [abs(float(number)) for number in re.findall(r"-?[0-9]+\.[0-9]", line.split("p ")[0])]
        assert shown == pytest.approx([abs(100 * row["difference"]), *ends], abs=0.051) or skill == 0.5
        assert f"after Holm's correction for {row['n_tests']} tests" in line
        sentence, _, needed = line.partition(" These queries detect a true difference of ")
        assert sentence.endswith(f"{row['n_queries']:,} queries).")
        assert needed.startswith(f"{100 * row['min_detectable']:.1f} points") is (skill == 0.5)


@pytest.mark.parametrize(("n", "share", "ahead"), [(300, 0.3, 0.04), (300, 0.2, 0.02), (1000, 0.15, 0.02)])
def test_the_queries_that_the_answer_asks_for_detect_the_difference_with_80_percent(n, share, ahead):
    text = _needed_text(n, ahead, detectable_in_advance(n, share))
    needed = int(text.split("about ")[1].split()[0].replace(",", ""))
    # Power of McNemar's exact test by SciPy's binomials: pairs that differ, and those of them in favour of the better.
    differing = np.arange(needed + 1)
    reject = binom.isf(0.025, differing, 0.5)  # more than so many in favour of the better
    detected = binom.pmf(differing, needed, share) @ binom.sf(reject, differing, (1 + ahead / share) / 2)
    assert 0.76 < detected < 0.86
    assert "takes about" not in _needed_text(n, 0.0, detectable_in_advance(n, share))
    assert _needed_text(3, 0.3, 1.0) == " So few queries detect no difference."


def test_no_number_of_queries_is_named_where_the_sets_of_all_queries_vary():
    """Ten times the same queries after the same two sets detect hardly a smaller difference: errors of sets stay."""
    of_sets = [np.repeat([1.0, -1.0, 0.0], counts) for counts in ((56, 40, 104), (40, 48, 112))]
    cells = np.stack([np.random.default_rng(0).permutation(d) for d in of_sets], axis=1)
    detectable = []
    for n_times in (1, 10):
        found = _estimate(np.tile(cells, (n_times, 1)))
        errors = [found[name] for name in ("standard_error", "adjusted_error", "adjusted_freedom")]
        spread = Spread(*errors, 200 * n_times, found["mean_size"], found["mean_square"])
        detectable.append(detectable_difference(spread, TWO_WAY))
    assert detectable[1] > 0.9 * detectable[0]
    text = _needed_text(200, found["difference"], detectable[0], found["test"])
    points = f"{100 * detectable[0]:.1f} points"
    assert text == f" These queries and demonstration sets detect a true difference of {points} with 80% probability."


def test_figures_by_size_and_correlations_take_three_sizes(run_folders: list[Path], tmp_path: Path) -> None:
    for n, expected in ((2, False), (3, True)):
        run_compare(run_folders[:n], tmp_path / "out")
        page = (tmp_path / "out" / "compare.html").read_text()
        assert ("By size</a>" in page) is expected
        assert ("Rank correlations</a>" in page) is expected


@pytest.mark.parametrize(("name", "file"), [("markdown", "comparison.md"), ("latex", "comparison.tex")])
def test_several_runs_are_one_table_for_readers(four: Compared, name: str, file: str) -> None:
    (path,) = export(four.out, name)
    assert path == four.out / "exports" / file
    text = path.read_text()
    comparison = pl.read_parquet(four.out / "tables" / "comparison.parquet")
    for row in comparison.filter(definition="paper", method="vanilla", metric="accuracy").iter_rows(named=True):
        (line,) = [line for line in text.split("vanilla")[1].split("topk")[0].splitlines() if row["model"] in line]
        assert f"{row['value']:.3f}" in line


def test_with_a_margin_it_tests_which_are_no_worse_and_shows_that_on_the_page(
    run_folders: list[Path], tmp_path: Path
) -> None:
    run_compare(run_folders[:2], tmp_path / "out", "--margin", "0.3")
    table = pl.read_parquet(tmp_path / "out" / "tables" / "equivalence.parquet")
    assert table.schema == schemas.EQUIVALENCE
    means = table.filter(dataset="mean", definition="paper")
    shown = [means.filter(shown=word).height for word in ("equivalent", "no worse")]
    page = (tmp_path / "out" / "compare.html").read_text()
    assert f"{shown[0]} equivalent and {shown[1]} no worse, of {means.height} differences" in page


@pytest.mark.parametrize("margin", ["nan", "inf", "0", "1"])
def test_a_margin_that_is_no_part_of_the_accuracy_is_refused(
    run_folders: list[Path], tmp_path: Path, margin: str
) -> None:
    with pytest.raises(ConfigError, match="--margin must be above 0 and below 1"):
        run_compare(run_folders[:2], tmp_path / "out", "--margin", margin)
    assert not (tmp_path / "out").exists()


def test_the_same_runs_give_the_same_bytes(run_folders: list[Path], tmp_path: Path) -> None:
    for out in ("one", "two"):
        run_compare(run_folders[:2], tmp_path / out)
    for name in ("compare.html", *(f"tables/{name}.parquet" for name in TABLES)):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_notes_are_said_on_the_terminal_and_on_the_page(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "a", "acme/tiny", predictions(0.5, seed=1, datasets=["zoo", "mid"])),
        write_run(tmp_path / "b", "acme/mid", predictions(0.5, seed=2, datasets=["zoo"])),
    ]
    note = "Only datasets that all runs have are compared. Left out: staicc-normal / normal, mid (only in acme/tiny)."
    assert f"Note: {note}\n" in run_compare(folders, tmp_path / "out")
    assert f"<li>{note}</li>" in (tmp_path / "out" / "compare.html").read_text()


def test_runs_that_do_not_compare_leave_nothing_behind(run_folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the same model"):
        run_compare([run_folders[0], run_folders[0]], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_runs_without_accuracies_are_compared_by_what_they_have(tmp_path: Path) -> None:
    folders = []
    for name, values in (("a", [0.1, 0.2, 0.3, 0.4]), ("b", [0.4, 0.3, 0.1, 0.2])):
        folder = write_run(tmp_path / name, f"acme/{name}", predictions(0.5, seed=1, methods=["vanilla"]))
        put_table(folder, "metrics", diagnostics({"staicc-bias / contextual": values}))
        folders.append(folder)
    run_compare(folders, tmp_path / "out")
    assert pl.read_parquet(tmp_path / "out" / "tables" / "differences.parquet").is_empty()
    means = pl.read_parquet(tmp_path / "out" / "tables" / "comparison.parquet").filter(dataset="mean")
    assert means["value"].to_list() == pytest.approx([0.25] * 6)


def test_tables_of_an_earlier_comparison_do_not_stay_and_tables_of_others_do(
    run_folders: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run_compare(run_folders[:2], out, "--margin", "0.3")
    (out / "tables" / "mine.parquet").write_bytes(b"precious")
    run_compare(run_folders[:2], out)
    assert {path.stem for path in (out / "tables").iterdir()} == {*TABLES, "mine"}
    run_compare(run_folders[:2], out, "--margin", "0.3")
    (out / "tables" / "equivalence.parquet").write_bytes(b"changed by hand")
    (out / "compare.json").write_text("{")
    run_compare(run_folders[:2], out)
    assert (out / "tables" / "equivalence.parquet").read_bytes() == b"changed by hand"


def test_the_head_names_the_shots_that_all_runs_have_and_no_others(tmp_path: Path) -> None:
    shots = {"a": 4, "b": 4, "c": 0}
    for seed, (name, n_shots) in enumerate(shots.items()):
        answers = predictions(0.5, seed=seed, methods=["vanilla"])
        write_run(tmp_path / name, f"acme/{name}", answers, prompts={"n_shots": n_shots, "shots": str(n_shots)})
    for other, head in (("b", "4 datasets · 4 shots"), ("c", "4 datasets")):
        run_compare([tmp_path / "a", tmp_path / other], tmp_path / other / "out")
        page = (tmp_path / other / "out" / "compare.html").read_text()
        assert f'<p class="subject">staicc-normal / normal · {head}</p>' in page


def test_runs_that_differ_by_rounding_alone_do_not_differ(tmp_path: Path) -> None:
    probs = np.random.default_rng(0).dirichlet([0.2] * 3, 40)
    shared = {"query_id": range(40), "gold": ["a", "b"] * 20, "label_names": [["a", "b", "c"]] * 40}
    for name, column, numbers in (("p", "label_probs", probs), ("l", "label_log_likelihoods", np.log(probs) - 3)):
        (tmp_path / name).mkdir()
        pl.DataFrame(shared | {column: numbers.tolist()}).write_parquet(tmp_path / name / "answers.parquet")
        command("import", tmp_path / name / "answers.parquet", "--out", tmp_path / name / "run", "--model", name)
    found = [pl.read_parquet(tmp_path / name / "run/tables/predictions.parquet")["label_probs"] for name in "pl"]
    assert not found[0].equals(found[1])
    shown = command("compare", tmp_path / "p" / "run", tmp_path / "l" / "run", "--out", tmp_path / "both")
    assert "differ in their texts" not in shown  # what stood around the inputs is not known of imported answers
    differences = pl.read_parquet(tmp_path / "both" / "tables" / "differences.parquet")
    assert differences["p_value"].to_list() == [1.0] * differences.height
    assert differences["difference"].to_list() == [0.0] * differences.height
    assert differences["min_detectable"].min() > 0.01


def test_models_and_datasets_can_have_the_names_of_columns(tmp_path: Path) -> None:
    renamed = {"zoo": "model", "abc": "number", "mid": "dataset"}
    for seed, name in enumerate(("dataset", "number", "model")):
        answers = predictions(0.5 * seed, seed=seed).with_columns(pl.col("dataset").replace(renamed))
        write_run(tmp_path / name, name, answers, prompts={"datasets": ["model", "number", "dataset", "odd"]})
    command("compare", *(tmp_path / name for name in ("dataset", "number", "model")), "--out", tmp_path / "out")
    accuracies = pl.read_parquet(tmp_path / "out" / "tables" / "comparison.parquet").filter(metric="accuracy")
    page = (tmp_path / "out" / "compare.html").read_text()
    for dataset, value in accuracies.filter(model="number", method="vanilla").select("dataset", "value").iter_rows():
        assert f'data-value="{value}"' in page, dataset
    ranks = pl.read_parquet(tmp_path / "out" / "tables" / "rank_correlations.parquet").filter(between="models")
    assert {*ranks.select("a", "b").iter_rows()} == {("dataset", "number"), ("dataset", "model"), ("number", "model")}
