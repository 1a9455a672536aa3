"""A run's settings: from a config file or another run, with changes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from flaxformer_mt.api import config_of, say
from flaxformer_mt.config import (
    ConfigError,
    DataConfig,
    ExperimentConfig,
    check_resume,
    differences,
    flatten,
    freeze,
    thaw,
    to_dict,
)
from flaxformer_mt.config.languages import base_language
from flaxformer_mt.config.load import (
    Draft,
    apply_overrides,
    built_in_names,
    refuse_unused,
    share_to_hold_out,
    with_minutes_of,
)
from flaxformer_mt.config.schema import AdapterConfig
from flaxformer_mt.config.tokenizers import with_recorded_tokenizers, with_tokenizer
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.checkpoint_choice import list_steps
from flaxformer_mt.rundir.layout import RunDirectory, has_record
from flaxformer_mt.rundir.paths import as_path

if TYPE_CHECKING:
    from flaxformer_mt.api.speed import Pacing
    from flaxformer_mt.config.sizes import TextSize
    from flaxformer_mt.parallel.processes import Processes

Overrides: TypeAlias = Mapping[str, Any] | Sequence[str]
_ROOM = 1.5  # times the steps that are expected in `training.minutes`


def load_config(
    spec: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None
) -> ExperimentConfig:
    """The settings of an experiment, to train with.

    `spec` is a built-in config (`files`, `files:base`), a config file, or a run directory with its
    recorded settings. `overrides` changes some, by the dotted names that `config --explain` lists:
    `{"training.steps": 500, "data.train.mine.src": "train.en"}`. `files` takes its sizes from the
    amount of its corpus's text, if one is named.

    Raises ConfigError, which names the setting and the nearest valid name, RunDirectoryError, and
    what reading a corpus raises.
    """
    from flaxformer_mt.config.batch_shapes import with_decided_shapes

    run = RunDirectory(as_path(spec))
    if str(spec) not in built_in_names() and has_record(run):
        recorded = config_of(run)
        config = with_overrides(run, recorded, overrides or {})
        return with_decided_shapes(config, recorded=recorded)
    return sized_config(os.fspath(spec), overrides or {})


def sized_config(spec: str, overrides: Overrides, *, paced: bool = True) -> ExperimentConfig:
    """As `config.read_config`, with sizes settled by the corpus. Raises CorpusError too.

    Unless it is `paced`, no device is used and `training.minutes` decides nothing.
    """
    return sized_by_text(Draft.of(spec, overrides), paced=paced).config


@dataclasses.dataclass(frozen=True)
class MeasuredText:
    """How much text the training corpora have."""

    size: TextSize
    remark: str = ""  # on a corpus that isn't counted


@dataclasses.dataclass(frozen=True)
class SizedConfig:
    """Settled settings, and what was measured to settle them."""

    config: ExperimentConfig
    text: MeasuredText | None = None  # None: the config has sizes of its own, or names no text
    pacing: Pacing | None = None  # of this machine, if `training.minutes` chose the steps
    expected_steps: int | None = None  # in the minutes; the training may do some more


def sized_by_text(draft: Draft, *, paced: bool = True) -> SizedConfig:
    """A new run's settings, with sizes for its text, and steps for its minutes if it is `paced`.

    Says which sizes it chose. Raises ConfigError, CorpusError.
    """
    if not draft.needs_text:
        sized = SizedConfig(draft.settled(say=say))
    else:
        text = _measured(draft.for_typical_text.data)
        pacing, steps = None, None
        if paced and (minutes := draft.config.training.minutes):
            text, pacing = _affordable(draft, text, minutes)
            steps = pacing.steps_in(minutes)
            say(pacing.describe(minutes))
        config = draft.settled(text=text.size, steps=steps, say=say)
        if steps is not None:
            config = _with_room_for_more(config, steps)
        sized = SizedConfig(config, text, pacing, expected_steps=steps)

    for line in _described(sized):
        say(line)
    return sized


def _with_room_for_more(config: ExperimentConfig, expected_steps: int) -> ExperimentConfig:
    """The config with more steps than are expected in `training.minutes`, which end the training:
    a machine may be faster than when it was measured."""
    steps = round(_ROOM * expected_steps)
    return dataclasses.replace(config, training=dataclasses.replace(config.training, steps=steps))


def _measured(data: DataConfig) -> MeasuredText:
    """Counts the training text. Raises CorpusError."""
    from flaxformer_mt.config.sizes import TYPICAL
    from flaxformer_mt.data.prepare.text_size import measured_text

    size = measured_text(data)
    fetched = [corpus.name for corpus in data.train if corpus.source.is_fetched]
    if not fetched:
        return MeasuredText(size)
    size = TYPICAL if size.tokens < TYPICAL.tokens else size
    return MeasuredText(size, remark=f"; data.train.{fetched[0]} isn't counted")


def _affordable(draft: Draft, text: MeasuredText, minutes: float) -> tuple[MeasuredText, Pacing]:
    """The text with the tokens for whose sizes there is time, and the pace at these sizes.

    A width that the user sets stays, and all other sizes with it. Raises ConfigError, CorpusError.
    """
    pacing = _measured_pacing(draft, text.size)
    affordable = pacing.affordable_tokens(minutes)
    if affordable >= text.size.tokens or "model.d_model" not in draft.free:
        return text, pacing

    size = dataclasses.replace(text.size, affordable=affordable)
    again = _measured_pacing(draft, size)
    pacing = dataclasses.replace(again, spent=pacing.spent + again.spent)
    return dataclasses.replace(text, size=size), pacing


def _measured_pacing(draft: Draft, text: TextSize) -> Pacing:
    """How fast this machine trains on the text. Raises ConfigError, CorpusError."""
    from flaxformer_mt.api.speed import measured_pacing  # imports JAX

    config = draft.settled(text=text)
    return measured_pacing(config, text, _valid_size(config.data, text), draft.given)


def _valid_size(data: DataConfig, text: TextSize) -> TextSize:
    """The size of what a training on `text` validates on. Raises CorpusError."""
    from flaxformer_mt.config.sizes import TextSize
    from flaxformer_mt.data.prepare.text_size import measured_text

    if share := data.valid_fraction:
        return TextSize(round(share * text.tokens), pairs=round(share * text.pairs))
    if not data.has_validation_text:
        return TextSize(0)  # `train` fails, but `config` can show its settings
    return measured_text(data, "valid")


def _described(sized: SizedConfig) -> Iterator[str]:
    """A line on the sizes, if text decides them."""
    from flaxformer_mt.config.sizes import TYPICAL

    config = sized.config
    if config.sizes == "corpus":
        yield (f"sizes for {TYPICAL.describe()}, since no corpus is given: set data.train=SRC,TGT")
    elif sized.text is not None:
        model, training = config.model, config.training
        layers = f"{model.encoder_layers} + {model.decoder_layers} layers"
        steps = f"{training.steps:,}"
        if sized.expected_steps is not None:
            steps = f"about {sized.expected_steps:,}"
        yield (
            f"sizes for {sized.text.size.describe()}{sized.text.remark}: {layers} of width "
            f"{model.d_model}, {config.data.vocabulary.size:,} types, {steps} steps "
            f"of {config.data.batch.tokens:,} tokens"
        )


def explained_sizes(spec: str, overrides: Overrides, note: Callable[[str], None]) -> Iterator[str]:
    """A line on each setting that the text decides, with its value and why.

    `note` gets sentences on the text as a whole. Raises ConfigError, also for a config that leaves
    no size to the text, and CorpusError.
    """
    from flaxformer_mt.config.sizes import TYPICAL, as_line, remarks, sizes

    draft = Draft.of(spec, overrides)
    if draft.config.sizes != "corpus":
        raise ConfigError(
            f"{spec}: leaves no size to the text (sizes=corpus), so there is nothing to explain: "
            "leave out --config, or --explain"
        )
    sized = sized_by_text(draft)
    config, pacing = sized.config, sized.pacing
    text = TYPICAL if sized.text is None else sized.text.size
    for remark in remarks(text):
        note(remark)
    if pacing is None and config.training.minutes:
        note("training.minutes decides the steps once a corpus is given: set data.train=SRC,TGT")
    elif pacing is None:
        note("no size depends on the machine or its GPU; with training.minutes=20 the steps would")
    elif text.affordable:
        note(
            f"all sizes but the dropout are as for {text.affordable:,} tokens: training.minutes "
            "leaves this machine too few steps for a larger model"
        )
    else:
        note("only the steps, and what hangs on them, depend on the machine or its GPU")

    values = flatten(config)
    languages = config.data.src_lang, config.data.tgt_lang
    for size in sizes(text, languages, steps=_deciding_steps(sized, draft), given=draft.given):
        is_free = size.key in draft.free
        reason = size.reason if is_free else "set by the config's file or an override"
        yield as_line(size._replace(value=values[size.key], reason=reason))


def _deciding_steps(sized: SizedConfig, draft: Draft) -> int | None:
    """The steps that decide other sizes: those expected in the minutes or given; None: by text."""
    if sized.pacing is None and "training.steps" in draft.free:
        return None
    return sized.expected_steps or sized.config.training.steps


def with_overrides(
    run: RunDirectory, recorded: ExperimentConfig, overrides: Overrides
) -> ExperimentConfig:
    """A run's recorded settings with overrides. Raises ConfigError for one that has no effect."""
    if not overrides:
        return recorded
    thawed = thaw(recorded)
    apply_overrides(thawed, overrides)
    config = freeze(thawed, str(run.config_file))
    config = with_minutes_of(recorded, config, str(run), overrides)
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

    def check_file(self) -> None:
        """Raises ConfigError if the config file, if there is one, or a change of it is wrong; of a
        run that can't be read only `settled` says so."""
        with contextlib.suppress(RunDirectoryError):
            _ = self._recorded, self._draft

    @property
    def deterministic(self) -> bool:
        """`training.deterministic`, without reading text. Raises ConfigError, RunDirectoryError."""
        if self._draft is not None:
            return bool(self._draft.config.training.deterministic)
        return self._of_run.training.deterministic

    def settled(self) -> ExperimentConfig:
        """All settings. Raises ConfigError, RunDirectoryError, CorpusError."""
        recorded = self._recorded  # first: a run that can't be read says so before a config file
        if self._draft is None:
            return self._of_run
        if recorded is not None:
            return self._draft.settled(recorded=recorded)
        return sized_by_text(self._draft).config

    @functools.cached_property
    def _recorded(self) -> ExperimentConfig | None:
        return config_of(self.run) if has_record(self.run) else None

    @functools.cached_property
    def _draft(self) -> Draft | None:
        return None if self.spec is None else Draft.of(self.spec, self.overrides)

    @functools.cached_property
    def _of_run(self) -> ExperimentConfig:
        """The settings without a config file."""
        from flaxformer_mt.config.batch_shapes import with_decided_shapes

        if self._recorded is not None:
            config = with_overrides(self.run, self._recorded, self.overrides)
            return with_decided_shapes(config, recorded=self._recorded)
        if self.init_from is None:
            raise ConfigError(f"{self.run}: no run here yet: give --config FILE[:VARIANT]")
        source = RunDirectory(as_path(self.init_from))
        recorded = _taken_over(config_of(source))
        config = with_own_tokenizer(with_overrides(source, recorded, self.overrides), recorded)
        named = {override.partition("=")[0] for override in self.overrides}
        if config.data.train != recorded.data.train and "data.valid_fraction" not in named:
            config = _with_own_share(config)
        is_given = "data.batch.max_shapes" in named
        return with_decided_shapes(config, source=None if is_given else recorded)


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


def _taken_over(config: ExperimentConfig) -> ExperimentConfig:
    """The settings that another run takes over. The steps are as many as the minutes were expected
    to have room for; how the run itself began doesn't matter."""
    steps = config.training.steps
    if config.training.minutes:
        steps = max(1, round(steps / _ROOM))
    training = dataclasses.replace(
        config.training,
        minutes=0.0,
        steps=steps,
        keep_moments=False,
        adapters=AdapterConfig(),
    )
    return dataclasses.replace(config, training=training)


def _with_own_share(config: ExperimentConfig) -> ExperimentConfig:
    """The settings with as much text held out for validation, if any is, as this corpus allows.

    Raises CorpusError.
    """
    if not config.data.valid_fraction:
        return config
    from flaxformer_mt.data.prepare.text_size import measured_text

    without_share = dataclasses.replace(config.data, valid_fraction=0.0)
    share = share_to_hold_out(measured_text(without_share).pairs)
    say(f"{share:.1%} of the training text is held out for validation (data.valid_fraction)")
    return dataclasses.replace(config, data=dataclasses.replace(config.data, valid_fraction=share))


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
    config = dataclasses.replace(config, data=with_recorded_tokenizers(config.data, recorded.data))
    if list_steps(run.checkpoints):
        return config, check_resume(recorded, config, str(run))
    changed = differences(recorded, config)
    return created(with_own_tokenizer(config, recorded)), changed
