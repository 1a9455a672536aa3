"""What each setting affects: an experiment's digest, and what a resumed run may change."""

from collections.abc import Iterable
from typing import Any

from flaxformer_mt.config.freeze import ConfigError, fields_along, flatten
from flaxformer_mt.config.schema import Decides, ExperimentConfig

_LANGUAGES = ("src_lang", "tgt_lang")  # only two filters depend on them
# First defaults of settings whose default has changed (without a corpus's name:
# `data.train.split`). A test asks for them.
FIRST: dict[str, Any] = {
    "data.src_lang": "en",
    "data.tgt_lang": "de",
    "training.loss_chunk": 4096,
}


def decides(key: str) -> Decides:
    """The kind of outcome that the setting under a dotted key affects, as in `schema.setting`."""
    innermost: Decides = "training"
    for field in fields_along(key):
        innermost = field.metadata["decides"] or innermost
    return innermost


def deciding(config: ExperimentConfig, *kinds: Decides) -> dict[str, Any]:
    """Settings by dotted key that decide one of `kinds` and differ from their first default.

    The same experiment gives the same mapping in every release: a setting that a later release
    adds is left out unless it is changed.
    """
    settings = {
        key: value
        for key, value in flatten(config).items()
        if decides(key) in kinds and value != first_default(key)
    }
    names = [corpus.name for corpus in config.data.train]
    # Early versions sorted them.
    if "training" in kinds and names != sorted(names):
        settings["data.train"] = names
    return settings


def first_default(key: str) -> Any:
    """A setting's first default, as JSON."""
    fields = list(fields_along(key))
    value = FIRST.get(".".join(field.name for field in fields), fields[-1].default)
    return list(value) if isinstance(value, tuple) else value


def may_change(key: str) -> bool:
    """Whether the setting under a dotted key may differ when a run continues."""
    return any(field.metadata["resume"] for field in fields_along(key))


def differences(old: ExperimentConfig, new: ExperimentConfig) -> dict[str, tuple[Any, Any]]:
    """The settings that differ, old and new value."""
    before, after = flatten(old), flatten(new)
    return {
        key: (before.get(key), after.get(key))
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    }


def trains(changed: Iterable[str]) -> bool:
    """Whether one of these changes, which `check_resume` allows, affects training."""
    return any(decides(key) == "training" and not _is_language(key) for key in changed)


def _is_language(key: str) -> bool:
    """Whether a setting is the language of a side, of all text or of a corpus."""
    return key.rpartition(".")[2] in _LANGUAGES


def check_resume(
    old: ExperimentConfig, new: ExperimentConfig, run: str
) -> dict[str, tuple[Any, Any]]:
    """The settings that differ, old and new value. Raises ConfigError if one may not."""
    changed = differences(old, new)
    fixed = {key: pair for key, pair in changed.items() if not may_change(key)}
    if new.data.filter.reads_languages:
        fixed |= {key: pair for key, pair in changed.items() if _is_language(key)}
    if fixed:
        listed = "; ".join(
            f"'{key}' was {before!r}, is now {after!r}" for key, (before, after) in fixed.items()
        )
        raise ConfigError(
            f"{run}: this run was started with different settings: {listed}; leave out --config to "
            "resume with the run's own settings, set them back, or start a new --workdir (with "
            "--init-from to reuse this run's weights)."
        )
    return changed
