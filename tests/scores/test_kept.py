"""A shard that is not finished keeps its answers, so that a run that is stopped asks only for the others."""

import itertools
import json
import random

import pytest

from evaluator.errors import ModelError, ScoreError
from evaluator.scores import compute
from evaluator.scores.compute import kept_file
from evaluator.scores.table import open_scores
from tests.scores.test_table import CountingEngine, score, token_rows


@pytest.fixture(autouse=True)
def always_kept(monkeypatch):
    monkeypatch.setattr(compute, "SECONDS_BETWEEN_KEPT", -1)


def shard_bytes(folder):
    return {path.name: path.read_bytes() for path in folder.glob("rows/*") if path.suffix == ".arrow"}


@pytest.mark.parametrize("seed", range(8))
def test_a_run_that_was_stopped_anywhere_asks_only_for_the_rest_and_ends_with_the_same_bytes(
    tmp_path, monkeypatch, seed
):
    if seed % 2:  # answers are saved at the end alone, after an interrupt or an error
        monkeypatch.setattr(compute, "SECONDS_BETWEEN_KEPT", 60.0)
    whole, rng = CountingEngine(), random.Random(seed)
    score(token_rows(100), whole, tmp_path / "whole" / "rows")
    asked = 0
    for _ in range(3):
        dies_of = rng.choice([KeyboardInterrupt, ModelError])
        engine = CountingEngine(dies_after=rng.randrange(1, whole.asked // 4), dies_of=dies_of)
        with pytest.raises(dies_of):
            score(token_rows(100), engine, tmp_path / "stopped" / "rows")
        asked += engine.asked
    score(token_rows(100), engine := CountingEngine(), tmp_path / "stopped" / "rows")
    assert asked + engine.asked == whole.asked
    assert shard_bytes(tmp_path / "stopped") == shard_bytes(tmp_path / "whole")
    stopped, undisturbed = (
        sum(shard.prompt_tokens for shard in open_scores(tmp_path / name / "rows").manifest.counted_shards)
        for name in ("stopped", "whole")
    )
    assert stopped == undisturbed
    assert not [*tmp_path.glob("*/rows/*.kept.json")]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other rows"])
def test_answers_that_are_damaged_or_of_other_rows_are_asked_for_again(tmp_path, caplog, damage):
    with pytest.raises(KeyboardInterrupt):
        score(token_rows(100), CountingEngine(dies_after=30), tmp_path / "stopped" / "rows")
    kept = max((tmp_path / "stopped" / "rows").glob("*.kept.json"), key=lambda path: path.stat().st_mtime_ns)
    content = kept.read_bytes()
    if damage == "other rows":
        from evaluator.files.json_files import read_json, write_json

        write_json(kept, read_json(kept) | {"rows": "0123456789abcdef"})
    else:
        place = content.index(b'"answers"') + 40
        flipped = content[:place] + (b"1" if content[place : place + 1] != b"1" else b"2") + content[place + 1 :]
        kept.write_bytes({"flip": flipped, "cut": content[:-30], "empty": b""}[damage])
    score(token_rows(100), CountingEngine(), tmp_path / "stopped" / "rows")
    score(token_rows(100), CountingEngine(), tmp_path / "whole" / "rows")
    assert shard_bytes(tmp_path / "stopped") == shard_bytes(tmp_path / "whole")
    assert ("These prompts are scored again." in caplog.text) == (damage != "other rows")


def test_a_minute_passes_between_two_files(tmp_path, monkeypatch):
    monkeypatch.setattr(compute, "SECONDS_BETWEEN_KEPT", 60.0)
    written, clock = [], itertools.count(0, 7)  # each look at the clock is 7 s later
    monkeypatch.setattr("evaluator.scores.compute.write_json", lambda path, _content: written.append(path.name))
    monkeypatch.setattr("evaluator.scores.compute.time.monotonic", lambda: float(next(clock)))
    score(token_rows(100), CountingEngine(), tmp_path / "rows")
    assert written
    assert next(clock) / len(written) > 60


def test_what_is_kept_of_finished_shards_goes(tmp_path):
    score(token_rows(100), CountingEngine(), tmp_path / "rows")
    (shard, *_) = open_scores(tmp_path / "rows").manifest.shards
    (tmp_path / "rows" / kept_file(shard)).write_text(json.dumps({}))
    score(token_rows(100), CountingEngine(), tmp_path / "rows")
    assert not [*tmp_path.glob("rows/*.kept.json")]


@pytest.mark.parametrize("fault", ["twice", "too few"])
def test_an_engine_that_answers_twice_or_not_at_all_is_an_error_without_asserts(tmp_path, fault):
    class OddEngine(CountingEngine):
        """Answers a request again, or leaves out the last."""

        def log_likelihoods(self, requests):
            answers = [*super().log_likelihoods(requests)]
            yield from [*answers, answers[0]] if fault == "twice" else answers[:-1]

    with pytest.raises(ScoreError, match=r"answered (request )?\d+ of .*"):
        score(token_rows(100), OddEngine(), tmp_path / "rows")
