"""Checks beyond a setting's type and bounds: agreement, unused settings; and defaults."""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, assert_never, get_args

from flaxformer_mt.config.kinds import (
    GRAMMAR_SPLITS,
    Adafactor,
    Bucketed,
    CorpusSource,
    EndingCurve,
    Muon,
    Packed,
    RateCurve,
    StableCurve,
    UpdateRule,
)
from flaxformer_mt.config.languages import contradicted, undecided
from flaxformer_mt.config.schema import (
    MARKS,
    AdapterConfig,
    CorpusConfig,
    DataConfig,
    DecodingConfig,
    ExperimentConfig,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    ScheduleConfig,
    TrainingConfig,
    VocabularyConfig,
)
from flaxformer_mt.errors import nearest

_WRITTEN_MARKS = ("<pad>", "<s>", "</s>", "<unk>")
_WRITTEN_BYTE = re.compile("<0x[0-9A-F]{2}>")
_BLANK_MARK = "\u2581"  # SentencePiece's
_BLANK = re.compile(rf"[\s{_BLANK_MARK}]")
TRACKERS = ("tensorboard", "wandb", "mlflow")
# By setting of the vocabulary.
_ONLY_LEARNED = ("tgt_types", "split_digits", "tgt_size")  # not of a given vocabulary
_NEEDED_FOR_BRACKETS = {"shared": True, "byte_fallback": True, "sampling": 0.0}


def inconsistencies(config: ExperimentConfig) -> Iterator[str]:
    """Every contradiction in a config, each naming its keys."""
    yield from _unequal_beam_groups(config)

    yield from _model(config)
    yield from undecided(config.data)
    yield from _filters(config)
    yield from _target_types(config.data.vocabulary)
    yield from _given_models(config.data.vocabulary)
    yield from _only_learned(config.data.vocabulary)
    yield from _learned_types(config.data.vocabulary)

    yield from _training(config.training)
    yield from _adapters(config)
    yield from _validation_sets(config)
    yield from _decoding(config.decoding)
    yield from _copied_symbols(config)
    yield from _mesh(config.mesh)

    yield from _mixture(config.data)
    yield from _held_out_text(config.data)
    yield from _batches(config)
    for key, corpus in _corpora(config.data):
        yield from _corpus(key, corpus)


def _unequal_beam_groups(config: ExperimentConfig) -> Iterator[str]:
    beam_size = config.decoding.beam_size
    groups = config.decoding.diverse_groups
    if groups > 0 and beam_size % groups:
        yield (
            f"'decoding.beam_size' = {beam_size} must be divisible by "
            f"'decoding.diverse_groups' = {groups}"
        )


def _model(config: ExperimentConfig) -> Iterator[str]:
    model = config.model
    if model.positions != "learned" and model.d_model % 2:
        yield f"'model.d_model' = {model.d_model} must be even for sinusoidal positions"
    if model.tie == "all" and not config.data.vocabulary.shared:
        yield "'model.tie' = 'all' needs 'data.vocabulary.shared' = true (or set it to 'target')"


def _filters(config: ExperimentConfig) -> Iterator[str]:
    filters = config.data.filter
    longest = config.model.max_length
    if filters.max_length > longest:
        yield (
            f"'data.filter.max_length' = {filters.max_length} must be at most "
            f"'model.max_length' = {longest}"
        )
    for name in ("max_ratio", "max_character_ratio"):
        if 0 < (ratio := getattr(filters, name)) < 1:
            yield f"'data.filter.{name}' = {ratio} must be 0 (off) or at least 1"


def _given_models(vocabulary: VocabularyConfig) -> Iterator[str]:
    of_both, src, tgt = vocabulary.model, vocabulary.src_model, vocabulary.tgt_model
    if of_both and (src or tgt):
        yield "'data.vocabulary.model' is for both sides: leave out .src_model and .tgt_model"
    if bool(src) != bool(tgt):
        named, missing = ("src", "tgt") if src else ("tgt", "src")
        yield (
            f"'data.vocabulary.{named}_model' needs '.{missing}_model' (or '.model' for both sides)"
        )
    if of_both and not vocabulary.shared:
        yield "'data.vocabulary.model' needs 'data.vocabulary.shared' = true"
    yield from _joint_types(vocabulary)


def _joint_types(vocabulary: VocabularyConfig) -> Iterator[str]:
    """Two models have types of their own, or those of one table."""
    joint, two_models = vocabulary.joint_types, vocabulary.src_model and vocabulary.tgt_model
    if joint and not two_models:
        yield "'data.vocabulary.joint_types' needs '.src_model' and '.tgt_model'"
    if joint and not vocabulary.shared:
        yield "'data.vocabulary.joint_types' needs 'data.vocabulary.shared' = true"
    if two_models and vocabulary.shared and not joint:
        yield (
            "'data.vocabulary.src_model' needs 'data.vocabulary.shared' = false, or '.joint_types'"
        )


def _only_learned(vocabulary: VocabularyConfig) -> Iterator[str]:
    """What nobody can ask of a vocabulary that is given."""
    given = vocabulary.model or vocabulary.src_model or vocabulary.tgt_model
    for name in _ONLY_LEARNED:
        if given and getattr(vocabulary, name) != getattr(VocabularyConfig, name):
            yield f"'data.vocabulary.{name}' is for a vocabulary that is learned, not given"


def _learned_types(vocabulary: VocabularyConfig) -> Iterator[str]:
    if vocabulary.tgt_size and (vocabulary.shared or vocabulary.tgt_types != "pieces"):
        yield (
            "'data.vocabulary.tgt_size' needs 'data.vocabulary.shared' = false and '.tgt_types' = "
            "'pieces'"
        )
    if 0 < vocabulary.tgt_size <= MARKS:
        yield f"'data.vocabulary.tgt_size' = {vocabulary.tgt_size} must be at least {MARKS + 1}"
    for symbol in vocabulary.symbols:
        if not symbol or _BLANK.search(symbol):
            yield f"'data.vocabulary.symbols': {symbol!r} must be text without blanks"
        if symbol in _WRITTEN_MARKS or _WRITTEN_BYTE.fullmatch(symbol):
            yield f"'data.vocabulary.symbols': {symbol} is a mark or a byte of vocabularies"


def _target_types(vocabulary: VocabularyConfig) -> Iterator[str]:
    if vocabulary.tgt_types == "words" and vocabulary.shared:
        yield "'data.vocabulary.tgt_types' = 'words' needs 'data.vocabulary.shared' = false"
    if vocabulary.tgt_types == "brackets":
        for name, needed in _NEEDED_FOR_BRACKETS.items():
            if getattr(vocabulary, name) != needed:
                yield (
                    "'data.vocabulary.tgt_types' = 'brackets' needs "
                    f"'data.vocabulary.{name}' = {str(needed).lower()}"
                )

    if vocabulary.tgt_words and vocabulary.tgt_types == "pieces":
        yield "'data.vocabulary.tgt_words' needs '.tgt_types' = 'words' or 'brackets'"
    for word in vocabulary.tgt_words:
        if not word or _BLANK.search(word):
            yield f"'data.vocabulary.tgt_words': {word!r} is not one word"


def _decoding(decoding: DecodingConfig) -> Iterator[str]:
    if decoding.outputs == "trees":
        for name in ("min_length", "min_ratio"):
            number = getattr(decoding, name)
            if number:
                yield f"'decoding.{name}' = {number} needs 'decoding.outputs' = 'text'"
        for name in ("keep", "copy_unknown"):
            if getattr(decoding, name):
                yield f"'decoding.{name}' needs 'decoding.outputs' = 'text'"


def _copied_symbols(config: ExperimentConfig) -> Iterator[str]:
    if not config.decoding.copy_symbols:
        return
    vocabulary = config.data.vocabulary
    if config.decoding.outputs == "trees":
        yield "'decoding.copy_symbols' needs 'decoding.outputs' = 'text'"
    if config.decoding.no_repeat_ngram:
        yield "'decoding.copy_symbols' needs 'decoding.no_repeat_ngram' = 0"
    for tag in sorted(config.data.tags & {*vocabulary.symbols}):
        yield f"'data.vocabulary.symbols' has the tag {tag}, which no output should copy"
    if not (vocabulary.symbols or vocabulary.model or vocabulary.src_model):
        yield "'decoding.copy_symbols' needs 'data.vocabulary.symbols'"


def _training(training: TrainingConfig) -> Iterator[str]:
    yield from training.schedule.curve.problems("training.schedule")
    yield from _curve_within_training(training)
    yield from training.optimizer.rule.problems("training.optimizer")
    for tracker in training.trackers:
        if tracker not in TRACKERS:
            yield f"'training.trackers' has '{tracker}'; {nearest(tracker, TRACKERS)}"
    if training.best_metric != "loss" and not training.validate_bleu:
        metric = training.best_metric
        yield f"'training.best_metric' = '{metric}' needs 'training.validate_bleu' = true"


def _adapters(config: ExperimentConfig) -> Iterator[str]:
    """Adapters freeze all weights, and no other run has moments for them."""
    training, d_model = config.training, config.model.d_model
    if not training.adapters.rank:
        return
    setting = f"'training.adapters.rank' = {training.adapters.rank}"
    if training.adapters.rank > d_model:
        yield f"{setting} must be at most 'model.d_model' = {d_model}, a matrix's own rank"
    if training.freeze:
        yield f"{setting} trains adapters only: set 'training.freeze' to nothing"
    match training.optimizer.rule:
        case Muon():
            yield f"{setting}: 'training.optimizer.kind' = 'muon' has no matrix of a layer to train"
        case Adafactor(parameter_scale=True):
            yield (
                f"{setting}: adapters begin at 0, which 'training.optimizer.parameter_scale' = "
                "true hardly moves: set it to false"
            )
    if training.keep_moments:
        yield f"{setting} trains new parameters: leave out 'training.keep_moments'"
    if not training.adapters.matrices:
        yield f"{setting} needs 'training.adapters.matrices'"


def _curve_within_training(training: TrainingConfig) -> Iterator[str]:
    """A curve that ends has room for its warm-up and its decay."""
    curve = training.schedule.curve
    if not isinstance(curve, EndingCurve):
        return

    last = curve.last_step(training.steps)
    warmup = f"'training.schedule.warmup_steps' = {curve.warmup_steps}"
    ends = "training.schedule.total_steps" if curve.total_steps else "training.steps"
    end = f"'{ends}' = {last}, where the curve '{curve.kind}' ends"
    if curve.warmup_steps >= last:
        yield f"{warmup} must be less than {end}"
    elif isinstance(curve, StableCurve) and curve.warmup_steps + curve.decay(training.steps) > last:
        decay = f"the decay's {curve.decay(training.steps)} steps"
        if curve.decay_steps:
            decay = f"'training.schedule.decay_steps' = {curve.decay_steps}"
        yield f"{warmup} and {decay} together must be at most {end}"


def _mesh(mesh: MeshConfig) -> Iterator[str]:
    sizes = {"data": mesh.data, "fsdp": mesh.fsdp, "tensor": mesh.tensor}
    if list(sizes.values()).count(-1) > 1:
        yield "only one of 'mesh.data', 'mesh.fsdp', 'mesh.tensor' may be -1"
    for name, size in sizes.items():
        if size < 1 and size != -1:
            yield f"'mesh.{name}' = {size} must be at least 1, or -1 for all remaining devices"


def _mixture(data: DataConfig) -> Iterator[str]:
    is_mixture = any(corpus.weight > 0 for corpus in data.train)
    temperature = data.mix_temperature
    if 0 < temperature < 1:
        yield f"'data.mix_temperature' = {temperature} must be 0 (off) or at least 1"
    if temperature and is_mixture:
        yield (
            f"'data.mix_temperature' = {temperature} decides the corpora's shares, but they have a "
            "'weight' too: set only one"
        )
    for corpus in data.train:
        if is_mixture and not corpus.weight and not temperature:
            key = f"data.train.{corpus.name}.weight"
            yield f"'{key}' must be set too, as every corpus's in a mixture"
    if data.epoch_pairs and not (is_mixture or temperature):
        yield (
            "'data.epoch_pairs' is for mixtures, where every corpus has a weight, or with "
            "'data.mix_temperature'"
        )


def _validation_sets(config: ExperimentConfig) -> Iterator[str]:
    data, best_set = config.data, config.training.best_set
    names = [corpus.name for corpus in data.valid_sets]
    if names and data.valid != CorpusConfig(name="valid"):
        yield "'data.valid' is set, and 'data.valid_sets' too: set only one"
    if "valid" in names:
        yield "'data.valid_sets.valid': `valid` means all sets: rename it"
    if best_set and not names:
        yield f"'training.best_set' = '{best_set}' needs 'data.valid_sets'"
    elif best_set and best_set not in names:
        hint = nearest(best_set, names)
        yield f"'training.best_set' = '{best_set}' isn't in data.valid_sets; {hint}"


def _held_out_text(data: DataConfig) -> Iterator[str]:
    if not data.valid_fraction:
        return
    setting = f"'data.valid_fraction' = {data.valid_fraction}"
    if data.has_validation_text:
        named = "data.valid_sets" if data.valid_sets else "data.valid"
        yield f"{setting} holds out training text, but '{named}' is set too"
    if len(data.train) > 1:
        names = ", ".join(corpus.name for corpus in data.train)
        advice = "" if data.has_validation_text else ": set 'data.valid' instead"
        yield f"{setting} splits one corpus, but data.train has {names}{advice}"


def _batches(config: ExperimentConfig) -> Iterator[str]:
    batch = config.data.batch
    accumulation = config.training.optimizer.accumulation
    if accumulation > 0 and batch.multiple % accumulation:
        yield (
            f"'data.batch.multiple' = {batch.multiple} must be divisible by "
            f"'training.optimizer.accumulation' = {accumulation}"
        )
    match batch.layout:
        case Packed():
            if config.model.positions == "learned":
                yield (
                    "'data.batch.form' = 'pack' needs 'model.positions' = 'sinusoidal' or "
                    "'tensor2tensor'"
                )
        case Bucketed():
            if batch.src_length or batch.tgt_length:
                yield "'data.batch.src_length' and '.tgt_length' need 'data.batch.form' = 'pack'"
        case unknown:
            assert_never(unknown)
    if bool(batch.src_length) != bool(batch.tgt_length):
        yield "'data.batch.src_length' and '.tgt_length' go together: set both, or neither"


def _corpus(key: str, corpus: CorpusConfig) -> Iterator[str]:
    # A dot would split its settings' keys.
    if not re.fullmatch(r"\w[\w-]*", corpus.name):
        yield f"'{key}': a corpus's name may have letters, digits, '_' and '-'"
    yield from corpus.source.problems(key)


def unused_settings(config: ExperimentConfig, overrides: Iterable[str] = ()) -> Iterator[str]:
    """Settings that nothing reads, except those of a `kind` that `overrides` change."""
    overridden = {override.partition("=")[0] for override in overrides}
    for unused in (
        *_of_other_kind("training.schedule", RateCurve, config.training.schedule),
        *_of_other_kind("training.optimizer", UpdateRule, config.training.optimizer),
        *_of_other_corpora(config.data),
    ):
        kind_key = f"{unused.key.rpartition('.')[0]}.kind"
        if kind_key not in overridden or unused.key in overridden:
            yield unused.sentence

    model, training = config.model, config.training
    if model.position_scale != "auto" and model.positions != "learned":
        yield (
            f"'model.position_scale' = '{model.position_scale}' needs 'model.positions' = 'learned'"
        )
    adapters = training.adapters
    for name in ("scale", "matrices"):
        if not adapters.rank and getattr(adapters, name) != getattr(AdapterConfig, name):
            yield f"'training.adapters.{name}' needs 'training.adapters.rank' > 0"
    if training.patience > 0 and not training.validate_every:
        yield f"'training.patience' = {training.patience} needs 'training.validate_every' > 0"

    yield from contradicted(config.data)
    yield from _misplaced_in_corpora(config.data)


def _misplaced_in_corpora(data: DataConfig) -> Iterator[str]:
    for key, corpus in _corpora(data):
        if corpus.weight and not key.startswith("data.train."):
            yield f"'{key}.weight' = {corpus.weight}: only training corpora have weights"
        if corpus.pair_weights and not key.startswith("data.train."):
            yield f"'{key}.pair_weights': only training pairs have weights"
        if corpus.tag != " ".join(corpus.tags) or _BLANK_MARK in corpus.tag:
            yield f"'{key}.tag' = {corpus.tag!r} must be words with single blanks between them"
        for tag in corpus.tags:
            if tag in _WRITTEN_MARKS:
                yield f"'{key}.tag' = {corpus.tag!r} has {tag}, a mark of vocabularies"
    if any(corpus.name == "valid" for corpus in data.test):
        yield "'data.test.valid': `--set valid` means validation text: rename the test set"


class _Unused(NamedTuple):
    """A setting that another `kind` of its group reads."""

    key: str
    sentence: str


def _of_other_kind(
    key: str, union: Any, group: ScheduleConfig | OptimizerConfig
) -> Iterator[_Unused]:
    for name, readers in _read_by_others(union, group.kind).items():
        value = getattr(group, name)
        if value != getattr(type(group), name):
            yield _Unused(
                f"{key}.{name}",
                f"'{key}.{name}' = {value} has no effect with '{key}.kind' = '{group.kind}': leave "
                f"it out, or set the kind to {' or '.join(readers)}",
            )


def _of_other_corpora(data: DataConfig) -> Iterator[_Unused]:
    for key, corpus in _corpora(data):
        for name, kinds in _read_by_others(CorpusSource, corpus.kind).items():
            setting = getattr(corpus, name)
            if name == "split":
                # A plain name doesn't ask for part of a corpus.
                if setting not in GRAMMAR_SPLITS:
                    yield _Unused(
                        f"{key}.split",
                        f"'{key}.split' = {setting!r}: a corpus of kind '{corpus.kind}' is read "
                        "whole: set it to 'train'",
                    )
            elif setting != getattr(CorpusConfig, name):
                yield _Unused(
                    f"{key}.{name}",
                    f"'{key}.{name}' = {setting!r} has no effect on a corpus of kind "
                    f"'{corpus.kind}' (only on {' or '.join(map(repr, kinds))})",
                )


def _read_by_others(union: Any, kind: str) -> dict[str, list[str]]:
    """The settings that this kind doesn't read, and the kinds that do."""
    readers: dict[str, list[str]] = {}
    for member in get_args(union):
        for field in dataclasses.fields(member):
            readers.setdefault(field.name, []).append(member.kind)
    return {name: kinds for name, kinds in readers.items() if kind not in kinds}


def _corpora(data: DataConfig) -> Iterator[tuple[str, CorpusConfig]]:
    """Every corpus of a config by its dotted key."""
    for group, corpora in (("train", data.train), ("test", data.test)):
        for corpus in corpora:
            yield f"data.{group}.{corpus.name}", corpus
    yield from data.validation.items()


def uneven_heads(model: ModelConfig) -> str:
    """A note on heads that aren't d_model / h wide as in the paper (3.2.2); empty if they are."""
    widths = {"d_k": model.d_k, "d_v": model.d_v}
    heads = "1 head" if model.num_heads == 1 else f"{model.num_heads} heads"
    uneven = [
        f"{heads} of {name} = {width}: width {model.num_heads * width:,}"
        for name, width in widths.items()
        if model.num_heads * width != model.d_model
    ]
    if not uneven:
        return ""

    advice = f"model.d_model is {model.d_model:,}"
    if model.d_model % model.num_heads == 0:
        even = model.d_model // model.num_heads
        advice += f"; the paper's model would have model.d_k = model.d_v = {even}"
    return f"note: {', '.join(uneven)}, but {advice}"


def loss_chunk(training: TrainingConfig, platform: str) -> int:
    """`training.loss_chunk`, with -1 resolved for "cpu", "gpu" or "tpu"."""
    if training.loss_chunk >= 0:
        return training.loss_chunk
    # On a GPU, slices would add to the softmax matrix's gradient one by one.
    return 0 if platform == "gpu" else 4096


def expected_types(vocabulary: VocabularyConfig) -> tuple[int, int]:
    """Source and target types that `prepare` will make; for whole words at least the named ones."""
    if vocabulary.tgt_types == "words":
        return vocabulary.size, MARKS + len(vocabulary.tgt_words)
    return vocabulary.size, vocabulary.tgt_size or vocabulary.size
