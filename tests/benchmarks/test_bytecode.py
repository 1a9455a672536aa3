"""What a program's start would compile is compiled before it is timed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bytecode import keep_bytecode, packages_of

SEEN = "import kept, os, sys; print(os.path.exists(kept.__cached__))"


@pytest.mark.parametrize("kept", [False, True])
def test_a_module_is_compiled_where_no_process_would_keep_it(tmp_path, kept):
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "kept.py").write_text("found = 1\n")
    if kept:
        keep_bytecode(Path(sys.executable), [folder])
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", SEEN], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == f"{kept}\n"


def test_what_cannot_be_compiled_is_said(tmp_path, capsys):
    with pytest.raises(subprocess.CalledProcessError):
        keep_bytecode(Path("false"), [])
    keep_bytecode(Path(sys.executable), [tmp_path / "none"])
    assert f"{tmp_path / 'none'}: cannot be written" in capsys.readouterr().err
    assert Path(pytest.__file__).parent.parent in packages_of(Path(sys.executable))
