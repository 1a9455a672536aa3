"""Which settings a resumed run may change, and which make it another run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flaxformer_mt.config.decisive import decides
from flaxformer_mt.config.freeze import ConfigError, fields_along, flatten
from flaxformer_mt.config.schema import ExperimentConfig

# Only the pairs that data.filter.script drops depend on them.
_LANGUAGES = {"data.src_lang", "data.tgt_lang"}


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
    """Whether one of these changes, which `check_resume` allows, has a part in what is trained."""
    return any(decides(key) == "training" and key not in _LANGUAGES for key in changed)


def check_resume(
    old: ExperimentConfig, new: ExperimentConfig, run: str
) -> dict[str, tuple[Any, Any]]:
    """The settings that differ, old and new value; raises ConfigError if one of them may not."""
    changed = differences(old, new)
    fixed = {key: pair for key, pair in changed.items() if not may_change(key)}
    if new.data.filter.script:
        fixed |= {key: changed[key] for key in _LANGUAGES & changed.keys()}
    if fixed:
        listed = "; ".join(f"'{key}' was {a!r}, is now {b!r}" for key, (a, b) in fixed.items())
        raise ConfigError(
            f"{run}: this run was started with other settings: {listed}. "
            "They are part of what the run is: set them back, or start a new --workdir "
            "(--init-from takes this run's weights along)."
        )
    return changed
