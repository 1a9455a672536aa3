"""From an `ml_collections.ConfigDict` to the frozen `ExperimentConfig`, and back."""

import dataclasses
import functools
import json
import math
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from flaxformer_mt.config.consistency import inconsistencies
from flaxformer_mt.config.languages import with_languages
from flaxformer_mt.config.schema import CorpusConfig, DataConfig, ExperimentConfig
from flaxformer_mt.errors import UserError, nearest


class ConfigError(UserError):
    """A configuration with an unknown key, a wrong value or a contradiction."""


@functools.cache
def field_types(cls: type) -> dict[str, Any]:
    """The annotation of each setting of a config dataclass, except a corpus's name, its key."""
    hints = typing.get_type_hints(cls)
    if cls is CorpusConfig:
        del hints["name"]
    return hints


def is_corpora(annotation: Any) -> bool:
    """Whether a setting holds corpora: a mapping in the ConfigDict, a tuple when frozen."""
    return annotation == tuple[CorpusConfig, ...]


_CORPORA = tuple(name for name, hint in field_types(DataConfig).items() if is_corpora(hint))


def fields_along(key: str) -> Iterator[dataclasses.Field[Any]]:
    """The schema's fields along a dotted key, without a corpus's name."""
    cls: Any = ExperimentConfig
    parts = iter(key.split("."))
    for part in parts:
        yield next(field for field in dataclasses.fields(cls) if field.name == part)
        cls = field_types(cls)[part]
        if is_corpora(cls):
            next(parts, None)
            cls = CorpusConfig


def default_of(key: str) -> Any:
    """The default of the setting under a dotted key."""
    *_, field = fields_along(key)
    return field.default


def default_config() -> ConfigDict:
    """The paper's base model with every key, for config files to start from."""
    return thaw(ExperimentConfig())


def thaw(config: ExperimentConfig) -> ConfigDict:
    """A `ConfigDict` to change, with known keys only, but corpora of any name."""
    thawed = ConfigDict(_plain(config)).lock()
    for corpora in (thawed.data[name] for name in _CORPORA):
        corpora.unlock()  # recursively
        for named_corpus in corpora.values():
            named_corpus.lock()
    return thawed


def fill(config: ConfigDict, full: ConfigDict, prefix: str, origin: str) -> None:
    """Gives a config the keys that it lacks from `full`, in place. Raises ConfigError."""
    for key, value in full.items():
        if key not in config:
            config[key] = value
        elif isinstance(value, ConfigDict):
            if not isinstance(config[key], ConfigDict):
                raise ConfigError(f"{origin}: '{prefix}{key}' is a group, not {config[key]!r}")
            fill(config[key], value, f"{prefix}{key}.", origin)


def corpus(**settings: Any) -> ConfigDict:
    """One corpus for `config.data.train.NAME = corpus(...)`; keys as in `CorpusConfig`."""
    return ConfigDict(_plain(_build(CorpusConfig, settings, "", "corpus(...)"))).lock()


def _plain(config: Any) -> dict[str, Any]:
    """A config dataclass as nested dictionaries."""
    cls: Any = type(config)
    settings = {name: getattr(config, name) for name in field_types(cls)}
    for name, setting in settings.items():
        if dataclasses.is_dataclass(setting):
            settings[name] = _plain(setting)
        elif is_corpora(field_types(cls)[name]):
            settings[name] = {corpus.name: _plain(corpus) for corpus in setting}
    return settings


def freeze(config: Mapping[str, Any] | ConfigDict, origin: str) -> ExperimentConfig:
    """The frozen form of a mapping from `origin`, a file, with defaults. Raises ConfigError."""
    plain = _in_order(config) if isinstance(config, ConfigDict) else config
    frozen: ExperimentConfig = _build(ExperimentConfig, plain, "", origin)
    frozen = dataclasses.replace(frozen, data=with_languages(frozen.data))
    if problems := [*_out_of_bounds(frozen), *inconsistencies(frozen)]:
        raise ConfigError(f"{origin}: " + "; ".join(problems))
    return frozen


def _out_of_bounds(config: Any, prefix: str = "") -> Iterator[str]:
    """A sentence on each number of a config dataclass outside the bounds of its setting."""
    for field in dataclasses.fields(config):
        key, value = f"{prefix}{field.name}", getattr(config, field.name)
        if isinstance(value, int | float):
            if problem := field.metadata["bounds"].problem(value):
                yield f"'{key}' = {value} {problem}"
        elif dataclasses.is_dataclass(value):
            yield from _out_of_bounds(value, f"{key}.")
        elif is_corpora(field.type):
            for named_corpus in value:
                yield from _out_of_bounds(named_corpus, f"{key}.{named_corpus.name}.")


def _in_order(config: ConfigDict) -> dict[str, Any]:
    """The config as a dict, with corpora in the order in which they were set.

    A ConfigDict gives its keys sorted, but the first of several equal pairs is kept.
    """
    plain: dict[str, Any] = config.to_dict()
    for split in _CORPORA:
        try:
            corpora = plain["data"][split]
            names = vars(config["data"][split])["_fields"]
            plain["data"][split] = {name: corpora[name] for name in names}
        except (KeyError, TypeError):
            continue  # `_build` refuses it
    return plain


def to_dict(config: ExperimentConfig) -> dict[str, Any]:
    """The JSON mapping that `freeze` reads back."""
    return dict(json.loads(json.dumps(_plain(config))))


def flatten(config: ExperimentConfig) -> dict[str, Any]:
    """Dotted key -> value of every setting."""
    return _flat(to_dict(config))


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        flat |= _flat(value, f"{key}.") if isinstance(value, dict) else {key: value}
    return flat


def to_text(config: ExperimentConfig) -> str:
    """Every setting as `key = value`, one per line, for golden texts."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in flatten(config).items())


def _build(cls: type, values: Any, prefix: str, origin: str) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{origin}: '{prefix.rstrip('.')}' is a group, not {values!r}")
    hints = field_types(cls)
    built: dict[str, Any] = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if name not in hints:
            raise ConfigError(f"{origin}: unknown key '{key}'; {nearest(name, hints)}")
        hint = hints[name]
        if is_corpora(hint):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{origin}: '{key}' maps names to corpora, not {value!r}")
            built[name] = tuple(
                _named(label, item, f"{key}.{label}.", origin) for label, item in value.items()
            )
        elif hint is CorpusConfig:
            built[name] = _named(name, value, f"{key}.", origin)
        elif dataclasses.is_dataclass(hint):
            built[name] = _build(typing.cast(type, hint), value, f"{key}.", origin)
        else:
            built[name] = check_value(value, hint, key, origin)
    return cls(**built)


def _named(name: str, values: Any, prefix: str, origin: str) -> CorpusConfig:
    built: CorpusConfig = _build(CorpusConfig, values, prefix, origin)
    return dataclasses.replace(built, name=name)


def check_value(value: Any, hint: Any, key: str, origin: str) -> Any:
    """`value` as `hint`: an int may be a float, a list a tuple. Raises ConfigError."""
    typed = value
    if hint == tuple[str, ...] and isinstance(value, list):
        typed = tuple(value)
    elif hint is float and isinstance(value, int) and not isinstance(value, bool):
        typed = float(value)

    if problem := _type_problem(typed, hint):
        raise ConfigError(f"{origin}: '{key}' = {value!r}: {problem}")
    return typed


def _type_problem(value: Any, hint: Any) -> str | None:
    """Why `value` isn't of an annotation of the schema; None if it is."""
    if hint == tuple[str, ...]:
        is_texts = isinstance(value, tuple) and all(isinstance(text, str) for text in value)
        return None if is_texts else "must be a list of strings"
    if choices := typing.get_args(hint):
        return None if value in choices else f"must be one of {', '.join(map(repr, choices))}"
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        return f"must be of type {hint.__name__}"
    if hint is float and not math.isfinite(value):
        return "must be a finite number"
    return None
