"""Folders that appear whole or not at all, and the lines that models are compared on."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from pathlib import Path

import pytest

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.prepare.manifest import MANIFEST
from flaxformer_mt.data.type_table import TypeTable
from flaxformer_mt.data.vocabulary import UNK, Vocabulary
from flaxformer_mt.export import ExportError
from flaxformer_mt.export.folder import appearing, language_codes, search_of
from flaxformer_mt.export.parity import COUNT, made_of_pieces, sample_lines
from tests.export.translators import vocabularies


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "model"
    # What another has left behind, even by a process of the same number, is in nobody's way.
    place.parent.mkdir()
    (place.parent / f".model.{os.getpid()}.tmp").mkdir()
    (tmp_path / "usual").mkdir()
    with appearing(place) as folder:
        assert not place.exists()
        place.mkdir()  # an empty folder is taken
        (folder / "file").write_text("x")
    assert [path.name for path in place.iterdir()] == ["file"]
    assert [path.name for path in place.parent.iterdir()] == ["model"]
    # It may be read as any new folder.
    assert place.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_the_folder_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for place in (".", "../here", "../here/."):
        with appearing(place) as folder:
            (folder / "file").write_text("x")
        assert [path.name for path in tmp_path.iterdir()] == ["here"]
        (tmp_path / "here" / "file").unlink()
        monkeypatch.chdir(tmp_path / "here")  # it is another one now
    (tmp_path / "here" / "file").write_text("x")
    with pytest.raises(ExportError, match="here: is there already"), appearing("."):
        pass


def test_what_appears_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[str] = []
    whole = os.fsync

    def noted(place: int) -> None:
        forced.append(Path(os.readlink(f"/proc/self/fd/{place}")).name)
        assert not (tmp_path / "model").exists()
        whole(place)

    monkeypatch.setattr(os, "fsync", noted)
    with appearing(tmp_path / "model") as folder:
        (folder / "below").mkdir()
        (folder / "below" / "file").write_text("x")
        (folder / "link").symlink_to("nowhere")
    assert sorted(forced) == [folder.name, "below", "file"]


def test_after_sigterm_there_is_nothing(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, appearing(tmp_path / "model") as folder:
        (folder / "file").write_text("x")
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143 and not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(ExportError, match="is there already"), appearing(place):
            pass
    assert (tmp_path / "file").read_text() == "x"
    with pytest.raises(ExportError, match="file/below: cannot be written: Not a directory"):
        with appearing(tmp_path / "file" / "below" / "x"):
            pass
    with pytest.raises(ExportError, match="gs://bucket/x: is no local folder"):
        with appearing("gs://bucket/x"):
            pass


def test_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes("\ufeffone\r\n\n  \nzwei ä\n".encode())
    assert sample_lines(vocabularies(shared=True), None, file) == (["one", "zwei ä"], str(file))
    file.write_text("".join(f"line {n}\n" for n in range(1000)))
    lines, _ = sample_lines(vocabularies(shared=True), None, file)
    assert len(lines) == COUNT and lines[0] == "line 0" and lines[-1] == "line 968"


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\n \n", "holds no line of text"), (b"a\xff", r"is not UTF-8 text \(byte 2\)")],
)
def test_files_without_text_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "lines.txt").write_bytes(content)
    with pytest.raises(ExportError, match=message):
        sample_lines(vocabularies(shared=True), None, tmp_path / "lines.txt")
    with pytest.raises(ExportError, match="absent: cannot be read: No such file"):
        sample_lines(vocabularies(shared=True), None, tmp_path / "absent")


def test_validation_text_comes_before_pieces(tmp_path: Path) -> None:
    pair = vocabularies(shared=False)
    lines, origin = sample_lines(pair, tmp_path, None)
    assert origin == "pieces of the vocabulary, drawn by chance"
    manifest = dict.fromkeys(("settings", "inputs", "corpora", "vocabulary", "store"))
    (tmp_path / MANIFEST).write_text(json.dumps({**manifest, "format": 1}))
    for side in ("src", "tgt"):
        (tmp_path / f"valid.{side}.txt").write_text(f"{side} one\n\n{side} two\n")
    assert sample_lines(pair, tmp_path, None) == (
        ["src one", "src two"],
        "the run's validation text",
    )
    assert lines == made_of_pieces(pair), "the same each time"
    assert 1 < len(lines) <= COUNT
    for ids in pair.src.encode(lines):
        assert ids and UNK not in ids


# --- what folders say of a run's search: only what their programs mean the same by ----------------


PAPER = DecodingConfig(beam_size=4, length_penalty=0.6)


def test_the_papers_penalty_is_no_exponent() -> None:
    found = search_of(PAPER, "ProgramX")
    assert (found.beam_size, found.length_penalty) == (4, 0.0)
    for said in (
        "The beam is 4 wide, as in the run",
        "`length_penalty` is 0, which is none. The run's is 0.6 in the paper's",
        "ProgramX divides by |Y|^alpha",
        "`decoding.ends_among` is `candidates`",
    ):
        assert said in found.notes


@pytest.mark.parametrize(
    ("changes", "penalty", "said"),
    [
        ({"length_norm": "average"}, 0.6, "`length_penalty` is 0.6, as in the run: the exponent"),
        ({"length_penalty": 0.0}, 0.0, "`length_penalty` is 0, which is none, as in the run"),
        ({"ends_among": "beam"}, 0.0, "among the best of the beam, as in the run"),
        ({"coverage_penalty": 0.2}, 0.0, "`decoding.coverage_penalty` of 0.2 is left out"),
        ({"diverse_groups": 2}, 0.0, "`decoding.diverse_groups` of 2 is left out"),
    ],
)
def test_what_is_the_same_is_taken_along(
    changes: dict[str, object], penalty: float, said: str
) -> None:
    found = search_of(dataclasses.replace(PAPER, **changes), "ProgramX")  # type: ignore[arg-type]
    assert found.length_penalty == penalty and said in found.notes


def test_greedy_search_ends_in_one_way() -> None:
    assert "ends" not in search_of(dataclasses.replace(PAPER, beam_size=1), "ProgramX").notes


def test_codes_are_pieces_of_tables_alone() -> None:
    plain = vocabularies(shared=True).src
    *pieces, _, _, _ = plain.pieces()
    table = TypeTable((*pieces, ">>fra<<", ">>x<<y<<", "a>>b<<"))
    assert language_codes(Vocabulary(plain.model, table)) == [">>fra<<"]
    assert language_codes(plain) == []
