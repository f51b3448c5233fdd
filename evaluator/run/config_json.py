"""A run's configuration as JSON and back. One function each way, so that no field can be forgotten."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluator.config import RunConfig
from evaluator.files import from_builtins, to_builtins
from evaluator.suites import SUITES


def config_to_json(config: RunConfig) -> dict[str, Any]:
    """Return the configuration as JSON holds it; paths are absolute, so that it can be read from another folder."""
    data = replace(config.data, paths=tuple(path.absolute() for path in config.data.paths))
    return dict(to_builtins(replace(config, data=data)))


def config_from_json(content: dict[str, Any], *, where: str) -> RunConfig:
    """Return the configuration. Raises StoreError, naming the field, where it does not fit."""
    given = content.get("suite_options", {})
    config = from_builtins(content | {"suite_options": {}}, RunConfig, where=where)
    options: dict[str, object] = {
        name: from_builtins(values, kind, where=where)
        for name, values in given.items()
        if name in SUITES and (kind := SUITES[name].options)
    }
    return replace(config, suite_options=options)


def identity(config: RunConfig) -> dict[str, Any]:
    """Return what decides the prompts besides the content of data and files: no path is in it."""
    content = config_to_json(config)
    content["suite_options"] = {
        # None is left out as well, so that a file is the same whether it was named or found.
        name: {key: value for key, value in written.items() if not isinstance(getattr(options, key), Path | None)}
        for (name, options), written in zip(
            config.suite_options.items(), content["suite_options"].values(), strict=True
        )
    }
    return {key: value for key, value in content.items() if key not in ("datasets", "data")}
