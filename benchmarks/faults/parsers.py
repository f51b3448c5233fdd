"""List all functions that parse bytes from outside, with valid inputs as seeds for fuzzing."""

import csv
import io
import json
import os
import pickle
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import polars as pl
import urllib3

import evaluator
from benchmarks.faults.hostile import CHOICE_ROWS, MODEL, TASK
from evaluator.config import DataOptions, ImportColumns, ModelConfig, RunConfig, TableColumns
from evaluator.datasets.labelled_table import read_labels, read_table_text
from evaluator.datasets.sources import load_datasets
from evaluator.datasets.staicc import read_examples
from evaluator.engine.server_client import ServedModel, ServerClient, UnavailableError
from evaluator.engine.server_protocols import PROTOCOLS, ScoringPrompt
from evaluator.errors import EvaluatorError
from evaluator.files.json_files import DIGEST, read_json, read_record, write_json, write_record
from evaluator.imports.files import read_files
from evaluator.models.source import find_model
from evaluator.record import RunRecord, TokensRecord
from evaluator.run.folder import config_from_json
from evaluator.run.folders import config_to_json, read_run
from evaluator.scores.table import PlanRecord, ScoreManifest, ShardRecord
from evaluator.store import StoreManifest
from evaluator.suites.in_context_pvi.correlations import read_annotations
from evaluator.suites.prompt_search.prompts import read_candidates
from evaluator.templates.template import ChoiceTemplate
from evaluator.tokens.rows import TokenTotals
from evaluator.tokens.table import TokenManifest

PACKAGE = str(Path(evaluator.__file__).parent) + os.sep


@dataclass(frozen=True)
class Parser:
    """A function that reads a file, the name of the file, and valid contents."""

    file_name: str
    parse: Callable[[Path], object]
    seeds: tuple[bytes, ...]  # valid contents


def fault_of(parser: Parser, content: bytes) -> str | None:
    """Parse a file with this content; return the unexpected error and its place, or None.

    A value and an EvaluatorError are expected.
    """
    folder = Path(tempfile.mkdtemp(prefix="parsed-"))
    try:
        path = folder / parser.file_name
        path.write_bytes(content)
        parser.parse(path)
    except (EvaluatorError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt):
            raise
    except BaseException as error:  # Polars' PanicException does not inherit from Exception
        ours = [frame for frame in traceback.extract_tb(sys.exc_info()[2]) if frame.filename.startswith(PACKAGE)]
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


def _imported(path: Path) -> object:
    return read_files([path], ImportColumns())


QUESTIONS = (
    [ScoringPrompt([1, 2, 3], (5, 6)), ScoringPrompt([1, 2], (5, 6))],
    [ScoringPrompt([1, 2, 3], (), 2), ScoringPrompt([7, 8], (), 1)],
)
"""Requests for the log-probabilities of two labels after two prompts, and of the tokens of two prompts."""


def _server_answer(path: Path) -> object:
    """Send requests to a server that answers all of them with the bytes of a file."""
    client, answer = ServerClient("http://server"), path.read_bytes()

    class Pool:
        def request(self, *_asked: object, **_options: object) -> urllib3.HTTPResponse:
            return urllib3.HTTPResponse(body=io.BytesIO(answer), status=200)

    client._pool = Pool()  # type: ignore[assignment]
    asked: tuple[Callable[[], object], ...] = (
        *(
            partial(client.log_probs, ServedModel("model", None, kind, ""), questions)
            for kind in PROTOCOLS
            for questions in QUESTIONS
        ),
        partial(client.served_model, None, "model"),
        partial(client.tokens_of, "model", "a text"),
    )
    given = []
    for ask in asked:
        with suppress(UnavailableError, EvaluatorError):  # after UnavailableError a run would try again later
            given.append(ask())
    return given


def _server_answers() -> tuple[bytes, ...]:
    """Return valid answers of a server to QUESTIONS, and its answer about itself."""
    top = [{"logprobs": {"top_logprobs": [{"token_id:5": -0.5, "token_id:6": -1.5}]}} for _ in range(2)]
    prompts: list[list[object]] = [
        [None, {"2": {"logprob": -0.5}}, {"3": {"logprob": -1}}],
        [None, {"8": {"logprob": -2}}],
    ]
    choices = [
        [{"index": n} | choice for n, choice in enumerate(top)],
        [{"index": n, "prompt_logprobs": rows} for n, rows in enumerate(prompts)],
    ]
    completions = [{"model": "model", "choices": each} for each in choices]
    models = {"data": [{"id": "model", "max_model_len": 64}], "version": "0.32.0", "tokens": [1, 2]}
    of_sglang: list[dict[str, object]] = [
        {"output_token_ids_logprobs": [[[-0.5, 5, None], [-1.5, 6, None]]]},
        {"input_token_logprobs": [[None, 1, None], [-0.5, 2, None], [-1, 3, None]]},
    ]
    generated = [[{"meta_info": {"prompt_tokens": n, **about}} for n in (3, 2)] for about in of_sglang]
    return tuple(json.dumps(answer).encode() for answer in (*completions, models, *generated))


def _config(path: Path) -> object:
    """Read one damaged file of a model whose other files are those of the embedded model."""
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
    """Return a parser of the JSON after write_json has written it again, so that its digest is right for its values."""

    def parse_rewritten(path: Path) -> object:
        with suppress(ValueError, RecursionError):
            content = json.loads(path.read_bytes())
            if isinstance(content, dict):
                content.pop(DIGEST, None)
                write_json(path, content)
        return parse(path)

    return parse_rewritten


def _without_architectures(configuration: bytes) -> bytes:
    """Return the configuration of a model without its architecture, which transformers then has to find."""
    entries = json.loads(configuration)
    return json.dumps({key: value for key, value in entries.items() if key != "architectures"}).encode()


TEMPLATE = b"""instruction = "Classify."
input_prefixes = ["text: "]
input_affixes = ["\\n"]
label_prefix = "label: "
instructions = ["Which?", "What?"]

[labels]
a = "bad"

[alternatives]
instructions = ["One. ", "Two. "]
"""


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
    """Return name -> parser, for all parsers."""
    labelled: list[Mapping[str, object]] = [{"text": f"text {n}", "label": "ab"[n % 2]} for n in range(24)]
    choices: list[Mapping[str, object]] = [dict(row) for row in CHOICE_ROWS]
    pairs = [([f"premise {n}", "hypothesis"], n % 3) for n in range(6)]
    configuration = (MODEL / "config.json").read_bytes()
    digest = "0" * 64
    store = StoreManifest(
        n_requests=1, n_prompts=1, requests={"requests-00000.arrow": digest}, prompts={}, tables={"t": {"a": digest}}
    )
    plan = PlanRecord(reused={"a/b.arrow": digest}, prompts=1, reused_prompts=0, shard_tokens=64, shares_prefixes=True)
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
    answers: list[Mapping[str, object]] = [
        {"gold": "b", "label_probs": "[0.25, 0.75]", "label_names": '["a", "b"]', "query_id": n} for n in range(6)
    ]
    samples: list[Mapping[str, object]] = [
        {
            "doc_id": n,
            "target": str(n % 2),
            "arguments": {f"gen_args_{k}": {"arg_0": "Is it?", "arg_1": f" {'ab'[k]}"} for k in range(2)},
            "resps": [[[-1.5, False]], [[-0.5, True]]],
            "filter": "none",
            "acc": n % 2,
        }
        for n in range(6)
    ]
    annotations: list[Mapping[str, object]] = [
        {"premise": f"p{n}", "hypothesis": "h", "old_labels": ["a", "b", "a"], "label_count": [n, 2, 1]}
        for n in range(6)
    ]
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
        "annotations": Parser("annotations.parquet", lambda path: read_annotations([path]), (_parquet(annotations),)),
        "template": Parser("template.toml", read_table_text, (TEMPLATE,)),
        "label names": Parser("labels.toml", lambda path: read_labels(str(path)), (b'1 = "bad"\n"2" = "good"\n',)),
        "imported csv": Parser("table.csv", _imported, (_csv(answers),)),
        "imported json lines": Parser("table.jsonl", _imported, (_json_lines(answers),)),
        "imported parquet": Parser("table.parquet", _imported, (_parquet(answers),)),
        "imported samples": Parser("samples_task_1.jsonl", _imported, (_json_lines(samples),)),
        "server answer": Parser("answer.json", _server_answer, _server_answers()),
        "candidates": Parser(
            "candidates.json", partial(read_candidates, template=ChoiceTemplate()), (json.dumps(candidates).encode(),)
        ),
        **records,
        **rewritten,
        "model configuration": Parser("config.json", _config, (configuration, _without_architectures(configuration))),
        "safetensors": Parser("model.safetensors", _config, (_small_weights(),)),
    }


def _run_record() -> RunRecord:
    tokens = TokensRecord(request_tokens=1, tokens=1, floor_tokens=1, block_tokens=None, block_floor_tokens=None)
    return RunRecord(evaluator="0", started="", finished="", data=".", elapsed_s={"build": 0.5}, tokens=tokens)


def _small_weights() -> bytes:
    """Return a safetensors file of two small tensors: the length of the header, the JSON header, and the values."""
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]},
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(22)
