"""`serve` with what it cannot use: told before the model is loaded, in one line."""

import importlib.util
import socket

import flaxformer_mt as fm
from flaxformer_mt.cli import serve


def test_files_that_cannot_be_used(run, tmp_path):
    (tmp_path / "empty").write_text("# none yet\n\n")
    (tmp_path / "keys").write_text("# ours\none\nключ\n", encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for option in ("--api-keys", "--examples"):
        for name in ("missing", "binary", "."):
            done = run("serve", "--workdir", tmp_path, option, tmp_path / name)
            assert done.status == 2 and str(tmp_path / name) in done.last
    done = run("serve", "--workdir", tmp_path, "--api-keys", tmp_path / "empty")
    assert done.status == 2 and "has no key; write one per line" in done.last
    done = run("serve", "--workdir", tmp_path, "--api-keys", tmp_path / "keys")
    assert done.status == 2 and f"{tmp_path / 'keys'}:3: the key must" in done.last
    assert "ключ" not in done.errors


def test_a_port_that_is_taken(run, tmp_path):
    fm.demo_run(tmp_path)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        done = run("serve", "--workdir", tmp_path, "--port", port)
    assert done.status == 1 and f"cannot listen on 127.0.0.1:{port}" in done.last
    assert "choose another --port" in done.last


def test_without_the_extra_it_says_what_to_install(run, tmp_path, monkeypatch):
    monkeypatch.setattr(serve.importlib.util, "find_spec", lambda name: None)
    assert importlib.util.find_spec("starlette") is None
    done = run("serve", "--workdir", tmp_path)
    assert done.status == 2 and "pip install 'flaxformer-mt[serve]'" in done.last
