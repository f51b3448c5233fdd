"""Serve made-up log-probabilities over HTTP like vLLM, in a process that ends with the campaign."""

import os
import signal

from benchmarks.faults.forked import end_with_parent


def serve_labels() -> str:
    """Start the server in a forked child, and return its address."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        end_with_parent()
        from tests.engine.label_server import LabelServer

        os.write(writer, LabelServer().url.encode())
        os.close(writer)
        while True:
            signal.pause()
    os.close(writer)
    with open(reader) as address:
        return address.read()
