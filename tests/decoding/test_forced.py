"""Scores of given translations: the search's own, whatever else is scored with them."""

import dataclasses
import itertools
import math
import re

import jax
import numpy as np
import pytest

from flaxformer_mt.data.vocabulary import BOS, EOS, UNK
from flaxformer_mt.decoding import teacher_forcing
from flaxformer_mt.decoding.errors import DecodingError, OverlongError, TargetError
from flaxformer_mt.decoding.penalties import coverage_penalty, length_penalty
from flaxformer_mt.decoding.teacher_forcing import Pairs, batch_length, batches
from flaxformer_mt.decoding.text.segments import source_pieces
from flaxformer_mt.model.stacks import aligning_layer
from tests.decoding.examples import CONFIG, VOCAB, as_part, decoded, forcing, sentences, tiny
from tests.decoding.runs import LINES, LONG, MAX_LENGTH, PAIRS


def drawn(count: int, seed: int):
    """Pairs of random token ids, of all lengths that the model of `tiny` takes."""
    sources, targets = sentences(count, seed), sentences(count, seed + 1)
    return [as_part(src[:-1], tgt[:-1]) for src, tgt in zip(sources, targets, strict=True)]


def scored(parts, *, positions: str = "sinusoidal", model_and_params=None, **changes):
    return forcing(*(model_and_params or tiny(positions)), **changes).score(
        [[part] for part in parts]
    )


def assert_same(ours, theirs) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.tokens == b.tokens
        np.testing.assert_allclose(a.token_log_probs, b.token_log_probs, rtol=0, atol=1e-5)
        assert a.score == pytest.approx(b.score, rel=1e-5, abs=1e-5)


def test_the_tokens_of_a_translation_have_the_score_that_search_gave_them(translator):
    lines = [*LINES, "", LONG, "a", LINES[0] + " " + LINES[2]]
    translations = translator.translate(lines, n_best=4)
    assert translations[5].split
    pairs, expected = [], []
    for line, translation in zip(lines, translations, strict=True):
        for hypothesis in translation.hypotheses:
            pairs.append((line, hypothesis.tokens))
            expected.append(hypothesis)
    scores = translator.score(pairs, overlong="split")
    for scored_pair, hypothesis in zip(scores, expected, strict=True):
        assert scored_pair.tokens[:-1] == hypothesis.tokens
        assert scored_pair.log_prob == pytest.approx(hypothesis.log_prob, rel=1e-6, abs=1e-5)
        assert scored_pair.score == pytest.approx(hypothesis.score, abs=1e-5)
        assert len(scored_pair.token_log_probs) == len(scored_pair.tokens)
    unpenalised = translator.with_config(length_penalty=0.0).score(pairs[:3])
    assert all(scored_pair.score == scored_pair.log_prob for scored_pair in unpenalised)


def test_a_prefix_counts_in_score_and_length(translator):
    """As if the model had chosen it."""
    translations = translator.translate(LINES, prefixes=["die katze", "", "wer", "sie schlafen"])
    forced = translator.score(zip(LINES, [made.tokens for made in translations], strict=True))
    for translation, pair in zip(translations, forced, strict=True):
        made = translation.hypotheses[0]
        assert made.log_prob == pytest.approx(pair.log_prob, rel=1e-5, abs=1e-4)
        length = len(made.tokens) + 1
        assert made.score == pytest.approx(made.log_prob / ((5 + length) / 6) ** 0.6, rel=1e-5)


def test_excluded_tokens_leave_the_others_as_probable(translator):
    """What a mask bans takes its probability along."""
    free = [translation.tokens for translation in translator.translate(LINES)]
    held = translator.with_config(no_repeat_ngram=1, min_ratio=0.9).translate(LINES)
    hypotheses = [translation.hypotheses[0] for translation in held]
    assert all(made.tokens != tokens for made, tokens in zip(hypotheses, free, strict=True))
    forced = translator.score(zip(LINES, [made.tokens for made in hypotheses], strict=True))
    for made, pair in zip(hypotheses, forced, strict=True):
        assert made.log_prob == pytest.approx(pair.log_prob, rel=1e-5, abs=1e-4)


def test_neighbours_and_batch_size_change_nothing():
    parts = drawn(40, seed=2)
    together = scored(parts)
    assert_same(scored(parts[::-1])[::-1], together)
    assert_same(scored(parts, batch_tokens=100), together)
    assert_same([scored([part])[0] for part in parts[:8]], together[:8])
    model, params = tiny()
    broken = jax.tree.map(lambda leaf: leaf * np.nan, params)
    with pytest.raises(DecodingError, match="not finite"):
        scored(parts[:2], model_and_params=(model, broken))


def test_logits_are_never_whole(monkeypatch):
    """In slices they give the same, and no array of all positions' logits is in the program."""
    parts = drawn(30, seed=3)
    at_once = scored(parts)
    monkeypatch.setattr(teacher_forcing, "LOGITS", 5 * 64 * VOCAB)
    assert_same(scored(parts), at_once)

    model, params = tiny()
    ids, lengths = np.zeros((64, 24), np.int32), np.ones(64, np.int32)
    for width in (24, 5, 1):
        pairs = Pairs(ids, ids, ids, lengths, lengths)
        lowered = teacher_forcing._log_probs.lower(params, pairs, model=model, width=width)
        logits = re.findall(rf"tensor<((?:\d+x)+){VOCAB}xf32>", lowered.as_text())
        largest = max(np.prod([int(n) for n in size[:-1].split("x")]) for size in logits)
        assert largest == 64 * width


def test_rows_of_the_table_that_stand_for_no_type_have_no_probability():
    model, params = tiny()
    table = params["embedding"]["shared"]
    extra = np.concatenate([table, 8.0 * table[UNK : UNK + 1], 8.0 * table[UNK : UNK + 1]])
    padded = type(model)(dataclasses.replace(model.config, vocab_multiple=8), VOCAB, VOCAB)
    parts = drawn(6, seed=4)
    with_padding = scored(
        parts, model_and_params=(padded, {**params, "embedding": {"shared": extra}})
    )
    assert_same(with_padding, scored(parts))


def test_batches_cover_every_part_once_in_few_shapes():
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.geometric(0.05, size=(3000, 2)), 249)
    parts = [as_part((5,) * src, (6,) * tgt) for src, tgt in sizes]
    planned = list(batches(parts, batch_tokens=8192, max_length=250, shards=2))
    assert sorted(number for numbers, _ in planned for number in numbers) == list(range(3000))
    for numbers, pairs in planned:
        rows, length = pairs.src.shape
        assert rows * length <= 2 * 8192 and rows % 2 == 0 and length <= 250
        assert (pairs.src_lengths[len(numbers) :] == 0).all()
        for row, number in enumerate(numbers):
            src, tgt = ([token] * size for token, size in zip((5, 6), sizes[number], strict=True))
            said = {name: values[row].tolist() for name, values in pairs._asdict().items()}
            assert said.pop("src_lengths") == len(src) + 1
            assert said.pop("tgt_lengths") == len(tgt) + 1
            unpadded = {"src": [*src, EOS], "tgt_in": [BOS, *tgt], "tgt_out": [*tgt, EOS]}
            assert said == {k: v + [0] * (length - len(v)) for k, v in unpadded.items()}
    # 16, 24, 32 ... 192, 250 positions, and the last batch's rows.
    assert len({pairs.src.shape for _, pairs in planned}) <= 10
    assert [batch_length(n) for n in (1, 16, 17, 24, 25, 32, 33, 48, 49, 200)] == [
        *(16, 16, 24, 24, 32, 32, 48, 48, 64, 256)
    ]


def test_what_is_blank_has_nothing_to_be_scored(translator):
    # U+2581 reads as a blank: a line of it has no tokens, though it is no blank of Unicode's.
    lines = ["", "\xa0", " \t", "\u2581", " \u2581\u2581"]
    pairs = [(line, target) for line in lines for target in (*lines, ())]
    *blank, end_mark = translator.score([*pairs, (LINES[0], "")])
    assert all((pair_score.tokens, pair_score.score) == ((), 0.0) for pair_score in blank)
    for line, translation in zip(lines, translator.translate(lines), strict=True):
        assert translator.score([(line, translation.tokens)])[0].score == translation.score == 0
    assert end_mark.tokens == (EOS,) and end_mark.log_prob < 0
    assert translator.score([]) == []


def test_overlong_lines_are_refused_with_their_number_or_split(translator):
    encode = translator.vocabularies.tgt.encode
    target = " ".join(target for _, target in PAIRS)
    assert len(encode([target])[0]) >= MAX_LENGTH
    for pair, blamed in (
        ((LONG, "hund"), ["source"]),
        (("dog", target), ["target"]),
        ((LONG, target), ["source", "target"]),
    ):
        with pytest.raises(OverlongError, match=f"takes {MAX_LENGTH}") as caught:
            translator.score([(LINES[0], "hund"), pair])
        assert caught.value.number == 1
        assert re.findall(r"the (\w+) has", str(caught.value)) == blamed
        assert caught.value.splits
        (scored_line,) = translator.score([pair], overlong="split")
        assert scored_line.tokens.count(EOS) > 1
        text = translator.vocabularies.tgt.decode([scored_line.tokens])[0]
        assert text.replace(" ", "") == pair[1].replace(" ", "")


@pytest.mark.parametrize(
    "given", [((), (5, 6)), ((), ()), ((5,) * (MAX_LENGTH - 1), ())], ids=["first", "both", "last"]
)
def test_a_part_may_have_been_translated_by_nothing(translator, given):
    line = " ".join(LINES[:2])
    pieces = source_pieces(line, translator.vocabularies.src, MAX_LENGTH)[1]
    assert len(pieces) == 2
    tokens = (*given[0], EOS, *given[1])
    expected = [
        translator.score([(piece.text, part)])[0].token_log_probs
        for piece, part in zip(pieces, given, strict=True)
    ]

    # As a hypothesis has them, and as they come with their scores: the last end mark included.
    for target in (tokens, (*tokens, EOS)):
        (scored_line,) = translator.score([(line, target)], overlong="split")
        assert scored_line.tokens == (*tokens, EOS)
        np.testing.assert_allclose(
            scored_line.token_log_probs, sum(expected, ()), rtol=0, atol=1e-5
        )
        (alignment,) = translator.align([(line, target)])
        assert len(alignment.links) == len(alignment.tgt_words)
        with pytest.raises(OverlongError) as caught:
            translator.score([(line, target)])
        assert caught.value.splits
    with pytest.raises(TargetError, match="into 2 parts, but its tokens into 4"):
        translator.score([(line, (*tokens, EOS, EOS))], overlong="split")


def test_tokens_of_no_translation_are_refused(translator):
    for tokens, message in (
        ((5, 60), "pair 1: token 60 cannot be in a translation"),
        ((5, -1), "token -1"),
        ((0,), "token 0 cannot"),
        ((5, EOS, 6), "source splits into 1 parts, but its tokens into 2"),
    ):
        with pytest.raises(TargetError, match=message) as caught:
            translator.score([("a dog", (5, EOS)), ("a cat", tokens)])
        assert caught.value.number == 1
    with pytest.raises(TargetError, match="splits into"):
        translator.score([(LONG, (5,) * 5)], overlong="split")
    for overlong in ("split", "refuse"):
        with pytest.raises(OverlongError, match="target has 33 tokens") as caught:
            translator.score([("a cat", (5,) * 32)], overlong=overlong)
        assert not caught.value.splits, "given tokens are one part"
    with pytest.raises(OverlongError) as caught:
        translator.score([(LONG, (*(5,) * 40, EOS))])
    assert not caught.value.splits, "an end mark after it makes no two of it"


BETA = 3.0


def test_the_coverage_penalty_is_the_formula():
    assert float(coverage_penalty(np.array([0.5, 1.0, 2.5, 0.2]))) == pytest.approx(
        math.log(0.5) + math.log(0.2)
    )
    assert math.isfinite(float(coverage_penalty(np.zeros(3))))


def searched(beta: float, sources):
    """Hypotheses, as parts as well, and the coverage penalty of each by the formula."""
    model, params = tiny(seed=3)
    outputs = decoded(sources, seed=3, n_best=4, coverage_penalty=beta)
    parts = [
        as_part(source[:-1], hypothesis.tokens)
        for source, hypotheses in zip(sources, outputs, strict=True)
        for hypothesis in hypotheses
    ]
    weights = forcing(model, params).cross_weights(parts, aligning_layer(model.config))
    covered = [
        np.log(np.clip(weights_of_one.sum(axis=0), 1e-6, 1)).sum() for weights_of_one in weights
    ]
    return outputs, parts, np.array(covered)


def test_scores_hold_the_attention_of_the_whole_translation():
    """Through compaction and cache growth, and as forced decoding has it."""
    outputs, parts, missing = searched(BETA, sentences(9, seed=1))
    forced = forcing(*tiny(seed=3), coverage_penalty=BETA).score([[part] for part in parts])
    for hypothesis, lacks, scored in zip(itertools.chain(*outputs), missing, forced, strict=True):
        plain = hypothesis.log_prob / length_penalty(
            len(hypothesis.tokens) + 1, CONFIG.length_penalty
        )
        assert hypothesis.score == pytest.approx(plain + BETA * lacks, abs=2e-5)
        assert hypothesis.score == pytest.approx(scored.score, abs=2e-5)
    assert min(missing) < -0.5
    for hypotheses in outputs:
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)


def test_the_penalty_chooses_and_without_it_nothing_changes():
    tokens, covered = {}, {}
    for beta in (0.0, 1e-7, BETA):
        outputs, _, missing = searched(beta, sentences(12, seed=2))
        tokens[beta] = [hypotheses[0].tokens for hypotheses in outputs]
        covered[beta] = missing[np.cumsum([0, *map(len, outputs[:-1])])].sum()
    assert tokens[0.0] == tokens[1e-7] != tokens[BETA]
    assert covered[BETA] > covered[0.0] + 1
