"""An object store on this machine that speaks as much of Cloud Storage's JSON API as a run needs.

The real clients talk to it: gcsfs, google-cloud-storage and TensorStore's driver, each told by
an environment variable where it is. It has buckets and objects and no folders; an object
appears whole. https://cloud.google.com/storage/docs/json_api/v1
"""

import base64
import contextlib
import hashlib
import json
import re
import sys
import threading
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import google_crc32c

Request = tuple[str, str]  # method, "bucket/object"


class FakeGcs:
    """Buckets in memory behind `url`. `objects` maps "bucket/object" to its bytes.

    `fault(method, name)` may return an HTTP status with which a request then fails. `log` holds
    all requests for objects in their order.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.generations: dict[str, int] = {}
        self.uploads: dict[str, tuple[str, bytearray]] = {}
        self.fault: Callable[[str, str], int | None] = lambda method, name: None
        self.log: list[Request] = []
        self.lock = threading.RLock()
        server = _Server(("127.0.0.1", 0), type("Door", (_Door,), {"gcs": self}))
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def allow(self) -> None:
        self.fault = lambda method, name: None

    def environment(self) -> dict[str, str]:
        """What makes every client in a process talk to this store, and to nothing else."""
        return {
            "STORAGE_EMULATOR_HOST": self.url,
            "TENSORSTORE_GCS_HTTP_URL": self.url,
            "TENSORSTORE_GCS_HTTP_VERSION": "1.1",
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none",
            # Kinds of buckets that are asked for by gRPC.
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
            "NO_GCE_CHECK": "true",
            "GOOGLE_CLOUD_PROJECT": "none",
        }

    def names(self, prefix: str = "") -> list[str]:
        """Names of objects that begin with `prefix`, "bucket/..."."""
        with self.lock:
            return sorted(name for name in self.objects if name.startswith(prefix))

    def put(self, name: str, data: bytes) -> dict[str, object]:
        with self.lock:
            self.objects[name] = data
            self.generations[name] = self.generations.get(name, 0) + 1
        return self.describe(name)

    def describe(self, name: str) -> dict[str, object]:
        bucket, _, key = name.partition("/")
        data = self.objects[name]
        generation = self.generations[name]
        return {
            "kind": "storage#object",
            "id": f"{name}/{generation}",
            "bucket": bucket,
            "name": key,
            "size": str(len(data)),
            "generation": str(generation),
            "metageneration": "1",
            "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode(),
            "crc32c": base64.b64encode(google_crc32c.Checksum(data).digest()).decode(),
            "timeCreated": "2026-01-01T00:00:00.000Z",
            "updated": "2026-01-01T00:00:00.000Z",
        }


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that was killed
            traceback.print_exc()


class _Door(BaseHTTPRequestHandler):
    gcs: FakeGcs
    protocol_version = "HTTP/1.1"
    # An answer in one piece and at once: otherwise each waits for an acknowledgement, 40 ms.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        self.query = {key: values[0] for key, values in parse_qs(url.query).items()}
        path = re.sub(r"^(/upload|/download)?/storage/v1/", "/", url.path)
        if match := re.fullmatch(r"/b/([^/]+)", path):
            self._json({"name": match[1], "id": match[1], "kind": "storage#bucket"})
        elif match := re.fullmatch(r"/b/([^/]+)/o/?", path):
            self._upload(match[1]) if url.path.startswith("/upload") else self._list(match[1])
        elif match := re.fullmatch(r"/b/([^/]+)/o/([^/]+)/(?:rewrite|copy)To/b/(.+)/o/(.+)", path):
            source, target = (f"{match[n]}/{unquote(match[n + 1])}" for n in (1, 3))
            self._copy(source, target)
        elif match := re.fullmatch(r"/b/([^/]+)/o/([^/]+)/moveTo/o/(.+)", path):
            self._copy(*(f"{match[1]}/{unquote(match[n])}" for n in (2, 3)), move=True)
        elif match := re.fullmatch(r"/b/([^/]+)/o/(.+)", path):
            self._object(f"{match[1]}/{unquote(match[2])}")
        elif match := re.fullmatch(r"/resumable/(\d+)", path):
            self._resume(match[1])
        else:
            self._send(404, b"no such address")

    def _upload(self, bucket: str) -> None:
        kind = self.query.get("uploadType")
        if kind == "multipart":
            _, metadata, data = _parts(self.body, self.headers["Content-Type"])
            name = f"{bucket}/{json.loads(metadata)['name']}"
        else:
            name, data = f"{bucket}/{self.query['name']}", self.body
        if self._fails("PUT", name):
            return None
        if kind == "resumable":
            with self.gcs.lock:
                number = str(len(self.gcs.uploads))
                self.gcs.uploads[number] = (name, bytearray())
            return self._send(200, b"", {"Location": f"{self.gcs.url}/resumable/{number}"})
        with self.gcs.lock:
            if self._hindered(name):
                return self._send(412, b"precondition failed")
            self._json(self.gcs.put(name, data))

    def _resume(self, number: str) -> None:
        name, data = self.gcs.uploads[number]
        match = re.fullmatch(r"bytes (?:\*|(\d+)-(\d+))/(\*|\d+)", self.headers["Content-Range"])
        assert match
        data += self.body
        if match[3] == "*" or len(data) < int(match[3]):
            return self._send(308, b"", {"Range": f"bytes=0-{len(data) - 1}"})
        self._json(self.gcs.put(name, bytes(data)))

    def _list(self, bucket: str) -> None:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter")
        if self._fails("LIST", f"{bucket}/{prefix}"):
            return
        start = self.query.get("startOffset", "")
        end = self.query.get("endOffset")
        items, folders = [], set()
        with self.gcs.lock:
            for name in self.gcs.names(f"{bucket}/{prefix}"):
                key = name.partition("/")[2]
                if key < start or (end is not None and key >= end):
                    continue
                below = key[len(prefix) :]
                if delimiter and delimiter in below:
                    folders.add(prefix + below[: below.index(delimiter) + 1])
                else:
                    items.append(self.gcs.describe(name))
        listing: dict[str, object] = {"kind": "storage#objects"}
        if items:
            listing["items"] = items
        if folders:
            listing["prefixes"] = sorted(folders)
        self._json(listing)

    def _copy(self, source: str, target: str, *, move: bool = False) -> None:
        if self._fails("MOVE" if move else "PUT", source if move else target):
            return
        with self.gcs.lock:
            if source not in self.gcs.objects:
                return self._send(404, b"no such object")
            described = self.gcs.put(target, self.gcs.objects[source])
            if move:
                del self.gcs.objects[source]
        self._json(described if move else {"done": True, "resource": described})

    def _object(self, name: str) -> None:
        if self._fails(self.command, name):
            return
        with self.gcs.lock:
            data = self.gcs.objects.get(name)
            if data is None or self._hindered(name):
                return self._send(404 if data is None else 412, b"no such object")
            described = self.gcs.describe(name)
            if self.command == "DELETE":
                del self.gcs.objects[name]
                return self._send(204, b"")
        if self.query.get("alt") != "media":
            return self._json(described)
        headers = {
            "X-Goog-Generation": str(described["generation"]),
            "X-Goog-Hash": f"crc32c={described['crc32c']},md5={described['md5Hash']}",
        }
        range_of_bytes = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not range_of_bytes:
            return self._send(200, data, headers)
        first = (
            int(range_of_bytes[1])
            if range_of_bytes[1]
            else max(0, len(data) - int(range_of_bytes[2]))
        )
        last = min(
            int(range_of_bytes[2]) if range_of_bytes[1] and range_of_bytes[2] else len(data) - 1,
            len(data) - 1,
        )
        if first > last:
            return self._send(416, b"no such range")
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        self._send(206, data[first : last + 1], headers)

    def _hindered(self, name: str) -> bool:
        generation = str(self.gcs.generations[name]) if name in self.gcs.objects else "0"
        return (
            self.query.get("ifGenerationMatch", generation) != generation
            or self.query.get("ifGenerationNotMatch") == generation
        )

    def _fails(self, method: str, name: str) -> bool:
        with self.gcs.lock:
            self.gcs.log.append((method, name))
        status = self.gcs.fault(method, name)
        if status is not None:
            self._send(status, b"made to fail")
        return status is not None

    def _json(self, content: object) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if status != 204:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a killed client
                self.wfile.write(data)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.flush()


def _parts(body: bytes, content_type: str) -> list[bytes]:
    match = re.search(r'boundary="?([^";]+)"?', content_type)
    assert match
    pieces = body.split(b"--" + match[1].encode())
    parts = [re.split(rb"\r?\n\r?\n", piece, maxsplit=1)[1] for piece in pieces[1:-1]]
    return [b"", *(re.sub(rb"\r?\n\Z", b"", part) for part in parts)]
