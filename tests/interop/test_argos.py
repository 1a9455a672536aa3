"""Packages for Argos Translate, by what is in them; no program of Argos is needed."""

import json
import zipfile

import pytest
import sentencepiece

from flaxformer_mt.config import DataConfig
from flaxformer_mt.config.schema import Direction
from flaxformer_mt.data.vocabulary import BOS, PAD
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import ExportError, argos
from flaxformer_mt.interop.export import export
from flaxformer_mt.interop.huggingface import Card
from tests.interop.test_runners import greedily
from tests.interop.translators import LINES, translator, vocabularies

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the [export] extra")


def exported(made: Translator, folder, **more):
    form = {"form": "argos", "card": Card(data=DataConfig())}
    return export(made, folder, **form, sample=(LINES, "lines"), **more)


def english_to_french(**changes) -> Translator:
    made = translator(**changes)
    of_run = {"src_lang": "eng_Latn", "tgt_lang": "fr"}
    return Translator(made.params, made.model, made.vocabularies, made.config, **of_run)


@pytest.mark.parametrize("changes", [{}, {"positions": "learned"}], ids=str)
def test_a_package_translates_as_argos_reads_it(tmp_path, changes):
    made = english_to_french(**changes)
    parity = exported(made, tmp_path / "out")
    assert parity is not None and parity.same_output == parity.sentences == len(LINES)
    archive = zipfile.ZipFile(tmp_path / "out" / "translate-en_fr.argosmodel")
    archive.extractall(tmp_path / "packages")
    package = tmp_path / "packages" / "translate-en_fr"
    metadata = json.loads((package / "metadata.json").read_text())
    names = {key: metadata[key] for key in ("from_code", "from_name", "to_code", "to_name")}
    assert [*names.values()] == ["en", "English", "fr", "French"]

    # The steps of argostranslate's `apply_packaged_translation`, but greedily and without the marks
    # that random weights would write.
    tokenizer = sentencepiece.SentencePieceProcessor(str(package / "sentencepiece.model"))
    program = ctranslate2.Translator(str(package / "model"))
    pieces = tokenizer.encode([LINES[0], LINES[1] * 50], out_type=str)
    assert len(pieces[1]) > made.model.config.max_length
    marks = [[mark] for mark in made.vocabularies.tgt.pieces([PAD, BOS])]
    output, long_output = program.translate_batch(
        pieces, beam_size=1, disable_unk=True, suppress_sequences=marks
    )
    text = tokenizer.decode_pieces(output.hypotheses[0])
    assert text.startswith(greedily(made, LINES[0])) and long_output.hypotheses


def test_a_damaged_package_is_not_written(tmp_path, monkeypatch):
    """What is compared is the package itself."""
    read = zipfile.ZipFile.read

    def other(archive: zipfile.ZipFile, name: str) -> bytes:
        is_of_pieces = name.endswith("sentencepiece.model")
        return vocabularies(shared=False).tgt.model if is_of_pieces else read(archive, name)

    monkeypatch.setattr(zipfile.ZipFile, "read", other)
    with pytest.raises(ExportError, match="splits .* into tokens"):
        exported(english_to_french(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_readme_says_what_argos_does(tmp_path):
    argos.write(english_to_french(), tmp_path, quantization="int8")
    text = (tmp_path / "README.md").read_text()
    assert "argospm install translate-en_fr.argosmodel" in text
    assert "libretranslate --load-only en,fr" in text
    assert "one sentence\n  per line" not in text and "the model gets each line" not in text


def test_what_a_package_cannot_say_is_refused(tmp_path):
    made = translator()
    several = [Direction("en", "de", "<2de>"), Direction("en", "fr", "<2fr>")]
    tagged = Translator(made.params, made.model, made.vocabularies, made.config, directions=several)
    for refused, message in (
        (tagged, "one pair of languages, without tags"),
        (translator(tie="target"), "one SentencePiece model"),
    ):
        with pytest.raises(ExportError, match=message):
            exported(refused, tmp_path / "out")
        assert not (tmp_path / "out").exists()
