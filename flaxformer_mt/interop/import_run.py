"""A run directory made of a Hugging Face Marian checkpoint: it translates, evaluates, exports, and
other runs start from it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flax.traverse_util import unflatten_dict

from flaxformer_mt.config import ConfigError, default_config, freeze, to_dict
from flaxformer_mt.config.schema import ExperimentConfig, ModelConfig, TrainingConfig
from flaxformer_mt.data.type_table import MARKS, TypeTable
from flaxformer_mt.data.vocabulary import BOS, PAD, UNK, Vocabularies, Vocabulary
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.files import hub
from flaxformer_mt.files.reading import explained, load_json
from flaxformer_mt.interop import BOUND, ExportError, huggingface, package_of_extra
from flaxformer_mt.interop.folder import appearing
from flaxformer_mt.interop.marian import (
    Types,
    from_state,
    is_shared,
    model_config,
    renumbered,
    sizes,
)
from flaxformer_mt.interop.parity import Parity, Reference, compare, sample_lines
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.layout import Status, write_status
from flaxformer_mt.rundir.paths import as_path, check_writable

SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"
# Of a repository on the hub, which may hold the same weights for other programs too.
_SMALL_FILES = (
    *("config.json", "generation_config.json", "tokenizer_config.json"),
    *("vocab.json", "target_vocab.json", "source.spm", "target.spm"),
)


def import_marian(
    folder: str | os.PathLike[str],
    workdir: str | os.PathLike[str],
    command_line: Sequence[str],
    *,
    sample: str | None = None,
    bound: float = BOUND,
    report: Callable[[str], None] = lambda line: None,
) -> Parity | None:
    """Converts the checkpoint in `folder`, or of a model on the hub, "ORG/MODEL[@REVISION]", into
    the new run directory `workdir`.

    If PyTorch and transformers are installed, both programs are compared on lines of the file
    `sample` (default: pieces of the vocabulary); otherwise the result is None. The directory
    appears when it has passed the comparison. Raises ExportError, HubError and WorkdirError.
    """
    if "://" not in str(workdir):  # else refused when the folder is to be made
        check_writable(as_path(workdir))
    source = _read(folder)
    try:
        model = model_config(source.config)
        src_types, tgt_types = sizes(source.config)
        shared = is_shared(source.config)
        state = _state(source.path)
        weights = from_state(state, model, shared=shared, src_types=src_types, tgt_types=tgt_types)
        # After the arrays, which have shown that the sizes in config.json are true.
        start = source.config.get("decoder_start_token_id")
        vocab = source.vocab if shared else source.target_vocab
        src = tgt = _types(source, vocab, tgt_types, start)
        if not shared:
            # A source has no begin mark, but its vocabulary may.
            src = _types(source, source.vocab, src_types, source.vocab.get(MARKS[1]))
        params = unflatten_dict(renumbered(weights, model, src, tgt), sep="/")
        files = (source.path / "source.spm", source.path / "target.spm")
        vocabularies = Vocabularies(_vocabulary(files[0], src), _vocabulary(files[1], tgt))
        config = _experiment(source, model, vocabularies)
        # Their search never generates these words, but this program's may.
        bad = source.generation.get("bad_words_ids", source.config.get("bad_words_ids")) or []
        never = [[tgt.ids[number]] for number in (PAD, BOS, UNK)]
        if left_out := [words for words in bad if words not in never]:
            report(f"bad_words_ids {left_out} are not imported: suppress them when translating")
    except ExportError as error:
        raise ExportError(f"{source.path}: {error}") from error
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        what = error if isinstance(error, ConfigError) else repr(error)
        raise ExportError(f"{source.path}: is not a Marian model's folder: {what}") from error
    with appearing(workdir) as aside:
        run = layout.create(aside, to_dict(config), command_line)
        vocabularies.save(run.vocabulary)
        with Checkpoints(run.checkpoints, TrainingConfig()) as checkpoints:
            # No optimizer has seen them: other runs start from these weights, this one never does.
            checkpoints.save(Snapshot(step=0, params=params, opt_state={}, position={}))
        write_status(run, Status(state="finished", step=0, reason=f"imported from {source.origin}"))
        if huggingface.missing():
            return None
        parity = compare(
            Reference(Translator.load(run.path)),
            huggingface.Runtime(source.path, (src.ids, tgt.ids)),
            *sample_lines(vocabularies, None, sample),
            bound=bound,
        )
        if not parity.agrees:
            raise ExportError(f"{workdir}: not written, since the outputs disagree: {parity}")
        return parity


def _vocabulary(path: Path, types: Types) -> Vocabulary:
    with explained(ExportError, path, ""):
        model = path.read_bytes()
    try:
        if not model:
            raise RuntimeError("the file is empty")
        plain = Vocabulary(model)
        own = tuple(plain.pieces())
    except RuntimeError as error:
        raise ExportError(f"{path.name}: is not a SentencePiece model") from error
    # A model that this program exported needs no table.
    return plain if own == types.table.pieces else Vocabulary(model, types.table)


def _experiment(
    source: _Folder, model: ModelConfig, vocabularies: Vocabularies
) -> ExperimentConfig:
    tree = default_config()
    tree.name = source.name
    tree.model.update(to_dict(ExperimentConfig(model=model))["model"])
    for key, theirs in (("src_lang", "source_lang"), ("tgt_lang", "target_lang")):
        if isinstance(language := source.tokenizer.get(theirs), str) and language:
            tree.data[key] = language
    tree.data.vocabulary.shared = is_shared(source.config)
    tree.data.vocabulary.size = vocabularies.tgt.size
    tree.data.vocabulary.kind = "bpe" if vocabularies.tgt.is_bpe else "unigram"
    tree.data.filter.max_length = min(tree.data.filter.max_length, model.max_length)
    # Their search: the penalty has another formula than the paper's, and its default is 1.
    tree.decoding.length_norm = "average"
    tree.decoding.ends_among = "beam"
    for name, theirs, usual in (
        ("beam_size", "num_beams", tree.decoding.beam_size),
        ("length_penalty", "length_penalty", 1.0),
        ("no_repeat_ngram", "no_repeat_ngram_size", 0),
    ):
        given = [each.get(theirs) for each in (source.generation, source.config)]
        tree.decoding[name] = next((each for each in given if each is not None), usual)
    return freeze(tree, str(source.path / "config.json"))


class _Folder(NamedTuple):
    path: Path
    name: str
    origin: str
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    vocab: Mapping[str, int]
    target_vocab: Mapping[str, int]


def _read(place: str | os.PathLike[str]) -> _Folder:
    folder = Path(place)
    name, origin = folder.resolve().name, str(place)
    commit: hub.Address | None = None
    if not folder.exists() and (repository := hub.address(str(place))) is not None:
        try:
            folder = hub.fetch(repository, _SMALL_FILES)
        except hub.HubError as error:
            raise hub.HubError(f"{place}: no such folder here; {error}") from error
        commit = repository._replace(revision=folder.name)
        name, origin = repository.name.partition("/")[2], str(commit)
    if not folder.is_dir():
        advice = "; give a downloaded model's folder, or ORG/MODEL on the hub"
        advice = "" if folder.exists() else advice
        raise ExportError(f"{folder}: no such folder{advice}")
    if not (folder / "config.json").exists():
        raise ExportError(f"{folder}: has no config.json of a Hugging Face Marian model")
    config = _json(folder / "config.json")
    if (kind := config.get("model_type")) != "marian":
        raise ExportError(f"{folder / 'config.json'}: model_type is {kind!r}, not 'marian'")
    vocab = _vocab(folder / "vocab.json")
    separate = (folder / "target_vocab.json").exists()
    generation, tokenizer = (
        _json(folder / f"{of}_config.json", optional=True) for of in ("generation", "tokenizer")
    )
    target_vocab = _vocab(folder / "target_vocab.json") if separate else vocab
    # Weights are fetched in one form, and only of a model that can be imported.
    for weights in (SAFETENSORS, PICKLED):
        if commit is not None and not (folder / SAFETENSORS).exists():
            hub.fetch(commit, [weights])
    return _Folder(folder, name, origin, config, generation, tokenizer, vocab, target_vocab)


def _state(folder: Path) -> dict[str, np.ndarray]:
    try:
        if (file := folder / SAFETENSORS).exists():
            safetensors = package_of_extra("safetensors.numpy", f"{file}: is read by the package")
            return safetensors.load_file(str(file))
        if not (file := folder / PICKLED).exists():
            raise ExportError(f"{folder}: has neither {SAFETENSORS} nor {PICKLED}; download one")
        torch = importlib.import_module("torch")
        # Arrays only: a pickle may otherwise run anything.
        loaded = torch.load(str(file), map_location="cpu", weights_only=True)
        return {name: tensor.float().numpy() for name, tensor in loaded.items()}
    except ExportError:
        raise
    except ImportError as error:
        what = f"pip install torch, or download the model's {SAFETENSORS}"
        raise ExportError(f"{file}: needs PyTorch: {what}") from error
    except Exception as error:  # their own error types, by version
        raise ExportError(f"{file}: cannot be read: {error!r}") from error


def _json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    if optional and not path.exists():
        return {}
    with explained(ExportError, path, ""):
        content = load_json(path)
    if not isinstance(content, dict):
        raise ExportError(f"{path}: is not a JSON object")
    return content


def _vocab(path: Path) -> dict[str, int]:
    vocab = _json(path)
    ids = set(vocab.values())
    if len(ids) < len(vocab) or not all(isinstance(each, int) and each >= 0 for each in ids):
        raise ExportError(f"{path}: its ids must be different integers ≥ 0")
    return vocab


def _types(folder: _Folder, vocab: Mapping[str, int], size: int, start: int | None) -> Types:
    """One side's types. Raises ExportError for marks or ids that don't fit."""
    marks = {}
    for name, usual in (("pad", MARKS[0]), ("eos", MARKS[2]), ("unk", MARKS[3])):
        token = folder.tokenizer.get(f"{name}_token", usual)
        piece = token.get("content", usual) if isinstance(token, dict) else token
        if piece not in vocab:
            raise ExportError(f"its vocabulary has no {name} token {piece!r}")
        marks[name] = vocab[piece]
    eos = folder.config.get("eos_token_id")
    if eos is not None and eos != marks["eos"]:
        raise ExportError(
            f"eos_token_id is {eos!r} in config.json, but {marks['eos']} in the vocabulary"
        )
    if (last := max(vocab.values())) >= size:
        raise ExportError(f"the vocabulary has ids up to {last}, but the model {size} types")
    start = marks["pad"] if start is None else start
    if not 0 <= start < size or start in (marks["eos"], marks["unk"]):
        raise ExportError(f"config.json: decoder_start_token_id = {start} is not a special token")
    first = [marks["pad"], start, marks["eos"], marks["unk"]]
    ids = [*first, *(number for number in range(size) if number not in first)]
    names = {number: piece for piece, number in vocab.items()}
    pieces = list(MARKS)
    for number in ids[len(MARKS) :]:
        # Rows beyond the vocabulary, and ordinary types with the text of a mark.
        piece = names.get(number, f"<unused {number}>")
        pieces.append(f"{piece} {number}" if piece in MARKS else piece)
    return Types(TypeTable(tuple(pieces)), tuple(ids))
