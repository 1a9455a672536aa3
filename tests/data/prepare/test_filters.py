"""Scripts, of languages and of letters, and the set of pairs seen."""

import hashlib
import unicodedata

import numpy as np
from hypothesis import given, settings, strategies as st

from flaxformer_mt.data.prepare.filters import Seen, count_letters, hashes, other_script, script_of

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
    for number, language in enumerate(SENTENCES):
        letters, own = count_letters(sentences, script_of(language) or "")
        assert letters[number] == own[number] > 10
        for other, found in zip(SENTENCES, own, strict=True):
            # These three have Han characters in common.
            assert other == language or found == 0 or {other, language} <= {"ja", "ko", "zh"}
    # Codes may have subtags.
    codes = "pt-BR DE sr-Latn sr_latn_RS sr zh-Hant zh_CN xx".split()
    assert [*map(script_of, codes)] == [*["Latn"] * 4, "Cyrl", "Hant", "Hani", None]
    assert script_of("") is None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=20), min_size=1))
def test_letters_are_counted_as_unicode_does(texts):
    letters, own = count_letters([text.encode() for text in texts], "Latn")
    expected = [sum(unicodedata.category(c).startswith("L") for c in text) for text in texts]
    assert letters.tolist() == expected and (own <= letters).all()


def test_letters_of_several_scripts_or_of_none():
    sentences = [text.encode() for text in ("5 µg", "ـ", "ー", "A・ー")]
    for script, own in (("Latn", [2, 0, 0, 1]), ("Arab", [1, 1, 0, 0]), ("Jpan", [1, 0, 1, 1])):
        assert count_letters(sentences, script)[1].tolist() == own
    # Their share in the script decides.
    sentences = [text.encode() for text in ("abcж", "abжж", "aжжж", "12 ?!", "日本", "é ñ", "")]
    found = other_script(sentences, "Latn", 0.5)
    assert found.tolist() == [False, False, True, False, True, False, False]
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
    found = hashes(pairs)
    assert found[0] == found[1] and len(set(found.tolist())) == 5
    # The same in every process and on every machine.
    digest = hashlib.blake2b(b"a\0b", digest_size=8).digest()
    assert hashes([(b"a", b"b")]).tolist() == [int.from_bytes(digest, "little")]
