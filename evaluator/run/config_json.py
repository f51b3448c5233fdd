"""Convert a run's configuration to JSON and back, all fields at once, so that none can be forgotten."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluator.config import RunConfig
from evaluator.errors import StoreError
from evaluator.files.json_files import from_builtins, to_builtins
from evaluator.suites import SUITES


def config_to_json(config: RunConfig) -> dict[str, Any]:
    """Convert a configuration to values that JSON can hold. Paths become absolute, valid in any working folder."""
    data = config.data
    training, template = (path and path.absolute() for path in (data.training, data.template))
    data = replace(data, paths=tuple(path.absolute() for path in data.paths), training=training, template=template)
    return dict(to_builtins(replace(config, data=data)))


def config_from_json(content: dict[str, Any], *, where: str) -> RunConfig:
    """Convert values read from JSON to a configuration. Raises StoreError, naming `where` and the field."""
    given = content.get("suite_options", {})
    if not isinstance(given, dict):
        raise StoreError(f"{where} is damaged or of another version (suite_options must be an object).")
    config = from_builtins(content | {"suite_options": {}}, RunConfig, where=where)
    options: dict[str, object] = {
        name: from_builtins(values, kind, where=where)
        for name, values in given.items()
        if name in SUITES and (kind := SUITES[name].options)
    }
    return replace(config, suite_options=options)


def identity(config: RunConfig) -> dict[str, Any]:
    """Return what determines the prompts in addition to the content of datasets and files; it includes no path."""
    content = config_to_json(config)
    content["suite_options"] = {
        # Without paths, and without None in their place: a file counts the same whether it was named or is a default.
        name: {key: value for key, value in written.items() if not isinstance(getattr(options, key), Path | None)}
        for (name, options), written in zip(
            config.suite_options.items(), content["suite_options"].values(), strict=True
        )
    }
    return {key: value for key, value in content.items() if key not in ("datasets", "data")}
