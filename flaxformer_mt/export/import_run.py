"""A run directory made of a Hugging Face Marian checkpoint: it translates, evaluates, exports, and
other runs start from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict

from flaxformer_mt.config import ConfigError, default_config, freeze, to_dict
from flaxformer_mt.config.schema import ExperimentConfig, ModelConfig
from flaxformer_mt.data.vocabulary import Vocabularies, Vocabulary
from flaxformer_mt.decoding import Translator
from flaxformer_mt.export import ExportError, huggingface
from flaxformer_mt.export.folder import appearing
from flaxformer_mt.export.marian import (
    POSITIONS,
    Types,
    from_state,
    is_shared,
    model_config,
    renumbered,
    sinusoids_in_halves,
    sizes,
    types_of,
)
from flaxformer_mt.export.marian_folder import MarianFolder, read_folder
from flaxformer_mt.export.parity import Parity, compare, sample_lines
from flaxformer_mt.export.reference import Reference
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.checkpoint_choice import KeepPolicy
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.layout import RunDirectory, Status, write_status

BOUND = 1e-3
_TABLE_TOLERANCE = 1e-3  # of stored sinusoids, which may be float16


def import_marian(
    folder: str | os.PathLike[str],
    workdir: str | os.PathLike[str],
    command_line: Sequence[str],
    *,
    sample: str | None = None,
    bound: float = BOUND,
    report: Callable[[str], None] = lambda line: None,
) -> Parity | None:
    """Makes the new run directory `workdir` of the checkpoint in `folder`.

    Both are compared on lines of the file `sample`, by default on pieces of the vocabulary, if
    PyTorch and transformers are installed; None is returned if not. The directory appears when it
    is complete and, if compared, proven.

    Raises ExportError where this program has no form for the model, files are missing, the outputs
    disagree, or the directory cannot be written.
    """
    source = read_folder(folder)
    model = model_config(source.config)
    src_types, tgt_types = sizes(source.config)
    try:
        weights = from_state(
            source.state,
            model,
            shared=is_shared(source.config),
            src_types=src_types,
            tgt_types=tgt_types,
        )
    except ExportError as error:
        raise ExportError(f"{source.path}: {error}") from error
    # After the arrays, which have shown that the sizes in config.json are true.
    _check_positions(source, model)
    src, tgt = types_of(source)
    params = unflatten_dict(renumbered(weights, model, src, tgt), sep="/")
    vocabularies = Vocabularies(
        _vocabulary(source.path / "source.spm", source.source_spm, src),
        _vocabulary(source.path / "target.spm", source.target_spm, tgt),
    )
    config = _experiment(source, model, vocabularies)
    for line in _left_out(source, tgt):
        report(line)
    with appearing(workdir) as aside:
        run = layout.create(aside, to_dict(config), command_line)
        vocabularies.save(run.vocabulary)
        _save(run, params, f"imported from {source.path}")
        if huggingface.missing():
            return None
        parity = compare(
            Reference(Translator.load(run.path)),
            huggingface.Runtime(source.path, (src.ids, tgt.ids)),
            *sample_lines(vocabularies, None, sample),
            bound=bound,
        )
        if not parity.agrees:
            raise ExportError(f"{workdir}: not made, for the outputs disagree: {parity}")
        return parity


def _check_positions(source: MarianFolder, model: ModelConfig) -> None:
    for name in POSITIONS.values():
        table = source.state.get(name)
        if table is None:
            continue
        expected = sinusoids_in_halves(np.shape(table)[0] if np.ndim(table) else 0, model.d_model)
        if table.shape != expected.shape or abs(table - expected).max() > _TABLE_TOLERANCE:
            raise ExportError(f"{source.path}: '{name}' holds other positions than sinusoids")


def _vocabulary(path: Path, model: bytes, types: Types) -> Vocabulary:
    try:
        if not model:
            raise RuntimeError("an empty file parses as a model without pieces")
        plain = Vocabulary(model)
        own = tuple(plain.pieces())
    except RuntimeError as error:
        raise ExportError(f"{path}: is not a SentencePiece model") from error
    # A model of this program, come back: it needs no table.
    return plain if own == types.table.pieces else Vocabulary(model, types.table)


def _experiment(
    source: MarianFolder, model: ModelConfig, vocabularies: Vocabularies
) -> ExperimentConfig:
    """The run's config: the checkpoint's model and languages, other settings at their defaults."""
    tree = default_config()
    tree.name = source.path.resolve().name
    for name, value in to_dict(ExperimentConfig(model=model))["model"].items():
        tree.model[name] = value
    for side in ("src", "tgt"):
        key = {"src": "source_lang", "tgt": "target_lang"}[side]
        if isinstance(language := source.tokenizer.get(key), str) and language:
            tree.data[f"{side}_lang"] = language
    tree.data.vocabulary.shared = is_shared(source.config)
    tree.data.vocabulary.size = vocabularies.tgt.size
    tree.data.vocabulary.kind = "bpe" if vocabularies.tgt.is_bpe else "unigram"
    tree.data.filter.max_length = min(tree.data.filter.max_length, model.max_length)
    # Their search: the penalty is of another formula than the paper's, and 1 where none is given.
    tree.decoding.length_norm, tree.decoding.ends_among = "average", "beam"
    try:
        for name, theirs, usual in (
            ("beam_size", "num_beams", None),
            ("length_penalty", "length_penalty", 1.0),
            ("no_repeat_ngram", "no_repeat_ngram_size", 0),
        ):
            given = [each.get(theirs) for each in (source.generation, source.config)]
            value = next((each for each in given if each is not None), usual)
            if value is not None:
                tree.decoding[name] = value
        return freeze(tree, str(source.path / "config.json"))
    except (ConfigError, TypeError, ValueError) as error:
        raise ExportError(f"{source.path}: {error}") from error


def _left_out(source: MarianFolder, tgt: Types) -> list[str]:
    bad = source.generation.get("bad_words_ids", source.config.get("bad_words_ids")) or []
    if not isinstance(bad, list):
        raise ExportError(f"{source.path}: bad_words_ids = {bad!r} is no list")
    more = [words for words in bad if words not in ([tgt.ids[0]], [tgt.ids[1]], [tgt.ids[3]])]
    return [f"bad_words_ids {more} are not kept: suppress them when translating"] if more else []


def _save(run: RunDirectory, params: Mapping[str, Any], reason: str) -> None:
    with Checkpoints(run.checkpoints, KeepPolicy()) as checkpoints:
        # No optimizer has seen them: other runs start from these weights, this one goes not on.
        checkpoints.save(Snapshot(step=0, params=params, opt_state={}, position={}))
    write_status(run, Status(state="finished", step=0, reason=reason))
