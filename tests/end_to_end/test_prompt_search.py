"""A search as a user types it: the command, its tables and its page; and the same on a model, counted apart."""

import hashlib
import json
import random
import zlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import evaluator
from evaluator.schemas import PREDICTIONS
from evaluator.suites.prompt_search.schema import SEARCH_CURVES, SEARCH_PROMPTS, SEARCH_RESULTS
from tests.command_line import command
from tests.end_to_end.processes import killed
from tests.report.reading import open_fresh

TABLES = ("predictions", "search_prompts", "search_results", "search_curves", "search_held_out_prediction")
FAKE = ("--model", "fake", "--engine", "fake")


def questions(folder: Path, n_examples: int = 40) -> Path:
    """A table of questions with two to four choices of one to three words; some have two right answers."""
    words = ["red", "dark green", "very pale blue", "grey"]
    rows = [
        {"id": f"q{n}", "input": f"Which colour is thing {n}?", "choices": words[: 2 + n % 3], "gold": [n % 2]}
        | ({"gold": [0, 2]} if n % 5 == 1 and n % 3 else {})
        for n in range(n_examples)
    ]
    path = folder / "colours.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def search(out: Path, data: Path, *more: object) -> str:
    return command("run", "prompt-search", "--data", data, "--id-column", "id", "--out", out, *more)


def tables(out: Path) -> dict[str, pl.DataFrame]:
    return {name: pl.read_parquet(out / "tables" / f"{name}.parquet") for name in TABLES}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return questions(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data):
    out = tmp_path_factory.mktemp("search") / "out"
    methods = "per_token,vanilla,per_byte,unconditional"
    search(out, data, "--datasets", "trec", "--tries", 6, "--queries", 20, "--methods", methods, *FAKE)
    return out


def test_a_search_leaves_its_tables_with_the_columns_they_are_declared_with(finished):
    found = tables(finished)
    assert found["predictions"].schema == PREDICTIONS
    assert found["search_prompts"].schema == SEARCH_PROMPTS
    assert found["search_results"].schema == SEARCH_RESULTS
    assert found["search_curves"].schema == SEARCH_CURVES
    # Two datasets, three numbers of shots, four methods, six tries, twenty queries.
    assert found["search_results"].height == 2 * 3 * 4
    assert found["search_prompts"].height == 2 * 3 * 4 * 6
    assert found["predictions"].height == 2 * 3 * 4 * 6 * 20
    record = json.loads((finished / "run.json").read_text())
    assert record["scores"]["label_boundary"] == "merged"
    assert record["prompts"]["datasets"] == ["trec", "colours"]


def test_the_best_prompts_of_all_searches_are_tested_against_guessing_together(finished):
    results = tables(finished)["search_results"]
    assert results["n_tests"].to_list() == [2 * results.height] * results.height
    assert results["p_value"].to_list() == pytest.approx([10**tail for tail in results["log10_tail"]])
    smallest = min(results["p_value"].min(), results["p_majority"].min())
    corrected = min(results["p_holm"].min(), results["p_majority_holm"].min())
    assert corrected == pytest.approx(min(1, 2 * results.height * smallest))
    assert results["better_than_uniform"].to_list() == [p <= 0.05 for p in results["p_holm"]]
    assert (results["accuracy_lower_bound"] < results["best_accuracy"]).all()


def test_every_count_of_a_search_follows_from_its_scores(finished, data):
    """Recounted in NumPy from the scores alone, row by row, with the correct choices of the file."""
    correct = {row["input"]: row["gold"] for row in map(json.loads, data.read_text().splitlines())}
    scored = evaluator.read_scores(finished).filter(dataset="colours", part="demonstrations")
    texts = evaluator.read_requests(finished).select("prompt_id", "prompt").unique()
    counts: dict[tuple[int, int], int] = {}
    for row in scored.join(texts, on="prompt_id").collect().to_dicts():
        means = np.array(row["label_log_likelihoods"]) / np.array(row["label_token_counts"])
        question = row["prompt"].rsplit("Q: ", 1)[1].split("\n")[0]
        key = (len(row["demonstration_ids"]), row["demonstration_set"])
        counts[key] = counts.get(key, 0) + (int(means.argmax()) in correct[question])
    measured = tables(finished)["search_prompts"].filter(dataset="colours", method="per_token")
    assert {(k, n): right for k, n, right in measured.select("n_shots", "prompt_number", "n_correct").rows()} == counts


def test_no_demonstration_is_ever_a_query(finished):
    requests = evaluator.read_requests(finished).filter(dataset="colours", part="demonstrations").collect()
    assert not set(requests["query_id"]) & set(requests["demonstration_ids"].explode())
    assert requests["query_id"].n_unique() == 20


def test_the_page_shows_the_results_the_curves_and_the_text_of_the_best_prompts(finished, browser):
    page = open_fresh(browser, finished / "report.html")
    assert page.get_log("browser") == []
    shown = page.execute_script("""return [...document.querySelectorAll(".searched tbody tr")].map((row) => {
      const best = row.querySelector("[data-number=best_accuracy]");
      return [row.dataset.dataset, Number(row.dataset.shots), Number(best.dataset.value)]; })""")
    results = tables(finished)["search_results"]
    expected = results.select("dataset", "n_shots", "best_accuracy").rows()
    assert sorted(map(tuple, shown)) == sorted(expected)
    best = tables(finished)["search_prompts"].filter(method="vanilla", dataset="colours", n_shots=4)
    text = best.sort("n_correct", "prompt_number", descending=[True, False])["text"][0]
    assert text in page.execute_script(
        """return [...document.querySelectorAll(".best pre")].map((e) => e.textContent)"""
    )
    assert page.execute_script("""return document.querySelectorAll(".curves svg").length""") == 2 * 4 * 3


def test_another_search_in_the_same_folder_never_takes_the_scores_of_the_first(tmp_path, data):
    search(tmp_path / "a", data, "--tries", 2, "--shots", 1, *FAKE)
    search(tmp_path / "a", data, "--tries", 2, "--shots", 2, "--force", *FAKE)
    search(tmp_path / "b", data, "--tries", 2, "--shots", 2, *FAKE)
    assert {*tables(tmp_path / "a")} == {*TABLES}
    for name, table in tables(tmp_path / "a").items():
        assert table.equals(tables(tmp_path / "b")[name])


def test_instructions_and_templates_are_searched_with_one_demonstration_set(tmp_path, data):
    candidates = tmp_path / "candidates.json"
    stated = {"instructions": ["Choose.", "Answer.", "Choose."], "templates": [{"output_prefix": " ->"}]}
    candidates.write_text(json.dumps(stated))
    search(tmp_path / "out", data, "--candidates", candidates, "--shots", "0,2", "--queries", 5, *FAKE)
    results = tables(tmp_path / "out")["search_results"]
    found = results.select("part", "n_shots", "n_prompts", "tries").sort("part", "n_shots").rows()
    # An instruction that stands there twice is one try.
    assert found == [
        ("instructions", 0, 3, 2),
        ("instructions", 2, 3, 2),
        ("templates", 0, 1, 1),
        ("templates", 2, 1, 1),
    ]
    texts = tables(tmp_path / "out")["search_prompts"].filter(n_shots=0)["text"].to_list()
    assert texts[0] == "Choose.\nQ: {input}\n  choice: {choices}\nA:"
    assert texts[3] == "Q: {input}\n  choice: {choices} ->"


HALVED = ("--halving", "--tries", 16, "--shots", 2, "--queries", 32, *FAKE)


@pytest.fixture(scope="module")
def halved(tmp_path_factory, data):
    out = tmp_path_factory.mktemp("halved") / "out"
    search(out, data, *HALVED)
    return out


def test_halving_asks_less_and_says_of_every_prompt_what_it_answered(halved, tmp_path, data):
    search(tmp_path, data, *HALVED[1:])
    prompts, whole = tables(halved)["search_prompts"], tables(tmp_path)["search_prompts"]
    # Rounds of 16 and 32 queries: what is not stopped after the first answers all.
    assert set(prompts["n_queries"]) == {16, 32}
    assert (prompts["is_stopped"] == (prompts["n_queries"] == 16)).all()
    complete = prompts.filter(n_queries=32)
    assert 8 <= complete.height < 16
    assert complete["n_correct"].equals(whole.join(complete, on="prompt_number", how="semi")["n_correct"])
    (result,) = tables(halved)["search_results"].to_dicts()
    assert (result["tries"], result["n_stopped"]) == (16, 16 - complete.height)
    assert "the worse half of the prompts was stopped" in (halved / "report.html").read_text()
    scored = evaluator.read_scores(halved).collect().height
    assert scored == prompts["n_queries"].sum() < 16 * 32


def test_a_halved_search_killed_in_its_second_round_ends_with_the_same_tables(halved, tmp_path, data):
    out = tmp_path / "killed"
    words = ("run", "prompt-search", "--data", data, "--id-column", "id", *HALVED, "--out", out)
    killed(*words, at_call=2)
    assert len([*out.glob("scores/*/*/scores-*.arrow")]) == 1
    command(*words)
    for name, table in tables(halved).items():
        assert table.equals(tables(out)[name])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "staicc-normal", "--tries", 5, *FAKE), "--tries belongs to prompt-search"),
        (("run", "staicc-normal", "--shots", "1,2", *FAKE), "suites that take several: prompt-search, pvi"),
        (("run", "prompt-search", "--shots", "one", *FAKE), "--shots takes whole numbers"),
        (("run", "prompt-search", *FAKE), "No dataset was named. Name some with --datasets"),
        (("run", "prompt-search", "--datasets", "trec", "--definition", "released", *FAKE), "--definition released"),
        (("run", "prompt-search", "--data", "/no/such/file", *FAKE), "/no/such/file does not exist"),
        (("run", "prompt-search", "staicc-normal", "--datasets", "trec", *FAKE), "must be the only suite of a run"),
    ],
)
def test_a_users_mistake_ends_with_exit_code_2_and_says_how_to_mend_it(tmp_path, words, message):
    assert message in command(*words, "--out", tmp_path / "out", exits=2)


def test_choices_that_tokenise_alike_are_refused_with_their_file_and_row(tmp_path):
    # The fake tokenizer numbers words by 20 bits of a hash, which some words share.
    first, second = colliding_words()
    rows = [{"input": f"{n}?", "choices": ["a", "b"], "gold": 0} for n in range(11)]
    rows.append({"input": "11?", "choices": [first, second], "gold": 0})
    path = tmp_path / "alike.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = command(
        *("run", "prompt-search", "--data", path, "--shots", 1, "--tries", 1, "--queries", 11, *FAKE),
        *("--out", tmp_path / "out", "--seed", seed_that_asks_row(11)),
        exits=2,
    )
    assert f"{path}, row 11 (from 0): Labels" in said
    assert "tokenise identically" in said


def colliding_words() -> tuple[str, str]:
    seen: dict[int, str] = {}
    for number in range(100_000):
        word = hashlib.sha256(str(number).encode()).hexdigest()
        token = zlib.crc32(f" {word}".encode()) % 2**20
        if token in seen:
            return seen[token], word
        seen[token] = word
    raise AssertionError("no two words collide")


def seed_that_asks_row(row: int) -> int:
    for seed in range(100):
        if row in random.Random(f"queries, seed {seed}").sample(range(12), 12)[:11]:
            return seed
    raise AssertionError("no seed asks it")


def test_scores_of_a_model_are_those_of_transformers_on_the_whole_text(tmp_path, data, tiny_model):
    """Mean log-likelihood of each choice's tokens, from one plain pass over prompt and choice together."""
    search(
        tmp_path, data, "--model", tiny_model, "--engine", "transformers", "--tries", 2, "--shots", 2, "--queries", 6
    )
    tokenizer, model = AutoTokenizer.from_pretrained(tiny_model), AutoModelForCausalLM.from_pretrained(tiny_model)
    texts = evaluator.read_requests(tmp_path).select("prompt_id", "prompt").unique().collect()
    scored = evaluator.read_scores(tmp_path).collect().join(texts, on="prompt_id")
    assert scored.height == 12
    for row in scored.to_dicts():
        wholes = [tokenizer(row["prompt"] + " " + name)["input_ids"] for name in row["label_names"]]
        bare = tokenizer(row["prompt"])["input_ids"]
        start_of_label = next(
            (i for i, tokens in enumerate(zip(bare, *wholes, strict=False)) if len(set(tokens)) > 1), len(bare)
        )
        for ids, found, count in zip(wholes, row["label_log_likelihoods"], row["label_token_counts"], strict=True):
            with torch.inference_mode():
                log_probs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            steps = [log_probs[i - 1, ids[i]].item() for i in range(start_of_label, len(ids))]
            assert count == len(steps)
            assert found == pytest.approx(sum(steps), abs=1e-4)
    assert tables(tmp_path)["search_results"]["best_accuracy"].is_between(0, 1).all()
