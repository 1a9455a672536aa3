"""A run directory made of a Hugging Face Marian checkpoint: it translates, evaluates, exports, and
other runs start from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flaxformer_mt.config import ConfigError, default_config, freeze, to_dict
from flaxformer_mt.config.schema import ExperimentConfig, ModelConfig
from flaxformer_mt.data.vocabulary import Vocabularies, Vocabulary
from flaxformer_mt.decoding import Translator
from flaxformer_mt.export import transformers_runtime
from flaxformer_mt.export.errors import ModelImportError
from flaxformer_mt.export.marian_folder import MarianFolder, read_folder
from flaxformer_mt.export.marian_form import Types, model_config, renumbered, types_of
from flaxformer_mt.export.marian_state import POSITIONS, from_state, sinusoids_in_halves
from flaxformer_mt.export.parity import Parity, compare
from flaxformer_mt.export.placing import appearing
from flaxformer_mt.export.reference import Reference
from flaxformer_mt.export.sample import sample_lines
from flaxformer_mt.export.weights import to_params
from flaxformer_mt.model.parameters import count, count_by_formula
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.retention import KeepPolicy
from flaxformer_mt.rundir.status import Status, write_status

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

    Raises ModelImportError where this program has no form for the model or files are missing, and
    where the outputs disagree; ExportError where the directory cannot be written.
    """
    source = read_folder(folder)
    model = model_config(source.config)
    src, tgt = types_of(source)
    _check_positions(source, model)
    weights = from_state(
        source.state,
        tie=model.tie,
        encoder_layers=model.encoder_layers,
        decoder_layers=model.decoder_layers,
    )
    try:
        params = to_params(renumbered(weights, src, tgt), model)
    except (IndexError, ValueError) as error:
        raise ModelImportError(
            f"{source.path}: arrays of other shapes than config.json's"
        ) from error
    sizes = len(src.ids), len(tgt.ids)
    described, found = (
        sum(parts.values()) for parts in (count_by_formula(model, *sizes), count(params))
    )
    if described != found:
        raise ModelImportError(
            f"{source.path}: config.json describes a model of {described:,} parameters, and the "
            f"weights are {found:,}"
        )
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
        if transformers_runtime.missing():
            return None
        parity = compare(
            Reference(Translator.load(run.path)),
            transformers_runtime.Runtime(source.path, (src.ids, tgt.ids)),
            *sample_lines(vocabularies, None, sample),
            bound=bound,
        )
        if not parity.agrees:
            raise ModelImportError(f"{workdir}: not made, for the outputs disagree: {parity}")
        return parity


def _check_positions(source: MarianFolder, model: ModelConfig) -> None:
    """Raises ModelImportError for stored position encodings that are no sinusoids."""
    for name in POSITIONS.values():
        table = source.state.get(name)
        if table is None:
            continue
        expected = sinusoids_in_halves(len(table), model.d_model)
        if table.shape != expected.shape or abs(table - expected).max() > _TABLE_TOLERANCE:
            raise ModelImportError(f"{source.path}: '{name}' holds other positions than sinusoids")


def _vocabulary(path: Path, model: bytes, types: Types) -> Vocabulary:
    try:
        if not model:
            raise RuntimeError("an empty file parses as a model without pieces")
        plain = Vocabulary(model)
        own = tuple(plain.pieces())
    except RuntimeError as error:
        raise ModelImportError(f"{path}: is not a SentencePiece model") from error
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
    tree.data.vocabulary.shared = model.tie == "all"
    tree.data.vocabulary.size = vocabularies.tgt.size
    tree.data.vocabulary.kind = "bpe" if vocabularies.tgt.is_bpe else "unigram"
    tree.data.filter.max_length = min(tree.data.filter.max_length, model.max_length)
    beams = source.generation.get("num_beams", source.config.get("num_beams"))
    if isinstance(beams, int) and beams >= 1:
        tree.decoding.beam_size = beams
    try:
        return freeze(tree, str(source.path / "config.json"))
    except ConfigError as error:
        raise ModelImportError(str(error)) from error


def _left_out(source: MarianFolder, tgt: Types) -> list[str]:
    """What the checkpoint asks of decoding that this program does not do by itself."""
    bad = source.generation.get("bad_words_ids", source.config.get("bad_words_ids")) or []
    more = [words for words in bad if words not in ([tgt.ids[0]], [tgt.ids[1]], [tgt.ids[3]])]
    notes = []
    if more:
        notes.append(f"bad_words_ids {more} are not kept: suppress them when translating")
    penalty = source.generation.get("length_penalty", source.config.get("length_penalty", 1.0))
    if penalty != 1.0:
        notes.append(f"length_penalty {penalty} is of another formula than here, and not kept")
    return notes


def _save(run: RunDirectory, params: Mapping[str, Any], reason: str) -> None:
    """The weights as step 0 of a run that has nothing more to do."""
    with Checkpoints(run.checkpoints, KeepPolicy()) as checkpoints:
        # No optimizer has seen them: other runs start from these weights, this one goes not on.
        checkpoints.save(Snapshot(step=0, params=params, opt_state={}, position={}, clock=0.0))
    write_status(run, Status(state="finished", step=0, reason=reason))
