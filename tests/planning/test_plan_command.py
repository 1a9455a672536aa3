"""The command without its compiler: what it says of wrong arguments."""

from __future__ import annotations

import importlib.util

import pytest

from flaxformer_mt.cli.main import main
from flaxformer_mt.planning.compile import Compilation
from flaxformer_mt.planning.environment import SETTINGS, set_for_compiler
from flaxformer_mt.planning.memory import TooLarge


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """As it was, afterwards."""
    for name in SETTINGS:
        monkeypatch.setenv(name, "unset")


def test_the_environment_is_set(monkeypatch):
    set_for_compiler()
    import os

    assert {name: os.environ[name] for name in SETTINGS} == SETTINGS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topology=v5e:2x4", "--lengths=64"], "write SRC,TGT"),
        (["--topology=v5e:2x4", "--fit", "--decode"], "not allowed with"),
        ([], "--topology"),
    ],
)
def test_usage(arguments, message, capsys):
    with pytest.raises(SystemExit) as error:
        main(["plan", "--config", "quickstart", *arguments])
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_an_unknown_topology(capsys):
    assert main(["plan", "--config", "quickstart", "--topology", "h100:8"]) == 1
    error = capsys.readouterr().err
    assert "flaxformer-mt plan: error: 'h100:8': only TPU topologies can be planned" in error


def test_a_missing_compiler(capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["plan", "--config", "quickstart", "--topology", "v5e:2x4"]) == 1
    assert "pip install 'flaxformer-mt[tpu]'" in capsys.readouterr().err


def test_a_refused_program_is_a_result():
    refused = TooLarge(needed=20, available=10, message="RESOURCE_EXHAUSTED")
    result = Compilation(
        seconds=1.0, memory=None, hlo=None, refused=refused, replications=(), recomputed=0
    )
    assert result.refused is refused
