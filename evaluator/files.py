"""Files that are whole or absent, one writer a folder, JSON, and digests of contents. Every layer may use this one."""

import ast
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeVar

import filelock
import msgspec
import polars as pl

from evaluator.errors import ConfigError, OutputInUseError, StoreError

T = TypeVar("T")

MANIFEST = "manifest.json"
"""What a folder of shards holds, written last."""


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes its name only once it is complete and on disk.

    A process killed at any moment leaves the old file or the new one, never a part.
    """
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


@contextmanager
def writing_to(out: Path) -> Iterator[None]:
    """Keep other processes from writing to an output folder; the lock goes with the process, however it ends.

    Raises OutputInUseError while another process holds it, ConfigError where it cannot be written to.
    """
    lock = filelock.FileLock(out / ".lock")
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
    except filelock.Timeout as error:  # itself an OSError
        raise OutputInUseError(
            f"Another process is writing to {out}. Wait for it, stop it, or choose another folder with --out."
        ) from error
    except OSError as error:
        raise ConfigError(f"{out} cannot be written to: {error}. Choose another folder with --out.") from error
    try:
        yield
    finally:
        lock.release()


def write_table(out: Path, name: str, table: pl.DataFrame) -> None:
    """Write OUT/tables/NAME.parquet, whole or not at all."""
    with replacing(out / "tables" / f"{name}.parquet") as file:
        table.rechunk().write_parquet(file, compression="zstd")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an object as indented JSON, replacing the file at once."""
    with replacing(path) as file:
        file.write((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, or None where there is no file. Raises StoreError when it is damaged."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreError(f"{path} is damaged ({error}). Remove its folder and run again.") from error
    if not isinstance(content, dict):
        raise StoreError(f"{path} is damaged (an object was expected). Remove its folder and run again.")
    return content


def write_record(path: Path, record: object) -> None:
    """Write a dataclass as indented JSON, replacing the file at once. Paths in it are written as texts."""
    write_json(path, to_builtins(record))


def to_builtins(record: object) -> Any:
    """Return what JSON holds of a dataclass; paths become texts."""
    return msgspec.to_builtins(record, enc_hook=_path_to_text)


def read_record(path: Path, kind: type[T]) -> T | None:
    """Return the dataclass in a JSON file, or None where there is no file.

    Raises StoreError, naming the field, when the file is damaged or was written by another version.
    """
    content = read_json(path)
    return None if content is None else from_builtins(content, kind, where=str(path))


def from_builtins(content: object, kind: type[T], *, where: str) -> T:
    """Return a dataclass from what JSON holds of it. Raises StoreError, naming `where` and the field."""
    try:
        return msgspec.convert(content, kind, dec_hook=_text_to_path)
    except (msgspec.ValidationError, RecursionError) as error:
        raise StoreError(
            f"{where} is damaged or of another version ({error}). Remove its folder and run the command again."
        ) from error


def _path_to_text(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be written as JSON")


def _text_to_path(kind: type, value: object) -> Path:
    if kind is Path:
        return Path(str(value))
    raise NotImplementedError(f"{kind.__name__} cannot be read from JSON")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def short_digest(content: bytes) -> str:
    """Return the first 16 hex digits of the SHA-256 of these bytes."""
    return hashlib.sha256(content).hexdigest()[:16]


def fingerprint(*parts: object) -> str:
    """Return 16 hex digits that change whenever any part does.

    Args:
        parts: JSON-serialisable; the order of keys in objects is ignored.
    """
    return short_digest(json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


@cache
def source_fingerprint(*folders: str) -> str:
    """Return a fingerprint of the code in some folders or modules of this package.

    It stands in for a version number, which is forgotten when code changes. Comments, docstrings and layout do not
    count: an edited docstring leaves stored prompts and scores valid.

    Args:
        folders: paths within the package, "engine", "suites/staicc" or "config.py"; folders with all below them.

    Raises:
        StoreError: a path that holds no code, since a misspelt one would leave the fingerprint unnoticed.
    """
    package = Path(__file__).parent
    code: dict[str, str] = {}
    for name in folders:
        path = package / name
        modules = [path] if path.is_file() else sorted(path.rglob("*.py"))
        if not modules:
            raise StoreError(f"{path} holds no Python code to take a fingerprint of.")
        code |= {module.relative_to(package).as_posix(): code_digest(module.read_text("utf-8")) for module in modules}
    return fingerprint(code)


def code_digest(source: str) -> str:
    """Return a short digest of Python source without its comments, docstrings and layout."""
    return short_digest(ast.unparse(_WithoutDocstrings().visit(ast.parse(source))).encode())


class _WithoutDocstrings(ast.NodeTransformer):
    """Remove strings that stand as statements: docstrings, and the notes after constants."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node
