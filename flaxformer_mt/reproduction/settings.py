"""The options of `reproduce` besides rows: result names, and changes to configs."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from flaxformer_mt.config import (
    CorpusConfig,
    DataConfig,
    ExperimentConfig,
    ScheduleConfig,
    read_config,
)
from flaxformer_mt.config.batch_shapes import TrainingWork, decided_shapes
from flaxformer_mt.config.kinds import PaperCurve
from flaxformer_mt.config.load import Draft
from flaxformer_mt.config.presets import TFDS_SETS, TFDS_SPLITS
from flaxformer_mt.data.corpus.paths import is_remote
from flaxformer_mt.reproduction.paper import RowError
from flaxformer_mt.reproduction.result_file import ABSOLUTE_PATH, NAME

# What `--scale` leaves at least. Adam's second moment has a decay of 0.98: it takes 35 steps until
# half of it comes from measured gradients, and the full learning rate before that can make training
# diverge. But a warm-up isn't training at that rate: it may take an eighth of the steps.
FEWEST_WARMUP, SHARES_OF_WARMUP = 40, 8
# A checkpoint delays training by about a step on a CPU (`_SAVING` in api/speed.py), so those of
# every tenth cost a tenth.
FEWEST_BETWEEN = 10
RULE = f"""\
S times the steps, the warm-up (with the same peak learning rate) and the steps between checkpoints
(averaging as many); the first S x 4.5 million training pairs (EN-FR: 36 million; parsing: 40,000,
and 17 million parsed automatically), so that each is seen as often as in the paper. Validation runs
about ten times, without translating, and decides nothing. Reports, checkpoints and validations are
at least {FEWEST_BETWEEN} steps apart, or a tenth of all if that is less (fewer checkpoints are
averaged, of the same last part); the warm-up is at least {FEWEST_WARMUP} steps, or an eighth of all
if that is less. Batch, model, vocabulary and search stay the same."""
PAPER = "paper"  # the paper's own text, in names of files
Text = Literal["files", "tfds"]  # the paper's text as files, or as TensorFlow Datasets has it
TEXTS: tuple[Text, ...] = get_args(Text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """Text to run the rows on instead of the paper's: source and target file of each part."""

    name: str
    train: tuple[str, str]
    valid: tuple[str, str]
    test: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise RowError(f"--corpus {self.name}: must match {NAME.pattern}")
        # `paper_full` names the paper's text at full length.
        if self.name == PAPER or self.name.startswith(f"{PAPER}_"):
            raise RowError(f"--corpus {self.name}: 'paper' is reserved: choose another name")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReproductionSettings:
    """The settings of a call besides the row. `overrides` are `a.b=value`, of the row's base."""

    scale: float = 1.0
    seed: int = 1
    folder: str | None = None
    corpus: Corpus | None = None
    overrides: tuple[str, ...] = ()
    text: Text = "files"

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise RowError(f"--scale {self.scale:g}: must be above 0 and at most 1")
        if self.text != "files" and self.corpus is not None:
            raise RowError(f"--text {self.text} is the paper's text: leave it out with --corpus")
        flags = {"data.folder": "--folder", "training.seed": "--seeds"}
        for override in self.overrides:
            flag = flags.get(override.partition("=")[0])
            if flag is not None:
                raise RowError(f"--config.{override}: use {flag} instead")
        for word in shlex.split(self.command("TABLE")):
            if ABSOLUTE_PATH.search(word):
                raise RowError(
                    f"{word}: results record their settings, which must not name this machine's "
                    "paths: give --folder, and file names within it"
                )

    @property
    def extent(self) -> str:
        """Text and scale in file names: `paper_full`, `toy_scale_0_05`."""
        text = self.corpus.name if self.corpus else PAPER
        text += "" if self.text == "files" else f"_{self.text}"
        if self.scale == 1:
            return f"{text}_full"
        scale = f"{self.scale!r}".replace(".", "_").replace("-", "m")
        return f"{text}_scale_{scale}"

    def command(self, table: str, *, only: Sequence[str] = (), seeds: Sequence[int] = ()) -> str:
        """The command for a table's rows (or `only` some), with FOLDER for the text's place."""
        words = ["flaxformer-mt", "reproduce", table]
        words += ["--only", *only] if only else []
        words += ["--scale", repr(self.scale)] if self.scale != 1 else []
        words += ["--seeds", *map(str, seeds or (self.seed,))]
        words += ["--text", self.text] if self.text != "files" else []
        words += ["--folder", "FOLDER"] if self.folder is not None else []
        corpus = self.corpus
        if corpus is not None:
            words += ["--corpus", corpus.name, "--train", *corpus.train, "--valid", *corpus.valid]
            words += ["--test", *corpus.test] if corpus.test else []
        words += [f"--config.{override}" for override in self.overrides]
        return shlex.join(words)

    def to_json(self) -> str:
        """JSON for `from_json`, without the folder. Like older results it leaves out `text` if that
        is "files"."""
        content = dataclasses.asdict(self)
        del content["folder"]
        if self.text == "files":
            del content["text"]
        return json.dumps(content)

    @classmethod
    def from_json(cls, text: str) -> ReproductionSettings:
        """With the folder FOLDER. Raises RowError."""
        try:
            content = {"text": "files", "folder": "FOLDER"} | json.loads(text)
            if content["text"] not in TEXTS:
                raise ValueError(f"no text {content['text']!r}")
            corpus = content["corpus"]
            if corpus is not None:
                files = (corpus[part] for part in ("train", "valid", "test"))
                train, valid, test = (pair and tuple(pair) for pair in files)
                content["corpus"] = Corpus(name=corpus["name"], train=train, valid=valid, test=test)
            content["overrides"] = tuple(content["overrides"])
            # A later version may have written more.
            return cls(**{field.name: content[field.name] for field in dataclasses.fields(cls)})
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise RowError(f"its details are incomplete: {error}") from error


def load_on(text: Text, spec: str, overrides: Sequence[str] = ()) -> ExperimentConfig:
    """The config `spec` on that form of the paper's text, then overrides. Raises RowError,
    ConfigError."""
    if text == "tfds":
        overrides = [*_from_tfds(spec, paper_config(spec).data), *overrides]
    return read_config(spec, overrides) if overrides else paper_config(spec)


paper_config = functools.cache(read_config)  # raises ConfigError


def base_of(spec: str, settings: ReproductionSettings) -> ExperimentConfig:
    """The config that rows change, before scaling. Raises RowError, ConfigError.

    If an override leaves the number of batch shapes to the length of the training (0), it is that
    of the scaled base: rows of one ladder, of whatever size and length, have the same batches.
    """
    base = load_on(settings.text, spec, settings.overrides)
    if Draft.of(spec, settings.overrides).config.data.batch.max_shapes > 0:
        return base
    shapes = decided_shapes(TrainingWork.of(scaled(base, settings.scale)))
    batch = dataclasses.replace(base.data.batch, max_shapes=shapes)
    return dataclasses.replace(base, data=dataclasses.replace(base.data, batch=batch))


def placed(text: Text, data: DataConfig, folder: str) -> DataConfig:
    """`data` with its files, or prepared sets of `tfds` without another place, in `folder`."""
    if text == "files":
        return dataclasses.replace(data, folder=folder)
    # A relative one would start from `data.folder`.
    place = folder if is_remote(folder) else str(Path(folder).absolute())

    def with_place(corpus: CorpusConfig) -> CorpusConfig:
        return dataclasses.replace(corpus, data_dir=corpus.data_dir or place)

    return dataclasses.replace(
        data,
        train=tuple(map(with_place, data.train)),
        valid=with_place(data.valid),
        valid_sets=tuple(map(with_place, data.valid_sets)),
        test=tuple(map(with_place, data.test)),
    )


def _from_tfds(spec: str, data: DataConfig) -> Iterator[str]:
    corpora = {f"data.train.{corpus.name}": corpus for corpus in data.train}
    corpora |= data.validation
    corpora |= {f"data.test.{corpus.name}": corpus for corpus in data.test}
    for key, corpus in corpora.items():
        path = TFDS_SETS.get(data.tgt_lang)
        split = TFDS_SPLITS.get(corpus.src.partition(".")[0])
        if path is None or split is None:
            raise RowError(f"{spec}: TensorFlow Datasets lacks its {key}: leave out --text")
        yield f"{key}.kind=tfds"
        yield f"{key}.path={path}"
        yield f"{key}.split={split}"
        yield f"{key}.src={data.src_lang}"
        yield f"{key}.tgt={data.tgt_lang}"


def scaled(config: ExperimentConfig, scale: float) -> ExperimentConfig:
    """The share `scale`, in (0, 1], of an experiment: everything counted in steps shrinks alike.

    So the learning rate and the averaged part of training are the same at the same share of it,
    unless a floor holds: FEWEST_WARMUP, FEWEST_BETWEEN.
    """
    if scale == 1:
        return config
    training = config.training
    steps = share_of(training.steps, scale)
    fewest = min(FEWEST_WARMUP, steps // SHARES_OF_WARMUP)
    save_every = _interval(share_of(training.save_every, scale), steps)
    averaged = scale * training.save_every * training.keep_for_average  # steps
    training = dataclasses.replace(
        training,
        steps=steps,
        schedule=scaled_schedule(training.schedule, scale, fewest=fewest),
        save_every=save_every,
        keep_for_average=_checkpoints_in(averaged, training.keep_for_average, steps, save_every),
        log_every=_interval(share_of(training.log_every, scale), steps),
        validate_every=_interval(round(steps / 10), steps),
        validate_bleu=False,
        best_metric="loss",
    )
    return dataclasses.replace(config, training=training)


def _interval(shrunk: int, steps: int) -> int:
    """Steps between two reports, checkpoints or validations of a training of so many."""
    return max(1, shrunk, min(FEWEST_BETWEEN, steps // 10))


def _checkpoints_in(averaged: float, at_most: int, steps: int, save_every: int) -> int:
    """How many of a scaled training's checkpoints lie in its last `averaged` steps: as many as at
    full scale, if intervals could shrink as much; 0 if none are averaged."""
    if at_most == 0:
        return 0
    within = min(steps // save_every, round(averaged / save_every))
    return min(at_most, max(1, within))


def validating_at_checkpoints(config: ExperimentConfig) -> ExperimentConfig:
    """Validation as often as before, but at checkpoints: it saves one, and the last 5 of more
    frequent ones would cover less than the paper's, which are ten minutes apart."""
    training = config.training
    intervals = max(1, round(training.validate_every / training.save_every))
    validate_every = training.save_every * intervals if training.validate_every else 0
    training = dataclasses.replace(training, validate_every=validate_every)
    return dataclasses.replace(config, training=training)


def scaled_schedule(schedule: ScheduleConfig, scale: float, *, fewest: int = 1) -> ScheduleConfig:
    """The same curve over a share S of training: with S times the warm-up and sqrt(S) times the
    factor, step S * t has the learning rate of step t.

    A warm-up of fewer than `fewest` steps is that long instead (or as long as it was), with the
    same peak.
    """
    warmup = share_of(schedule.warmup_steps, scale)
    warmup = max(warmup, min(fewest, schedule.warmup_steps))
    shorter = dataclasses.replace(
        schedule,
        warmup_steps=warmup,
        total_steps=schedule.total_steps and share_of(schedule.total_steps, scale),
        decay_steps=schedule.decay_steps and share_of(schedule.decay_steps, scale),
    )
    if not isinstance(schedule.curve, PaperCurve):
        return shorter
    factor = schedule.factor * math.sqrt(warmup / schedule.warmup_steps)
    return dataclasses.replace(shorter, factor=factor)


def share_of(count: int, scale: float) -> int:
    return max(1, round(count * scale))
