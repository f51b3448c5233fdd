"""The suite decide from a table and a file of questions to its tables and page, on a fake and on a real engine."""

import csv
import json
import random
import re
from itertools import permutations

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax
from scipy.stats import binomtest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, cohen_kappa_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from evaluator.config import DataOptions
from evaluator.datasets.question_table import drawn_demonstrations, question_examples
from evaluator.decisions.questions import read_questions
from evaluator.errors import DatasetError
from evaluator.methods.base import ScoredRequests
from evaluator.runs.export import export
from evaluator.store import open_intact_store
from evaluator.suites.decide.suite import METRIC_TEXTS, order_averaged_probs
from tests.command_line import command

pytestmark = pytest.mark.usefixtures("without_pages")

TEAMS = ["billing", "technical", "spam"]
QUESTIONS = """
[queue]
type = "choice"
instructions = "Which team should read this?"
options = {billing = "payments and invoices", technical = "", spam = "advertising"}
gold = "team"
none = "other"
wordings = ["Who is responsible for this message?"]

[refund]
type = "yes-no"
instructions = "Does the customer ask for money back?"
negated = "Does the customer ask for anything but money back?"
gold = "refund"

[anger]
type = "score"
instructions = "How angry is the customer?"
levels = ["calm", "cross", "furious"]
gold = "anger"

[votes]
type = "choice"
instructions = "Which team?"
options = ["billing", "technical", "spam"]
gold = "votes"

[colour]
type = "choice"
instructions = "Which colour fits?"
options_column = "choices"
gold = "pick"

[unlabelled]
type = "choice"
instructions = "Is it short or long?"
options = ["short", "long"]
"""


def write_table(path, n=40):
    draw = random.Random(4)
    rows = []
    for number in range(n):
        choices = draw.sample(["red", "green", "blue", "black"], 2 + number % 2)
        rows.append(
            {
                "body": f"Ticket  number {number} About Something",
                "team": draw.choice(TEAMS) if number % 8 else "",
                "refund": draw.choice(["yes", "no", "true", "0"]),
                "anger": draw.choice(["calm", "cross", "furious", "2"]),
                "votes": json.dumps({team: draw.random() for team in TEAMS}),
                "choices": "|".join(choices),
                "pick": draw.choice(choices),
            }
        )
    with path.open("w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decide")
    rows = write_table(folder / "tickets.csv")
    (folder / "q.toml").write_text(QUESTIONS)
    words = ("--data", folder / "tickets.csv", "--input-column", "body", "--questions", folder / "q.toml")
    engine = ("--engine", "fake", "--model", "fake", "--methods", "all", "--form", "both")
    said = command("run", "decide", *words, *engine, "--out", folder / "run")
    return folder / "run", rows, said


def table(run, name):
    return pl.read_parquet(run[0] / "tables" / f"{name}.parquet")


def probabilities(run, part, dataset, method="vanilla"):
    rows = table(run, "predictions").filter(part=part, dataset=dataset, method=method).sort("template", "query_id")
    return rows, np.array(rows["label_probs"].to_list())


def metric(run, part, dataset, name, method="vanilla"):
    rows = table(run, "metrics").filter(part=part, dataset=dataset, metric=name, method=method)
    return rows["value"].item()


GOLD = {
    "queue": lambda row: [*TEAMS, "other"].index(row["team"] or "other"),
    "refund": lambda row: int(row["refund"] in ("yes", "true")),
    "anger": lambda row: {"calm": 0, "cross": 1, "furious": 2, "2": 2}[row["anger"]],
    "votes": lambda row: int(np.argmax([json.loads(row["votes"])[team] for team in TEAMS])),
}


@pytest.mark.parametrize("question", list(GOLD))
@pytest.mark.parametrize("form", ["letters", "names"])
def test_accuracy_is_that_of_the_gold_column(run, question, form):
    rows, probs = probabilities(run, form, question)
    gold = [GOLD[question](run[1][query]) for query in rows["query_id"]]
    assert metric(run, form, question, "accuracy") == pytest.approx(accuracy_score(gold, probs.argmax(axis=1)))


def test_options_of_rows_are_a_dataset_for_each_number_of_them(run):
    rows = table(run, "predictions").filter(part="letters", method="vanilla")
    for size in (2, 3):
        some = rows.filter(dataset=f"colour ({size} options)")
        assert some.height == 20
        for query, names, gold in some.select("query_id", "label_names", "gold").iter_rows():
            assert "|".join(names) == run[1][query]["choices"]
            assert names[gold] == run[1][query]["pick"]
    assert table(run, "label_spaces").select("part", "dataset").is_duplicated().sum() == 0


@pytest.mark.parametrize(
    ("part", "question", "n_variations"),
    [
        ("form", "queue", 1),
        ("order", "queue", 3),
        ("order", "refund", 1),
        ("order", "unlabelled", 1),
        ("wording", "queue", 1),
        ("negation", "refund", 1),
        ("spacing", "anger", 2),
        ("among", "votes", 1),
    ],
)
def test_changed_answers_and_distances_are_those_of_the_probabilities(run, part, question, n_variations):
    _, probs = probabilities(run, part, question)
    by_template = probs.reshape(n_variations + 1, -1, probs.shape[1])
    answers = by_template.argmax(axis=2)
    assert metric(run, part, question, f"{part}_flips") == pytest.approx((answers[1:] != answers[0]).mean())
    distance = np.abs(by_template[1:] - by_template[0]).sum(axis=2) / 2
    assert metric(run, part, question, f"{part}_distance") == pytest.approx(distance.mean())
    _, plain = probabilities(run, "letters", question)
    np.testing.assert_array_equal(by_template[0], plain)
    if part == "form":
        np.testing.assert_array_equal(by_template[1], probabilities(run, "names", question)[1])
    if part == "order":
        n = probs.shape[1]
        first = [(1 - shift) % 2 if question == "refund" else shift for shift in range(n)]
        named = np.mean([answers[shift] == first[shift] for shift in range(n)])
        assert metric(run, part, question, "order_first") == pytest.approx(named)


@pytest.mark.parametrize(("kind", "options"), [("choice", 'options = ["no", "yes"]'), ("yes-no", "")])
def test_a_choice_of_no_and_yes_shows_no_first_and_a_question_of_yes_or_no_shows_yes_first(tmp_path, kind, options):
    write_table(tmp_path / "t.csv", 31)
    (tmp_path / "q.toml").write_text(f'[refund]\ntype = "{kind}"\ninstructions = "Refund?"\n{options}\n')
    words = ("--data", tmp_path / "t.csv", "--input-column", "body", "--questions", tmp_path / "q.toml")
    words = (*words, "--parts", "letters,order")
    command("run", "decide", *words, "--engine", "fake", "--model", "fake", "--out", tmp_path / "run")
    shown = requests((tmp_path / "run",)).filter(part="order").select("template", "query_id", "prompt")
    answers = table((tmp_path / "run",), "predictions").filter(part="order")
    both = answers.join(shown, on=["template", "query_id"])
    named = [both["label_names"][row][pred] for row, pred in enumerate(both["pred"])]
    first = both["prompt"].str.extract(r"\nA: (\w+)").to_list()
    share = np.mean([name == one for name, one in zip(named, first, strict=True)])
    assert metric((tmp_path / "run",), "order", "refund", "order_first") == pytest.approx(share)
    assert share != 0.5


def test_the_accuracy_over_all_variations_is_that_of_the_rows_with_a_true_option(tmp_path):
    rows = [{"body": f"Ticket {n}", "refund": None if n % 3 == 0 else "yes"} for n in range(30)]
    pl.DataFrame(rows).write_csv(tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text('[refund]\ntype = "yes-no"\ninstructions = "Refund?"\ngold = "refund"\n')
    words = ("--data", tmp_path / "t.csv", "--input-column", "body", "--questions", tmp_path / "q.toml")
    words = (*words, "--parts", "letters,order")
    command("run", "decide", *words, "--engine", "fake", "--model", "fake", "--out", tmp_path / "run")
    answers = table((tmp_path / "run",), "predictions").filter(part="order")
    known = answers.drop_nulls("gold")
    assert (known.height, answers.height) == (40, 60)  # two orders
    metrics = table((tmp_path / "run",), "metrics").filter(part="order", dataset="refund")
    found = {name: values for name, *values in metrics.select("metric", "value", "n_queries", "n_requests").rows()}
    assert found["order_accuracy"] == [pytest.approx((known["pred"] == known["gold"]).mean()), 20, 40]
    assert found["order_flips"][1:] == [30, 60]


@pytest.mark.parametrize("question", ["queue", "refund", "anger"])
def test_each_way_to_ask_has_its_share_in_the_total_error_of_an_accuracy(run, question):
    components = table(run, "variance_components").filter(dataset=question, method="vanilla", part="letters")
    share = dict(components.select("component", "share").iter_rows())
    rows, _ = probabilities(run, "letters", question)
    right = (rows["pred"] == rows["gold"]).to_numpy().astype(float)
    expected = {"queries": right.var(ddof=1) / len(right)}
    for part in share.keys() - expected.keys():
        varied, _ = probabilities(run, part, question)
        varied = varied.select("query_id", "template", right=(pl.col("pred") == pl.col("gold")).cast(pl.Float64))
        of_two_factors = anova_lm(ols("right ~ C(query_id) + C(template)", varied.to_pandas()).fit())["mean_sq"]
        scatter = of_two_factors["C(template)"] - of_two_factors["Residual"]
        expected[part] = max(scatter / len(right), 0.0)
    assert {*expected} >= {"queries", "order", "spacing", "among"}
    total = sum(expected.values())
    assert share == pytest.approx({part: value / total for part, value in expected.items()})
    headline = table(run, "total_error").filter(dataset=question, method="vanilla").row(0, named=True)
    assert headline["value"] == pytest.approx(right.mean())
    assert headline["total_high"] - headline["total_low"] >= headline["ci_high"] - headline["ci_low"]


def test_a_threshold_is_of_the_question_as_it_is_and_says_so(run):
    words = ("threshold", run[0], "--target", 0.2)
    first, *others = command(*words).splitlines()
    assert first == (
        "Answers of the part letters; --part chooses another: names, form, order, wording, negation, spacing, among"
    )
    assert others == command(*words, "--part", "letters").splitlines()
    rows, probs = probabilities(run, "letters", "refund")
    right = accuracy_score(rows["gold"], probs.argmax(axis=1))
    assert f"refund: {right:.1%} of {len(rows)} answers are right" in others
    assert not any("unlabelled" in line for line in others)


@pytest.mark.usefixtures("pages")
def test_the_page_compares_changes_with_the_noise_of_a_receipt(run, tmp_path):
    (tmp_path / "q.toml").write_text(QUESTIONS.split("[votes]")[0])
    words = ("--data", run[0].parent / "tickets.csv", "--input-column", "body", "--questions", tmp_path / "q.toml")
    command("run", "decide", *words, "--engine", "fake", "--model", "fake", "--out", tmp_path / "run")
    page = tmp_path / "run" / "report.html"
    assert "The command evaluator receipt scores prompts again" in page.read_text()
    command("receipt", tmp_path / "run", "--n", 100)
    # None of 100 answers of the fake engine changes: the exact upper limit is 1 - .025^(1/100).
    limit = 1 - 0.025**0.01
    assert f"0 of 100 answers changed, at most {limit:.1%}" in page.read_text()
    metrics = table((tmp_path / "run",), "metrics")
    changes = metrics.filter(pl.col("metric").str.ends_with("_flips"), pl.col("dataset") != "mean")
    told = re.findall(r'data-number="above" data-value="([^"]*)"', page.read_text())
    assert len(told) == changes.height
    assert told.count("yes") == (changes["ci_low"] > limit).sum() > 0


@pytest.mark.usefixtures("pages")
def test_a_single_query_does_not_tell_what_is_above_the_noise(tmp_path):
    write_table(tmp_path / "t.csv", 9)
    (tmp_path / "q.toml").write_text('[topic]\ntype = "choice"\ninstructions = "?"\noptions = ["a", "b"]\n')
    words = ("--data", tmp_path / "t.csv", "--input-column", "body", "--questions", tmp_path / "q.toml", "--queries", 1)
    command("run", "decide", *words, "--engine", "fake", "--model", "fake", "--out", tmp_path / "run")
    command("receipt", tmp_path / "run", "--n", 4)
    page = (tmp_path / "run" / "report.html").read_text()
    assert {*re.findall(r'data-number="above" data-value="([^"]*)"', page)} == {"not known"}


def test_the_mean_over_orders_is_geometric(run):
    _, probs = probabilities(run, "order", "queue")
    logs = np.log(probs.reshape(4, -1, 4)).mean(axis=0)
    _, averaged = probabilities(run, "letters", "queue", "order_averaged")
    np.testing.assert_allclose(averaged, softmax(logs, axis=1), rtol=1e-12)


def test_one_question_an_option_has_its_yes(run):
    scores = (
        requests(run).filter(part="one_by_one", for_part="letters", dataset="anger").sort("query_id", "label_tried")
    )
    assert scores["label_names"].to_list() == [["no", "yes"]] * scores.height
    _, probs = probabilities(run, "letters", "anger", "one_by_one")
    assert probs.shape == (scores.height / 3, 3)
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    _, vanilla = probabilities(run, "letters", "refund")
    _, same = probabilities(run, "letters", "refund", "one_by_one")
    np.testing.assert_array_equal(vanilla, same)


def requests(run):
    [folder] = [path for path in (run[0] / "store").iterdir() if path.is_dir()]
    store = open_intact_store(folder)
    return store.requests().join(store.prompts(), on="prompt_id").collect()


def test_prompts_begin_with_the_input_and_a_negated_question_swaps_its_answers(run):
    rows = requests(run).filter(pl.col("for_part").is_null())
    plain = rows.filter(part="letters", dataset="refund", query_id=3).row(0, named=True)
    assert plain["prompt"].startswith(
        "Ticket  number 3 About Something\n\nQuestion: Does the customer ask for money back?"
    )
    assert plain["continuations"] == [" B", " A"]  # no, yes
    negated = rows.filter(part="negation", dataset="refund", query_id=3, template=1).row(0, named=True)
    assert "anything but money back" in negated["prompt"]
    assert negated["continuations"] == [" A", " B"]
    lower = rows.filter(part="spacing", dataset="refund", query_id=3, template=2).row(0, named=True)
    assert lower["prompt"].startswith("ticket  number 3 about something\n\n")
    among = rows.filter(part="among", dataset="refund", query_id=3, template=1).row(0, named=True)
    assert among["prompt"].index("How angry") < among["prompt"].index("Does the customer ask for money back?")


def test_levels_and_distributions_are_scored(run):
    graded = table(run, "graded").filter(method="vanilla", part="letters")
    rows, probs = probabilities(run, "letters", "anger")
    gold = [GOLD["anger"](run[1][query]) for query in rows["query_id"]]
    value = dict(graded.filter(dataset="anger").select("metric", "value").iter_rows())
    kappa = cohen_kappa_score(gold, probs.argmax(axis=1), weights="quadratic", labels=[0, 1, 2])
    assert value["weighted_kappa"] == pytest.approx(kappa)
    rows, probs = probabilities(run, "letters", "votes")
    soft = np.array([[json.loads(run[1][query]["votes"])[team] for team in TEAMS] for query in rows["query_id"]])
    soft /= soft.sum(axis=1, keepdims=True)
    value = dict(graded.filter(dataset="votes").select("metric", "value").iter_rows())
    assert value["cross_entropy"] == pytest.approx(-(soft * np.log(probs)).sum(axis=1).mean())


@pytest.mark.parametrize("one_true", [False, True])
def test_yes_or_no_questions_about_a_table_are_labels_of_its_rows(tmp_path, one_true):
    draw, names = np.random.default_rng(6), ["late", "rude", "lost"]
    golds = np.eye(3, dtype=int)[draw.integers(3, size=50)] if one_true else draw.integers(2, size=(50, 3))
    columns = {name: list(map(str, column)) for name, column in zip(names, golds.T, strict=True)}
    columns["rude"][7] = ""  # asked and not measured
    pl.DataFrame({"text": [f"Message {n}" for n in range(50)], **columns}).write_csv(tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text(
        "".join(f'[{name}]\ntype = "yes-no"\ninstructions = "Is it {name}?"\ngold = "{name}"\n' for name in names)
    )
    words = ("--data", tmp_path / "t.csv", "--questions", tmp_path / "q.toml", "--engine", "fake", "--model", "fake")
    command("run", "decide", *words, "--parts", "letters", "--out", tmp_path / "run")
    run, kept = (tmp_path / "run",), np.arange(50) != 7
    found = table(run, "predictions").filter(part="letters").sort("query_id")
    yes = np.transpose([found.filter(dataset=name)["label_probs"].list.get(1).to_numpy() for name in names])[kept]
    value = dict(table(run, "graded").filter(dataset="late + lost + rude").select("metric", "value").iter_rows())
    assert value["exact_match"] == pytest.approx(accuracy_score(golds[kept], yes >= 0.5))
    assert value["expected_labels"] == pytest.approx(yes.sum(axis=1).mean())
    assert ("sum_less_one" in value) == one_true
    if one_true:
        assert value["sum_less_one"] == pytest.approx(np.abs(yes.sum(axis=1) - 1).mean())
        assert value["single_yes"] == pytest.approx((np.sum(yes >= 0.5, axis=1) == 1).mean())


def test_questions_without_true_options_are_asked_and_compared_alone(run):
    metrics = table(run, "metrics").filter(dataset="unlabelled")
    assert "accuracy" not in {*metrics["metric"]}
    assert metrics.filter(metric="order_flips").height > 0


@pytest.mark.usefixtures("pages")
def test_a_table_without_any_true_option_is_asked_and_compared(tmp_path):
    write_table(tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text("[unlabelled]" + QUESTIONS.split("[unlabelled]")[1])
    words = ("--data", tmp_path / "t.csv", "--input-column", "body", "--questions", tmp_path / "q.toml")
    said = command("run", "decide", *words, "--engine", "fake", "--model", "fake", "--out", tmp_path / "run")
    assert "Order of options: " in said
    assert "What should not matter, and does" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.usefixtures("pages")
def test_the_page_and_the_terminal_say_what_changes_answers(run):
    command("report", run[0])
    page = (run[0] / "report.html").read_text()
    assert "What should not matter, and does" in page
    assert "Levels, distributions and labels" in page
    assert "Order of options: " in run[2]
    assert re.search(r"% of answers change \([0-9.]+% to [0-9.]+%\)", run[2])
    assert "every file is as it was written" in command("verify", run[0])
    assert export(run[0], "csv", run[0].parent / "exported")


def test_answers_are_exported_under_the_names_of_the_options_of_each_row(run, tmp_path):
    export(run[0], "lm-eval", tmp_path)
    files = tmp_path.rglob("samples_decide_letters_colour *")
    samples = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert {sample["doc"]["query_id"] for sample in samples} == {*range(len(run[1]))}
    for sample in samples:
        row = run[1][sample["doc"]["query_id"]]
        assert (sample["doc"]["labels"], sample["target"]) == (row["choices"].split("|"), row["pick"])


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("group_column", [None, "user"])
def test_words_and_no_demonstrations_are_baselines_on_the_same_rows(tmp_path, group_column):
    draw, n, users = np.random.default_rng(3), 100, 20
    user = np.arange(n) % users
    gold = draw.integers(2, size=users)[user]  # the name of a user tells it, unless the user is left out as a whole
    texts = [f"{name} writes number {place}" for place, name in enumerate(np.array(list("abcdefghijklmnopqrst"))[user])]
    answer = np.array(["spam", "post"])[gold]
    pl.DataFrame({"text": texts, "kind": answer, "user": user}).write_csv(tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text(
        '[kind]\ntype = "choice"\ninstructions = "Which?"\noptions = ["spam", "post"]\ngold = "kind"\n'
    )
    words = ("--data", tmp_path / "t.csv", "--questions", tmp_path / "q.toml", "--engine", "fake", "--model", "fake")
    grouped = ("--group-column", group_column) if group_column else ()
    parts = ("--parts", "letters,zero-shot")
    command("run", "decide", *words, *grouped, *parts, "--shots", 4, "--out", tmp_path / "run")
    run = (tmp_path / "run",)
    rows, _ = probabilities(run, "letters", "kind")
    queries, own = rows["query_id"].to_numpy(), (rows["pred"] == rows["gold"]).to_numpy()
    folds = GroupKFold(5, shuffle=True, random_state=42)
    groups = [f"group {user[query]}" if group_column else f"row {query}" for query in queries]
    model = make_pipeline(TfidfVectorizer(token_pattern=r"\w+|[^\w\s]"), LogisticRegression(max_iter=1000))
    predicted = cross_val_predict(model, np.array(texts)[queries], gold[queries], cv=folds, groups=groups)
    right = predicted == gold[queries]
    assert right.mean() > 0.9 if group_column is None else right.mean() < 0.75
    found = {row["baseline"]: row for row in table(run, "baselines").iter_rows(named=True)}
    by_words = found["TF-IDF with logistic regression"]
    assert by_words["accuracy"] == right.mean()
    assert by_words["difference"] == pytest.approx(own.mean() - right.mean())
    n_better, n_worse = (own & ~right).sum(), (right & ~own).sum()
    assert by_words["p_value"] == pytest.approx(binomtest(int(n_better), int(n_better + n_worse)).pvalue)
    none_shown, _ = probabilities(run, "zero-shot", "kind")
    assert found["zero-shot"]["accuracy"] == (none_shown["pred"] == none_shown["gold"]).mean()
    prompts = requests(run).filter(part="zero-shot")["prompt"]
    assert prompts.str.count_matches("Question: ").to_list() == [1] * 96
    assert "Cheap baselines" in (tmp_path / "run/report.html").read_text()


def test_demonstrations_are_no_queries(tmp_path):
    write_table(tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text(QUESTIONS.split("[refund]")[0])
    words = ("--data", tmp_path / "t.csv", "--input-column", "body", "--questions", tmp_path / "q.toml")
    words = (*words, "--parts", "letters", "--shots", "3")
    command("run", "decide", *words, "--engine", "fake", "--model", "fake", "--out", tmp_path / "run")
    rows = requests((tmp_path / "run",)).filter(part="letters")
    shown = rows["demonstration_ids"][0].to_list()
    assert len(shown) == 3
    assert not {*rows["query_id"]} & {*shown}
    assert rows["prompt"][0].count("Question: ") == 4


def test_neither_the_input_nor_a_demonstration_tells_the_answer(tmp_path):
    rows = [{"body": f"message {n % 30}", "team": TEAMS[n % 3], "note": "x"} for n in range(40)]
    pl.DataFrame(rows).write_csv(tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text(QUESTIONS.split("[refund]")[0])
    words = ("--data", tmp_path / "t.csv", "--questions", tmp_path / "q.toml", "--model", "fake", "--engine", "fake")
    said = command("run", "decide", *words, "--input-column", "body,team", "--out", tmp_path / "leak", exits=2)
    assert "the column 'team' is named for two purposes at once" in said
    words = (*words, "--input-column", "body", "--shots", "6", "--parts", "letters")
    command("run", "decide", *words, "--out", tmp_path / "run")
    asked = requests((tmp_path / "run",)).filter(part="letters")
    shown = {rows[row]["body"] for row in asked["demonstration_ids"][0].to_list()}
    assert not shown & {rows[row]["body"] for row in asked["query_id"]}
    command("run", "decide", *words, "--training-data", tmp_path / "t.csv", "--out", tmp_path / "trained")
    notes = json.loads((tmp_path / "trained" / "run.json").read_text())["prompts"]["notes"]["queue"]
    assert notes == [
        "40 of 40 queries have the same texts as a training row",
        "10 of 40 queries repeat the texts of another query",
    ]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("legal", "the true option 'legal' is none of billing"),
        ('{"legal": 1}', "a distribution has a number of 0 or more"),
    ],
)
def test_a_gold_value_that_is_no_option_is_named(tmp_path, cell, said):
    rows = [{"body": "a", "team": "spam"}, {"body": "b", "team": cell}]
    pl.DataFrame(rows).write_csv(tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text(QUESTIONS.split("[refund]")[0])
    words = ("--data", tmp_path / "t.csv", "--input-column", "body", "--questions", tmp_path / "q.toml")
    error = command("run", "decide", *words, "--engine", "fake", "--model", "fake", "--out", tmp_path / "run", exits=2)
    assert said in error
    assert "row 1 (from 0), question 'queue'" in error


@pytest.mark.parametrize(
    ("kind", "cells", "golds"),
    [
        ('type = "yes-no"', ["1.0", "Yes ", "0.0", "", "FALSE"], [1, 1, 0, None, 0]),
        ('type = "score"\nlevels = ["low", " mid", "high"]', ["0.0", "2", "mid", "1.0"], [0, 2, 1, 1]),
        ('type = "score"\nlevels = ["1", "2", "3"]', ["1", "3.0", "2"], [0, 2, 1]),
        ('type = "score"\nlevels = ["1", "2", "3"]', ["1", "0"], "'0' is none of 1, 2, 3"),
        ('type = "choice"\noptions = [" a", "b "]', [" a", "b", '{"a ": 1, "b": 3}'], [0, 1, 1]),
        ('type = "choice"\noptions = ["a", "b"]', ["a", "[1]"], "a distribution has a number of 0 or more"),
    ],
)
def test_gold_values_are_read_as_they_are_meant(tmp_path, kind, cells, golds):
    pl.DataFrame({"text": list("abcdefgh")[: len(cells)], "g": cells}).write_csv(tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text(f'[q]\ninstructions = "Which?"\ngold = "g"\n{kind}\n')
    [question] = read_questions(tmp_path / "q.toml")
    data = DataOptions(paths=(tmp_path / "t.csv",), questions=tmp_path / "q.toml")
    if isinstance(golds, list):
        assert question_examples(tmp_path / "t.csv", data, question)["gold"].to_list() == golds
    else:
        with pytest.raises(DatasetError, match=golds.replace("(", r"\(")):
            question_examples(tmp_path / "t.csv", data, question)


def test_what_does_not_fit_the_suite_is_refused_with_what_does(tmp_path):
    write_table(tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text(QUESTIONS)
    data, questions = ("--data", tmp_path / "t.csv", "--input-column", "body"), ("--questions", tmp_path / "q.toml")
    fake = ("--engine", "fake", "--model", "fake", "--out", tmp_path / "run")
    assert "Name both: --data tickets.csv --questions" in command("run", "decide", *data, *fake, exits=2)
    assert "Run decide, or drop --questions" in command("run", "classify", *data, *questions, *fake, exits=2)
    said = command("run", "decide", *data, *questions, "--methods", "contextual_calibration", *fake, exits=2)
    assert "contextual_calibration" in said
    said = command("run", "decide", *data, *questions, "--labels", "a=b", "--template", "no.toml", *fake, exits=2)
    assert "decide takes no --labels, --template. The file of --questions has instructions" in said
    said = command("run", "decide", *data, *questions, "--parts", "repeat", *fake, exits=2)
    assert "`evaluator receipt DIR` scores prompts of its finished run again" in said
    lines = (tmp_path / "q.toml").read_text().replace('"choices"', '"numbers"')
    (tmp_path / "q.toml").write_text(lines)
    pl.read_csv(tmp_path / "t.csv").with_columns(numbers=pl.lit(5)).write_csv(tmp_path / "t.csv")
    assert "row 0 (from 0), column numbers: two options" in command("run", "decide", *data, *questions, *fake, exits=2)


def test_runs_in_other_forms_have_nothing_in_common(run, tmp_path):
    few = QUESTIONS.split("[refund]")[0] + "[unlabelled]" + QUESTIONS.split("[unlabelled]")[1]
    (tmp_path / "q.toml").write_text(few)
    words = ("--data", run[0].parent / "tickets.csv", "--input-column", "body", "--questions", tmp_path / "q.toml")
    for form in ("letters", "names"):
        fake = ("--engine", "fake", "--model", "fake", "--out", tmp_path / form)
        command("run", "decide", *words, "--form", form, "--parts", f"{form},order", *fake)
    (tmp_path / "policy.toml").write_text("margin = 0.1\n")
    against = (tmp_path / "names", "--against", tmp_path / "letters")
    command(
        "compare", run[0], "--against", tmp_path / "letters", "--out", tmp_path / "c"
    )  # also rows without true options
    against_letters = pl.read_parquet(tmp_path / "c/tables/against.parquet")
    assert against_letters.filter(dataset="queue", part="letters")["n_changed"].item() == 0
    for more in (
        ("compare", *against, "--out", tmp_path / "c"),
        ("gate", *against, "--policy", tmp_path / "policy.toml"),
    ):
        said = command(*more, exits=3 if more[0] == "gate" else 2)
        assert "No dataset is in the same part of all runs: " in said
        assert "of typed questions --form" in said


def test_demonstrations_cover_the_options_or_are_the_first_rows():
    examples = pl.DataFrame({"gold": [0] * 12 + [None] + [1] * 2 + [2] * 5})
    balanced, cover, first = (drawn_demonstrations(examples, 8, 42, how) for how in ("balanced", "cover", "first"))
    golds = [sorted(examples["gold"].gather(rows).to_list()) for rows in (balanced, cover, first)]
    assert golds[0] == [0, 0, 0, 1, 1, 2, 2, 2]
    assert {*golds[1][:8]} == {0, 1, 2}
    assert golds[1].count(0) > 3
    assert first == list(range(8))
    assert [examples["gold"][row] for row in cover[:3]] in [list(each) for each in permutations(range(3))]


@pytest.mark.usefixtures("pages")
def test_several_demonstration_sets_and_the_curve_over_their_demonstrations(tmp_path):
    write_table(tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text(QUESTIONS.split("[anger]")[0])
    words = ("--data", tmp_path / "t.csv", "--input-column", "body", "--questions", tmp_path / "q.toml")
    fake = ("--engine", "fake", "--model", "fake", "--out", tmp_path / "run")
    command("run", "decide", *words, *fake, "--shots", 3, "--sets", 4, "--parts", "letters,learning_curve,zero-shot")
    run = (tmp_path / "run",)
    rows = requests(run).filter(pl.col("for_part").is_null())
    asked = rows.filter(part="letters", dataset="queue")
    sets = {tuple(ids) for ids in asked["demonstration_ids"].to_list()}
    assert len(sets) == asked["demonstration_set"].n_unique() == 4
    assert not {*asked["query_id"]} & {row for ids in sets for row in ids}
    assert asked.height == 4 * asked["query_id"].n_unique()
    answers, _ = probabilities(run, "letters", "queue")
    right = (answers["pred"] == answers["gold"]).mean()
    assert metric(run, "letters", "queue", "accuracy") == pytest.approx(right)
    curve = table(run, "learning_curve").filter(dataset="queue", metric="accuracy").sort("n_shots")
    assert curve["n_shots"].to_list() == [0, 1, 2, 3]
    assert curve["n_requests"].to_list() == [4, 4, 4, asked.height]
    assert curve["value"][-1] == pytest.approx(right)
    # Both questions are about the same rows: the ends of their mean are the means of their ends.
    is_mean, whole = pl.col("dataset") == "mean", table(run, "learning_curve").filter(metric="accuracy", n_shots=3)
    for end in ("ci_low", "ci_high"):
        assert whole.filter(is_mean)[end].item() == pytest.approx(whole.filter(~is_mean)[end].mean())
    for cut in rows.filter(part="learning_curve", dataset="queue").iter_rows(named=True):
        whole = asked.filter(demonstration_set=cut["demonstration_set"]).row(0, named=True)
        assert whole["prompt"].startswith(cut["prompt"] + cut["continuations"][cut["gold"]])
        assert whole["demonstration_ids"][cut["n_shots"]] == cut["training_row"]
    baseline = table(run, "baselines").filter(dataset="queue", baseline="zero-shot").row(0, named=True)
    alone, _ = probabilities(run, "zero-shot", "queue")
    assert baseline["accuracy"] == pytest.approx((alone["pred"] == alone["gold"]).mean())
    assert baseline["difference"] == pytest.approx(right - baseline["accuracy"])
    assert "Learning curve" in (tmp_path / "run" / "report.html").read_text()
    assert "--sets needs --shots" in command("run", "decide", *words, *fake, "--sets", 2, exits=2)
    other = (*fake[:-1], tmp_path / "other")
    assert "none is left to ask" in command("run", "decide", *words, *other, "--shots", 20, "--sets", 9, exits=2)


def test_methods_ask_after_every_demonstration_set(tmp_path):
    write_table(tmp_path / "t.csv")
    (tmp_path / "q.toml").write_text(QUESTIONS.split("[refund]")[0])
    words = ("--data", tmp_path / "t.csv", "--input-column", "body", "--questions", tmp_path / "q.toml")
    fake = ("--engine", "fake", "--model", "fake", "--out", tmp_path / "run", "--parts", "letters,order")
    command("run", "decide", *words, *fake, "--shots", 3, "--sets", 2, "--methods", "vanilla,order_averaged,one_by_one")
    run = (tmp_path / "run",)
    asked = requests(run).filter(for_part="letters")
    n_queries = asked["query_id"].n_unique()
    for method, n_prompts in (("order_averaged", 4), ("one_by_one", 4)):
        rows = asked.filter(part=method)
        sets = rows.group_by("demonstration_set").agg(pl.len(), pl.col("demonstration_ids").unique())
        assert sets["len"].to_list() == [n_prompts * n_queries] * 2
        assert sets["demonstration_ids"].list.len().to_list() == [1, 1]
        answered, probs = probabilities(run, "letters", "queue", method)
        assert answered.select("query_id", "demonstration_set").is_unique().all()
        assert answered.height == 2 * n_queries
        np.testing.assert_allclose(probs.sum(axis=1), 1)
        of_sets = [probs[(answered["demonstration_set"] == number).to_numpy()] for number in (0, 1)]
        assert not np.allclose(*of_sets)
        if method == "order_averaged":  # the part `order` has the first set
            _, varied = probabilities(run, "order", "queue")
            logs = np.log(varied.reshape(4, -1, 4)).mean(axis=0)
            np.testing.assert_allclose(of_sets[0], softmax(logs, axis=1), rtol=1e-12)


def test_the_mean_over_orders_has_the_same_digits_whatever_the_order_of_rows():
    draw = np.random.default_rng(3)
    columns = {"suite": "decide", "dataset": "queue", "demonstration_set": 0, "part": "letters", "template": 0}
    asked = [columns | {"query_id": query, "label_log_likelihoods": [0.0] * 3} for query in range(40)]
    varied = [
        columns
        | {"query_id": query, "part": "order_averaged", "template": order, "label_log_likelihoods": list(scores)}
        for query in range(40)
        for order, scores in enumerate(draw.normal(-3, 2, (6, 3)))
    ]
    rows = pl.DataFrame(asked + varied)
    shuffled = [rows.head(40).vstack(rows.tail(-40).sample(fraction=1, shuffle=True, seed=seed)) for seed in range(9)]
    requests = [ScoredRequests(rows=one.lazy(), parts={}, answered_part="letters") for one in (rows, *shuffled)]
    first, *others = (
        order_averaged_probs(scored, "paper").collect(engine="streaming")["label_probs"] for scored in requests
    )
    assert all(probs.equals(first) for probs in others)


def test_changed_answers_and_distances_are_better_low_and_accuracies_high():
    assert {name.partition("_")[2]: text.lower_is_better for name, text in METRIC_TEXTS.items()} == {
        "flips": True,
        "distance": True,
        "accuracy": False,
        "first": False,
    }
