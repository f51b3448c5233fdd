from dataclasses import replace

import polars as pl
import pytest

from evaluator.datasets.staicc import load_staicc
from evaluator.errors import ConfigError, DatasetError
from evaluator.suites.in_context_pvi.prompts import PviOptions, demonstration_sets, pvi_prompts, resolved_options
from evaluator.suites.in_context_pvi.schema import PVI_QUERIES
from tests.shared_data import shared_data
from tests.suites.in_context_pvi.pvi_config import pvi_config, read_dataset
from tests.suites.in_context_pvi.pvi_folder import GOLD, write_folder


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path)


def asked(folder, name, n_queries=None, **options):
    config = pvi_config(folder, datasets=(name,), **options)
    dataset = read_dataset(config)
    rows = pl.concat(pvi_prompts(dataset, resolved_options(config), n_queries).rows)
    return dataset, rows.filter(part="input"), rows.filter(part="null")


def test_an_input_prompt_is_the_published_text_and_the_query_without_a_last_space(folder):
    _, inputs, _ = asked(folder, "snli", source="published", sets=2)
    texts = pl.read_parquet(folder / "prompts.parquet").filter(kind="g_prime")
    for n_shots, number, query, prompt in inputs.select("n_shots", "demonstration_set", "query_id", "prompt").rows():
        text = texts.filter(shots=n_shots, prompt_set=str(number + 1))["text"].item()
        assert prompt == (
            f"{text}SENTENCE1: Dog {query} runs.\nSENTENCE2: Animal {query} moves.\n"
            "QUESTION: Is this (0) contradiction, (1) entailment, or (2) neutral?\nANSWER:"
        )
    assert inputs.height == 2 * 2 * 30


def test_each_set_has_one_null_prompt_without_any_input(folder):
    _, _, null = asked(folder, "snli", source="published", sets=2)
    texts = pl.read_parquet(folder / "prompts.parquet").filter(kind="g").sort("shots", "prompt_set")["text"]
    assert null["prompt"].to_list() == [f"{text}ANSWER:" for text in texts]
    assert null.select("position", "n_shots", "demonstration_set").rows() == [
        (0, 3, 0),
        (1, 3, 1),
        (2, 6, 0),
        (3, 6, 1),
    ]
    assert null["query_id"].null_count() == null["gold"].null_count() == 4


def test_positions_count_shots_then_sets_then_all_queries_whatever_part_is_asked(folder):
    _, inputs, null = asked(folder, "cola", 5, sets=3)
    # Nine test rows in all: shots 4 are the first of two numbers, shots 8 the second.
    expected = [
        (place * 9 + query, n_shots, number, query)
        for place, (n_shots, number) in enumerate((n_shots, number) for n_shots in (4, 8) for number in range(3))
        for query in range(5)
    ]
    assert inputs.select("position", "n_shots", "demonstration_set", "query_id").rows() == expected
    assert null["position"].to_list() == list(range(6))


def test_rows_carry_the_gold_labels_and_digits_with_a_space_before_them(folder):
    dataset, inputs, null = asked(folder, "snli", sets=1, shots=(3,))
    golds = [n % 3 for n in dataset.test["source_row"]]
    assert inputs["gold"].to_list() == golds
    for rows in (inputs, null):
        assert rows["label_names"].unique().to_list() == [["0", "1", "2"]]
        assert rows["continuations"].unique().to_list() == [[" 0", " 1", " 2"]]
    assert inputs["demonstration_ids"].list.len().unique().to_list() == [3]


def test_no_query_stands_among_the_demonstrations_of_any_set(folder):
    # All twelve training sentences are asked as well, behind the nine of the test table.
    tables = [pl.read_parquet(folder / f"cola_in_domain_{split}.parquet") for split in ("dev", "train")]
    pl.concat(tables).write_parquet(folder / "cola_in_domain_dev.parquet")
    _, inputs, _ = asked(folder, "cola", sets=1, shots=(4, 6))
    question = "QUESTION: Is this (0) unacceptable, or (1) acceptable?\nANSWER:"
    for prompt in inputs["prompt"]:
        query = prompt.removesuffix(question).rsplit("CONTEXT: ", 1)[1]
        assert prompt.count(query) == 1
    assert inputs["query_id"].value_counts()["count"].unique().to_list() == [2]
    shown = set(inputs["demonstration_ids"].explode())
    assert len(shown) == 6
    assert set(inputs["query_id"]) == set(range(21)) - {9 + row for row in shown}


def test_queries_whose_text_is_shown_stay_in_the_table_of_queries_as_not_asked(folder):
    rows = pl.read_parquet(folder / "snli_test.parquet")
    shown = pl.DataFrame({"sentence1": ["Cat 1  "], "sentence2": ["Pet 1"], "gold_label": ["neutral"]})
    rows[:4].vstack(shown).write_parquet(folder / "snli_test.parquet")
    texts = pl.read_parquet(folder / "prompts.parquet")
    question = "QUESTION: Is this (0) contradiction, (1) entailment, or (2) neutral?\n"
    texts.with_columns(pl.col("text").str.replace_all("QUESTION: Which?\n", question, literal=True)).write_parquet(
        folder / "prompts.parquet"
    )
    dataset, inputs, _ = asked(folder, "snli", source="published", sets=2)
    assert inputs["query_id"].unique().sort().to_list() == [0, 1, 2, 3]
    assert inputs["position"].max() == 3 * 5 + 3
    queries = pvi_prompts(dataset, resolved_options(pvi_config(folder, source="published", sets=2)), None).tables[
        "pvi_queries"
    ]
    assert queries.schema == PVI_QUERIES
    assert queries["asked"].to_list() == [True] * 4 + [False]
    assert queries.row(4, named=True)["text"] == "Cat 1  \nPet 1"
    assert [GOLD[gold] for gold in queries["gold"]] == [
        "contradiction",
        "entailment",
        "neutral",
        "contradiction",
        "neutral",
    ]


def test_more_queries_than_there_are_and_none_left_are_refused(folder):
    with pytest.raises(ConfigError, match="--queries 10: cola has only 9 test rows"):
        asked(folder, "cola", 10)
    cola = pl.read_parquet(folder / "cola_in_domain_train.parquet")[:4]
    for split in ("train", "dev"):
        cola.write_parquet(folder / f"cola_in_domain_{split}.parquet")
    with pytest.raises(DatasetError, match="cola: every query is also a demonstration"):
        asked(folder, "cola", shots=(4,), sets=1)


def test_datasets_of_staicc_are_asked_with_their_own_template_and_labels():
    sst5 = load_staicc("sst5")
    rows = pl.concat(pvi_prompts(sst5, PviOptions(sets=1, shots=(2,)), 3).rows)
    prompt, ids = rows.filter(part="input").select("prompt", "demonstration_ids").row(0)
    names = sst5.verbalizer.label_names
    shown = sst5.demonstration[ids].select(pl.col("texts").list.first(), "gold").rows()
    query = sst5.test["texts"][0][0]
    before = "".join(f"sentence: {text} sentiment: {names[gold]}\n" for text, gold in shown)
    assert prompt == f"{before}sentence: {query} sentiment:"
    assert (
        rows.filter(part="null")["prompt"].item()
        == "".join(f"sentiment: {names[gold]}\n" for _, gold in shown) + "sentiment:"
    )
    assert rows["continuations"][0].to_list() == [f" {name}" for name in names]


def test_a_query_that_begins_as_a_demonstration_does_is_asked():
    # A space ends the input, so that "sentence: a good " is a part of "sentence: a good film sentiment: ".
    sst5, options = load_staicc("sst5"), PviOptions(sets=1, shots=(2,))
    first, _ = demonstration_sets(sst5, options)[0].rows
    text = sst5.demonstration["texts"][first][0]
    texts = pl.Series([[" ".join(text.split(" ")[:2])], [text]])
    queries = replace(sst5, test=sst5.test.head(2).with_columns(texts=texts))
    assert pvi_prompts(queries, options, None).tables["pvi_queries"]["asked"].to_list() == [True, False]


def test_an_instruction_stands_before_the_null_prompt_too(folder):
    dataset, _, _ = asked(folder, "snli")
    told = replace(dataset, template=replace(dataset.template, instruction="Answer.\n", query_prefix="Now: "))
    rows = pl.concat(pvi_prompts(told, PviOptions(sets=1, shots=(1,)), 1).rows)
    ((prompt,), (null,)) = (rows.filter(part=part)["prompt"] for part in ("input", "null"))
    assert prompt.startswith("Answer.\nSENTENCE1: Dog ")
    assert "\n\nNow: SENTENCE1: Dog " in prompt
    assert null.startswith("Answer.\nANSWER: ")
    assert null.endswith("\n\nNow: ANSWER:")


# What the released code asks of each dataset (utils.py, prepare_data), Causal Language's in the words of its own
# demonstrations.
QUESTIONS = {
    "boolq": "SENTENCE1: {}\nSENTENCE2: {}\nQUESTION: Is this (0) True, or (1) False?\nANSWER:",
    "cola": "CONTEXT: {}\nQUESTION: Is this (0) unacceptable, or (1) acceptable?\nANSWER:",
    "multinli": "SENTENCE1: {}\nSENTENCE2: {}\n"
    "QUESTION: Is this (0) contradiction, (1) entailment, or (2) neutral?\nANSWER:",
    "rte": "SENTENCE1: {}\nSENTENCE2: {}\nQUESTION: Is this (0) entailment, or (1) not_entailment?\nANSWER:",
    "snli": "SENTENCE1: {}\nSENTENCE2: {}\n"
    "QUESTION: Is this (0) contradiction, (1) entailment, or (2) neutral?\nANSWER:",
    "health_advice": "CONTEXT: {}\nQUESTION: Is this (0) no advice, (1) weak advice, or (2) strong advice?\nANSWER:",
    "causal_language": "CONTEXT: {}\nQUESTION: Is this (0) no relationship, (1) correlation, (2) conditional "
    "causation, or (3) direct causation?\nANSWER:",
}
FILES = {
    "boolq": ("boolq_dev", ["question", "passage"], "boolq"),
    "cola": ("cola_in_domain_dev", ["sentence"], "cola"),
    "multinli": ("multinli_dev_matched", ["sentence1", "sentence2"], "multinli"),
    "rte": ("rte_dev", ["premise", "hypothesis"], "rte"),
    "snli": ("snli_test", ["sentence1", "sentence2"], "snli"),
    "health_advice": ("health_advice_structured_abstract", ["sentence"], "advice"),
    "causal_language": ("causal_language", ["sentence"], "pubmed"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_prompts_of_the_published_datasets_are_the_published_texts_and_the_query(name):
    data = shared_data("pvi")
    file, columns, published = FILES[name]
    texts = pl.read_parquet(data / "prompts.parquet").filter(dataset=published)
    found = {(row["kind"], row["shots"], row["prompt_set"]): row["text"] for row in texts.to_dicts()}
    rows = pl.read_parquet(data / f"{file}.parquet").select(columns).head(20).rows()
    _, inputs, null = asked(data, name, 20, source="published")
    settings = inputs.select("n_shots", "demonstration_set", "query_id", "prompt").rows()
    assert len({(n_shots, number) for n_shots, number, *_ in settings}) == 6
    for n_shots, number, query, prompt in settings:
        assert prompt == found["g_prime", n_shots, str(number + 1)] + QUESTIONS[name].format(*rows[query])
    nulls = {
        (n_shots, number): prompt
        for n_shots, number, prompt in null.select("n_shots", "demonstration_set", "prompt").rows()
    }
    assert nulls == {
        (n_shots, int(prompt_set) - 1): f"{text}ANSWER:"
        for (kind, n_shots, prompt_set), text in found.items()
        if kind == "g"
    }


def test_every_query_of_multinli_is_asked_behind_every_published_set():
    _, inputs, null = asked(shared_data("pvi"), "multinli", source="published")
    assert (inputs.height, null.height) == (58_890, 6)
    assert sorted(inputs["position"]) == list(range(58_890))
