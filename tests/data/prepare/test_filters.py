"""Scripts, of languages and of letters, and the sets of pairs seen and of pairs like them."""

import hashlib
import itertools
import unicodedata

import numpy as np
from hypothesis import given, settings, strategies as st

from flaxformer_mt.data.prepare.filters import (
    Seen,
    SeenNear,
    band_hashes,
    bands_for,
    count_letters,
    hashes,
    other_script,
    script_of,
)

# A sentence of each script, from the first article of the Universal Declaration of Human Rights.
SENTENCES = {
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "ru": "Все люди рождаются свободными и равными в своём достоинстве.",
    "ar": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق",
    "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता",
    "ko": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である",
    "zh": "人人生而自由，在尊严和权利上一律平等",
}


def test_a_sentence_is_in_the_script_of_its_language_alone():
    sentences = [sentence.encode() for sentence in SENTENCES.values()]
    with_han = {"ja", "ko", "zh"}
    for number, language in enumerate(SENTENCES):
        letters, in_script = count_letters(sentences, script_of(language) or "")
        assert letters[number] == in_script[number] > 10
        for other_language, count in zip(SENTENCES, in_script, strict=True):
            if other_language != language and not {other_language, language} <= with_han:
                assert count == 0

    # Codes may have subtags.
    codes = "pt-BR DE sr-Latn sr_latn_RS sr zh-Hant zh_CN rus swh zho_Hans xx".split()
    assert [*map(script_of, codes)] == [
        *(*["Latn"] * 4, "Cyrl", "Hant", "Hani", "Cyrl", "Latn", "Hans", None)
    ]
    assert script_of("") is None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=20), min_size=1))
def test_letters_are_counted_as_unicode_does(texts):
    letters, in_script = count_letters([text.encode() for text in texts], "Latn")
    expected = [sum(unicodedata.category(c).startswith("L") for c in text) for text in texts]
    assert letters.tolist() == expected and (in_script <= letters).all()


def test_letters_of_several_scripts_or_of_none():
    sentences = [text.encode() for text in ("5 µg", "ـ", "ー", "A・ー")]
    for script, expected in (
        ("Latn", [2, 0, 0, 1]),
        ("Arab", [1, 1, 0, 0]),
        ("Jpan", [1, 0, 1, 1]),
    ):
        assert count_letters(sentences, script)[1].tolist() == expected

    # Their share in the script decides.
    sentences = [text.encode() for text in ("abcж", "abжж", "aжжж", "12 ?!", "日本", "é ñ", "")]
    dropped = other_script(sentences, "Latn", 0.5)
    assert dropped.tolist() == [False, False, True, False, True, False, False]
    assert not other_script(sentences, "Latn", 0.0).any()
    assert not other_script([], "Latn", 0.5).any()


KEYS = (
    st.integers(0, 40)
    | st.integers(0, 2**64 - 1)
    | st.builds(lambda n: n << 20, st.integers(0, 40))
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(KEYS, max_size=50), max_size=5))
def test_it_is_a_set(batches):
    seen, reference = Seen(), set()
    for batch in batches:
        expected = []
        for key in batch:
            expected.append(key not in reference)
            reference.add(key)
        assert seen.add(np.array(batch, np.uint64)).tolist() == expected


def test_it_grows_in_few_arrays():
    keys = np.random.default_rng(1).integers(1, 2**64, 300_000, np.uint64)
    seen = Seen()
    for part in np.split(keys, 30):
        assert seen.add(part).all()
    assert not any(seen.add(part).any() for part in np.split(keys[::-1], 50))
    assert sum(known.nbytes for known in seen._sorted) == 8 * len(keys)
    assert len(seen._sorted) <= 6


def test_texts_are_equal_but_for_blanks_at_the_ends():
    pairs = [(b"a", b"b"), (b" a", b"b\t"), (b"ab", b""), (b"", b"ab"), (b"b", b"a"), (b"a b", b"")]
    digests = hashes(pairs)
    assert digests[0] == digests[1] and len(set(digests.tolist())) == 5
    # The same in every process and on every machine.
    digest = hashlib.blake2b(b"a\0b", digest_size=8).digest()
    assert hashes([(b"a", b"b")]).tolist() == [int.from_bytes(digest, "little")]


def test_similar_pairs_share_a_band_as_often_as_the_formula_says():
    """With similarities computed from the sets themselves."""
    random, letters = np.random.default_rng(1), np.array([*"abcdefghij"])

    def ngrams(text):
        return {text[start : start + 5] for start in range(len(text))}

    texts, similarities = [], []
    for changed in random.integers(1, 12, 3000):
        text = random.choice(letters, 121)
        text[60] = "|"
        similar = text.copy()
        similar[random.choice(np.r_[:60, 61:121], changed)] = "K"
        texts += ["".join(text), "".join(similar)]
        a, b = (ngrams(text.lower()) for text in texts[-2:])
        similarities.append(len(a & b) / len(a | b))
    pairs = [tuple(text.encode().split(b"|")) for text in texts]
    s = np.array(similarities)
    for threshold in (0.5, 0.8, 0.9):
        bands, rows = bands_for(threshold)
        bands_of_pairs = band_hashes(pairs, threshold)
        assert bands_of_pairs.shape == (6000, bands) and bands * rows <= 128
        shared = (bands_of_pairs[::2] == bands_of_pairs[1::2]).any(axis=1)
        expected = 1 - (1 - s**rows) ** bands
        for low, high in itertools.pairwise((0.3, 0.5, 0.7, 0.8, 0.9, 1.0)):
            in_bin = (low <= s) & (s < high)
            assert abs(shared[in_bin].mean() - expected[in_bin].mean()) < 0.05
        assert 0.4 < 1 - (1 - threshold**rows) ** bands < 0.6
    assert [*map(bands_for, (0.8, 1e-3, 1 - 1e-9))] == [(10, 12), (128, 1), (1, 128)]


def test_what_is_no_matter_to_similarity():
    pairs = [(b"Das ist ein Haus .", "Où ?".encode()), (b" das ist EIN haus .", "où ?\n".encode())]
    pairs += [pairs[0][::-1], (b"", b"x")]
    bands = band_hashes(pairs, 0.9)
    assert (bands[0] == bands[1]).all() and not np.isin(bands[2:], bands[0]).any()
    assert (band_hashes(pairs[1:2], 0.9) == bands[1]).all()
    assert not band_hashes(pairs, 0.0).size


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=3), max_size=9)))
def test_a_pair_is_dropped_for_one_that_is_kept(batches):
    seen, kept_bands = SeenNear(), list[set[int]]()
    for batch in batches:
        expected = []
        for bands in batch:
            expected.append(all(earlier.isdisjoint(bands) for earlier in kept_bands))
            kept_bands += [set(bands)] * expected[-1]
        is_new = seen.add(np.array(batch, np.uint64).reshape(-1, 3))
        assert is_new.tolist() == expected
