"""Read and write DIR/run.json, the record of a run, and the configuration in it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import evaluator
from evaluator.config import RunConfig
from evaluator.errors import StoreError
from evaluator.files.json_files import read_record, to_builtins, write_record
from evaluator.record import RunRecord
from evaluator.run_log import LOG_FILE, command_line, now

RUN_FILE = "run.json"
COMPARISON_FILE = "compare.json"
"""Record of the tables that a comparison has written."""

COMPARISON_PAGE = "compare.html"
MODELS = "models"  # folder of the runs of several models, in that of their comparison


def read_run(out: Path) -> RunRecord:
    """Read the record of a run. Raises StoreError if nothing was built."""
    require_run(out)
    hint = f"Run the command that wrote it again: existing scores are kept. The commands are in {out / LOG_FILE}."
    record = read_record(out / RUN_FILE, RunRecord, hint)
    assert record is not None, "the file is there"
    return record


def read_run_if_intact(out: Path) -> RunRecord | None:
    """Read the record of a run; None if there is none, or one that is damaged."""
    try:
        return read_run(out)
    except StoreError:
        return None


def require_run(out: Path) -> None:
    """Raise StoreError if a folder holds no run."""
    if not (out / RUN_FILE).is_file():
        raise StoreError(f"{out} holds no run. Make one with `evaluator build SUITE --out {out}` or `evaluator run`.")


def new_record(data: str, started: str) -> RunRecord:
    """Return the record of a run before its first stage.

    Args:
        data: folder of prompts and scores, relative to the output folder.
        started: time, as returned by now().
    """
    return RunRecord(evaluator=evaluator.__version__, started=started, finished=started, data=data)


def with_stage(record: RunRecord, stage: str, *, elapsed_s: dict[str, float], **sections: Any) -> RunRecord:
    """Return the record with the sections of a finished stage, its elapsed seconds and the command of this process."""
    return replace(
        record,
        evaluator=evaluator.__version__,
        finished=now(),
        commands=record.commands | {stage: command_line()},
        elapsed_s=record.elapsed_s | elapsed_s,
        **sections,
    )


def model_runs(out: Path) -> list[Path]:
    """Return the folders of the models' runs below the folder of a run of several models."""
    return sorted(path.parent for path in (out / MODELS).glob(f"*/{RUN_FILE}"))


def is_measured(record: RunRecord) -> bool:
    """Return whether a run is finished: its tables are those of its scores."""
    scores, measures = record.scores, record.measures
    return scores is not None and measures is not None and measures.scores == scores.fingerprint


def write_run(out: Path, record: RunRecord) -> None:
    write_record(out / RUN_FILE, record)


def config_to_json(config: RunConfig) -> dict[str, Any]:
    """Convert a configuration to values that JSON can hold. Paths become absolute, valid in any working folder."""
    data = config.data
    training, template = (path and path.absolute() for path in (data.training, data.template))
    data = replace(data, paths=tuple(path.absolute() for path in data.paths), training=training, template=template)
    return dict(to_builtins(replace(config, data=data)))


def identity(config: RunConfig) -> dict[str, Any]:
    """Return the settings that determine the prompts, besides the content of datasets and files; no path among them."""
    content = config_to_json(config)
    content["suite_options"] = {
        # Without paths, and without None in their place: a file counts the same whether it was named or is a default.
        name: {key: value for key, value in written.items() if not isinstance(getattr(options, key), Path | None)}
        for (name, options), written in zip(
            config.suite_options.items(), content["suite_options"].values(), strict=True
        )
    }
    return {key: value for key, value in content.items() if key not in ("datasets", "data")}
