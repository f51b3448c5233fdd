"""Arrow shards and the manifest that makes them count: frames in, files that are whole or absent out.

A shard is written under a temporary name, flushed to disk and renamed; it counts once the manifest, written the same
way after it, names it. So a process killed at any moment leaves either the old state or the new one.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any

import polars as pl
import pyarrow as pa

from evaluator.errors import StoreError

MANIFEST = "manifest.json"


def fingerprint(*parts: object) -> str:
    """Sixteen hex digits that change whenever any part does. Parts must be JSON-serialisable; key order is ignored."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def source_fingerprint(*folders: str) -> str:
    """Of the source in these folders of the package: version numbers are forgotten when code changes."""
    package = Path(__file__).parents[1]
    files = [path for folder in folders for path in sorted((package / folder).rglob("*.py"))]
    return fingerprint([[path.name, hashlib.sha256(path.read_bytes()).hexdigest()] for path in files])


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name only once it is complete and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, content: dict[str, Any]) -> None:
    with replacing(path) as file:
        file.write((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of a JSON file, or None where there is none. Raises StoreError when it is damaged."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreError(f"{path} is damaged ({error}). Remove its folder and run again.") from error
    if not isinstance(content, dict):
        raise StoreError(f"{path} is damaged (an object was expected). Remove its folder and run again.")
    return content


def write_shard(path: Path, frame: pl.DataFrame) -> str:
    """Write one shard and return the SHA-256 of its bytes; equal frames give equal bytes."""
    # In plain Arrow layout, because the views in which Polars holds strings depend on how the frame was put together.
    table = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with replacing(path) as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
        writer.write_table(table)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_shards(folder: Path, name: str, frame: pl.DataFrame, *, rows: int) -> dict[str, str]:
    """Cut a frame into shards of `rows` rows (at least one shard); file name -> SHA-256, in order."""
    digests = {}
    for number, start in enumerate(range(0, max(frame.height, 1), rows)):
        file_name = f"{name}-{number:05d}.arrow"
        digests[file_name] = write_shard(folder / file_name, frame.slice(start, rows))
    return digests


def intact(folder: Path, digests: dict[str, str]) -> bool:
    """Whether every shard the manifest names is there with the bytes it had when it was written."""
    for name, expected in digests.items():
        path = folder / name
        if not path.is_file():
            return False
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                return False
    return True


def scan_shards(folder: Path, names: list[str], schema: pl.Schema) -> pl.LazyFrame:
    """The shards a manifest names, in its order, as one lazy frame."""
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise StoreError(f"{folder} lacks {missing[0]}, which its manifest names. Remove the folder and run again.")
    if not names:
        return pl.LazyFrame(schema=schema)
    return pl.concat([pl.scan_ipc(folder / name) for name in names])
