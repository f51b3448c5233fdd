"""Write a page with many runs (`evaluator board`), with ranges of ranks among runs that answer the same prompts."""

import os
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import polars as pl

from evaluator.arrays import Floats
from evaluator.compare.across_models import MAX_RANKED, rank_ranges
from evaluator.compare.differences import SET, combined_by_input
from evaluator.compare.results import CHOOSING
from evaluator.compare.runs import prompt_form
from evaluator.errors import ConfigError, StoreError
from evaluator.exports.base import ExportedRun
from evaluator.exports.every_eval_ever import EVERY_EVAL_EVER
from evaluator.files.digests import fingerprint
from evaluator.files.json_files import write_json
from evaluator.files.whole import write_bytes, writing_to
from evaluator.metrics.classification import DEFINITIONS
from evaluator.progress import Progress, Stage
from evaluator.redaction import csv_text
from evaluator.report.page import write_board_page
from evaluator.run.folder import read_table
from evaluator.run.folders import BOARD_PAGE, PAGE, RUN_FILE, model_runs
from evaluator.runs.export import exported_run
from evaluator.runs.state import find_runs
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.suites import families_of, shared_sets

BOARD_JSON, BOARD_CSV = "board.json", "board.csv"
ENTRY = ["suite", "part", "method", "definition"]
"""Columns that identify an entry of a run. Runs with the same prompts are ranked entry by entry."""


class Answers(NamedTuple):
    """The results of a run for one suite, part, method and definition."""

    prompts: str  # identity of the prompts and gold labels of all datasets
    # Dataset -> [n_queries, n_sets], share of right answers; n_sets is 1 unless all queries have the same sets.
    correct: Mapping[str, Floats]


class Board(NamedTuple):
    """The page of a board, the number of its runs, and why other runs are left out."""

    page: Path
    n_runs: int
    left_out: list[str]


def board(folders: Sequence[Path], out: Path) -> Stage[Board]:
    """Write OUT/index.html, board.json, board.csv and every_eval_ever/ for all measured runs in and below folders.

    Equal runs give equal bytes. Ids of runs and groups depend only on their content, so that links stay valid when runs
    are added. Raises ConfigError if there is no measured run.
    """
    listed = (run.resolve() for folder in folders for run in find_runs(folder))
    found = [run for run in dict.fromkeys(listed) if (run / RUN_FILE).is_file()]  # without boards and comparisons
    runs: list[tuple[dict[str, Any], ExportedRun]] = []
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    groups: dict[str, list[tuple[dict[str, Any], Answers]]] = defaultdict(list)
    for done, folder in enumerate(found):
        yield Progress(stage="Reading runs", done=done, total=len(found), unit="runs")
        try:
            run = exported_run(folder)
            answers = _answers(read_table(folder, "predictions", run.record.tables), run.record.prompts.inputs)
        except (StoreError, ConfigError) as error:
            left_out += [str(error)] * (not model_runs(folder))  # a folder of several models: their runs are listed
            continue
        about = _about(run, folder, out, {one["id"] for one, _ in runs})
        runs.append((about, run))
        for row in _rows(run):
            row["run"] = about["id"]
            rows.append(row)
            answered = answers.get((*(row[name] for name in ENTRY[:3]), DEFINITIONS[row["definition"]].predictions))
            if answered is not None:
                settings = (prompt_form(run.record), run.record.scores.label_boundary, answered.prompts)
                row["group"] = fingerprint(*(row[name] for name in ENTRY), *settings)
                groups[row["group"]].append((row, answered))
    if not runs:
        named = ", ".join(map(str, folders))
        raise ConfigError(f"There is no measured run in {named}. {' '.join(left_out[:3])}".strip())
    yield Progress(stage="Ranking", done=0, total=len(groups), unit="groups")
    for group in groups.values():
        _rank(group)
    with writing_to(out):
        page = _write(out, runs, rows)
    yield Progress(stage="Ranking", done=len(groups), total=len(groups), unit="groups")
    return Board(page, len(runs), left_out)


def _about(run: ExportedRun, folder: Path, out: Path, taken: set[str]) -> dict[str, Any]:
    """Return the description of a run on the board. Its id is a digest of scores and model; copies have numbers."""
    record, first = run.record, f"run-{fingerprint(run.record.scores.fingerprint, run.record.model.title)}"
    ids = (first if n == 1 else f"{first}-{n}" for n in range(1, len(taken) + 2))
    short, page = record.model.title.rsplit("/", 1)[-1], folder / PAGE
    return {
        "id": next(name for name in ids if name not in taken),
        "model": run.model,
        "family": re.split(r"[-_ ]?\d+(?:\.\d+)?[mMbB]\b", short)[0] or short,
        "n_parameters": record.model.n_parameters,
        "form": prompt_form(record),
        "shots": record.prompts.shots,
        "queries": record.prompts.queries if record.prompts.n_queries is None else str(record.prompts.n_queries),
        "seconds": round(record.scores.elapsed_s, 3),
        "tokens": record.scores.prompt_tokens,
        "page": quote(Path(os.path.relpath(page, out.resolve())).as_posix()) if page.is_file() else None,
    }


def _rows(run: ExportedRun) -> Iterator[dict[str, Any]]:
    """Yield an entry for each suite, part, method and definition with an accuracy."""
    accuracies = run.metrics.filter(metric="accuracy")
    for key, rows in accuracies.group_by(ENTRY, maintain_order=True):
        values = dict(rows.select("dataset", pl.col("value").round(4)).iter_rows())
        mean = rows.filter(dataset=MEAN_OVER_DATASETS).select("ci_low", "ci_high").rows() or [(None, None)]
        interval = [end if end is None else round(end, 4) for end in mean[0]]
        entry = dict(zip(ENTRY, key, strict=True))
        yield entry | {"values": values, "interval": interval, "group": None, "rank": None}


def _answers(predictions: pl.DataFrame, inputs: Mapping[str, str] = {}) -> dict[tuple[str, ...], Answers]:
    """Return (suite, part, method, definition) -> Answers.

    Questions about the same inputs are combined into one dataset (differences.combined_by_input).

    Args:
        predictions: schemas.PREDICTIONS of a run.
        inputs: dataset (question) -> table that it asks about.
    """
    # The identity of prompts is a sum of hashes, which does not depend on their order. Methods that choose prompts by
    # the model's answers are identified by their queries.
    query, prompt = (pl.col(name).hash() for name in ("query_id", "prompt_id"))
    asked = pl.when(pl.col("method").is_in(CHOOSING)).then(query).otherwise(prompt)
    is_correct = (pl.col("pred") == pl.col("gold")).cast(pl.Float64)
    identity = pl.struct("dataset", "position", "gold", asked.alias("asked")).hash()
    shared = ["/".join(names) for names in shared_sets(predictions["suite"].unique())]
    of_sets = pl.when(pl.concat_str("suite", "part", separator="/").is_in(shared)).then(pl.col(*SET))
    of_queries = predictions.drop_nulls("gold").with_columns(of_sets).group_by(*ENTRY, "dataset", "query_id", *SET)
    by_query = of_queries.agg(correct=is_correct.mean(), prompts=identity.sum())
    answers = {}
    for key, rows in by_query.sort("dataset", "query_id", *SET).partition_by(ENTRY, as_dict=True).items():
        datasets = rows.partition_by("dataset", as_dict=True, maintain_order=True)
        table, one_input = pl.col("dataset").replace(inputs).alias("table"), ["table", "query_id", *SET]
        queries = [of_dataset.with_columns(table) for of_dataset in datasets.values()]
        combined = combined_by_input(queries, ["correct"], one_input)
        names = [str(name) for (name,) in datasets] if len(combined) == len(datasets) else [MEAN_OVER_DATASETS]
        correct = {
            name: of_name.sort(one_input)["correct"].to_numpy().reshape(-1, of_name.n_unique(SET))
            for name, of_name in zip(names, combined, strict=True)
        }
        answers[tuple(map(str, key))] = Answers(f"{rows['prompts'].sum()}, {', '.join(correct)}", correct)
    return answers


def _rank(group: Sequence[tuple[dict[str, Any], Answers]]) -> None:
    """Write the ranges of ranks of a group into its rows; only the MAX_RANKED most accurate runs are ranked."""
    means = [np.mean([answers.mean() for answers in answered.correct.values()]) for _, answered in group]
    best = [group[place] for place in np.argsort(-np.array(means), kind="stable")[:MAX_RANKED]]
    if len(best) < 2:
        return
    correct = [np.stack([answered.correct[name] for _, answered in best]) for name in best[0][1].correct]
    for (row, _), ends in zip(best, rank_ranges(correct), strict=True):
        row["rank"] = [int(end) for end in ends]


def _write(out: Path, runs: Sequence[tuple[dict[str, Any], ExportedRun]], rows: list[dict[str, Any]]) -> Path:
    """Write the files of a board and return the path of its page."""
    families = families_of(sorted({suite for _, run in runs for suite in run.record.prompts.suites}))
    published = [row for family in families for row in family.published().to_dicts()]
    content = {"runs": [about for about, _ in runs], "rows": rows, "published": published}
    write_json(out / BOARD_JSON, content)
    by_id, ends = {about["id"]: about for about, _ in runs}, ("rank_low", "rank_high", "ci_low", "ci_high")
    # A row for each dataset of each entry.
    flat = [
        {**by_id[row["run"]], **{name: row[name] for name in (*ENTRY, "group")}}
        | dict(zip(ends, (*(row["rank"] or (None, None)), *row["interval"]), strict=True))
        | {"dataset": dataset, "accuracy": value}
        for row in rows
        for dataset, value in row["values"].items()
    ]
    write_bytes(out / BOARD_CSV, csv_text(pl.DataFrame(flat, infer_schema_length=None)).encode())
    folder = out / "every_eval_ever"
    files = {
        folder / file.name: file.content
        for _, run in runs
        for means in [run.metrics.filter(metric="accuracy", dataset=MEAN_OVER_DATASETS)]
        for file in EVERY_EVAL_EVER.files(replace(run, metrics=means, answers=lambda: iter(())))
    }
    for path in {*folder.glob("data/*/*/*/*.json")} - files.keys():
        path.unlink()  # of a run that is not on the board any more
    with ThreadPoolExecutor() as pool:  # each file waits for the disk
        deque(pool.map(write_bytes, files, files.values()), maxlen=0)
    return write_board_page(out / BOARD_PAGE, content)
