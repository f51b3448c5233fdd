"""Compute digests of bytes, of values and of this package's code."""

import ast
import hashlib
import json
import sys
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from evaluator.config import cache_folder
from evaluator.errors import StoreError, WriteError
from evaluator.files.json_files import read_json, write_json

if TYPE_CHECKING:
    import polars as pl


def short_digest(content: bytes) -> str:
    """Return the first 16 hex digits of the SHA-256 of these bytes."""
    return hashlib.sha256(content).hexdigest()[:16]


_SEAL = b"\n<!-- SHA-256 of everything before this line: %s -->\n"


def sealed(page: bytes) -> bytes:
    """Return a page of HTML with the SHA-256 of its bytes as its last line."""
    return page + _SEAL % hashlib.sha256(page).hexdigest().encode()


def is_sealed(path: Path) -> bool:
    """Return whether a file has the bytes of a page that `sealed` returned; False for a file that cannot be read."""
    with suppress(OSError):
        page = path.read_bytes()
        return page == sealed(page[: -len(_SEAL % (b"0" * 64))])
    return False


def fingerprint(*parts: object) -> str:
    """Return 16 hex digits that change if any part changes.

    Args:
        parts: values that JSON can hold; the order of keys in objects is ignored.
    """
    return short_digest(json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


def list_fingerprint(texts: Iterable["pl.Series"]) -> str:
    """Return the fingerprint of the list of all texts in these series, without building the list in memory."""
    digest, n_texts = hashlib.sha256(b"[["), 0
    for part in texts:
        written = json.dumps(part.to_list(), separators=(",", ":"), ensure_ascii=False)[1:-1].encode()
        digest.update(b"," * (n_texts > 0 and len(part) > 0) + written)
        n_texts += len(part)
    digest.update(b"]]")
    return digest.hexdigest()[:16]


@cache
def source_fingerprint(*folders: str) -> str:
    """Return a fingerprint of the code in some folders or modules of this package.

    It replaces a version number, which developers forget to change with the code. TOML files with data count as code.
    Comments, docstrings and layout do not count: an edited docstring leaves stored prompts and scores valid.

    Args:
        folders: paths within the package: "engine", "suites/staicc" or "config.py"; a folder includes its subfolders.

    Raises:
        StoreError: a path without Python code; otherwise a misspelt path would not be noticed.
    """
    package = Path(__file__).parents[1]
    sources: dict[str, str] = {}
    for name in folders:
        path = package / name
        modules = [path] if path.is_file() else sorted(path.rglob("*.py"))
        if not modules:
            raise StoreError(f"{path} holds no Python code to take a fingerprint of.")
        data = [table for table in sorted(path.rglob("*.toml")) if table.name != "texts.toml"]  # which has page texts
        sources |= {file.relative_to(package).as_posix(): file.read_text("utf-8") for file in [*modules, *data]}
    # Parsing the code takes a third of a second, so the result is cached by a digest of the sources.
    cached = cache_folder() / "digests" / f"code-{fingerprint(sources, sys.version)}.json"
    with suppress(StoreError):  # a damaged file is written again
        if known := read_json(cached):
            return str(known["code"])
    code = {
        name: code_digest(text) if name.endswith(".py") else repr(tomllib.loads(text)) for name, text in sources.items()
    }
    digest = fingerprint(code)
    with suppress(WriteError):
        write_json(cached, {"code": digest})
    return digest


def code_digest(source: str) -> str:
    """Return a digest of Python source, 16 hex digits, that ignores comments, docstrings and layout."""
    return short_digest(ast.unparse(_WithoutDocstrings().visit(ast.parse(source))).encode())


class _WithoutDocstrings(ast.NodeTransformer):
    """Remove string statements: docstrings, and descriptions after constants."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node
