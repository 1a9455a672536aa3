"""Raw text in, raw text out: order, blank and overlong lines, odd characters, choice of weights."""

import copy
import dataclasses
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import jax
import numpy as np
import pytest

from flaxformer_mt.config import VocabularyConfig
from flaxformer_mt.data import vocabulary
from flaxformer_mt.data.vocabulary import EOS, Vocabularies
from flaxformer_mt.decoding import translator as module
from flaxformer_mt.decoding.errors import DecodingError, LineError, TargetError
from flaxformer_mt.decoding.options import SearchOptions
from flaxformer_mt.decoding.penalties import length_penalty
from flaxformer_mt.decoding.search.sampling import Sampling
from flaxformer_mt.decoding.text.decoded import Decoded
from flaxformer_mt.decoding.text.segments import split_to_fit
from flaxformer_mt.decoding.text.translation import chrf
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.parsing.linearization import rebuild, tokens_of
from flaxformer_mt.rundir.checkpoint_choice import (
    Chosen,
    average_checkpoints,
    chosen_weights,
    write_average,
)
from tests.decoding.examples import translate_ids
from tests.decoding.runs import LINES, LONG, MAX_LENGTH, PAIRS, make_run, parameters


def test_translates_what_the_search_finds(translator):
    config = dataclasses.replace(translator.config, beam_size=1)
    sources = [[*tokens, EOS] for tokens in translator.vocabularies.src.encode(LINES)]
    expected = translate_ids(translator.params, translator.model, sources, config)
    translations = translator.with_config(beam_size=1).translate(LINES)
    assert [list(t.tokens) for t in translations] == expected
    assert [t.text for t in translations] == translator.vocabularies.tgt.decode(expected)
    for translation in translations:
        best = translation.hypotheses[0]
        penalty = length_penalty(len(best.tokens) + 1, config.length_penalty)
        assert translation.score == best.score == pytest.approx(best.log_prob / penalty)
        assert len(translation.hypotheses) == 1 and not translation.split


@pytest.mark.parametrize("own", [False, True])
def test_a_parser_s_outputs_are_trees(translator, own):
    """Of random weights too, in any kind of search; cut sources give a tree for each piece.

    A parser of words says its source's own, round brackets as the Penn Treebank has them.
    """
    model, settings = translator.model.config, {"outputs": "trees", "max_extra_tokens": 30}
    if own:
        config = VocabularyConfig(size=276, byte_fallback=True, tgt_types="brackets")
        examples = [("dog", "(S (NP dog )NP )S"), ("a cat", "(X a cat )X")]
        pair, settings = (
            vocabulary.train_pair(examples, config),
            {"outputs": "trees", "max_ratio": 2.0},
        )
    else:
        words = vocabulary.train(["(S (NP DT )NP )S"], VocabularyConfig(), words=True)
        pair = Vocabularies(translator.vocabularies.src, words)
        model = dataclasses.replace(model, tie="target")
    model = Transformer(model, pair.src.size, pair.tgt.size)
    config = dataclasses.replace(translator.config, **settings)
    parser = Translator(parameters(model, 1), model, pair, config)
    lines = [*LINES, "\ta\u00a0b  c ", "", LONG, "(NP dog )S", "日本 (dog)", "dog ) ("]
    for search in ({}, {"n_best": 3}, {"sampling": Sampling(seed=2), "n_best": 3}):
        for line, translation in zip(lines, parser.translate(lines, **search), strict=True):
            for tokens in (tokens_of(hypothesis.text) for hypothesis in translation.hypotheses):
                assert not rebuild(tokens_of(line), tokens).repairs
                leaves = [token for token in tokens if token[0] not in "()"]
                written = line.replace("(", "-LRB-").replace(")", "-RRB-")
                assert leaves == tokens_of(written) or not own
    with pytest.raises(DecodingError, match="target vocabulary with brackets"):
        translator.with_config(outputs="trees").translate(LINES)


def test_order_is_kept_and_blank_lines_stay_blank(translator):
    blank = ["", "   ", "\t", "\u2581", "\u3000", "\xa0", "\u200b\ufeff \u2581\u2581"]
    odd = ["a\u0085b", "a\u2028dog", "🙂🙂", "עברית", "e\u0301 ﬁ ½", "\ufeffcat", "a\tb"]
    lines = [line for neighbours in zip(blank, odd, strict=True) for line in neighbours]
    translations = translator.translate(lines)
    assert [(t.text, t.score) for t in translations[::2]] == [("", 0.0)] * len(blank)
    alone = [translator.translate([line])[0] for line in odd]
    assert [t.tokens for t in translations[1::2]] == [t.tokens for t in alone]
    assert any(t.tokens for t in alone)
    assert all("\n" not in t.text and "\r" not in t.text for t in alone)
    assert translator.translate([]) == []
    with pytest.raises(DecodingError, match=r"'\\udcff dog' is not Unicode text"):
        translator.translate(["a cat", "\udcff dog"])


@pytest.mark.parametrize(
    "wanted",
    [
        {"forbid": "b\udcfc"},
        {"forbid": ["die", "b\udcfc"]},
        {"forbid_each": [["b\udcfc"], []]},
        {"suppress": ["b\udcfc"]},
        {"constraints": [[], ["b\udcfc"]]},
        {"prefixes": "b\udcfc"},
    ],
)
def test_phrases_that_are_not_unicode_are_refused(translator, wanted):
    with pytest.raises(DecodingError, match=r"'b\\udcfc' is not Unicode text"):
        translator.translate(LINES[:2], **wanted)


def test_a_line_break_spelt_in_bytes_does_not_break_the_line(translator, monkeypatch):
    config = VocabularyConfig(size=320, byte_fallback=True)
    pair = vocabulary.train_pair(PAIRS * 5, config)
    model = Transformer(translator.model.config, pair.src.size, pair.tgt.size)
    spelling = Translator(parameters(model, 0), model, pair, translator.config)
    pieces = pair.tgt.pieces()
    tokens = tuple(pieces.index(piece) for piece in ("<0x41>", "<0x0A>", "<0x0D>", "<0x42>"))
    said = [Decoded(tokens=tokens, log_prob=-1.0, score=-1.0, at_limit=False)]
    monkeypatch.setattr(
        module.BatchDecoder, "decode", lambda self, sources, **_: [said for _ in sources]
    )
    assert spelling.translate(["a dog"])[0].text == "A  B"


def test_a_long_line_is_translated_in_pieces(translator):
    encode = translator.vocabularies.src.encode
    assert len(encode([LONG])[0]) > MAX_LENGTH
    pieces = split_to_fit(LONG, lambda text: len(encode([text])[0]) < MAX_LENGTH)
    assert [piece.glue for piece in pieces] == [" "] * (len(pieces) - 1) + [""]
    translation, *parts = translator.translate([LONG, *(piece.text for piece in pieces)], n_best=2)
    assert translation.split and not any(part.split for part in parts)
    assert translation.text == " ".join(part.text for part in parts)
    joined = [token for part in parts for token in (*part.tokens, EOS)]
    assert translation.tokens == tuple(joined[:-1])  # an end mark between the parts
    best = translation.hypotheses[0]
    assert best.log_prob == pytest.approx(sum(part.hypotheses[0].log_prob for part in parts))
    length = sum(len(part.tokens) + 1 for part in parts)
    assert best.score == pytest.approx(best.log_prob / length_penalty(length, 0.6))
    assert translation.hypotheses[1].text == " ".join(part.hypotheses[1].text for part in parts)


def test_a_long_line_is_cut_at_every_sentence_end(translator, caplog):
    sentences = ["The cat sees Gen. Lee .", "A dog runs .", "Who sleeps ?", "They see ."] * 3
    together, *alone = translator.translate([" ".join(sentences), *sentences])
    assert together.split and together.sentences == 1
    assert together.text == " ".join(translation.text for translation in alone)
    assert not caplog.messages


def test_a_line_of_several_sentences_is_said(translator, caplog):
    lines = ["A dog .", "A dog . A cat .", "", "A dog runs ! Who ?"]
    together = translator.translate(lines, several="keep")
    assert [translation.sentences for translation in together] == [1, 2, 1, 2]
    assert not caplog.messages
    assert translator.translate(lines, first=7) == together
    (said,) = caplog.messages
    assert said.startswith("2 of 4 lines have several sentences, but the model may")
    assert said.endswith("counted from 0: 8, 10")
    list(translator.translate_lines([lines[1]] * 12, window=100))
    assert caplog.messages[-1].endswith("counted from 0: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...")


def test_sentences_end_as_the_run_s_source_language_has_them(translator):
    assert translator.src_lang == "en"
    line = "Der Hund . Er ; Sie ."
    greek = Translator(
        translator.params,
        translator.model,
        translator.vocabularies,
        translator.config,
        src_lang="el",
    )
    assert translator.translate(line, several="keep").sentences == 2
    assert greek.translate(line, several="keep").sentences == 3


def test_the_longest_line_that_fits_is_not_split(translator):
    line = "cat " * 5
    while len(translator.vocabularies.src.encode([line + "a "])[0]) + 1 <= MAX_LENGTH:
        line += "a "
    assert len(translator.vocabularies.src.encode([line])[0]) + 1 == MAX_LENGTH
    fits, long = translator.translate([line, line + "a "])
    assert (fits.split, long.split) == (False, True)
    # One unbroken word is cut as well.
    assert translator.translate(["cat" * 100])[0].split


def test_streaming_reads_no_further_than_its_window(translator):
    lines = [*LINES, "", *LINES, LINES[0]]
    read_lines = []

    def reading():
        for line in lines:
            read_lines.append(line)
            yield line

    greedy = translator.with_config(beam_size=1)
    stream = greedy.translate_lines(reading(), window=3)
    assert read_lines == []
    first = [next(stream) for _ in range(4)]
    assert len(read_lines) == 6
    assert [t.text for t in [*first, *stream]] == [t.text for t in greedy.translate(lines)]
    with pytest.raises(ValueError, match="window = 0"):
        translator.translate_lines(lines, window=0)


def has_weights_of(translator: Translator, seed: int) -> bool:
    expected = parameters(translator.model, seed)
    equal = jax.tree.map(np.array_equal, translator.params, expected)
    return all(jax.tree.leaves(equal))


@pytest.mark.parametrize(
    ("which", "step", "name"),
    [
        ("auto", 2, "best, step 2"),
        ("best", 2, "best, step 2"),
        ("latest", 3, "latest, step 3"),
        (1, 1, "step 1"),
    ],
)
def test_weights_are_chosen_by_name_or_step(run, which, step, name):
    loaded = Translator.load(run.path, which=which)
    assert has_weights_of(loaded, step) and loaded.name == name
    # What one process has chosen has the same name in another.
    chosen = json.loads(json.dumps(dataclasses.asdict(chosen_weights(run, which))))
    assert Translator.load(run.path, which=Chosen(**chosen)).name == name


def test_an_average_goes_before_the_latest_as_long_as_nothing_was_trained_since(tmp_path, caplog):
    run = make_run(tmp_path / "run", {1: None, 2: None})
    assert Translator.load(run.path).name == "latest, step 2"
    write_average(run, *average_checkpoints(run, 2))
    averaged = Translator.load(run.path)
    assert averaged.name == "average of steps 1, 2" and not has_weights_of(averaged, 2)
    assert not caplog.messages

    (run.checkpoints / "2").rename(run.checkpoints / "5")  # as if trained on
    for which, name in (("auto", "latest, step 5"), ("average", "average of steps 1, 2")):
        assert chosen_weights(run, which).name == name
        message = caplog.messages.pop()
        assert "of steps 1, 2, but the run is now at step 5; run `average` again" in message
        assert message.endswith(f"Using the weights '{name}'")


def test_what_does_not_belong_together_is_named(run, translator, tmp_path):
    small = vocabulary.train(["a b c"] * 3, VocabularyConfig(size=8))
    pair, model = Vocabularies(small, small), translator.model
    with pytest.raises(DecodingError, match="60 target types, but the target vocabulary has 8"):
        Translator(translator.params, model, pair, translator.config)
    copy = shutil.copytree(run.path, tmp_path / "run")
    text = (copy / "config.json").read_text()
    (copy / "config.json").write_text(text.replace('"d_model": 16', '"d_model": 32'))
    with pytest.raises(DecodingError, match="describe .* 'best, step 2' has .*restore"):
        Translator.load(copy)


def test_one_str_is_one_line_and_not_its_characters(translator):
    [alone] = translator.translate([LINES[0]], prefixes=["die katze"], suppress=["s"])
    assert translator.translate(LINES[0], prefixes="die katze", suppress="s") == alone
    assert translator.translate("").text == ""
    with pytest.raises(TypeError, match="for a single str use"):
        translator.translate_lines(LINES[0])


def test_a_pair_alone_or_texts_for_tokens_are_refused(translator):
    """Of two characters, a text would pass for a pair; digits would for tokens."""
    for ask in (translator.score, translator.align):
        assert len(ask(zip(LINES, LINES, strict=True))) == len(LINES)
        for pairs in ("ab", ("ab", "cd"), ["ab"], [("ab", "cd", "ef")]):
            with pytest.raises(TypeError, match=".source, translation. tuple"):
                ask(pairs)
    with pytest.raises(TargetError, match="must be a str or a sequence of token ids"):
        translator.attend("ab", ["4", "5"])


def test_a_translation_begins_with_its_prefix(translator):
    prefixes = ["die katze", "", "wer", "sie schlafen"]
    translations = translator.translate(LINES, prefixes=prefixes)
    for prefix, translation in zip(prefixes, translations, strict=True):
        [tokens] = translator.vocabularies.tgt.encode([prefix])
        assert list(translation.tokens[: len(tokens)]) == tokens
    # Beside a prefix another program decodes: XLA rounds its sums otherwise.
    alone = translator.translate(LINES[1])
    assert translations[1].tokens == alone.tokens
    assert translations[1].score == pytest.approx(alone.score, abs=1e-5)


def test_of_a_line_that_is_cut_the_first_piece_begins_with_the_prefix(translator):
    [split] = translator.translate([LONG], prefixes=["die katze"])
    assert split.split and split.text.startswith("die katze")


def test_a_prefix_that_cannot_be_is_refused_with_its_line(translator):
    with pytest.raises(LineError, match=r"has a prefix of \d+ tokens, but .* at most \d+") as why:
        translator.translate(["", LONG, LINES[2]], prefixes=["x", "", PAIRS[1][1] * 3])
    assert why.value.number == 2

    # Forced as the unknown token, it would begin nothing that was asked for.
    prefixes = ["漢", "die 漢字 ☃ katze", "wer"]
    message = r"'die 漢字 ☃ katze', but .* cannot spell '漢字', '☃'"
    with pytest.raises(LineError, match=message) as why:
        translator.translate(["", *LINES[:2]], prefixes=prefixes)
    assert why.value.number == 1
    tgt = translator.vocabularies.tgt
    last = tgt.pieces(tgt.encode(["die katze"])[0])[-1]
    with pytest.raises(LineError, match=f"'die katze', but its piece '{last}' is suppr") as why:
        translator.translate(LINES, prefixes=["", "", "die katze", ""], suppress=[last])
    assert why.value.number == 2


def test_suppressed_pieces_are_in_no_translation(translator):
    tgt = translator.vocabularies.tgt

    def pieces_of(translations):
        return {piece for answer in translations for piece in tgt.pieces(answer.tokens)}

    banned = sorted(pieces_of(translator.translate(LINES)) - {"</s>"})[:3]
    assert not pieces_of(translator.translate(LINES, suppress=banned)) & set(banned)
    for wrong in ("no such piece", "</s>"):
        with pytest.raises(DecodingError, match="is not in the target vocabulary"):
            translator.translate(LINES, suppress=[wrong])


def test_the_sample_that_the_others_resemble_is_one_of_them(translator):
    [four] = translator.translate(LINES[:1], sampling=Sampling(), n_best=4)
    scores = [hypothesis.score for hypothesis in four.hypotheses]
    assert len(scores) == 4 and scores == sorted(scores, reverse=True)
    [chosen] = translator.translate(LINES[:1], sampling=Sampling(), mbr=True)
    texts = [hypothesis.text for hypothesis in four.hypotheses]
    assert chosen.text == texts[int(chrf(texts).sum(axis=1).argmax())]


def test_other_settings_leave_the_translator_as_it_is(translator):
    before = translator.config
    short = translator.with_config(max_ratio=0.0, max_extra_tokens=3, length_norm="average")
    for translation in short.translate(LINES):
        assert len(translation.tokens) + 1 <= 3
        assert translation.score == pytest.approx(
            translation.hypotheses[0].log_prob / (len(translation.tokens) + 1) ** 0.6
        )
    assert translator.config == before and translator.translate(LINES) != short.translate(LINES)
    pairs = [(line, short.translate([line])[0].tokens) for line in LINES]
    for scored, translation in zip(short.score(pairs), short.translate(LINES), strict=True):
        assert scored.score == pytest.approx(translation.score, abs=1e-5)


def test_the_dtype_of_products(translator):
    reduced = translator.with_dtype("bfloat16")
    assert {model.config.dtype for _, model in reduced.members} == {"bfloat16"}
    assert translator.model.config.dtype == "float32"
    exact, rounded = translator.score(PAIRS), reduced.score(PAIRS)
    differences = [
        abs(exact_score.score - rounded_score.score)
        for exact_score, rounded_score in zip(exact, rounded, strict=True)
    ]
    assert 1e-5 < max(differences) < 0.1
    assert all(reduced.translate(LINES))
    assert reduced.with_dtype("float32").score(PAIRS) == exact


def test_an_ensemble_of_runs(run, translator, tmp_path):
    runs = [run.path, make_run(tmp_path / "b", {1: 10.0}).path]
    both = Translator.load_ensemble(runs)
    assert both.name == "best, step 2 + best, step 1"
    second = Translator.load(runs[1])
    texts = [
        [translation.text for translation in member.translate(LINES)]
        for member in (both, translator, second)
    ]
    assert texts[1] != texts[2]
    doubled = Translator.load_ensemble([runs[0], runs[0]])
    assert [translation.text for translation in doubled.translate(LINES)] == texts[1]
    for method in (both.score, both.align):
        with pytest.raises(DecodingError, match="a single model"):
            method([(LINES[0], PAIRS[0][1])])
    shutil.rmtree(tmp_path / "b" / "vocabulary")
    again = vocabulary.train_pair([*PAIRS, PAIRS[0]] * 5, VocabularyConfig(size=60))
    again.save(tmp_path / "b" / "vocabulary")
    with pytest.raises(DecodingError, match="its vocabulary differs from that of"):
        Translator.load_ensemble(runs)


def texts_of(translation) -> list[str]:
    return [hypothesis.text for hypothesis in translation.hypotheses]


@pytest.mark.parametrize(
    "changes",
    [{}, {"diverse_groups": 2, "diversity": 0.1}, {"ends_among": "beam", "patience": 1.0}],
)
def test_no_text_is_twice_in_an_n_best_list(translator, changes):
    """Of few letters each text can be cut in several ways; the list has the likeliest of each."""
    wide = translator.with_config(beam_size=8, max_ratio=0, max_extra_tokens=5, **changes)
    pieces = translator.vocabularies.tgt.pieces()[4:]
    suppressed = [piece for piece in pieces if not set(piece) <= set("\u2581sie")]
    fewer = 0
    for line in LINES:
        eight = wide.translate(line, n_best=8, suppress=suppressed)
        assert len(texts_of(eight)) == len(set(texts_of(eight)))
        fewer += len(eight.hypotheses) < 8
        three = wide.translate(line, n_best=3, suppress=suppressed)
        assert changes or texts_of(three) == texts_of(eight)[:3]
    assert fewer or changes


def test_draws_with_the_same_text_are_listed_once(translator):
    """Of a distribution this narrow nearly all draws are the same."""
    narrow = Sampling(top_k=2, temperature=0.1)
    for translation in translator.with_config(beam_size=8).translate(
        [*LINES, LONG], sampling=narrow, n_best=8
    ):
        assert len(texts_of(translation)) == len(set(texts_of(translation))) < 8


def test_a_forked_process_is_told_that_it_cannot_translate(run, translator, monkeypatch):
    """JAX's threads are not in it: it would wait for them without end."""
    monkeypatch.setattr(module, "_first_process", 1)
    pairs = [(LINES[0], "die")]
    for ask in (
        lambda: translator.translate(LINES),
        lambda: translator.compile(LINES),
        lambda: translator.score(pairs),
        lambda: translator.align(pairs),
        lambda: translator.attend(*pairs[0]),
        lambda: Translator.load(run.path),
    ):
        with pytest.raises(DecodingError, match="forked from process 1, .*context..spawn"):
            ask()


def test_threads_may_share_a_translator(translator):
    expected = translator.translate(LINES)
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(translator.translate, [LINES] * 6)) == [expected] * 6


def test_settings_set_on_a_translator_or_its_copy_are_heard(translator):
    """Searches are kept, by all that they depend on."""
    changed = copy.copy(translator)
    changed.translate(LINES)
    changed.config = dataclasses.replace(translator.config, max_ratio=0.0, max_extra_tokens=2)
    shortened = changed.translate(LINES)
    assert {len(translation.tokens) for translation in shortened} == {1}
    assert max(len(translation.tokens) for translation in translator.translate(LINES)) > 1


def test_threads_share_a_translator_whatever_they_ask(translator, monkeypatch):
    monkeypatch.setattr(module, "_DECODERS", 2)
    monkeypatch.setattr(Translator, "_new_decoder", lambda self, options, suppress: options.first)
    asked = [SearchOptions(sampling=Sampling(seed=seed)) for seed in range(24)] * 50
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(translator._decoder, asked)) == {0}


def test_a_prefix_that_is_not_unicode_is_named_also_for_a_blank_line(translator):
    with pytest.raises(DecodingError, match="is not Unicode text"):
        translator.translate(["", LINES[0]], prefixes=["\ud800", ""])


def test_copies_with_other_settings_share_the_tables_that_a_device_needs(run, monkeypatch):
    """For a TPU they are padded, and take memory again."""
    translator = Translator.load(run.path)
    suited = mock.Mock(wraps=module.suited)
    monkeypatch.setattr(module, "suited", suited)
    for beam_size in (1, 2):
        translator.with_config(beam_size=beam_size).translate(LINES[0])
    assert suited.call_count == 1
