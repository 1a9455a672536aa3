"""Word alignments from attention: words and pieces, Pharaoh's form, lines in parts."""

import dataclasses

import numpy as np
import pytest

from flaxformer_mt.config import VocabularyConfig
from flaxformer_mt.data import vocabulary
from flaxformer_mt.data.type_table import MARKS, TypeTable
from flaxformer_mt.data.vocabulary import EOS, Vocabularies, Vocabulary
from flaxformer_mt.decoding import alignment
from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.decoding.errors import OverlongError
from flaxformer_mt.decoding.teacher_forcing import TeacherForcing
from flaxformer_mt.decoding.text.segments import Part, source_pieces
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.model.transformer import Transformer
from tests.decoding.examples import forcing
from tests.decoding.runs import LINES, LONG, PAIRS, parameters


def word_numbers(pieces) -> list[int]:
    """The word of each piece: one that begins with the sign for a blank begins a word."""
    numbers: list[int] = []
    for piece in pieces:
        numbers.append((numbers[-1] if numbers else -1) + piece.startswith("\u2581"))
    return numbers


def test_pieces_are_summed_to_words_and_the_largest_is_taken(translator):
    for (source, target), aligned in zip(PAIRS, translator.align(PAIRS, layer=0), strict=True):
        attention = translator.attend(source, target)
        weights = attention.cross[0].mean(axis=0)[:-1, :-1]
        src, tgt = word_numbers(attention.src_pieces[:-1]), word_numbers(attention.tgt_pieces[:-1])
        assert max(np.bincount(src)) > 1 and max(np.bincount(tgt)) > 1
        sums = np.zeros((tgt[-1] + 1, src[-1] + 1))
        for i, j in np.ndindex(*weights.shape):
            sums[tgt[i], src[j]] += weights[i, j]
        assert aligned.src_words == tuple(source.split())
        assert aligned.tgt_words == tuple(target.split())
        assert [word for _, word in aligned.links] == list(range(len(sums)))
        for source_word, word in aligned.links:
            # Of equal ones, which an untrained model has, any will do.
            assert sums[word, source_word] == pytest.approx(sums[word].max(), abs=1e-6)
        assert str(aligned) == " ".join(f"{a}-{b}" for a, b in sorted(aligned.links))


@pytest.fixture(scope="module")
def deep(translator):
    """A model of three layers."""
    three = dataclasses.replace(translator.model.config, decoder_layers=3)
    model = Transformer(three, 60, 60)
    return Translator(parameters(model, 3), model, translator.vocabularies, translator.config)


def test_one_layer_may_decide(deep):
    by_layer = [deep.align(PAIRS, layer=layer) for layer in range(3)]
    assert by_layer[1] != by_layer[0] and deep.align(PAIRS) not in by_layer
    with pytest.raises(ValueError, match="the decoder has layers 0 to 2"):
        deep.align(PAIRS, layer=3)


def test_all_layers_decide_by_their_sharpness(deep):
    """The lower layers' rows belong to the token before, and sharp heads count more."""
    parts = [part for (part,) in deep._cut_pairs(PAIRS, "refuse")]
    forced = deep._forcing("weights need").aligning_weights(parts)
    for (source, target), weights in zip(PAIRS, forced, strict=True):
        cross = deep.attend(source, target).cross.astype(np.float64)
        entropies = -(cross * np.log(cross)).sum(axis=-1).mean(axis=-1)
        sharpness = (0.1 + entropies) ** -2
        heads = sharpness[:, :, None, None] * cross
        # Of three layers, the first is the lower half.
        expected = heads[0, :, 1:].sum(axis=0) + heads[1:, :, :-1].sum(axis=(0, 1))
        assert weights[:-1] == pytest.approx(expected / sharpness.sum(), abs=1e-5)


def test_a_word_that_all_attend_to_does_not_get_all():
    """Balanced weights: what is most of a column counts more than what is most of a row."""
    weights = np.array([[0.4, 0.0, 0.6], [0.0, 0.4, 0.6], [0.1, 0.1, 0.8]])
    assert weights.argmax(axis=1).tolist() == [2, 2, 2]
    balanced = alignment._balanced(weights)
    assert balanced.argmax(axis=1).tolist() == [0, 1, 2]
    assert np.isfinite(alignment._balanced(np.zeros((2, 3)))).all()


@pytest.fixture
def diagonal(monkeypatch):
    """Piece n of a translation attends to piece n of its source, and to the last after that."""

    def weights(self, parts):
        for part in parts:
            rows, columns = len(part.tgt) + 1, len(part.src) + 1
            yield np.eye(columns)[np.minimum(np.arange(rows), columns - 1)]

    monkeypatch.setattr(TeacherForcing, "aligning_weights", weights)


def test_words_of_characters_of_several_bytes_and_odd_blanks(translator, diagonal):
    """One byte a piece: a word is that of its bytes, whatever stands between words."""
    config = VocabularyConfig(size=300, byte_fallback=True, character_coverage=0.98)
    pair = vocabulary.train_pair(PAIRS * 5, config)
    model = Transformer(translator.model.config, pair.src.size, pair.tgt.size)
    spelling = Translator(parameters(model, 0), model, pair, translator.config)
    for line in ("ä 🙂 x", "x  ä\u3000b", " \u2009é\xa0z ", "a\u0085b"):
        (alignment,) = spelling.align([(line, line)])
        assert alignment.src_words == alignment.tgt_words == tuple(line.split())
        assert alignment.links == tuple((n, n) for n in range(len(line.split())))
        assert spelling.align([(line, pair.tgt.encode([line])[0])])[0].links == alignment.links


def test_letters_of_scripts_without_blanks_may_be_words(translator, diagonal):
    config = VocabularyConfig(size=300, byte_fallback=True, character_coverage=0.98)
    pair = vocabulary.train_pair(PAIRS * 5, config)
    model = Transformer(translator.model.config, pair.src.size, pair.tgt.size)
    spelling = Translator(parameters(model, 0), model, pair, translator.config)
    line = "ab 中文x。 กี q"
    (alignment,) = spelling.align([(line, line)], letters=True)
    assert alignment.src_words == alignment.tgt_words == ("ab", "中", "文", "x。", "ก\u0e35", "q")
    assert alignment.links == tuple((n, n) for n in range(6))
    assert spelling.align([(line, line)])[0].src_words == tuple(line.split())


@pytest.fixture(scope="module")
def imported(translator):
    """As imported models are: the same pieces under other ids, with a language code."""
    vocabularies = translator.vocabularies
    pair = Vocabularies(
        *(
            Vocabulary(side.model, TypeTable((*MARKS, ">>deu<<", *reversed(side.pieces()[4:]))))
            for side in (vocabularies.src, vocabularies.tgt)
        )
    )
    model = Transformer(translator.model.config, pair.src.size, pair.tgt.size)
    return Translator(parameters(model, 0), model, pair, translator.config)


def test_words_of_a_vocabulary_with_a_table(translator, imported, diagonal):
    pair = imported.vocabularies
    for line, expected in zip(
        LINES, translator.align([(line, line) for line in LINES]), strict=True
    ):
        for target in (line, pair.tgt.encode([line])[0]):
            (alignment,) = imported.align([(line, target)])
            assert alignment == expected
    (coded,) = imported.align([(">>deu<< a dog", ">>deu<< a dog")])
    assert str(coded) == "0-0 1-1 2-2" and coded.src_words == (">>deu<<", "a", "dog")
    every = list(range(3, pair.tgt.size))
    assert len(imported.align([(LINES[0], every[:20])])[0].tgt_words) > 1


def test_each_part_of_a_long_line_has_its_language_code(imported, diagonal):
    src = imported.vocabularies.src
    lead, pieces, sources = source_pieces(f">>deu<< {LONG}", src, imported.max_length)
    assert lead == ">>deu<<" and len(pieces) > 1
    assert {tokens[0] for tokens in sources} == {4}, "the code"
    assert " ".join(piece.text for piece in pieces) == LONG
    lines = [f">>deu<< {LONG}", *(lead + piece.text for piece in pieces)]
    joined, *alone = (answer.hypotheses[0] for answer in imported.translate(lines))
    assert joined.tokens == tuple(
        token
        for number, part in enumerate(alone)
        for token in ((EOS,) * (number > 0) + part.tokens)
    )
    (scored,) = imported.score([(f">>deu<< {LONG}", joined.tokens)], overlong="split")
    assert scored.log_prob == pytest.approx(joined.log_prob, abs=1e-4)
    for target in (joined.tokens, LONG):
        (aligned,) = imported.align([(f">>deu<< {LONG}", target)])
        assert aligned.src_words == (">>deu<<", *LONG.split())
        links = aligned.links
        assert links and all(src > 0 for src, _ in links), "the code is no part's text"


def test_a_line_in_parts_has_words_counted_through(translator, diagonal):
    # A part of more tokens than its source's would have words that the diagonal doesn't reach.
    (translation,) = translator.with_config(max_extra_tokens=0).translate([LONG])
    assert translation.split
    for target in (translation.text, translation.tokens, LONG):
        (alignment,) = translator.align([(LONG, target)])
        assert alignment.src_words == tuple(LONG.split())
        text = translation.text if target is translation.tokens else target
        words = text if isinstance(text, str) else translation.text
        assert alignment.tgt_words == tuple(words.split())
        assert [tgt for _, tgt in alignment.links] == list(range(len(alignment.tgt_words)))
    # Each part is aligned within itself: the same text with itself word for word.
    assert alignment.links == tuple((n, n) for n in range(len(LONG.split())))
    with pytest.raises(OverlongError):
        translator.align([(LONG, LONG)], overlong="refuse")


def test_a_document_in_one_line_needs_no_matrix_of_its_words(translator, diagonal):
    """Of 60,000 by 60,000 words it would take 29 GB."""
    text = "the small cat sees a big dog ."
    count = 7500
    ids = tuple(translator.vocabularies.src.encode(text))
    part = Part(src_text=text, src=ids, tgt_text=text, tgt=ids, glue=" ")
    line = " ".join([text] * count)
    both = dataclasses.replace(translator.vocabularies, tgt=translator.vocabularies.src)
    forced = forcing(translator.model, translator.params)
    (aligned,) = alignment.align_parts(forced, both, [(line, line, [part] * count)])
    assert aligned.links == tuple((word, word) for word in range(8 * count))


def test_a_word_in_two_parts_has_one_link(translator):
    word = "cat" * 40
    (alignment,) = translator.align([(word, word)])
    assert alignment == Alignment(src_words=(word,), tgt_words=(word,), links=((0, 0),))


def test_what_is_blank_has_no_links(translator):
    pairs = [("", ""), ("a dog", ""), ("", "hund")]
    assert [str(alignment) for alignment in translator.align(pairs)] == [""] * 3
