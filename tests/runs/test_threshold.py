"""`evaluator threshold` on imported answers, tables and a run of a user's table."""

import json
import math

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom, binomtest, t

import evaluator
from evaluator.errors import ConfigError, StoreError
from evaluator.files.json_files import write_record
from evaluator.metrics.thresholds import Threshold, ThresholdFile
from evaluator.runs.threshold import read_thresholds
from tests.command_line import command

pytestmark = pytest.mark.usefixtures("without_pages")

OPTIONS = {"urgent": ["no", "yes"], "queue": ["billing", "technical", "spam"]}
N = 500


def table(seed: int, n: int = N, *, sharp: float = 0.15) -> pl.DataFrame:
    """Answers to two questions of a calibrated model, rounded to two decimals; two rows a user."""
    rng, rows = np.random.default_rng(seed), []
    for question, names in OPTIONS.items():
        probs = np.round(rng.dirichlet([sharp] * len(names), n), 2)
        probs[:, -1] = 1 - probs[:, :-1].sum(axis=1)
        gold = (rng.random((n, 1)) > probs.cumsum(axis=1)).sum(axis=1).clip(0, len(names) - 1)
        rows += [
            {"dataset": question, "query_id": row, "gold": names[gold[row]], "label_probs": probs[row].clip(0).tolist(),
             "label_names": names, "user": row // 2, "language": "de" if row % 3 else "en"}
            for row in range(n)
        ]  # fmt: skip
    return pl.DataFrame(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run `run` of the answers of a.parquet, and b.parquet, a second table."""
    folder = tmp_path_factory.mktemp("thresholds")
    table(0).write_parquet(folder / "a.parquet")
    table(1).write_parquet(folder / "b.parquet")
    command("import", folder / "a.parquet", "--out", folder / "run", "--model", "acme/decider")
    return folder


def answered(*words: object, exits: int = 0) -> dict:
    out = command("threshold", *words, "--json", exits=exits)
    return json.loads(out[out.index("{") :])


def test_a_threshold_a_question_is_written_with_its_promise_and_intervals(folder):
    given = answered(folder / "run", "--out", folder / "thresholds.json")
    rows = table(0).with_columns(p=pl.col("label_probs").list.max())
    for each in given["file"]["thresholds"]:
        own = rows.filter(pl.col("dataset") == each["question"], pl.col("p") >= each["threshold"] - 1e-9)
        names = own["label_names"].list.get(own["label_probs"].list.arg_max())
        right = (names == own["gold"]).sum()
        assert each["n_used"] == own.height
        assert each["share"] == pytest.approx(own.height / N)
        assert each["share_low"] < each["share"] < each["share_high"]
        assert each["value"] == pytest.approx(right / own.height)
        exact = binomtest(right, own.height).proportion_ci()
        assert each["value_low"] <= exact.low + 1e-12  # the lowest of all thresholds that were tested
        assert each["value_high"] == pytest.approx(exact.high)
        assert each["alpha"] == pytest.approx(0.025)  # two promises hold together with 95%
        assert binom.cdf(own.height - right, own.height, 0.1) <= 0.025
    assert json.loads((folder / "thresholds.json").read_text())["model"] == "acme/decider"


def test_thresholds_of_another_version_are_refused(tmp_path):
    file = ThresholdFile(
        model="m", method="vanilla", assurance=0.95, yes=None, group_column=None, thresholds=(), version=2
    )
    write_record(tmp_path / "thresholds.json", file)
    with pytest.raises(StoreError, match=r"thresholds\.json holds no thresholds of this version"):
        read_thresholds(tmp_path / "thresholds.json")


def test_the_lines_say_what_is_used_and_what_is_promised(folder):
    shown = command("threshold", folder / "run", "--at", "0.6,0.9")
    assert "queue: use answers from" in shown
    assert "at least 90.0% of them are right, with 97.5% assurance" in shown
    assert "queue: at 0.6," in shown
    assert "over- or underconfidence is not shown" in shown
    assert "miscalibration is not shown by" in shown


def test_thresholds_are_checked_on_a_second_table_and_applied_to_it(folder, tmp_path):
    command("threshold", folder / "run", "--out", tmp_path / "t.json")
    given = answered(
        folder / "run", "--check", folder / "b.parquet", "--apply", folder / "b.parquet", tmp_path / "b.csv"
    )
    assert [check["verdict"] in ("promise holds", "not decided") for check in given["checks"]] == [True, True]
    written = pl.read_csv(tmp_path / "b.csv")
    for check in given["checks"]:
        own = written.filter(dataset=check["promised"]["question"])
        assert own["is_used"].sum() == check["found"]["n_used"]
    used = evaluator.apply_thresholds(table(1).drop("gold"), tmp_path / "t.json")
    table(1).drop("gold").write_ndjson(tmp_path / "new.jsonl")
    new = (tmp_path / "new.jsonl", tmp_path / "new.csv")
    command("threshold", folder / "run", "--use", tmp_path / "t.json", "--apply", *new)
    assert pl.read_csv(tmp_path / "new.csv")["is_used"].sum() == written["is_used"].sum()
    assert used["is_used"].sum() == written["is_used"].sum()
    assert "threshold" in used.columns


def test_earlier_thresholds_are_checked_with_the_option_yes_and_the_groups_that_they_were_chosen_with(folder, tmp_path):
    chosen = ("--measure", "precision", "--target", "0.85", "--yes", "no", "--group-column", "user")
    answered(folder / "a.parquet", *chosen, "--out", tmp_path / "thresholds.json")
    used = ("--use", tmp_path / "thresholds.json", "--check", folder / "b.parquet")
    (check,) = answered(folder / "a.parquet", *used)["checks"]
    rows = table(1).filter(dataset="urgent", gold="no")
    n_right = rows.filter(pl.col("label_probs").list.get(0) >= check["promised"]["threshold"] - 1e-9).height
    assert check["found"]["value"] == pytest.approx(n_right / check["found"]["n_used"])
    assert check["found"]["n_groups"] == N // 2
    assert check == answered(folder / "a.parquet", *used, "--yes", "no", "--group-column", "user")["checks"][0]


def test_a_broken_promise_is_exit_code_1(folder, tmp_path):
    command("threshold", folder / "run", "--out", tmp_path / "t.json")
    wrong = table(2).with_columns(gold=pl.col("label_names").list.get(0))
    wrong.write_parquet(tmp_path / "wrong.parquet")
    shown = command("threshold", folder / "run", "--check", tmp_path / "wrong.parquet", exits=1)
    assert "checked, promise broken" in shown
    used = answered(tmp_path / "wrong.parquet", "--use", tmp_path / "t.json", exits=1)
    assert {check["verdict"] for check in used["checks"]} == {"promise broken"}


@pytest.mark.parametrize(("measure", "target"), [("precision", 0.9), ("recall", 0.8), ("false_positive_rate", 0.2)])
def test_the_answer_yes_has_thresholds_of_its_own(folder, measure, target):
    [each] = answered(folder / "run", "--measure", measure, "--target", target)["file"]["thresholds"]
    rows = table(0).filter(dataset="urgent")
    yes, is_yes = rows["label_probs"].list.get(1).to_numpy(), (rows["gold"] == "yes").to_numpy()
    used = yes >= each["threshold"] - 1e-9
    within = {"precision": used, "recall": is_yes, "false_positive_rate": ~is_yes}[measure]
    hits = is_yes if measure == "precision" else used
    assert each["question"] == "urgent"
    assert each["value"] == pytest.approx(hits[within].mean())
    errors = hits[within].sum() if measure == "false_positive_rate" else (~hits[within]).sum()
    limit = target if measure == "false_positive_rate" else 1 - target
    assert binom.cdf(errors, within.sum(), limit) <= 0.05


def test_a_recall_that_only_the_lowest_answer_keeps_has_it_as_threshold(tmp_path):
    # 60 answers yes: that none is missed shows a recall of 95% (0.95^60 < 5%); that one of them is missed does not.
    yes = [n / 100 for n in range(40, 100)]
    rows = [{"query_id": n, "gold": "yes", "label_probs": [1 - p, p], "label_names": ["no", "yes"]}
            for n, p in enumerate(yes)]  # fmt: skip
    pl.DataFrame(rows).with_columns(dataset=pl.lit("urgent")).write_parquet(tmp_path / "answers.parquet")
    [each] = answered(tmp_path / "answers.parquet", "--measure", "recall", "--target", 0.95)["file"]["thresholds"]
    assert each["threshold"] == pytest.approx(0.4)
    assert each["value"] == 1


def test_one_threshold_is_for_all_questions_and_each_class_can_have_one(folder):
    [one] = answered(folder / "run", "--per", "all")["file"]["thresholds"]
    assert (one["question"], one["n"], one["n_groups"], one["alpha"]) == (None, 2 * N, N, pytest.approx(0.05))
    classes = answered(folder / "run", "--per", "class", "--target", 0.8)["file"]["thresholds"]
    assert [(each["question"], each["option"]) for each in classes] == [
        ("queue", "billing"), ("queue", "spam"), ("queue", "technical"), ("urgent", "no"), ("urgent", "yes"),
    ]  # fmt: skip
    assert sum(each["n"] for each in classes) == 2 * N


@pytest.mark.usefixtures("pages")
def test_the_page_has_the_numbers_of_the_tables_and_python_those_of_the_command(folder):
    command("report", folder / "run")
    page = (folder / "run" / "report.html").read_text()
    assert "Coverage and thresholds" in page
    coverage = pl.read_parquet(folder / "run" / "tables" / "coverage.parquet")
    named = pl.read_parquet(folder / "run" / "tables" / "thresholds.parquet").filter(pl.col("threshold").is_not_null())
    for value in (*coverage["aurc"], *coverage["temperature"], *named["share"]):
        assert f"{value:.3f}" in page
    for value in named["threshold"]:
        assert f'data-value="{value}">{value:.4g}</td>' in page
    report = evaluator.threshold_report(folder / "run", target=0.9, per="all", at=(0.8,))
    given = answered(folder / "run", "--per", "all", "--at", "0.8")
    assert report.file.thresholds[0].threshold == given["file"]["thresholds"][0]["threshold"]
    assert report.at[0].share == given["at"][0]["share"]
    curve = pl.read_parquet(folder / "run" / "tables" / "risk_coverage.parquet").filter(dataset="queue").sort("share")
    assert curve["share"].max() == 1
    assert curve["accuracy"][-1] == pytest.approx(coverage.filter(dataset="queue")["accuracy"].item())


def test_groups_and_slices_are_columns_of_the_table_that_was_imported(folder):
    given = answered(folder / "run", "--group-column", "user", "--slice-column", "language", "--target", 0.8)
    slices = {(row["question"], row["slice"]): row for row in given["coverage"]}
    assert set(slices) == {(question, language) for question in OPTIONS for language in ("de", "en")}
    rows = table(0).filter(dataset="queue", language="en")
    assert slices["queue", "en"]["n"] == rows.height
    assert slices["queue", "en"]["n_groups"] == rows["user"].n_unique()
    assert all(row["calibration_p_holm"] >= row["calibration_p"] for row in given["coverage"])
    assert all(each["alpha"] == pytest.approx(0.05 / 4) for each in given["file"]["thresholds"])


def test_overconfidence_is_corrected_for_the_number_of_questions_and_slices(tmp_path):
    rows = table(21, 200, sharp=0.5).drop("user")
    rows.write_parquet(tmp_path / "a.parquet")
    words = ("threshold", tmp_path / "a.parquet", "--slice-column", "language")
    coverage = answered(*words[1:])["coverage"]
    # Student's test of log T, whose interval has the half-width log(high / T); then Holm's correction by hand.
    p_values = []
    for row in coverage:
        freedom, value = row["n_groups"] - 1, row["temperature"]
        error = math.log(row["temperature_high"] / value) / t.ppf(0.975, freedom)
        p_values.append(2 * t.sf(abs(math.log(value)) / error, freedom))
    expected, highest = dict[int, float](), 0.0
    for rank, place in enumerate(np.argsort(p_values)):
        highest = expected[int(place)] = max(highest, min(1.0, p_values[place] * (len(p_values) - rank)))
    assert [row["temperature_p_holm"] for row in coverage] == pytest.approx([expected[n] for n in range(4)])
    lines = [line for line in command(*words).splitlines() if line.startswith("  temperature")]
    told = {(row["question"], row["slice"]): line for row, line in zip(coverage, lines, strict=True)}
    assert "1.453 (1.057–1.996): over- or underconfidence is not shown (p 0.065)" in told["urgent", "de"]
    assert "0.594 (0.398–0.886): underconfident (p 0.046)" in told["urgent", "en"]


def test_rows_without_a_group_or_slice_are_alone_and_together(tmp_path):
    rows = table(0, 60).filter(dataset="queue").with_columns(
        user=pl.when(pl.col("query_id") < 20).then("user"), language=pl.when(pl.col("query_id") < 30).then("language")
    )  # fmt: skip
    rows.write_parquet(tmp_path / "some.parquet")
    given = answered(tmp_path / "some.parquet", "--group-column", "user", "--slice-column", "language")
    sizes = {row["slice"]: (row["n"], row["n_groups"]) for row in given["coverage"]}
    # Of rows 0 to 19 two in three are "de", with 10 users; of rows 20 to 29 seven, each alone.
    assert sizes == {"de": (20, 10 + 7), "en": (10, 7 + 3), "missing": (30, 30)}
    assert [each["slice"] for each in given["file"]["thresholds"]] == ["de", "en", "missing"]


@pytest.mark.parametrize(
    ("questions", "refused", "said"),
    [(["queue"], 2, "has 6 rows and 5 answers"), (["queue", "urgent"], None, "logs of several questions have no")],
)
def test_columns_of_a_log_whose_rows_are_not_its_answers_are_refused_with_the_reason(
    tmp_path, questions, refused, said
):
    kinds = {name: {"type": "choice", "criteria": {"a": None, "b": None}} for name in questions}
    answer = {"type": "choice", "probabilities": {"a": 0.9, "b": 0.1}}
    rows = [
        {"id": n, "user": n // 2, "gold": dict.fromkeys(questions, "a"), "request": {"state": "", "questions": kinds},
         "response": {"answers": dict.fromkeys(questions, {"type": "refusal"} if n == refused else answer)}}
        for n in range(6)
    ]  # fmt: skip
    log = tmp_path / "log.jsonl"
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    shown = command("threshold", log, "--group-column", "user", exits=2)
    assert said in " ".join(shown.split())
    assert "when it was read" not in shown


@pytest.mark.parametrize("first", [None, 7])
def test_cells_of_a_group_column_count_however_late_they_come_and_of_whichever_kind(tmp_path, first):
    rows = table(0, 300).filter(dataset="urgent").to_dicts()
    for number, row in enumerate(rows):
        row["user"] = first if number < 150 else ["late", 7.5][number % 2]
    (tmp_path / "late.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (coverage,) = answered(tmp_path / "late.jsonl", "--group-column", "user")["coverage"]
    assert coverage["n_groups"] == (3 if first else 150 + 2)  # without a cell, a row is alone


@pytest.mark.parametrize("cell", [["a"], {"a": 1}])
def test_a_group_that_is_a_list_is_refused_with_its_row(tmp_path, cell):
    rows = [row | {"user": cell if number == 7 else "a"} for number, row in enumerate(table(0, 300).to_dicts())]
    (tmp_path / "nested.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(ConfigError, match=r"row 7 \(from 0\): a group or slice is a text or a number, got "):
        evaluator.threshold_report(tmp_path / "nested.jsonl", group_column="user")


def test_no_command_replaces_the_table_that_it_reads(tmp_path):
    answers = tmp_path / "answers.jsonl"
    table(3, 25, sharp=1.0).write_ndjson(answers)
    before = answers.read_bytes()
    for words in (
        ["--apply", answers, answers],
        ["--out", answers],
        ["--errors", tmp_path / "x" / ".." / answers.name],
    ):
        assert "would be replaced" in command("threshold", answers, *words, exits=2)
    twice = tmp_path / "new"
    assert "would be replaced" in command("threshold", answers, "--out", twice, "--errors", twice, exits=2)
    assert "is a directory" in command("threshold", answers, "--apply", answers, ".", exits=2)
    assert answers.read_bytes() == before


def test_few_answers_name_no_threshold_but_the_number_that_would_do(tmp_path):
    table(3, 25, sharp=1.0).write_parquet(tmp_path / "few.parquet")
    shown = command("threshold", tmp_path / "few.parquet", "--target", "0.99")
    assert "no threshold can be promised from 25 rows" in shown
    assert "rows would do" in shown
    rare = [{"gold": n % 8 == 0, "label_probs": [0.5, 0.5], "label_names": ["no", "yes"]} for n in range(16)]
    (tmp_path / "rare.jsonl").write_text("".join(f"{json.dumps(row | {'gold': int(row['gold'])})}\n" for row in rare))
    shown = command("threshold", tmp_path / "rare.jsonl", "--measure", "recall", "--target", "0.5")
    assert "from 2 rows whose true answer is yes" in shown


def test_errors_that_would_be_used_are_listed_the_most_certain_first(folder, tmp_path):
    command("threshold", folder / "run", "--at", "0.8", "--errors", tmp_path / "errors.csv")
    errors = pl.read_csv(tmp_path / "errors.csv")
    assert errors["probability"].is_sorted(descending=True)
    assert errors["probability"].min() >= 0.8
    rows = table(0).sort("dataset", maintain_order=True)[errors["row"].to_numpy()]
    assert not (rows["gold"] == errors["answer"]).any()


@pytest.mark.parametrize("words", [("--target", 0.85), ("--measure", "precision", "--target", 0.8)])
def test_errors_are_those_above_the_threshold_of_their_own_question(folder, tmp_path, words):
    chosen = answered(folder / "run", *words, "--errors", tmp_path / "errors.csv")["file"]["thresholds"]
    limits = {each["question"]: each["threshold"] - 1e-9 for each in chosen}
    expected = set()
    for row, each in enumerate(table(0).sort("dataset", maintain_order=True).iter_rows(named=True)):
        probs, names = each["label_probs"], each["label_names"]
        called = "yes" if "precision" in words else names[int(np.argmax(probs))]
        p = probs[names.index("yes")] if "precision" in words and "yes" in names else max(probs)
        if p >= limits.get(each["dataset"], 2) and each["gold"] != called:
            expected.add(row)
    errors = pl.read_csv(tmp_path / "errors.csv")
    assert len(set(limits.values())) == len(limits)
    assert set(errors["row"]) == expected
    assert errors["probability"].is_sorted(descending=True)


def test_thresholds_of_slices_are_read_with_the_column_that_they_were_chosen_with(folder, tmp_path):
    chosen = ("--slice-column", "language", "--target", 0.8, "--out", tmp_path / "t.json")
    answered(folder / "a.parquet", *chosen)
    later = ("--use", tmp_path / "t.json", "--check", folder / "b.parquet", "--apply", folder / "b.parquet")
    checks = answered(folder / "a.parquet", *later, tmp_path / "used.csv")["checks"]
    assert checks == answered(folder / "a.parquet", *later, tmp_path / "x.csv", "--slice-column", "language")["checks"]
    n_used = [check["found"]["n_used"] for check in checks]
    assert len(n_used) == 4
    assert min(n_used) > 0
    assert pl.read_csv(tmp_path / "used.csv")["is_used"].sum() == sum(n_used)
    with pytest.raises(ConfigError, match="Give the answers a column `slice`"):
        evaluator.apply_thresholds(table(1).drop("gold"), tmp_path / "t.json")


def test_a_threshold_without_rows_in_the_second_table_has_no_numbers_of_the_first(folder, tmp_path):
    table(1).filter(dataset="queue").write_parquet(tmp_path / "queue.parquet")
    checks = answered(folder / "run", "--check", tmp_path / "queue.parquet")["checks"]
    (none,) = (check["found"] for check in checks if check["verdict"] == "no rows")
    assert (none["n"], none["n_groups"], none["n_used"], none["share"], none["value"]) == (0, 0, 0, None, None)


def test_labels_alone_have_no_threshold(tmp_path):
    answers = table(0, 40).filter(dataset="queue")
    pred = pl.col("label_names").list.get(pl.col("label_probs").list.arg_max())
    answers.select("gold", "label_names", pred=pred).write_parquet(tmp_path / "labels.parquet")
    command("import", tmp_path / "labels.parquet", "--out", tmp_path / "run")
    for source in ("labels.parquet", "run"):
        assert "has answers without probabilities" in command("threshold", tmp_path / source, exits=2)


def test_the_rows_that_are_needed_are_of_the_kind_that_the_measure_is_about(tmp_path):
    def needed(yes: int, no: int, *words: object, size: int = 1) -> tuple[int, int | None]:
        rows = [
            {"gold": gold, "label_probs": [0.5, 0.5], "label_names": ["no", "yes"], "user": row // size}
            for row, gold in enumerate(["yes"] * yes + ["no"] * no)
        ]
        pl.DataFrame(rows).write_parquet(tmp_path / "answers.parquet")
        [each] = answered(tmp_path / "answers.parquet", *words)["file"]["thresholds"]
        assert each["threshold"] is None
        return each["n"], each["rows_needed"]

    recall, positives = ("--measure", "recall", "--target", 0.95), ("--measure", "false_positive_rate", "--target", 0.1)
    # 0.95^58 = .051 and 0.95^59 = .049: 59 true yes. Users of five rows that are found alike count once each.
    assert needed(30, 270, *recall) == (30, 59)
    assert needed(100, 0, *recall, "--group-column", "user", size=5) == (100, math.ceil(5 * math.log(0.05, 0.95)))
    assert needed(0, 20, *recall) == (0, 59)
    assert needed(40, 200, *positives) == (200, None)  # all have one probability: every no is called yes
    assert "no number of such rows would do" in command("threshold", tmp_path / "answers.parquet", *positives)


@pytest.mark.usefixtures("pages")
def test_a_threshold_just_below_1_is_not_shown_as_1(tmp_path):
    rows = [
        {"gold": "a" if row % 60 else "b", "label_probs": [0.99996, 0.00004], "label_names": ["a", "b"]}
        for row in range(300)
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "sure.parquet")
    shown = command("threshold", tmp_path / "sure.parquet")
    assert "use answers from 0.99996: " in shown
    command("import", tmp_path / "sure.parquet", "--out", tmp_path / "run")
    assert ">0.99996</td>" in (tmp_path / "run" / "report.html").read_text()


def test_routing_is_judged_on_the_same_rows_alone(folder, tmp_path):
    small = table(0).filter(dataset="urgent")
    always_right = pl.concat_list((pl.col("gold") == name).cast(pl.Float64) for name in ("no", "yes"))
    small.with_columns(label_probs=always_right).write_parquet(tmp_path / "large.parquet")
    small.write_parquet(tmp_path / "small.parquet")
    table(3, 90).filter(dataset="urgent").write_parquet(tmp_path / "later.parquet")
    both = (tmp_path / "small.parquet", tmp_path / "large.parquet")
    given = answered(*both, "--costs", "1,20,100", "--check", tmp_path / "later.parquet")
    assert [check["found"]["n"] for check in given["checks"]] == [90]
    routing = given["routing"]
    assert routing["cost_large"] == pytest.approx(20)
    assert routing["verdict"] in ("route", "always small", "not shown")
    assert "The two runs are not about the same rows" in command(
        "threshold", tmp_path / "small.parquet", folder / "b.parquet", "--costs", "1,20,100", exits=2
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "1.5"], "--target must be above 0 and below 1, got 1.5"),
        (["--measure", "recall", "--per", "class"], "is about the answer yes alone"),
        (["--measure", "recall", "--yes", "perhaps"], "Name the option that means yes with --yes"),
        (["--method", "vanila"], "vanilla"),
        (["--part", "other"], "has no part"),
        (["--slice-column", "country"], "country"),
        (["--costs", "1,2"], "--costs takes three numbers"),
        (["--costs", "1,2,nan"], "--costs takes three numbers"),
        (["--at", "nan"], "--at takes probabilities, 0 to 1, got nan"),
        (["--at", "2"], "--at takes probabilities, 0 to 1, got 2.0"),
        (["--costs", "1,2,3"], "--costs takes two runs"),
        (["--use", "missing.json"], "holds no thresholds"),
    ],
)
def test_what_does_not_fit_is_one_sentence(folder, words, message):
    assert message in command("threshold", folder / "run", *words, exits=2)


@pytest.mark.parametrize("text", ["a,b\n1,2\n", 'label_probs,gold\n"[0.5, 0.5]",a\n', 'pred,label_names\nx,"[1]"\n'])
def test_a_table_that_is_read_otherwise_names_the_command_whose_options_can_do_it(tmp_path, text):
    (tmp_path / "table.csv").write_text(text)
    said = command("threshold", tmp_path / "table.csv", exits=2)
    assert "--labels of `evaluator import`" in said or "--numbers of `evaluator import`" in said


def test_columns_of_a_users_table_follow_its_queries(tmp_path):
    rows = [
        {"text": f"number {row}", "label": "even" if row % 2 == 0 else "odd", "half": str(row < 60), "row": row}
        for row in range(120)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "numbers.csv")
    run = tmp_path / "run"
    command(
        "run", "classify", "--data", tmp_path / "numbers.csv", "--model", "random", "--engine", "fake", "--out", run
    )
    given = answered(run, "--slice-column", "half", "--target", 0.3)
    answers = pl.read_parquet(run / "tables" / "predictions.parquet").filter(definition="paper")
    texts = pl.read_parquet(run / "tables" / "queries.parquet").unique("query_id").select("query_id", "query")
    numbers = answers.join(texts, on="query_id")["query"].str.extract(r"number (\d+)").cast(pl.Int64)
    expected = {"true": (numbers < 60).sum(), "false": (numbers >= 60).sum()}
    assert {row["slice"].lower(): row["n"] for row in given["coverage"]} == expected


def test_columns_are_not_joined_by_a_column_dataset_that_is_not_the_runs(tmp_path):
    tasks = table(0, 20).rename({"dataset": "task"})
    other = pl.Series("dataset", ["x", "y"] * 20)  # users of other rows would stand beside the answers
    tasks.with_columns(other).write_parquet(tmp_path / "tasks.parquet")
    command("import", tmp_path / "tasks.parquet", "--dataset-column", "task", "--out", tmp_path / "run")
    shown = command("threshold", tmp_path / "run", "--group-column", "user", exits=2)
    assert "the column dataset names other datasets than the answers" in shown


def test_answers_in_a_file_have_the_probability_that_the_threshold_was_compared_with(tmp_path):
    rows = [{"dataset": "q", "gold": "a", "label_probs": [0.75, 0.25], "label_names": ["a", "b"]}] * 40
    pl.DataFrame(rows).write_ndjson(tmp_path / "answers.jsonl")  # exp(log(0.75)) is below 0.75
    command("threshold", tmp_path / "answers.jsonl", "--apply", tmp_path / "answers.jsonl", tmp_path / "used.csv")
    assert pl.read_csv(tmp_path / "used.csv").select("probability", "is_used").unique().rows() == [(0.75, True)]


def test_answers_in_a_file_have_the_probability_of_yes_where_that_is_compared(tmp_path):
    shares = [0.95, 0.7, 0.04]
    rows = [{"label_names": ["no", "yes"], "label_probs": [1 - share, share], "gold": 1} for share in shares]
    pl.DataFrame(rows).write_parquet(tmp_path / "new.parquet")
    promise = Threshold(measure="precision", target=0.9, threshold=0.6)
    fields = {"model": "m", "method": "vanilla", "assurance": 0.95, "yes": None, "group_column": None}
    write_record(tmp_path / "th.json", ThresholdFile(**fields, thresholds=(promise,)))
    words = ("--use", tmp_path / "th.json", "--apply", tmp_path / "new.parquet", tmp_path / "used.csv")
    command("threshold", tmp_path / "new.parquet", *words)
    used = pl.read_csv(tmp_path / "used.csv")
    assert used.select("answer", "probability", "is_used").rows() == [
        ("yes", 0.95, True),
        ("yes", 0.7, True),
        ("no", 0.04, False),
    ]
