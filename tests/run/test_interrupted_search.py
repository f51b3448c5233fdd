"""A prompt search with halving that is killed at a file event of any of its rounds, and run again."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.config import DataOptions, ModelConfig, RunConfig
from evaluator.files.whole import PARTIAL
from evaluator.progress import finish
from evaluator.run import pipeline
from evaluator.run.folder import read_scores
from evaluator.suites.prompt_search.prompts import SearchOptions

FAKE = ModelConfig(model="fake", engine="fake")


class Killed(BaseException):
    """Nothing handles it, like a kill; what would clean up fails with it too."""


@dataclass
class FileEvents:
    """Counts renamed files; at one of them the process is as good as dead, before or after the rename."""

    kill_at: int
    after: bool
    count: int = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        rename, unlink = Path.replace, Path.unlink

        def counted(path: Path, target: Path) -> Path:
            self.count += 1
            if self.count == self.kill_at and not self.after:
                raise Killed
            renamed = rename(path, target)
            if self.count == self.kill_at:
                raise Killed
            return renamed

        def kept(path: Path, missing_ok: bool = False) -> None:
            if self.count != self.kill_at:  # the dead remove nothing
                unlink(path, missing_ok=missing_ok)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "replace", counted)
            patch.setattr(Path, "unlink", kept)
            yield


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> RunConfig:
    """Three rounds of 16, 32 and 64 queries."""
    path = tmp_path_factory.mktemp("data") / "colours.jsonl"
    rows = [
        {"input": f"Which colour is thing {n}?", "choices": ["red", "green", "blue"][: 2 + n % 2], "gold": n % 2}
        for n in range(80)
    ]
    pl.DataFrame(rows).write_ndjson(path)
    return RunConfig(
        suites=("prompt-search",),
        data=DataOptions(paths=(path,)),
        n_queries=64,
        methods=("per_token",),
        definitions=("paper",),
        suite_options={"prompt-search": SearchOptions(shots=(1,), tries=4, halving=True)},
    )


def tables(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((out / "tables").iterdir())}


@pytest.fixture(scope="module")
def undisturbed(config, tmp_path_factory) -> tuple[Path, int]:
    """A whole run, and the number of its file events."""
    out, events = tmp_path_factory.mktemp("search") / "out", FileEvents(kill_at=0, after=False)
    with events.watched():
        finish(pipeline.run(config, FAKE, out))
    return out, events.count


@settings(max_examples=6)
@given(share=st.floats(0, 1), after=st.booleans())
def test_a_search_killed_at_a_file_event_ends_with_the_same_tables_and_no_partial_file(
    config, undisturbed, tmp_path_factory, share, after
):
    whole, n_events = undisturbed
    out = tmp_path_factory.mktemp("killed") / "out"
    assert 0 < read_scores(whole).collect().height < 4 * 64  # some prompts were stopped
    assert n_events > 15  # prompts, tokens, plan and shards of three rounds, tables, record and page
    with pytest.raises(Killed), FileEvents(kill_at=1 + round(share * (n_events - 1)), after=after).watched():
        finish(pipeline.run(config, FAKE, out))
    assert after or list(out.rglob(f"*{PARTIAL}"))
    finish(pipeline.run(config, FAKE, out))
    assert tables(out) == tables(whole)
    assert not list(out.rglob(f"*{PARTIAL}"))
