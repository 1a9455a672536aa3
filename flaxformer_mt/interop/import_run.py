"""A run directory made of a Hugging Face Marian checkpoint: it translates, evaluates, exports, and
other runs start from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flax.traverse_util import unflatten_dict

from flaxformer_mt.config import ConfigError, default_config, freeze, to_dict
from flaxformer_mt.config.schema import ExperimentConfig, ModelConfig, TrainingConfig
from flaxformer_mt.data.type_table import MARKS
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, Vocabularies, Vocabulary
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.files.reading import json_errors_as
from flaxformer_mt.interop import BOUND, ExportError, generation, huggingface
from flaxformer_mt.interop.folder import appearing
from flaxformer_mt.interop.huggingface import HuggingFaceRuntime
from flaxformer_mt.interop.marian import (
    POSITIONS,
    UNUSED,
    Types,
    from_state,
    is_shared,
    model_config,
    renumbered,
    sizes,
    with_scale,
)
from flaxformer_mt.interop.marian_folder import (
    Folder,
    read_folder,
    read_state,
    start_of,
    types_of,
)
from flaxformer_mt.interop.parity import Parity, Reference, compare, sample_lines
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.layout import Status, write_status
from flaxformer_mt.rundir.paths import as_path, check_writable

_SEARCHED = 8  # lines whose translations by the folder's own search are compared


class _Converted(NamedTuple):
    config: ExperimentConfig
    params: Mapping[str, Any]
    vocabularies: Vocabularies
    src: Types
    tgt: Types
    start: int  # the folder's id of the type that the decoder begins with
    notes: Sequence[str]  # on settings and tokens that were not imported


def import_marian(
    folder: str | os.PathLike[str],
    workdir: str | os.PathLike[str],
    command_line: Sequence[str],
    *,
    sample: str | None = None,
    bound: float = BOUND,
    say: Callable[[str], None] = lambda line: None,
) -> Parity | None:
    """Converts the checkpoint in `folder`, or of a model on the hub, "ORG/MODEL[@REVISION]", into
    the new run directory `workdir`.

    If PyTorch and transformers are installed, both programs are compared on lines of the file
    `sample` (default: pieces of the vocabulary); otherwise the result is None. The directory
    appears when it has passed the comparison. Raises ExportError, HubError and WorkdirError.
    """
    if "://" not in str(workdir):  # else refused when the folder is to be made
        check_writable(as_path(workdir))
    source = read_folder(folder)
    try:
        converted = _converted(source)
    except ExportError as error:
        raise ExportError(f"{source.path}: {error}") from error
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, ConfigError) else repr(error)
        raise ExportError(f"{source.path}: is not a Marian model's folder: {reason}") from error
    for note in converted.notes:
        say(note)

    with appearing(workdir) as aside:
        run = layout.create(aside, to_dict(converted.config), command_line)
        converted.vocabularies.save(run.vocabulary)
        with Checkpoints(run.checkpoints, TrainingConfig()) as checkpoints:
            # Without an optimizer's state: other runs start from these weights, but this one
            # can't be resumed.
            snapshot = Snapshot(step=0, params=converted.params, opt_state={}, position={})
            checkpoints.save(snapshot)
        write_status(run, Status(state="finished", step=0, reason=f"imported from {source.origin}"))
        if huggingface.missing():
            return None
        translator = Translator.load(run.path)
        ids = (converted.src.ids, converted.tgt.ids)
        runtime = HuggingFaceRuntime(source.path, ids, converted.start)
        lines, origin = sample_lines(converted.vocabularies, None, sample)
        parity = compare(Reference(translator), runtime, lines, origin, bound=bound)
        if not parity.agrees:
            raise ExportError(f"{workdir}: not written, since the outputs disagree: {parity}")
        say(_same_search(translator, runtime, lines))
        return parity


def _converted(source: Folder) -> _Converted:
    """Raises ExportError, and ConfigError, KeyError, TypeError or ValueError for a folder that
    isn't a Marian model's."""
    model = model_config(source.config)
    src_types, tgt_types = sizes(source.config)
    state = read_state(source.path)
    weights = from_state(
        state, model, shared=is_shared(source.config), src_types=src_types, tgt_types=tgt_types
    )
    weights, model = with_scale(weights, model, source.config)

    # A folder that this program wrote, once it has lost its begin mark, is like any other that
    # starts from zeros.
    has_begin = POSITIONS in state
    if not has_begin:
        source = source._replace(numbering=None)
    # After the arrays, which have shown that the sizes in config.json are true.
    src, tgt, start = _types(source, src_types, tgt_types, saved_again=has_begin)
    params = unflatten_dict(renumbered(weights, model, src, tgt, start), sep="/")
    vocabularies = Vocabularies(
        _vocabulary(source.path / "source.spm", src), _vocabulary(source.path / "target.spm", tgt)
    )

    search = generation.of_folder(
        source.generation,
        source.config,
        usual_beam=default_config().decoding.beam_size,
        longest=model.max_length,
        eos=tgt.ids[EOS],
        never=[*tgt.never_generated, *set(range(tgt_types)).difference(tgt.ids)],
    )
    notes = [*search.notes, *_notes(source, src_types, has_begin=has_begin)]
    config = _experiment(source, model, vocabularies, search.settings)
    return _Converted(config, params, vocabularies, src, tgt, start, notes)


def _types(
    source: Folder, src_types: int, tgt_types: int, *, saved_again: bool
) -> tuple[Types, Types, int]:
    """Both sides' types, and the folder's id of the type that the decoder begins with."""
    shared = is_shared(source.config)
    separate = not shared and source.numbering is None
    vocab = source.target_vocab if separate else source.vocab
    start = start_of(source)
    src = tgt = types_of(source, vocab, tgt_types, start, "target", saved_again=saved_again)
    if not shared:
        # A source has no begin mark, but its vocabulary may.
        begin = source.vocab.get(MARKS[BOS])
        src = types_of(source, source.vocab, src_types, begin, "source", saved_again=saved_again)
    return src, tgt, tgt.ids[PAD] if start is None else start


def _notes(source: Folder, src_types: int, *, has_begin: bool) -> Iterator[str]:
    """Notes on tokens of the folder that are not imported."""
    for token, number in source.added.items():
        if number >= src_types:
            yield (
                f"the added token {token.text!r} is not imported: its id is {number}, and the "
                f"model has {src_types} types"
            )
    if source.vocab.get(UNUSED) == PAD and not has_begin:
        yield (
            f"the folder has lost the begin mark, which this program exports in {POSITIONS}: "
            "transformers saves it only after model._keys_to_ignore_on_save = None"
        )


def _same_search(translator: Translator, runtime: HuggingFaceRuntime, lines: Sequence[str]) -> str:
    """How many lines both programs translate alike, each by the folder's own search settings."""
    reference = Reference(translator)
    encoded = zip(lines, translator.vocabularies.src.encode(lines), strict=True)
    fitting = [(line, ids) for line, ids in encoded if 0 < len(ids) < reference.longest]
    searched = fitting[:_SEARCHED]
    sources = [[*ids, EOS] for _, ids in searched]
    limits = reference.limits(sources)
    theirs = translator.vocabularies.tgt.decode(
        [
            runtime.by_own_settings(source, limit=limit)
            for source, limit in zip(sources, limits, strict=True)
        ]
    )
    ours = translator.translate([line for line, _ in searched])
    equal = sum(our.text == their for our, their in zip(ours, theirs, strict=True))
    return (
        f"with the folder's own search settings, {equal} of {len(searched)} lines are translated "
        f"as by {runtime.name}"
    )


def _vocabulary(path: Path, types: Types) -> Vocabulary:
    with json_errors_as(ExportError, path, ""):
        model = path.read_bytes()
    try:
        if not model:
            raise RuntimeError("the file is empty")
        plain = Vocabulary(model)
        pieces = tuple(plain.pieces())
    except RuntimeError as error:
        raise ExportError(f"{path.name}: is not a SentencePiece model") from error
    # A model that this program exported needs no table.
    return plain if pieces == types.table.pieces else Vocabulary(model, types.table)


def _experiment(
    source: Folder, model: ModelConfig, vocabularies: Vocabularies, search: Mapping[str, Any]
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
    for name, setting in search.items():
        tree.decoding[name] = setting
    return freeze(tree, str(source.path / "config.json"))
