"""A run's model as folders for Marian itself, and for Bergamot, Marian in a browser."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import yaml
from flax.traverse_util import unflatten_dict

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.given_vocabulary import with_marks_first
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK, Vocabularies, Vocabulary
from flaxformer_mt.decoding.run.decoder import BatchDecoder
from flaxformer_mt.decoding.source import Source
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.files.reading import read_file
from flaxformer_mt.interop import ExportError
from flaxformer_mt.interop.folder import NGRAM_RULE, search_of, unsupported, write_readme
from flaxformer_mt.interop.marian import NO_SHARE
from flaxformer_mt.interop.marian_arrays import (
    Rows,
    check_form,
    from_arrays,
    model_config,
    model_settings,
    to_arrays,
    with_more_types,
)
from flaxformer_mt.interop.marian_files import (
    Content,
    read_binary,
    read_npz,
    write_binary,
    write_npz,
)
from flaxformer_mt.interop.parity import LogProbs, Reference, Rows as Ids, Runtime
from flaxformer_mt.interop.weights import Weights, from_model
from flaxformer_mt.model.embedding import SOFTMAX_BIAS
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.rundir.paths import write_json

LENGTH_FACTOR = 3.0  # Marian's default
NPZ, BINARY = "model.npz", "model.bin"
DECODER = "decoder.yml"
SETTINGS = "settings.json"  # of Bergamot's folders
PROGRAM = "translate.mjs"
ENGINE = "@browsermt/bergamot-translator@0.4.9"
# The engine's products: of rows whose length is a multiple of the first, of columns in eights.
_INT8_WIDTH, _INT8_COLUMNS = 64, 8
_USE = """\
from pymarian import Translator

translator = Translator("-c decoder.yml --cpu-threads 4 --quiet")
print(translator.translate(["TEXT"])[0])
"""
_NOTES = """\
Or with Marian's own program: `marian-decoder -c decoder.yml --cpu-threads 4 < LINES`.

Marian ends an output at `max-length-factor` times its source's length, here {factor:g} times.

"""
_USE_OF_BERGAMOT = """\
node translate.mjs < LINES
"""
_NOTES_OF_BERGAMOT = """\
`translate.mjs` takes one sentence per line. `settings.json` has what a web page passes to the
engine's worker, as `translate.mjs` does.

The engine searches greedily, cuts sources after 128 tokens, and ends an output at twice its
source's length. Version 0.4.9 sets these limits itself.

"""
_NOTE_ON_INT8 = """\
Activations have 8 bits, too, so some outputs differ from the run's.

"""


def write(translator: Translator, folder: Path, *, form: str, quantization: str) -> None:
    """Raises ExportError if Marian has no form for the model."""
    config, vocabularies = translator.model.config, translator.vocabularies
    check_form(config)
    if vocabularies.src.table is not None or vocabularies.tgt.table is not None:
        raise ExportError(
            "Marian cannot hold this model: it takes ids from the SentencePiece model, but this "
            "vocabulary has a table of its own, as imported models do"
        )
    int8 = quantization == "int8"
    if int8 and (config.d_model % _INT8_WIDTH or config.d_ff % _INT8_WIDTH):
        raise ExportError(
            f"Bergamot needs multiples of {_INT8_WIDTH} for int8, but model.d_model = "
            f"{config.d_model} and model.d_ff = {config.d_ff}: leave out --quantization"
        )
    arrays = to_arrays(from_model(translator), config)
    types = [vocabularies.src.size, vocabularies.tgt.size]
    if int8:
        arrays = with_more_types(arrays, _INT8_COLUMNS)
        types = [size + -size % _INT8_COLUMNS for size in types]
    content = Content(arrays, model_settings(config, *types))
    if form == "marian":
        _write_marian(translator, folder, content)
    else:
        _write_bergamot(translator, folder, content, int8=int8)


def _write_marian(translator: Translator, folder: Path, content: Content) -> None:
    write_npz(folder / NPZ, content)
    vocabs = _write_vocabularies(folder, translator.vocabularies)
    length_penalty, notes = search_of(
        translator.config, "Marian", penalty="normalize", has_ngram_rule=False
    )
    factor = _length_factor(translator.config)
    decoder = {
        "relative-paths": True,
        "models": [NPZ],
        "vocabs": [vocabs[0], vocabs[-1]],
        "beam-size": translator.config.beam_size,
        "normalize": length_penalty,
        "word-penalty": 0,
        "max-length": translator.model.config.max_length,
        "max-length-factor": factor,
    }
    (folder / DECODER).write_text(yaml.safe_dump(decoder, sort_keys=False), "utf-8")
    write_readme(
        folder,
        translator,
        title="A model for Marian",
        install="pymarian",
        use=_USE,
        notes=_NOTES.format(factor=factor) + notes + "\n",
    )


def _length_factor(config: DecodingConfig) -> float:
    """Marian's limit is a multiple of the source's length, without tokens on top: the run's where
    it has hardly any, as after an import, else Marian's default."""
    if config.max_extra_tokens == 1 and config.max_ratio:
        return config.max_ratio
    return LENGTH_FACTOR


def _write_bergamot(translator: Translator, folder: Path, content: Content, *, int8: bool) -> None:
    write_binary(folder / BINARY, content, int8=int8)
    settings = {
        "from": translator.src_lang or "source",
        "to": translator.tgt_lang or "target",
        "model": BINARY,
        "vocabs": _write_vocabularies(folder, translator.vocabularies),
        "config": {"gemm-precision": "int8shiftAll" if int8 else "float32"},
    }
    write_json(folder / SETTINGS, settings)
    missing = unsupported(translator.config, NGRAM_RULE)
    notes = _NOTES_OF_BERGAMOT + (_NOTE_ON_INT8 if int8 else "")
    program = Path(__file__).with_name(PROGRAM)
    (folder / PROGRAM).write_bytes(program.read_bytes())
    write_readme(
        folder,
        translator,
        title=f"A model for Bergamot, {'int8' if int8 else 'float32'}",
        installer="npm install",
        install=ENGINE,
        language="bash",
        use=_USE_OF_BERGAMOT,
        notes=notes + "".join(f"{note}\n" for note in missing),
    )


def _write_vocabularies(folder: Path, vocabularies: Vocabularies) -> list[str]:
    """Their files: one if both sides share it."""
    if vocabularies.src.model == vocabularies.tgt.model:
        models = {"vocab.spm": vocabularies.src.model}
    else:
        models = {"source.spm": vocabularies.src.model, "target.spm": vocabularies.tgt.model}
    for name, model in models.items():
        (folder / name).write_bytes(model)
    return list(models)


@dataclasses.dataclass(frozen=True)
class ReadModel:
    """A model as it is read from a folder's files."""

    config: Any
    weights: Weights
    vocabularies: Vocabularies


def read_model(
    content: Content, spm: Sequence[Path], *, max_length: int, padded: bool = False
) -> ReadModel:
    """Raises ExportError, VocabularyError, and KeyError, TypeError or ValueError for settings that
    are missing or of another type. `padded`: tables may have more rows than there are types."""
    config = model_config(content.settings, max_length=max_length)
    sides, rows = [], []
    for path, size in zip((spm[0], spm[-1]), content.settings["dim-vocabs"], strict=True):
        model = read_file(path)
        vocabulary = Vocabulary(with_marks_first(model))
        vocabulary.check()
        rows.append(_rows(model, vocabulary))
        types = len(Vocabulary(model).pieces())
        if types > size or (types < size and not padded):
            raise ExportError(f"{path}: has {types} types, but the model {size}")
        sides.append(vocabulary)
    weights = from_arrays(content.arrays, config, *rows)
    return ReadModel(config, weights, Vocabularies(*sides))


def _rows(model: bytes, vocabulary: Vocabulary) -> Rows:
    """The ids in a SentencePiece model of the types of `vocabulary`, which has its marks first."""
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = {theirs.id_to_piece(number): number for number in range(theirs.get_piece_size())}
    marks = {EOS: theirs.eos_id(), UNK: theirs.unk_id(), PAD: theirs.pad_id(), BOS: theirs.bos_id()}
    return [
        (None if marks[number] < 0 else marks[number]) if number in marks else ids[piece]
        for number, piece in enumerate(vocabulary.pieces())
    ]


class MarianRuntime(Runtime):
    """A written model, read again from the files in the folder alone and run by this program."""

    name = "the folder, read again"

    def __init__(self, folder: Path, form: str, search: DecodingConfig, *, max_length: int) -> None:
        content = (read_npz if form == "marian" else read_binary)(
            folder / (NPZ if form == "marian" else BINARY)
        )
        spm = sorted(folder.glob("*.spm"))  # source.spm, target.spm
        model = read_model(content, spm, max_length=max_length, padded=True)
        transformer = Transformer(
            model.config, model.vocabularies.src.size, model.vocabularies.tgt.size
        )
        # The run's softmax gives the marks a share, too, though none is generated.
        model.weights[f"embedding/{SOFTMAX_BIAS}"][[PAD, BOS]] -= NO_SHARE
        params = unflatten_dict(model.weights, sep="/")
        self._src = model.vocabularies.src
        self._search = search
        translator = Translator(params, transformer, model.vocabularies, search)
        self._translator, self._reference = translator, Reference(translator)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[*ids, EOS] for ids in self._src.encode(lines)]

    def search(
        self, sources: Ids, *, beam_size: int, limit: int, length_penalty: float = 0.0
    ) -> list[list[int]]:
        config = dataclasses.replace(
            self._search,
            beam_size=beam_size,
            length_penalty=length_penalty,
            length_norm="average",
            ends_among="beam",
            max_ratio=0.0,
            max_extra_tokens=limit,
        )
        translator = self._translator
        decoder = BatchDecoder((translator.params,), (translator.model,), config)
        decoded = decoder.decode([Source(ids, (0, 0)) for ids in sources])
        return [list(hypotheses[0].tokens) for hypotheses in decoded]

    def greedy(self, sources: Ids, limits: Sequence[int]) -> list[list[int]]:
        outputs = self._reference.greedy(sources)
        return [output[: limit - 1] for output, limit in zip(outputs, limits, strict=True)]

    def log_probs(self, sources: Ids, targets: Ids) -> list[LogProbs]:
        return self._reference.log_probs(sources, targets)
