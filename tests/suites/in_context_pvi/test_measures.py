"""All tables of a run at once: their columns and keys, and that nothing depends on the order of rows."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from evaluator import schemas as core_schemas
from evaluator.errors import DatasetError
from evaluator.suites.in_context_pvi import schema as schemas
from evaluator.suites.in_context_pvi.suite import pvi_measures
from tests.suites.in_context_pvi.pvi_answers import queries, random_answers, random_table
from tests.suites.in_context_pvi.test_agreement import annotations

TABLES = {
    "pvi": (schemas.PVI, schemas.PVI_KEY),
    "pvi_summary": (schemas.PVI_SUMMARY, schemas.PVI_SUMMARY_KEY),
    "pvi_means": (schemas.PVI_MEANS, schemas.PVI_MEANS_KEY),
    "pvi_deciles": (schemas.PVI_DECILES, schemas.PVI_DECILES_KEY),
    "pvi_densities": (schemas.PVI_DENSITIES, schemas.PVI_DENSITIES_KEY),
    "pvi_pairs": (schemas.PVI_PAIRS, schemas.PVI_PAIRS_KEY),
    "pvi_consistency": (schemas.PVI_CONSISTENCY, schemas.PVI_CONSISTENCY_KEY),
    "pvi_one_way": (schemas.PVI_ONE_WAY, schemas.PVI_ONE_WAY_KEY),
    "pvi_repeated_measures": (schemas.PVI_REPEATED_MEASURES, schemas.PVI_REPEATED_MEASURES_KEY),
    "pvi_hardest": (schemas.PVI_HARDEST, schemas.PVI_HARDEST_KEY),
    "pvi_mislabelled": (schemas.PVI_MISLABELLED, schemas.PVI_MISLABELLED_KEY),
    "pvi_annotators": (schemas.PVI_ANNOTATORS, schemas.PVI_ANNOTATORS_KEY),
    "variance_components": (core_schemas.VARIANCE_COMPONENTS, core_schemas.VARIANCE_COMPONENTS_KEY),
    "total_error": (core_schemas.TOTAL_ERROR, core_schemas.TOTAL_ERROR_KEY),
    "design_study": (core_schemas.DESIGN_STUDY, core_schemas.DESIGN_STUDY_KEY),
    "pvi_demonstrations": (schemas.PVI_DEMONSTRATIONS, schemas.PVI_DEMONSTRATIONS_KEY),
    "pvi_chosen": (schemas.PVI_CHOSEN, schemas.PVI_CHOSEN_KEY),
}


def test_every_table_has_its_columns_and_is_sorted_by_its_key_which_is_unique() -> None:
    given = random_answers()
    found = pvi_measures(given, queries(random_table(0, 50)))
    assert list(found) == list(TABLES)
    for name, (schema, key) in TABLES.items():
        assert found[name].schema == schema, name
        assert found[name].equals(found[name].sort(key)), name
        assert not found[name].select(key).is_duplicated().any(), name
        assert found[name].is_empty() == (name in ("pvi_annotators", "pvi_chosen")), name


def test_the_order_of_answers_changes_nothing_to_the_last_digit() -> None:
    given, texts = random_answers(), queries(random_table(0, 50))
    first = pvi_measures(given, texts)
    # random_answers shuffles rows by a seed of its own; this is another order.
    turned = given.rows.collect().sample(fraction=1, shuffle=True, seed=77).lazy()
    second = pvi_measures(replace(given, rows=turned), texts)
    assert all(first[name].equals(second[name]) for name in TABLES)


def test_annotations_are_correlated_where_they_are_named(tmp_path: Path) -> None:
    texts = queries(random_table(0, 50)).with_columns(
        text=pl.format("premise {}\nhypothesis {}", "query_id", "query_id")
    )
    found = pvi_measures(random_answers(), texts, [annotations(tmp_path / "a.parquet")])["pvi_annotators"]
    assert found.height == 2 * 6 * 2 * 2 * 3
    assert found["n"].unique().to_list() == [4]
    with pytest.raises(DatasetError, match="None of the 4 annotated texts"):
        pvi_measures(random_answers(), queries(random_table(0, 50)), [annotations(tmp_path / "a.parquet")])
