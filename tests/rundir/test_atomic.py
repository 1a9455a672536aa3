"""Files written in one go or in many: whole at the end, or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from flaxformer_mt.rundir.atomic import writing
from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.rundir.paths import as_path


def test_a_file_appears_when_its_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("old")
    with writing(path) as file:
        file.write("new\u2028\n")
        assert path.read_text() == "old"
    assert path.read_bytes() == "new\u2028\n".encode()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_block_that_breaks_off_leaves_what_was_there(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "text"
    path.write_text("old")
    with pytest.raises(error), writing(path) as file:
        file.write("half")
        raise error
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"no/text: cannot be written: No such file"):
        with writing(tmp_path / "no" / "text"):
            pass
    with pytest.raises(RunDirectoryError, match=r"gs://bucket/text: is in a bucket"):
        with writing(as_path("gs://bucket/text")):
            pass
