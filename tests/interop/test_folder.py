"""Folders that appear whole or not at all, and the lines that models are compared on."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.config.schema import Direction
from flaxformer_mt.data.prepare.manifest import MANIFEST
from flaxformer_mt.data.training_text import TrainingText
from flaxformer_mt.data.vocabulary import UNK
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import ExportError
from flaxformer_mt.interop.folder import appearing, search_of, write_readme
from flaxformer_mt.interop.parity import COUNT, sample_lines
from tests.interop.translators import translator, vocabularies


def test_a_folder_appears_when_it_is_complete_and_on_the_disk(tmp_path, monkeypatch):
    forced: list[str] = []
    fsync = os.fsync
    place = tmp_path / "deep" / "model"
    # What another has left behind, even by a process of the same number, is in nobody's way.
    (place.parent / f".model.{os.getpid()}.tmp").mkdir(parents=True)

    def noted(descriptor: int) -> None:
        forced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        assert not any(place.iterdir())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    with appearing(place) as folder:
        assert not place.exists()
        place.mkdir()  # an empty folder is taken
        (folder / "below").mkdir()
        (folder / "below" / "file").write_text("x")
        (folder / "link").symlink_to("nowhere")
    assert sorted(forced) == [folder.name, "below", "file"]
    assert sorted(path.name for path in place.iterdir()) == ["below", "link"]
    assert [path.name for path in place.parent.iterdir()] == ["model"]

    # It may be read as any new folder.
    (tmp_path / "usual").mkdir()
    assert place.stat().st_mode == (tmp_path / "usual").stat().st_mode


def translator_that(**settings):
    """A small translator with other settings."""
    small = translator()
    return Translator(small.params, small.model, small.vocabularies, small.config, **settings)


@pytest.mark.parametrize(
    ("together", "said"),
    [
        (1, "The run splits a line of more than one sentence, translates it sentence by"),
        (3, "The run splits a line of more than 3 sentences, translates it sentence by"),
        (None, "The run translates every line as a whole"),
    ],
)
def test_a_readme_says_what_becomes_of_a_line_of_several_sentences(tmp_path, together, said):
    read = translator_that(src_lang="fr", training_text=TrainingText(together, 1.0))
    write_readme(tmp_path, read, title="A model", install="x", use="y\n", notes="Notes.\n")
    text = (tmp_path / "README.md").read_text()
    assert said in text
    assert ("`translate --no-split`" in text) == (together is not None)
    assert "the model gets each line as a whole" in text
    assert "`fm.split_sentences(text, 'fr').texts`" in text
    assert "leaves the marks of a quotation of several sentences in" in text
    assert "tag of its direction" not in text


def test_a_readme_lists_the_tags_of_a_model_of_several_languages(tmp_path):
    several = translator_that(
        directions=[Direction("en", "de", "<2de>"), Direction("fr", "en", "")]
    )
    write_readme(tmp_path, several, title="A model", install="x", use="y\n", notes="Notes.\n")
    text = (tmp_path / "README.md").read_text()
    listed = "- en to de: `<2de>`\n- fr to en: no tag\n"
    assert f"the tag of its direction and a blank:\n\n{listed}" in text


def test_the_folder_one_is_in(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with appearing("../here/.") as folder:
        (folder / "file").write_text("x")
    assert [path.name for path in tmp_path.rglob("*")] == ["here", "file"]


def test_what_is_there_stays(tmp_path):
    file = tmp_path / "file"
    file.write_text("x")
    for place, message in (
        (tmp_path, "already exists"),
        (file, "file: already exists"),
        (file / "below" / "x", "file/below: cannot be written: Not a directory"),
        ("gs://bucket/x", "gs://bucket/x: is not a local folder"),
        (os.fsdecode(b"\xff/x"), r"\\udcff/x': is not UTF-8; choose another folder"),
    ):
        with pytest.raises(ExportError, match=message), appearing(place):
            pass
    assert file.read_text() == "x"


def test_sample_lines_are_spread_over_a_file(tmp_path):
    pair, file = vocabularies(shared=True), tmp_path / "lines.txt"
    file.write_bytes("\ufeffone\r\n\n  \nzwei ä\n".encode())
    assert sample_lines(pair, None, file) == (["one", "zwei ä"], str(file))
    file.write_text("".join(f"line {n}\n" for n in range(1000)))
    lines, _ = sample_lines(pair, None, file)
    assert len(lines) == COUNT and lines[0] == "line 0" and lines[-1] == "line 968"


def test_a_file_without_sample_lines_is_refused(tmp_path):
    pair, file = vocabularies(shared=True), tmp_path / "lines.txt"
    for content, message in (
        (b"\n \n", "has no line of text"),
        (b"a\xff", r"lines.txt: is not UTF-8 text \(byte 2\)"),
    ):
        file.write_bytes(content)
        with pytest.raises(ExportError, match=message):
            sample_lines(pair, None, file)
    with pytest.raises(ExportError, match="absent: cannot be read: No such file"):
        sample_lines(pair, None, tmp_path / "absent")


def test_sample_lines_are_the_validation_text_or_pieces(tmp_path):
    pair = vocabularies(shared=False)
    lines, origin = sample_lines(pair, tmp_path, None)
    assert origin == "random pieces of the vocabulary"
    assert sample_lines(pair, None, None) == (lines, origin), "the same each time"
    assert 1 < len(lines) <= COUNT
    assert all(ids and UNK not in ids for ids in pair.src.encode(lines))

    manifest = dict.fromkeys(("settings", "inputs", "corpora", "vocabulary", "store"))
    (tmp_path / MANIFEST).write_text(json.dumps({**manifest, "format": 1}))
    for side in ("src", "tgt"):
        (tmp_path / f"valid.{side}.txt").write_text(f"{side} one\n\n{side} two\n")
    expected = (["src one", "src two"], "the run's validation text")
    assert sample_lines(pair, tmp_path, None) == expected


def test_of_a_runs_search_goes_along_what_means_the_same_there():
    cases: list[tuple[dict[str, Any], float, tuple[str, ...]]] = [
        ({}, 0.0, ("divides by |Y|^alpha, so the same", "is `candidates`")),
        ({"length_norm": "average"}, 0.6, ("is 0.6, as in the run: the exponent",)),
        ({"length_penalty": 0.0}, 0.0, ("`length_penalty` is 0 (none), as in the run",)),
        ({"ends_among": "beam"}, 0.0, ("best of the beam may end a translation, as in the run",)),
        ({"diverse_groups": 2}, 0.0, ("`decoding.diverse_groups` of 2 is not supported",)),
    ]
    for changes, penalty, said in cases:
        search = DecodingConfig(**{"beam_size": 4, "length_penalty": 0.6, **changes})
        length_penalty, notes = search_of(search, "X")
        assert length_penalty == penalty and all(text in notes for text in said)
    search = DecodingConfig(no_repeat_ngram=3)
    assert "no_repeat_ngram" not in search_of(search, "X")[1]
    assert "`decoding.no_repeat_ngram` of 3" in search_of(search, "X", has_ngram_rule=False)[1]
    assert "- `normalize` is 0 (none)." in search_of(search, "X", penalty="normalize")[1]
