"""Build the wheel and the source archive; the same commit gives the same bytes, wherever and whenever it is built.

    .venv/bin/python make_dist.py [FOLDER]

The source archive has every tracked file as it is now, and the wheel is built from the unpacked source archive, so that
neither depends on what lies in the checkout besides. Times are those of the last commit, or SOURCE_DATE_EPOCH; owners,
modes and the order of files are set here.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent
EARLIEST = 315532800
"""1980-01-01, the earliest time that a zip file can hold, as seconds since 1970."""

_PLAIN, _PROGRAM = 0o644, 0o755  # modes
_BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    for path in build(ROOT, tracked_files(ROOT), out, commit_time(ROOT)):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}  {path.stat().st_size:,} bytes")


def tracked_files(root: Path) -> list[Path]:
    """Return the tracked files of a checkout that are there, relative to it."""
    names = _git(root, "ls-files", "-z").split("\0")
    return [Path(name) for name in sorted(names) if name and (root / name).is_file()]


def commit_time(root: Path) -> int:
    """Return SOURCE_DATE_EPOCH, else the time of the last commit: seconds since 1970, within what zip can hold."""
    stated = os.environ.get("SOURCE_DATE_EPOCH") or _git(root, "log", "-1", "--format=%ct")
    return max(int(stated), EARLIEST)


def build(root: Path, files: Sequence[Path], out: Path, epoch: int) -> tuple[Path, Path]:
    """Write the source archive and the wheel of some files below `root` to a folder, and return their paths.

    Args:
        root: folder of the checkout.
        files: relative to it.
        out: is made if it is missing; files of the same names are replaced.
        epoch: time of every file in both, in seconds since 1970.

    Raises:
        SystemExit: setuptools has another version than pyproject.toml pins, or fails.
    """
    _require_pinned_backend(root)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in files:
            (folder / "tree" / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / file, folder / "tree" / file)
        source = _run_backend("build_sdist", folder / "tree", folder / "source", epoch)
        with tarfile.open(source) as archive:
            # An attribute, because `filter` is not an argument before Python 3.11.4.
            archive.extraction_filter = lambda member, _path: member
            archive.extractall(folder / "unpacked")  # noqa: S202 - setuptools wrote it just now
        (unpacked,) = (folder / "unpacked").iterdir()
        wheel = _run_backend("build_wheel", unpacked, folder / "wheel", epoch)
        _repack_tar(source, out / source.name, epoch)
        _repack_zip(wheel, out / wheel.name, epoch)
    return out / source.name, out / wheel.name


def _require_pinned_backend(root: Path) -> None:
    """Exit unless the installed setuptools is the one that pyproject.toml pins: it writes a part of every archive."""
    (pin,) = tomllib.loads((root / "pyproject.toml").read_text())["build-system"]["requires"]
    if pin != f"setuptools=={version('setuptools')}":
        sys.exit(f"pyproject.toml pins {pin}, but setuptools {version('setuptools')} is installed. Run: make setup")


def _run_backend(hook: str, tree: Path, out: Path, epoch: int) -> Path:
    """Call a hook of setuptools (PEP 517) in a process of its own, and return the file that it wrote."""
    out.mkdir()
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-I", "-c", _BUILD, hook, str(out)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit("\n".join([*done.stderr.splitlines()[-20:], f"setuptools cannot {hook.replace('_', ' a ', 1)}."]))
    (built,) = out.iterdir()
    return built


def _repack_tar(source: Path, target: Path, epoch: int) -> None:
    """Write a compressed tar file again: sorted, of one time, without owners."""
    with (
        tarfile.open(source) as old,
        target.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as new,
    ):
        for member in sorted((each for each in old if each.isfile()), key=lambda each: each.name):
            entry = tarfile.TarInfo(member.name)
            entry.size, entry.mtime = member.size, epoch
            entry.mode = _PROGRAM if member.mode & 0o100 else _PLAIN
            new.addfile(entry, old.extractfile(member))


def _repack_zip(source: Path, target: Path, epoch: int) -> None:
    """Write a zip file again: of one time and one mode, in the order that it has (a wheel ends with its metadata)."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            entry = zipfile.ZipInfo(member.filename, time.gmtime(epoch)[:6])
            entry.external_attr = (0o100000 | _PLAIN) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(entry, old.read(member))


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)  # noqa: S607
    if done.returncode:
        sys.exit(f"{root} is no checkout of git, which says what belongs into an archive: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    main()
