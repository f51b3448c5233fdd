"""A Hugging Face hub of this machine's own, over HTTP as the real one: models, and datasets at refs/convert/parquet."""

import hashlib
import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import polars as pl

PARQUET = "refs/convert/parquet"
MAIN = "main"


class Hub:
    """What it serves; what was asked for stays in `asked`."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}  # owner/name -> path -> content
        self.gated: set[str] = set()
        self.without_parquet: set[str] = set()
        self.asked: list[str] = []  # paths of files that were sent
        self.url = ""

    def add(self, repository: str, path: str, table: pl.DataFrame) -> None:
        content = io.BytesIO()
        table.write_parquet(content)
        self.repositories.setdefault(repository, {})[path] = content.getvalue()

    def commit(self, repository: str) -> str:
        files = sorted(self.repositories[repository].items())
        return hashlib.sha1(repr(files).encode()).hexdigest()


@contextmanager
def serving(hub: Hub) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            parts = urlsplit(self.path).path.strip("/").split("/")
            parts = parts if parts[0] in ("api", "datasets") else ["models", *parts]
            if len(parts) < 6:  # what else the library wonders about
                self.refuse(404, "EntryNotFound")
            elif parts[0] == "api":
                _, _, owner, name, verb, revision = map(unquote, parts)
                self.of_api(f"{owner}/{name}", verb, revision)
            else:
                _, owner, name, _, commit, *path = map(unquote, parts)
                self.file(f"{owner}/{name}", commit, "/".join(path))

        def of_api(self, repository: str, verb: str, revision: str) -> None:
            if repository not in hub.repositories:
                return self.refuse(404, "RepoNotFound")
            if repository in hub.gated:
                return self.refuse(403, "GatedRepo")
            commit = hub.commit(repository)
            if revision not in (PARQUET, MAIN, commit) or repository in hub.without_parquet:
                return self.refuse(404, "RevisionNotFound")
            files = hub.repositories[repository]
            if verb == "revision":
                siblings = [{"rfilename": path} for path in files]
                return self.send(json.dumps({"id": repository, "sha": commit, "siblings": siblings}).encode(), {})
            listed = [
                {"type": "file", "path": path, "size": len(content), "oid": _etag(content)}
                for path, content in files.items()
            ]
            return self.send(json.dumps(listed).encode(), {})

        def file(self, repository: str, commit: str, path: str) -> None:
            content = hub.repositories[repository].get(path)
            if content is None or commit != hub.commit(repository):
                return self.refuse(404, "EntryNotFound")
            if self.command == "GET":
                hub.asked.append(f"{repository}/{path}")
            return self.send(content, {"ETag": f'"{_etag(content)}"', "X-Repo-Commit": commit})

        def refuse(self, status: int, code: str) -> None:
            self.send(b"", {"X-Error-Code": code, "X-Error-Message": "Not for you."}, status)

        def send(self, content: bytes, headers: dict[str, str], status: int = 200) -> None:
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(content))}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
