"""Every command of the README, word for word, on small data and with a small model."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, Block, blocks
from tests.system.stage import Stage

# But for the block that runs these tests.
BLOCKS = [
    block
    for block in blocks(ROOT / "README.md")
    if block.language == "bash" and block.text != "launch/local.sh test\n"
]


@pytest.mark.extended
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.text.split("\n")[0][:60])
def test_a_block_runs_as_it_stands(block: Block, corpus: Path, warm: Path, tmp_path: Path) -> None:
    if " plan " in block.text and importlib.util.find_spec("libtpu") is None:
        pytest.skip("needs the TPU compiler: pip install -e '.[tpu]'")
    names = {"train": "train", "valid": "newstest2013", "test": "newstest2014"}
    for language in ("en", "de"):
        for split, published in names.items():
            shutil.copy(corpus / f"{split}.{language}", tmp_path)
            shutil.copy(corpus / f"{split}.{language}", tmp_path / f"{published}.{language}")
    shutil.copy(corpus / "test.en", tmp_path / "input.en")
    for name in ("output.de", "theirs.de"):
        shutil.copy(corpus / "test.de", tmp_path / name)
    (tmp_path / "train.trees").write_text("(TOP (S (NP (PRP She)) (VP (VBZ sleeps)) (. .)))\n" * 3)
    stage = Stage(tmp_path, warm)
    try:
        done = stage.shell(block.text.replace("FOLDER", "."))
        assert done.returncode == 0, done.stderr
        if "> output.de" in block.text:
            assert (tmp_path / "output.de").read_text().count("\n") == 20
        if "quickstart" in block.text:
            # The command that it offers for translating works too.
            again = stage.shell(done.stdout.rstrip().split("\n")[-1])
            assert again.returncode == 0, again.stderr
            assert again.stdout.count("\n") == 1
    finally:
        stage.close()


def test_the_blocks_are_found() -> None:
    assert any("quickstart" in block.text for block in BLOCKS)
    assert any("translate" in block.text for block in BLOCKS)
