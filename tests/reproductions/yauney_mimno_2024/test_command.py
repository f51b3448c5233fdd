"""`evaluator reproduce yauney-mimno-2024` on a small folder that is judged by hand, and on folders that do not fit."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from evaluator.errors import DatasetError
from evaluator.progress import finish
from evaluator.reproductions import REPRODUCTIONS
from evaluator.reproductions.base import reproduce
from evaluator.reproductions.yauney_mimno_2024.held_out import PUBLISHED_HELD_OUT
from evaluator.reproductions.yauney_mimno_2024.recompute import PUBLISHED_EXPERIMENTS, PUBLISHED_TOTALS
from tests.command_line import command_outputs
from tests.reproductions.commanded import Commanded, reproduce_by_command
from tests.reproductions.yauney_mimno_2024.published_folder import (
    CORRECT,
    N_ROWS,
    TASK,
    demonstrations,
    held_out,
    predictions,
    write_folder,
)

TABLES = ["baselines", "cells", "curves", "experiments", "held_out", "held_out_spread", "identical_models"]
TABLES += ["query_rules", "totals", "verdicts"]


def recompute(data: Path, out: Path) -> None:
    finish(reproduce(REPRODUCTIONS["yauney-mimno-2024"](), data, out))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    recompute(write_folder(folder / "data"), folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def commanded(tmp_path_factory: pytest.TempPathFactory) -> Commanded:
    """The command on a folder with the same files as that of `out`."""
    return reproduce_by_command("yauney-mimno-2024", write_folder, tmp_path_factory.mktemp("commanded"))


def test_the_command_writes_tables_and_a_page_and_prints_the_totals(commanded: Commanded) -> None:
    out, printed = commanded
    # By hand, below: one experiment is above both baselines, one between them.
    assert re.search(r"^released +2 +2 +1 +1 +50\.0%$", printed, re.MULTILINE)
    assert re.search(r"^authors' splits, released +max +0\.75 +1\.00 +0\.50", printed, re.MULTILINE)
    assert (out / "report.html").is_file()
    assert sorted(path.stem for path in (out / "tables").glob("*.parquet")) == TABLES
    assert sorted(path.stem for path in (out / "tables").glob("*.csv")) == TABLES


def test_experiments_are_judged_as_by_hand(out: Path) -> None:
    rows = pl.read_parquet(out / "tables" / "experiments.parquet")
    assert rows.schema == PUBLISHED_EXPERIMENTS
    base, tuned = rows.iter_rows(named=True)
    # 46 rows less one demonstration, 46 tries for one shot, chance 1/2: the best of 46 is expected about 2.2 standard
    # deviations of sqrt(45) / 2 = 3.35 above 22.5 of 45, at .66. 6 of 8 is more.
    assert base["released_max_random"] == pytest.approx(0.66, abs=0.01)
    assert base["released_verdict"] == "above both"
    assert (base["released_n"], base["released_tries"], base["released_chance"]) == (N_ROWS - 1, N_ROWS, 0.5)
    assert (base["best_prompt"], base["n"], base["correct"]) == (3, 8, max(CORRECT["OLMo-7B"]))
    assert (base["n_distinct_prompts"], base["sound_tries"]) == (3, 3)
    assert base["best_without_query"]
    # Of 2^8 = 256 ways 28 + 8 + 1 have 6 or more right; the best of three has as many unless all three have fewer.
    assert 10 ** base["log10_standard_tail"] == pytest.approx(37 / 256)
    assert 10 ** base["log10_max_tail"] == pytest.approx(1 - (219 / 256) ** 3)
    # 4 of 8 is exactly chance, by two prompts of which the first counts: above it to the authors alone.
    assert (tuned["best_prompt"], tuned["n_best"], tuned["accuracy"]) == (1, 2, 0.5)
    assert (tuned["released_verdict"], tuned["sound_verdict"]) == ("between", "below both")
    assert tuned["reason"] == "an accuracy equal to a baseline is not above it: below both"


def test_models_with_the_same_losses_are_flagged(out: Path) -> None:
    pairs = pl.read_parquet(out / "tables" / "identical_models.parquet").rows()
    # Demonstrations [1] are the same prompt with the same losses, [2] the same prompt with others; [3] lost its query.
    assert pairs == [(TASK, 1, "OLMo-7B", "OLMo-7B-Instruct", 2, 1)]
    # Of the two, the sound totals without repeats count OLMo-7B alone, which is above both baselines.
    totals = pl.read_parquet(out / "tables" / "totals.parquet").rows_by_key("rules", unique=True)
    assert totals["sound, models that are the same once"] == (1, 1, 1, 0, 0.0)


def test_the_rule_that_is_used_for_lost_queries_is_marked_alone(out: Path) -> None:
    rules = pl.read_parquet(out / "tables" / "query_rules.parquet")
    # Prompt 3 of both models has one loss for its eight examples: lost by all rules but that of a tenth of them.
    assert rules.select("n_prompts", "n_experiments").rows() == [(2, 2)] * 7 + [(0, 0)] + [(2, 2)]
    assert rules.filter("is_used")["rule"].to_list() == ["no more different losses than stated choices"]


def test_held_out_figures_are_those_of_the_trials(out: Path) -> None:
    rows = pl.read_parquet(out / "tables" / "held_out.parquet")
    assert rows.schema == PUBLISHED_HELD_OUT
    authors = rows.filter(splits="authors'", over="all", tries=200)
    scores = authors.select("predictor", "accuracy", "precision", "recall", "auroc").rows_by_key(
        "predictor", unique=True
    )
    # Outcomes 0 0 1 1. Standard says 0 1 1 1: 3 of 4, 2 of 3, 2 of 2; max says 0 0 0 1: 3 of 4, 1 of 1, 1 of 2.
    assert scores["standard"] == pytest.approx((0.75, 2 / 3, 1, 0.75))
    assert scores["max"] == pytest.approx((0.75, 1, 0.5, 0.75))
    assert scores["max tail"] == (None, None, None, 1)


def test_a_second_run_gives_the_same_bytes(out: Path, commanded: Commanded) -> None:
    names = ["report.html", *(f"tables/{name}.{kind}" for name in TABLES for kind in ("parquet", "csv"))]
    for name in names:
        assert (commanded.out / name).read_bytes() == (out / name).read_bytes(), name


def test_csv_and_parquet_hold_the_same(out: Path) -> None:
    parquet = pl.read_parquet(out / "tables" / "totals.parquet")
    # A text that a spreadsheet takes for a formula has a ' before it.
    csv = pl.read_csv(out / "tables" / "totals.csv", schema=PUBLISHED_TOTALS)
    assert csv.with_columns(pl.col("rules").str.strip_prefix("'")).equals(parquet)


def test_the_page_asks_for_nothing_from_a_network(out: Path) -> None:
    page = (out / "report.html").read_text()
    assert "default-src 'none'" in page
    assert re.findall(r"""(?:src|href)=["'](?!data:|#)""", page) == []
    assert page.count("<script>") == page.count("<script") == 2
    # Of one task: figure 3 has three, one below the other, figure 5 four, figure 8 two numbers of tries, figure 10 one.
    assert page.count("<svg") == 3 + 4 + 2 + 1


def test_a_folder_without_the_files_says_which_are_needed_and_where_they_are_published(tmp_path: Path) -> None:
    said = command_outputs("reproduce", "yauney-mimno-2024", "--data", tmp_path, "--out", tmp_path / "out", exits=2).err
    assert "gyauney/stronger-random-baselines" in said
    for name in ("few_shot_predictions", "demonstrations", "subsampled_ids", "held_out_splits"):
        assert f"{name}.parquet" in said
    assert not (tmp_path / "out").exists()


Change = Callable[[pl.DataFrame], pl.DataFrame]


def with_predictions(change: Change) -> Callable[[Path], None]:
    return lambda folder: change(predictions()).write_parquet(folder / "few_shot_predictions.parquet")


def with_demonstrations(change: Change) -> Callable[[Path], None]:
    return lambda folder: change(demonstrations()).write_parquet(folder / "demonstrations.parquet")


def with_trials(change: Change) -> Callable[[Path], None]:
    return lambda folder: change(held_out()).write_parquet(folder / "held_out_splits.parquet")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (with_predictions(lambda rows: rows.drop("loss")), r"few_shot_predictions.parquet has no column 'loss'"),
        (with_predictions(lambda rows: rows.with_columns(correct=pl.lit(2))), "`correct` must be 0 or 1"),
        (
            with_predictions(lambda rows: rows.filter(pl.col("prompt_id") > 0)),
            "has 6 prompts and demonstrations.parquet 8",
        ),
        (with_predictions(lambda rows: rows.cast({"shots": pl.String})), "column 'shots' must be Int64 and is String"),
        (
            with_predictions(lambda rows: rows.with_columns(loss=pl.lit(None, pl.Float32))),
            "'loss' has 64 missing",
        ),
        (
            with_demonstrations(lambda rows: rows.with_columns(demonstration_ids=pl.lit("1"))),
            r"'demonstration_ids' must be List\(Int64\) and is String",
        ),
        (with_trials(lambda rows: rows.with_columns(model=pl.lit("GPT-9"))), "Leave out rows such as .*'GPT-9'"),
        (
            with_trials(lambda rows: rows.with_columns(max_random_f=pl.lit(math.nan))),
            "numbers as distribution functions",
        ),
        (lambda folder: (folder / "held_out_splits.parquet").unlink(), "lacks held_out_splits.parquet"),
        (lambda folder: (folder / "demonstrations.parquet").write_text("no"), "cannot be read as Parquet"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    folder = write_folder(tmp_path)
    spoil(folder)
    with pytest.raises(DatasetError, match=message):
        recompute(folder, tmp_path / "out")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("trivia", "'trivia' is none of the published experiments' sixteen"),
        ("hindu_knowledge", "only in the predictions"),
    ],
)
def test_tasks_that_are_not_known_or_have_other_rows_are_refused(tmp_path: Path, task: str, message: str) -> None:
    folder = write_folder(tmp_path / "data")
    for name in ("few_shot_predictions", "demonstrations", "held_out_splits"):
        path = folder / f"{name}.parquet"
        pl.read_parquet(path).with_columns(dataset=pl.lit(task)).write_parquet(path)
    with pytest.raises(DatasetError, match=message):
        recompute(folder, tmp_path / "out")
