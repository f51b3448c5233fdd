"""All of StaICC with all methods as a user runs it: one store, each prompt scored once, models beside each other."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

import evaluator
from evaluator.schemas import GROUP_METRICS, METRICS
from evaluator.suites.staicc.suite import INFERENCE_METHODS
from tests.command_line import command
from tests.end_to_end.processes import killed

pytestmark = pytest.mark.usefixtures("without_pages")

FAKE = ("--engine", "fake", "--model", "fake")
DATASETS = ("--datasets", "sst5")
N_QUERIES = 4
ASKED = ("staicc", "--methods", "all", *DATASETS, "--queries", N_QUERIES)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("staicc") / "out"
    command("run", *ASKED, *FAKE, "--out", out)
    return out


def run_without_a_page(out: Path) -> None:
    """The stages of a run but the last, which draws figures for some seconds."""
    command("build", *ASKED, "--out", out)
    command("score", out, *FAKE)
    command("measure", out)


def test_every_part_and_method_is_measured_in_one_run(whole):
    metrics = pl.read_parquet(whole / "tables" / "metrics.parquet")
    assert metrics.schema == METRICS
    paper = metrics.filter(definition="paper", dataset="sst5")
    assert set(paper.filter(part="normal", metric="accuracy")["method"]) == {*INFERENCE_METHODS}
    measured = {*paper.filter(method="vanilla").select("part", "metric").iter_rows()}
    assert measured >= {
        ("contextual", "contextual_bias"),
        ("domain", "domain_bias"),
        ("normal", "empirical_bias"),
        ("template", "template_consistency"),
        ("sampling", "sampling_consistency"),
        ("gler", "gler"),
    }
    groups = pl.read_parquet(whole / "tables" / "group_metrics.parquet")
    assert groups.schema == GROUP_METRICS
    rates = groups.filter(part="gler", dataset="sst5", metric="accuracy", definition="paper")
    assert rates["noise_rate"].to_list() == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_requests_that_several_parts_share_are_one_prompt(whole):
    requests = evaluator.read_requests(whole).filter(dataset="sst5").collect()
    ids = {
        part: rows.sort("position")["prompt_id"].to_list()
        for (part,), rows in requests.partition_by("part", as_dict=True).items()
    }
    without_noise = requests.filter(part="gler", noise_rate=0.0).sort("position")["prompt_id"].to_list()
    own_template = requests.filter(part="template", template=0).sort("position")["prompt_id"].to_list()
    first_sets = (
        requests.filter(pl.col("part") == "sampling", pl.col("demonstration_set") < 2)
        .sort("position")["prompt_id"]
        .to_list()
    )
    assert without_noise == own_template == first_sets == ids["normal"]
    scores = evaluator.read_scores(whole).collect()
    assert scores.unique(["part", "for_part", "dataset", "position"]).height == scores.height
    record = json.loads((whole / "run.json").read_text())
    assert record["scores"]["prompts"] == requests_scored(whole)


def requests_scored(out: Path) -> int:
    """Distinct prompts of a run, first and following."""
    return evaluator.read_requests(out).select(pl.col("prompt_id").n_unique()).collect().item()


def test_the_second_time_nothing_is_asked_and_every_table_has_the_same_bytes(whole):
    tables = {path.name: path.read_bytes() for path in (whole / "tables").glob("*.parquet")}
    shards = {path: path.stat().st_mtime_ns for path in whole.glob("scores/*/*/s*-*.arrow")}
    run_without_a_page(whole)
    assert {path: path.stat().st_mtime_ns for path in whole.glob("scores/*/*/s*-*.arrow")} == shards
    assert {path.name: path.read_bytes() for path in (whole / "tables").glob("*.parquet")} == tables


def test_a_run_killed_amid_hidden_states_and_before_what_follows_ends_with_the_bytes_of_one_never_killed(
    whole, tmp_path
):
    out = tmp_path / "killed"
    killed("run", *ASKED, *FAKE, "--out", out, at_call=9)
    assert [*out.glob("scores/*/*/states-*.arrow")]
    killed("run", *ASKED, *FAKE, "--out", out, at_call=8)
    assert len([*out.glob("store/*/manifest.json")]) == 2
    run_without_a_page(out)
    for path in (whole / "tables").glob("*.parquet"):
        assert (out / "tables" / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_hidden_state_that_was_lost_is_named_before_anything_is_measured(whole, tmp_path):
    out = tmp_path / "damaged"
    shutil.copytree(whole, out)
    path = next(out.glob("scores/*/*/states-*-00000.arrow"))
    path.write_bytes(b"lost")
    lost = path.relative_to(out / "scores")
    said = command("measure", out, exits=2)
    assert f"files of scores are missing, damaged or made again since they were recorded; the first is {lost}" in said


def test_the_toolkits_prompts_and_numbers_are_a_run_of_their_own(tmp_path):
    out = tmp_path / "out"
    command("run", "staicc", *DATASETS, "--queries", N_QUERIES, "--definition", "released", *FAKE, "--out", out)
    metrics = pl.read_parquet(out / "tables" / "metrics.parquet")
    assert metrics["definition"].unique().to_list() == ["released"]
    assert {"contextual", "domain", "gler", "template", "sampling", "normal"} == {*metrics["part"]}


def test_by_default_parts_with_prompts_of_their_own_follow_the_paper_alone(whole):
    metrics = pl.read_parquet(whole / "tables" / "metrics.parquet").filter(method="vanilla")
    definitions = dict(metrics.group_by("part").agg(pl.col("definition").unique().sort()).iter_rows())
    assert definitions["contextual"] == ["paper", "released"]
    assert definitions["normal"] == ["paper", "published", "released"]
    for part in ("domain", "gler", "template", "sampling"):
        assert definitions[part] == ["paper"]


def test_several_models_share_one_store_and_are_compared(tmp_path):
    out = tmp_path / "out"
    models = ("--model", "embedded", "--model", "random")
    more = ("--engine", "transformers", "--datasets", "sst5", "--queries", 4, "--shots", 1)
    said = command("run", "staicc-normal", *models, *more, "--out", out)
    assert f"Report: {out / 'compare.html'}" in said
    assert len([*out.glob("store/*/manifest.json")]) == 1
    assert len([*out.glob("scores/*/*/manifest.json")]) == 2
    runs = sorted(path.parent for path in out.glob("models/*/run.json"))
    assert len(runs) == 2
    fingerprints = {json.loads((run / "run.json").read_text())["model"]["weights_fingerprint"] for run in runs}
    assert len(fingerprints) == 2
    for run in runs:
        assert evaluator.read_scores(run).collect().height == 8
        command("measure", run)
        command("report", run)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("staicc-robustness", "--methods", "topk"),
            "method topk answers queries of classification, and staicc-robustness with the parts",
        ),
        (("staicc-normal", "--shots", "4097"), "4097 shots were asked for"),
        (("staicc-normal", "--methods", "topkk"), "There is no method 'topkk'"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(tmp_path, words, told):
    said = command("run", *words, *DATASETS, "--queries", 2, *FAKE, "--out", tmp_path / "out", exits=2)
    assert told in said
