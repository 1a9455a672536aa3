"""What outputs keep of their sources is there exactly as often, whatever the model says."""

import dataclasses
import random
import time

import pytest

from flaxformer_mt.config import ConfigError, default_config, freeze
from flaxformer_mt.data import vocabulary
from flaxformer_mt.data.training_text import TrainingText
from flaxformer_mt.decoding.alignment import Alignment, words_of
from flaxformer_mt.decoding.constraints.terminology import Terminology
from flaxformer_mt.decoding.errors import DecodingError, LineError
from flaxformer_mt.decoding.keeping import Keeping, unmarked
from flaxformer_mt.decoding.search.sampling import Sampling
from flaxformer_mt.decoding.text.kept import Restorer, units, unknown_words
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.keeping.marks import MARK, MarkedLine, marked
from flaxformer_mt.model.transformer import Transformer
from tests.decoding.runs import LINES, PAIRS, config, parameters

KEPT = (
    *(
        "{name}",
        "{0}",
        "%s",
        "%1$s",
        "https://example.org/a?b=1&c",
        "me@example.org",
        "🙂",
        "👩‍👩‍👧",
    ),
    *("{n, plural, one {a dog. It sees {x}!} other {# dogs}}", "${x}", "{{y}}"),
)
WORDS = [*"the small cat sees a big dog runs home who old house ? do not ! , .".split(), "5", "…"]


def translator_of(*, seed=1, **arguments):
    """A model that nobody has trained. Its vocabulary spells some of what is kept, so that it says
    such things of its own."""
    settings = config()
    of_pieces = dataclasses.replace(settings.data.vocabulary, size=90, soft_size=True)
    pairs = [*PAIRS * 5, *[("{name} sees %s", "{name} sieht %s {0}")] * 5]
    vocabularies = vocabulary.train_pair(pairs, of_pieces, tags=["<2de>"])
    model = Transformer(settings.model, vocabularies.src.size, vocabularies.tgt.size)
    translator = Translator(
        parameters(model, seed), model, vocabularies, settings.decoding, tags=["<2de>"], **arguments
    )
    return translator.with_config(keep=True)


@pytest.fixture(scope="module")
def translator():
    return translator_of(src_lang="en", tgt_lang="de")


def random_line(rng):
    words = rng.choices([*WORDS, *KEPT], k=rng.randrange(1, 16))
    line = "".join(rng.choice(["", " ", " ", " ", ". ", "? A"]) + word for word in words)
    return rng.choice(["", "", "", "<2de> "]) + line.strip()


def assert_kept(lines, translations):
    for line, translation in zip(lines, translations, strict=True):
        source = marked(line, lead="<2de> ")
        for hypothesis in translation.hypotheses:
            for core in source.cores:
                expected = sum(kept.count(core) for kept in source.kept)
                assert hypothesis.text.count(core) == expected, (line, hypothesis.text)
            assert hypothesis.text.count(MARK) == line.count(MARK)


@pytest.mark.parametrize(
    "wanted",
    [
        {"n_best": 3},
        {"n_best": 2, "mbr": True},
        {"n_best": 3, "sampling": Sampling(temperature=2.0)},
        {"prefixes": "ein hund"},
        {"terminology": Terminology.of({"dog": "ein hund", "cat": "die katze"})},
        {"several": "split"},
    ],
    ids=["n-best", "mbr", "samples", "prefix", "terms", "sentences"],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_kept_text_is_there_exactly_as_often(translator, seed, wanted):
    rng = random.Random(seed)
    lines = [random_line(rng) for _ in range(60)]
    translations = translator.translate(lines, **wanted)
    assert_kept(lines, translations)
    prefix = wanted.get("prefixes", "")
    assert all(one.text.startswith(prefix) for one in translations)


def test_of_lines_in_parts_too():
    alone = translator_of(src_lang="en", tgt_lang="de", training_text=TrainingText(1, 1.0))
    rng = random.Random(3)
    lines = [" ".join(random_line(rng) for _ in range(4)).replace("<2de> ", "") for _ in range(20)]
    translations = alone.translate(lines, n_best=2)
    assert any(translation.split for translation in translations)
    assert any(translation.by_sentence for translation in translations)
    assert_kept(lines, translations)


def test_the_model_says_kept_texts_of_its_own(translator):
    """Without this, the tests above wouldn't see whether these are removed."""
    lines = [f"{word} {{name}} sees %s" for word in WORDS]
    texts = [one.text for one in translator.with_config(keep=False).translate(lines)]
    assert any(text.count("%s") != 1 or text.count("{name}") != 1 for text in texts)


@pytest.mark.parametrize(
    "line", ["1,234.56", "…", "🙂", "https://example.org/?a", "{a} - {b} (5 %)"]
)
def test_lines_without_text_do_not_reach_the_model(translator, line):
    (plain, tagged) = translator.translate([line, f"<2de> {line}"])
    assert plain.text == tagged.text == line
    assert plain.tokens == ()
    assert translator.translate([line], prefixes="ein")[0].text == f"ein {line}"


def test_other_lines_are_translated_as_ever(translator):
    plain = translator.with_config(keep=False)
    assert translator.translate(LINES, n_best=3) == plain.translate(LINES, n_best=3)
    assert translator._decoder is not None
    # One search serves both.
    assert translator._decoders is plain._decoders
    assert len({id(kept.decoder) for kept in translator._decoders.values()}) == len(
        translator._decoders
    )


def test_kept_text_changes_nothing_else(translator):
    kept, plain = translator.translate(["the cat {name} sees a dog .", "the cat sees a dog ."])
    assert kept.text.replace("{name}", "").split() == plain.text.split()
    assert kept.tokens == plain.tokens
    assert kept.score == pytest.approx(plain.score)


def test_scores_are_those_of_the_search(translator):
    rng = random.Random(4)
    lines = [random_line(rng) for _ in range(20)]
    translations = translator.translate(lines)
    pairs = [(line, one.tokens) for line, one in zip(lines, translations, strict=True)]
    by_tokens = translator.score(pairs, overlong="split")
    assert [one.score for one in by_tokens] == pytest.approx(
        [one.score for one in translations], abs=1e-4
    )
    source, text = "the cat {name} sees a dog .", "die katze {name} sieht"
    scored, plain = translator.score(
        [(source, text), (source.replace(" {name}", ""), text.replace(" {name}", ""))]
    )
    assert scored.log_prob == pytest.approx(plain.log_prob, abs=1e-5)


_ODD = [
    *(
        MARK,
        "猫",
        "は",
        "。",
        "！",
        "“",
        "”",
        "«",
        "»",
        "e\u0301",
        "\u200d",
        "\ufe0f",
        "\u2028",
        "\n",
    ),
    *(
        "\t",
        "\x85",
        "\u3000",
        "{",
        "}",
        "%",
        "@",
        "://",
        "www.",
        "'",
        "’s",
        "\0",
        "\U0010ffff",
        "①",
    ),
    *("5", "1,5", "#", "<2de> ", " ", " ", ". ", "? ", "! A"),
]


@pytest.mark.parametrize("languages", [("en", "de"), ("zh", "zh")], ids=str)
def test_odd_texts_lose_nothing_either(languages):
    src_lang, tgt_lang = languages
    alone = translator_of(src_lang=src_lang, tgt_lang=tgt_lang, training_text=TrainingText(1, 1.0))
    rng = random.Random(7)
    parts = [*KEPT, *WORDS, *_ODD]
    lines = ["".join(rng.choices(parts, k=rng.randrange(30))) for _ in range(120)]
    lines = [line.replace("<2de> ", "") for line in lines]
    translations = alone.translate(lines, n_best=2)
    assert_kept(lines, translations)
    pairs = [(line, one.tokens) for line, one in zip(lines, translations, strict=True)]
    scores = [one.score for one in alone.score(pairs, overlong="split")]
    assert scores == pytest.approx([one.score for one in translations], abs=1e-3)
    by_text = [(line, one.text) for line, one in zip(lines, translations, strict=True)]
    for aligned, (line, text) in zip(alone.align(by_text), by_text, strict=True):
        assert aligned.src_words == tuple(line.split())
        assert aligned.tgt_words == tuple(text.split())


def test_alignments_have_the_kept_words(translator):
    line = "the cat {name} sees https://example.org ."
    (translation,) = translator.translate([line])
    (alignment,) = translator.align([(line, translation.text)])
    assert alignment.src_words == tuple(line.split())
    assert alignment.tgt_words == tuple(translation.text.split())
    linked = {(alignment.src_words[src], alignment.tgt_words[tgt]) for src, tgt in alignment.links}
    assert ("{name}", "{name}") in linked
    assert len({tgt for _, tgt in alignment.links}) == len(alignment.links)
    (by_tokens,) = translator.align([(line, translation.tokens)])
    assert by_tokens.src_words == alignment.src_words


def test_alignment_of_kept_texts_of_several_words():
    source = MarkedLine(f"see {MARK}, {MARK}", ("{n, plural}", "🙂"))
    target = MarkedLine(f"{MARK} {MARK}: siehe", ("🙂", "{n, plural}"))
    aligned = unmarked(
        Alignment(src_words=("see", "x,", "x"), tgt_words=("x", "x:", "siehe"), links=((0, 2),)),
        source,
        target,
        words_of,
    )
    assert aligned.src_words == ("see", "{n,", "plural},", "🙂")
    assert aligned.tgt_words == ("🙂", "{n,", "plural}:", "siehe")
    assert aligned.links == ((3, 0), (1, 1), (2, 2), (0, 3))


def test_many_equal_kept_texts_are_found_again_at_once(translator):
    keeping = Keeping(translator.vocabularies, frozenset(), fixed=True, unknown=False)
    text = "dog {x} and {xy} " * 1000
    start = time.process_time()
    _, (target,) = keeping.marked_pairs([(text, text)])
    assert target.kept == ("{x}", "{xy}") * 1000
    assert target.restored() == text
    assert time.process_time() - start < 3  # cubic time takes half a minute


def test_only_as_many_are_kept_of_a_translation_as_its_source_has(translator):
    keeping = Keeping(translator.vocabularies, frozenset(), fixed=True, unknown=False)
    _, (target,) = keeping.marked_pairs([("dog {x}", "Hund {x} und {x}")])
    assert target.kept == ("{x}",) and target.text == f"Hund {MARK} und {{x}}"


def test_alignments_of_letters_have_the_kept_words(translator):
    (alignment,) = translator.align([("看{name}的猫", "die {name} katze")], letters=True)
    assert alignment.src_words == ("看", "{name}", "的", "猫")
    assert alignment.tgt_words == ("die", "{name}", "katze")
    assert (1, 1) in alignment.links


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"prefixes": "ein {name}"}, "'ein {name}' has '{name}', which is kept"),
        ({"constraints": [["{name}"]]}, "has '{name}', which is kept"),
    ],
)
def test_contradictions_are_refused(translator, wanted, message):
    with pytest.raises(LineError, match=message) as caught:
        translator.translate(["the {name} sees https://example.org"], **wanted)
    assert caught.value.number == 0


def test_forbidden_phrases_say_nothing_of_what_is_kept(translator):
    lines = ["the {name} sees https://example.org", "{name}", "13"]
    forbidding = translator.translate(lines, forbid=["name", "{name}", "example", "13", "hund"])
    for line, translation in zip(lines, forbidding, strict=True):
        assert all(word in translation.text for word in line.split()[1::2] or [line])


def test_words_that_are_both_copied_and_forbidden_are_refused(translator):
    copying = translator.with_config(copy_unknown=True)
    with pytest.raises(
        LineError, match="the forbidden phrase 'Łódź' is a word .* is copied"
    ) as caught:
        copying.translate(["the cat", "the Łódź {name} cat", "猫"], forbid=["name", "Łódź", "x"])
    assert caught.value.number == 1
    with pytest.raises(LineError, match="'猫' is a word"):
        copying.translate(["猫"], forbid_each=[["猫"]])


def test_required_phrases_of_a_line_without_text_are_refused(translator):
    with pytest.raises(LineError, match="is kept as it is, so its translation"):
        translator.translate(["the dog", "{name}"], constraints=[[], ["ein hund"]])


def test_required_phrases_stay_whole(translator):
    phrase = "einen großen hund"
    lines = [f"the {core} cat {core} sees a dog ." for core in ("{a}", "%s", "🙂")]
    for translation in translator.translate(lines, constraints=[[phrase]] * 3, n_best=3):
        assert all(phrase in hypothesis.text for hypothesis in translation.hypotheses)
    terms = Terminology.of({"cat": phrase})
    for translation in translator.translate(lines, terminology=terms):
        assert phrase in translation.text


def test_symbols_that_the_search_copies_stay_with_it():
    settings = config()
    of_pieces = dataclasses.replace(
        settings.data.vocabulary, size=90, soft_size=True, symbols=("{x}",)
    )
    vocabularies = vocabulary.train_pair(PAIRS * 5, of_pieces)
    model = Transformer(settings.model, vocabularies.src.size, vocabularies.tgt.size)
    translator = Translator(
        parameters(model, 1), model, vocabularies, settings.decoding, symbols=["{x}"]
    ).with_config(keep=True, copy_symbols=True)
    (translation,) = translator.translate(["the {x} cat sees {y} ."])
    (symbol,) = {*vocabularies.tgt.encode(["{x}"])[0]} - {*vocabularies.tgt.encode([""])[0]} & {
        number for number, piece in enumerate(vocabularies.tgt.pieces()) if piece == "{x}"
    }
    assert translation.tokens.count(symbol) == 1
    assert translation.text.count("{x}") == translation.text.count("{y}") == 1


def test_unknown_words_are_copied(translator):
    unknowing = translator.with_config(keep=False, copy_unknown=True)
    lines = ["the Łódź cat sees ελλάδα .", "猫", "{name} sees", "the cat sees a dog ."]
    texts = [one.text for one in unknowing.translate(lines)]
    assert texts[0].count("Łódź") == texts[0].count("ελλάδα") == 1
    assert texts[1] == "猫"
    plain = translator.with_config(keep=False)
    assert texts[2:] == [one.text for one in plain.translate(lines[2:])]


def test_unknown_words_are_whole_and_signs_alone(translator):
    text = "the “Łódź-cat” & 猫狗 dog"
    words = unknown_words(text, translator.vocabularies.src)
    found = [text[word.start : word.end] for word in words]
    assert found == ["“", "Łódź-cat", "”", "&", "猫", "狗"]
    assert unknown_words("", translator.vocabularies.src) == []


def test_trees_have_nothing_to_keep(translator):
    tree = default_config()
    tree.decoding.outputs = "trees"
    for name in ("keep", "copy_unknown"):
        with pytest.raises(
            ConfigError, match=f"'decoding.{name}' needs 'decoding.outputs' = 'text'"
        ):
            changed = default_config()
            changed.decoding.outputs = "trees"
            changed.decoding[name] = True
            freeze(changed, "tests")
    with pytest.raises(DecodingError, match="need outputs that are text"):
        translator.with_config(outputs="trees").translate(["the {x}"])


_SEES = ((0, 0), (1, 1), (2, 2), (3, 3))


@pytest.mark.parametrize(
    ("source", "target", "links", "restored"),
    [
        ("The dog sees {x}.", "Der Hund sieht.", _SEES, "Der Hund sieht {x}."),
        ("{x} sees the dog.", "Den Hund sieht.", ((0, 2), (1, 0), (2, 1)), "{x} Den Hund sieht."),
        ("The {x} dog sees.", "Der Hund sieht.", _SEES, "Der {x} Hund sieht."),
        ("I saw {x} today.", "Heute sah ich.", ((0, 2), (1, 1), (2, 0)), "Heute sah {x} ich."),
        ("Come here, {x}!", "Komm her!", _SEES[:2], "Komm her, {x}!"),
        ("Stop! {x} Go!", "Halt! Geh!", ((0, 0), (2, 2)), "Halt! {x} Geh!"),
        ("So true🙂 now", "Jetzt ist wahr", ((1, 2), (2, 0)), "Jetzt ist wahr🙂"),
        ("看{x}的书", "The book of", ((0, 2), (1, 2), (2, 1)), "The book of {x}"),
        ("The book {x}.", "那书。", ((0, 0), (1, 1)), "那书{x}。"),
        ("Go! {x}. It is.", "Geh! Es ist.", ((0, 0), (2, 3), (3, 2)), "Geh! {x}. Es ist."),
        ("Is {x} it?", "", (), "{x}"),
        ("a {x} {y} b", "a b", ((0, 0), (1, 1)), "a {x} {y} b"),
    ],
)
def test_kept_text_goes_where_its_neighbours_go(source, target, links, restored):
    assert Restorer(marked(source)).restored(target, links_of(source, links)) == restored


def test_what_attends_most_to_the_neighbours_decides():
    """Not what they attend to: the verb here reads all of the source."""
    attended = [(0, 0, [0.3, 0.1]), (1, 0, [0.4, 0.5]), (2, 0, [0.1, 0.2])]
    line = marked("the {x} dog")
    numbers = [(tgt, 0, [weights[0], 0.0, weights[1]]) for tgt, _, weights in attended]
    assert Restorer(line).restored("Der Hund schläft", numbers) == "Der {x} Hund schläft"
    # The shares of both neighbours count together.
    shares = [(0.4, 0.0), (0.0, 0.45), (0.6, 0.0), (0.0, 0.4), (0.0, 0.15)]
    both = [(tgt, 0, [left, 0.0, right]) for tgt, (left, right) in enumerate(shares)]
    assert Restorer(line).restored("a b c d e", both) == "a b c {x} d e"


def test_a_tag_is_no_word_of_the_line():
    line = marked("<2de> {x} sees", lead="<2de> ")
    numbers = [n for n, (start, _) in enumerate(units(line.text)) if start >= len("<2de> ")]
    links = [(2, numbers[1], [1.0])]
    assert Restorer(line).restored("Er sagt sieht", links) == "{x} Er sagt sieht"


def links_of(source, links):
    """Links of the source's words without what is kept, as attention to all its units."""
    text = marked(source).text
    places = [n for n, (start, end) in enumerate(units(text)) if text[start:end] != MARK]
    return [(tgt, places[src], [1.0]) for src, tgt in links]
