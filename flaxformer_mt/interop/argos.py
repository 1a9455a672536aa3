"""A run's model as a package for Argos Translate, which LibreTranslate serves, too.

A package is a zip archive of one folder: `metadata.json`, a SentencePiece model for both sides, and
a CTranslate2 model in `model/` (argostranslate 1.12, `package.py`).
"""

import importlib
import json
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import sentencepiece

from flaxformer_mt.config.language_names import LANGUAGE_NAMES
from flaxformer_mt.config.languages import base_language
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK, Vocabularies
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import ExportError, ctranslate2, runner
from flaxformer_mt.interop.ctranslate2 import CTranslate2Runtime
from flaxformer_mt.interop.folder import write_readme

ENDING = ".argosmodel"
# Argos Translate has no limit of its own: CTranslate2 cuts sources here, and outputs at 256 tokens.
# Beyond its positions it would fail.
_POSITIONS = 1025
_OF_MODEL = ("model.bin", "config.json", "*vocabulary.json")
_USE = """\
argospm install {name}
argos-translate --from {source} --to {target} "TEXT"
"""
_NOTES = """\
LibreTranslate serves installed packages:

    pip install libretranslate
    libretranslate --load-only {source},{target}

Argos Translate searches in its own way, whatever the run does: a beam of 4 (`ARGOS_BEAM_SIZE`),
divided by |Y|^0.2, up to CTranslate2's limit of 256 tokens. It writes `_` as a blank.

Argos Translate splits text into sentences with a model that it downloads when it first translates.

"""


def write(translator: Translator, folder: Path, *, quantization: str) -> None:
    """Raises ExportError if a package has no form for the model, or CTranslate2 isn't installed."""
    _check(translator)
    source, target = base_language(translator.src_lang), base_language(translator.tgt_lang)
    name = f"translate-{source}_{target}"
    metadata = {
        "package_version": "1.0",
        "argos_version": "1.9",
        "from_code": source,
        "from_name": LANGUAGE_NAMES.get(source, source),
        "to_code": target,
        "to_name": LANGUAGE_NAMES.get(target, target),
    }
    with (
        tempfile.TemporaryDirectory() as temporary,
        zipfile.ZipFile(folder / f"{name}{ENDING}", "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        model = Path(temporary)
        positions = max(_POSITIONS, translator.model.config.max_length)
        ctranslate2.write(translator, model, quantization=quantization, positions=positions)
        for pattern in _OF_MODEL:
            for path in sorted(model.glob(pattern)):
                archive.write(path, f"{name}/model/{path.name}")
        archive.writestr(f"{name}/sentencepiece.model", translator.vocabularies.src.model)
        archive.writestr(f"{name}/metadata.json", json.dumps(metadata, indent=2))
    languages = {"source": source, "target": target}
    write_readme(
        folder,
        translator,
        title=f"A package for Argos Translate and LibreTranslate, {quantization}",
        install="argostranslate",
        use=_USE.format(name=f"{name}{ENDING}", **languages),
        notes=_NOTES.format(**languages),
        language="bash",
        splits_sentences=True,
    )


def _check(translator: Translator) -> None:
    """Refuses what a package can't say."""
    vocabularies = translator.vocabularies
    if not vocabularies.shared or vocabularies.src.table is not None:
        raise ExportError(
            "the format 'argos' has one SentencePiece model, for both sides and with its own ids, "
            "and this run has others: use --format ctranslate2"
        )
    if translator.config.outputs != "text" or any(
        direction.tag for direction in translator.directions
    ):
        raise ExportError(
            "the format 'argos' has one pair of languages, without tags, and text as outputs: use "
            "--format ctranslate2"
        )


class ArgosRuntime(CTranslate2Runtime):
    """A written package in CTranslate2 and SentencePiece, as Argos Translate reads it."""

    def __init__(self, folder: Path, vocabularies: Vocabularies, *, quantization: str) -> None:
        package = importlib.import_module("ctranslate2")
        self.name = f"CTranslate2 {package.__version__}, from the package"
        self._src, self._tgt = vocabularies.src, vocabularies.tgt
        marks = vocabularies.tgt.pieces([PAD, BOS, EOS, UNK])
        self._model = _PackageModel.read(
            folder,
            dict(zip(("pad", "bos", "eos", "unk"), marks, strict=True)),
            compute_type="int8" if quantization in ("int8", "int7") else "float32",
        )


class _PackageModel(NamedTuple):
    program: runner.CTranslate2
    pieces: sentencepiece.SentencePieceProcessor

    @classmethod
    def read(cls, folder: Path, settings: dict[str, str], *, compute_type: str) -> "_PackageModel":
        (path,) = folder.glob(f"*{ENDING}")
        with zipfile.ZipFile(path) as archive:
            members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
        files = {
            name.removeprefix("model/"): content
            for name, content in members.items()
            if name.startswith("model/")
        }
        program = runner.CTranslate2(folder, settings, files=files, compute_type=compute_type)
        processor = sentencepiece.SentencePieceProcessor(model_proto=members["sentencepiece.model"])
        return cls(program, processor)

    def encode(self, lines: Sequence[str]) -> list[list[str]]:
        """Pieces of each line, without the end mark."""
        pieces: list[list[str]] = self.pieces.encode(list(lines), out_type=str)
        return pieces
