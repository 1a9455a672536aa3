"""`serve` with what it cannot use: told before the model is loaded, in one line."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

import pytest

from flaxformer_mt.cli import serve
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "65536"], "'65536' is no port"),
        (["--port", "http"], "'http' is no port"),
        (["--port", "-1"], "'-1' is no port"),
        (["--timeout", "0"], "'0' is no number of seconds above 0"),
        (["--timeout", "inf"], "'inf' is no number of seconds above 0"),
        (["--timeout", "."], "'.' is no number of seconds above 0"),
        (["--drain", "-1"], "'-1' is no number of seconds above 0"),
        (["--batch", "0"], "'0' must be an integer from 1"),
        (["--warm-up", "x"], "'x' must be an integer"),
        (["--log", "all"], "invalid choice: 'all'"),
        (["--weights", "newest"], "write average, best, latest, auto, or a step's number"),
    ],
)
def test_wrong_arguments_are_named(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = run("serve", "--workdir", tmp_path, *arguments)
    assert done.status == 2 and message in done.last


def test_limits_that_contradict_each_other(run: Run, tmp_path: Path) -> None:
    done = run("serve", "--workdir", tmp_path, "--queue", "10", "--max-sentences", "11")
    assert done.status == 2 and "may have 11 sentences and only 10 can wait" in done.last


def test_files_that_cannot_be_used(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# none yet\n\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for option in ("--api-keys", "--examples"):
        for name in ("missing", "binary", "."):
            done = run("serve", "--workdir", tmp_path, option, tmp_path / name)
            assert done.status == 2 and str(tmp_path / name) in done.last
    done = run("serve", "--workdir", tmp_path, "--api-keys", tmp_path / "empty")
    assert done.status == 2 and "has no key; write one a line" in done.last


def test_a_key_that_no_header_carries_is_named_by_its_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# ours\none\nключ\n", encoding="utf-8")
    done = run("serve", "--workdir", tmp_path, "--api-keys", tmp_path / "keys")
    assert done.status == 2
    assert f"{tmp_path / 'keys'}:3: the key has characters beyond printable ASCII" in done.last
    assert "ключ" not in done.errors


def test_a_port_that_is_taken(run: Run, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("serve", "--workdir", tmp_path, "--port", port)
    assert done.status == 1 and f"cannot listen on 127.0.0.1:{port}" in done.last
    assert "choose another --port" in done.last


@pytest.mark.parametrize("host", ["no.such.host.invalid", "256.1.1.1", "a" * 300, ""])
def test_a_host_that_there_is_not(run: Run, tmp_path: Path, host: str) -> None:
    done = run("serve", "--workdir", tmp_path, "--host", host, "--port", "0")
    # An empty one means all addresses; then there is no run to serve.
    assert done.status == (1 if host else 2)
    assert ("cannot listen" if host else str(tmp_path)) in done.last


def test_a_folder_that_is_no_run(run: Run, tmp_path: Path) -> None:
    done = run("serve", "--workdir", tmp_path, "--port", "0")
    assert done.status == 2 and "config.json" in done.last


def test_without_the_extra_it_says_what_to_install(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.importlib.util, "find_spec", lambda name: None)
    assert importlib.util.find_spec("starlette") is None
    done = run("serve", "--workdir", tmp_path)
    assert done.status == 2 and "pip install 'flaxformer-mt[serve]'" in done.last
