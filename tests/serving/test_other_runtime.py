"""The server's batches with a real model and CTranslate2's search; all else is this program's."""

import pytest

import flaxformer_mt as fm
from flaxformer_mt.serving.access import Refusal
from flaxformer_mt.serving.engine import Engine, QueuedSentence
from tests.interop.translators import LINES, translator

pytest.importorskip("ctranslate2", reason="needs the [export] extra")


@pytest.fixture
def engine(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAXFORMER_CACHE", str(tmp_path / "cache"))
    ours = translator().with_config(patience=1.0, ends_among="beam", beam_size=3)
    return Engine(ours.with_runtime(fm.ctranslate2_runtime(ours)), widest=3, largest=16)


def test_sentences_are_searched_by_it_and_aligned_by_this_program(engine):
    answers = engine.run(engine.key_of(2), [QueuedSentence(line, aligned=1) for line in LINES])
    theirs, ours = engine.translator, engine.translator.with_runtime(None)
    log_probs = []
    for line, answer, expected in zip(
        LINES, answers, theirs.translate(LINES, n_best=3), strict=True
    ):
        hypotheses = answer.translation.hypotheses
        assert [one.text for one in hypotheses] == [one.text for one in expected.hypotheses]
        assert answer.alignments == ours.align([(line, answer.translation.text)])
        assert answer.alignments[0].links
        log_probs.append(hypotheses[0].log_prob)
    # Its softmax leaves out what may not come next.
    own = [translation.hypotheses[0].log_prob for translation in ours.translate(LINES)]
    assert log_probs != pytest.approx(own, abs=1e-4)


def test_terms_are_refused_as_a_bad_request(engine):
    with pytest.raises(Refusal, match="searches without terms and required phrases") as raised:
        engine.run(engine.key_of(1, {"dog": "hund"}), [QueuedSentence("a dog")])
    assert raised.value.status == 400
