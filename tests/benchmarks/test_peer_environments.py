"""Environments of peers: made once, again when their requirements change, and never by surprise."""

import pytest

from benchmarks import peer_environments
from benchmarks.peer_environments import EnvironmentMissing, Environments


@pytest.fixture
def requirements(tmp_path, monkeypatch):
    """Of a peer that needs nothing, so that pip reads no index."""
    folder = tmp_path / "peers"
    folder.mkdir()
    (folder / "none.txt").write_text("# nothing\n")
    monkeypatch.setattr(peer_environments, "REQUIREMENTS", folder)
    return folder


@pytest.mark.extended
def test_one_is_made_when_it_is_asked_for_and_then_kept(tmp_path, requirements, capsys):
    place = tmp_path / "environments"
    with pytest.raises(EnvironmentMissing, match=r"'none' is not there: --install makes it"):
        Environments(place, install=False).python("none")
    python = Environments(place, install=True).python("none")
    assert python.exists() and "making the environment 'none'" in capsys.readouterr().err
    assert Environments(place, install=False).python("none") == python
    (requirements / "none.txt").write_text("# nothing else\n")
    with pytest.raises(EnvironmentMissing):
        Environments(place, install=False).python("none")


def test_interpreters_that_are_there_are_taken_and_requirements_are_pinned(tmp_path):
    python = tmp_path / "python"
    environments = Environments(tmp_path, install=False, present={"torch": python})
    with pytest.raises(EnvironmentMissing, match="no such interpreter"):
        environments.python("torch")
    python.touch()
    assert environments.python("torch") == python
    # Every peer's own package, and PyTorch, by version: a result says what was measured.
    for name, package in {"joeynmt": "joeynmt==", "eole": "eole=="}.items():
        texts = [path.read_text() for path, _ in peer_environments.files(name)]
        assert any(package in text for text in texts)
        assert any("torch==2.13.0" in text.splitlines() for text in texts)
    shared = peer_environments.REQUIREMENTS / "../../tests/interop/peers.txt"
    assert "torch==2.13.0" in shared.read_text()
