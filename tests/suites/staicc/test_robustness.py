import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from evaluator.config import DataOptions, RunConfig
from evaluator.datasets.sources import load_datasets
from evaluator.errors import ConfigError, TemplateError
from evaluator.prompts.rows import normal_requests
from evaluator.suites import SUITE_GROUPS, SUITES
from evaluator.suites.staicc.robustness import VARIABLES
from tests.toolkit import our_dataset

NAME = "financial_phrasebank"


def asked(n_shots=4, dataset=None, **config) -> pl.DataFrame:
    run = RunConfig(suites=("staicc-robustness",), datasets=(NAME,), n_shots=n_shots, **config)
    return pl.concat(SUITES["staicc-robustness"].requests(dataset or our_dataset(NAME), run).rows)


def normal(n_shots=4) -> pl.DataFrame:
    return pl.concat(normal_requests(our_dataset(NAME), n_shots=n_shots, n_queries=None))


@pytest.mark.parametrize("n_shots", [0, 1, 4, 16])
@pytest.mark.parametrize(
    ("definition", "counts"),
    [
        # 512 queries twice at 5 rates; the same in 9 templates, or 100 once; 8 sets for 512 queries, or for 128.
        ("paper", {"gler": 5 * 1024, "template": 9 * 1024, "sampling": 8 * 512}),
        ("released", {"gler": 5 * 1024, "template": 9 * 100, "sampling": 8 * 128}),
    ],
)
def test_each_part_has_its_number_of_prompts_in_places_without_gaps(definition, counts, n_shots):
    rows = asked(n_shots, definitions=(definition,))
    assert dict(rows["part"].value_counts().iter_rows()) == counts
    for part, count in counts.items():
        assert rows.filter(part=part)["position"].to_list() == list(range(count))


@pytest.mark.parametrize("n_shots", [0, 4])
def test_the_first_rate_the_first_template_and_the_first_two_sets_ask_what_staicc_normal_asks(n_shots):
    rows = asked(n_shots, definitions=("paper",))
    for part in ("gler", "template"):
        assert_frame_equal(rows.filter(part=part, template=0, noise_rate=0.0).drop("part"), normal(n_shots))
    two_sets = rows.filter(pl.col("part") == "sampling", pl.col("demonstration_set") < 2)
    assert_frame_equal(two_sets.drop("part"), normal(n_shots))


def test_released_templates_and_sets_begin_with_prompts_of_staicc_normal():
    rows, expected = asked(definitions=("released",)), normal()["prompt"].to_list()
    assert rows.filter(part="template", template=0)["prompt"].to_list() == expected[:100]
    # One generator runs through all prompts: the first four sets of 128 queries are those of the first 512 prompts.
    assert rows.filter(part="sampling")["demonstration_ids"].to_list() == normal()["demonstration_ids"].to_list()
    assert rows.filter(part="sampling", demonstration_set=0)["prompt"].to_list() == expected[:128]


def test_a_template_changes_the_words_around_a_query_and_neither_query_nor_demonstrations():
    rows = asked(definitions=("paper",), n_queries=3).filter(part="template")
    for template in range(9):
        shown = rows.filter(template=template)
        assert shown["demonstration_ids"].to_list() == rows.filter(template=0)["demonstration_ids"].to_list()
        assert shown["gold"].to_list() == rows.filter(template=0)["gold"].to_list()
    # Row 4 of the array is (1, 1, 2, 0): first instruction, "text: ", "Label: ", and the line end.
    last = rows.filter(template=4, query_id=2, demonstration_set=1)["prompt"].item()
    opening, *lines = last.split("text: ")
    assert opening == "What is the attitude towards the financial news in this sentence? "
    assert [line.rsplit("Label: ", 1)[1] for line in lines[:-1]] == [
        f"{our_dataset(NAME).verbalizer.label_names[gold]}\n"
        for gold in our_dataset(NAME)
        .demonstration["gold"]
        .gather(rows.filter(template=4, query_id=2, demonstration_set=1)["demonstration_ids"].item().to_list())
    ]
    assert lines[-1] == our_dataset(NAME).test["texts"][2][0] + " Label: "


def test_without_demonstrations_neither_noise_nor_sets_change_a_prompt():
    rows = asked(0, definitions=("paper",), n_queries=20)
    for part, varied in (("gler", "noise_rate"), ("sampling", "demonstration_set")):
        by_query = (
            rows.filter(part=part).group_by("query_id").agg(pl.col("prompt").n_unique(), pl.col(varied).n_unique())
        )
        assert set(by_query["prompt"]) == {1}
        assert set(by_query[varied]) == {5 if part == "gler" else 8}


@pytest.mark.parametrize("definition", ["paper", "released"])
@pytest.mark.parametrize("n_queries", [3, 110, 300])
def test_fewer_queries_are_a_part_of_the_full_benchmark(definition, n_queries):
    full, few = (asked(definitions=(definition,), n_queries=each) for each in (None, n_queries))
    assert_frame_equal(few, full.filter(pl.col("query_id") < n_queries))
    # Released templates have 100 queries, released sets 128.
    n_templates, n_sets = (
        (n_queries * 2, n_queries) if definition == "paper" else (min(n_queries, 100), min(n_queries, 128))
    )
    counts = {"gler": 5 * 2 * n_queries, "template": 9 * n_templates, "sampling": 8 * n_sets}
    assert dict(few["part"].value_counts().iter_rows()) == counts


def test_more_queries_than_there_are_are_refused():
    with pytest.raises(ConfigError, match=f"--queries 513: the test split of {NAME} has 512"):
        asked(definitions=("released",), n_queries=513)


def test_a_dataset_without_alternative_templates_is_refused_by_name():
    with pytest.raises(TemplateError, match=f"{NAME} has no alternative templates"):
        asked(dataset=replace(our_dataset(NAME), alternative_templates=()))


def test_more_shots_than_demonstrations_are_refused():
    with pytest.raises(TemplateError, match="513 shots were asked for"):
        asked(513)


def test_the_group_staicc_is_of_known_suites_that_ask_no_part_twice():
    names = SUITE_GROUPS["staicc"]
    run = RunConfig(suites=names, datasets=(NAME,), n_queries=1)
    parts = [
        part
        for name in names
        for part in pl.concat(SUITES[name].requests(our_dataset(NAME), run).rows)["part"].unique()
    ]
    assert sorted(parts) == ["contextual", "domain", "gler", "normal", "sampling", "template"]
    assert "staicc-demonstrations" not in names


@pytest.mark.parametrize("name", [name for name in SUITES if name.startswith("staicc-")])
def test_only_parts_that_a_suite_says_differ_between_definitions_do(name):
    by_definition = {}
    for definition in ("paper", "released"):
        run = RunConfig(suites=(name,), datasets=(NAME,), n_queries=128, definitions=(definition,))
        rows = pl.concat(SUITES[name].requests(our_dataset(NAME), run).rows)
        by_definition[definition] = {part: rows.filter(part=part) for part in rows["part"].unique()}
    assert set(by_definition["paper"]) == set(SUITES[name].parts)
    differing = {
        part for part, rows in by_definition["paper"].items() if not rows.equals(by_definition["released"][part])
    }
    assert differing == {part for part, about in SUITES[name].parts.items() if about.prompts_differ}


def variables(**config) -> pl.DataFrame:
    run = RunConfig(suites=("staicc-variables",), datasets=(NAME,), n_queries=6, **config)
    return pl.concat(SUITES["staicc-variables"].requests(our_dataset(NAME), run).rows)


def test_level_0_of_every_variable_is_the_first_set_of_staicc_normal_and_other_levels_change_that_variable_alone():
    rows, first = variables(), normal().head(6)
    for part, column in VARIABLES.items():
        levels = rows.filter(part=part)
        assert levels[column].unique(maintain_order=True).to_list() == [*range(8)]
        assert_frame_equal(levels.filter(**{column: 0}).drop("part"), first)
        assert levels["prompt"].n_unique() > (36 if part == "order" else 47)  # drawn orders can be equal
    shown = rows.with_columns(ids=pl.col("demonstration_ids").list.sort().over("part"))
    of_order = shown.filter(part="order")
    assert of_order.group_by("query_id").agg(pl.col("ids").n_unique())["ids"].to_list() == [1] * 6
    assert of_order.group_by("query_id").agg(pl.col("demonstration_ids").n_unique())["demonstration_ids"].min() > 4
    for part in ("connector", "verbalizer"):
        same = rows.filter(part=part).group_by("query_id").agg(pl.col("demonstration_ids", "gold").n_unique())
        assert same["demonstration_ids"].to_list() == same["gold"].to_list() == [1] * 6


def test_verbalizers_show_and_ask_for_their_own_words():
    rows = variables().filter(part="verbalizer", query_id=0)
    assert rows["label_names"].to_list()[1:4] == [
        ["Negative", "Neutral", "Positive"], ["NEGATIVE", "NEUTRAL", "POSITIVE"], ["A", "B", "C"],
    ]  # fmt: skip
    assert rows["continuations"].to_list() == rows["label_names"].to_list()
    gold = our_dataset(NAME).demonstration["gold"].gather(rows["demonstration_ids"][0])
    lines = rows.filter(template=3)["prompt"].item().splitlines()
    assert [line.rsplit("sentiment: ", 1)[1] for line in lines[:-1]] == ["ABC"[label] for label in gold]


def test_a_split_deals_the_rows_anew_and_a_row_has_one_id_in_all_of_them():
    dataset, rows = our_dataset(NAME), variables().filter(part="split")
    # 512 demonstrations and 512 queries.
    pool = pl.concat([dataset.demonstration, dataset.test])["texts"].list.first().to_list()
    once = [place for place, text in enumerate(pool) if pool.count(text) == 1]
    dealt = np.arange(1024)
    dealt[once] = np.random.default_rng(3).permutation(once)  # texts that occur twice stay
    asked = rows.filter(demonstration_set=3)
    assert asked["query_id"].to_list() == [(place - 512) % 1024 for place in dealt[512:518]]
    queries = [*pool[512:], *pool[:512]]
    for prompt, query, shown in asked.select("prompt", "query_id", "demonstration_ids").iter_rows():
        assert prompt.endswith(f"sentence: {queries[query]} sentiment: ")
        lines = [line.removeprefix("sentence: ").rsplit(" sentiment: ")[0] for line in prompt.split("\n")[:-1]]
        assert lines == [pool[row] for row in shown]
    level_0 = rows.filter(demonstration_set=0)
    assert level_0["query_id"].to_list() == [*range(6)]


def own(texts: list[str], labels: list[str], folder) -> pl.DataFrame:
    """The prompts of staicc-variables, of a table of one's own."""
    pl.DataFrame({"text": texts, "label": labels}).write_csv(folder / "own.csv")
    data = DataOptions(paths=(folder / "own.csv",))
    run = RunConfig(suites=("staicc-variables",), n_shots=3, data=data)
    (dataset,) = load_datasets((), data)
    suite = SUITES["staicc-variables"]
    return pl.concat(suite.requests(suite.take(dataset, run), run).rows)


def test_no_demonstration_of_a_split_has_the_texts_of_a_query_and_each_shows_every_label(tmp_path):
    # Ten texts occur twice, and of the label c there are only three rows: one is a demonstration.
    texts = [f"t{n}t" for n in range(60)] + [f"t{n}t" for n in range(10)] + ["t60t", "t61t", "t62t"]
    rows = own(texts, ["a", "b"] * 35 + ["c"] * 3, tmp_path).filter(part="split")
    assert rows["demonstration_set"].unique().to_list() == [*range(8)]
    for level in rows.partition_by("demonstration_set"):
        asked = {prompt.rsplit("text: ")[-1].split("\n")[0] for prompt in level["prompt"]}
        shown = {text for prompt in level["prompt"] for text in re.findall(r"text: (\w+)\nlabel: [abc]\n", prompt)}
        assert not asked & shown
        assert {*level["gold"]} == {0, 1, 2}
        for prompt in level["prompt"]:
            assert sorted(re.findall("label: ([abc])\n", prompt)) == ["a", "b", "c"]


def test_verbalizers_that_are_one_are_asked_once(tmp_path, caplog):
    texts = [f"text {n}" for n in range(40)]
    rows = own(texts, ["A", "B"] * 20, tmp_path).filter(part="verbalizer")
    names = rows["label_names"].unique(maintain_order=True).to_list()
    assert names == [["A", "B"], ["a", "b"], ["0", "1"], ["label 1", "label 2"], ["it is A", "it is B"]]
    assert rows["template"].unique().to_list() == [*range(5)]
    assert "own: 5 of 8 verbalizers are different" in caplog.text
    # Capitalised, "us" and "Us" would be one label.
    names = own(texts, ["us", "Us"] * 20, tmp_path).filter(part="verbalizer")["label_names"]
    assert ["Us", "Us"] not in names.to_list()
