"""Every config file builds, and what it comes to stands in a text that shows drift in review.

`FLAXFORMER_UPDATE_GOLDEN=1 launch/local.sh test tests/config -n 0` writes the texts anew; look at
the difference before you commit it.
"""

import os
import re
from pathlib import Path

import pytest

from flaxformer_mt.config import ConfigError, freeze, read_config, thaw, to_dict, to_text
from flaxformer_mt.config.load import built_in_names

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "FLAXFORMER_UPDATE_GOLDEN"
NO_SUCH_VARIANT = "no_such_variant"


def variants(name: str) -> list[str]:
    """The variants that a config file itself lists when asked for one that it lacks."""
    with pytest.raises(ConfigError) as error:
        read_config(f"{name}:{NO_SUCH_VARIANT}")
    assert str(error.value).startswith(f"{name}:{NO_SUCH_VARIANT}: unknown variant")
    listed = re.search(r"valid variants: (.*)", str(error.value))
    return listed[1].split(", ") if listed else [""]


SPECS = [(name, variant) for name in built_in_names() for variant in variants(name)]


def golden_file(name: str, variant: str) -> Path:
    return GOLDEN / (f"{name}-{variant}.txt" if variant else f"{name}.txt")


@pytest.mark.parametrize(("name", "variant"), SPECS)
def test_config_matches_its_golden_text_and_round_trips(name, variant):
    config = read_config(f"{name}:{variant}")
    assert freeze(to_dict(config), "a run directory") == config
    assert freeze(thaw(config), "a changed config") == config
    text = to_text(config)
    path = golden_file(name, variant)
    if os.environ.get(UPDATE):
        path.write_text(text, encoding="utf-8")
    recorded = path.read_text(encoding="utf-8") if path.exists() else ""
    before, after = set(recorded.splitlines()), set(text.splitlines())
    assert text == recorded, (
        f"{name}:{variant} is no longer what {path.name} says. Gone: {sorted(before - after)}. "
        f"New: {sorted(after - before)}. If that is meant, run this test with {UPDATE}=1 and "
        "commit the changed text"
    )


def test_there_is_no_golden_text_without_its_config():
    assert {path.name for path in GOLDEN.iterdir()} == {golden_file(*spec).name for spec in SPECS}


# Without a variant, `files` goes by its text.
@pytest.mark.parametrize("name", sorted({*built_in_names()} - {"files"}))
def test_without_a_variant_a_config_is_its_first_one(name):
    assert read_config(name) == read_config(f"{name}:{variants(name)[0]}")
