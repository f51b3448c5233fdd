"""Everything that reads bytes which others may have written, with valid examples of them."""

import csv
import io
import json
import pickle
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from benchmarks.faults.hostile import CHOICE_ROWS, MODEL, TASK
from evaluator.config import DataOptions, ModelConfig, RunConfig, TableColumns
from evaluator.datasets.plain_pickle import read_examples
from evaluator.datasets.sources import load_datasets
from evaluator.errors import EvaluatorError
from evaluator.files.json_files import read_json, read_record, write_json, write_record
from evaluator.models.source import find_model
from evaluator.record import RunRecord, TokensRecord
from evaluator.run.config_json import config_from_json, config_to_json
from evaluator.run.record import read_run
from evaluator.scores.table import PlanRecord, ScoreManifest, ShardRecord
from evaluator.store.prompt_store import StoreManifest
from evaluator.suites.prompt_search.candidates import read_candidates
from evaluator.tokens.table import TokenManifest, TokenTotals


@dataclass(frozen=True)
class Parser:
    """A function that reads a file, and what the file may hold."""

    file_name: str
    parse: Callable[[Path], object]
    seeds: tuple[bytes, ...]


def fault_of(parser: Parser, content: bytes) -> str | None:
    """Parse a file with this content; return what was raised and where, None for a value or an EvaluatorError."""
    folder = Path(tempfile.mkdtemp(prefix="parsed-"))
    try:
        path = folder / parser.file_name
        path.write_bytes(content)
        parser.parse(path)
    except (EvaluatorError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt):
            raise
    except BaseException as error:  # Polars' PanicException is no Exception
        ours = [frame for frame in traceback.extract_tb(sys.exc_info()[2]) if "/evaluator/" in frame.filename]
        where = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "?"
        return f"{type(error).__name__} in {where}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None


def _choice_table(path: Path) -> object:
    columns = TableColumns(inputs=("input",), choices="choices", gold="gold", example_id="id")
    return [*load_datasets([], DataOptions(paths=(path,), columns=columns), query_every_row=False)]


def _datasets(path: Path) -> object:
    return [*load_datasets([], DataOptions(paths=(path,)), query_every_row=False)]


def _pickled(path: Path) -> object:
    return read_examples(path.read_bytes(), path, text_fields=("premise", "hypothesis"), n_labels=3)


def _config(path: Path) -> object:
    """Read the configuration of a model, whose other files are those of the embedded model."""
    for file in MODEL.iterdir():
        if file.name != path.name:
            (path.parent / file.name).symlink_to(file)
    source = find_model(ModelConfig(model=str(path.parent), engine="transformers"))
    return source, source.n_parameters


def _record_of(kind: type) -> Callable[[Path], object]:
    return lambda path: read_record(path, kind)


def _configuration(path: Path) -> object:
    content = read_json(path)
    return content and config_from_json(content, where=str(path))


def _rewritten(parse: Callable[[Path], object]) -> Callable[[Path], object]:
    """Return a parser of the same JSON written anew by write_json: a digest in it is right, its values are not."""

    def parse_rewritten(path: Path) -> object:
        with suppress(ValueError, RecursionError):
            content = json.loads(path.read_bytes())
            if isinstance(content, dict):
                write_json(path, content)
        return parse(path)

    return parse_rewritten


def _written(record: object) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        write_record(path, record)
        return path.read_bytes()


def _csv(rows: list[Mapping[str, object]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(rows: list[Mapping[str, object]]) -> bytes:
    content = io.BytesIO()
    pl.DataFrame(rows).write_parquet(content)
    return content.getvalue()


def _json_lines(rows: list[Mapping[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parsers() -> dict[str, Parser]:
    """Return every parser by name."""
    labelled: list[Mapping[str, object]] = [{"text": f"text {n}", "label": "ab"[n % 2]} for n in range(24)]
    choices: list[Mapping[str, object]] = [dict(row) for row in CHOICE_ROWS]
    pairs = [([f"premise {n}", "hypothesis"], n % 3) for n in range(6)]
    digest = "0" * 64
    store = StoreManifest(
        n_requests=1, n_prompts=1, requests={"requests-00000.arrow": digest}, prompts={}, tables={"t": {"a": digest}}
    )
    plan = PlanRecord(
        reused={"a/b.arrow": digest}, prompts=1, reused_prompts=0, n_shards=1, shard_tokens=64, shares_prefixes=True
    )
    shard = ShardRecord(sha256=digest, prompts=1, prompt_tokens=2, cached_tokens=0, elapsed_s=0.1)
    scores = ScoreManifest(plans={"scores": plan}, shards={"scores-0": shard}, distances={"knn": digest})
    totals = TokenTotals(request_tokens=1, tokens=1, floor_tokens=1, block_floor_tokens={"16": 1})
    tokens = TokenManifest(tokenizer="t", label_boundary="separate", shards={"a": digest}, counts=totals)
    config = config_to_json(RunConfig(suites=("staicc-normal",), datasets=("sst5",)))
    records = {
        "store manifest": Parser("manifest.json", _record_of(StoreManifest), (_written(store),)),
        "score manifest": Parser("manifest.json", _record_of(ScoreManifest), (_written(scores),)),
        "token manifest": Parser("manifest.json", _record_of(TokenManifest), (_written(tokens),)),
        "run configuration": Parser("config.json", _configuration, (_written(config),)),
        "run record": Parser("run.json", lambda path: read_run(path.parent), (_written(_run_record()),)),
    }
    rewritten = {
        f"{name}, rewritten": replace(parser, parse=_rewritten(parser.parse)) for name, parser in records.items()
    }
    candidates = {"instructions": ["Choose."], "templates": [{"output_prefix": " ->", "choice_prefix": None}]}
    return {
        "pickle": Parser("data.pkl", _pickled, tuple(pickle.dumps(pairs, protocol) for protocol in range(6))),
        "labelled csv": Parser("table.csv", _datasets, (_csv(labelled),)),
        "labelled json lines": Parser("table.jsonl", _datasets, (_json_lines(labelled),)),
        "labelled parquet": Parser("table.parquet", _datasets, (_parquet(labelled),)),
        "choices csv": Parser("table.csv", _choice_table, (_csv([{**r, "choices": '["a", "b"]'} for r in choices]),)),
        "choices json lines": Parser("table.jsonl", _choice_table, (_json_lines(choices),)),
        "choices parquet": Parser("table.parquet", _choice_table, (_parquet(choices),)),
        "task": Parser("task.json", _datasets, (json.dumps(TASK, indent=1).encode(),)),
        "candidates": Parser("candidates.json", read_candidates, (json.dumps(candidates).encode(),)),
        **records,
        **rewritten,
        "model configuration": Parser("config.json", _config, ((MODEL / "config.json").read_bytes(),)),
        "safetensors": Parser("model.safetensors", _config, (_small_weights(),)),
    }


def _run_record() -> RunRecord:
    tokens = TokensRecord(request_tokens=1, tokens=1, floor_tokens=1, block_tokens=None, block_floor_tokens=None)
    return RunRecord(evaluator="0", started="", finished="", data=".", elapsed_s={"build": 0.5}, tokens=tokens)


def _small_weights() -> bytes:
    """Return a safetensors file of two small tensors: the header of this format is JSON after its length."""
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]},
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(22)
