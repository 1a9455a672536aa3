"""Phrases that every translation has."""

import pickle
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.data import shortlist
from flaxformer_mt.data.shortlist import Shortlist
from flaxformer_mt.decoding.constraints.phrases import Phrase, spell_phrases
from flaxformer_mt.decoding.constraints.superstrings import shortest_texts, still_needed
from flaxformer_mt.decoding.constraints.symbols import continues_word
from flaxformer_mt.decoding.constraints.terminology import Terminology
from flaxformer_mt.decoding.errors import DecodingError, LineError
from flaxformer_mt.decoding.masks.base import Ban, MaskArrays
from flaxformer_mt.decoding.masks.forbidden import ForbiddenPhrases
from flaxformer_mt.decoding.run import shortlists
from flaxformer_mt.decoding.run.arrays import BatchFiller, Constraints, ConstraintSizes
from flaxformer_mt.decoding.search.banks import arranged
from flaxformer_mt.decoding.search.sampling import Sampling
from flaxformer_mt.decoding.search.settings import Rules, SearchNumbers
from flaxformer_mt.decoding.translator import Translator
from tests.decoding import reference
from tests.decoding.reference import Automaton
from tests.decoding.runs import LINES, PAIRS
from tests.decoding.test_search import assert_same, outputs_of, search_table, searched

Asked = list[tuple[tuple[int, ...], bool]]  # tokens, and whether the last word may go on


def has(tokens, asked: Asked, continues) -> bool:
    def one(phrase, may_go_on):
        size = len(phrase)
        ends = [n for n in range(size, len(tokens) + 1) if tuple(tokens[n - size : n]) == phrase]
        return any(may_go_on or tokens[n] not in continues for n in ends if n < len(tokens))

    return all(one(*asked_phrase) for asked_phrase in asked)


def search(automaton, limits, asked: list[Asked], continues, *, beam, length, n_best=1, **rules):
    types = np.arange(automaton.table.shape[-1])
    goes_on = np.isin(types, continues)
    constraints = [[Phrase(*phrase) for phrase in row] for row in asked]
    phrases = jax.tree.map(jnp.asarray, arranged(constraints, types, len(asked), goes_on))
    weights = SearchNumbers(np.float32(0.6), continues=jnp.asarray(goes_on))
    rules = Rules(beam_size=beam, n_best=n_best, **rules)
    limits = np.asarray(limits, np.int32)
    return searched(
        search_table(automaton.table, limits, weights, rules, length=length, phrases=phrases)
    )


@pytest.mark.parametrize("beam", [1, 2, 4, 6])
def test_all_constraints_are_met_in_all_drawn_cases(beam):
    """Of 250 rows each, also where the limit leaves room for nothing else."""
    rng, continues = np.random.default_rng(beam), (7, 8)
    automaton = Automaton(rng, rows=250, vocab=9, spread=2.0)
    rows, limits = [], []
    for _ in range(250):
        phrases = {}
        for _ in range(rng.integers(1, 4)):
            first, *following = rng.integers(3, 7), *rng.integers(3, 9, size=rng.integers(0, 3))
            phrases[tuple(map(int, (first, *following)))] = bool(rng.integers(2))
        rows.append(list(phrases.items()))
        limits.append(sum(map(len, phrases)) + 1 + int(rng.choice([0, 0, 1, 2, 5])))
    result = search(automaton, limits, rows, continues, beam=beam, length=16, n_best=beam)
    for row, (phrases, limit) in enumerate(zip(rows, limits, strict=True)):
        outputs = outputs_of(result, row)
        assert outputs
        for output in outputs:
            assert len(output.tokens) <= limit, (output, phrases)
            assert has(output.tokens, phrases, continues), (output, phrases)


def test_a_beam_with_fewer_places_than_banks_keeps_the_farthest():
    """Else phrases would wait until the limit leaves room for nothing else."""
    automaton = Automaton(np.random.default_rng(8), rows=3, vocab=9, spread=2.0)
    rows = [[((4, 5), True), ((3,), True)]] * 3
    result = search(automaton, [16] * 3, rows, (), beam=1, length=16)
    for row in range(3):
        assert sorted(outputs_of(result, row)[0].tokens[:3]) == [3, 4, 5]


def test_the_best_that_meet_them_are_found():
    automaton = Automaton(np.random.default_rng(5), rows=2, vocab=6, spread=1.0)
    phrases, continues = [((4, 5), False), ((3,), False)], (5,)
    every = reference.exhaustive(automaton, 0, limit=6, alpha=0.6)
    expected = [item for item in every if has(item.tokens, phrases, continues)]
    assert expected[0] != every[0]
    result = search(automaton, [6, 6], [phrases, []], continues, beam=128, length=6, n_best=4)
    assert_same(outputs_of(result, 0), expected[:4])
    # A row without any is searched as if it were alone.
    alone = reference.exhaustive(automaton, 1, limit=6, alpha=0.6)
    assert_same(outputs_of(result, 1), alone[:4])


@pytest.mark.parametrize("seed", range(3))
def test_phrases_that_overlap_share_their_tokens_at_the_limit(seed):
    """All outputs that have them at the tightest limit are found: of ("5") and ("5 6") with three
    tokens also "6 5 6"."""
    rng, continues = np.random.default_rng(seed), (5,)
    automaton = Automaton(rng, rows=12, vocab=6, spread=1.0)
    rows: list[Asked] = [[((4,), False), ((4, 3), False)], [((4, 4), False), ((4, 4, 4), True)]]
    while len(rows) < 12:
        phrases = {
            (int(rng.integers(3, 5)), *map(int, rng.integers(3, 6, rng.integers(3)))): bool(
                rng.integers(2)
            )
            for _ in range(rng.integers(2, 4))
        }
        rows.append(list(phrases.items()))
    expected, limits = [], []
    for row, phrases in enumerate(rows):
        fits = []
        for limit in range(2, 10):
            every = reference.exhaustive(automaton, row, limit=limit, alpha=0.6)
            fits = [output for output in every if has(output.tokens, phrases, continues)]
            if fits:
                break
        expected.append(fits[:4])
        limits.append(limit)
    result = search(automaton, limits, rows, continues, beam=64, length=9, n_best=4)
    for row, (phrases, limit) in enumerate(zip(rows, limits, strict=True)):
        needed = still_needed([Phrase(*e) for e in phrases], (), np.isin(np.arange(6), continues))
        assert needed == limit - 1, phrases
        assert_same(outputs_of(result, row), expected[row])


def test_more_overlapping_phrases_than_are_counted_together_are_met():
    phrases = [((3, 4, n), False) for n in (3, 4, 5, 6)] + [
        ((n, 3, 4), True) for n in (3, 4, 5, 6, 7)
    ]
    automaton = Automaton(np.random.default_rng(3), rows=2, vocab=9, spread=1.0)
    needed = still_needed([Phrase(*phrase) for phrase in phrases], (), np.zeros(9, bool))
    assert needed < 3 * len(phrases)
    result = search(automaton, [needed + 1, 40], [phrases, phrases[:5]], (8,), beam=4, length=40)
    assert has(outputs_of(result, 0)[0].tokens, phrases, (8,))
    assert has(outputs_of(result, 1)[0].tokens, phrases[:5], (8,))


def test_what_a_prefix_has_of_a_phrase_needs_no_more_room():
    phrases, continues = [Phrase((3, 4, 5), False)], np.array([False] * 6 + [True])
    for prefix, needed in (((), 3), ((3,), 2), ((4, 3, 4), 1), ((3, 4, 5), 0), ((3, 4, 5, 6), 3)):
        assert still_needed(phrases, prefix, continues) == needed
    assert shortest_texts([Phrase((3, 4), True), Phrase((4, 5), True)], continues)[3].tolist() == [
        3,
        4,
    ]


def test_translations_have_their_lines_constraints_and_terms(translator):
    terms = Terminology.of({"Small CAT": "katze", "dog": "hund"}, mode="soft")
    constraints = [["haus", "katze"], [], ["haus"], []]
    for changes in ({}, {"beam_size": 1}, {"beam_size": 2}):
        arguments = {
            "constraints": constraints,
            "terminology": terms,
            "forbid": ["die", "s"],
            "n_best": 1,
        }
        searcher = translator.with_config(max_extra_tokens=16, **changes)
        translations = searcher.translate(LINES, **arguments)
        for line, phrases, translation in zip(LINES, constraints, translations, strict=True):
            words = translation.text.split()
            assert set(phrases) <= set(words) and not {"die", "s"} & set(words)
            for term, stem in (("small cat", "kat"), ("dog", "hund")):
                if term in line:
                    assert any(word.startswith(stem) for word in words), (line, words)
    free = translator.translate(LINES)
    assert translator.translate(LINES, constraints=[["haus"], [], [], []])[1:] == free[1:]


SIZES = ConstraintSizes(4, 8, 64), ConstraintSizes(16, 32, 256)


@pytest.mark.parametrize(
    "wanted",
    [
        {"constraints": [["hund"], [], ["katze", "das haus"], []]},
        {"forbid": ["die", "haus"]},
        {"constraints": [["hund"]] * 4, "forbid_each": [["die"], [], ["haus", "katze"], []]},
        {"constraints": [["a"], ["b", "c", "d", "e", "hund"], [], []]},
        {},
    ],
)
def test_room_for_more_constraints_changes_nothing(translator, wanted):
    exact = translator.translate(LINES, n_best=2, **wanted)
    padded = translator.translate(LINES, n_best=2, constraint_sizes=SIZES, **wanted)
    assert [
        hypothesis.tokens for translation in padded for hypothesis in translation.hypotheses
    ] == [hypothesis.tokens for translation in exact for hypothesis in translation.hypotheses]


def test_overlapping_phrases_share_tokens_with_room_for_more_constraints(translator):
    """Where the limit leaves room only for a text in which they overlap."""
    phrases = ["das haus", "haus ist"]
    vocabulary = translator.vocabularies.tgt
    needed = still_needed(
        spell_phrases(phrases, vocabulary, soft=False, suppressed=()),
        (),
        continues_word(vocabulary),
    )
    tight = translator.with_config(max_ratio=0.0, max_extra_tokens=needed + 1)
    for sizes in SIZES:
        translation = tight.translate(LINES[0], constraints=[phrases], constraint_sizes=[sizes])
        assert translation.text == "das haus ist"


FORBIDDEN = ForbiddenPhrases(suppress=())


@pytest.mark.parametrize("states", [256, 10_000, 1 << 14])
def test_a_padded_table_has_the_type_that_was_compiled_for(translator, states):
    """Whatever type the request's own table has."""
    sizes = ConstraintSizes(4, 8, states)
    filler = BatchFiller(Rules(beam_size=2), 1, [sizes])
    types = translator.vocabularies.tgt.size
    shape = 1, 4
    empty = filler.empty(shape, types, sizes)
    for kind in (np.int16, np.int32):
        arrays = MaskArrays(np.zeros((1, 1), np.int32), np.zeros((8, types), kind))
        padded = filler._in_first_sizes(
            Constraints((Ban(FORBIDDEN, arrays),), None, None), types, shape
        )
        kind_of_table = padded.bans[0].arrays.shared.dtype
        assert kind_of_table == empty.mask_shared[0].dtype
        assert 4 * states <= np.iinfo(kind_of_table).max + 1


def test_what_has_no_room_is_refused(translator):
    few = [ConstraintSizes(1, 8, 8)]
    for constraints in ({"constraints": [["hund", "katze"]]}, {"forbid": ["haus", "hund"]}):
        with pytest.raises(DecodingError, match="at most 1 required phrases of 8 tokens"):
            translator.translate(LINES[:1], constraint_sizes=few, **constraints)


def test_a_line_with_too_many_required_phrases_is_named_before_any_batch(translator, monkeypatch):
    """A smaller batch would not help."""
    monkeypatch.setattr(BatchFiller, "fill", lambda *_: pytest.fail("a batch was begun"))
    five = "die kleine katze sieht einen".split()
    with pytest.raises(LineError, match="at most 4 required phrases of 8 tokens") as error:
        translator.translate(
            LINES,
            constraints=[five[:4], [], five, five],
            constraint_sizes=[ConstraintSizes(4, 8, 64)],
        )
    assert error.value.number == 2


def test_lines_that_have_room_alone_have_it_together(translator):
    """A batch whose phrases need a larger table than there is goes in halves."""
    forbidden = [["haus"], ["hund", "rennt"], ["wer", "sieht"], ["schlafen"]]
    sizes = [ConstraintSizes(1, 8, 16)]
    apart = [
        translator.translate([line], forbid_each=[phrases], constraint_sizes=sizes)[0]
        for line, phrases in zip(LINES, forbidden, strict=True)
    ]
    together = translator.translate(LINES, forbid_each=forbidden, constraint_sizes=sizes)
    assert [translation.tokens for translation in together] == [
        translation.tokens for translation in apart
    ]


def test_a_shortlist_has_the_types_of_all_constraints(translator, monkeypatch):
    monkeypatch.setattr(shortlists, "LEAST_TYPES", 8)
    monkeypatch.setattr(shortlist, "FREQUENT", 1)
    src, tgt = translator.vocabularies.src.size, translator.vocabularies.tgt.size
    known = Shortlist(np.full((src, 1), 5), np.arange(tgt)[::-1], "")
    shortened = Translator(
        translator.params,
        translator.model,
        translator.vocabularies,
        translator.config,
        shortlist=known,
    )
    constraints = [[target] for _, target in PAIRS]
    translations = shortened.with_config(max_extra_tokens=24).translate(
        LINES, constraints=constraints
    )
    for phrases, translation in zip(constraints, translations, strict=True):
        assert phrases[0] in translation.text


def test_what_cannot_be_met_is_an_error(translator, tmp_path):
    def refused(message, number=1, **given):
        with pytest.raises(LineError, match=message) as error:
            translator.with_config(max_extra_tokens=2).translate(LINES, **given)
        assert error.value.number == number

    refused("its constraints take .* tokens, but", constraints=[[], ["katze " * 20], [], []])
    refused("cannot spell", constraints=[[], ["Ω"], [], []])
    refused("is blank", constraints=[[], [" "], [], []])
    constraints = [["a"]] * 4
    for config, search in (({}, {"sampling": Sampling()}), ({"no_repeat_ngram": 2}, {})):
        with pytest.raises(DecodingError, match="need plain beam search and can't have"):
            translator.with_config(**config).translate(LINES, constraints=constraints, **search)
    # Also where no line has a term: a later one may.
    with pytest.raises(DecodingError, match="can't have sampling"):
        rare = Terminology.of({"zebra": "zebra"})
        translator.translate(LINES, terminology=rare, sampling=Sampling())
    path = tmp_path / "terms.tsv"
    path.write_text("dog\thund\nDog\tkatze\n")
    with pytest.raises(DecodingError, match=r"terms.tsv:2: the term 'Dog' already has"):
        Terminology.read(path)
    path.write_text("\ndog\n")
    with pytest.raises(DecodingError, match=r"terms.tsv:2: must be a term, a tab and"):
        Terminology.read(path)


def test_only_a_line_feed_ends_a_line_of_a_terminology(tmp_path):
    path = tmp_path / "terms.tsv"
    for inside in "\x85\u2028\f\x1e":
        path.write_bytes(f"big{inside}dog\thund{inside}e\r\n\r\n \t\ncat\tkatze".encode())
        assert {*Terminology.read(path).terms.values()} == {f"hund{inside}e", "katze"}


def test_terms_are_whole_words_of_any_case_the_longest_first():
    known = {"old": "alt", "house": "haus", "Old  House": "altes haus", "東京": "tokio"}
    terms = Terminology.of(known)
    assert terms.translations("The old house, a HOUSE; houses.") == ["altes haus", "haus"]
    assert terms.translations("私は東京です") == ["tokio"]


def test_terms_that_no_translation_can_have_are_named_before_a_line_has_them(translator, tmp_path):
    path = tmp_path / "terms.tsv"
    piece = translator.vocabularies.tgt.pieces(translator.vocabularies.tgt.encode(["hund"])[0])[0]
    for line, arguments, message in (
        ("zebra\tΩ", {}, "cannot spell the constraint 'Ω'"),
        ("zebra\t\u200b", {}, "cannot spell the constraint"),
        ("zebra\thund", {"suppress": piece}, "the suppressed piece .* is part of"),
        ("zebra\tein hund .", {"forbid": "hund"}, "'ein hund .' has a forbidden phrase"),
        ("zebra\t" + "katze " * 40, {}, "takes [0-9]+ tokens, but the model writes at most 31"),
    ):
        path.write_text(f"cat\tkatze\n\n{line}\n")
        with pytest.raises(DecodingError, match=rf"terms.tsv:3: .*{message}"):
            translator.translate([], terminology=Terminology.read(path), **arguments)


def test_a_soft_term_may_lengthen_a_forbidden_word(translator):
    terms = {"zebra": "hund"}
    translator.translate([], terminology=Terminology.of(terms, mode="soft"), forbid=["hund"])
    with pytest.raises(DecodingError, match="'hund' has a forbidden phrase"):
        translator.translate([], terminology=Terminology.of(terms), forbid=["hund"])


def test_a_blank_line_with_constraints_has_an_empty_translation(translator):
    lines = ["", LINES[0], " \u200b"]
    blank, full, also_blank = translator.translate(lines, constraints=[["hund"]] * 3)
    assert (blank.text, also_blank.text) == ("", "") and "hund" in full.text.split()


def test_terms_and_phrases_match_canonically_equivalent_text(translator):
    composed, decomposed = "gro\u00dfes caf\u00e9", "gro\u00dfes cafe\u0301"
    for term, source in (
        (composed, decomposed),
        (decomposed, composed),
        ("CAFE\u0301", "caf\u00e9"),
    ):
        assert Terminology.of({term: "haus"}).translations(f"ein {source}!") == ["haus"]
    # Marks in any order that means the same.
    assert Terminology.of({"\u1ead": "x"}).translations("a\u0302\u0323") == ["x"]

    # Another letter is no equivalent, also in a script without blanks.
    for term, source in (("cafe", decomposed), ("cafe", composed), ("\u304b", "\u304b\u3099")):
        assert Terminology.of({term: "x"}).translations(source) == []
    with pytest.raises(DecodingError, match="already has the translation 'a'"):
        Terminology.of({composed: "a", decomposed: "b"})


def test_constraints_are_spelled_in_the_form_that_the_vocabulary_knows(translator):
    """It has ä and ß, but no combining diaeresis."""
    for written in ("schl\u00e4ft", "schla\u0308ft"):
        (translation,) = translator.translate(LINES[:1], constraints=[[written]])
        assert "schl\u00e4ft" in translation.text.split()
        terms = Terminology.of({"cat": written})
        assert translator.translate(LINES[:1], terminology=terms) == [translation]


def test_many_and_long_terms_are_found_in_little_time():
    """The words of a term are read once, however many terms there are and however long."""
    many = Terminology.of({f"word {n} {n % 7}": f"wort {n}" for n in range(100_000)})
    lines = [f"a word {n} {n % 7} and a word {n} 9" for n in range(50)]
    many.translations("x")  # builds the tree
    begun = time.perf_counter()
    assert [many.translations(line) for line in lines] == [[f"wort {n}"] for n in range(50)]
    assert (time.perf_counter() - begun) / len(lines) < 1e-3
    long = Terminology.of({"a " * 500 + "b": "lang", "a": "kurz"})
    begun = time.perf_counter()
    assert long.translations("a " * 499 + "b") == ["kurz"] * 499
    assert long.translations("a " * 501 + "b") == ["kurz", "lang"]
    assert time.perf_counter() - begun < 0.5


def test_a_terminology_travels_to_another_process_without_what_it_keeps(translator):
    terms = Terminology.of({"dog": "hund"})
    before = len(pickle.dumps(terms))
    translator.translate(LINES, terminology=terms)
    assert len(pickle.dumps(terms)) == before and pickle.loads(pickle.dumps(terms)) == terms
