"""The name of a model in exports: of local folders no path."""

from dataclasses import replace

import pytest

from evaluator.exports import FORMATS
from evaluator.record import AdapterRecord
from tests.report.made_record import changed_record


@pytest.mark.parametrize(
    ("kind", "name", "adapter", "said"),
    [
        ("hub", "acme/small", None, "acme/small"),
        ("folder", "/models/llama/", None, "llama"),
        ("folder", "/models/llama", "/adapters/mine", "llama + mine"),
        ("hub", "acme/small", "/adapters/mine", "acme/small + mine"),
    ],
)
def test_a_model_is_named_without_the_paths_of_folders(made, kind, name, adapter, said):
    record = AdapterRecord(name=adapter, rank=8, fingerprint="00") if adapter else None
    model = {"kind": kind, "name": name, "adapter": record}
    assert replace(made, record=changed_record(made.record, model=model)).model == said


@pytest.mark.parametrize("name", ["..", ".", "../../mine", "acme/..", "../.."])
@pytest.mark.parametrize("form", ["lm-eval", "every-eval-ever"])
def test_no_name_of_a_model_leads_out_of_the_folder_of_an_export(made, name, form):
    record = changed_record(made.record, model={"kind": "imported", "name": name, "adapter": None})
    parts = [part for file in FORMATS[form].files(replace(made, record=record)) for part in file.name.split("/")]
    assert parts
    assert not {"", ".", ".."} & {*parts}
