"""`POST /translate_file` and the address of its result."""

import io
import socket
import time
import urllib.parse
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from flaxformer_mt.serving import app, results as results_module
from flaxformer_mt.serving.results import MOST_FILES, SECONDS, FileResults
from flaxformer_mt.serving.settings import ServerSettings, SettingsError
from tests.markup.archives import run as word_run, word_file
from tests.serving.stand_in import StandIn, running


@pytest.fixture(scope="module")
def server():
    with running(StandIn(), keys=frozenset({"secret"}), max_file_bytes=400_000) as server:
        yield server


def form(name: str, content: bytes, **fields: str) -> tuple[bytes, dict[str, str]]:
    lead = 'Content-Disposition: form-data; name="{}"\r\n\r\n{}'
    parts = [lead.format(key, value).encode() for key, value in fields.items()]
    head = f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    parts.append(head.encode() + content)
    body = b"".join(b"--x\r\n" + part + b"\r\n" for part in parts) + b"--x--\r\n"
    return body, {"Content-Type": "multipart/form-data; boundary=x"}


def send(server, name, content, **fields):
    given = {"source": "en", "target": "de", "api_key": "secret", **fields}
    return server.ask("POST", "/translate_file", *form(name, content, **given))


def translated(server, name, content):
    status, answer, _ = send(server, name, content)
    assert status == 200, answer
    return urllib.parse.urlsplit(answer["translatedFileUrl"]).path


def test_results_are_forgotten():
    now = [0.0]
    results = FileResults(clock=lambda: now[0])
    token = results.add("a.txt", b"a")
    assert len(token) >= 43 and results.get(token).content == b"a"
    now[0] = SECONDS + 1
    assert results.get(token) is None
    tokens = [results.add("b", b"b") for _ in range(MOST_FILES + 1)]
    assert results.get(tokens[0]) is None and results.get(tokens[1]) is not None
    assert results.get("other") is None


def test_the_newest_result_stays_however_large(monkeypatch):
    monkeypatch.setattr(results_module, "MOST_BYTES", 10)
    results = FileResults()
    small, large = results.add("a", b"a"), results.add("b", b"b" * 20)
    assert results.get(small) is None and results.get(large) is not None


def test_a_result_leaves_memory_though_nobody_asks(monkeypatch):
    monkeypatch.setattr(results_module, "SECONDS", 0.05)
    monkeypatch.setattr(app, "SECONDS", 0.05)
    left = []
    forget = FileResults.forget_old

    def noted(results):
        forget(results)
        left.append(len(results._files))

    monkeypatch.setattr(FileResults, "forget_old", noted)
    with running(StandIn()) as server:
        translated(server, "a.txt", b"one")
        wait_for(lambda: len(left) > 1)
    assert left[-1] == 0


@pytest.mark.parametrize(
    "content", [b"a  b\r\n\tc", word_file("<w:p>" + word_run("a  b") + "</w:p>")]
)
def test_a_file_in_the_language_asked_for_stays_byte_for_byte(server, content):
    name = "a.docx" if content.startswith(b"PK") else "a.txt"
    status, answer, _ = send(server, name, content, target="en")
    assert status == 200
    path = urllib.parse.urlsplit(answer["translatedFileUrl"]).path
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}") as downloaded:
        assert downloaded.read() == content


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ('filename="..\\..\\a/b c.txt"', "b%20c.txt"),
        ("filename*=UTF-8''a%0d%0aX:%20y.txt", "a__X%3A%20y.txt"),
        ("filename*=utf-7''a+2AA-.txt", "a_.txt"),
        ('filename="\\"a\\"; x=.txt"', "%22a%22%3B%20x%3D.txt"),
        ('filename="\u202eä.txt"', "_%C3%A4.txt"),
    ],
)
def test_names_of_files_are_harmless(server, given, sent):
    body, headers = form("NAME", b"one", source="en", target="de", api_key="secret")
    body = body.replace(b'filename="NAME"', given.encode())
    status, answer, _ = server.ask("POST", "/translate_file", body, headers)
    assert status == 200, answer
    path = urllib.parse.urlsplit(answer["translatedFileUrl"]).path
    expected = f"attachment; filename*=UTF-8''{sent}"
    assert server.get(path)[2]["content-disposition"] == expected


@pytest.mark.parametrize("encoding", ["undefined", "idna", "ut\0f"])
def test_unusable_encodings_of_names_are_refused(server, encoding):
    body, headers = form("NAME", b"one", source="en", target="de", api_key="secret")
    named = body.replace(b'filename="NAME"', f"filename*={encoding}''a%ff.txt".encode())
    assert server.ask("POST", "/translate_file", named, headers)[0] == 400
    headers = {"Content-Type": "multipart/form-data; boundary*=undefined''x"}
    assert server.ask("POST", "/translate_file", body, headers)[0] == 400


def test_text_comes_back_under_an_address_that_needs_no_key(server):
    path = translated(server, "my text.txt", b"One two.\r\n\r\nthree & four\n")
    status, content, headers = server.get(path)
    assert (status, content) == (200, b"TWO. ONE\r\n\r\nFOUR & THREE\n")
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''my%20text.txt"
    assert headers["cache-control"] == "no-store"
    assert server.get(path[:-10])[0] == 404


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.html", b"<p>one <b>two</b></p>", b"<b>TWO</b>"),
        ("a.SRT", b"1\n00:01,0 --> 00:02,0\none two\n", b"1\n00:01,0 --> 00:02,0\nTWO ONE\n"),
    ],
)
def test_files_of_other_formats(server, name, content, expected):
    assert expected in server.get(translated(server, name, content))[1]


def test_a_word_file(server):
    given = word_file("<w:p>" + word_run("one two") + "</w:p>")
    content = server.get(translated(server, "a.docx", given))[1]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert "TWO ONE" in archive.read("word/document.xml").decode()


def test_the_address_is_the_public_one():
    with running(StandIn(), public_address="https://a.example/b/") as server:
        answer = send(server, "a.txt", b"one")[1]
    assert answer["translatedFileUrl"].startswith("https://a.example/b/download_file/")
    with pytest.raises(SettingsError, match="--public-address 'a.example' is not an address"):
        ServerSettings(public_address="a.example")


def test_wrong_files_are_refused(server):
    assert "must end with .txt" in send(server, "a.pdf", b"x")[1]["error"]
    assert "not a docx file" in send(server, "a.docx", b"x")[1]["error"]
    assert "UTF-8" in send(server, "a.txt", b"\xff")[1]["error"]
    assert send(server, "a.txt", b"a", target="xx")[0] == 400
    assert send(server, "a.txt", b"a", api_key="wrong")[0] == 403
    assert send(server, "a.txt", b"a " * 250_000)[0] == 413
    assert send(server, "a.txt", b"a\n" * 6000)[0] == 413
    assert server.ask("POST", "/translate_file", b"{}", {"content-type": "a/b"})[0] == 415


def test_two_files_are_refused(server):
    body, headers = form("a.txt", b"one", source="en", target="de", api_key="secret")
    file = body[body.rindex(b"--x\r\n") : -len(b"--x--\r\n")]
    status, answer, _ = server.ask("POST", "/translate_file", file + body, headers)
    assert status == 400 and "'file' is there twice" in answer["error"]


def test_an_encoded_file_is_refused(server):
    body, headers = form("a.txt", b"b25l", source="en", target="de", api_key="secret")
    body = body.replace(b'a.txt"', b'a.txt"\r\nContent-Transfer-Encoding: base64')
    status, answer, _ = server.ask("POST", "/translate_file", body, headers)
    assert status == 400 and "without Content-Transfer-Encoding" in answer["error"]


def test_metrics_count_downloads_without_their_secret():
    with running(StandIn()) as server:
        path = translated(server, "a.txt", b"one")
        server.get(path)
        metrics = server.get("/metrics")[1].decode()
    assert 'path="/download_file/{name}",status="200"' in metrics
    assert path not in metrics


def test_a_client_that_leaves_stops_the_work():
    stand_in = StandIn()
    stand_in.open.clear()
    with running(stand_in, batch_sentences=2) as server:
        body, headers = form("a.txt", b"one two\n" * 2000, source="en", target="de")
        head = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        request = f"POST /translate_file HTTP/1.1\r\nHost: localhost\r\n{head}"
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(f"{request}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_for(lambda: len(stand_in.calls) > 0)
        wait_for(lambda: server.refused("gone") == 1)
        stand_in.open.set()
        assert server.translate("last one")[0] == 200
        assert sum(len(lines) for lines, _ in stand_in.calls) <= 3


def test_files_beyond_those_at_once_are_refused():
    stand_in = StandIn()
    stand_in.open.clear()
    with running(stand_in, files_at_once=1) as server, ThreadPoolExecutor(1) as pool:
        first = pool.submit(send, server, "a.txt", b"one")
        wait_for(lambda: len(stand_in.calls) > 0)
        status, answer, headers = send(server, "b.txt", b"two")
        stand_in.open.set()
        assert first.result()[0] == 200
        assert (status, headers["retry-after"]) == (503, "10")
        assert "other files" in answer["error"] and server.refused("files") == 1
        assert send(server, "a.docx", b"wrong")[0] == 400
        assert send(server, "b.txt", b"two")[0] == 200


def wait_for(holds, seconds=20.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_page_settings_list_the_formats(server):
    settings = server.get("/frontend/settings")[1]
    assert settings["filesTranslation"] is True
    assert {".txt", ".html", ".docx", ".odt", ".srt", ".vtt"} <= {*settings["supportedFilesFormat"]}


def test_a_key_in_the_headers_is_checked_before_the_file_is_read(server):
    body, headers = form("a.txt", b"one", source="en", target="de")
    wrong = server.ask("POST", "/translate_file", body, headers | {"X-API-Key": "wrong"})
    assert wrong[0] == 403
    right = server.ask("POST", "/translate_file", body, headers | {"X-API-Key": "secret"})
    assert right[0] == 200
    assert server.ask("POST", "/translate_file", body, headers)[0] == 401
