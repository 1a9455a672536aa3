"""CTranslate2 as a translator's search: our own outputs, scores, limits and refusals."""

import dataclasses

import jax
import numpy as np
import pytest

import flaxformer_mt as fm
from flaxformer_mt.bulk.loading import identity
from flaxformer_mt.data.shortlist import Shortlist
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.decoding.errors import DecodingError, LineError
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import ExportError, ctranslate2, ctranslate2_cache
from flaxformer_mt.interop.export import export
from flaxformer_mt.interop.parity import Reference
from tests.interop.translators import LINES, translator, without_a_bias

pytest.importorskip("ctranslate2", reason="needs the [export] extra")
TEXT = [
    "The old dog sleeps.",
    "Where is the station?",
    "I have never seen such a beautiful garden in my life.",
    "Tom says that he will come tomorrow if it does not rain.",
    "Yes.",
]
SAME_RULES = {"patience": 1.0, "ends_among": "beam"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAXFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ctranslate2"


@pytest.fixture
def ours():
    return translator().with_config(**SAME_RULES, beam_size=3)


@pytest.fixture
def theirs(ours):
    return ours.with_runtime(fm.ctranslate2_runtime(ours))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model whose outputs end."""
    folder = tmp_path_factory.mktemp("demo")
    run = Translator.load(fm.demo_run(folder / "run")).with_dtype("float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAXFORMER_CACHE", str(folder / "cache"))
        runtime = fm.ctranslate2_runtime(run)
    return run.with_config(**SAME_RULES), runtime


@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 4, "length_norm": "gnmt", "length_penalty": 1.5},
        {"beam_size": 4, "length_norm": "average", "length_penalty": 1.0},
    ],
)
def test_outputs_are_ours_with_our_length_penalty(trained, settings):
    run, runtime = trained
    ours = run.with_config(**settings)
    n_best = min(settings["beam_size"], 2)
    expected = ours.translate(TEXT, n_best=n_best)
    translations = ours.with_runtime(runtime).translate(TEXT, n_best=n_best)
    for line, same in zip(translations, expected, strict=True):
        assert [one.tokens for one in line.hypotheses] == [one.tokens for one in same.hypotheses]
        scores = [one.score for one in line.hypotheses]
        # Its softmax is over the types that may come next, ours over all.
        assert scores == pytest.approx([one.score for one in same.hypotheses], abs=0.02)


def test_the_rules_on_tokens_hold(trained):
    run, runtime = trained
    ruled = run.with_config(beam_size=3, min_length=12, no_repeat_ngram=1)
    for line in ruled.with_runtime(runtime).translate(TEXT):
        (best,) = line.hypotheses
        assert len(best.tokens) >= 12 and len(set(best.tokens)) == len(best.tokens)


def test_what_is_cut_at_the_limit_is_scored_with_its_end_mark():
    """In a model that would never end, and never says what is left out."""
    plain = translator(logits_bias=True)
    bias = np.zeros(plain.model.tgt_vocab_size, np.float32)
    bias[[PAD, BOS, UNK]] = -30.0
    params = jax.tree.map(np.asarray, plain.params)
    params["embedding"]["softmax_bias"] = bias
    endless = Translator(params, plain.model, plain.vocabularies, plain.config)
    runtime = fm.ctranslate2_runtime(endless)
    reference = Reference(endless)
    for line, translation in zip(
        LINES, endless.with_runtime(runtime).translate(LINES), strict=True
    ):
        (best,) = translation.hypotheses
        source = [*endless.vocabularies.src.encode([line])[0], EOS]
        (log_probs,) = reference.log_probs([source], [best.tokens])
        assert translation.at_limit and best.log_prob == pytest.approx(log_probs.sum(), abs=1e-3)


def test_a_line_has_its_own_limit_and_depends_on_no_other(theirs):
    short = theirs.with_config(max_ratio=0.0, max_extra_tokens=3, min_length=0)
    together = short.translate(LINES)
    assert max(len(line.hypotheses[0].tokens) for line in together) == 2
    assert [short.translate(line).text for line in LINES] == [line.text for line in together]


def test_pieces_that_are_suppressed_are_not_there(ours, theirs):
    usual = theirs.translate(LINES)
    (token, *_) = usual[0].hypotheses[0].tokens
    (piece,) = ours.vocabularies.tgt.pieces([token])
    without = theirs.translate(LINES, suppress=[piece])
    assert not any(token in line.hypotheses[0].tokens for line in without)
    assert without[0].text == ours.translate(LINES[0], suppress=[piece]).text


def test_mbr_chooses_among_all_that_ended(trained):
    run, runtime = trained
    theirs = run.with_runtime(runtime).translate(TEXT, mbr=True)
    assert [line.text for line in theirs] == [line.text for line in run.translate(TEXT, mbr=True)]


@pytest.mark.parametrize(
    ("settings", "wanted", "named"),
    [
        ({"coverage_penalty": 0.2}, {}, "decoding.coverage_penalty"),
        ({"beam_size": 4, "diverse_groups": 2}, {}, "decoding.diverse_groups"),
        ({"min_ratio": 0.5}, {}, "decoding.min_ratio"),
        ({"patience": 0.5}, {}, "decoding.patience below 1"),
        ({}, {"sampling": "draws"}, "sampling"),
        ({}, {"constraints": [["dog"], *[[]] * 6]}, "terms and required phrases"),
    ],
)
def test_what_it_does_not_have_is_refused_by_name(theirs, settings, wanted, named):
    if wanted.get("sampling"):
        wanted = {"sampling": fm.Sampling(seed=1)}
    with pytest.raises(
        DecodingError, match=f"^CTranslate2 .* in float32 searches without.* {named}"
    ):
        theirs.with_config(**settings).translate(LINES, **wanted)


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"prefixes": ["", "a", *[""] * 5]}, "prefixes"),
        ({"forbid_each": [[], ["house"], *[[]] * 5]}, "forbidden phrases"),
    ],
)
def test_what_one_line_wants_is_refused_with_its_number(theirs, wanted, named):
    with pytest.raises(LineError, match=f"searches without {named}") as refused:
        theirs.translate(LINES, **wanted)
    assert refused.value.number == 1


def test_a_runtime_is_of_one_model(theirs):
    with pytest.raises(DecodingError, match="was loaded for another model"):
        translator(seed=1).with_runtime(theirs.runtime)
    with pytest.raises(ValueError, match="n_best = 9 must be 1 to beam_size = 3"):
        theirs.translate(LINES, n_best=9)
    with pytest.raises(ValueError, match="float16"):
        fm.ctranslate2_runtime(theirs, quantization="float16")


def test_a_limit_of_the_end_mark_alone(ours, theirs):
    least = {"max_ratio": 0.0, "max_extra_tokens": 1, "min_length": 5}
    empty = theirs.with_config(**least).translate(LINES)
    expected = ours.with_config(**least).translate(LINES)
    assert [line.text for line in empty] == [""] * len(LINES)
    for line, same in zip(empty, expected, strict=True):
        assert line.score == pytest.approx(same.score, abs=1e-3)


def test_a_least_length_ends_at_the_limit(theirs):
    short = theirs.with_config(max_ratio=0.0, max_extra_tokens=4, min_length=9)
    for line in short.translate(LINES):
        assert len(line.hypotheses[0].tokens) == 3


def test_ensembles_and_shortlists_are_refused(ours, theirs):
    several = Translator(
        ours.params,
        ours.model,
        ours.vocabularies,
        ours.config,
        others=[(ours.params, ours.model)],
    )
    with pytest.raises(DecodingError, match="a single model, not an ensemble"):
        fm.ctranslate2_runtime(several)
    with pytest.raises(DecodingError, match="a single model, not an ensemble"):
        several.with_runtime(theirs.runtime)
    src, tgt = ours.vocabularies.src.size, ours.vocabularies.tgt.size
    short = Translator(
        ours.params,
        ours.model,
        ours.vocabularies,
        ours.config,
        shortlist=Shortlist(np.full((src, 1), 5), np.arange(tgt)[::-1], ""),
    )
    for refused in (short.with_runtime, lambda runtime: fm.ctranslate2_runtime(short)):
        with pytest.raises(DecodingError, match="without this program's shortlist"):
            refused(theirs.runtime)


def test_a_model_is_exported_and_compared_once(ours, cache, monkeypatch):
    lines = []
    fm.ctranslate2_runtime(ours, say=lines.append)
    assert len(lines) == 2 and "greedy outputs equal" in lines[1]
    fm.ctranslate2_runtime(ours, say=lines.append)
    assert len(lines) == 2, "the second time it is there"
    fm.ctranslate2_runtime(translator(seed=1), say=lines.append)
    assert len(lines) == 4, "other weights"
    assert len(list(cache.iterdir())) == 2

    monkeypatch.setattr(ctranslate2_cache, "KEPT", 2)
    fm.ctranslate2_runtime(ours)
    fm.ctranslate2_runtime(translator(seed=2), say=lines.append)
    fm.ctranslate2_runtime(ours, say=lines.append)
    assert len(list(cache.iterdir())) == 2 and len(lines) == 6, "what was used last stays"


def test_a_damaged_model_is_made_again(ours, cache):
    lines = []
    fm.ctranslate2_runtime(ours)
    (folder,) = cache.iterdir()
    content = bytearray((folder / "model.bin").read_bytes())
    content[-100] ^= 1
    (folder / "model.bin").write_bytes(content)
    runtime = fm.ctranslate2_runtime(ours, say=lines.append)
    assert lines[0] == f"{folder}: is damaged and is made again" and len(lines) == 3
    assert ours.with_runtime(runtime).translate(LINES[0]).text == ours.translate(LINES[0]).text
    assert [path.name for path in cache.iterdir()] == [folder.name]


def test_outputs_that_differ_are_refused_in_plain_words(ours, monkeypatch):
    monkeypatch.setattr(ctranslate2, "from_model", without_a_bias)
    with pytest.raises(ExportError, match="gives other outputs than this program"):
        fm.ctranslate2_runtime(ours)


def test_an_output_is_not_continued_by_another_program(ours, theirs):
    assert "runtime" not in identity(ours, window=3)
    assert identity(theirs, window=3)["runtime"] == theirs.runtime.name
    assert theirs.with_runtime(None).translate(LINES) == ours.translate(LINES)


@pytest.mark.parametrize("form", ["huggingface", "onnx"])
def test_a_folder_with_a_card_needs_one(ours, tmp_path, form):
    with pytest.raises(TypeError, match=f"'{form}' needs a card"):
        export(ours, tmp_path / "out", form=form, sample=None)


def test_a_damaged_models_scores_are_an_error(theirs):
    class Damaged:
        num_translators = 1

        def translate_batch(self, sources, **settings):
            return [type("Result", (), {"hypotheses": [["a"]], "scores": [float("nan")]})] * len(
                sources
            )

    runtime = dataclasses.replace(theirs.runtime, model=Damaged())
    with pytest.raises(DecodingError, match="scores are not finite"):
        theirs.with_runtime(runtime).translate(LINES)
