"""Write and read objects and dataclasses as JSON files with a digest, which is checked when a file is read."""

import hashlib
import json
import logging
import os
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from evaluator.errors import EvaluatorError, StoreError
from evaluator.files.whole import read_bytes, reason, write_bytes

T = TypeVar("T")

MANIFEST = "manifest.json"
"""Name of the file that lists the shards of a folder; it is written after the shards."""

DIGEST = "sha256"
"""Last member of the JSON files that write_json writes: the SHA-256 of all other members in canonical form."""

logger = logging.getLogger(__name__)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an object as indented JSON with its digest, replacing the file atomically."""
    text = json.dumps(content | {DIGEST: _content_digest(content)}, indent=2, ensure_ascii=False)
    # A path that is not UTF-8 has lone surrogates, which are written as JSON escapes.
    write_bytes(path, (text + "\n").encode("utf-8", "backslashreplace"))


_PLAIN = json.JSONDecoder()
"""A shared decoder: making one for each row would take longer than decoding a short row."""


def read_object(
    path: Path, error: type[EvaluatorError], hint: str = "", decoder: json.JSONDecoder = _PLAIN
) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises `error`, ending in `hint`, for a file that cannot be read, is not JSON, or holds no object.
    """
    try:
        return parse_object(read_bytes(path), decoder)
    except OSError as cause:
        raise error(f"{path} cannot be read: {reason(cause)}. {hint}".rstrip()) from cause
    except ValueError as cause:
        raise error(f"{path} is damaged or not JSON: {cause}. {hint}".rstrip()) from cause


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object that write_json wrote, without its digest, or None if there is no file.

    Raises StoreError if the file is not JSON or its content does not match the digest.
    """
    try:
        content = read_object(path, StoreError)
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    digest = content.pop(DIGEST, None)
    if digest is None:
        raise StoreError(f"{path} is damaged or of another version (it has no {DIGEST} of its contents).")
    if digest != _content_digest(content):
        raise StoreError(f"{path} is damaged (its contents do not have the {DIGEST} that it states).")
    return content


def _content_digest(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def parse_json(content: bytes | str, decoder: json.JSONDecoder = _PLAIN) -> Any:
    """Return the value of a JSON text in UTF-8.

    Raises ValueError, with the reason, for a text that cannot be parsed, and for a value with lone surrogates, which
    could not be written again.
    """
    text = content if isinstance(content, str) else content.decode("utf-8-sig")
    try:
        parsed = decoder.decode(text)
        if _SURROGATE.search(text):
            _require_unicode(parsed)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return parsed


def parse_object(content: bytes, decoder: json.JSONDecoder = _PLAIN) -> dict[str, Any]:
    """Return the object of a JSON text. Raises ValueError, as parse_json does, and for another value."""
    parsed = parse_json(content, decoder)
    if not isinstance(parsed, dict):
        raise ValueError(f"an object was expected, got {type(parsed).__name__}")
    return parsed


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _require_unicode(parsed: Any) -> None:
    """Raise ValueError for a lone surrogate, which JSON can escape but UTF-8 cannot encode."""
    try:
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        piece = error.object[max(0, error.start - 20) : error.end].encode("ascii", "backslashreplace").decode()
        raise ValueError(f"half of a surrogate pair, which is no character, at the end of {piece!r}") from None


def write_record(path: Path, record: object) -> None:
    """Write a dataclass as indented JSON with its digest, replacing the file atomically. Paths become strings."""
    write_json(path, to_builtins(record))


def to_builtins(record: object) -> Any:
    """Convert a dataclass to values that JSON can hold. Paths become strings."""
    return msgspec.to_builtins(record, enc_hook=os.fspath)


def read_record(path: Path, kind: type[T], hint: str = "") -> T | None:
    """Return the dataclass in a JSON file, or None if there is no file.

    Raises StoreError, naming the field and ending in `hint`, if the file is damaged or was written by another version.
    """
    try:
        content = read_json(path)
        return None if content is None else from_builtins(content, kind, where=str(path))
    except StoreError as error:
        raise StoreError(f"{error} {hint}".rstrip()) from error


def from_builtins(content: object, kind: type[T], *, where: str) -> T:
    """Convert values read from JSON to a dataclass. Raises StoreError, naming `where` and the field."""
    try:
        return msgspec.convert(content, kind, dec_hook=lambda kind, value: kind(value))
    except (msgspec.ValidationError, RecursionError, EvaluatorError) as error:
        raise StoreError(f"{where} is damaged or of another version ({error}).") from error


def read_manifest(path: Path, kind: type[T]) -> T | None:
    """Return the dataclass in a manifest; None if there is no file or, with a warning, if the file is damaged.

    The content of a folder with a damaged manifest counts as missing.
    """
    try:
        return read_record(path, kind)
    except StoreError as error:
        logger.warning("%s What it describes does not count any more.", error)
        return None
