"""Which settings decide an experiment's numbers: what a digest of an experiment is made of."""

from __future__ import annotations

from typing import Any

from flaxformer_mt.config.freeze import fields_along, flatten
from flaxformer_mt.config.schema import ExperimentConfig
from flaxformer_mt.config.setting import Decides

FIRST: dict[str, Any] = {"data.src_lang": "en", "data.tgt_lang": "de"}
"""What a setting was by default when it was new, of those whose default has changed since.

The key is the setting's, without the name of a corpus (`data.train.split`). Whoever changes a
default notes the former one here, if there is none yet; a test of `tests/config` asks for it.
"""


def decides(key: str) -> Decides:
    """What the setting under a dotted key has a part in; `setting.setting` explains it."""
    found: Decides = "training"
    for field in fields_along(key):
        found = field.metadata["decides"] or found
    return found


def deciding(config: ExperimentConfig, *kinds: Decides) -> dict[str, Any]:
    """Settings by dotted key that decide one of these and are not what they first were by default.

    Such a mapping means the same in every release: a setting that is added later is not in it as
    long as it has its default, and with a default that changes, so does what is in it.
    """
    return {
        key: value
        for key, value in flatten(config).items()
        if decides(key) in kinds and value != first_default(key)
    }


def first_default(key: str) -> Any:
    """The default, in the form of JSON, that a setting had when it was new."""
    fields = list(fields_along(key))
    value = FIRST.get(".".join(field.name for field in fields), fields[-1].default)
    return list(value) if isinstance(value, tuple) else value
