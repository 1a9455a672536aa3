"""A run's settings: from a config file or another run, with changes."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flaxformer_mt import config as configs
from flaxformer_mt.api import config_of, say
from flaxformer_mt.config import (
    ConfigError,
    DataConfig,
    ExperimentConfig,
    check_resume,
    differences,
    freeze,
    thaw,
)
from flaxformer_mt.config.languages import base_language
from flaxformer_mt.config.load import apply_overrides, built_in_names, refuse_unused
from flaxformer_mt.config.presets import TYPICAL
from flaxformer_mt.config.tokenizers import with_tokenizer
from flaxformer_mt.rundir.checkpoint_choice import list_steps
from flaxformer_mt.rundir.layout import RunDirectory, has_record, open_run
from flaxformer_mt.rundir.paths import as_path

Overrides = Mapping[str, Any] | Sequence[str]


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
        return changed(run, overrides or {})
    return sized_config(os.fspath(spec), overrides or {})


def sized_config(
    spec: str, overrides: Overrides, *, recorded: ExperimentConfig | None = None
) -> ExperimentConfig:
    """As `config.load_config`, with sizes settled by the corpus. Raises CorpusError too."""
    sized_by: list[str] = []

    def count(data: DataConfig) -> int:
        from flaxformer_mt.data.corpus.source import is_fetched
        from flaxformer_mt.data.prepare.sample import count_pairs

        pairs = count_pairs(data)
        remark = ""
        fetched = [corpus.name for corpus in data.train if is_fetched(corpus)]
        if fetched:
            pairs = max(pairs, TYPICAL)
            remark = f"; data.train.{fetched[0]} isn't counted"
        sized_by.append(f"sizes for {pairs:,} pairs{remark}")
        return pairs

    config = configs.load_config(spec, overrides, recorded=recorded, count=count, say=say)
    if config.sizes == "corpus":
        say(f"sizes for {TYPICAL:,} pairs, since no corpus is given: set data.train=SRC,TGT")
    elif sized_by:
        model, training = config.model, config.training
        layers = f"{model.encoder_layers} + {model.decoder_layers} layers of width {model.d_model}"
        steps = f"{training.steps:,} steps of {config.data.batch.tokens:,} tokens"
        types = f"{config.data.vocabulary.size:,} types"
        say(f"{sized_by[0]}: {layers}, {types}, {steps}")
    return config


def changed(run: RunDirectory, overrides: Overrides) -> ExperimentConfig:
    """The recorded config with overrides. Raises ConfigError for one that has no effect."""
    recorded = config_of(run)
    thawed = thaw(recorded)
    apply_overrides(thawed, overrides)
    config = freeze(thawed, str(run.config_file))
    refuse_unused(config, overrides, str(run), recorded=recorded)
    return config


def settled(
    run: RunDirectory,
    spec: str | None,
    overrides: Overrides,
    init_from: str | None = None,
    load: Callable[..., ExperimentConfig] = sized_config,
) -> ExperimentConfig:
    """The settings that a command asks for: of the config file, of the existing run, or of the run
    that it starts from."""
    if has_record(run):
        if spec is None:
            return changed(run, overrides)
        return load(spec, overrides, recorded=config_of(run))
    if spec is not None:
        return load(spec, overrides)
    if init_from is None:
        raise ConfigError(f"{run}: no run here yet: give --config FILE[:VARIANT]")
    source = open_run(init_from)
    return with_own_tokenizer(changed(source, overrides), config_of(source))


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
