"""The API over a real model: what it answers is what the Translator says, and nothing compiles."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import pytest

from flaxformer_mt.decoding.translator import Translator
from tests.decoding.runs import PAIRS, make_run
from tests.serving.stand_in import MODEL, Running, quick, running

SENTENCES = [src for src, _ in PAIRS]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    run = make_run(tmp_path_factory.mktemp("serving") / "run", {1: None})
    return Translator.load(run.path)


@pytest.fixture(scope="module")
def server(translator: Translator) -> Iterator[Running]:
    model = dataclasses.replace(MODEL, encoder_layers=1, decoder_layers=1)
    # Words of the warm-up have one token; the model takes 32.
    settings = quick(warm_up_words=22, batch_sentences=2)
    with running(translator, settings, model=model) as server:
        yield server


def test_answers_are_the_translators(server: Running, translator: Translator) -> None:
    payload = {"text": SENTENCES, "sentences": False, "n_best": 3}
    answer = server.post("/translate", payload)[1]
    expected = translator.translate(SENTENCES, n_best=3)
    for found, wanted in zip(answer["translations"], expected, strict=True):
        assert found["text"] == wanted.text
        (sentence,) = found["sentences"]
        assert [each["text"] for each in sentence["hypotheses"]] == [
            hypothesis.text for hypothesis in wanted.hypotheses
        ]
        for got, hypothesis in zip(sentence["hypotheses"], wanted.hypotheses, strict=True):
            assert got["score"] == pytest.approx(hypothesis.score, abs=1e-5)
            assert got["log_prob"] == pytest.approx(hypothesis.log_prob, abs=1e-5)


def test_neighbours_change_nothing(server: Running) -> None:
    def ask(text: str) -> Any:
        return server.post("/translate", {"text": text})[1]["translations"][0]["text"]

    alone = [ask(text) for text in SENTENCES]
    with concurrent.futures.ThreadPoolExecutor(16) as clients:
        together = list(clients.map(ask, SENTENCES * 8))
    assert together == alone * 8


def test_after_the_warm_up_nothing_compiles(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Any mixture of requests with sentences as long as the warm-up's."""
    payloads: list[tuple[str, dict[str, Any]]] = [
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


def test_alignments_and_attention_are_of_the_translation(server: Running) -> None:
    payload = {"text": SENTENCES[1], "sentences": False, "alignment": True}
    (sentence,) = server.post("/translate", payload)[1]["translations"][0]["sentences"]
    (hypothesis,) = sentence["hypotheses"]
    alignment = hypothesis["alignment"]
    assert alignment["source_words"] == SENTENCES[1].split()
    assert alignment["target_words"] == hypothesis["text"].split()
    for source, target in alignment["links"]:
        assert source < len(alignment["source_words"])
        assert target < len(alignment["target_words"])
    asked = {"text": SENTENCES[1], "translation": hypothesis["text"]}
    status, attention = server.post("/attention", asked)
    assert status == 200 and attention["rows"][-1] == attention["columns"][-1] == "</s>"
    sums = [sum(row) for head in attention["weights"] for row in head]
    assert sums == pytest.approx([1.0] * len(sums), abs=1e-2)


@pytest.mark.parametrize(
    "text",
    ["\x00 a \x07", "\ufeff", "😀" * 40, "\U000e0001", "a\u0301" * 50],
    ids=range(5),
)
def test_odd_texts_are_answered(server: Running, text: str) -> None:
    status, answer = server.post("/translate", {"text": text, "n_best": 2, "alignment": True})
    assert status == 200, answer
    assert server.post("/attention", {"text": text})[0] in (200, 400)
    assert not [line for line in server.said if line.startswith("error")]


def test_a_text_too_long_for_the_model_is_translated_in_pieces(server: Running) -> None:
    text = "the small cat sees a big dog and " * 8
    (sentence,) = server.post("/translate", {"text": text})[1]["translations"][0]["sentences"]
    assert sentence["split"]
    status, answer = server.post("/attention", {"text": text})
    assert status == 400 and "32" in answer["error"]
