"""A small HTTP server that answers as vLLM's does, with made-up log-probabilities, and fails when it is told to."""

import json
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

Answer = dict[str, Any]


def log_prob(prefix: Sequence[int], token: int) -> float:
    """Some number below -5 that depends on every token and on their order: no 128 tokens are likelier than 1."""
    return -5 - (sum(place * other for place, other in enumerate(prefix, start=1)) * 31 + token) % 97 / 97


def completion(body: Answer, log_prob: Callable[[Sequence[int], int], float] = log_prob) -> Answer:
    choices: list[Answer] = []
    for index, tokens in enumerate(body["prompt"]):
        if ids := body.get("logprob_token_ids"):
            top = {f"token_id:{token}": log_prob(tokens, token) for token in ids}
            choices.append({"index": index, "logprobs": {"top_logprobs": [top]}})
        else:
            rows = [{str(token): {"logprob": log_prob(tokens[:n], token)}} for n, token in enumerate(tokens) if n]
            choices.append({"index": index, "prompt_logprobs": [None, *rows]})
    return {"model": body["model"], "choices": choices}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self.connections: list[socket.socket] = []
        super().__init__(*arguments)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def handle_error(self, *_arguments: object) -> None:
        """Say nothing of a connection that was cut."""


class LabelServer:
    """Serves the model `small`; `fault` is called with each handler and the number of its completion, from 1.

    A fault that has answered, or wants no answer, returns True.
    """

    path, prompts_key = "/v1/completions", "prompt"  # of completions
    about: ClassVar[dict[str, Answer | bytes]] = {
        "/v1/models": {"data": [{"id": "small", "max_model_len": 4096}]},
        "/version": {"version": "1.2.3"},
    }

    def __init__(self, fault: Callable[[BaseHTTPRequestHandler, int], bool] | None = None, port: int = 0) -> None:
        self.fault = fault or (lambda _handler, _number: False)
        self.answer: Callable[[Answer], Any] = completion
        self.n_completions = 0
        self.answered: list[list[int]] = []  # prompts whose answers were sent
        self.keys: set[str | None] = set()
        self._lock = threading.Lock()
        self._listen(port)

    def _listen(self, port: int) -> None:
        self._http = _Server(("127.0.0.1", port), _handler(self))
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        """Stop listening and cut open connections, as the end of the process would."""
        self._http.shutdown()
        self._http.server_close()
        for connection in self._http.connections:
            with suppress(OSError):  # it is closed already
                connection.shutdown(socket.SHUT_RDWR)

    def start_again(self) -> None:
        self._listen(self.port)

    def next_number(self) -> int:
        with self._lock:
            self.n_completions += 1
            return self.n_completions


def _handler(server: LabelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # which holds back the body of an answer for 40 ms

        def do_GET(self) -> None:
            send(self, server.about.get(self.path, {}), 200 if self.path in server.about else 404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != server.path:
                send(self, {}, 404)
                return
            server.keys.add(self.headers["Authorization"])
            if not server.fault(self, server.next_number()):
                answer = server.answer(body)
                server.answered += body[server.prompts_key]
                send(self, answer)

        def log_message(self, *_args: object) -> None:
            pass

    return Handler


def send(handler: BaseHTTPRequestHandler, content: object, status: int = 200, *, keep: int | None = None) -> None:
    """Send JSON, or bytes as they are; of them the first `keep` alone, and then close the connection."""
    encoded = content if isinstance(content, bytes) else json.dumps(content).encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(encoded)))
    handler.end_headers()
    handler.wfile.write(encoded[:keep])
    handler.close_connection = keep is not None
