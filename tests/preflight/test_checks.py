import polars as pl

from evaluator.preflight.checks import (
    Classes,
    LabelSpace,
    Sets,
    SplitLabels,
    class_findings,
    demonstration_sets,
    detectable,
    label_findings,
    label_spaces,
    longest_prompts,
    prompt_kinds,
    set_finding,
    space_findings,
)
from evaluator.store import PromptStore, as_request_rows, write_store
from tests.tokens.token_frames import token_table


def found(*labels):
    """The findings about labels, each a text and its tokens."""
    texts, tokens = zip(*labels, strict=True)
    return {one.name: one.text for one in label_findings("zoo", [LabelSpace([*texts], [*tokens])])}


def test_labels_of_different_first_tokens_are_fine():
    assert found(("good", [1]), ("bad", [2, 3])) == {}


def test_labels_that_begin_with_the_same_token_are_noted():
    assert "'very good' and 'very bad'" in found(("very good", [1, 2]), ("very bad", [1, 3]))["first-token-shared"]


def test_a_label_that_begins_another_is_a_warning_about_the_longer_one():
    text = found(("not sure", [5, 6]), ("not", [5]))["label-begins-label"]
    assert "'not' are the beginning of those of 'not sure'" in text


def test_choices_of_several_queries_are_counted():
    spaces = [LabelSpace(["a", "b"], [[1], [2]]), LabelSpace(["a", "ab"], [[1], [1, 2]])]
    (one,) = label_findings("zoo", spaces)
    assert "(in 1 of 2 label spaces)" in one.text


def zoo_and_farm(folder) -> tuple[PromptStore, pl.LazyFrame]:
    """Two datasets that share the prompt "cow ", and the tokens of all their prompts but "pig"."""
    asked = [
        ("zoo", "cow ", ["a", "b"]),
        ("zoo", "ape", ["a", "b"]),
        ("zoo", "ant", ["a", "c "]),
        ("farm", "cow ", ["a", "b"]),
        ("farm", "cow ", ["a", "b"]),
        ("farm", "pig", ["a", "b"]),
        ("farm", "hen\n", ["a"]),
    ]
    datasets, prompts, continuations = zip(*asked, strict=True)
    rows = {"dataset": datasets, "prompt": prompts, "continuations": continuations, "position": range(len(asked))}
    store = write_store(
        folder / "store", as_request_rows(pl.DataFrame({"suite": "s", "part": "p", "ask": "labels", **rows})).lazy()
    )
    number = {"a": [1], "b": [2], "c ": [3, 4]}
    tokens = token_table(
        *(
            (prompt_id, [9] * len(prompt), [number[text] for text in texts])
            for prompt_id, prompt, texts in store.prompts()
            .select("prompt_id", "prompt", "continuations")
            .collect()
            .rows()
            if prompt != "pig"
        )
    )
    return store, tokens.lazy()


def test_the_longest_prompt_of_a_dataset_is_counted_with_its_longest_label(tmp_path):
    store, tokens = zoo_and_farm(tmp_path)
    assert longest_prompts(prompt_kinds(store, tokens, "separate")) == {"zoo": 3 + 2, "farm": 4 + 1}


def test_label_spaces_are_told_apart_and_the_most_frequent_comes_first(tmp_path):
    store, tokens = zoo_and_farm(tmp_path)
    ab, ac = LabelSpace(["a", "b"], [[1], [2]]), LabelSpace(["a", "c "], [[1], [3, 4]])
    # A single continuation is no label space.
    assert label_spaces(prompt_kinds(store, tokens, "separate"), store, tokens) == {"zoo": [ab, ac], "farm": [ab]}


def test_prompts_and_labels_that_end_in_a_space_are_counted_once_a_dataset(tmp_path):
    store, tokens = zoo_and_farm(tmp_path)
    texts = {one.dataset: [] for one in space_findings(prompt_kinds(store, tokens, "separate"))}
    for one in space_findings(prompt_kinds(store, tokens, "separate")):
        texts[one.dataset].append(one.text)
    assert [text[: text.index(" end")] for text in texts["zoo"]] == ["1 of 3 prompts", "Labels of 1 of 3 prompts"]
    assert [text[: text.index(" end")] for text in texts["farm"]] == ["1 of 3 prompts"]  # no line break, no repeat
    merged = [*space_findings(prompt_kinds(store, tokens, "merged"))]
    assert [one.text[:6] for one in merged] == ["Labels"]


def names(counted):
    return [one.name for one in class_findings("zoo", counted, None)]


def test_a_class_of_four_fifths_is_a_warning():
    assert names(Classes(100, {"no": 79, "yes": 21})) == []
    assert names(Classes(100, {"no": 80, "yes": 20})) == ["imbalanced-classes"]


def test_a_class_that_no_query_has_is_named():
    (one,) = class_findings("zoo", Classes(10, {"no": 5, "yes": 5, "maybe": 0}), None)
    assert one.name == "class-not-drawn"
    assert "'maybe'" in one.text


def test_demonstrations_that_cannot_show_all_labels_are_noted():
    (one,) = set_finding("zoo", Sets(10, 10, 4), n_labels=6)
    assert one.text == "10 of 10 demonstration sets lack a label: 4 demonstrations cannot show 6 labels."
    (one,) = set_finding("zoo", Sets(10, 10, 1), n_labels=6)
    assert "1 demonstration cannot show 6 labels" in one.text
    (other,) = set_finding("zoo", Sets(10, 3, 6), n_labels=6)
    assert other.text == "3 of 10 demonstration sets lack a label."
    assert list(set_finding("zoo", Sets(10, 0, 4), n_labels=2)) == []


def test_sets_of_demonstrations_are_counted_once_without_those_of_methods_and_of_no_query():
    asked = {
        "for_part": [None, None, None, "normal", None],
        "query_id": [0, 1, 2, 0, None],
        "demonstration_ids": [[0, 1], [0, 1], [0, 2], [2, 3, 0], [0, 3]],
    }
    requests = pl.LazyFrame({"dataset": ["zoo"] * 5, **asked})
    labels = SplitLabels(("no", "yes"), frozenset({0, 1}), pl.Series([0, 1, 0, 0]))
    # Example 1 alone is a "yes": of the sets of queries, 0 and 1 have both labels, 0 and 2 lack one.
    assert demonstration_sets(requests, {"zoo": labels}) == {"zoo": Sets(2, 1, 2)}


def test_the_smallest_detectable_difference_is_a_little_above_connors_of_the_test_that_is_not_exact():
    # Connor 1987: d sqrt(n) = 1.95996 sqrt(s) + 0.84162 sqrt(s - d^2); n = 500, s = 0.25: 1.3975 = 1.3975 at 0.0625.
    assert 0.0625 < detectable(500)["0.25"] < 0.066
    assert detectable(10)["0.1"] is None  # one query of ten is never enough


def test_two_queries_detect_no_difference_at_all():
    assert set(detectable(2).values()) == {None}
