"""The set of pairs seen: a set, in little memory."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given, settings, strategies as st

from flaxformer_mt.data.prepare.filters import Seen, hashes

KEYS = (
    st.integers(0, 40)
    | st.integers(0, 2**64 - 1)
    | st.builds(lambda n: n << 20, st.integers(0, 40))
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(KEYS, max_size=50), max_size=5))
def test_it_is_a_set(batches: list[list[int]]) -> None:
    seen, reference = Seen(), set()
    for batch in batches:
        expected = []
        for key in batch:
            # 0 marks a free slot and stands for 1.
            expected.append(max(key, 1) not in reference)
            reference.add(max(key, 1))
        assert seen.add(np.array(batch, np.uint64)).tolist() == expected
    assert len(seen) == len(reference)


def test_it_grows_and_stays_small() -> None:
    keys = np.random.default_rng(1).integers(1, 2**64, 300_000, np.uint64)
    seen = Seen()
    for part in np.split(keys, 30):
        assert seen.add(part).all()
    assert len(seen) == 300_000
    assert not any(seen.add(part).any() for part in np.split(keys[::-1], 50))
    # 8 bytes a slot, between a third and two thirds of the slots in use.
    assert 12 * len(keys) <= seen.nbytes <= 24 * len(keys)


def test_texts_are_equal_but_for_blanks_at_the_ends() -> None:
    pairs = [(b"a", b"b"), (b" a", b"b\t"), (b"ab", b""), (b"", b"ab"), (b"b", b"a"), (b"a b", b"")]
    found = hashes(pairs)
    assert found[0] == found[1] and len(set(found.tolist())) == 5
    assert found.dtype == np.dtype("<u8")
    # The same in every process and on every machine.
    digest = hashlib.blake2b(b"a\0b", digest_size=8).digest()
    assert hashes([(b"a", b"b")]).tolist() == [int.from_bytes(digest, "little")]
