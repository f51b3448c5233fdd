from collections import Counter
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from evaluator.config import PviConfig
from evaluator.datasets.pvi_tables import load_pvi_tables
from evaluator.errors import ConfigError, DatasetError, TemplateError
from evaluator.prompts.pvi_demonstrations import (
    demonstration_sets,
    demonstrations_by_pvi,
    numbers_of_shots,
    random_sets,
)
from tests.prompts.pvi_folder import write_folder, write_prompts


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path)


def dataset(folder, name="snli", source="random"):
    (found,) = load_pvi_tables(PviConfig(data=(folder,), **options(source)), [name])
    return found


def options(source):
    return {"source": source} | ({"measured": Path("run")} if source not in ("random", "published") else {})


def labels(found, rows):
    return found.demonstration["gold"].gather(rows).to_list()


def test_there_are_as_many_shots_as_labels_and_twice_as_many_but_four_and_eight_for_cola(folder):
    assert numbers_of_shots(dataset(folder), PviConfig()) == (3, 6)
    assert numbers_of_shots(dataset(folder, "cola"), PviConfig()) == (4, 8)
    assert numbers_of_shots(dataset(folder), PviConfig(shots=(1,))) == (1,)


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
    with pytest.raises(
        TemplateError, match=r"9 sets of 2 demonstrations were asked for, but its 4 .* gave 8 different"
    ):
        random_sets(tiny, n_shots=2, n_sets=9, seed=1)
    with pytest.raises(TemplateError, match=r"3 demonstrations labelled '0' are needed in a set, and there are 2"):
        random_sets(tiny, n_shots=6, n_sets=1, seed=1)


def test_texts_of_random_sets_are_the_demonstrations_and_their_labels_alone(folder):
    sets = demonstration_sets(dataset(folder), PviConfig(data=(folder,), sets=2))
    assert [(each.n_shots, each.number) for each in sets] == [(3, 0), (3, 1), (6, 0), (6, 1)]
    first = sets[0]
    question = "QUESTION: Is this (0) contradiction, (1) entailment, or (2) neutral?\n"
    rows = dataset(folder).demonstration[first.rows].select("source_row", "gold").rows()
    assert first.text == "".join(
        f"SENTENCE1: Dog {row} runs.\nSENTENCE2: Animal {row} moves.\n{question}ANSWER: {gold}\n\n"
        for row, gold in rows
    )
    assert first.null_text == "".join(f"ANSWER: {gold}\n\n" for _, gold in rows)


# Per label: row 4 is the hardest of label 0 and row 1 the easiest; label 1 has a tie of rows 5 and 6.
MEASURED = pl.DataFrame(
    {
        "query_id": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        "gold": [0, 0, 0, 0, 0, 1, 1, 1, 1, 1],
        "pvi_bits": [0.5, 2.0, None, -0.5, -3.0, 1.0, 1.0, 0.25, float("-inf"), 4.0],
    }
)


@pytest.mark.parametrize(
    ("order", "rows"),
    [
        # Label 0 from hard to easy: 4 (-3), 3 (-0.5), 0 (0.5), 1 (2). Label 1: 7 (0.25), 5 and 6 (1), 9 (4).
        ("hardest", [[4, 3, 0], [7, 5, 6]]),
        ("easiest", [[1, 0, 3], [9, 5, 6]]),
        # The median of four lies between the second and third, of which the harder comes first.
        ("middle", [[3, 0, 4], [5, 6, 7]]),
    ],
)
def test_demonstrations_are_chosen_by_pvi_within_their_label_and_never_without_one(order, rows):
    assert demonstrations_by_pvi(MEASURED, order=order, n_labels=2, per_label=3).tolist() == rows
    shuffled = MEASURED.sample(fraction=1.0, shuffle=True, seed=3)
    assert demonstrations_by_pvi(shuffled, order=order, n_labels=2, per_label=3).tolist() == rows


def test_of_an_odd_number_the_middle_is_the_median_itself():
    odd = MEASURED.head(1).vstack(MEASURED[[1, 3]])  # 0.5, 2.0, -0.5
    assert demonstrations_by_pvi(odd, order="middle", n_labels=1, per_label=3).tolist() == [[0, 3, 1]]


def test_more_than_were_measured_cannot_be_chosen():
    with pytest.raises(TemplateError, match=r"5 demonstrations of label number 0 .* but 4 have a finite PVI"):
        demonstrations_by_pvi(MEASURED, order="hardest", n_labels=2, per_label=5)


def measured_run(folder, snli, **columns):
    """PVIs of all demonstrations: that of row n is n under set 0, and minus n under set 1."""
    run = folder / "run"
    (run / "tables").mkdir(parents=True, exist_ok=True)
    rows = snli.demonstration.select(query_id=pl.int_range(pl.len()), gold="gold")
    numbered = pl.col("query_id").cast(pl.Float64)
    frames = [
        rows.with_columns(
            pl.lit(name).alias("definition"),
            dataset=pl.lit("snli"),
            n_shots=n_shots,
            set=number,
            pvi_bits=sign * numbered,
        )
        for n_shots in (3, 6)
        for number, sign, name in ((0, 1, "paper"), (0, -1, "label_space"), (1, -1, "paper"))
    ]
    pl.concat(frames).with_columns(**columns).write_parquet(run / "tables" / "pvi.parquet")
    return run


def test_the_first_set_shows_the_hardest_of_each_label_and_the_next_one_those_that_follow(folder):
    snli = dataset(folder)
    by_label = [
        snli.demonstration.with_row_index().filter(gold=label)["index"].to_list() for label in range(3)
    ]  # from hard to easy
    run = measured_run(folder, snli)
    sets = demonstration_sets(snli, PviConfig(data=(folder,), source="hardest", measured=run, sets=2))
    blocks = [[set(each.rows[n : n + 3]) for n in range(0, each.n_shots, 3)] for each in sets]
    ranks = [{rows[rank] for rows in by_label} for rank in range(4)]
    assert blocks == [[ranks[0]], [ranks[1]], [ranks[0], ranks[1]], [ranks[2], ranks[3]]]


def test_pvis_that_are_not_there_or_of_other_rows_are_refused(folder):
    snli = dataset(folder)

    def choose(run):
        return demonstration_sets(snli, PviConfig(data=(folder,), source="hardest", measured=run, sets=1))

    with pytest.raises(DatasetError, match=r"pvi\.parquet is not there.*--ask training"):
        choose(folder / "nowhere")
    with pytest.raises(ConfigError, match=r"has 4 shots of snli, and those for 3 are chosen"):
        choose(measured_run(folder, snli, n_shots=pl.lit(4)))
    with pytest.raises(ConfigError, match="measured on other rows than the 15"):
        choose(measured_run(folder, snli, gold=(pl.col("gold") + 1) % 3))
    with pytest.raises(ConfigError, match="measured on other rows"):
        choose(measured_run(folder, snli, query_id=pl.col("query_id") + 1))


def test_published_sets_are_the_texts_as_they_stand_in_their_order(folder):
    sets = demonstration_sets(
        dataset(folder, source="published"), PviConfig(data=(folder,), source="published", sets=2)
    )
    assert [(each.n_shots, each.number, each.rows) for each in sets] == [(3, 0, []), (3, 1, []), (6, 0, []), (6, 1, [])]
    # Set 1, which stands second in the file, comes first; a space before a line end stays.
    assert sets[0].null_text == "ANSWER: 2\n\nANSWER: 1\n\nANSWER: 0\n\n"
    assert sets[0].text.startswith("SENTENCE1: Cat 0  \nSENTENCE2: Pet 0\nQUESTION: Which?\nANSWER: 2\n\n")
    assert sets[1].null_text == "ANSWER: 1\n\nANSWER: 0\n\nANSWER: 2\n\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sets": 3}, r"has 2 sets of 3 demonstrations for snli, not the 3 asked for"),
        ({"shots": (4,)}, r"has 0 sets of 4 demonstrations for snli.*--shots among 3, 6"),
        ({"name": "cola"}, r"has no demonstrations for cola"),
    ],
)
def test_published_sets_that_are_not_there_are_refused(folder, changes, message):
    name = changes.pop("name", "snli")
    pvi = PviConfig(data=(folder,), source="published", **({"sets": 2} | changes))
    with pytest.raises(ConfigError, match=message):
        demonstration_sets(dataset(folder, name, "published"), pvi)


def test_the_file_of_published_sets_is_found_in_the_folder_or_named(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (folder / "prompts.parquet").rename(tmp_path / "elsewhere" / "texts.parquet")
    snli = dataset(folder, source="published")
    with pytest.raises(DatasetError, match=r"looked for .*prompts\.parquet.*--prompts"):
        demonstration_sets(snli, PviConfig(data=(folder,), source="published", sets=1))
    named = PviConfig(source="published", sets=1, prompts=tmp_path / "elsewhere" / "texts.parquet")
    assert len(demonstration_sets(snli, named)) == 2
    write_prompts(folder)
    pl.read_parquet(folder / "prompts.parquet").drop("kind").write_parquet(folder / "prompts.parquet")
    with pytest.raises(DatasetError, match="cannot be read as published demonstrations"):
        demonstration_sets(snli, PviConfig(data=(folder,), source="published", sets=1))
