"""The examples for clusters: one for Slurm, run with stand-ins for Slurm's commands, and one for Kubernetes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.engine.vllm_server import free_port

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
SRUN = 'shift; SLURM_PROCID=0 exec "$@"'
SCONTROL = 'if [ "$1" = show ]; then echo 127.0.0.1; else echo "$@" >> requeued; fi'


def test_the_script_for_slurm_has_no_error_of_syntax() -> None:
    subprocess.run(["bash", "-n", EXAMPLES / "slurm.sh"], check=True)


@pytest.mark.exhaustive
def test_a_job_of_slurm_that_is_stopped_asks_for_another_which_does_the_rest(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    for name, body in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "all", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_ID": "42"}
    environment = os.environ | slurm | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RAY_PORT": str(free_port())}
    words = ["staicc-normal", "--model", "embedded", "--engine", "transformers", "--datasets", "sst5", "--out", "run"]

    def job(*options: str) -> subprocess.Popen[bytes]:
        command = ["bash", EXAMPLES / "slurm.sh", *words, *options]
        return subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)

    first = job("--queries", "128")
    while not any((tmp_path / "run" / "logs").glob("replica-*.log")):
        assert first.poll() is None
        time.sleep(0.2)
    first.send_signal(signal.SIGTERM)  # as `--signal=B:TERM` has it: to the script alone

    assert first.wait(timeout=300) == 143
    assert (tmp_path / "requeued").read_text() == "requeue 42\n"
    assert job("--queries", "128").wait(timeout=300) == 0
    assert (tmp_path / "run" / "report.html").exists()


def test_the_job_for_kubernetes_is_valid() -> None:
    job = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text())
    kubernetes_validate.validate(job, "1.34", strict=True)
    job["spec"]["template"]["spec"]["restartPolicies"] = "OnFailure"
    with pytest.raises(kubernetes_validate.ValidationError, match="restartPolicies"):
        kubernetes_validate.validate(job, "1.34", strict=True)
