"""A LibreTranslate server with a package of our own, as a process that uses no network."""

import contextlib
import http.client
import json
import os
import subprocess
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.serving.process import ServerFailed, ServerProcess

# Argos Translate splits sentences with a model that it downloads (MiniSBD), unless it is told to
# use spaCy; then a pipeline in the package, here an empty one to which it adds spaCy's rules.
_SPLITTER = "import sys, spacy; spacy.blank('xx').to_disk(sys.argv[1])"
_ENVIRONMENT = {"ARGOS_CHUNK_TYPE": "SPACY"}


def unpacked(package: Path, home: Path, python: Path) -> dict[str, str]:
    """Installs a package of `export --format argos` below `home`; the server's environment."""
    folders = {name: home / name for name in ("data", "cache", "config")}
    packages = folders["data"] / "argos-translate" / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(package) as archive:
        archive.extractall(packages)
    write_splitter(python, packages / package.stem / "spacy")
    # With a single package, LibreTranslate looks for more before it serves.
    (packages / "none").mkdir(exist_ok=True)
    (packages / "none" / "metadata.json").write_text('{"type": "none"}')
    # As if spaCy's own model had been downloaded, which isn't used.
    spacy_model = folders["cache"] / "argos-translate" / "spacy" / "senter" / "model"
    spacy_model.parent.mkdir(parents=True, exist_ok=True)
    spacy_model.touch()
    return _ENVIRONMENT | {f"XDG_{name.upper()}_HOME": str(of) for name, of in folders.items()}


def write_splitter(python: Path, folder: Path) -> None:
    """Writes spaCy's pipeline, with the `python` of an environment that has spaCy."""
    subprocess.run([python, "-W", "ignore", "-c", _SPLITTER, folder], check=True)


@contextlib.contextmanager
def libretranslate(
    python: Path, environment: dict[str, str], log: Path, *, port: int, seconds: float = 120.0
) -> Iterator[ServerProcess]:
    """Starts the server of an environment's `python`, waits until it is ready, and stops it. Raises
    ServerFailed if it isn't ready in time."""
    command = [str(python), "-W", "ignore", str(python.parent / "libretranslate")]
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), "--disable-web-ui"],
            env={**os.environ, **environment},
            stdout=log_file,
            stderr=subprocess.STDOUT,
        )
    try:
        end = time.monotonic() + seconds
        while not _ready(port):
            if process.poll() is not None or time.monotonic() > end:
                raise ServerFailed(log.read_text())
            time.sleep(0.2)
        yield ServerProcess(port, process.pid)
    finally:
        process.terminate()
        process.wait()


def cpu_seconds(server: ServerProcess) -> float:
    """The CPU time that a server has used, of all its threads."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def translated(server: ServerProcess, page: str, *, seconds: float = 600.0) -> str:
    """An HTML page's translation, by our server or theirs. Raises ServerFailed."""
    question = {"q": page, "source": "en", "target": "de", "format": "html"}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=seconds)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/translate", json.dumps(question), headers)
        answer = connection.getresponse()
        content = json.loads(answer.read())
    finally:
        connection.close()
    if answer.status != 200:
        raise ServerFailed(f"it answered {answer.status}: {content}")
    text: str = content["translatedText"]
    return text


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/languages")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
