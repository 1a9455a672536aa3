"""The API over a stand-in translator: what is answered, in both forms of a request."""

import concurrent.futures
import dataclasses
import json
import re
import threading
import urllib.parse

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from flaxformer_mt.serving import answers
from tests.serving.stand_in import MODEL, StandIn, running

JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def server():
    with running(StandIn(), examples=("a b",)) as server:
        yield server


def test_many_texts_keep_their_order_and_their_white_space(server):
    texts = ["one two", "", "  \n", "First one. Second one!\n\n\tthird", "Ünïcödé 😀 東京"]
    status, answer = server.translate(texts)
    assert status == 200
    assert [translation["text"] for translation in answer["translations"]] == [
        "TWO ONE",
        "",
        "  \n",
        "ONE. FIRST ONE! SECOND\n\n\tTHIRD",
        "東京 😀 ÜNÏCÖDÉ",
    ]
    sources = [sentence["source"] for sentence in answer["translations"][3]["sentences"]]
    assert sources == ["First one.", "Second one!", "third"]
    answer = server.translate("First one. Second one.\nThird.", sentences=False)[1]
    (together,) = answer["translations"]
    assert together["text"] == "ONE. SECOND ONE. FIRST\nTHIRD."


def test_every_sentence_is_translated_into_the_language_that_the_text_asks_for():
    translator = StandIn()
    model = dataclasses.replace(MODEL, codes=frozenset({">>fra<<"}))
    with running(translator, model=model) as server:
        answer = server.translate(">>fra<< One two. Three four.", alignment=True)[1]
    assert {line for lines, _ in translator.calls for line in lines} == {
        ">>fra<< One two.",
        ">>fra<< Three four.",
    }
    first, second = answer["translations"][0]["sentences"]
    assert first["source"] == ">>fra<< One two." and "code" not in first
    assert (second["source"], second["code"]) == ("Three four.", ">>fra<<")
    assert second["hypotheses"][0]["alignment"]["source_words"] == ["Three", "four."]


def test_n_best_and_alignments_of_hypotheses_that_can_have_one(server):
    for n_best in (1, 2, 4):
        (sentence,) = server.translate("a b", n_best=n_best)[1]["translations"][0]["sentences"]
        assert set(sentence) == {"source", "split", "at_limit", "hypotheses"}
        assert sentence["hypotheses"] == [
            {"text": text, "score": -0.5 - rank, "log_prob": -1.0 - rank}
            for rank, text in enumerate(["B A", "B A 1", "B A 2", "B A 3"][:n_best])
        ]
    payload = {"text": ["a b", "an unalignable b", "w " * 50], "n_best": 2, "alignment": True}
    translations = server.post("/translate", payload)[1]["translations"]
    first, second, third = (translation["sentences"][0] for translation in translations)

    def alignments(sentence):
        return [hypothesis["alignment"] for hypothesis in sentence["hypotheses"]]

    assert alignments(first) == [
        {"source_words": ["a", "b"], "target_words": ["B", "A"], "links": [[0, 1], [1, 0]]},
        {"source_words": ["a", "b"], "target_words": ["B", "A", "1"], "links": [[0, 1], [1, 0]]},
    ]
    assert alignments(second) == [None, None]
    # Longer than the model takes: translated in pieces.
    assert third["split"] and alignments(third) == [None, None]


def test_attention_is_one_layer_of_all_heads_rounded(server):
    for kind, rows, columns, layers in [
        ("cross", ["B", "A", "</s>"], ["a", "b", "</s>"], 3),
        ("encoder", ["a", "b", "</s>"], ["a", "b", "</s>"], 2),
        ("decoder", ["B", "A", "</s>"], ["<s>", "B", "A"], 3),
    ]:
        status, answer = server.post("/attention", {"text": "a b", "kind": kind, "layer": 1})
        assert status == 200
        assert (answer["rows"], answer["columns"]) == (rows, columns)
        assert (answer["layers"], answer["heads"], answer["translation"]) == (layers, 2, "B A")
        expected = getattr(StandIn().attend("a b", "B A"), kind)[1]
        np.testing.assert_allclose(answer["weights"], expected, atol=5.1e-5)
    of_pair = server.post("/attention", {"text": "a » b", "translation": 'é "y"\n z'})[1]
    assert of_pair["rows"] == ["é", '"y"', "z", "</s>"] and of_pair["translation"] == 'é "y"\n z'
    assert (of_pair["kind"], of_pair["layer"]) == ("cross", 2)  # the last


def test_more_weights_than_an_answer_may_have_are_refused():
    translator = StandIn()
    translator.heads = 300
    with running(translator, max_attention_weights=4 * 4 * 300) as server:
        payload = {"text": "a b c", "kind": "encoder"}
        assert server.post("/attention", payload)[0] == 200
        status, answer = server.post("/attention", {**payload, "text": "a b c d"})
        assert status == 413
        assert "5 x 5 tokens with 300 heads have 7500 weights; at most 4800" in answer["error"]
        assert server.refused("size") == 1


def test_while_an_answer_is_written_others_are_answered(monkeypatch):
    may, begun, writes = threading.Event(), threading.Event(), answers.attention

    def slowly(*arguments):
        begun.set()
        assert may.wait(20)
        return writes(*arguments)

    monkeypatch.setattr(answers, "attention", slowly)
    with concurrent.futures.ThreadPoolExecutor(1) as client, running(StandIn()) as server:
        request = client.submit(server.post, "/attention", {"text": "a b"})
        assert begun.wait(20)
        assert server.translate("a b")[0] == 200
        may.set()
        assert request.result()[0] == 200


def test_libre_one_and_several_with_alternatives_and_detection(server):
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


HTML = {"source": "en", "target": "de", "format": "html"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p class=x>the <b>old</b> dog</p>", "<p class=x>DOG <b>OLD</b> THE</p>"),
        ("the <b>old</b> dog. It <i>barks</i>", "DOG. <b>OLD</b> THE <i>BARKS</i> IT"),
        ("<p>a b</p><pre>a  b</pre><!-- a -->", "<p>B A</p><pre>a  b</pre><!-- a -->"),
        ('a <img alt="x y"> b', 'B A <img alt="Y X">'),
        ("R&amp;D &lt;b> now", "NOW &lt;B&gt; R&amp;D"),
        # Plain text, which most clients send as HTML.
        ("a b\nc d\n\n R&D 1 < 2", "B A\nD C\n\n 2 &lt; 1 R&D"),
        ("", ""),
        ("<br>", "<br>"),
    ],
)
def test_libre_html(server, text, expected):
    assert server.post("/translate", HTML | {"q": text}) == (200, {"translatedText": expected})
    ours = server.post("/translate", {"format": "html", "text": ["x", text]})[1]["translations"]
    assert [translation["text"] for translation in ours] == ["X", expected]


def test_alternatives_and_alignments_of_html(server):
    payload = HTML | {"q": ["a <b>c</b>", "<p>d"], "alternatives": 1}
    assert server.post("/translate", payload)[1] == {
        "translatedText": ["<b>C</b> A", "<p>D"],
        "alternatives": [["<b>C</b> A 1"], ["<p>D 1"]],
    }
    payload = {"format": "html", "text": "<p>a <b>c</b><p>d", "alignment": True}
    (translation,) = server.post("/translate", payload)[1]["translations"]
    assert [sentence["source"] for sentence in translation["sentences"]] == ["a c", "d"]
    assert translation["sentences"][0]["hypotheses"][0]["alignment"]["links"] == [[0, 1], [1, 0]]


def test_html_has_no_alignments_unless_asked(server):
    (translation,) = server.post("/translate", {"format": "html", "text": "a <b>c</b>"})[1][
        "translations"
    ]
    assert "alignment" not in translation["sentences"][0]["hypotheses"][0]


def test_html_too_long_to_be_aligned_keeps_its_tags(server):
    text = "<p>" + "a " * 50 + "<b>unalignable</b> b"
    status, answer = server.post("/translate", HTML | {"q": text})
    assert status == 200 and answer["translatedText"].count("<b>") == 1


def test_libre_form(server):
    body = urllib.parse.urlencode(
        {"q": "grün ist it", "source": "en", "target": "de", "alternatives": "1", "api_key": ""}
    )
    status, answer, _ = server.ask("POST", "/translate", body, FORM)
    assert (status, answer["translatedText"]) == (200, "IT IST GRÜN")
    assert answer["alternatives"] == ["IT IST GRÜN 1"]
    body = urllib.parse.urlencode([("q", "a b"), ("q", "c d"), ("source", "en"), ("target", "de")])
    assert server.ask("POST", "/translate", body, FORM)[1]["translatedText"] == ["B A", "D C"]


LIBRE = {"q": "a b", "source": "en", "target": "de"}


@pytest.mark.parametrize(
    "more",
    [
        {"api_key": None},
        {"api_key": ""},
        {"format": None},
        {"format": ""},
        {"format": "html"},
        {"alternatives": None},
        {"alternatives": -1},
        {"alternatives": "0"},
        {"source": "EN", "target": "DE"},
    ],
)
def test_libre_what_its_clients_send_for_nothing(server, more):
    assert server.post("/translate", LIBRE | more) == (200, {"translatedText": "B A"})


def test_libre_alternatives_are_as_many_as_there_are(server):
    three = ["B A 1", "B A 2", "B A 3"]
    for count in (3, 4, 10**6, 2**70, "7", 3.0):
        status, answer = server.post("/translate", LIBRE | {"alternatives": count})
        assert (status, answer["alternatives"]) == (200, three)
    greedy = dataclasses.replace(MODEL, beam_size=1)
    with running(StandIn(), model=greedy) as server:
        answer = server.post("/translate", LIBRE | {"alternatives": 3})
    assert answer == (200, {"translatedText": "B A", "alternatives": []})


def test_libre_multipart_forms(server):
    fields = LIBRE | {"q": "grün\r\nist it", "alternatives": "1", "api_key": ""}
    lines = [
        f'--Bound\r\nContent-Disposition: form-data; name="{name}"\r\n'
        f"Content-Type: text/plain; charset=utf-8\r\n\r\n{value}\r\n"
        for name, value in fields.items()
    ]
    body = ("".join(lines) + "--Bound--\r\n").encode()
    for boundary in ("Bound", '"Bound"'):
        kind = {"content-type": f"multipart/form-data; boundary={boundary}"}
        status, answer, _ = server.ask("POST", "/translate", body, kind)
        # As LibreTranslate does, since a form has no other line breaks.
        assert (status, answer["translatedText"]) == (200, "GRÜN\nIT IST"), answer
        assert answer["alternatives"] == ["GRÜN 1\nIT IST 1"]
    status, answer, _ = server.ask("POST", "/detect", body, kind)
    assert status == 200 and answer[0]["language"] == "en"


def test_libre_query_parameters(server):
    query = urllib.parse.urlencode(LIBRE | {"q": "grün it"})
    for headers in ({}, FORM, {"content-type": "text/plain"}):
        answer = server.ask("POST", f"/translate?{query}", None, headers)[:2]
        assert answer == (200, {"translatedText": "IT GRÜN"})
    # Parameters come before fields; JSON has no parameters.
    answer = server.ask("POST", f"/translate?{query}", b"q=c&alternatives=1", FORM)[1]
    assert answer == {"translatedText": "IT GRÜN", "alternatives": ["IT GRÜN 1"]}
    assert (
        server.ask("POST", "/translate?q=c", json.dumps(LIBRE), JSON)[1]["translatedText"] == "B A"
    )
    assert server.ask("POST", "/detect?q=three+words", None, {})[1][0]["confidence"] == 100.0


def test_null_is_no_key_in_every_form(server):
    for path, payload in (
        ("/translate", {"text": "a b"}),
        ("/detect", {"q": "a b"}),
        ("/attention", {"text": "a b"}),
    ):
        assert server.post(path, payload | {"api_key": None})[0] == 200


@pytest.mark.parametrize(
    "payload", [LIBRE | {"text": None}, {"q": None, "text": "a b", "n_best": None, "terms": None}]
)
def test_null_stands_for_a_field_that_is_not_given(server, payload):
    status, answer = server.post("/translate", payload)
    assert status == 200
    assert "B A" in str(answer)


def test_an_empty_field_of_a_form_is_not_given(server):
    status, answer, _ = server.ask("POST", "/translate", b"text=a+b&n_best=&alignment=", FORM)
    assert (status, answer["translations"][0]["text"]) == (200, "B A")


def test_libre_languages(server):
    assert server.get("/languages")[1] == [
        {"code": "en", "name": "English", "targets": ["de", "en"]},
        {"code": "de", "name": "German", "targets": ["de"]},
    ]


def test_libre_detect_is_as_sure_as_letters_are_of_the_script(server):
    detected = server.post("/detect", {"q": "three words щ"})[1]
    assert detected == [{"language": "en", "confidence": 90.9}]  # 10 of 11 letters
    assert server.post("/detect", {"q": ["three words", "щ"]})[1] == detected


def test_libre_settings(server):
    settings = server.get("/frontend/settings")[1]
    assert settings["charLimit"] == 5000 and settings["keyRequired"] is False
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    assert settings["examples"] == ["a b"]


def test_metrics_are_prometheus_text(server):
    server.translate("One.")  # of which there are metrics
    _, content, headers = server.get("/metrics")
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(content.decode())}
    assert families["flaxformer_batch_seconds"].type == "histogram"
    (about,) = families["flaxformer_info"].samples
    assert (about.labels["source"], about.labels["weights"]) == ("en", "step 7")
    assert not [name for name in families if name.endswith("_created")]


def test_metrics_count_requests_and_sentences(server):
    answered = 'flaxformer_requests_total{path="/translate",status="200"}'
    requests, sentences = server.metric(answered), server.metric("flaxformer_sentences_total")
    server.translate("One. Two. Three.")
    assert server.metric(answered) == requests + 1
    assert server.metric("flaxformer_sentences_total") == sentences + 3
    assert server.metric("process_resident_memory_bytes") > 1e6
    assert server.metric('flaxformer_request_seconds_count{path="/translate"}') > requests
    assert server.metric("flaxformer_open_requests") == 1  # the one that asks


def test_an_unknown_address_is_json_and_one_in_the_metrics(server):
    for path in ("/nowhere", "/translate/", "/page/../app.py", "/page/%2e%2e/app.py", "/x" * 500):
        status, answer, _ = server.get(path)
        assert (status, answer) == (404, {"error": "Not Found"})
    assert server.metric('flaxformer_requests_total{path="other",status="404"}') >= 5
    status, answer, headers = server.get("/translate")
    assert (status, headers["allow"]) == (405, "POST")


def test_answers_protect_the_browser(server):
    for path in ("/", "/languages", "/nowhere", "/metrics"):
        headers = server.get(path)[2]
        assert headers["content-security-policy"].startswith("default-src 'none'; ")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["server"] is None


def test_answers_are_not_stored_and_assets_not_sent_twice(server):
    assert server.get("/languages")[2]["cache-control"] == "no-store"
    etag = {"if-none-match": server.get("/")[2]["etag"]}
    assert server.get("/", etag)[:2] == (304, b"")
    assert server.ask("HEAD", "/docs")[:2] == (200, b"")


def test_the_openapi_document_has_every_address(server):
    status, document, _ = server.get("/openapi.json")
    assert status == 200 and document["openapi"] == "3.1.0"
    undescribed = {"/", "/docs", "/openapi.json", "/spec", "/suggest"}
    paths = server.server.config.app.paths - undescribed
    assert set(document["paths"]) == {path for path in paths if not path.startswith("/page/")}
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert references <= set(document["components"]["schemas"])
