"""A real vLLM server on this machine, for tests of the server engine."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import urllib3

from tests.engine.vllm_processes import Fork, serve

_ENVIRONMENT = {
    "TORCHDYNAMO_DISABLE": "1",  # otherwise the first request waits until a C++ compiler has built a helper
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    # As evaluator/process.py sets in this process: memory of tensors is kept when it is freed.
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=2147483647",
}


class VllmServer:
    """Serves a model in fp32 as `served`. It runs after `start`, until `stop` or `kill`, always at the same address.

    A fork has vLLM imported already, and is not tuned as a server whose time is measured.
    """

    def __init__(self, model: Path, log: Path, *options: str, fork: bool = False) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log, self._is_fork = log, fork
        words = ["--model", str(model), "--served-model-name", "served", "--host", "127.0.0.1", "--port", str(port)]
        words += ["--dtype", "float32", "--enforce-eager", "--block-size", "32", "--max-num-seqs", "64"]
        words += ["--kv-cache-memory-bytes", str(2**28)]  # a size that is given needs no forward pass to be chosen
        self._words = [*words, *options]

    def start(self) -> None:
        """Start the server, and return once it answers."""
        self._process = self._begun()
        while not _answers(self.url):
            assert self._process.poll() is None, self._log.read_text()[-5000:]
            time.sleep(0.2)

    def _begun(self) -> "subprocess.Popen[bytes] | Fork":
        if self._is_fork:
            return serve(self._words, self._log, **_ENVIRONMENT)
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *self._words]
        with self._log.open("ab") as output:
            # In a session of its own, so that `kill` reaches the processes that it starts.
            return subprocess.Popen(
                command, env=os.environ | _ENVIRONMENT, stdout=output, stderr=output, start_new_session=True
            )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def kill(self) -> None:
        """End all processes of the server at once, as a lack of memory would."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def free_port() -> int:
    """Return a port of this machine on which nothing listens now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def vllm_server(model: Path, log: Path, *, fork: bool = False) -> Iterator[str]:
    """Yield the address of a server that answers, and stop it when the context ends."""
    with running_server(model, log, fork=fork) as server:
        yield server.url


@contextmanager
def running_server(model: Path, log: Path, *options: str, fork: bool = False) -> Iterator[VllmServer]:
    """Yield a server that answers, and stop it when the context ends."""
    server = VllmServer(model, log, *options, fork=fork)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _answers(url: str) -> bool:
    try:
        return urllib3.request("GET", f"{url}/health", retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False
