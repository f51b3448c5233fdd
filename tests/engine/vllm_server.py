"""A real vLLM server on this machine, for tests of the server engine."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import urllib3

_ENVIRONMENT = {
    "TORCHDYNAMO_DISABLE": "1",  # otherwise the first request waits until a C++ compiler has built a helper
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    # As evaluator/engine/allocator.py sets in this process: memory of tensors is kept when it is freed.
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=2147483647",
}


@contextmanager
def vllm_server(model: Path, log: Path) -> Iterator[str]:
    """Serve a model in fp32 as `served` until the context ends; yields the address once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--model", str(model), "--served-model-name", "served", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--dtype", "float32", "--enforce-eager", "--block-size", "32", "--max-num-seqs", "64"]
    words += ["--kv-cache-memory-bytes", str(2**28)]  # a size that is given needs no forward pass to be chosen
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *words]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=os.environ | _ENVIRONMENT, stdout=output, stderr=output)
    url = f"http://127.0.0.1:{port}"
    try:
        while not _answers(url):
            assert process.poll() is None, log.read_text()[-5000:]
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait()


def _answers(url: str) -> bool:
    try:
        return urllib3.request("GET", f"{url}/health", retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False
