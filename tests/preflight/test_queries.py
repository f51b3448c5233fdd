from evaluator.preflight.queries import Classes, Sets, class_findings, detectable, set_finding


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
    (other,) = set_finding("zoo", Sets(10, 3, 6), n_labels=6)
    assert other.text == "3 of 10 demonstration sets lack a label."
    assert list(set_finding("zoo", Sets(10, 0, 4), n_labels=2)) == []


def test_the_smallest_detectable_difference_is_a_little_above_connors_of_the_test_that_is_not_exact():
    # Connor 1987: d sqrt(n) = 1.95996 sqrt(s) + 0.84162 sqrt(s - d^2); n = 500, s = 0.25: 1.3975 = 1.3975 at 0.0625.
    assert 0.0625 < detectable(500)["0.25"] < 0.066
    assert detectable(10)["0.1"] is None  # one query of ten is never enough


def test_two_queries_detect_no_difference_at_all():
    assert set(detectable(2).values()) == {None}
