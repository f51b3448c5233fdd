"""Searches of several models: only equal prompts are compared, and verdicts are counted as in table 1."""

import json
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from sklearn.metrics import accuracy_score

from evaluator.errors import ConfigError
from evaluator.suites.prompt_search import schema
from evaluator.suites.prompt_search.report import comparison_section
from evaluator.suites.prompt_search.tables import (
    SearchComparison,
    curves_table,
    search_comparison,
    search_held_out,
)
from tests.command_line import command
from tests.suites.prompt_search.test_tables import CHOICES, EXAMPLES, answered, prompts, results

TRIALS = search_held_out(answered(), prompts(), EXAMPLES, seed=0)
QUERIES = pl.DataFrame({"dataset": "d", "query_id": [10, 11, 12, 13], "gold": [0, 1, 2, 0], "label_names": CHOICES})


pytestmark = pytest.mark.usefixtures("without_pages")


def found_run(number: int, table: pl.DataFrame, trials: pl.DataFrame = TRIALS) -> SimpleNamespace:
    """What a comparison reads of a run with these prompts."""
    tables = {
        "predictions": QUERIES,
        "search_prompts": table,
        "search_results": results(table),
        "search_curves": curves_table(table, EXAMPLES),
        "search_held_out": trials,
    }
    model, asked = SimpleNamespace(n_parameters=10**number), SimpleNamespace(query_fingerprints={"d": "0123"})
    record = SimpleNamespace(model=model, prompts=asked)
    folder = Path(f"run{number}")
    return SimpleNamespace(number=number, model=f"m{number}", folder=folder, record=record, table=tables.__getitem__)


def compared(*tables: pl.DataFrame) -> SearchComparison:
    return search_comparison([found_run(number, table) for number, table in enumerate(tables, 1)])


def with_counts(*counts: int) -> pl.DataFrame:
    """The hand-made search, with other numbers of right answers of its prompts; the texts of 1 and 3 are equal."""
    n_correct = pl.Series(counts, dtype=pl.Int64)
    return prompts().with_columns(n_correct=n_correct, accuracy=n_correct / 4)


def test_totals_count_the_searches_above_each_baseline():
    # Chance is .4375 and the best of three random classifiers .69: 4 of 4 is above both, 2 of 4 between, 1 below both.
    found = compared(*(with_counts(0, best, 0, best) for best in (4, 2, 1)))
    assert found.models.schema == schema.SEARCH_MODELS
    assert found.models["verdict"].to_list() == ["above both", "between", "below both"]
    assert found.totals.schema == schema.SEARCH_TOTALS
    counts = found.totals.filter(n_shots=1).select(
        "model", "above_standard", "above_max", "disagreements", "flipped_share"
    )
    assert counts.rows() == [("m1", 1, 1, 0, 0.0), ("m2", 1, 0, 1, 1.0), ("m3", 0, 0, 0, None)]
    assert found.totals.filter(pl.col("n_shots").is_null()).height == 3


def test_searches_that_only_some_runs_have_are_left_out():
    more = pl.concat([prompts(), prompts().with_columns(n_shots=pl.lit(2, pl.Int64))])
    assert compared(prompts(), more).models["n_shots"].to_list() == [1, 1]
    with pytest.raises(ConfigError, match="No search is in all of run1, run2"):
        compared(prompts(), prompts().with_columns(n_shots=pl.lit(2, pl.Int64)))


@pytest.mark.parametrize("column", ["text", "demonstrations", "n_prompts"])
def test_other_prompts_are_refused(column):
    other = prompts()
    if column == "n_prompts":
        other = other.head(3)
    else:
        value = pl.lit("other") if column == "text" else pl.lit(["other"])
        other = other.with_columns(pl.when(prompt_number=2).then(value).otherwise(column).alias(column))
    with pytest.raises(ConfigError, match="run1 and run2 have different prompts or queries in their searches"):
        compared(prompts(), other)


def test_the_section_has_a_column_and_a_line_for_each_model():
    section = comparison_section(compared(prompts(), with_counts(0, 2, 0, 2)), ["m1", "m2"])
    best, totals, curves, held_out = section.content
    assert [column.title for column in best.columns[-2:]] == ["m1", "m2"]
    assert totals.rows.height == 4
    ((drawing,),) = [panel.drawings for panel in curves.content[1].panels]
    # Counts 3, 3, 0 and 0, 2, 0: of three draws the best is 3 with probability 26/27, and 2 with 19/27.
    for number, best_accuracy in ((1, 3 / 4 * 26 / 27), (2, 2 / 4 * 19 / 27)):
        assert (
            f"model {number}, drawn with replacement: the best of 3 prompts has accuracy {best_accuracy:.3f}" in drawing
        )
    assert {*held_out.content[1].rows["tries"]} == {3}


def test_models_can_have_the_names_of_columns():
    names = {"m1": "chance", "m2": "cell"}
    found = compared(prompts(), with_counts(0, 2, 0, 2))
    renamed = found._replace(models=found.models.with_columns(pl.col("model").replace(names)))
    best, *_ = comparison_section(renamed, [*names.values()]).content
    assert [column.title for column in best.columns[-2:]] == ["chance", "cell"]
    assert best.rows["chance"].to_list() == [0.4375]
    assert [best.rows[column.of][0]["best_accuracy"] for column in best.columns[-2:]] == [0.75, 0.5]


def test_two_models_are_searched_and_compared_by_one_command(tmp_path):
    command(
        *("run", "prompt-search", "--datasets", "trec", "--queries", 8, "--tries", 3, "--shots", 1, "--engine"),
        *("transformers", "--model", "embedded", "--model", "random", "--out", tmp_path / "out"),
    )
    models = pl.read_parquet(tmp_path / "out" / "tables" / "search_models.parquet")
    assert models["model"].to_list() == ["embedded", "random"]
    assert "The best prompts of each model" in (tmp_path / "out" / "compare.html").read_text()


def test_held_out_prediction_is_of_the_searches_that_all_runs_have():
    # One run has a second search of more prompts, whose best is never above chance on the test part.
    of_all = TRIALS.filter(tries=3)
    many = of_all.with_columns(tries=pl.lit(200, pl.Int64))
    other = many.with_columns(
        experiment=pl.lit("demonstrations/d/2/per_token"), above_standard_on_test=False, n_prompts=pl.col("tries")
    )
    more = pl.concat([prompts(), prompts().with_columns(n_shots=pl.lit(2, pl.Int64))])
    found = search_comparison([found_run(1, prompts()), found_run(2, more, pl.concat([many, other]))]).held_out
    assert found.select("model", "tries", "n_trials").unique().sort("model").rows() == [("m1", 3, 100), ("m2", 3, 100)]
    assert {*found["held_out_share"]} == {of_all["above_standard_on_test"].mean()}
    accuracy = accuracy_score(of_all["above_standard_on_test"], of_all["above_max_on_train"])
    assert found.filter(predictor="max")["accuracy"].to_list() == [accuracy] * 2


def task(folder: Path, answers: str = "a") -> Path:
    """Forty questions with two choices; the gold one is the first."""
    folder.mkdir(exist_ok=True)
    rows = [{"question": f"{answers} {n}", "choices": ["yes", "no"], "gold": 0} for n in range(40)]
    (folder / "task.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "task.jsonl"


def searched(folder: Path, name: str, data: Path, *words: object) -> Path:
    """A search over two instructions, which are the same texts whatever is asked."""
    (folder / "candidates.json").write_text('{"instructions": ["Choose.", "Answer."]}')
    columns = ("--input-column", "question", "--choices-column", "choices", "--gold-column", "gold")
    said = ("run", "prompt-search", "--data", data, *columns, "--candidates", folder / "candidates.json", "--shots", 0)
    command(*said, "--queries", 20, "--model", "fake", "--engine", "fake", "--out", folder / name, *words)
    return folder / name


def test_searches_of_other_queries_are_refused_though_the_prompts_are_the_same(tmp_path: Path) -> None:
    first = searched(tmp_path, "first", task(tmp_path / "a"))
    others = {
        "drawn by another seed": searched(tmp_path, "seed", task(tmp_path / "a"), "--seed", 7),
        "other texts": searched(tmp_path, "texts", task(tmp_path / "b", "b")),
    }
    for about, run in others.items():
        told = command("compare", first, run, "--out", tmp_path / "out", exits=2)
        assert "have different prompts or queries in their searches" in told, about
    same = searched(tmp_path, "same", task(tmp_path / "a"), "--halving")
    command("compare", first, same, "--out", tmp_path / "out")
    told = command("compare", first, same, "--margin", 0.1, "--out", tmp_path / "out", exits=2)
    assert "no metrics to compare, or to test within --margin" in told
