from collections import Counter
from dataclasses import replace

import polars as pl
import pytest

from evaluator.errors import ConfigError, DatasetError, TemplateError
from evaluator.suites.in_context_pvi.prompts import (
    PviOptions,
    demonstration_sets,
    numbers_of_shots,
    random_sets,
    resolved_options,
)
from tests.suites.in_context_pvi.pvi_config import pvi_config, read_dataset
from tests.suites.in_context_pvi.pvi_folder import write_folder, write_prompts


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path)


def dataset(folder, name="snli", source="random"):
    return read_dataset(pvi_config(folder, datasets=(name,), source=source))


def options_of(*data, **options):
    """As a run of these data has them."""
    return resolved_options(pvi_config(*data, **options))


def labels(found, rows):
    return found.demonstration["gold"].gather(rows).to_list()


def test_there_are_as_many_shots_as_labels_and_twice_as_many_but_four_and_eight_for_cola(folder):
    assert numbers_of_shots(dataset(folder), PviOptions()) == (3, 6)
    assert numbers_of_shots(dataset(folder, "cola"), PviOptions()) == (4, 8)
    assert numbers_of_shots(dataset(folder), PviOptions(shots=(1,))) == (1,)


def test_random_sets_differ_and_show_every_label_equally_often_in_each_block(folder):
    snli = dataset(folder)
    sets = random_sets(snli, n_shots=6, n_sets=5, seed=1)
    assert len({tuple(rows) for rows in sets}) == 5
    for rows in sets:
        assert len(set(rows)) == 6
        shown = labels(snli, rows)
        assert sorted(shown[:3]) == sorted(shown[3:]) == [0, 1, 2]


def test_labels_left_over_are_drawn_as_well(folder):
    shown = [labels(dataset(folder), rows) for rows in random_sets(dataset(folder), n_shots=4, n_sets=20, seed=1)]
    assert all(Counter(row).most_common(1)[0][1] == 2 for row in shown)
    assert {row[3] for row in shown} == {0, 1, 2}


def test_fewer_sets_and_fewer_shots_are_the_first_of_more_and_another_seed_gives_others(folder):
    snli = dataset(folder)
    many = random_sets(snli, n_shots=6, n_sets=4, seed=1)
    assert random_sets(snli, n_shots=6, n_sets=2, seed=1) == many[:2]
    assert random_sets(snli, n_shots=3, n_sets=4, seed=1) == [rows[:3] for rows in many]
    assert random_sets(snli, n_shots=6, n_sets=4, seed=2) != many


def test_every_demonstration_and_every_order_of_labels_comes_up(folder):
    snli = dataset(folder)
    sets = random_sets(snli, n_shots=3, n_sets=300, seed=1)
    assert {row for rows in sets for row in rows} == set(range(15))
    assert len({tuple(labels(snli, rows)) for rows in sets}) == 6


def test_more_sets_or_shots_than_there_are_demonstrations_for_are_refused(folder):
    few = dataset(folder)
    # Two labels of two rows each: two orders of labels times four pairs of rows are eight sets.
    pair = few.demonstration.filter(pl.col("gold") < 2).group_by("gold", maintain_order=True).head(2)
    cola = dataset(folder, "cola")
    tiny = replace(cola, demonstration=pair)
    assert len(random_sets(tiny, n_shots=2, n_sets=8, seed=1)) == 8
    with pytest.raises(TemplateError, match=r"--sets 9 needs 9 different sets of 2 demonstrations, but 4 .* gave 8\."):
        random_sets(tiny, n_shots=2, n_sets=9, seed=1)
    with pytest.raises(TemplateError, match=r"3 demonstrations labelled '0' are needed in a set, and there are 2"):
        random_sets(tiny, n_shots=6, n_sets=1, seed=1)


def test_texts_of_random_sets_are_the_demonstrations_and_their_labels_alone(folder):
    sets = demonstration_sets(dataset(folder), options_of(folder, sets=2))
    assert [(each.n_shots, each.number) for each in sets] == [(3, 0), (3, 1), (6, 0), (6, 1)]
    first = sets[0]
    question = "QUESTION: Is this (0) contradiction, (1) entailment, or (2) neutral?\n"
    rows = dataset(folder).demonstration[first.rows].select("source_row", "gold").rows()
    assert first.text == "".join(
        f"SENTENCE1: Dog {row} runs.\nSENTENCE2: Animal {row} moves.\n{question}ANSWER: {gold}\n\n"
        for row, gold in rows
    )
    assert first.null_text == "".join(f"ANSWER: {gold}\n\n" for _, gold in rows)


def test_published_sets_are_the_texts_as_they_stand_in_their_order(folder):
    sets = demonstration_sets(dataset(folder, source="published"), options_of(folder, source="published", sets=2))
    assert [(each.n_shots, each.number, each.rows) for each in sets] == [(3, 0, []), (3, 1, []), (6, 0, []), (6, 1, [])]
    # Set 1, which stands second in the file, comes first; a space before a line end stays.
    assert sets[0].null_text == "ANSWER: 2\n\nANSWER: 1\n\nANSWER: 0\n\n"
    assert sets[0].text.startswith("SENTENCE1: Cat 0  \nSENTENCE2: Pet 0\nQUESTION: Which?\nANSWER: 2\n\n")
    assert sets[1].null_text == "ANSWER: 1\n\nANSWER: 0\n\nANSWER: 2\n\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sets": 3}, r"has 2 sets of 3 demonstrations for snli, and --sets is 3"),
        ({"shots": (4,)}, r"has 0 sets of 4 demonstrations for snli.*--shots among 3, 6"),
        ({"name": "cola"}, r"has no demonstrations for cola"),
    ],
)
def test_published_sets_that_are_not_there_are_refused(folder, changes, message):
    name = changes.pop("name", "snli")
    pvi = options_of(folder, source="published", **({"sets": 2} | changes))
    with pytest.raises(ConfigError, match=message):
        demonstration_sets(dataset(folder, name, "published"), pvi)


def test_the_file_of_published_sets_is_found_in_the_folder_or_named(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (folder / "prompts.parquet").rename(tmp_path / "elsewhere" / "texts.parquet")
    snli = dataset(folder, source="published")
    with pytest.raises(DatasetError, match=r"looked for .*prompts\.parquet.*--prompts"):
        demonstration_sets(snli, options_of(folder, source="published", sets=1))
    named = options_of(folder, source="published", sets=1, prompts=tmp_path / "elsewhere" / "texts.parquet")
    assert len(demonstration_sets(snli, named)) == 2
    write_prompts(folder)
    pl.read_parquet(folder / "prompts.parquet").drop("kind").write_parquet(folder / "prompts.parquet")
    with pytest.raises(DatasetError, match=r"prompts\.parquet has no column 'kind'"):
        demonstration_sets(snli, options_of(folder, source="published", sets=1))
