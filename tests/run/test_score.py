"""The model's part of a run: what it asks, what it finds answered, and engines that cannot do all that is needed."""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from shutil import copytree
from types import SimpleNamespace
from unittest.mock import patch
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.config import ModelConfig, RunConfig
from evaluator.engine import ENGINES
from evaluator.engine.base import ContinuationRequest, FakeEngine
from evaluator.errors import ConfigError, ScoreError
from evaluator.files.json_files import MANIFEST, read_json, write_json
from evaluator.methods.base import LABEL_SCORE
from evaluator.models import weights
from evaluator.progress import finish
from evaluator.run import pipeline
from evaluator.run.folder import read_scores
from evaluator.run.folders import read_run
from evaluator.run.resolved_models import resolve_model
from evaluator.run.score import begin_loading, scores_folder
from evaluator.runs.verify import verify

pytestmark = pytest.mark.usefixtures("without_pages")

MODEL = ModelConfig(model="fake", engine="fake")
DATASET = "financial_phrasebank"  # the fewest demonstrations
CONFIG = RunConfig(suites=("staicc-normal",), datasets=(DATASET,), n_queries=4)
IN_TWO_ROUNDS = replace(CONFIG, n_queries=2, methods=("ppl_icl",))
WITH_STATES = replace(CONFIG, methods=("vanilla", "hidden_calibration"))


class Counting(FakeEngine):
    """Remembers the contexts that it was asked about."""

    asked: list[tuple[int, ...]]

    def __init__(self) -> None:
        super().__init__()
        self.asked = []

    def log_likelihoods(self, requests):
        self.asked += [tuple(request.context) for request in requests]
        return super().log_likelihoods(requests)

    def hidden_states(self, texts):
        self.asked += [tuple(text) for text in texts]
        return super().hidden_states(texts)


@contextmanager
def engine(made: FakeEngine) -> Iterator[None]:
    with patch.dict(ENGINES, {"fake": replace(ENGINES["fake"], load=lambda _source, _config: made)}):
        yield


def test_replicas_load_before_the_weights_are_hashed_and_not_where_scores_may_be(tiny_model, monkeypatch, tmp_path):
    monkeypatch.setenv("EVALUATOR_CACHE", str(tmp_path / "cache"))
    began: list[bool] = []
    loader = SimpleNamespace(is_here=False, begin=lambda: iter(began.append(True) or ()))
    resolved = resolve_model(CONFIG, ModelConfig(model=str(tiny_model), engine="transformers"))
    with monkeypatch.context() as patch:
        patch.setattr(weights, "file_digest", lambda path: pytest.fail(f"{path} is hashed first"))
        finish(begin_loading(resolved, tmp_path, loader))
    assert began == [True]
    scores_folder(resolved.source, resolved.config, tmp_path).mkdir(parents=True)
    finish(begin_loading(resolved, tmp_path, loader))
    assert began == [True]


def contexts_asked(config: RunConfig, out: Path, data: Path) -> list[tuple[int, ...]]:
    counting = Counting()
    with engine(counting):
        finish(pipeline.run(config, MODEL, out, data=data))
    return counting.asked


def contexts_scored(config: RunConfig, out: Path, data: Path) -> list[tuple[int, ...]]:
    """What a run asks that is not measured."""
    counting = Counting()
    finish(pipeline.build(config, out, data=data))
    with engine(counting):
        finish(pipeline.score(out, MODEL))
    return counting.asked


def tables(out: Path) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "tables").iterdir()}


def kept_shards(out: Path) -> set[str]:
    return {path.name.split("-")[0] for path in out.glob("scores/*/*/*.arrow")}


def test_a_method_that_needs_hidden_states_is_refused_before_anything_is_built(tmp_path):
    without = {"fake": replace(ENGINES["fake"], has_hidden_states=False)}
    with patch.dict(ENGINES, without), pytest.raises(ConfigError, match=r"hidden_calibration: .* engine fake has none"):
        finish(pipeline.run(WITH_STATES, MODEL, tmp_path))
    assert not (tmp_path / "store").exists()


def test_hidden_states_that_are_not_numbers_end_the_run_and_leave_its_scores(tmp_path):
    class Damaged(FakeEngine):
        def hidden_states(self, texts):
            return super().hidden_states(texts) * float("nan")

    with engine(Damaged()), pytest.raises(ScoreError, match="a hidden state that is not finite; the first is prompt"):
        finish(pipeline.run(WITH_STATES, MODEL, tmp_path))
    assert kept_shards(tmp_path) == {"scores"}


def test_the_same_command_again_asks_nothing_and_loads_no_model(tmp_path):
    def refuse(_source, _config):
        raise AssertionError("the model was loaded")

    finish(pipeline.run(CONFIG, MODEL, tmp_path))
    before = tables(tmp_path)
    with patch.dict(ENGINES, {"fake": replace(ENGINES["fake"], load=refuse)}):
        finish(pipeline.run(CONFIG, MODEL, tmp_path))
    assert tables(tmp_path) == before


@pytest.mark.parametrize(
    "more",
    [
        {"methods": ("vanilla", "batch_calibration")},
        {"definitions": ("paper",)},
        {"n_queries": 3},
    ],
)
def test_a_run_whose_prompts_were_all_answered_asks_nothing(tmp_path, more):
    contexts_scored(CONFIG, tmp_path / "first", tmp_path / "data")
    assert contexts_scored(replace(CONFIG, **more), tmp_path / "second", tmp_path / "data") == []


@pytest.mark.parametrize(
    "more",
    [
        {"n_queries": 6},
        {"datasets": (DATASET, "trec")},
        {"methods": ("vanilla", "contextual_calibration", "topk")},
        {"suites": ("staicc-normal", "staicc-bias")},
    ],
)
def test_a_larger_run_asks_only_what_no_earlier_run_asked_and_measures_the_same(tmp_path, more):
    config = replace(CONFIG, **more)
    first = contexts_scored(CONFIG, tmp_path / "first", tmp_path / "data")
    second = contexts_asked(config, tmp_path / "second", tmp_path / "data")
    alone = contexts_asked(config, tmp_path / "alone", tmp_path / "of_its_own")
    assert second
    assert sorted([*first, *second]) == sorted(alone)
    assert tables(tmp_path / "second") == tables(tmp_path / "alone")


def test_a_definition_added_later_asks_for_last_tokens_alone(tmp_path, tiny_model):
    """The tiny model's tokenizer makes several tokens of most labels."""
    model = ModelConfig(model=str(tiny_model), engine="transformers", dtype="float32")
    paper = replace(CONFIG, definitions=("paper",), n_queries=2)
    finish(pipeline.run(paper, model, tmp_path / "paper", data=tmp_path / "data"))
    config = replace(paper, definitions=("paper", "released"))
    both = finish(pipeline.run(config, model, tmp_path / "both", data=tmp_path / "data"))
    scores = read_run(both.run.out).scores
    assert scores.prompts - scores.reused_prompts == 4  # the last tokens after each of the 4 prompts
    alone = finish(pipeline.run(config, model, tmp_path / "alone"))
    # Not the metrics: the toolkit's check of probabilities, in `released`, is a matter of the last bit of a sum.
    added, expected = (read_scores(run.run.out).collect().sort("position") for run in (both, alone))
    assert added["prompt_id"].to_list() == expected["prompt_id"].to_list()
    assert (added["label_token_counts"].list.max() > 1).all()
    for column in LABEL_SCORE.values():
        numbers = [table[column].explode().to_numpy() for table in (added, expected)]
        np.testing.assert_allclose(*numbers, rtol=0, atol=1e-5)


def test_a_larger_run_counts_prompts_and_not_their_rows(tmp_path, tiny_model):
    """With labels of several tokens and the definition `released`, a prompt has two rows."""
    model = ModelConfig(model=str(tiny_model), engine="transformers", dtype="float32")
    small = replace(CONFIG, n_queries=1)
    finish(pipeline.run(small, model, tmp_path / "first", data=tmp_path / "data"))
    stage = pipeline.run(replace(small, n_queries=2), model, tmp_path / "second", data=tmp_path / "data")
    (line,) = [now.line for now in stage if now.stage == "Looking ahead"]
    assert line.startswith("Of 4 prompts 2 have scores already, 2 to score; ")
    scores = read_run(tmp_path / "second").scores
    assert (scores.prompts, scores.reused_prompts) == (4, 2)


def test_what_another_dtype_or_engine_answered_is_not_reused(tmp_path, tiny_model):
    finish(pipeline.run(CONFIG, MODEL, tmp_path / "fake", data=tmp_path / "data"))
    model = ModelConfig(model=str(tiny_model), engine="transformers", dtype="float32")
    small = replace(CONFIG, n_queries=1)
    for number, one in enumerate((model, replace(model, dtype="bfloat16"))):
        run = finish(pipeline.run(small, one, tmp_path / str(number), data=tmp_path / "data")).run
        assert read_run(run.out).scores.reused_prompts == 0


def test_what_is_reused_and_was_damaged_since_is_asked_again(tmp_path):
    larger = replace(CONFIG, n_queries=6)
    contexts_scored(CONFIG, tmp_path / "first", tmp_path / "data")
    asked = contexts_asked(larger, tmp_path / "second", tmp_path / "data")
    before = tables(tmp_path / "second")
    first = read_run(tmp_path / "first").scores.tables[0]
    for shard in (tmp_path / "data" / "scores" / first).glob("*.arrow"):
        shard.write_bytes(b"damaged")
    again = contexts_asked(larger, tmp_path / "second", tmp_path / "data")
    assert again
    assert not {*again} & {*asked}
    assert tables(tmp_path / "second") == before


def test_the_time_of_a_plan_that_was_replaced_is_not_counted(tmp_path):
    """Its tokens are not counted either: the newer plan reuses its shards."""
    larger = replace(CONFIG, n_queries=6)
    contexts_scored(CONFIG, tmp_path / "first", tmp_path / "data")
    contexts_scored(larger, tmp_path / "second", tmp_path / "data")
    scores = tmp_path / "data" / "scores"
    first, second = (scores / read_run(tmp_path / name).scores.tables[0] for name in ("first", "second"))
    content = read_json(second / MANIFEST)
    for shard in content["shards"].values():
        shard["elapsed_s"] = 1000.0
    write_json(second / MANIFEST, content)
    for path in first.glob("*.arrow"):
        path.unlink()
    assert contexts_scored(larger, tmp_path / "second", tmp_path / "data")
    record = read_run(tmp_path / "second")
    assert {*content["shards"]} < {*read_json(second / MANIFEST)["shards"]}
    assert max(record.elapsed_s["score"], record.scores.elapsed_s, record.scores.throughput.elapsed_s) < 1000


def test_what_follows_from_changed_answers_is_built_again(tmp_path):
    """A second round belongs to the very scores that it was chosen by."""
    config = replace(CONFIG, methods=("ppl_icl",))

    class Shifted(FakeEngine):
        def log_likelihoods(self, requests):
            for number, answer in enumerate(super().log_likelihoods(requests)):
                yield replace(answer, token_log_probs=[[p - number for p in row] for row in answer.token_log_probs])

    finish(pipeline.run(config, MODEL, tmp_path))
    first = read_run(tmp_path).scores.stores
    for folder in (tmp_path / "scores").iterdir():
        for path in sorted(folder.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    with engine(Shifted()):
        finish(pipeline.run(config, MODEL, tmp_path))
    second = read_run(tmp_path).scores.stores
    assert first[0] == second[0]
    assert first[1] != second[1]


@pytest.fixture(scope="module")
def in_two_rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measured run with a second round, without a page; nothing may write to it."""
    out = tmp_path_factory.mktemp("runs") / "out"
    stages(IN_TWO_ROUNDS, out, FakeEngine())
    return out


def stages(config: RunConfig, folder: Path, made: FakeEngine) -> None:
    with engine(made):
        finish(pipeline.build(config, folder))
        finish(pipeline.score(folder, MODEL))
        finish(pipeline.measure(folder))


@settings(max_examples=5)
@given(seed=st.integers(0, 2**32), are_all_lost=st.booleans())
def test_a_second_round_is_that_of_the_answers_there_are_whichever_were_lost(
    tmp_path_factory, in_two_rounds, seed, are_all_lost
):
    """Files of scores are lost, and the model that answers again answers otherwise."""
    out, alone = (tmp_path_factory.mktemp("runs") / "out" for _ in range(2))
    copytree(in_two_rounds, out)

    class Moved(FakeEngine):
        def log_likelihoods(self, requests):
            for answer in super().log_likelihoods(requests):
                moved = [[p - crc32(f"{seed} {row}".encode()) % 7 for p in row] for row in answer.token_log_probs]
                yield replace(answer, token_log_probs=moved)

    shards = sorted(out.glob("scores/*/*/*.arrow"))
    for path in shards if are_all_lost else Random(seed).sample(shards, 1):
        path.unlink()
    stages(IN_TWO_ROUNDS, out, Moved())
    assert [fault.damaged for fault in finish(verify(out))] == ["page"]  # which was never written
    if are_all_lost:
        stages(IN_TWO_ROUNDS, alone, Moved())
        assert tables(alone) == tables(out)


def frames_of_ours() -> int:
    """Frames of the package from the entry of the pipeline to the caller."""
    package = str(Path(pipeline.__file__).parents[1])
    names = [frame.name for frame in traceback.extract_stack() if frame.filename.startswith(package)]
    return len(names) - names.index("run") if "run" in names else len(names)


def test_few_frames_lie_between_the_pipeline_and_the_engines_step(tmp_path, loaded_engine, monkeypatch):
    """At most seven: to the engine's verb from any engine, and from there to the step of vLLM."""
    counts = {}

    class Watched(FakeEngine):
        def log_likelihoods(self, requests):
            counts["to the verb"] = frames_of_ours()
            return super().log_likelihoods(requests)

    with engine(Watched()):
        finish(pipeline.run(CONFIG, MODEL, tmp_path))
    vllm = loaded_engine("vllm")
    request = ContinuationRequest([1, 2, 3], [[4], [5]])
    list(vllm.log_likelihoods([request]))  # loads the generating model where another test left the pooling one
    step = vllm._llm.llm_engine.step
    monkeypatch.setattr(vllm._llm.llm_engine, "step", lambda: counts.update(inside=frames_of_ours()) or step())
    list(vllm.log_likelihoods([request]))
    assert counts["to the verb"] + counts["inside"] <= 7, counts
