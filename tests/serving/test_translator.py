"""The API over a real model: what it answers is what the Translator says, and nothing compiles."""

import concurrent.futures
import dataclasses

import pytest

from tests.decoding.conftest import run as run, translator as translator
from tests.decoding.runs import PAIRS
from tests.decoding.test_sentences import reading
from tests.serving.stand_in import MODEL, running
from tests.training.test_compilations import logged_compilations

SENTENCES = [src for src, _ in PAIRS]
# Of every number and length that fits into what is compiled beforehand.
CONSTRAINTS = [
    {"terms": {"dog": "hund"}},
    {"terms": {"dog": "hund", "cat": "die katze", "house": "haus", "they": "sie"}, "n_best": 3},
    {"forbid": ["haus"]},
    {"forbid": ["haus", "ein großer hund", "schlafen nicht"], "n_best": 4},
    {"terms": {"dog": "hund"}, "forbid": ["haus"], "sentences": False},
]


@pytest.fixture(scope="module")
def server(translator):
    model = dataclasses.replace(MODEL, encoder_layers=1, decoder_layers=1)
    # Words of the warm-up have one token; the model takes 32.
    with running(translator, model=model, warm_up_words=22, batch_sentences=2) as server:
        yield server


def test_answers_are_the_translators(server, translator):
    answer = server.translate(SENTENCES, sentences=False, n_best=3)[1]
    expected = translator.translate(SENTENCES, n_best=3)
    for text, translation in zip(answer["translations"], expected, strict=True):
        assert text["text"] == translation.text
        (sentence,) = text["sentences"]
        for got, hypothesis in zip(sentence["hypotheses"], translation.hypotheses, strict=True):
            assert got["text"] == hypothesis.text
            assert got["score"] == pytest.approx(hypothesis.score, abs=1e-5)
            assert got["log_prob"] == pytest.approx(hypothesis.log_prob, abs=1e-5)


@pytest.mark.parametrize("tgt_lang", ["de", "zh"])
@pytest.mark.parametrize("together", [1, 2])
def test_a_line_is_split_and_joined_as_by_translate(translator, together, tgt_lang):
    alone = reading(translator, together, tgt_lang)
    lines = [
        *SENTENCES,
        "A dog runs. The cat sleeps.",
        "A dog runs.The cat sleeps.  Who sees ?",
        "a dog runs. the cat sleeps.",
        "我喜欢猫。他喜欢狗。",
        "“A dog runs. The cat sleeps. Who sees?” A dog runs.",
    ]
    model = dataclasses.replace(
        MODEL, tgt_lang=tgt_lang, together=together, encoder_layers=1, decoder_layers=1
    )
    with running(alone, model=model, warm_up_words=0) as server:
        answers = server.translate("\n".join(lines))[1]["translations"][0]
    expected = alone.translate(lines)
    assert answers["text"].split("\n") == [translation.text for translation in expected]
    sources = iter(sentence["source"] for sentence in answers["sentences"])
    encode = translator.vocabularies.src.encode
    for line in lines:
        (tokens,) = encode([line])
        cut, _ = alone._preparer.cut(line, tokens, "auto")
        assert [next(sources) for _ in cut.pieces] == [piece.text for piece in cut.pieces]


def test_after_the_warm_up_nothing_compiles(server, caplog):
    """Any mixture of requests with sentences as long as the warm-up's."""
    payloads = [
        *(("/translate", {"text": text}) for text in [*SENTENCES, "a", "a dog runs . " * 2] * 6),
        *(("/translate", {"text": text, "n_best": 2}) for text in SENTENCES),
        *(("/translate", {"text": text, "n_best": 4, "alignment": True}) for text in SENTENCES),
        *(("/attention", {"text": text, "kind": "encoder"}) for text in SENTENCES),
        *(
            ("/translate", {"text": text, **constraints})
            for constraints in CONSTRAINTS
            for text in SENTENCES
        ),
    ]
    payloads.append(("/translate", {"text": "the cat sees {name} ."}))
    # By name: the count of programs is the process's, other tests' servers included.
    with logged_compilations(), concurrent.futures.ThreadPoolExecutor(12) as clients:
        answers = list(clients.map(lambda payload: server.post(*payload), payloads))
    assert {status for status, _ in answers} == {200}
    said = [record.getMessage() for record in caplog.records]
    assert not [payload for payload in said if payload.startswith("Compiling")]


KEPT = "the cat sees {name} . see https://example.org/a?A=1 \n1,234.56\n{n, plural, one {a\n? A}}"


def test_urls_placeholders_and_numbers_stay(server, translator):
    keeping = translator.with_config(keep=True)
    for text in (KEPT, f"“{KEPT}”", "🙂", "A dog runs. {name} Is it? Https://a.b/?c=1. 5."):
        status, answer = server.translate(text, n_best=3, alignment=True)
        assert status == 200, answer
        (translation,) = answer["translations"]
        for kept in (
            "{name}",
            "https://example.org/a?A=1",
            "1,234.56",
            "{n, plural, one {a\n? A}}",
        ):
            assert translation["text"].count(kept) == text.count(kept)
        for sentence in translation["sentences"]:
            expected = keeping.translate(sentence["source"], n_best=3)
            texts = [hypothesis["text"] for hypothesis in sentence["hypotheses"]]
            assert texts == [hypothesis.text for hypothesis in expected.hypotheses]


def test_a_request_or_the_server_may_let_the_model_translate_all(server, translator):
    line = "the cat sees {name} ."
    plain, kept = (translator.with_config(keep=keep).translate(line).text for keep in (False, True))
    assert plain != kept

    def said(server, form, **wanted):
        answer = server.post("/translate", {form: line, "source": "en", "target": "de", **wanted})
        assert answer[0] == 200, answer
        return answer[1].get("translatedText") or answer[1]["translations"][0]["text"]

    assert said(server, "text") == said(server, "q") == kept
    assert said(server, "text", keep=False) == plain
    status, answer = server.translate(line, keep="no")
    assert status == 400 and "'keep' should be a valid boolean" in answer["error"]
    model = dataclasses.replace(MODEL, encoder_layers=1, decoder_layers=1)
    with running(translator, model=model, keep=False, warm_up_words=0) as other:
        assert said(other, "text") == said(other, "q") == plain
        assert said(other, "text", keep=True) == kept


def test_terms_and_forbidden_phrases_hold_for_every_sentence(server):
    def asked(**wanted):
        status, answer = server.translate("a dog runs .\nthe cat sleeps .", n_best=2, **wanted)
        assert status == 200, answer
        (text,) = answer["translations"]
        return [
            [hypothesis["text"] for hypothesis in sentence["hypotheses"]]
            for sentence in text["sentences"]
        ]

    plain, terms = asked(), {"Dog": "katze", "the cat": "hund"}
    assert asked(terms={"house": "haus"}) == plain
    dog, cat = asked(terms=terms)
    assert all("katze" in text.split() for text in dog)
    assert all("hund" in text.split() for text in cat)
    word = plain[0][0].split()[0]
    assert not any(
        word in text.split() for hypotheses in asked(forbid=[word]) for text in hypotheses
    )


def test_forbidden_phrases_alone_change_nothing_else(server):
    """Their programs have room for required phrases, too."""
    plain = server.translate("\n".join(SENTENCES), n_best=4)
    assert plain[0] == 200
    assert server.translate("\n".join(SENTENCES), n_best=4, forbid=["xyz"]) == plain


def test_terms_that_no_output_can_have_are_refused(server):
    for constraints, said in [
        ({"terms": {"dog": "東京"}}, "the target vocabulary cannot spell the constraint '東京'"),
        ({"terms": {"dog": " ".join(["haus"] * 12)}}, "tokens, but the model writes at most"),
        ({"terms": {"dog": " ".join(["haus"] * 9)}}, "'a dog': its constraints take"),
        ({"terms": {"dog": "hund", "Dog": "haus"}}, "already has the translation"),
        ({"terms": {"dog": ""}}, "'terms' must not be blank"),
        ({"terms": {"dog": "a" * 61}}, "'terms' should have at most 60 characters"),
        ({"forbid": ["a"] * 21}, "'forbid' should have at most 20 items"),
    ]:
        status, answer = server.translate("a dog", **constraints)
        assert status in (400, 413) and said in answer["error"], answer

    # Whichever sentences have the term.
    status, answer = server.translate("a cat", terms={"dog": "東京"})
    assert status == 400 and "cannot spell" in answer["error"]
    assert not server.errors()


def test_odd_and_long_texts_are_answered(server):
    for text in ("\x00 a \x07", "\ufeff", "😀" * 20, "\U000e0001", "a\u0301" * 20):
        status, answer = server.translate(text, n_best=4, alignment=True)
        assert status == 200, answer
        assert server.post("/attention", {"text": text})[0] in (200, 400)
    assert not server.errors()
    text = "the small cat sees a big dog and " * 8
    (sentence,) = server.translate(text)[1]["translations"][0]["sentences"]
    assert sentence["split"]
    status, answer = server.post("/attention", {"text": text})
    assert status == 400 and "32" in answer["error"]
