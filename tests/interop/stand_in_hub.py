"""A stand-in for the Hugging Face hub: what `huggingface_hub` asks of it over HTTP, in a thread."""

import base64
import hashlib
import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml

TOKENS = {"hf_writer": "write", "hf_reader": "read"}
NONE: Mapping[str, str] = {}
OWNED = "lab"  # by whoever writes


class Hub(ThreadingHTTPServer):
    """Repositories, such as "models/lab/en-de", as files by name, and the requests of before."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def commit(self, repository: str) -> str:
        return hashlib.sha1(repr(sorted(self.files[repository].items())).encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path == "/api/whoami-v2":
            role = self._role()
            known = {"name": "me", "auth": {"accessToken": {"role": role}}}
            return self._json(known if role else {}, 200 if role else 401)
        if path == "/api/validate-yaml":
            _, header, _ = json.loads(body)["content"].split("---\n", 2)
            assert yaml.safe_load(header)["pipeline_tag"] == "translation"
            return self._json({})
        if path == "/api/repos/create":
            request = json.loads(body)
            if request["organization"] != OWNED:
                return self._json({"error": "You don't have the rights"}, 403)
            name = f"{OWNED}/{request['name']}"
            self.server.files.setdefault(f"models/{name}", {})
            return self._json({"url": f"{self.server.url}/{name}"})
        asked_of = re.fullmatch(
            r"(?:/api/(models|datasets)|(/datasets)?)/([^/]+/[^/]+)"
            r"/(preupload|commit|revision|tree|resolve)/([^/]+)(?:/(.+))?",
            path,
        )
        if asked_of is None:  # statistics
            return self._send(404, b"{}")
        api, prefix, name, action, revision, file = asked_of.groups()
        return self._repository(
            f"{api or ('datasets' if prefix else 'models')}/{name}", action, revision, file, body
        )

    do_POST = do_PUT = do_HEAD = do_GET

    def _repository(self, repository: str, action: str, revision: str, file: str, body: bytes):
        if (files := self.server.files.get(repository)) is None:
            # Which doesn't tell what is private from what isn't there.
            return self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        commit = self.server.commit(repository)
        if action not in ("commit", "preupload") and revision not in ("main", commit):
            return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        if action == "revision":
            return self._json({"id": repository.partition("/")[2], "sha": commit, "siblings": []})
        if action == "tree":
            listed = [
                {"type": "file", "path": path, "size": len(data), "oid": _digest(data)}
                for path, data in files.items()
            ]
            return self._json(listed)
        if action == "resolve":
            tag = {"ETag": f'"{_digest(files[file])}"', "X-Repo-Commit": commit}
            return self._send(200, files[file], tag)
        if action == "preupload":
            # Large ones go another way than HTTP, and the library's own.
            mode, request = {"uploadMode": "regular", "shouldIgnore": False}, json.loads(body)
            return self._json({"files": [{"path": f["path"], **mode} for f in request["files"]]})
        for line in body.splitlines():
            value = json.loads(line)["value"]
            if "content" in value:
                files[value["path"]] = base64.b64decode(value["content"])
        commit = self.server.commit(repository)
        return self._json({"commitUrl": f"{self.server.url}/c/{commit}", "commitOid": commit})

    def _role(self) -> str | None:
        return TOKENS.get(self.headers.get("Authorization", "").removeprefix("Bearer "))

    def _json(self, content: Any, status: int = 200) -> None:
        self._send(status, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, data: bytes, headers: Mapping[str, str] = NONE) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _digest(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[Hub]:
    """The stand-in in the hub's place, and a token that may write."""
    pytest.importorskip("huggingface_hub", reason="needs the [hub] extra")
    variables = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_TOKEN": "hf_writer"}
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        places = {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": server.url}
        for name, value in (variables | places).items():
            monkeypatch.setenv(name, value)
        # It reads the environment when it is imported.
        for name in _imported():
            monkeypatch.delitem(sys.modules, name)
        yield server
        for name in _imported():
            del sys.modules[name]
        server.shutdown()
        thread.join()


def _imported() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]
