"""Files of API keys."""

from __future__ import annotations

import pytest

from flaxformer_mt.serving.keys import KeyFileError, Keys, read_keys


def test_a_key_a_line() -> None:
    text = "# ours\r\n\none\n  two words \n#three\n~!@$%\n"
    assert read_keys(text) == {"one", "two words", "~!@$%"}


@pytest.mark.parametrize("key", ["ключ", "schlüssel", "a\x07b", "a\u2028b", "a\x85b", "\ufeffa"])
def test_a_key_that_no_header_carries_is_refused_with_its_line(key: str) -> None:
    with pytest.raises(KeyFileError, match="beyond printable ASCII") as refused:
        read_keys(f"one\n\n# ключ\n{key}\ntwo\n")
    assert refused.value.line == 4
    assert key not in str(refused.value)


def test_whatever_a_client_sends_is_compared() -> None:
    keys = Keys(["one"])
    assert keys.accept("one")
    for wrong in ("", "on", "one ", "ключ", "\ud800"):
        assert not keys.accept(wrong)
