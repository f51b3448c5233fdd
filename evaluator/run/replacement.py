"""Refuse to replace a finished run: a run takes its folder only if it extends it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluator.config import RunConfig
from evaluator.errors import ConfigError
from evaluator.record import ChatRecord, RunRecord
from evaluator.run.record import COMPARISON_PAGE, config_to_json, model_runs, read_run_if_intact
from evaluator.run.resolved_models import PromptForm, ResolvedModel

_LISTS = ("suites", "datasets", "parts", "methods", "definitions")
"""Fields of a configuration to which a run may add, and from which it may take nothing."""


def finished_run(out: Path, *, force: bool = False) -> RunRecord | None:
    """Return the record of a run that must stay: a finished run, or an extension of one that was interrupted.

    Args:
        out: folder of the run.
        force: whether the run may be replaced, so that none must stay.
    """
    record = None if force else read_run_if_intact(out)
    return record if record and record.measures else None


def check_configuration(out: Path, earlier: RunRecord | None, config: RunConfig) -> None:
    """Raise ConfigError for a configuration that would replace a finished run.

    More suites, datasets, parts, methods, definitions or queries extend a run; everything else replaces it.

    Args:
        out: folder of the run.
        earlier: the record of the finished run; None if there is none.
        config: the configuration of the new run.
    """
    if earlier and earlier.prompts:
        asked = json.loads(json.dumps(config_to_json(config)))  # tuples are lists in a record
        _require_none(out, earlier, _changed(earlier.prompts.config, asked))


def check_datasets(out: Path, earlier: RunRecord | None, fingerprints: Mapping[str, str]) -> None:
    """Raise ConfigError for datasets that would replace a finished run: some are left out or have other content.

    Args:
        out: folder of the run.
        earlier: the record of the finished run; None if there is none.
        fingerprints: of the datasets of the new run, by name.
    """
    if earlier and earlier.prompts:
        known = earlier.prompts.dataset_fingerprints
        missing = [f"datasets without {name}" for name in known if name not in fingerprints]
        other = [name for name, digest in fingerprints.items() if known.get(name, digest) != digest]
        changes = [f"{name} with other rows, labels or texts around them" for name in other]
        _require_none(out, earlier, [*missing, *changes])


def check_model(out: Path, earlier: RunRecord | None, resolved: ResolvedModel) -> None:
    """Raise ConfigError for a model, or a form of prompts, that would replace a finished run.

    Args:
        out: folder of the run.
        earlier: the record of the finished run; None if there is none.
        resolved: the model of the new run.
    """
    if earlier and earlier.measures:
        _require_none(out, earlier, _other_model(earlier, resolved))


def check_comparison(out: Path, folders: Sequence[Path], *, force: bool = False) -> None:
    """Raise ConfigError if a folder holds a finished run, or a comparison with a model that the new one lacks.

    Args:
        out: folder of the comparison, or of a run of one model.
        folders: those of the models' runs; none for a run of one model.
        force: whether to replace it.
    """
    if folders and (record := finished_run(out, force=force)):
        _require_none(out, record, ["several models"])
    compared = model_runs(out) if (out / COMPARISON_PAGE).is_file() else []
    earlier = {path: record for path in compared if (record := finished_run(path, force=force))}
    if not earlier.keys() <= {*folders}:
        models = [record.model.title if record.model else path.name for path, record in earlier.items()]
        asked = ", ".join(folder.name for folder in folders) or "a single model"
        raise ConfigError(
            f"{out} holds a finished comparison of {', '.join(models)}, and this command is for "
            f"{asked}. Choose another --out, or replace it with --force."
        )


def _require_none(out: Path, record: RunRecord, changes: Iterator[str] | Sequence[str]) -> None:
    """Raise ConfigError if there are changes that replace a run."""
    if asked := "; ".join(changes):
        assert record.prompts is not None, "it is measured"
        model = record.model.title if record.model else "an unknown model"
        raise ConfigError(
            f"{out} holds a finished run ({', '.join(record.prompts.suites)} on {', '.join(record.prompts.datasets)} "
            f"with {model}), and this command would replace it: {asked}. Choose another --out, or replace "
            "it with --force."
        )


def _changed(earlier: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings that a configuration lacks or changes; both are as run.json has them."""
    for field in _LISTS:
        if asked[field] is None:  # all parts
            continue
        if earlier[field] is None:
            yield f"{field} {', '.join(asked[field])} instead of all"
        elif missing := [name for name in earlier[field] if name not in asked[field]]:
            yield f"{field} {', '.join(asked[field])} without {', '.join(missing)}"
    if earlier["n_shots"] != asked["n_shots"] and not asked["shots_by_labels"]:
        yield f"{asked['n_shots']} shots instead of {earlier['n_shots']}"
    before, now = earlier["n_queries"], asked["n_queries"]
    if now is not None and (before is None or now < before):
        yield f"{now} queries instead of {'all' if before is None else before}"
    for suite, options in earlier["suite_options"].items():
        for name, value in asked["suite_options"].get(suite, options).items():
            if name in options and options[name] != value:
                yield f"{name} {value} instead of {options[name]}"


def _other_model(record: RunRecord, resolved: ResolvedModel) -> Iterator[str]:
    """Yield the differences of a model from the model of a finished run: weights, or the form of prompts."""
    model, scores, engine = record.model, record.scores, record.engine
    if model is not None and model.weights_fingerprint != resolved.record.weights_fingerprint:
        same = model.title == resolved.record.title
        yield f"model {resolved.record.title} {'with other weights' if same else f'instead of {model.title}'}"
    if engine is None or scores is None:  # an extension that was interrupted before it had all scores
        return
    if engine.quantization != resolved.config.quantization:
        yield f"quantization {resolved.config.quantization or 'none'} instead of {engine.quantization or 'none'}"
    if resolved.config.dtype not in ("auto", engine.dtype):
        yield f"dtype {resolved.config.dtype} instead of {engine.dtype}"
    asked_head = {"model": engine.dtype, "float32": "float32"}.get(resolved.config.head_dtype)
    if engine.head_dtype and asked_head not in (None, engine.head_dtype):
        yield f"logits in {asked_head} instead of {engine.head_dtype}"
    asked, earlier = _form_text(resolved.form), _recorded_form(scores.label_boundary, scores.chat)
    if asked != earlier:
        yield f"{asked} instead of {earlier}"


def _form_text(form: PromptForm) -> str:
    return _recorded_form(form.boundary, form.chat.record if form.chat else None)


def _recorded_form(boundary: str, chat: ChatRecord | None) -> str:
    return f"{f'{chat.form}, {chat.sha256[:12]}' if chat else 'plain prompts'}, label boundary {boundary}"
