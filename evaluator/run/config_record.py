"""What a manifest says of the configuration it was built from, in two parts, and the configuration they came from.

Records of a search and of pvi say what is asked, and the store's fingerprint changes with them: of files they hold what
these hold, not where they lie. The sources say where to read the same data again, and may change.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluator.config import PviConfig, SearchConfig, StoreConfig, TableColumns
from evaluator.files import short_digest
from evaluator.suites.in_context_pvi.demonstration_sets import prompts_file
from evaluator.suites.prompt_search.candidates import read_candidates


def search_record(search: SearchConfig | None) -> dict[str, Any] | None:
    """What a search tries."""
    if search is None:
        return None
    candidates = read_candidates(search.candidates).fingerprint if search.candidates else None
    record = {name: getattr(search, name) for name in ("tries", "seed", "halving")}
    return record | {"shots": list(search.shots), "candidates": candidates}


def pvi_record(pvi: PviConfig | None) -> dict[str, Any] | None:
    """What stands before the queries of pvi."""
    if pvi is None:
        return None
    record = {name: getattr(pvi, name) for name in ("source", "sets", "seed", "training_queries")}
    record["shots"] = list(pvi.shots) if pvi.shots else None
    if pvi.source == "published":
        record["published"] = short_digest(prompts_file(pvi).read_bytes())
    return record


def sources_record(config: StoreConfig) -> dict[str, Any]:
    """Where the datasets come from, for whoever reads them again from another working folder."""
    pvi = config.pvi or PviConfig()
    return {
        "datasets": list(config.datasets),
        "data": [str(path.absolute()) for path in pvi.data],
        "hub": pvi.hub,
        "inputs": list(pvi.columns.inputs) if pvi.columns.inputs else None,
        "choices": pvi.columns.choices,
        "gold": pvi.columns.gold,
        "prompts": str(pvi.prompts.absolute()) if pvi.prompts else None,
    }


def stored_config(manifest: Mapping[str, Any]) -> StoreConfig:
    """The configuration of a store that is not of the suite prompt-search, whose methods ask all they ask at once."""
    sources = manifest["sources"]
    return StoreConfig(
        suites=tuple(manifest["suites"]),
        datasets=tuple(sources["datasets"]),
        methods=tuple(manifest["methods"]),
        definitions=tuple(manifest["definitions"]),
        n_shots=manifest["n_shots"],
        n_queries=manifest["n_queries"],
        pvi=_stored_pvi(manifest["pvi"], sources) if manifest["pvi"] else None,
    )


def _stored_pvi(record: Mapping[str, Any], sources: Mapping[str, Any]) -> PviConfig:
    return PviConfig(
        **{name: record[name] for name in ("source", "sets", "seed", "training_queries")},
        shots=tuple(record["shots"]) if record["shots"] else None,
        data=tuple(map(Path, sources["data"])),
        hub=sources["hub"],
        columns=TableColumns(
            inputs=tuple(sources["inputs"]) if sources["inputs"] else None,
            choices=sources["choices"],
            gold=sources["gold"],
        ),
        prompts=Path(sources["prompts"]) if sources["prompts"] else None,
    )
