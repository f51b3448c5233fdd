from collections import Counter
from dataclasses import replace
from itertools import combinations, product

from evaluator.templates.template import ORTHOGONAL_ARRAY, Alternatives, MetaTemplate, nine_templates

DEFAULT = MetaTemplate(
    input_prefixes=("P: ", "C: "), input_affixes=(" ", " "), label_prefix="L: ", label_affix="\n", query_prefix="> "
)
LEVELS = Alternatives(
    instructions=("I1 ", "I2 "),
    input_prefixes=(("P1: ", "C1: "), ("P2: ", "C2: ")),
    label_prefixes=("L1: ", "L2: "),
    label_affixes=(" ", "\t"),
)
TEMPLATES = nine_templates(DEFAULT, LEVELS)


def test_every_two_attributes_meet_in_every_way_once():
    # What makes an array orthogonal (of strength 2): nine rows, and 3 * 3 pairs in any two columns.
    for first, second in combinations(range(4), 2):
        pairs = Counter((row[first], row[second]) for row in ORTHOGONAL_ARRAY)
        assert pairs == Counter(product(range(3), repeat=2))


def test_the_first_template_is_the_default():
    assert TEMPLATES[0] == DEFAULT


def test_attributes_are_those_of_the_array_and_the_rest_is_the_default_s():
    # Row 5 of the array is (1, 2, 0, 1), row 8 is (2, 2, 1, 0).
    assert TEMPLATES[5] == replace(DEFAULT, instruction="I1 ", input_prefixes=("P2: ", "C2: "), label_affix=" ")
    assert TEMPLATES[8] == replace(DEFAULT, instruction="I2 ", input_prefixes=("P2: ", "C2: "), label_prefix="L1: ")
    assert len(set(TEMPLATES)) == 9
