"""Which folders of prompts, tokens and scores runs need: to verify, to report, and to go on without asking again."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import StoreError
from evaluator.files.json_files import MANIFEST, read_json
from evaluator.record import RunRecord
from evaluator.tokens.table import rows_fingerprint


class Needs(NamedTuple):
    """Folders, resolved."""

    stores: set[Path]
    tokens: set[Path]
    scores: set[Path]


def needs_of(runs: Iterable[tuple[RunRecord, Path]]) -> Needs:
    """Return what runs need; each comes with the folder of its prompts and scores.

    A scored run needs what its record names. One that is not scored yet keeps all tokens of its prompts, and all scores
    of these tokens, of whichever model. Scores that were taken from another folder need that folder too.
    """
    needs = Needs(set(), set(), set())
    for record, root in runs:
        if record.scores is not None:
            for store, tokens in zip(record.scores.stores, record.scores.tokens, strict=True):
                needs.stores.add(root / "store" / store)
                needs.tokens.add(root / "store" / store / tokens)
            files = (name.rpartition("/")[0] for name in record.scores.files)
            needs.scores.update(root / "scores" / name for name in (*record.scores.tables, *files))
        if record.prompts is not None:
            store_folder = root / "store" / record.prompts.fingerprint
            needs.stores.add(store_folder)
            if record.scores is None:
                begun = {path.parent: _rows(path) for path in store_folder.glob(f"tokens-*/{MANIFEST}")}
                needs.tokens.update(begun)
                needs.scores.update(path for rows in begun.values() for path in (root / "scores").glob(f"*/{rows}"))
    _add_sources(needs.scores)
    return Needs(*({path.resolve() for path in paths} for paths in needs))  # `store` and `scores` can be links


def _rows(manifest: Path) -> str:
    """Return the name of the folders with scores of a token table; "-", which names none, if the table is damaged."""
    try:
        return rows_fingerprint((read_json(manifest) or {})["shards"])
    except (StoreError, KeyError):
        return "-"


def _add_sources(scores: set[Path]) -> None:
    """Add the folders that scores were taken from."""
    left = [*scores]
    while left:
        folder = left.pop()
        try:
            plans = (read_json(folder / MANIFEST) or {}).get("plans", {})
        except StoreError:
            continue
        names = {name.rpartition("/")[0] for plan in plans.values() for name in plan["reused"]}
        sources = {folder.parent / name for name in names} - scores
        scores |= sources
        left += sources
