"""A finished run is never replaced without a word: only one that it extends may be made in its folder."""

from collections.abc import Iterator
from pathlib import Path

from evaluator.config import RunConfig
from evaluator.errors import ConfigError, StoreError
from evaluator.record import ChatRecord, RunRecord
from evaluator.run.config_json import config_to_json
from evaluator.run.record import RUN_FILE, read_run
from evaluator.run.resolved_models import ResolvedModel

PROMPT_OPTIONS = ("labels", "template", "instruction", "columns", "training_rows")
"""Fields of config.DataOptions, besides the data, that change the prompts."""


def require_extended(out: Path, config: RunConfig, model: ResolvedModel | None, *, force: bool) -> None:
    """Raise ConfigError for a folder that holds a finished run of another model, dataset, suite, template or shots.

    More queries, parts and methods extend a run. An unfinished run is no obstacle, and neither is a damaged record.

    Args:
        out: folder of the new run.
        config: what it evaluates.
        model: the model that it evaluates; None for several.
        force: whether the finished run may be replaced.
    """
    if force or not (out / RUN_FILE).is_file():
        return
    try:
        record = read_run(out)
    except StoreError:
        return  # the stages say what is wrong with it
    scores, measures = record.scores, record.measures
    if scores is None or measures is None or measures.scores != scores.fingerprint:
        return
    for name, there, asked in _differences(record, config, model):
        raise ConfigError(
            f"{out} holds a finished run with the {name} {there}, and this one has {asked}. Choose another folder with "
            "--out, or replace that run with --force."
        )


def _differences(record: RunRecord, config: RunConfig, model: ResolvedModel | None) -> Iterator[tuple[str, str, str]]:
    """Yield in what a new run does not continue a finished one: what it is, the finished run's and the new run's."""
    assert record.prompts is not None, "the run is finished"
    assert record.scores is not None, "the run is finished"
    assert record.model is not None, "the run is finished"
    if model is None:
        yield "model", record.model.title, "several models"
        return
    if record.model.weights_fingerprint != model.source.fingerprint:
        yield "model", _with_digest(record.model.title, record), f"{model.record.title} ({model.source.fingerprint})"
    chat = model.form.chat.record if model.form.chat else None
    if _form(record.scores.chat) != _form(chat):
        yield "chat template", _form(record.scores.chat), _form(chat)
    if record.scores.label_boundary != model.form.boundary:
        yield "label boundary", record.scores.label_boundary, model.form.boundary
    before, after = record.prompts.config, config_to_json(config)
    data_before, data_after = before["data"], after["data"]
    names = {
        "suites": (before["suites"], after["suites"]),
        "datasets": (before["datasets"], after["datasets"]),
        "data": ([Path(path).name for path in data_before["paths"]], [Path(path).name for path in data_after["paths"]]),
        "data of the hub": (data_before["repositories"], data_after["repositories"]),
    }
    for name, (there, asked) in names.items():
        if not {*there} <= {*asked}:
            yield name, ", ".join(there), ", ".join(asked) or "none"
    if before["n_shots"] != after["n_shots"]:
        yield "number of shots", str(before["n_shots"]), str(after["n_shots"])
    for name in PROMPT_OPTIONS:
        if data_before[name] != data_after[name]:
            yield f"option {name}", str(data_before[name]), str(data_after[name])
    for suite in before["suite_options"].keys() & after["suite_options"].keys():
        options, others = before["suite_options"][suite], after["suite_options"][suite]
        for name in options:
            if options[name] != others.get(name):
                yield f"option {name} of {suite}", str(options[name]), str(others.get(name))


def _with_digest(title: str, record: RunRecord) -> str:
    assert record.model is not None, "the run is finished"
    return f"{title} ({record.model.weights_fingerprint})"


def _form(chat: ChatRecord | None) -> str:
    return "none" if chat is None else f"{chat.form} ({chat.sha256[:8]})"
