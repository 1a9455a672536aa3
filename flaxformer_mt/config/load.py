"""Turns config files and `--config.a.b=value` overrides into a frozen `ExperimentConfig`."""

import dataclasses
import difflib
import functools
import os
import re
import runpy
import traceback
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

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
from flaxformer_mt.config.languages import assumed
from flaxformer_mt.config.presets import TYPICAL, sized
from flaxformer_mt.config.schema import CorpusConfig, DataConfig, ExperimentConfig
from flaxformer_mt.errors import nearest

# In a wheel the config files lie inside the package; in a checkout beside it.
BUILT_IN = [parent / "configs" for parent in Path(__file__).parents[1:3]]


def built_in_names() -> list[str]:
    """Names of the package's config files."""
    return sorted(
        {p.stem for folder in BUILT_IN for p in folder.glob("*.py") if p.stem != "__init__"}
    )


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


def load_config(
    spec: str,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    recorded: ExperimentConfig | None = None,
    count: Callable[[DataConfig], int] | None = None,
    tell: Callable[[str], None] | None = None,
) -> ExperimentConfig:
    """`FILE[:variant]` and overrides, `a.b=value` or `{"a.b": value}`, to a frozen config.

    Unused settings are allowed if `recorded`, a resumed run's, has them. With `sizes` = "corpus",
    settings that nothing sets are as recorded, or `sized` by the `count` of pairs, else for
    `TYPICAL` pairs. `tell` is called with what is assumed of the text's languages. Raises
    ConfigError naming file or override, key and nearest valid name.
    """
    config = _of_file(spec)
    free = _free_sizes(config, overrides)  # before an override can set a default on purpose
    apply_overrides(config, overrides)
    if config.sizes == "corpus":
        _put(config, sized(TYPICAL), free)
        if recorded is not None:
            _put(config, flatten(recorded), free)
            config.sizes = recorded.sizes
        elif count is not None and config.data.train:
            data = freeze(config, spec).data
            _put(config, sized(count(data), (data.src_lang, data.tgt_lang)), free)
            config.sizes = "given"

    frozen = _with_position_scale(freeze(config, spec), recorded)
    if recorded is not None:
        frozen = _ordered_as(recorded, frozen)
    refuse_vain(frozen, overrides, spec, recorded=recorded)
    if tell is not None and recorded is None:
        set_languages = {name: config.data[name] for name in ("src_lang", "tgt_lang")}
        if assumption := assumed(dataclasses.replace(frozen.data, **set_languages)):
            tell(assumption)
    return frozen


def _of_file(spec: str) -> ConfigDict:
    """What `get_config` of `FILE[:variant]` gives, filled up with defaults. Raises ConfigError."""
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
        plain = get_config is not None and type(error) is ValueError
        raise ConfigError(f"{spec}: {error}" if plain else _explained(error, path)) from error
    if not isinstance(config, ConfigDict):
        raise ConfigError(
            f"{path}: get_config returned {config!r}, not a ConfigDict: start from default_config()"
        )
    fill(config.unlock(), default_config(), "", spec)
    return config


def _free_sizes(config: ConfigDict, overrides: Sequence[str] | Mapping[str, Any]) -> frozenset[str]:
    """The keys of `sized` that neither the config's file nor an override sets."""
    value = functools.partial(functools.reduce, lambda node, part: node[part])
    given = {override.partition("=")[0] for override in overrides}
    free = {
        key
        for key in sized(TYPICAL, ("zh", "en"))  # all keys that there are
        if key not in given and value(key.split("."), config) == default_of(key)
    }
    # A tie that fits only separate vocabularies is chosen together with them.
    joint = {"model.tie", "data.vocabulary.shared"}
    if not joint <= free:
        free -= joint
    if "data.vocabulary.size" not in free:
        free.discard("data.vocabulary.soft_size")
    return frozenset(free)


def _put(config: ConfigDict, values: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Sets `keys` to their `values`, or to their defaults, in place."""
    with config.ignore_type():
        config.update_from_flattened_dict({key: values.get(key, default_of(key)) for key in keys})


def _with_position_scale(
    config: ExperimentConfig, recorded: ExperimentConfig | None
) -> ExperimentConfig:
    """`model.position_scale` = "auto" as a new run records it, or as `recorded`'s run has it.

    Runs from before the setting recorded none: their positions have no factor, and "auto" stays.
    """
    model = config.model
    if model.positions != "learned" or model.position_scale != "auto":
        return config
    scale: Literal["auto", "one", "sqrt_d_model"] = "sqrt_d_model"
    if recorded is not None and recorded.model.positions == "learned":
        scale = recorded.model.position_scale
    return dataclasses.replace(config, model=dataclasses.replace(model, position_scale=scale))


def _ordered_as(recorded: ExperimentConfig, config: ExperimentConfig) -> ExperimentConfig:
    """A run's training corpora in its order, which decides duplicates and batches; new ones last.

    Runs of early versions have them in the order of their names, whatever their configs say.
    """
    places = {corpus.name: place for place, corpus in enumerate(recorded.data.train)}
    train = sorted(config.data.train, key=lambda corpus: places.get(corpus.name, len(places)))
    return dataclasses.replace(config, data=dataclasses.replace(config.data, train=tuple(train)))


def refuse_vain(
    config: ExperimentConfig,
    overrides: Iterable[str],
    origin: str,
    *,
    recorded: ExperimentConfig | None,
) -> None:
    """Raises ConfigError for settings that nothing reads, unless `recorded` has them."""
    known = set() if recorded is None else set(unused_settings(recorded))
    if found := [said for said in unused_settings(config, overrides) if said not in known]:
        raise ConfigError(f"{origin}: " + "; ".join(found))


def _explained(error: Exception, path: Path) -> str:
    """An error of a config file's code, with its line, and a misspelt key's nearest name."""
    if isinstance(error, SyntaxError):
        where = f"{error.filename or path}:{error.lineno}" if error.lineno else str(path)
        return f"{where}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == os.path.abspath(path)]
    where = f"{path}:{lines[-1]}" if lines else str(path)
    text = str(error)
    if isinstance(error, OSError) and error.filename == os.fspath(path):
        return f"{path}: cannot be read: {error.strerror}"
    if isinstance(error, AttributeError) and "ml_collections" in frames[-1].filename:
        # Its texts: 'Key "x" does not exist ...: {\'a\': 1, ...}', and 'x', perhaps with a hint.
        unknown = re.search(r"""["'](\w+)\\?["']""", text)
        names = re.findall(r"""(\w+)\\?': |Did you mean "(\w+)\"""", text)
        if unknown:
            hint = f"; {nearest(unknown[1], [a or b for a, b in names])}" if names else ""
            return f"{where}: unknown key '{unknown[1]}'{hint}"
    kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
    return f"{where}: {kind}{text}"


def apply_overrides(config: ConfigDict, overrides: Sequence[str] | Mapping[str, Any]) -> None:
    """Sets each `a.b=value` or `{"a.b": value}` in place, by the schema's types.

    Two files, SRC,TGT, replace `data.train.NAME`, `data.valid`, or all of `data.train` or `.test`.
    A vocabulary size that is set is a hard limit, unless `soft_size` is set too.
    """
    if not isinstance(overrides, Mapping):
        pairs = [override.partition("=") for override in overrides]
        for key, equals, _ in pairs:
            if not equals:
                raise ConfigError(f"--config.{key}: write --config.KEY=VALUE")
    else:
        pairs = [(key, "=", value) for key, value in overrides.items()]
    keys = [key for key, _, _ in pairs]
    if "data.vocabulary.size" in keys and "data.vocabulary.soft_size" not in keys:
        config.data.vocabulary.soft_size = False
    for key, _, value in pairs:
        _apply(config, key, value)
    _let_go(config, keys)


def _let_go(config: ConfigDict, given: Sequence[str]) -> None:
    """Resets settings that what is given excludes, unless they are given too.

    They come from the config file, or from the run whose settings these are.
    """
    _let_go_of_text(config.data, given)
    batch, vocabulary = config.data.batch, config.data.vocabulary
    if _is_given("data.batch.form", given) and batch.form == "bucket":
        for key in ("src_length", "tgt_length"):
            if not _is_given(f"data.batch.{key}", given):
                batch[key] = 0
    if _is_given("data.vocabulary.tgt_types", given) and vocabulary.tgt_types == "pieces":
        if not _is_given("data.vocabulary.tgt_words", given):
            vocabulary.tgt_words = ()
    _let_go_of_axes(config.mesh, given)


def _let_go_of_text(data: ConfigDict, given: Sequence[str]) -> None:
    is_fraction_given = _is_given("data.valid_fraction", given)
    if _is_given("data.valid", given):
        if not is_fraction_given:
            data.valid_fraction = 0.0
    elif is_fraction_given and data.valid_fraction:
        data.valid = corpus()
    # Two files have no weight, so they are no mixture.
    weighted = any(item.get("weight") for item in data.train.values())
    if "data.train" in given and not weighted and not _is_given("data.epoch_pairs", given):
        data.epoch_pairs = 0


def _let_go_of_axes(mesh: ConfigDict, given: Sequence[str]) -> None:
    """At most one axis takes the devices that remain (-1)."""
    remaining = [key for key in ("data", "fsdp", "tensor") if mesh[key] == -1]
    inherited = [key for key in remaining if not _is_given(f"mesh.{key}", given)]
    if 0 < len(inherited) < len(remaining):
        for key in inherited:
            mesh[key] = 1


def _is_given(key: str, given: Sequence[str]) -> bool:
    return any(f"{other}.".startswith(f"{key}.") for other in given)


def _apply(config: ConfigDict, key: str, value: Any) -> None:
    origin = f"--config.{key}={value}"
    cls: Any = ExperimentConfig
    node, parts = config, key.split(".")
    for depth, part in enumerate(parts, start=1):
        if is_corpora(cls):
            if part not in node:
                node[part] = corpus()
            cls, node = CorpusConfig, node[part]
            continue
        here = ".".join(parts[:depth])
        hints = field_types(cls)
        if part not in hints:
            from flaxformer_mt.config.other_names import ours

            # `train.steps` is a misspelt `training.steps`, not the text that others call `train`.
            alike = difflib.get_close_matches(key, flatten(ExperimentConfig()), n=1, cutoff=0.8)
            names = alike if depth < len(parts) else [name for name in ours(part) if "." in name]
            meant = " and ".join(f"'{name}'" for name in names)
            hint = f"did you mean {meant}?" if meant else nearest(part, hints)
            raise ConfigError(f"{origin}: unknown key '{here}'; {hint}")
        cls = hints[part]
        if is_corpora(cls) or dataclasses.is_dataclass(cls):
            node = node[part]
        elif depth < len(parts):
            raise ConfigError(f"{origin}: '{here}' is a single setting and has no '{parts[depth]}'")
        else:
            with node.ignore_type():
                if isinstance(value, str | os.PathLike):
                    node[part] = parse_value(os.fspath(value), cls, origin)
                else:
                    node[part] = check_value(value, cls, key, origin)
            return
    if is_corpora(cls) or cls is CorpusConfig:
        _replace(node, parts[-1], value, cls, origin)
        return
    raise ConfigError(f"{origin}: '{key}' is a group of settings: {', '.join(field_types(cls))}")


def _kind_of(name: str) -> str | None:
    """The kind of corpus that a file of both sides is, by its ending."""
    kinds = {"parquet": "hf", "jsonl": "jsonl", "ndjson": "jsonl", "tsv": "tsv"}
    parts = name.lower().split(".")
    if parts[-1] in ("gz", "xz", "zst"):
        parts.pop()
    return kinds.get(parts[-1]) if len(parts) > 1 else None


def _replace(node: ConfigDict, name: str, value: Any, cls: Any, origin: str) -> None:
    sides = value.split(",") if isinstance(value, str) else list(value)
    if len(sides) != 2 or not all(isinstance(side, str | os.PathLike) and side for side in sides):
        inside = "NAME.KEY" if is_corpora(cls) else "KEY"
        key = origin.partition("=")[0]
        if len(sides) == 1 and (kind := _kind_of(str(sides[0]))):
            entry = f"{key}.NAME" if is_corpora(cls) else key
            names = "" if kind == "tsv" else f" {entry}.src=KEY {entry}.tgt=KEY"
            raise ConfigError(
                f"{origin}: one file of both sides is {entry}.kind={kind} "
                f"{entry}.path={sides[0]}{names}"
            )
        raise ConfigError(f"{origin}: write {key}=SRC,TGT (two files) or {key}.{inside}=VALUE")
    made = corpus(src=os.fspath(sides[0]), tgt=os.fspath(sides[1]))
    if cls is CorpusConfig:
        node.update(made)
        return
    for other in list(node):
        del node[other]
    node[name] = made


def parse_value(text: str, hint: Any, origin: str) -> Any:
    """An override's text as the setting's type."""
    if hint == tuple[str, ...]:
        return tuple(part for part in text.split(",") if part)
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
