"""The API over a stand-in translator: what is answered, in both forms of a request."""

from __future__ import annotations

import dataclasses
import json
import re
import urllib.parse
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.serving.stand_in import MODEL, Running, StandIn, quick, running

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(StandIn(), quick(examples=("a b",))) as server:
        yield server


def test_many_texts_keep_their_order_and_their_white_space(server: Running) -> None:
    texts = ["one two", "", "  \n", "First one. Second one!\n\n\tthird", "Ünïcödé 😀 東京"]
    status, answer = server.post("/translate", {"text": texts})
    assert status == 200
    assert [each["text"] for each in answer["translations"]] == [
        "TWO ONE",
        "",
        "  \n",
        "ONE. FIRST ONE! SECOND\n\n\tTHIRD",
        "東京 😀 ÜNÏCÖDÉ",
    ]
    sources = [each["source"] for each in answer["translations"][3]["sentences"]]
    assert sources == ["First one.", "Second one!", "third"]


def test_sentences_are_left_together_on_request(server: Running) -> None:
    payload = {"text": "First one. Second one.\nThird.", "sentences": False}
    (translation,) = server.post("/translate", payload)[1]["translations"]
    assert translation["text"] == "ONE. SECOND ONE. FIRST\nTHIRD."


def test_every_sentence_is_translated_into_the_language_that_the_text_asks_for() -> None:
    translator = StandIn()
    model = dataclasses.replace(MODEL, codes=frozenset({">>fra<<"}))
    with running(translator, model=model) as server:
        payload = {"text": ">>fra<< One two. Three four.", "alignment": True}
        answer = server.post("/translate", payload)[1]["translations"][0]
        assert {line for lines, _ in translator.calls for line in lines} == {
            ">>fra<< One two.",
            ">>fra<< Three four.",
        }
        first, second = answer["sentences"]
        assert first["source"] == ">>fra<< One two." and "code" not in first
        assert (second["source"], second["code"]) == ("Three four.", ">>fra<<")
        assert second["hypotheses"][0]["alignment"]["source_words"] == ["Three", "four."]


@pytest.mark.parametrize("n_best", [1, 2, 3, 4])
def test_n_best(server: Running, n_best: int) -> None:
    answer = server.post("/translate", {"text": "a b", "n_best": n_best})[1]
    (sentence,) = answer["translations"][0]["sentences"]
    assert set(sentence) == {"source", "split", "at_limit", "hypotheses"}
    hypotheses = sentence["hypotheses"]
    assert hypotheses[0] == {"text": "B A", "score": -0.5, "log_prob": -1.0}
    assert [each["text"] for each in hypotheses] == ["B A", "B A 1", "B A 2", "B A 3"][:n_best]
    scores = [each["score"] for each in hypotheses]
    assert scores == sorted(scores, reverse=True)


def test_alignment_is_of_every_hypothesis_that_can_have_one(server: Running) -> None:
    payload = {"text": ["a b", "an unalignable b", "w " * 50], "n_best": 2, "alignment": True}
    translations = server.post("/translate", payload)[1]["translations"]
    first, second, third = (each["sentences"][0] for each in translations)
    assert [each["alignment"] for each in first["hypotheses"]] == [
        {"source_words": ["a", "b"], "target_words": ["B", "A"], "links": [[0, 1], [1, 0]]},
        {"source_words": ["a", "b"], "target_words": ["B", "A", "1"], "links": [[0, 1], [1, 0]]},
    ]
    assert [each["alignment"] for each in second["hypotheses"]] == [None, None]
    # Longer than the model takes: translated in pieces.
    assert third["split"] and [each["alignment"] for each in third["hypotheses"]] == [None, None]


def test_attention_is_one_layer_of_all_heads(server: Running) -> None:
    for kind, rows, columns, layers in [
        ("cross", ["B", "A", "</s>"], ["a", "b", "</s>"], 3),
        ("encoder", ["a", "b", "</s>"], ["a", "b", "</s>"], 2),
        ("decoder", ["B", "A", "</s>"], ["<s>", "B", "A"], 3),
    ]:
        status, answer = server.post("/attention", {"text": "a b", "kind": kind, "layer": 1})
        assert status == 200
        assert (answer["rows"], answer["columns"]) == (rows, columns)
        assert (answer["layers"], answer["heads"], answer["translation"]) == (layers, 2, "B A")


def test_attention_of_a_given_translation(server: Running) -> None:
    answer = server.post("/attention", {"text": "a b", "translation": "x y z"})[1]
    assert answer["rows"] == ["x", "y", "z", "</s>"]
    assert (answer["kind"], answer["layer"]) == ("cross", 2)  # the last


@pytest.mark.parametrize(
    ("source", "target", "blamed"),
    [
        (50, None, ["source"]),
        (50, 9, ["source"]),
        (9, 50, ["target"]),
        (50, 60, ["source", "target"]),
    ],
)
def test_attention_that_the_model_cannot_give_says_why(
    server: Running, source: int, target: int | None, blamed: list[str]
) -> None:
    """Without a translation of the client's, the model's own is not to blame."""
    translation = None if target is None else "w " * target
    status, answer = server.post("/attention", {"text": "w " * source, "translation": translation})
    assert status == 400 and "the model takes 40" in answer["error"]
    assert re.findall(r"the (\w+) has", answer["error"]) == blamed


# --- LibreTranslate -------------------------------------------------------------------------------


def test_libre_one_and_several_with_alternatives_and_detection(server: Running) -> None:
    payload = {"q": "Hello there", "source": "en", "target": "de", "format": "text", "secret": "?"}
    assert server.post("/translate", payload) == (200, {"translatedText": "THERE HELLO"})
    payload = {"q": ["a b", "щ"], "source": "auto", "target": "de", "alternatives": 2}
    assert server.post("/translate", payload)[1] == {
        "translatedText": ["B A", "Щ"],
        "alternatives": [["B A 1", "B A 2"], ["Щ 1", "Щ 2"]],
        "detectedLanguage": [
            {"language": "en", "confidence": 100.0},
            {"language": "en", "confidence": 0.0},
        ],
    }


def test_libre_form(server: Running) -> None:
    body = urllib.parse.urlencode(
        {"q": "grün ist it", "source": "en", "target": "de", "alternatives": "1", "api_key": ""}
    )
    status, answer, _ = server.ask("POST", "/translate", body, FORM)
    assert (status, answer["translatedText"]) == (200, "IT IST GRÜN")
    assert answer["alternatives"] == ["IT IST GRÜN 1"]
    body = urllib.parse.urlencode([("q", "a b"), ("q", "c d"), ("source", "en"), ("target", "de")])
    answer = server.ask("POST", "/translate", body, FORM)[1]
    assert answer["translatedText"] == ["B A", "D C"]


def test_libre_languages_detect_and_settings(server: Running) -> None:
    assert server.ask("GET", "/languages")[1] == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]
    detected = server.post("/detect", {"q": "three words щ"})[1]
    assert detected == [{"language": "en", "confidence": 90.9}]  # 10 of 11 letters
    settings = server.ask("GET", "/frontend/settings")[1]
    assert settings["charLimit"] == 5000 and settings["keyRequired"] is False
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    assert settings["examples"] == ["a b"]


# --- the rest -------------------------------------------------------------------------------------


def test_health_and_head(server: Running) -> None:
    assert server.ask("GET", "/health")[:2] == (200, {"status": "ok"})
    status, content, _ = server.ask("HEAD", "/docs")
    assert (status, content) == (200, b"")


def test_metrics_are_prometheus_text_and_count(server: Running) -> None:
    before = server.metric('flaxformer_requests_total{path="/translate",status="200"}')
    sentences = server.metric("flaxformer_sentences_total")
    server.post("/translate", {"text": "One. Two. Three."})
    _, content, headers = server.ask("GET", "/metrics")
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {each.name: each for each in text_string_to_metric_families(content.decode())}
    assert families["flaxformer_batch_seconds"].type == "histogram"
    (about,) = families["flaxformer_info"].samples
    assert (about.labels["source"], about.labels["weights"]) == ("en", "step 7")
    assert not [name for name in families if name.endswith("_created")]
    after = server.metric('flaxformer_requests_total{path="/translate",status="200"}')
    assert after == before + 1
    assert server.metric("flaxformer_sentences_total") == sentences + 3
    assert server.metric("process_resident_memory_bytes") > 1e6
    assert server.metric('flaxformer_request_seconds_count{path="/translate"}') >= after
    assert server.metric("flaxformer_open_requests") == 1  # the one that asks


def test_an_unknown_address_is_json_and_one_in_the_metrics(server: Running) -> None:
    for path in ("/nowhere", "/translate/", "/page/../app.py", "/page/%2e%2e/app.py", "/x" * 500):
        status, answer, _ = server.ask("GET", path)
        assert (status, answer) == (404, {"error": "Not Found"})
    assert server.metric('flaxformer_requests_total{path="other",status="404"}') >= 5
    status, answer, headers = server.ask("GET", "/translate")
    assert (status, headers["allow"]) == (405, "POST")


def test_answers_protect_the_browser(server: Running) -> None:
    for path in ("/", "/languages", "/nowhere", "/metrics"):
        headers = server.ask("GET", path)[2]
        assert headers["content-security-policy"].startswith("default-src 'none'; ")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["server"] is None
    assert server.ask("GET", "/languages")[2]["cache-control"] == "no-store"


def test_assets_are_asked_for_and_not_sent_twice(server: Running) -> None:
    status, content, headers = server.ask("GET", "/")
    assert status == 200 and content
    again = server.ask("GET", "/", headers={"if-none-match": headers["etag"]})
    assert again[:2] == (304, b"")


def test_a_diverse_search_is_for_as_many_as_were_asked_for() -> None:
    for diverse, searched in ((False, 4), (True, 2)):
        translator = StandIn()
        with running(translator, model=dataclasses.replace(MODEL, diverse=diverse)) as server:
            status, answer = server.post("/translate", {"text": "a b", "n_best": 2})
        assert status == 200
        assert len(answer["translations"][0]["sentences"][0]["hypotheses"]) == 2
        assert translator.calls[-1][1] == searched


def test_the_openapi_document_has_every_address(server: Running) -> None:
    status, document, _ = server.ask("GET", "/openapi.json")
    assert status == 200 and document["openapi"] == "3.1.0"
    pages = {"/", "/docs", "/openapi.json"}
    addresses = {path for path in server.server.config.app.paths if not path.startswith("/page/")}  # type: ignore[union-attr]
    assert set(document["paths"]) == addresses - pages
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert references <= set(document["components"]["schemas"])
