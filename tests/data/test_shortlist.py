"""Model 1 finds a dictionary that sentences alone imply, and a shortlist is kept as it was."""

import numpy as np
import pytest

from flaxformer_mt.data import shortlist
from flaxformer_mt.data.shortlist import Shortlist, ShortlistError, learn
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.data.vocabulary import EOS
from tests.data.pairs import in_memory

TYPES = 40


@pytest.fixture(scope="module")
def translated() -> tuple[TokenPairs, np.ndarray]:
    """Pairs in which each type is said by one other, in another order, and a dictionary."""
    rng = np.random.default_rng(0)
    words = np.concatenate([np.arange(4), 4 + rng.permutation(TYPES - 5), [TYPES - 1]])
    # The last type is never said.
    src = [rng.integers(4, TYPES - 1, size=rng.integers(1, 9)) for _ in range(600)]
    tgt = [rng.permutation(words[sentence]) for sentence in src]
    src, tgt = ([[*ids.tolist(), EOS] for ids in sentences] for sentences in (src, tgt))
    return in_memory(src, tgt), words


@pytest.mark.parametrize("cells", [1 << 40, 12_000])
def test_each_type_s_first_candidate_is_its_translation(translated, monkeypatch, cells):
    """Also from a sample of the pairs."""
    monkeypatch.setattr(shortlist, "CELLS", cells)
    learnt = learn(translated[0], src_types=TYPES, tgt_types=TYPES, vocabulary="v")
    assert learnt.best.shape == (TYPES, shortlist.BEST)
    assert (learnt.best[EOS:, 0] == translated[1][EOS:]).mean() > 0.94
    assert learnt.best[TYPES - 1].tolist() == [TYPES - 1] * shortlist.BEST
    assert sorted(learnt.ranked) == list(range(TYPES)) and learnt.ranked[0] == EOS


def test_the_types_of_a_batch(monkeypatch):
    monkeypatch.setattr(shortlist, "FREQUENT", 2)
    known = Shortlist(np.arange(20).reshape(10, 2), np.arange(20)[::-1], "v")
    assert known.types([[4, 6], [6, 2]]).tolist() == [*range(4), 19, 18, 4, 8, 12, 5, 9, 13]


def test_it_is_kept_as_it_was_for_the_same_vocabulary(translated):
    learnt = learn(translated[0], src_types=TYPES, tgt_types=TYPES, vocabulary="v")
    content = learnt.to_bytes()
    assert Shortlist.read(content, "FILE", vocabulary="v").digest == learnt.digest
    with pytest.raises(ShortlistError, match="FILE: learned with another vocabulary; delete it"):
        Shortlist.read(content, "FILE", vocabulary="w")
    for damaged in (b"", content[:-100], b"text"):
        with pytest.raises(ShortlistError, match="FILE: is damaged"):
            Shortlist.read(damaged, "FILE", vocabulary="v")


BEST, RANKED = np.zeros((4, 2), np.int32), np.arange(4, dtype=np.int32)


@pytest.mark.parametrize(
    ("best", "ranked", "message"),
    [
        (BEST[0], RANKED, r"arrays of shapes \(2,\) and \(4,\)"),
        (BEST, RANKED[None], r"arrays of shapes \(4, 2\) and \(1, 4\)"),
        (BEST[:, :0], RANKED, r"arrays of shapes \(4, 0\)"),
        (BEST[:3], RANKED, r"3 and 4 types, but the vocabularies have \(4, 4\)"),
        (BEST, RANKED[:3], "4 and 3 types"),
        (BEST.astype(np.float32), RANKED, "arrays of float32 and int32"),
        (BEST, RANKED - 1, "not every type is ranked once"),
        (BEST + 4, RANKED, "ids of types that do not exist"),
        (BEST - 1, RANKED, "ids of types that do not exist"),
    ],
)
def test_arrays_of_another_form_are_damage(best, ranked, message):
    content = Shortlist(best, ranked, "v").to_bytes()
    with pytest.raises(ShortlistError, match=rf"FILE: is damaged \({message}.*; delete it"):
        Shortlist.read(content, "FILE", vocabulary="v", sizes=(4, 4))
