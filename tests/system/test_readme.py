"""Every command of the README, word for word, on small data and with a small model."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.conftest import ROOT, SMALL

# What `launch/local.sh` does once its environment is there; making that is test_launch.py's matter.
SETTINGS = " ".join(f"--config.{key}={value}" for key, value in SMALL.items())
LAUNCH = f"""#!/bin/bash
command=$1; shift
if [ "$command" = serve ]; then # until it is ready
    {sys.executable} -m flaxformer_mt.cli.main serve "$@" --port 0 --warm-up 0 2> serve.log &
    until grep -qx ready serve.log; do kill -0 $! && sleep 0.2; done
    kill $! && wait $!
    exit
fi
case $command in
    train | quickstart | plan) set -- "$@" {SETTINGS} ;;
esac
exec {sys.executable} -m flaxformer_mt.cli.main "$command" "$@"
"""


def blocks() -> list[str]:
    """The README's shell blocks, but for the one that runs these tests."""
    found = re.findall(r"^```bash\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.M)
    return [block for block in found if block != "launch/local.sh test\n"]


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.split("\n")[0][:60])
def test_a_block_runs_as_it_stands(block: str, corpus: Path, tmp_path: Path) -> None:
    if " plan " in block and importlib.util.find_spec("libtpu") is None:
        pytest.skip("needs the TPU compiler: pip install -e '.[tpu]'")
    (tmp_path / "launch").mkdir()
    launcher = tmp_path / "launch" / "local.sh"
    launcher.write_text(LAUNCH)
    launcher.chmod(0o755)
    names = {"train": "train", "valid": "newstest2013", "test": "newstest2014"}
    for language in ("en", "de"):
        for split, published in names.items():
            shutil.copy(corpus / f"{split}.{language}", tmp_path)
            shutil.copy(corpus / f"{split}.{language}", tmp_path / f"{published}.{language}")
    shutil.copy(corpus / "test.en", tmp_path / "input.en")
    for name in ("test.en", "test.de"):
        shutil.copy(corpus / name, tmp_path)
    for name in ("output.de", "theirs.de"):
        shutil.copy(corpus / "test.de", tmp_path / name)
    (tmp_path / "train.trees").write_text("(TOP (S (NP (PRP She)) (VP (VBZ sleeps)) (. .)))\n" * 3)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.replace("FOLDER", ".")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    if "> output.de" in block:
        assert (tmp_path / "output.de").read_text().count("\n") == 20
    if "quickstart" in block:
        # The command that it offers for translating works too.
        offered = done.stdout.rstrip().split("\n")[-1]
        again = subprocess.run(
            ["bash", "-c", offered],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert again.returncode == 0, again.stderr
        assert again.stdout.count("\n") == 1


def test_the_blocks_are_found() -> None:
    assert any("quickstart" in block for block in blocks())
    assert any("translate" in block for block in blocks())
