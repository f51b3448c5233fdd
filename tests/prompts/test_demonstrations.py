import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import hypergeom
from StaICC.util.dataset_interface import demonstration_sampler

from evaluator.datasets.base import EXAMPLES, ClassificationDataset
from evaluator.errors import TemplateError
from evaluator.prompts import demonstrations
from evaluator.prompts.demonstrations import (
    demonstration_sequences,
    domain_demonstrations,
    own_demonstrations,
    sample_demonstrations,
)
from evaluator.templates.template import MetaTemplate, Verbalizer

DOMAINS = ("in_domain", "out_of_domain")
DEFINITIONS = ("paper", "released")


@pytest.mark.parametrize("n_shots", [0, 1, 2, 3, 7, 16, 50])
def test_demonstrations_are_those_of_the_toolkit_set_by_set(n_shots: int):
    # The toolkit takes its sample number (query + set * number of queries) for a prompt.
    toolkit = demonstration_sampler(n_shots, 50, 2 * 30)
    drawn = sample_demonstrations(n_shots=n_shots, n_demonstrations=50, n_queries=30)
    assert drawn.shape == (2, 30, n_shots)
    for number in range(2):
        for query in range(30):
            assert drawn[number, query].tolist() == toolkit[query + number * 30]


def test_more_sets_begin_with_the_same_demonstrations():
    two, eight = (
        sample_demonstrations(n_shots=4, n_demonstrations=50, n_queries=9, n_demonstration_sets=n) for n in (2, 8)
    )
    assert eight[:2].tolist() == two.tolist()


def test_no_demonstration_is_shown_twice_in_a_prompt():
    drawn = sample_demonstrations(n_shots=8, n_demonstrations=9, n_queries=40)
    assert all(len(set(shown)) == 8 for shown in drawn.reshape(-1, 8).tolist())


def test_more_shots_than_demonstrations_are_refused():
    with pytest.raises(TemplateError, match="513 shots were asked for, but the demonstration split has 512"):
        sample_demonstrations(n_shots=513, n_demonstrations=512, n_queries=1)


def dataset(demonstrations: list[int], queries: list[int]) -> ClassificationDataset:
    """A dataset of these labels, whose names are a, b and c."""

    def split(labels: list[int]) -> pl.DataFrame:
        rows = [(row, [f"text {row}"], label) for row, label in enumerate(labels)]
        return pl.DataFrame(rows, schema=EXAMPLES, orient="row")

    return ClassificationDataset(
        name="tiny",
        calibration=split([]),
        demonstration=split(demonstrations),
        test=split(queries),
        text_fields=("text",),
        template=MetaTemplate(input_prefixes=("",), input_affixes=(" ",), label_prefix="", label_affix="\n"),
        verbalizer=Verbalizer(label_names=("a", "b", "c")),
        fingerprint="0",
    )


# Label a is common (12 of 20), c is rare (2 of 20), so that many prompts of either domain have to be drawn again.
UNEVEN = dataset([0, 0, 0, 1, 0, 0, 1, 0, 2, 0] * 2, [0, 1, 2] * 40)
GOLD = np.array([0, 1, 2] * 40 * 2)


@pytest.mark.parametrize("definition", DEFINITIONS)
@pytest.mark.parametrize("n_shots", [1, 3, 5])
def test_in_domain_prompts_show_the_query_s_label_and_out_of_domain_ones_do_not(n_shots: int, definition):
    labels = UNEVEN.demonstration["gold"].to_numpy()
    for domain in DOMAINS:
        chosen = domain_demonstrations(UNEVEN, domain, n_shots=n_shots, definition=definition)
        assert chosen.shape == (240, n_shots)
        shows_own = (labels[chosen] == GOLD[:, None]).any(axis=1)
        assert set(shows_own) == {domain == "in_domain"}
        assert all(len(set(shown)) == n_shots for shown in chosen.tolist())


@pytest.mark.parametrize("definition", DEFINITIONS)
@pytest.mark.parametrize("domain", DOMAINS)
def test_prompts_that_fit_already_stay_as_they_are(domain, definition):
    labels = UNEVEN.demonstration["gold"].to_numpy()
    normal = sample_demonstrations(n_shots=3, n_demonstrations=20, n_queries=120).reshape(240, 3)
    fits = (labels[normal] == GOLD[:, None]).any(axis=1) == (domain == "in_domain")
    assert 0 < fits.sum() < 240
    chosen = domain_demonstrations(UNEVEN, domain, n_shots=3, definition=definition)
    assert chosen[fits].tolist() == normal[fits].tolist()
    if domain == "in_domain" and definition == "paper":  # elsewhere one demonstration gave way
        assert set((chosen != normal)[~fits].sum(axis=1)) == {1}


def test_out_of_domain_demonstrations_are_drawn_evenly_from_the_other_labels():
    even = dataset([0, 1, 2, 0, 1, 2, 0, 0], [0] * 3000)
    chosen = domain_demonstrations(even, "out_of_domain", n_shots=2, definition="paper")
    assert set(chosen.ravel().tolist()) == {1, 2, 4, 5}
    # Twelve ordered pairs of the four, each as likely.
    pairs = pl.DataFrame(chosen).group_by(pl.all()).len()["len"]
    assert len(pairs) == 12
    assert stats.chisquare(pairs).pvalue > 1e-3


def test_what_comes_into_an_in_domain_prompt_is_drawn_evenly_and_so_is_its_place():
    # Two of 100 demonstrations are labelled a: about 94% of prompts of 3 lack one.
    rare = dataset([0, 0] + [1] * 98, [0] * 1000)
    chosen = domain_demonstrations(rare, "in_domain", n_shots=3, definition="paper")
    normal = sample_demonstrations(n_shots=3, n_demonstrations=100, n_queries=1000).reshape(2000, 3)
    prompt, place = np.nonzero(chosen != normal)
    assert len(prompt) > 1800
    assert stats.chisquare(np.bincount(place, minlength=3)).pvalue > 1e-3
    assert stats.chisquare(np.bincount(chosen[prompt, place], minlength=2)).pvalue > 1e-3


@pytest.mark.parametrize("definition", DEFINITIONS)
@pytest.mark.parametrize(
    ("domain", "demonstrations", "n_shots", "message"),
    [
        ("in_domain", [0, 0, 1, 1], 2, "tiny: queries are labelled 'c', but no demonstration is"),
        ("in_domain", [0, 1, 2], 0, "tiny: without demonstrations no prompt shows the label 'c'"),
        ("out_of_domain", [2, 2, 2, 2], 2, "tiny: 0 demonstrations are not labelled 'c', but 2 must"),
        ("out_of_domain", [0, 2, 1, 2], 3, "tiny: 2 demonstrations are not labelled 'c', but 3 must"),
    ],
)
def test_where_no_prompt_can_fit_the_label_is_named_and_nothing_is_drawn_for_ever(
    domain, demonstrations, n_shots, message, definition
):
    with pytest.raises(TemplateError, match=message):
        domain_demonstrations(dataset(demonstrations, [2, 2]), domain, n_shots=n_shots, definition=definition)


def test_without_demonstrations_every_prompt_is_out_of_domain():
    assert domain_demonstrations(UNEVEN, "out_of_domain", n_shots=0, definition="released").shape == (240, 0)


def test_the_toolkit_s_draws_end_in_an_error_where_a_fitting_prompt_is_too_unlikely(monkeypatch: pytest.MonkeyPatch):
    # Three of 1,000 are not labelled a: 3 of 3 come with probability 6 / (1000 * 999 * 998), about 6e-9.
    monkeypatch.setattr(demonstrations, "MAX_REJECTION_DRAWS", 2**17)
    unlikely = dataset([0] * 997 + [1] * 3, [0])
    with pytest.raises(TemplateError, match=r"tiny: after .* out-of-domain, first one for the label 'a'"):
        domain_demonstrations(unlikely, "out_of_domain", n_shots=3, definition="released")
    chosen = domain_demonstrations(unlikely, "out_of_domain", n_shots=3, definition="paper")
    assert [sorted(shown) for shown in chosen.tolist()] == 2 * [[997, 998, 999]]


def test_draws_go_on_where_a_batch_ends(monkeypatch: pytest.MonkeyPatch):
    whole = domain_demonstrations(UNEVEN, "out_of_domain", n_shots=3, definition="released")
    monkeypatch.setattr(demonstrations, "REJECTION_BATCH", 7)
    assert domain_demonstrations(UNEVEN, "out_of_domain", n_shots=3, definition="released").tolist() == whole.tolist()


def test_a_label_that_no_query_has_needs_no_demonstration():
    without_b = replace(UNEVEN, test=UNEVEN.test.filter(pl.col("gold") != 1))
    no_b_shown = replace(without_b, demonstration=UNEVEN.demonstration.filter(pl.col("gold") != 1))
    assert domain_demonstrations(no_b_shown, "in_domain", n_shots=2, definition="released").shape == (160, 2)


@pytest.mark.parametrize(
    ("n_pool", "n_shots", "n_sequences"), [(5, 2, 20), (5, 2, 7), (6, 3, 500), (300, 4, 50), (3, 0, 4)]
)
def test_sequences_differ_and_show_no_example_twice(n_pool, n_shots, n_sequences):
    sets = demonstration_sequences(n_pool=n_pool, n_shots=n_shots, n_sequences=n_sequences, seed=1)
    assert sets.shape == (min(n_sequences, math.perm(n_pool, n_shots)), n_shots)
    assert len({tuple(row) for row in sets.tolist()}) == len(sets)
    assert all(len(set(row)) == n_shots and set(row) <= set(range(n_pool)) for row in sets.tolist())


@pytest.mark.parametrize("n_pool", [8, 300])  # all sequences listed, and drawn one by one
def test_fewer_sequences_are_the_first_of_more_and_another_seed_gives_others(n_pool):
    many = demonstration_sequences(n_pool=n_pool, n_shots=4, n_sequences=100, seed=1)
    np.testing.assert_array_equal(demonstration_sequences(n_pool=n_pool, n_shots=4, n_sequences=30, seed=1), many[:30])
    assert not np.array_equal(demonstration_sequences(n_pool=n_pool, n_shots=4, n_sequences=100, seed=2), many)


def test_all_sequences_come_up_when_as_many_are_asked_for():
    sets = demonstration_sequences(n_pool=4, n_shots=2, n_sequences=1000, seed=0)
    assert {tuple(row) for row in sets.tolist()} == {(a, b) for a in range(4) for b in range(4) if a != b}


def test_every_example_is_shown_about_equally_often_at_every_place():
    # 3,000 sequences over 10 examples: 300 a place and example, with a binomial deviation of 16.4.
    sets = demonstration_sequences(n_pool=10, n_shots=5, n_sequences=3000, seed=3)
    counts = np.stack([np.bincount(column, minlength=10) for column in sets.T])
    assert np.abs(counts - 300).max() < 5 * 16.4


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    share=st.floats(0, 1),
    n_queries=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
def test_labels_are_shown_in_turn_each_row_once(counts, share, n_queries, seed):
    gold = np.repeat(np.arange(len(counts)), counts)
    n_shots = round(share * len(gold))
    drawn = own_demonstrations("balanced", gold, n_shots=n_shots, n_queries=n_queries, seed=seed)
    assert drawn.shape == (2, n_queries, n_shots)
    for rows in drawn.reshape(2 * n_queries, n_shots):
        assert len(set(rows.tolist())) == n_shots
        shown = gold[rows].tolist()
        for end in range(n_shots + 1):  # a label is behind another one only if it has no row left
            so_far = [shown[:end].count(label) for label in range(len(counts))]
            assert all(n >= max(so_far) - 1 or n == counts[label] for label, n in enumerate(so_far))
    # Fewer queries and more sets leave the others' demonstrations as they are.
    more = own_demonstrations(
        "balanced", gold, n_shots=n_shots, n_queries=n_queries + 3, n_demonstration_sets=3, seed=seed
    )
    assert (more[:2, :n_queries] == drawn).all()


def test_rows_and_orders_that_show_labels_in_turn_are_equally_likely():
    gold = np.array([0, 0, 0, 1, 1, 2])
    drawn = own_demonstrations("balanced", gold, n_shots=4, n_queries=6000, n_demonstration_sets=1)[0]
    for first in (drawn[:, 0],):  # each label is first in a third of the prompts, each of its rows equally often
        counts = np.bincount(first, minlength=6)
        assert stats.chisquare(counts, np.array([1 / 9] * 3 + [1 / 6] * 2 + [1 / 3]) * 6000).pvalue > 1e-3
    orders = [tuple(row) for row in gold[drawn[:, :3]].tolist()]
    assert stats.chisquare([orders.count(order) for order in sorted(set(orders))]).pvalue > 1e-3
    assert len(set(orders)) == 6
    assert {*gold[drawn[:, 3]].tolist()} == {0, 1}  # the only row of label 2 is used up


def test_more_shots_than_demonstrations_that_show_labels_in_turn_are_refused():
    with pytest.raises(TemplateError, match="7 shots were asked for, but the demonstration split has 6 examples"):
        own_demonstrations("balanced", np.zeros(6, dtype=np.int64), n_shots=7, n_queries=1)


@pytest.mark.parametrize("n_shots", [0, 2, 3, 5, 40])
def test_covering_demonstrations_show_every_label_and_are_the_same_for_fewer_queries_and_sets(n_shots):
    gold = np.array([0] * 30 + [1] * 8 + [2] * 2)
    drawn = own_demonstrations("cover", gold, n_shots=n_shots, n_queries=200, n_demonstration_sets=2, seed=3)
    assert drawn.shape == (2, 200, n_shots)
    for rows in drawn.reshape(400, n_shots):
        assert len({*rows}) == n_shots
        assert len({*gold[rows]}) == min(n_shots, 3)
    fewer = own_demonstrations("cover", gold, n_shots=n_shots, n_queries=7, n_demonstration_sets=1, seed=3)
    assert (fewer == drawn[:1, :7]).all()


def test_labels_beyond_the_covered_are_as_frequent_as_in_the_rows():
    gold = np.array([0] * 60 + [1] * 36 + [2] * 4)
    drawn = own_demonstrations("cover", gold, n_shots=23, n_queries=2_000, n_demonstration_sets=1)
    counts = np.array([(gold[drawn] == label).mean() * 23 for label in range(3)])
    # Label 2 without a guarantee: hypergeometric, 23 of 100 rows; where none is drawn, it takes the place of another.
    absent = hypergeom(100, 4, 23).pmf(0)
    assert counts[2] == pytest.approx(23 * 0.04 + absent, abs=0.06)
    assert counts[0] / counts[1] == pytest.approx(60 / 36, rel=0.03)


def test_the_first_rows_are_shown_as_they_stand():
    drawn = own_demonstrations("first", np.zeros(6, dtype=np.int64), n_shots=3, n_queries=2, n_demonstration_sets=1)
    assert drawn.tolist() == [[[0, 1, 2], [0, 1, 2]]]


def test_fewer_shots_than_labels_show_all_labels_over_the_queries() -> None:
    gold = np.repeat(np.arange(4), 5)
    drawn = own_demonstrations("cover", gold, n_shots=2, n_queries=60, n_demonstration_sets=1)[0]
    # Each label is among the two of four in half of 60 draws, with a standard deviation of 3.9.
    assert np.bincount(gold[drawn].ravel(), minlength=4) == pytest.approx(30, abs=16)


def test_sets_of_neighbouring_seeds_have_nothing_in_common() -> None:
    sets = [own_demonstrations("cover", np.arange(60) % 2, n_shots=4, n_queries=20, seed=seed) for seed in (0, 1)]
    assert (sets[0][1] != sets[1][0]).any()
