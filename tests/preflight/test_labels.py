from evaluator.preflight.labels import LabelSpace, label_findings


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
