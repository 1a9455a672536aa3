"""A run's settings: from a config file or another run, with changes."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from flaxformer_mt.api import config_of, say
from flaxformer_mt.config import (
    ConfigError,
    DataConfig,
    ExperimentConfig,
    check_resume,
    differences,
    freeze,
    thaw,
    to_dict,
)
from flaxformer_mt.config.languages import base_language
from flaxformer_mt.config.load import Draft, apply_overrides, built_in_names, refuse_unused
from flaxformer_mt.config.presets import TYPICAL
from flaxformer_mt.config.tokenizers import with_tokenizer
from flaxformer_mt.rundir.checkpoint_choice import list_steps
from flaxformer_mt.rundir.layout import RunDirectory, has_record
from flaxformer_mt.rundir.paths import as_path

if TYPE_CHECKING:
    from flaxformer_mt.parallel.processes import Processes

Overrides: TypeAlias = Mapping[str, Any] | Sequence[str]


def load_config(
    spec: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None
) -> ExperimentConfig:
    """The settings of an experiment, to train with.

    `spec` is a built-in config (`files`, `files:base`), a config file, or a run directory with its
    recorded settings. `overrides` changes some, by the dotted names that `config --explain` lists:
    `{"training.steps": 500, "data.train.mine.src": "train.en"}`. `files` takes its sizes from the
    number of its corpus's pairs, if one is named.

    Raises ConfigError, which names the setting and the nearest valid name, RunDirectoryError, and
    what reading a corpus raises.
    """
    run = RunDirectory(as_path(spec))
    if str(spec) not in built_in_names() and has_record(run):
        return with_overrides(run, config_of(run), overrides or {})
    return sized_config(os.fspath(spec), overrides or {})


def sized_config(spec: str, overrides: Overrides) -> ExperimentConfig:
    """As `config.read_config`, with sizes settled by the corpus. Raises CorpusError too."""
    return sized_for_text(Draft.of(spec, overrides))


def sized_for_text(draft: Draft, recorded: ExperimentConfig | None = None) -> ExperimentConfig:
    """The draft's settings, with sizes for its text unless a run has `recorded` them.

    Says which sizes it chose. Raises ConfigError, CorpusError.
    """
    sized_by: list[str] = []

    def count(data: DataConfig) -> int:
        from flaxformer_mt.data.prepare.sample import count_pairs

        pairs = count_pairs(data)
        remark = ""
        fetched = [corpus.name for corpus in data.train if corpus.source.is_fetched]
        if fetched:
            pairs = max(pairs, TYPICAL)
            remark = f"; data.train.{fetched[0]} isn't counted"
        sized_by.append(f"sizes for {pairs:,} pairs{remark}")
        return pairs

    config = draft.settled(recorded=recorded, count=count, say=say)
    if config.sizes == "corpus":
        say(f"sizes for {TYPICAL:,} pairs, since no corpus is given: set data.train=SRC,TGT")
    elif sized_by:
        model, training = config.model, config.training
        layers = f"{model.encoder_layers} + {model.decoder_layers} layers of width {model.d_model}"
        steps = f"{training.steps:,} steps of {config.data.batch.tokens:,} tokens"
        types = f"{config.data.vocabulary.size:,} types"
        say(f"{sized_by[0]}: {layers}, {types}, {steps}")
    return config


def with_overrides(
    run: RunDirectory, recorded: ExperimentConfig, overrides: Overrides
) -> ExperimentConfig:
    """A run's recorded settings with overrides. Raises ConfigError for one that has no effect."""
    if not overrides:
        return recorded
    thawed = thaw(recorded)
    apply_overrides(thawed, overrides)
    config = freeze(thawed, str(run.config_file))
    refuse_unused(config, overrides, str(run), recorded=recorded)
    return config


@dataclasses.dataclass(frozen=True)
class SettingsRequest:
    """The settings that a command asks for: of the config file `spec`, of the existing run, or of
    the run that it starts from.

    The config file runs once, and a run's config.json is read once, when a setting is first needed.
    What fails is tried again, so that a later call reports it.
    """

    run: RunDirectory
    spec: str | None
    overrides: Overrides
    init_from: str | None = None

    @property
    def deterministic(self) -> bool:
        """`training.deterministic`, without reading text. Raises ConfigError, RunDirectoryError."""
        if self._draft is not None:
            return bool(self._draft.config.training.deterministic)
        return self._of_run.training.deterministic

    def settled(self) -> ExperimentConfig:
        """All settings. Raises ConfigError, RunDirectoryError, CorpusError."""
        recorded = self._recorded  # first: a run that can't be read says so before a config file
        if self._draft is not None:
            return sized_for_text(self._draft, recorded)
        return self._of_run

    @functools.cached_property
    def _recorded(self) -> ExperimentConfig | None:
        return config_of(self.run) if has_record(self.run) else None

    @functools.cached_property
    def _draft(self) -> Draft | None:
        return None if self.spec is None else Draft.of(self.spec, self.overrides)

    @functools.cached_property
    def _of_run(self) -> ExperimentConfig:
        """The settings without a config file."""
        if self._recorded is not None:
            return with_overrides(self.run, self._recorded, self.overrides)
        if self.init_from is None:
            raise ConfigError(f"{self.run}: no run here yet: give --config FILE[:VARIANT]")
        source = RunDirectory(as_path(self.init_from))
        recorded = config_of(source)
        return with_own_tokenizer(with_overrides(source, recorded, self.overrides), recorded)


def settled(
    run: RunDirectory, spec: str | None, overrides: Overrides, init_from: str | None = None
) -> ExperimentConfig:
    """The settings that a command asks for, as `SettingsRequest` finds them."""
    return SettingsRequest(run, spec, overrides, init_from).settled()


def settled_by_first(
    processes: Processes, settle: Callable[[], ExperimentConfig], origin: str
) -> ExperimentConfig:
    """What the first process settles, in all of them. `origin` is for messages.

    What others read doesn't count: a run could change a moment later, and not all may be able to
    read the text. Raises what `settle` raises in the first process, ProcessError in the others.
    """
    if processes.count == 1:
        return settle()
    return freeze(processes.first(lambda: to_dict(settle())), origin)


def with_own_tokenizer(new: ExperimentConfig, source: ExperimentConfig) -> ExperimentConfig:
    """The settings of a run that starts from `source`'s: another language is tokenised anew."""
    if new.data.bleu_tokenizer != source.data.bleu_tokenizer:
        return new
    if base_language(new.data.tgt_lang) == base_language(source.data.tgt_lang):
        return new
    return dataclasses.replace(new, data=dataclasses.replace(new.data, bleu_tokenizer="auto"))


def created(config: ExperimentConfig) -> ExperimentConfig:
    """The config with the settings that a run chooses when it is created and then keeps."""
    return dataclasses.replace(config, data=with_tokenizer(config.data))


def continued(
    run: RunDirectory, config: ExperimentConfig
) -> tuple[ExperimentConfig, dict[str, tuple[Any, Any]]]:
    """The settings that the run continues with, and how they differ from the recorded ones.

    Before the first checkpoint any change is allowed. Raises ConfigError for a change that isn't.
    """
    recorded = config_of(run)
    model = config.model
    if model.dtype == "auto":
        model = dataclasses.replace(model, dtype=recorded.model.dtype)
    if model.position_scale == "one" and recorded.model.position_scale == "auto":
        # A run from before this setting: "auto" stands for the same.
        model = dataclasses.replace(model, position_scale="auto")
    config = dataclasses.replace(config, model=model)
    if config.data.bleu_tokenizer == "auto":
        data = dataclasses.replace(config.data, bleu_tokenizer=recorded.data.bleu_tokenizer)
        config = dataclasses.replace(config, data=data)
    if list_steps(run.checkpoints):
        return config, check_resume(recorded, config, str(run))
    changed = differences(recorded, config)
    return created(with_own_tokenizer(config, recorded)), changed
