"""The API over a real model: what it answers is what the Translator says, and nothing compiles."""

import concurrent.futures
import dataclasses

import jax
import numpy as np
import pytest

from flaxformer_mt.decoding import batch_search
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.parallel.compile_cache import watch_compilations
from flaxformer_mt.serving.engine import Engine, Sentence, warm_up
from tests.decoding.runs import PAIRS, make_run
from tests.serving.stand_in import MODEL, running

SENTENCES = [src for src, _ in PAIRS]


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return Translator.load(make_run(tmp_path_factory.mktemp("serving") / "run", {1: None}).path)


@pytest.fixture(scope="module")
def server(translator):
    model = dataclasses.replace(MODEL, encoder_layers=1, decoder_layers=1)
    # Words of the warm-up have one token; the model takes 32.
    with running(translator, model=model, warm_up_words=22, batch_sentences=2) as server:
        yield server


def test_answers_are_the_translators(server, translator):
    payload = {"text": SENTENCES, "sentences": False, "n_best": 3}
    answer = server.post("/translate", payload)[1]
    expected = translator.translate(SENTENCES, n_best=3)
    for found, wanted in zip(answer["translations"], expected, strict=True):
        assert found["text"] == wanted.text
        (sentence,) = found["sentences"]
        for got, hypothesis in zip(sentence["hypotheses"], wanted.hypotheses, strict=True):
            assert got["text"] == hypothesis.text
            assert got["score"] == pytest.approx(hypothesis.score, abs=1e-5)
            assert got["log_prob"] == pytest.approx(hypothesis.log_prob, abs=1e-5)


def test_after_the_warm_up_nothing_compiles(server, caplog):
    """Any mixture of requests with sentences as long as the warm-up's."""
    payloads = [
        *(("/translate", {"text": text}) for text in [*SENTENCES, "a", "a dog runs . " * 2] * 6),
        *(("/translate", {"text": text, "n_best": 2}) for text in SENTENCES),
        *(("/translate", {"text": text, "n_best": 4, "alignment": True}) for text in SENTENCES),
        *(("/attention", {"text": text, "kind": "encoder"}) for text in SENTENCES),
    ]
    # By name: the count of programs is the process's, other tests' servers included.
    jax.config.update("jax_log_compiles", True)
    try:
        with concurrent.futures.ThreadPoolExecutor(12) as clients:
            answers = list(clients.map(lambda each: server.post(*each), payloads))
    finally:
        jax.config.update("jax_log_compiles", False)
    assert {status for status, _ in answers} == {200}
    said = [record.getMessage() for record in caplog.records]
    assert not [each for each in said if each.startswith("Compiling")]


def test_terms_and_forbidden_phrases_hold_for_every_sentence(server):
    def asked(**wanted):
        payload = {"text": "a dog runs .\nthe cat sleeps .", "n_best": 2, **wanted}
        status, answer = server.post("/translate", payload)
        assert status == 200, answer
        (text,) = answer["translations"]
        return [[each["text"] for each in one["hypotheses"]] for one in text["sentences"]]

    plain, terms = asked(), {"Dog": "katze", "the cat": "hund"}
    assert asked(terms={"house": "haus"}) == plain
    dog, cat = asked(terms=terms)
    assert all("katze" in text.split() for text in dog)
    assert all("hund" in text.split() for text in cat)
    word = plain[0][0].split()[0]
    assert not any(word in text.split() for own in asked(forbid=[word]) for text in own)


def test_terms_that_no_output_can_have_are_refused(server):
    for wanted, said in [
        ({"terms": {"dog": "東京"}}, "'a dog': the target vocabulary cannot spell"),
        ({"terms": {"dog": " ".join(["haus"] * 12)}}, "'a dog': its constraints take"),
        ({"terms": {"dog": "hund", "Dog": "haus"}}, "already has the translation"),
        ({"terms": {"dog": ""}}, "'terms' must not be blank"),
        ({"terms": {"dog": "a" * 61}}, "'terms' should have at most 60 characters"),
        ({"forbid": ["a"] * 21}, "'forbid' should have at most 20 items"),
    ]:
        status, answer = server.post("/translate", {"text": "a dog", **wanted})
        assert status in (400, 413) and said in answer["error"], answer
    assert not server.errors()


def test_odd_and_long_texts_are_answered(server):
    for text in ("\x00 a \x07", "\ufeff", "😀" * 20, "\U000e0001", "a\u0301" * 20):
        payload = {"text": text, "n_best": 4, "alignment": True}
        status, answer = server.post("/translate", payload)
        assert status == 200, answer
        assert server.post("/attention", {"text": text})[0] in (200, 400)
    assert not server.errors()
    text = "the small cat sees a big dog and " * 8
    (sentence,) = server.post("/translate", {"text": text})[1]["translations"][0]["sentences"]
    assert sentence["split"]
    status, answer = server.post("/attention", {"text": text})
    assert status == 400 and "32" in answer["error"]


def warmed(engine):
    """The searches that were run."""
    said = []
    # Of "a", a token each: shapes of 16 and of 32 source positions.
    assert all(warm_up(engine, words=20, progress=lambda done, count, what: said.append(what)))
    return [line.split(",")[0] for line in said if "1-best" in line]


def programs():
    """How many this process has compiled."""
    return watch_compilations().programs


@pytest.mark.extended
def test_programs_of_another_model_hide_none(translator):
    """They are the process's: here, one sentence of the shorter shape has them already."""
    translator.compile(["a"], n_best=2)
    translator.translate(["a"], n_best=2)
    engine = Engine(translator, widest=2, largest=3)
    warmed(engine)
    before = programs()
    for texts in (["a"], ["a"] * 2, ["a"] * 3):
        engine.run(engine.key_of(2), [Sentence(text) for text in texts])
    assert programs() == before


@pytest.mark.extended
@pytest.mark.parametrize("small", [True, False])
def test_no_mixture_of_lengths_and_ends_compiles_and_no_shape_is_run_twice(
    translator, monkeypatch, small
):
    """Eight sources of 32 positions fill a batch, so that any number is left for another."""
    if not small:
        monkeypatch.setattr(batch_search, "SMALL", 0)
    engine = Engine(translator, widest=2, largest=16)
    sizes = (1, 16, 4)
    assert warmed(engine) == [
        *(f"{size} x 5 words" for size in sizes),
        *(f"1 x {length} words" for length in (7, 11, 15)),
        *(f"{size} x 23 words" for size in (sizes[:1] if small else sizes)),
    ]
    before = programs()
    for long in range(17):
        texts = ["a " * 23] * long + ["a"] * (16 - long)
        for part in (texts, texts[: len(texts) // 2], texts[::3]):
            engine.run(engine.key_of(1), [Sentence(text) for text in part])
            assert programs() == before, (long, len(part))
    draw = np.random.default_rng(0)
    words = [*"a the small cat sees big dog . runs".split()]
    for _ in range(40):
        key = engine.key_of(int(draw.integers(1, 3)))
        texts = [
            " ".join(draw.choice(words, draw.integers(1, 7)))
            for _ in range(draw.integers(1, 1 + max(engine.sizes(key))))
        ]
        engine.run(key, [Sentence(text) for text in texts])
    assert programs() == before
