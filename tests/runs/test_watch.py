"""`evaluator gate RUN --watch LOG`: alarms, exit codes and the sentence."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from evaluator.files.json_files import write_record
from evaluator.metrics.thresholds import Threshold, ThresholdFile
from evaluator.runs.watch import _verdict
from tests.command_line import command

pytestmark = pytest.mark.usefixtures("without_pages")

NAMES = ["billing", "technical", "spam"]


def answers(seed: int, n: int, accuracy: float, shift: float = 0.0) -> pl.DataFrame:
    """Answers of which every second has a largest probability of .9 + shift, with this accuracy; the others .5."""
    rng = np.random.default_rng(seed)
    rows = []
    for row in range(n):
        best, top = int(rng.integers(3)), (0.9 if row % 2 else 0.5) + shift
        probs = [top if place == best else (1 - top) / 2 for place in range(3)]
        gold = best if rng.random() < accuracy else (best + 1) % 3
        rows.append({"gold": NAMES[gold], "label_names": NAMES, "label_probs": probs, "user": row // 4})
    return pl.DataFrame(rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of answers, and thresholds that promise 10% of errors at most from .8 on."""
    answers(0, 200, 0.95).write_parquet(tmp_path / "run.parquet")
    write_thresholds(tmp_path)
    return tmp_path


def write_thresholds(folder: Path, **changed: object) -> None:
    promise = Threshold(target=0.9, threshold=0.8)
    file = ThresholdFile(
        model="m", method="vanilla", assurance=0.95, yes=None, group_column=None, thresholds=(promise,)
    )
    write_record(folder / "thresholds.json", replace(file, **changed))  # type: ignore[arg-type]


def watched(folder: Path, log: pl.DataFrame, *, exits: int, thresholds: bool = True) -> str:
    log.write_parquet(folder / "log.parquet")
    more = ("--thresholds", folder / "thresholds.json") if thresholds else ()
    return command("gate", folder / "run.parquet", "--watch", folder / "log.parquet", *more, exits=exits)


def test_a_last_line_that_is_still_being_written_is_left_out(folder: Path) -> None:
    rows = answers(1, 40, 0.93).to_dicts()
    log, words = folder / "log.jsonl", ("gate", folder / "run.parquet", "--watch", folder / "log.jsonl")
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    promise = ("--thresholds", folder / "thresholds.json")
    whole = command(*words, *promise)
    log.write_text(log.read_text() + json.dumps(rows[0])[:40])
    told = command(*words, *promise)
    assert told == f"{whole}Note: The last line of {log} is not whole and is left out.\n"
    assert command(*words).startswith("No drift is shown: inputs asked again")
    log.write_text(json.dumps(rows[0])[:40])
    assert f"Error: {log} has no rows." in command(*words, *promise, exits=2)
    log.write_text(json.dumps(rows[0]))
    assert "0 errors in 0 answers" in command(*words, *promise)


def test_errors_of_used_answers_within_the_promise_are_no_alarm(folder: Path) -> None:
    log = answers(1, 600, 0.93)
    told = watched(folder, log, exits=0)
    used = log.filter(pl.col("label_probs").list.max() > 0.8)
    right = used["label_names"].list.get(used["label_probs"].list.arg_max()) == used["gold"]
    assert told.startswith("No drift is shown: accuracy: ")
    assert f"{(~right).sum()} errors in 300 answers" in told
    assert "promised at most 10.0%" in told
    assert len(told.splitlines()) == 1


def test_more_errors_than_promised_are_an_alarm_which_stays_when_the_log_grows(folder: Path) -> None:
    bad, good = answers(2, 400, 0.7), answers(3, 2_000, 1.0)
    assert watched(folder, bad, exits=1).startswith("ALARM: accuracy: ")
    first = watched(folder, bad, exits=1).split("first at value ")[1]
    assert watched(folder, pl.concat([bad, good]), exits=1).split("first at value ")[1] == first


def test_all_tests_together_have_the_level_and_each_alarm_has_its_first_value() -> None:
    # Ville's inequality with .05 / 2 for each of two tests: an alarm is from 40 on.
    quiet, loud = ("quiet", "as before", np.array([2.0, 39.9])), ("loud", "worse", np.array([1.0, 39.9, 40.0, 3.0]))
    first, second = _verdict([quiet, loud]).checks
    assert (first.alarm_at, second.alarm_at, second.needed) == (None, 3, 40)
    assert _verdict([quiet, loud]).reason.endswith("(largest e-value 40, an alarm is from 40 on; first at value 3).")
    assert _verdict([loud, loud]).reason.endswith("; first at value 3) and 1 more of 2 tests.")


def test_a_promised_rate_of_false_positives_is_tested_on_the_true_no_alone(folder: Path) -> None:
    promise = Threshold(measure="false_positive_rate", target=0.1, threshold=0.8)
    write_thresholds(folder, yes="yes", thresholds=(promise,))
    # Of 60 true no 3 are taken for yes; of 20 true yes all are found.
    gold, chances = ["no"] * 60 + ["yes"] * 20, ([0.2] * 19 + [0.9]) * 3 + [0.9] * 20
    probs = pl.Series([[1 - chance, chance] for chance in chances])
    log = pl.DataFrame({"gold": gold, "label_probs": probs}).with_columns(label_names=pl.lit(["no", "yes"]))
    assert "3 errors in 60 answers (5.0%), promised at most 10.0%" in watched(folder, log, exits=0)


def test_rows_of_a_group_are_one_value(folder: Path) -> None:
    write_thresholds(folder, group_column="user")
    answers(4, 400, 0.7).write_parquet(folder / "log.parquet")
    more = ("--thresholds", folder / "thresholds.json", "--json")
    out = command("gate", folder / "run.parquet", "--watch", folder / "log.parquet", *more, exits=1)
    (check,) = json.loads(out)["checks"]
    assert check["n"] == 100
    assert "of 200" not in check["found"]
    assert "in 200 answers" in check["found"]
    # Each of ten groups has one error in 20 used answers: 5% of its answers, and not all of them.
    row, wrong = pl.int_range(pl.len()), (pl.col("label_probs").list.arg_max() + 1) % 3
    gold = pl.when(row % 40 == 7).then(pl.col("label_names").list.get(wrong)).otherwise("gold")
    told = watched(folder, answers(4, 400, 1.0).with_columns(user=row // 40, gold=gold), exits=0)
    assert "10 errors in 200 answers (5.0%)" in told


def test_thresholds_of_slices_test_the_answers_of_each(folder: Path) -> None:
    promises = tuple(Threshold(slice=name, target=0.9, threshold=0.8) for name in ("de", "en"))
    write_thresholds(folder, slice_column="language", thresholds=promises)
    language = pl.when(pl.int_range(pl.len()) < 300).then(pl.lit("en")).otherwise(pl.lit("de")).alias("language")
    told = watched(folder, answers(2, 400, 0.7).with_columns(language), exits=1)
    assert told.startswith("ALARM: en, accuracy: ")
    assert "errors in 150 answers" in told
    # Asked again without labels, every second answer falls below its threshold.
    answers(0, 200, 0.95).with_columns(language).write_parquet(folder / "run.parquet")
    watched(folder, answers(0, 200, 0.95, shift=-0.15).drop("gold").with_columns(language), exits=1)
    more = ("--thresholds", folder / "thresholds.json", "--json")
    out = command("gate", folder / "run.parquet", "--watch", folder / "log.parquet", *more, exits=1)
    (used,) = (check for check in json.loads(out)["checks"] if "share of used answers" in check["about"])
    assert "down 100 times" in used["found"]


def test_the_evidence_of_many_errors_is_a_number(folder: Path) -> None:
    answers(2, 4_000, 0.0).write_parquet(folder / "log.parquet")
    more = ("--thresholds", folder / "thresholds.json", "--json")
    out = command("gate", folder / "run.parquet", "--watch", folder / "log.parquet", *more, exits=1)
    (check,) = json.loads(out, parse_constant=pytest.fail)["checks"]
    assert check["e_value"] > 1e300


@pytest.mark.parametrize("has_thresholds", [True, False])
def test_without_labels_the_same_inputs_asked_again_are_compared(folder: Path, has_thresholds: bool) -> None:
    same = answers(0, 200, 0.95).drop("gold")
    told = watched(folder, same, exits=0, thresholds=has_thresholds)
    assert "0 of 200 answers are another option" in told
    shifted = answers(0, 200, 0.95, shift=-0.15).drop("gold")
    told = watched(folder, shifted, exits=1, thresholds=has_thresholds)
    assert "ALARM: inputs asked again, largest probability: -0.1500 on average, up 0 times, down 200 times" in told
    watched(folder, shifted.head(60), exits=1, thresholds=has_thresholds)  # a log under way
    # Answers to two questions are paired by their order in each, also while the log has fewer of both.
    named = pl.when(pl.int_range(pl.len()) % 3 == 0).then(pl.lit("queue")).otherwise(pl.lit("tone")).alias("dataset")
    of_run = answers(0, 200, 0.95).with_columns(named, query_id=pl.int_range(pl.len()) + 1_000)
    of_run.write_parquet(folder / "run.parquet")
    told = watched(folder, shifted.with_columns(named).head(60), exits=1, thresholds=has_thresholds)
    assert "up 0 times, down 60 times; 0 of 60 answers are another option" in told


def test_noise_without_a_direction_is_no_alarm(folder: Path) -> None:
    rng = np.random.default_rng(7)
    base = answers(0, 200, 0.95).drop("gold")
    noisy = [
        [first + step, *others[:-1], others[-1] - step]
        for (first, *others), step in zip(base["label_probs"].to_list(), rng.choice([-0.01, 0.01], 200), strict=True)
    ]
    watched(folder, base.with_columns(label_probs=pl.Series(noisy)), exits=0, thresholds=False)


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (answers(0, 201, 0.9).drop("gold"), "does not hold the inputs"),
        (answers(0, 9, 0.9).drop("gold").with_columns(label_names=pl.lit(["a", "b", "c"])), "has other options"),
    ],
)
def test_another_log_is_a_mistake_with_exit_code_2(folder: Path, log: pl.DataFrame, says: str) -> None:
    assert says in watched(folder, log, exits=2, thresholds=False)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"label_probs": [0.5, 0.5, float("nan")]}, "row 1 (from 0), column 'label_probs': found [0.5, 0.5, nan]"),
        ({"label_probs": ["x", 0.5, 0.5]}, "found ['x', 0.5, 0.5]"),
        ({"label_probs": [0.5, 0.5]}, "allowed is 3 numbers"),
        ({"label_probs": [0.5, 0.1, 0.1]}, "with a sum of 1"),
        ({"label_names": "billing"}, "column 'label_names': found 'billing'"),
    ],
)
def test_a_row_of_a_log_without_labels_is_checked(folder: Path, changed: dict[str, object], says: str) -> None:
    row = {"label_names": NAMES, "label_probs": [0.5, 0.3, 0.2]}
    (folder / "log.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(row | changed)}\n")
    assert says in command("gate", folder / "run.parquet", "--watch", folder / "log.jsonl", exits=2)


def test_a_log_of_another_question_is_a_mistake(folder: Path) -> None:
    write_thresholds(folder, thresholds=(Threshold(question="queue", target=0.9, threshold=0.8),))
    told = watched(folder, answers(0, 9, 0.9), exits=2)
    assert "The thresholds are for queue, and the answers are to log" in told
    more = ("--use", folder / "thresholds.json", "--apply", folder / "log.parquet", folder / "used.csv")
    assert "The thresholds are for queue" in command("threshold", folder / "run.parquet", *more, exits=2)


def test_a_log_of_a_service_needs_no_true_options(folder: Path) -> None:
    base = answers(0, 20, 0.95)
    rows = [
        {
            "request": {"state": f"T{n}", "questions": {"log": {}}},
            "response": {"answers": {"log": {"probabilities": dict(zip(NAMES, probs, strict=True))}}},
        }
        for n, probs in enumerate(base["label_probs"].to_list())
    ]
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    told = command("gate", folder / "run.parquet", "--watch", folder / "log.jsonl")
    assert "0 of 20 answers are another option" in told


def test_answers_are_paired_by_what_was_asked_where_rows_are_missing_on_either_side(folder: Path) -> None:
    chances = np.random.default_rng(5).random(60).round(4).tolist()
    rows = [
        {"request": {"state": f"T{n}", "questions": {"q": {}}}, "response": {"answers": {"q": {"noul": chance}}}}
        for n, chance in enumerate(chances)
    ]
    labelled = [row | {"gold": None if n % 6 == 0 else "yes"} for n, row in enumerate(rows)]
    (folder / "run.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in labelled))
    command("import", folder / "run.jsonl", "--out", folder / "run")  # without the 10 rows of no true option
    rows[3]["response"] = {"answers": {}}
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    told = command("gate", folder / "run", "--watch", folder / "log.jsonl")
    assert "up 0 times, down 0 times; 0 of 49 answers are another option" in told
    assert f"log.jsonl: 10 answers are left out, as {folder / 'run'} has none to the same requests." in told


def test_changes_of_an_option_are_those_of_the_rows_that_have_it(folder: Path) -> None:
    # Four inputs have the options a, b and e, six c, d and f; asked again, a and d have become more probable.
    for name, step in (("run", 0.0), ("log", 0.1)):
        options = [{"a": 0.3 + step, "b": 0.5 - step, "e": 0.2}] * 4 + [
            {"c": 0.5 - step, "d": 0.3 + step, "f": 0.2}
        ] * 6
        answered = [{"answers": {"q": {"probabilities": each}}} for each in options]
        asked = [{"state": f"T{n}", "questions": {"q": {}}} for n in range(10)]
        rows = [{"request": one, "response": other} for one, other in zip(asked, answered, strict=True)]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "thresholds.json").unlink()
    told = json.loads(command("gate", folder / "run.jsonl", "--watch", folder / "log.jsonl", "--json"))
    found = {check["about"].rpartition(" ")[2]: check["found"] for check in told["checks"]}
    assert found.keys() == {"probability", "a", "b", "c", "d"}  # of the answer; the last option follows from the others
    assert "+0.1000 on average, up 4 times, down 0 times" in found["a"]
    assert "-0.1000 on average, up 0 times, down 4 times" in found["b"]
    assert "-0.1000 on average, up 0 times, down 6 times" in found["c"]


def test_what_is_missing_is_a_mistake(folder: Path) -> None:
    run = folder / "run.parquet"
    assert "--watch LOG" in command("gate", run, exits=3)
    assert "leave out --against" in command("gate", run, "--watch", run, "--against", folder, exits=2)
    assert "holds no thresholds" in command("gate", run, "--watch", run, "--thresholds", folder / "none", exits=2)
