"""Damage the bytes of files at random positions, and JSON within its structure."""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

Damage = Callable[[bytes, Random], bytes]

_ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**31, 2**63, 10**40, 1e308, float("nan"), float("inf"), "", "\ud800", "\u2028", "\0",
    "a" * 5000, "../../x", [], {}, [[]], {"": None}, ["a", 1], "</script><script>alert(1)</script>",
)  # fmt: skip
DEPTH = 20_000
"""Number of nested lists, more than a recursive parser accepts."""

_TOKENS = (
    b"[", b"{", b"]", b"}", b",", b'"', b"\\ud800", b"null", b"1e999", b"-0", b"\xff\xfe", b"\xef\xbb\xbf", b"\n",
    b"9" * 400, b"9" * 5000, b"[" * DEPTH, b'{"a":' * DEPTH, b"=", b"\0", b"NaN", b"true",
)  # fmt: skip
_NUMBERS = (b"0", b"-1", b"0.5", b"1e-400", b"1e999", b"9" * 20, b"9" * 40, b"9" * 400, b"9" * 5000)
_SEARCHED = 2**16  # number of bytes at the beginning of a file in which numbers are searched


def flip_bit(content: bytes, rng: Random) -> bytes:
    if not content:
        return b"\0"
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


def truncate(content: bytes, rng: Random) -> bytes:
    return content[: rng.randrange(max(1, len(content)))]


def empty(_content: bytes, _rng: Random) -> bytes:
    return b""


def zero_sector(content: bytes, rng: Random) -> bytes:
    """Replace 512 bytes by zeros, like a disk sector that was never written."""
    start = rng.randrange(max(1, len(content)))
    return content[:start] + bytes(len(content[start : start + 512])) + content[start + 512 :]


def garble(content: bytes, rng: Random) -> bytes:
    return rng.randbytes(max(1, len(content)))


def append(content: bytes, rng: Random) -> bytes:
    return content + rng.randbytes(rng.randint(1, 64))


def repeat(content: bytes, _rng: Random) -> bytes:
    return content + content


def swap_halves(content: bytes, rng: Random) -> bytes:
    place = rng.randrange(max(1, len(content)))
    return content[place:] + content[:place]


def insert_token(content: bytes, rng: Random) -> bytes:
    """Insert or overwrite bytes with a token that has a meaning for a parser."""
    place, token = rng.randrange(len(content) + 1), rng.choice(_TOKENS)
    return content[:place] + token + content[place + rng.choice((0, len(token))) :]


def odd_number(content: bytes, rng: Random) -> bytes:
    """Replace one run of digits by another number, which may be too large for any type."""
    places = [match.span() for match in re.finditer(rb"[0-9]+", content[:_SEARCHED])]
    if not places:
        return insert_token(content, rng)
    start, end = rng.choice(places)
    return content[:start] + rng.choice(_NUMBERS) + content[end:]


BYTES: tuple[Damage, ...] = (
    flip_bit, truncate, empty, zero_sector, garble, append, repeat, swap_halves, insert_token, odd_number,
)  # fmt: skip


def nest(_content: bytes, _rng: Random) -> bytes:
    return b"[" * DEPTH


def nest_value(content: bytes, rng: Random) -> bytes:
    """Replace one value by lists that are nested too deeply."""
    mark = "\x01"
    nested = b"[" * DEPTH + b"]" * DEPTH
    return _edited(content, rng, lambda _value: mark).replace(json.dumps(mark).encode(), nested)


def odd_value(content: bytes, rng: Random) -> bytes:
    """Replace one value by an unusual value, often of another type or size, and never by an equal value."""

    def differs(odd: Any, value: Any) -> bool:
        return odd != value or isinstance(odd, bool) != isinstance(value, bool)  # True equals 1

    return _edited(content, rng, lambda value: rng.choice([odd for odd in _ODD_VALUES if differs(odd, value)]))


def without_key(content: bytes, rng: Random) -> bytes:
    """Remove one member of an object or one element of a list."""
    return _edited(content, rng, None)


def wrap(content: bytes, _rng: Random) -> bytes:
    return b"[" + content + b"]"


def odd_line(content: bytes, rng: Random) -> bytes:
    """Damage the JSON text in one line."""
    lines = content.split(b"\n")
    number = rng.randrange(len(lines))
    lines[number] = rng.choice((nest_value, odd_value, without_key))(lines[number], rng).replace(b"\n", b" ")
    return b"\n".join(lines)


JSON: tuple[Damage, ...] = (nest, nest_value, odd_value, without_key, wrap, odd_line)


def _edited(content: bytes, rng: Random, replace: Callable[[Any], Any] | None) -> bytes:
    """Replace one value anywhere in a JSON text, or remove it if `replace` is None; flip a bit of any other text."""
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        return flip_bit(content, rng)
    places = [*_places(parsed)]
    if not places:
        return b"null"
    holder, key = rng.choice(places)
    if replace:
        holder[key] = replace(holder[key])
    else:
        del holder[key]
    return json.dumps(parsed, indent=2).encode()


def _places(parsed: Any) -> list[tuple[Any, Any]]:
    """Return all (container, key or index) pairs in parsed JSON."""
    places: list[tuple[Any, Any]] = []
    waiting = [parsed]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        places += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys]
    return places
