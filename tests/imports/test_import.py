"""`evaluator import`: numbers of scikit-learn and SciPy for answers from elsewhere, and what is refused."""

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.special import log_softmax, softmax
from sklearn.metrics import accuracy_score, f1_score, log_loss

from evaluator.config import ImportColumns
from evaluator.errors import DatasetError
from evaluator.imports.answers import reported_probabilities
from evaluator.imports.files import read_files
from evaluator.runs.export import export
from evaluator.runs.import_answers import _inputs
from tests.command_line import command

LABELS = ["no", "yes", "maybe"]
pytestmark = pytest.mark.usefixtures("without_pages")

N = 30


@pytest.fixture(scope="module")
def scored() -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihoods [n, labels], below those of a distribution over the labels alone, and true labels."""
    rng = np.random.default_rng(3)
    gold = rng.integers(0, 3, N)
    return log_softmax(rng.normal(size=(N, 3)) + 1.5 * np.eye(3)[gold], axis=1) - 0.7, gold


def metrics(out, dataset: str) -> dict[str, float]:
    rows = pl.read_parquet(out / "tables" / "metrics.parquet").filter(dataset=dataset)
    assert set(rows["definition"]) == {"paper"}
    return dict(rows.select("metric", "value").iter_rows())


@pytest.fixture(scope="module")
def imported(scored, tmp_path_factory):
    """A run of log-likelihoods in Parquet, of two queries in three."""
    numbers, gold = scored
    folder = tmp_path_factory.mktemp("imported")
    columns = {"gold": gold, "label_log_likelihoods": numbers.tolist(), "label_names": [LABELS] * N}
    pl.DataFrame(columns | {"query_id": np.arange(N) // 2}).write_parquet(folder / "mine.parquet")
    command("import", folder / "mine.parquet", "--out", folder / "run", "--model", "acme/other")
    return folder / "run"


def test_log_likelihoods_get_every_metric_as_scikit_learn_has_it(imported, scored):
    numbers, gold = scored
    probs, pred = softmax(numbers, axis=1), numbers.argmax(axis=1)
    measured = metrics(imported, "mine")
    assert measured["accuracy"] == pytest.approx(accuracy_score(gold, pred))
    assert measured["macro_f1"] == pytest.approx(f1_score(gold, pred, average="macro"))
    assert measured["log_loss"] == pytest.approx(log_loss(gold, probs))
    assert measured["true_label_probability"] == pytest.approx(probs[np.arange(N), gold].mean())
    assert measured["label_mass_median"] == pytest.approx(math.exp(-0.7))
    row = pl.read_parquet(imported / "tables" / "metrics.parquet").filter(dataset="mine", metric="accuracy")
    assert row["n_queries"].item() == N // 2
    assert row["n_requests"].item() == N
    assert row["chance"].item() == pytest.approx(1 / 3)
    assert row.select("ci_low", "ci_high", "majority", "max_random").null_count().sum_horizontal().item() == 0


@pytest.mark.usefixtures("pages")
def test_an_imported_run_is_a_run(imported, tmp_path):
    assert "every file is as it was written" in command("verify", imported)
    command("measure", imported)
    command("report", imported)
    page = (imported / "report.html").read_text()
    assert "acme/other" in page
    assert "imported from mine.parquet" in page
    samples = [path for path in export(imported, "lm-eval", tmp_path) if path.suffix == ".jsonl"]
    command("import", *samples, "--out", tmp_path / "again")
    again = metrics(tmp_path / "again", "imported_imported_mine")  # in which every request is a query
    for name in ("accuracy", "macro_f1", "brier_score", "log_loss", "label_mass_median"):
        assert again[name] == pytest.approx(metrics(imported, "mine")[name], rel=1e-12)


def test_two_models_on_the_same_rows_are_compared(imported, scored, tmp_path):
    numbers, gold = scored
    columns = {"gold": gold, "label_log_likelihoods": (numbers * 0.5).tolist(), "label_names": [LABELS] * N}
    pl.DataFrame(columns | {"query_id": np.arange(N) // 2}).write_parquet(tmp_path / "mine.parquet")
    command("import", tmp_path / "mine.parquet", "--out", tmp_path / "run", "--model", "acme/second")
    command("compare", imported, tmp_path / "run", "--out", tmp_path / "both")
    differences = pl.read_parquet(tmp_path / "both" / "tables" / "differences.parquet")
    assert differences.filter(metric="accuracy")["difference"].to_list() == [0.0, 0.0]  # one dataset, and its mean


def test_probabilities_in_columns_of_a_csv_have_no_label_mass(scored, tmp_path):
    numbers, gold = scored
    probs = softmax(numbers, axis=1).round(4)
    table = pl.DataFrame(probs, schema=LABELS).with_columns(truth=pl.Series([LABELS[label] for label in gold]))
    table.write_csv(tmp_path / "probs.csv")
    words = ("--gold-column", "truth", "--score-column", ",".join(LABELS), "--numbers", "probabilities")
    command("import", tmp_path / "probs.csv", *words, "--out", tmp_path / "run")
    measured = metrics(tmp_path / "run", "probs")
    assert measured["accuracy"] == pytest.approx(accuracy_score(gold, probs.argmax(axis=1)))
    assert measured["log_loss"] == pytest.approx(log_loss(gold, probs / probs.sum(axis=1, keepdims=True)))
    assert not [name for name in measured if name.startswith("label_mass")]


def test_predicted_labels_have_accuracy_and_macro_f1_alone(scored, tmp_path):
    numbers, gold = scored
    pred = numbers.argmax(axis=1)
    rows = [{"gold": int(g), "pred": LABELS[p], "dataset": "d"} for g, p in zip(gold, pred, strict=True)]
    (tmp_path / "pred.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    command("import", tmp_path / "pred.jsonl", "--labels", ",".join(LABELS), "--out", tmp_path / "run")
    measured = metrics(tmp_path / "run", "d")
    assert set(measured) == {"accuracy", "macro_f1"}
    assert measured["accuracy"] == pytest.approx(accuracy_score(gold, pred))
    assert measured["macro_f1"] == pytest.approx(f1_score(gold, pred, average="macro"))
    assert "every file is as it was written" in command("verify", tmp_path / "run")


def sample(doc_id, target, numbers, *, choices=("1", "2"), flt="none", **more):
    arguments = {f"gen_args_{n}": {"arg_0": f"Question {doc_id}:", "arg_1": f" {c}"} for n, c in enumerate(choices)}
    return {
        "doc_id": doc_id,
        "target": target,
        "arguments": arguments,
        "resps": [[[str(number), "False"]] for number in numbers],
        "filter": flt,
    } | more


def write_samples(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("targets", "golds"),
    [(["0", "1", "1"], [0, 1, 1]), (["1", "2", "2"], [0, 1, 1]), (["1", "1", "1"], [1, 1, 1])],
    ids=["numbers of choices", "texts of choices", "either, and the logged accuracy tells"],
)
def test_samples_of_the_harness_are_read(tmp_path, targets, golds):
    numbers = [[-1.0, -2.0], [-3.0, -0.5], [-0.1, -4.0]]
    rows = [
        sample(n, target, lls, acc=float(np.argmax(lls) == gold), flt=flt)
        for n, (target, lls, gold) in enumerate(zip(targets, numbers, golds, strict=True))
        for flt in ("none", "other")
    ]
    path = write_samples(tmp_path / "samples_my_task_2026-01-02T03-04-05.jsonl", rows)
    [dataset] = read_files([path], ImportColumns())
    assert dataset.name == "my_task"
    assert set(map(tuple, dataset.rows["label_names"])) == {("1", "2")}
    assert dataset.rows["gold"].to_list() == golds
    assert dataset.rows["log_likelihoods"].to_list() == numbers
    assert dataset.rows["prompt"].to_list() == ["Question 0:", "Question 1:", "Question 2:"]


GOOD = {"gold": "no", "label_log_likelihoods": [-1.0, -2.0], "label_names": ["no", "yes"]}


@pytest.mark.parametrize(
    ("changed", "column", "found", "allowed"),
    [
        ({"gold": "perhaps"}, "gold", "'perhaps'", "one of no, yes, or a number from 0 to 1"),
        ({"gold": 2}, "gold", "2", "one of no, yes"),
        ({"label_log_likelihoods": [-1.0]}, "label_log_likelihoods", "[-1.0]", "2 numbers, one for each of no, yes"),
        (
            {"label_log_likelihoods": [0.5, -1.0]},
            "label_log_likelihoods",
            "[0.5, -1.0]",
            "numbers of at most 0, not all -inf",
        ),
        ({"label_log_likelihoods": ["x", -1.0]}, "label_log_likelihoods", "['x', -1.0]", "log-likelihoods in nats"),
        ({"label_names": "no"}, "label_names", "'no'", "a list of two or more different texts"),
        ({"label_names": ["yes", "no"]}, "label_names", "['yes', 'no']", "the labels of the dataset's first row"),
    ],
)
def test_a_cell_that_does_not_fit_is_named_with_what_is_allowed(tmp_path, changed, column, found, allowed):
    path = write_samples(tmp_path / "mine.jsonl", [GOOD, GOOD | changed])
    said = command("import", path, "--out", tmp_path / "run", exits=2)
    assert f"{path}, row 1 (from 0), column '{column}': found {found}; allowed is" in said
    assert allowed in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changed", "column", "allowed"),
    [
        ({"resps": [[["-1", "False"]]]}, "resps", "2 log-likelihoods of at most 0, not all -inf"),
        ({"arguments": {"gen_args_0": {"arg_0": "x", "arg_1": {}}}}, "arguments", "a multiple-choice task"),
        # acc_mutual_info: each choice once more, without a context.
        (
            {"arguments": {f"gen_args_{n}": {"arg_0": "Q" * (n < 2), "arg_1": f" {1 + n % 2}"} for n in range(4)}},
            "arguments",
            "each with a context arg_0 and another continuation arg_1",
        ),
        ({"target": "c"}, "target", "one of 1, 2, or a number from 0 to 1"),
    ],
)
def test_a_sample_that_is_no_classification_is_named(tmp_path, changed, column, allowed):
    rows = [sample(0, "0", [-1.0, -2.0]), sample(1, "1", [-1.0, -2.0]) | changed]
    path = write_samples(tmp_path / "samples_t_2026.jsonl", rows)
    said = command("import", path, "--out", tmp_path / "run", exits=2)
    assert f"{path}, row 1 (from 0), column '{column}': found" in said
    assert allowed in said


def test_choices_that_differ_from_row_to_row_are_no_labels(tmp_path):
    rows = [sample(0, "0", [-1.0, -2.0]), sample(1, "0", [-1.0, -2.0], choices=("left", "right"))]
    said = command("import", write_samples(tmp_path / "s_t_1.jsonl", rows), "--out", tmp_path / "run", exits=2)
    assert "row 1 (from 0), column 'arguments': found ['left', 'right']; allowed is the choices of row 0" in said


def test_a_table_whose_columns_are_not_clear_is_refused_with_the_options_that_say_it(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("gold,a,b\na,0.5,0.5\n")
    said = command("import", path, "--out", tmp_path / "run", exits=2)
    assert "has none of the columns label_log_likelihoods, label_probs, pred; it has gold, a, b" in said
    assert "needs --numbers" in command("import", path, "--score-column", "a,b", "--out", tmp_path / "run", exits=2)
    path.write_text('gold,label_probs\na,"[0.5, 0.6]"\n')
    assert "name the labels with --labels" in command("import", path, "--out", tmp_path / "run", exits=2)
    said = command("import", path, "--labels", "a,b", "--out", tmp_path / "run", exits=2)
    assert "probabilities: 0 to 1, with a sum of 1 within 0.01" in said  # two of two decimals miss by 0.005 each
    said = command("import", path, path, "--labels", "a,b", "--out", tmp_path / "run", exits=2)
    assert "row 0 (from 0)" in said
    path.write_text('gold,a,b\na,"0,2",0.8\n')
    words = ("--score-column", "a,b", "--numbers", "probabilities")
    said = command("import", path, *words, "--out", tmp_path / "run", exits=2)
    assert "column 'a,b': found ['0,2', '0.8']; allowed is probabilities" in said  # not nan


def test_the_suite_of_imported_runs_builds_no_prompts(tmp_path):
    said = command("build", "imported", "--datasets", "sst5", "--out", tmp_path / "run", exits=2)
    assert "Make such a run with `evaluator import FILE --out DIR`" in said


def test_imported_answers_are_not_asked_again_here(imported):
    for words in (("score", imported, "--model", "fake", "--engine", "fake"), ("receipt", imported)):
        assert "holds imported answers. Their prompts are not stored, so no model can score them" in command(
            *words, exits=2
        )


@pytest.mark.parametrize(
    ("gold", "predicted", "found"),
    [
        ([0, 1, 2], [2, 1, 1], ([0, 1, 2], [2, 1, 1])),  # 0 is no name, so that 1 and 2 are indices as well
        ([1, 2, 3], [3, 2, 2], ([0, 1, 2], [2, 1, 1])),
    ],
)
def test_labels_that_are_numbers_are_read_alike_in_all_rows(tmp_path, gold, predicted, found):
    path = tmp_path / "mine.csv"
    pl.DataFrame({"gold": gold, "pred": predicted}).write_csv(path)
    [dataset] = read_files([path], ImportColumns(labels=("1", "2", "3")))
    assert dataset.rows["gold"].to_list() == found[0]
    assert dataset.rows["log_likelihoods"].list.arg_max().to_list() == found[1]


def test_names_and_indices_are_not_mixed(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("gold,pred\na,a\n1,b\n")
    said = command("import", path, "--labels", "a,b", "--out", tmp_path / "run", exits=2)
    assert "row 1 (from 0), column 'gold': found '1'; allowed is one of a, b, since other rows have names" in said


@pytest.mark.parametrize("column", ["dataset", "query_id"])
def test_a_row_without_a_dataset_or_a_query_is_refused(tmp_path, column):
    path = write_samples(tmp_path / "mine.jsonl", [GOOD | {column: "x"}, GOOD | {column: None}])
    said = command("import", path, "--out", tmp_path / "run", exits=2)
    assert f"row 1 (from 0), column '{column}': found" in said
    assert "allowed is a text or a number" in said


def test_predicted_labels_have_no_probabilities_anywhere(scored, tmp_path):
    _, gold = scored
    for name, right in (("a", 20), ("b", 25)):
        predicted = [LABELS[one] if row < right else LABELS[(one + 1) % 3] for row, one in enumerate(gold)]
        rows = pl.DataFrame({"gold": [LABELS[one] for one in gold], "pred": predicted, "query_id": range(N)})
        rows.write_csv(tmp_path / f"{name}.csv")
        table = (tmp_path / f"{name}.csv").rename(tmp_path / "rows.csv")
        command("import", table, "--labels", ",".join(LABELS), "--out", tmp_path / name, "--model", name)
    command("compare", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "compared")
    differences = pl.read_parquet(tmp_path / "compared" / "tables" / "differences.parquet")
    assert set(differences["metric"]) == {"accuracy"}
    [path] = [one for one in export(tmp_path / "a", "lm-eval", tmp_path / "exported") if "samples" in one.name]
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["metrics"] for one in samples] == [["acc"]] * N
    assert all(one["resps"] == one["filtered_resps"] == [] for one in samples)


def test_imports_of_other_rows_are_not_compared(scored, tmp_path):
    numbers, gold = scored
    for name, shift in (("a", 0), ("b", 1)):
        columns = {"gold": (gold + shift) % 3, "label_log_likelihoods": numbers.tolist(), "label_names": [LABELS] * N}
        pl.DataFrame(columns).write_parquet(tmp_path / "rows.parquet")
        command("import", tmp_path / "rows.parquet", "--out", tmp_path / name, "--model", name)
    said = command("compare", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "compared", exits=2)
    assert "have different prompts: 30 of 30" in said


def test_datasets_of_a_file_are_about_the_same_inputs_if_they_share_queries():
    datasets: Any = [SimpleNamespace(name=name, file=file) for name, file in (("a", "x"), ("b", "x"), ("c", "y"))]
    rows = pl.DataFrame({"dataset": ["a", "a", "b", "c"], "query_id": [0, 1, 1, 0]})
    assert _inputs(rows, datasets) == {"a": "x", "b": "x", "c": "y, c"}
    apart = rows.with_columns(query_id=pl.Series([0, 1, 2, 0]))
    assert _inputs(apart, datasets) == {"a": "x, a", "b": "x, b", "c": "y, c"}


def test_an_imported_dataset_has_not_the_name_of_the_mean(scored, tmp_path):
    numbers, gold = scored
    columns = {"gold": gold, "label_log_likelihoods": numbers.tolist(), "label_names": [LABELS] * N}
    pl.DataFrame(columns).write_parquet(tmp_path / "mean.parquet")
    said = command("import", tmp_path / "mean.parquet", "--out", tmp_path / "out", exits=2)
    assert "a dataset cannot be called 'mean'" in said


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize(("invalid", "counted"), [("wrong", "counted as wrong"), ("drop", "left out")])
def test_predictions_that_name_no_label_count_as_wrong_or_are_left_out(scored, tmp_path, invalid, counted):
    gold = np.array(LABELS)[scored[1]]
    pred = np.where(np.arange(N) % 3 == 0, "I cannot say", np.roll(gold, 1))
    table = pl.DataFrame({"gold": gold, "pred": pred}).with_columns(
        pred=pl.when(pl.int_range(pl.len()) == 4).then(None).otherwise("pred")  # a missing one
    )
    table.write_csv(tmp_path / "said.csv")
    words = ("import", tmp_path / "said.csv", "--labels", ",".join(LABELS), "--out", tmp_path / "out")
    refused = command(*words, exits=2)
    assert "row 0 (from 0), column 'pred': found 'I cannot say'; allowed is one of no, yes, maybe" in refused
    assert "--invalid wrong counts other answers as wrong" in refused
    command(*words, "--invalid", invalid)
    valid = (pred != "I cannot say") & (np.arange(N) != 4)
    answered = valid if invalid == "drop" else np.full(N, True)
    expected = accuracy_score(gold[answered], np.where(valid, pred, "")[answered])
    assert metrics(tmp_path / "out", "said")["accuracy"] == pytest.approx(expected)
    assert f"11 of 30 predictions name no label and are {counted}" in (tmp_path / "out/report.html").read_text()


@pytest.mark.usefixtures("pages")
def test_predictions_none_of_which_names_a_label_are_all_wrong_or_refused(tmp_path):
    answers = {"gold": ["no", "None", "None"], "pred": [None, None, "I cannot say"]}  # an empty cell is not "None"
    pl.DataFrame(answers).write_parquet(tmp_path / "said.parquet")
    words = ("import", tmp_path / "said.parquet", "--labels", "no,None", "--out", tmp_path / "out", "--invalid")
    assert "no row has a label, and --invalid wrong would count all as wrong" in command(*words, "drop", exits=2)
    shown = command(*words, "wrong")
    assert "is not above 0.667, which always answering the most frequent label reaches. Try" in shown
    assert metrics(tmp_path / "out", "said")["accuracy"] == 0
    assert "3 of 3 predictions name no label and are counted as wrong" in (tmp_path / "out/report.html").read_text()


@pytest.mark.usefixtures("pages")
def test_answers_that_one_label_would_beat_say_so_first_and_what_to_try_where_they_are_made(tmp_path):
    answers = {"gold": ["often"] * 7 + ["rare"] * 3, "pred": ["rare"] + ["often"] * 9}
    pl.DataFrame(answers).write_csv(tmp_path / "said.csv")
    shown = command("import", tmp_path / "said.csv", "--labels", "rare,often", "--out", tmp_path / "out")
    # 6 of 10 are right, 7 would be if every answer were "often", as 9 of 10 are.
    sentence = (
        "said: accuracy 0.600 is not above 0.700, which always answering the most frequent label reaches; the "
        "model answers “often” to 90% of the prompts. Try more demonstrations"
    )
    assert sentence in shown
    assert "--methods" not in shown
    (tmp_path / "same.csv").write_text("gold,pred\n" + "often,often\nrare,often\n" * 3)
    constant = command("import", tmp_path / "same.csv", "--labels", "rare,often", "--out", tmp_path / "same")
    assert "the model answers “often” to 100% of the prompts" in constant
    assert "All prompts have the same log-likelihoods" not in constant  # which is of models that do not read prompts
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index(sentence) < page.index("<h2")


def test_labels_that_are_whole_numbers_are_read_with_a_decimal_point_too(tmp_path):
    (tmp_path / "floats.csv").write_text("gold,pred\n0.0,1\n1.0,1.0\n0,0.0\n1.0,1\n")
    command("import", tmp_path / "floats.csv", "--labels", "1,0", "--out", tmp_path / "out")
    assert metrics(tmp_path / "out", "floats")["accuracy"] == 0.75


def test_truth_values_name_labels_in_either_case(tmp_path):
    rows = [{"gold": n % 2 == 0, "pred": n < 3} for n in range(4)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for labels in (("false", "true"), ("False", "True")):
        (dataset,) = read_files([tmp_path / "t.jsonl"], ImportColumns(labels=labels))
        assert dataset.rows["gold"].to_list() == [1, 0, 1, 0]
        assert [numbers.index(0) for numbers in dataset.rows["log_likelihoods"].to_list()] == [1, 1, 1, 0]


def test_a_log_likelihood_of_minus_infinity_is_probability_zero(tmp_path):
    row = {"gold": 1, "label_log_likelihoods": [-1.0, -math.inf], "label_names": ["a", "b"]}
    rows = [row, row | {"gold": 0}]
    (tmp_path / "zero.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    command("import", tmp_path / "zero.jsonl", "--out", tmp_path / "out")
    measured = metrics(tmp_path / "out", "zero")
    assert (measured["accuracy"], measured["true_label_probability"], measured["log_loss"]) == (0.5, 0.5, math.inf)
    assert measured["label_mass_median"] == pytest.approx(math.exp(-1))


def test_rounded_probabilities_become_log_likelihoods_of_shares_of_their_sum():
    reported = reported_probabilities([[0.3, 0.3, 0.41], [0.2, 0.3, 0.5]], lambda _, text: DatasetError(text))
    expected = [[30 / 101, 30 / 101, 41 / 101], [0.2, 0.3, 0.5]]
    np.testing.assert_allclose(np.exp(reported.log_likelihoods), expected, rtol=1e-12)
    assert "1 of 2 rows have sums other than 1 and are normalised" in reported.notes


@pytest.mark.usefixtures("pages")
def test_a_hundred_labels_have_a_matrix_on_the_page_and_more_have_their_counts_in_the_table_alone(tmp_path):
    for n_labels in (100, 101):
        names, folder = [f"label {place}" for place in range(n_labels)], tmp_path / str(n_labels)
        rows = [{"gold": names[row], "label_names": names, "label_probs": np.eye(n_labels)[row // 2].tolist()}
                for row in range(10)]  # fmt: skip
        folder.mkdir()
        pl.DataFrame(rows).write_parquet(folder / "a.parquet")
        command("import", folder / "a.parquet", "--out", folder / "run")
        page = (folder / "run" / "report.html").read_text()
        assert ('class="box matrix"' in page) == (n_labels == 100)
        assert "The counts of a dataset of more than 100 labels are only in the table confusion." in page
        counts = pl.read_parquet(folder / "run" / "tables" / "confusion.parquet")
        assert counts.height == n_labels**2
        assert counts.filter(pl.col("n_requests") > 0).select("gold", "pred").rows() == [(n, n // 2) for n in range(10)]


def test_other_columns_of_a_table_are_other_answers(tmp_path):
    rows = [(["no", "yes"][n % 2], ["no", "yes"][n % 3 == 0], ["no", "yes"][n % 5 == 0]) for n in range(30)]
    pl.DataFrame(rows, schema=["gold", "first", "second"], orient="row").write_csv(tmp_path / "both.csv")
    words = ("import", tmp_path / "both.csv", "--numbers", "labels", "--labels", "no,yes")
    for name in ("first", "second"):
        command(*words, "--score-column", name, "--model", name, "--out", tmp_path / name)
    command("compare", tmp_path / "first", tmp_path / "second", "--out", tmp_path / "compared")
    found = pl.read_parquet(tmp_path / "compared" / "tables" / "comparison.parquet").filter(
        metric="accuracy", dataset="both"
    )
    right = [sum(row[0] == row[place] for row in rows) / 30 for place in (1, 2)]
    assert found.sort("number")["value"].to_list() == pytest.approx(right)
    said = command(*words, "--score-column", "second", "--out", tmp_path / "first", exits=2)
    assert "holds a finished run" in said
    assert metrics(tmp_path / "first", "both")["accuracy"] == pytest.approx(right[0])


@pytest.mark.parametrize("labels", ["no,no", "no", "no,yes,no"])
def test_labels_that_are_one_or_repeat_each_other_are_refused(tmp_path, labels):
    (tmp_path / "t.csv").write_text("gold,pred\nno,no\nno,no\n")
    said = command("import", tmp_path / "t.csv", "--labels", labels, "--out", tmp_path / "run", exits=2)
    assert f"--labels takes two different names or more, got {labels.replace(',', ', ')}." in said


def test_an_option_about_predicted_labels_is_refused_where_there_are_none(tmp_path):
    rows = [{**GOOD, "gold": name} for name in ("no", "yes")]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    said = command("import", tmp_path / "t.jsonl", "--invalid", "drop", "--out", tmp_path / "run", exits=2)
    assert "--invalid drop is about predicted labels, and label_log_likelihoods has log-likelihoods." in said


def test_a_number_of_a_label_may_be_a_fraction_where_others_are_missing(tmp_path):
    rows = {"gold": [1.0, 0.0, None], "label_probs": [[0.5, 0.5]] * 3, "label_names": [["no", "yes"]] * 3}
    pl.DataFrame(rows).write_parquet(tmp_path / "t.parquet")
    [dataset] = read_files([tmp_path / "t.parquet"], ImportColumns(), needs_gold=False)
    assert dataset.rows["gold"].to_list() == [1, 0, None]
