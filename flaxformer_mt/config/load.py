"""Turns config files and `--config.a.b=value` overrides into a frozen `ExperimentConfig`."""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import difflib
import functools
import os
import re
import runpy
import traceback
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ml_collections import ConfigDict

from flaxformer_mt.config.consistency import unused_settings
from flaxformer_mt.config.freeze import (
    ConfigError,
    check_value,
    corpus,
    default_config,
    default_of,
    field_types,
    fill,
    flatten,
    freeze,
    is_corpora,
)
from flaxformer_mt.config.kinds import CorpusKind, CorpusSource
from flaxformer_mt.config.languages import assumed
from flaxformer_mt.config.schema import CorpusConfig, ExperimentConfig
from flaxformer_mt.errors import nearest

if TYPE_CHECKING:
    from flaxformer_mt.config.sizes import TextSize

# Pairs that validate where no text is given for it: as many as published sets have, at most this
# share of a corpus. Where pairs aren't counted, the last is the share.
_HELD_OUT, _MOST_HELD_OUT, _SHARE_HELD_OUT = 1000, 0.1, 0.01
# In a wheel the config files lie inside the package; in a checkout beside it.
BUILT_IN = [parent / "configs" for parent in Path(__file__).parents[1:3]]


def built_in_names() -> list[str]:
    """Names of the package's config files."""
    names = {path.stem for folder in BUILT_IN for path in folder.glob("*.py")}
    return sorted(names - {"__init__"})


def find_config(name: str) -> Path:
    """The file of a path or of a built-in name: `quickstart`, `configs/quickstart.py`."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if len(path.parts) == 1 or path.parts[:-1] == ("configs",):
        for folder in BUILT_IN:
            candidate = folder / f"{path.stem}.py"
            if candidate.is_file():
                return candidate
    advice = "check the path" if path.suffix else nearest(path.stem, built_in_names())
    raise ConfigError(f"{name}: no such config file; {advice}")


def read_config(
    spec: str,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    recorded: ExperimentConfig | None = None,
    text: TextSize | None = None,
    steps: int | None = None,
    say: Callable[[str], None] | None = None,
) -> ExperimentConfig:
    """The frozen config of `FILE[:variant]` with overrides, `a.b=value` or `{"a.b": value}`.

    `recorded` is the config of a run to resume; settings that it has may be unused. With `sizes` =
    "corpus", the settings of `sized` that neither file nor overrides set are as recorded, or chosen
    for `text`, with `steps` in place of the text's number, else for `sizes.TYPICAL`. `say` gets a
    sentence if the text's languages are assumed, and if some of it is held out. Raises ConfigError,
    which names file or override, key and nearest valid name.
    """
    return Draft.of(spec, overrides).settled(recorded=recorded, text=text, steps=steps, say=say)


@dataclasses.dataclass(frozen=True)
class Draft:
    """The settings of `FILE[:variant]` with overrides, before text has been measured.

    The file has run once, and `settled` may be called later, or not at all.
    """

    spec: str
    overrides: Sequence[str] | Mapping[str, Any]
    config: ConfigDict  # with the overrides
    free: frozenset[str]  # the keys of `sized` that neither the file nor an override sets

    @classmethod
    def of(cls, spec: str, overrides: Sequence[str] | Mapping[str, Any] = ()) -> Draft:
        """Runs the file. Raises ConfigError."""
        config = _of_file(spec)
        free = _free_sizes(config, overrides)  # before an override can set a default on purpose
        apply_overrides(config, overrides)
        return cls(spec, overrides, config, free)

    @property
    def needs_text(self) -> bool:
        """Whether a new run takes sizes from the amount of its text, and text is named."""
        return self.config.sizes == "corpus" and bool(self.config.data.train)

    @functools.cached_property
    def for_typical_text(self) -> ExperimentConfig:
        """The settings with sizes for typical text; its `data` names the text. Raises
        ConfigError."""
        from flaxformer_mt.config.sizes import TYPICAL

        self._refuse_minutes()
        return freeze(self._with_sizes(TYPICAL), self.spec)

    @property
    def given(self) -> dict[str, Any]:
        """The sizes that the file or an override sets, by key."""
        return {key: _setting_at(self.config, key) for key in _all_sizes() - self.free}

    def settled(
        self,
        *,
        recorded: ExperimentConfig | None = None,
        text: TextSize | None = None,
        steps: int | None = None,
        say: Callable[[str], None] | None = None,
    ) -> ExperimentConfig:
        """The frozen config, with arguments as of `read_config`. Raises ConfigError."""
        from flaxformer_mt.config.batch_shapes import with_decided_shapes

        frozen = _with_position_scale(self._sized(recorded, text, steps), recorded)
        frozen = with_decided_shapes(frozen, recorded=recorded)
        if recorded is not None:
            ordered = _ordered_as(recorded, frozen)
            frozen = with_minutes_of(recorded, ordered, self.spec, self.overrides)
        refuse_unused(frozen, self.overrides, self.spec, recorded=recorded)

        if say is not None and recorded is None:
            for sentence in self._assumptions(frozen):
                say(sentence)
        return frozen

    def _sized(
        self, recorded: ExperimentConfig | None, text: TextSize | None, steps: int | None
    ) -> ExperimentConfig:
        """The config with sizes as recorded or for the text, if it leaves them to the text."""
        if recorded is None:
            self._refuse_minutes()
        if self.config.sizes != "corpus":
            return _with_held_out_text(freeze(self.config, self.spec), recorded, pairs=0)

        if recorded is not None:
            from flaxformer_mt.config.sizes import TYPICAL

            config = self._with_sizes(TYPICAL)
            _put(config, flatten(recorded), self.free)
            config.sizes = recorded.sizes
            return _with_held_out_text(freeze(config, self.spec), recorded, pairs=0)

        if text is None:
            return self.for_typical_text
        data = self.for_typical_text.data
        config = self._with_sizes(text, (data.src_lang, data.tgt_lang), steps)
        config.sizes = "given"
        return _with_held_out_text(freeze(config, self.spec), recorded, pairs=text.pairs)

    def _with_sizes(
        self, text: TextSize, languages: tuple[str, str] = ("", ""), steps: int | None = None
    ) -> ConfigDict:
        """A copy of the config with the free sizes for the text; for so many steps, if given."""
        from flaxformer_mt.config.sizes import sized

        config = copy.deepcopy(self.config)
        if steps is None and "training.steps" not in self.free:
            # Steps out of bounds are refused with all settings, at the end.
            steps = max(1, config.training.steps)
        _put(config, sized(text, languages, steps=steps, given=self.given), self.free)
        return config

    def _assumptions(self, settled: ExperimentConfig) -> Iterator[str]:
        """Sentences on what the settled config takes for granted about a new run's text."""
        if settled.data.valid_fraction and not self.config.data.valid_fraction:
            yield (
                f"no validation text is given: {settled.data.valid_fraction:.1%} of the "
                "training text is held out for it (data.valid_fraction)"
            )
        settings = self.config.data  # in which a language that isn't set is still empty
        languages = {"src_lang": settings.src_lang, "tgt_lang": settings.tgt_lang}
        assumption = assumed(dataclasses.replace(settled.data, **languages))
        if assumption:
            yield assumption

    def _refuse_minutes(self) -> None:
        """Raises ConfigError for `training.minutes` of a new run that can't decide its steps."""
        if not self.config.training.minutes:
            return
        if self.config.sizes != "corpus":
            raise ConfigError(
                f"{self.spec}: 'training.minutes' needs the config `files` without a variant "
                "(sizes=corpus); with other configs set 'training.steps'"
            )
        if "training.steps" not in self.free:
            raise ConfigError(
                f"{self.spec}: 'training.minutes' chooses 'training.steps': set one of them"
            )


def _of_file(spec: str) -> ConfigDict:
    """The config of `FILE[:variant]`, filled up with defaults. Raises ConfigError."""
    name, _, variant = spec.partition(":")
    path = find_config(name)
    get_config: Any = None
    try:
        if path.suffix != ".py":
            raise ConfigError("is not a Python file")
        get_config = runpy.run_path(os.path.abspath(path)).get("get_config")
        if get_config is None:
            raise ConfigError("defines no get_config(variant)")
        config = get_config(variant)
    except Exception as error:
        # A config raises a plain ValueError for an unknown variant.
        is_unknown_variant = get_config is not None and type(error) is ValueError
        message = f"{spec}: {error}" if is_unknown_variant else _problem_of_file(error, path)
        raise ConfigError(message) from error
    if not isinstance(config, ConfigDict):
        raise ConfigError(
            f"{path}: get_config returned {config!r}, not a ConfigDict: start from default_config()"
        )
    fill(config.unlock(), default_config(), "", spec)
    return config


def _free_sizes(config: ConfigDict, overrides: Sequence[str] | Mapping[str, Any]) -> frozenset[str]:
    """The keys of `sized` that neither the config's file nor an override sets."""
    overridden = {override.partition("=")[0] for override in overrides}
    free = {
        key
        for key in _all_sizes()
        if key not in overridden and _setting_at(config, key) == default_of(key)
    }
    # A tie that fits only separate vocabularies is chosen together with them.
    joint = {"model.tie", "data.vocabulary.shared"}
    if not joint <= free:
        free -= joint
    if "data.vocabulary.size" not in free:
        free.discard("data.vocabulary.soft_size")
    # Given types, whatever the languages, are one vocabulary for both sides.
    if overridden & {"data.vocabulary.model", "data.vocabulary.joint_types"}:
        free -= {*joint, "data.vocabulary.character_coverage", "data.vocabulary.byte_fallback"}
    return frozenset(free)


def _all_sizes() -> frozenset[str]:
    """All keys that `sized` may give."""
    from flaxformer_mt.config.sizes import TYPICAL, sized

    return frozenset(sized(TYPICAL, ("zh", "en")))


def _setting_at(config: ConfigDict, key: str) -> Any:
    return functools.reduce(lambda group, name: group[name], key.split("."), config)


def _put(config: ConfigDict, settings: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Sets `keys` as in `settings`, or to their defaults, in place."""
    with config.ignore_type():
        config.update_from_flattened_dict({key: settings.get(key, default_of(key)) for key in keys})


def _with_held_out_text(
    config: ExperimentConfig, recorded: ExperimentConfig | None, *, pairs: int
) -> ExperimentConfig:
    """The config with some text held out if there is one corpus and nothing else to validate on.

    The share is as `recorded`, or as of so many pairs (0: unknown).
    """
    data = config.data
    if data.valid_fraction or data.has_validation_text or len(data.train) != 1:
        return config
    share = share_to_hold_out(pairs) if recorded is None else recorded.data.valid_fraction
    return dataclasses.replace(config, data=dataclasses.replace(data, valid_fraction=share))


def share_to_hold_out(pairs: int) -> float:
    """The share of so many pairs (0: unknown) that validates where no other text does."""
    if not pairs:
        return _SHARE_HELD_OUT
    return float(f"{min(_MOST_HELD_OUT, _HELD_OUT / pairs):.2g}")


def _with_position_scale(
    config: ExperimentConfig, recorded: ExperimentConfig | None
) -> ExperimentConfig:
    """The config with `model.position_scale` = "auto" settled, as a run records it.

    A new run scales its positions; a `recorded` one keeps its own scale. Runs from before this
    setting recorded "auto", which stays: their positions have no factor.
    """
    model = config.model
    if model.positions != "learned" or model.position_scale != "auto":
        return config
    scale: Literal["auto", "one", "sqrt_d_model"] = "sqrt_d_model"
    if recorded is not None and recorded.model.positions == "learned":
        scale = recorded.model.position_scale
    return dataclasses.replace(config, model=dataclasses.replace(model, position_scale=scale))


def _ordered_as(recorded: ExperimentConfig, config: ExperimentConfig) -> ExperimentConfig:
    """The config with its training corpora in the order of the `recorded` run; new ones last.

    The order decides duplicates and batches. Runs of early versions have their corpora in the order
    of the names, whatever their configs say.
    """
    places = {corpus.name: place for place, corpus in enumerate(recorded.data.train)}
    train = sorted(config.data.train, key=lambda corpus: places.get(corpus.name, len(places)))
    return dataclasses.replace(config, data=dataclasses.replace(config.data, train=tuple(train)))


def with_minutes_of(
    recorded: ExperimentConfig,
    config: ExperimentConfig,
    origin: str,
    overrides: Iterable[str],
) -> ExperimentConfig:
    """The config with the `training.minutes` of an existing run, whose steps it has chosen, or with
    none if the user now sets the steps, or no minutes: then the steps end the training.

    Raises ConfigError for other minutes without steps: only a new run's steps are chosen.
    """
    before, now = recorded.training.minutes, config.training.minutes
    named = {override.partition("=")[0] for override in overrides}
    is_by_steps = (
        "training.steps" in named
        or config.training.steps != recorded.training.steps
        or ("training.minutes" in named and now == 0)
    )
    if now not in (0, before) and not is_by_steps:
        raise ConfigError(
            f"{origin}: 'training.minutes' = {now:g} counts when a run is created with --config, "
            f"and there are {recorded.training.steps:,} steps already: leave it out, set "
            "'training.steps', or begin in a new --workdir"
        )
    training = dataclasses.replace(config.training, minutes=0.0 if is_by_steps else before)
    return dataclasses.replace(config, training=training)


def refuse_unused(
    config: ExperimentConfig,
    overrides: Iterable[str],
    origin: str,
    *,
    recorded: ExperimentConfig | None,
) -> None:
    """Raises ConfigError for settings that nothing reads, unless `recorded` has them."""
    known = set() if recorded is None else set(unused_settings(recorded))
    new = [sentence for sentence in unused_settings(config, overrides) if sentence not in known]
    if new:
        raise ConfigError(f"{origin}: " + "; ".join(new))


def _problem_of_file(error: Exception, path: Path) -> str:
    """An error of a config file's code, with its line, and a misspelt key's nearest name."""
    if isinstance(error, SyntaxError):
        place = f"{error.filename or path}:{error.lineno}" if error.lineno else str(path)
        return f"{place}: {error.msg}"
    if isinstance(error, OSError) and error.filename == os.fspath(path):
        return f"{path}: cannot be read: {error.strerror}"

    frames = traceback.extract_tb(error.__traceback__)
    place = _last_line(path, frames)
    if isinstance(error, AttributeError) and "ml_collections" in frames[-1].filename:
        unknown_key = _unknown_key(str(error))
        if unknown_key is not None:
            return f"{place}: {unknown_key}"
    kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
    return f"{place}: {kind}{error}"


def _last_line(path: Path, frames: Iterable[traceback.FrameSummary]) -> str:
    """The file, and the innermost of its lines in a traceback, for an editor."""
    lines = [frame.lineno for frame in frames if frame.filename == os.path.abspath(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _unknown_key(text: str) -> str | None:
    """The misspelt key in the text of a ConfigDict's AttributeError, in our words; None if none.

    Its texts: 'Key "x" does not exist ...: {\'a\': 1, ...}', and 'x', perhaps with a hint.
    """
    unknown = re.search(r"""["'](\w+)\\?["']""", text)
    if unknown is None:
        return None
    valid = [
        listed or suggested
        for listed, suggested in re.findall(r"""(\w+)\\?': |Did you mean "(\w+)\"""", text)
    ]
    hint = f"; {nearest(unknown[1], valid)}" if valid else ""
    return f"unknown key '{unknown[1]}'{hint}"


def apply_overrides(config: ConfigDict, overrides: Sequence[str] | Mapping[str, Any]) -> None:
    """Sets each `a.b=value` or `{"a.b": value}` in place, by the schema's types.

    Files, SRC,TGT or one of both sides such as TSV or JSONL,SRC_KEY,TGT_KEY, replace
    `data.train.NAME`, `data.valid`, or all of `data.train`, `.valid_sets` or `.test`.
    A vocabulary size that is set is a hard limit, unless `soft_size` is set too. Raises
    ConfigError.
    """
    parsed = _parsed(overrides)
    keys = [override.key for override in parsed]
    if "data.vocabulary.size" in keys and "data.vocabulary.soft_size" not in keys:
        config.data.vocabulary.soft_size = False
    for override in parsed:
        override.apply(config)
    _reset_excluded(config, keys)


def _parsed(overrides: Sequence[str] | Mapping[str, Any]) -> list[_Override]:
    if isinstance(overrides, Mapping):
        return [_Override(key, value) for key, value in overrides.items()]
    parsed = []
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"--config.{key}: write --config.KEY=VALUE")
        parsed.append(_Override(key, text))
    return parsed


def _reset_excluded(config: ConfigDict, overridden: Sequence[str]) -> None:
    """Resets settings that the overrides exclude, unless they are overridden too.

    They come from the config file, or from the run whose settings these are.
    """
    _reset_excluded_text(config.data, overridden)
    if not config.data.valid_sets and not _is_set("training.best_set", overridden):
        config.training.best_set = ""
    batch = config.data.batch
    vocabulary = config.data.vocabulary
    if _is_set("data.batch.form", overridden) and batch.form == "bucket":
        for name in ("src_length", "tgt_length"):
            if not _is_set(f"data.batch.{name}", overridden):
                batch[name] = 0
    if _is_set("data.vocabulary.tgt_types", overridden) and vocabulary.tgt_types == "pieces":
        if not _is_set("data.vocabulary.tgt_words", overridden):
            vocabulary.tgt_words = ()
    _reset_excluded_axes(config.mesh, overridden)


def _reset_excluded_text(data: ConfigDict, overridden: Sequence[str]) -> None:
    _reset_excluded_validation(data, overridden)
    # Two files have no weight, so they are no mixture.
    is_mixture = any(named_corpus.get("weight") for named_corpus in data.train.values())
    is_mixture = is_mixture or data.mix_temperature > 0
    if "data.train" in overridden and not is_mixture:
        if not _is_set("data.epoch_pairs", overridden):
            data.epoch_pairs = 0


def _reset_excluded_validation(data: ConfigDict, overridden: Sequence[str]) -> None:
    """Validation text is one corpus, several, or a share of the training text."""
    forms = {"valid": corpus(), "valid_sets": ConfigDict(), "valid_fraction": 0.0}
    given = [name for name in forms if _is_set(f"data.{name}", overridden) and data[name]]
    for name, nothing in forms.items():
        if given and name not in given:
            data[name] = nothing


def _reset_excluded_axes(mesh: ConfigDict, overridden: Sequence[str]) -> None:
    """At most one axis takes the devices that remain (-1)."""
    remaining = [axis for axis in ("data", "fsdp", "tensor") if mesh[axis] == -1]
    inherited = [axis for axis in remaining if not _is_set(f"mesh.{axis}", overridden)]
    if 0 < len(inherited) < len(remaining):
        for axis in inherited:
            mesh[axis] = 1


def _is_set(key: str, overridden: Sequence[str]) -> bool:
    """Whether the overrides change the setting or something in the group of this key."""
    return any(f"{changed}.".startswith(f"{key}.") for changed in overridden)


@dataclasses.dataclass(frozen=True)
class _Override:
    """One change of a config: text from a command line, or a value from Python."""

    key: str
    value: Any

    @property
    def flag(self) -> str:
        return f"--config.{self.key}"

    @property
    def origin(self) -> str:
        """The override as a user would write it, for messages."""
        return f"{self.flag}={self.value}"

    def apply(self, config: ConfigDict) -> None:
        """Sets it in place. Raises ConfigError."""
        annotation: Any = ExperimentConfig  # of `node`
        node = config
        names = self.key.split(".")
        for depth, name in enumerate(names, start=1):
            if is_corpora(annotation):
                if name not in node:
                    node[name] = corpus()
                annotation = CorpusConfig
                node = node[name]
                continue

            annotations = field_types(annotation)
            if name not in annotations:
                raise self._unknown_key(depth, annotations)
            annotation = annotations[name]
            if is_corpora(annotation) or dataclasses.is_dataclass(annotation):
                node = node[name]
            elif depth == len(names):
                self._set(node, name, annotation)
                return
            else:
                setting = ".".join(names[:depth])
                raise ConfigError(
                    f"{self.origin}: '{setting}' is a single setting and has no '{names[depth]}'"
                )

        if is_corpora(annotation):
            self._replace_corpora(node)
        elif annotation is CorpusConfig:
            node.update(self._named_files(self.flag))
        else:
            names_inside = ", ".join(field_types(annotation))
            raise ConfigError(f"{self.origin}: '{self.key}' is a group of settings: {names_inside}")

    def _unknown_key(self, depth: int, valid: Iterable[str]) -> ConfigError:
        """The first `depth` names of the key lead nowhere; the last of them should be `valid`."""
        from flaxformer_mt.config.other_names import ours

        names = self.key.split(".")
        if depth < len(names):
            # `train.steps` is a misspelt `training.steps`, not the text that others call `train`.
            meant = difflib.get_close_matches(
                self.key, flatten(ExperimentConfig()), n=1, cutoff=0.8
            )
        else:
            meant = [setting for setting in ours(names[-1]) if "." in setting]
        if meant:
            hint = f"did you mean {' and '.join(map(repr, meant))}?"
        else:
            hint = nearest(names[depth - 1], valid)
        return ConfigError(f"{self.origin}: unknown key '{'.'.join(names[:depth])}'; {hint}")

    def _set(self, group: ConfigDict, name: str, annotation: Any) -> None:
        with group.ignore_type():
            if isinstance(self.value, str | os.PathLike):
                group[name] = parse_value(os.fspath(self.value), annotation, self.origin)
            else:
                group[name] = check_value(self.value, annotation, self.key, self.origin)

    def _replace_corpora(self, corpora: ConfigDict) -> None:
        """Puts one corpus, named like the group, in place of all others."""
        named_files = self._named_files(f"{self.flag}.NAME")
        for name in list(corpora):
            del corpora[name]
        corpora[self.key.rpartition(".")[2]] = named_files

    def _parts(self) -> list[Any]:
        """The value's parts: of a text those between commas."""
        if isinstance(self.value, str):
            return list(self.value.split(","))
        return list(self.value) if isinstance(self.value, list | tuple) else [self.value]

    def _named_files(self, flag: str) -> ConfigDict:
        """The corpus of SRC,TGT, two files, or of one file of both sides, whose ending shows its
        kind: FILE, or FILE,SRC,TGT with the keys of the sides. Raises ConfigError, which says how
        to write other corpora, under `flag`."""
        parts = self._parts()
        names = [os.fspath(part) for part in parts if isinstance(part, str | os.PathLike) and part]
        if len(names) == len(parts) and _are_two_sides(names):
            return corpus(src=names[0], tgt=names[1])
        kind = _source_in(names[0]) if names else None
        if kind is None or len(names) != len(parts):
            raise ConfigError(
                f"{self.origin}: write {self.flag}=SRC,TGT (two files) or {flag}.KEY=VALUE"
            )

        path, *keys = names
        sides = dict(zip(("src", "tgt"), keys, strict=False))
        forms = _forms_of(kind, path)
        if len(keys) not in forms:
            form = " or ".join(forms.values())
            raise ConfigError(
                f"{self.origin}: for one file of both sides ({kind.kind}) write {self.flag}={form}"
            )
        return corpus(kind=kind.kind, path=path, **sides)


def _forms_of(kind: type[CorpusKind], path: str) -> dict[int, str]:
    """How a file of both sides may be named, by the number of its keys."""
    forms = {}
    if "src" not in kind.needed():
        forms[0] = path
    if any(field.name == "src" for field in dataclasses.fields(kind)):
        forms[2] = f"{path},SRC,TGT with the keys"
    return forms


def _are_two_sides(names: Sequence[str]) -> bool:
    """Whether these are two files, and not a table of both sides and one of its two keys."""
    if len(names) != 2:
        return False
    return _source_in(names[0]) is None or _source_in(names[1]) is not None


def _source_in(name: str) -> type[CorpusKind] | None:
    """The kind of corpus that a file of both sides is, by its ending."""
    parts = name.lower().split(".")
    if parts[-1] in ("gz", "bz2", "xz", "zst"):
        parts.pop()
    kinds: tuple[type[CorpusKind], ...] = typing.get_args(CorpusSource)
    by_ending = {ending: kind for kind in kinds for ending in kind.endings}
    return by_ending.get(parts[-1]) if len(parts) > 1 else None


def _listed(text: str) -> tuple[str, ...]:
    """Texts between commas, or a Python list of them, which may have commas in them."""
    if text[:1] in ("(", "["):
        with contextlib.suppress(ValueError, SyntaxError):
            value = ast.literal_eval(text)
            if isinstance(value, tuple | list) and all(isinstance(item, str) for item in value):
                return tuple(value)
    return tuple(part for part in text.split(",") if part)


def parse_value(text: str, hint: Any, origin: str) -> Any:
    """An override's text as the setting's type."""
    if hint == tuple[str, ...]:
        return _listed(text)
    if typing.get_args(hint) or hint is str:
        return text
    if hint is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{origin}: must be true or false")
        return text.lower() == "true"
    try:
        return hint(text.replace("_", "")) if hint is int else hint(text)
    except ValueError as error:
        raise ConfigError(f"{origin}: '{text}' is not of type {hint.__name__}") from error
