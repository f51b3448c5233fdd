"""Say which of the pinned packages have known vulnerabilities.

    .venv/bin/python audit.py [https://pypi.org]

Asks an index with PyPI's JSON API (https://docs.pypi.org/api/json/: `vulnerabilities` of a release, which come from
https://osv.dev) for every line of constraints.txt and constraints-cuda.txt. Exit code 0: none is known; 1: some are, a
line each; 2: the index has no such lists, or does not answer, so that nothing is known.
"""

import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent
INDEX = "https://pypi.org"
ASKED_FIRST = "urllib3"  # a package that every index has: whether there are lists at all

ACCEPTED: dict[str, str] = {}
"""Identifier of a vulnerability (or an alias of it) -> why it does not matter here."""

_AT_ONCE, _TIMEOUT_S = 8, 30
_LINE = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;+]+)")


class Pin(NamedTuple):
    """A package and its version."""

    name: str
    version: str


class Vulnerability(NamedTuple):
    """One that is known of a pinned version."""

    pin: Pin
    names: tuple[str, ...]  # identifier and aliases
    summary: str
    fixed_in: tuple[str, ...]

    def __str__(self) -> str:
        fixed = f"fixed in {', '.join(self.fixed_in)}" if self.fixed_in else "not fixed in any release"
        return f"{self.pin.name} {self.pin.version}: {', '.join(self.names)}: {self.summary} ({fixed})"


class NoListsError(Exception):
    """An index that says nothing about vulnerabilities."""


def main() -> None:
    index = sys.argv[1] if len(sys.argv) > 1 else INDEX
    pins = [pin for file in sorted(ROOT.glob("constraints*.txt")) for pin in pinned(file.read_text("utf-8"))]
    try:
        found, missing = audit(index, pins)
    except NoListsError as error:
        print(f"Nothing is known about vulnerabilities of the pinned packages: {error}", file=sys.stderr)
        sys.exit(2)
    for pin in missing:
        print(f"{pin.name} {pin.version}: not on {index}, so that nothing is known")
    open_ones = [vulnerability for vulnerability in found if not ACCEPTED.keys() & {*vulnerability.names}]
    for vulnerability in found:
        reasons = [ACCEPTED[name] for name in vulnerability.names if name in ACCEPTED]
        print(f"{vulnerability}{f' - does not matter: {reasons[0]}' if reasons else ''}")
    print(f"{len(pins) - len(missing)} of {len(pins)} packages audited, {len(open_ones)} vulnerabilities that matter")
    sys.exit(1 if open_ones else 0)


def pinned(constraints: str) -> Iterator[Pin]:
    """Yield the pins of constraints.txt; a local version (+cpu) is a build of the same sources."""
    for line in constraints.splitlines():
        if match := _LINE.match(line):
            yield Pin(*match.groups())


def audit(index: str, pins: list[Pin]) -> tuple[list[Vulnerability], list[Pin]]:
    """Return the known vulnerabilities of pinned packages, and the pins that the index does not have.

    Raises NoListsError for an index that does not answer, or not with lists of vulnerabilities.
    """
    first = next((pin for pin in pins if pin.name == ASKED_FIRST), pins[0])
    if vulnerabilities_of(index, first) is None:
        raise NoListsError(f"{index} has no {_address(first)}. Name an index with PyPI's JSON API: make audit ARGS=URL")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = [*pool.map(lambda pin: vulnerabilities_of(index, pin), pins)]
    missing = [pin for pin, answer in zip(pins, answers, strict=True) if answer is None]
    return [vulnerability for answer in answers if answer for vulnerability in answer], missing


def vulnerabilities_of(index: str, pin: Pin) -> list[Vulnerability] | None:
    """Return the known vulnerabilities of a release that were not withdrawn; None for a release that is not there.

    Raises NoListsError for any other answer.
    """
    url = f"{index.rstrip('/')}{_address(pin)}"
    if not url.startswith(("https://", "http://")):
        raise NoListsError(f"{index} is no address of an index.")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:  # noqa: S310  (https or http alone)
            release: Any = json.load(response)
        listed = release["vulnerabilities"]
        return [
            Vulnerability(pin, (entry["id"], *entry["aliases"]), _one_line(entry), tuple(entry["fixed_in"]))
            for entry in listed
            if not entry.get("withdrawn")
        ]
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise NoListsError(f"{url} answers {error.code} {error.reason}.") from None
    except OSError as error:
        raise NoListsError(f"{url} does not answer: {getattr(error, 'reason', error)}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoListsError(f"{url} does not answer as PyPI does: {error!r}.") from None


def _address(pin: Pin) -> str:
    return f"/pypi/{pin.name}/{pin.version}/json"


def _one_line(entry: dict[str, Any]) -> str:
    return " ".join(str(entry.get("summary") or entry.get("details") or "no summary").split())[:200]


if __name__ == "__main__":
    main()
