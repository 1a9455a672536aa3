"""A model of several directions: which one a request gets, and what the API says of them."""

import dataclasses

import pytest

from flaxformer_mt.cli import serve
from flaxformer_mt.cli.actions.serve import offered, served_model
from flaxformer_mt.config import freeze, to_dict
from tests.decoding import runs
from tests.serving.stand_in import LONGEST, MODEL, SEVERAL, StandIn, running


@pytest.fixture(scope="module")
def translator():
    return StandIn()


@pytest.fixture(scope="module")
def server(translator):
    with running(translator, model=SEVERAL) as server:
        yield server


def read(translator, server, **request):
    """What the model reads of a request."""
    translator.calls.clear()
    status, answer = server.post("/translate", request)
    assert status == 200, answer
    return sorted({line for lines, _ in translator.calls for line in lines})


@pytest.mark.parametrize(
    ("languages", "line"),
    [
        ({}, "<2de> a b"),
        ({"source": "auto"}, "<2de> a b"),
        ({"source": "en"}, "<2de> a b"),
        ({"target": "zh"}, "<2zh> <formal> a b"),
        ({"source": "en", "target": "zh"}, "<2zh> <formal> a b"),
        # The first source of that target, since English isn't one.
        ({"target": "en"}, "a b"),
        ({"source": "auto", "target": "en"}, "a b"),
        ({"source": "fr"}, "<fr2en> a b"),
        ({"source": "fr", "target": "en"}, "<fr2en> a b"),
    ],
    ids=str,
)
def test_a_request_gets_the_tag_of_its_direction(translator, server, languages, line):
    assert read(translator, server, text="a b", **languages) == [line]
    if {"source", "target"} <= {*languages}:  # LibreTranslate's form needs both
        assert read(translator, server, q="a b", **languages) == [line]


def test_the_first_direction_s_languages_come_before_others(translator):
    pairs = ["en-de", "fr-es", "en-es", "nl-fr", "nl-de"]
    directions = {(pair[:2], pair[3:]): f"<{pair}>" for pair in pairs}
    with running(translator, model=dataclasses.replace(MODEL, directions=directions)) as server:
        assert read(translator, server, q="a", source="auto", target="es") == ["<en-es> a"]
        assert read(translator, server, text="a", source="nl") == ["<nl-de> a"]


@pytest.mark.parametrize(
    ("text", "source", "target", "reason"),
    [
        ("text", "de", "de", "'target' should be 'en' for the source 'de'"),
        ("text", "en", "en", "'target' should be 'de' or 'zh' for the source 'en'"),
        ("text", "zh", "en", "'source' should be 'en', 'de', 'fr' or 'auto'"),
        ("text", "en", "fr", "'target' should be 'de', 'zh' or 'en'"),
        ("text", "en", "auto", "'target' should be 'de', 'zh' or 'en'"),
        ("q", "de", "zh", "'target' should be 'en' for the source 'de'"),
        ("q", "zh", "en", "'source' should be 'en', 'de', 'fr' or 'auto'"),
        ("q", "en", "fr", "'target' should be 'de' or 'zh' for the source 'en'"),
        ("q", "auto", "fr", "'target' should be 'de', 'zh' or 'en' for the source 'auto'"),
        ("q", "en", "auto", "'target' should be 'en', 'de', 'fr' or 'zh'"),
    ],
)
def test_other_pairs_are_refused_with_those_that_there_are(server, text, source, target, reason):
    answer = server.post("/translate", {text: "a", "source": source, "target": target})
    assert answer == (400, {"error": reason})


def test_codes_are_named_as_libretranslate_names_them(translator, server):
    for target in ("ZH", "zh-Hans", "zh_CN"):
        assert read(translator, server, q="a", source="EN", target=target) == ["<2zh> <formal> a"]


def test_codes_of_other_programs_are_known(translator, server):
    for source, target in (("eng", "zho"), ("en-US", "zh-SG"), ("en_GB", "chi")):
        for text in ("q", "text"):
            request = {text: "a", "source": source, "target": target}
            assert read(translator, server, **request) == ["<2zh> <formal> a"]
    # The traditional script isn't the simplified one.
    answer = server.post("/translate", {"q": "a", "source": "en", "target": "zh-TW"})
    assert answer[0] == 400


def test_of_two_variants_each_code_means_its_own(translator):
    directions = {("en", "zh_CN"): "<2cn>", ("en", "zh"): "<2zh>", ("zh", "en"): "<2en>"}
    variants = dataclasses.replace(MODEL, tgt_lang="zh_CN", directions=directions)
    with running(translator, model=variants) as server:
        assert read(translator, server, q="a", source="en", target="zh") == ["<2zh> a"]
        assert read(translator, server, q="a", source="en", target="zh-cn") == ["<2cn> a"]
        # Only "zh" is a source.
        assert read(translator, server, q="a", source="zh-CN", target="en") == ["<2en> a"]


def test_every_sentence_has_the_tag_and_says_so(translator, server):
    request = {"text": ["One two. Three.", " \n"], "target": "zh", "alignment": True}
    lines = ["<2zh> <formal> One two.", "<2zh> <formal> Three."]
    assert read(translator, server, **request) == lines

    first, blank = server.post("/translate", request)[1]["translations"]
    assert blank == {"text": " \n", "sentences": []}
    sentences = first["sentences"]
    assert [sentence["source"] for sentence in sentences] == ["One two.", "Three."]
    assert [sentence["code"] for sentence in sentences] == ["<2zh> <formal>"] * 2
    alignment = sentences[0]["hypotheses"][0]["alignment"]
    assert alignment["source_words"] == ["One", "two."]
    # The stand-in links four words with the last four of its translation's.
    assert alignment["links"] == [[0, 1], [1, 0]]


def test_what_a_text_itself_begins_with_wins(translator, server):
    request = {"text": "One.\n<fr2en> Two. Three.\n<2zh> <formal> Four. Five.", "target": "de"}
    assert read(translator, server, **request) == [
        "<2de> One.",
        "<2zh> <formal> Five.",
        "<2zh> <formal> Four.",
        "<fr2en> Three.",
        "<fr2en> Two.",
    ]
    codes = [
        sentence.get("code")
        for sentence in server.post("/translate", request)[1]["translations"][0]["sentences"]
    ]
    assert codes == ["<2de>", None, "<fr2en>", None, "<2zh> <formal>"]
    assert read(translator, server, text=">>nld<< One.", source="fr") == [">>nld<< One."]


def test_sentences_are_cut_by_the_rules_of_the_source(server):
    for source, count in (("de", 1), ("en", 2)):  # a German ordinal number ends with a full stop
        answer = server.post("/translate", {"text": "Am 3. Mai kam er.", "source": source})[1]
        assert len(answer["translations"][0]["sentences"]) == count


def test_translations_are_joined_as_the_target_is_written(server):
    for target, joined in (
        ("de", "A? <2DE> B? <2DE>"),
        ("zh", "A? <FORMAL> <2ZH>B? <FORMAL> <2ZH>"),
    ):
        answer = server.post("/translate", {"q": "A? B?", "source": "en", "target": target})[1]
        assert answer["translatedText"] == joined


def test_what_is_too_long_is_cut_in_its_own_languages(monkeypatch, translator, server):
    asked = []

    def in_languages(self, *languages):
        asked.append(languages)
        return self

    monkeypatch.setattr(StandIn, "in_languages", in_languages)
    long = "w " * LONGEST + "w"
    for request in ({}, {"target": "zh"}, {"source": "fr"}, {"source": "en", "target": "de"}):
        texts = ["a b", long, "c"]
        translations = server.post("/translate", {"text": texts, **request})[1]["translations"]
        assert [each["sentences"][0]["split"] for each in translations] == [False, True, False]
        assert translations[1]["text"].startswith("W W W")
    assert asked == [("en", "zh"), ("fr", "en")]


def test_detected_is_the_source_of_the_request(server):
    for target, source in (("zh", "en"), ("en", "de")):
        payload = {"q": "a", "source": "auto", "target": target}
        answer = server.post("/translate", payload)[1]
        assert answer["detectedLanguage"] == {"language": source, "confidence": 100.0}


def test_a_sentence_with_its_tag_has_attention_and_alternatives(server):
    (sentence,) = server.post("/translate", {"text": "a b", "n_best": 3})[1]["translations"][0][
        "sentences"
    ]
    assert [each["text"] for each in sentence["hypotheses"]] == [
        "B A <2DE>",
        "B A <2DE> 1",
        "B A <2DE> 2",
    ]
    text = f"{sentence['code']} {sentence['source']}"
    answer = server.post("/attention", {"text": text, "kind": "encoder"})[1]
    assert answer["rows"] == ["<2de>", "a", "b", "</s>"]


def test_languages_are_all_with_their_targets(server):
    assert server.get("/languages")[1] == [
        {"code": "en", "name": "English", "targets": ["de", "en", "zh"]},
        {"code": "de", "name": "German", "targets": ["de", "en"]},
        {"code": "fr", "name": "French", "targets": ["en", "fr"]},
        {"code": "zh", "name": "Chinese", "targets": ["zh"]},
    ]


def test_detect_has_every_source_and_the_likeliest_first():
    directions = {("en", "uk"): "", ("uk", "en"): "<en>", ("ar", "en"): "<en>"}
    scripts = dataclasses.replace(MODEL, tgt_lang="uk", directions=directions)
    with running(StandIn(), model=scripts) as server:
        assert server.post("/detect", {"q": "щось a"})[1] == [
            {"language": "uk", "confidence": 80.0},
            {"language": "en", "confidence": 20.0},
            {"language": "ar", "confidence": 0.0},
        ]
        settings = server.get("/frontend/settings")[1]
    assert settings["language"]["target"] == {"code": "uk", "name": "Ukrainian"}
    assert settings["languages"][2] == {
        "code": "ar",
        "name": "Arabic",
        "direction": "rtl",
        "targets": ["en"],
    }


def test_the_openapi_document_has_all_languages(server):
    document = server.get("/openapi.json")[1]
    assert document["info"]["title"] == "Translation in 4 directions"
    ours, libre = (
        document["components"]["schemas"][name]["properties"]
        for name in ("TranslateRequest", "LibreTranslateRequest")
    )
    assert libre["source"]["enum"] == ["en", "de", "fr", "zh", "auto"]
    assert libre["target"]["enum"] == ["en", "de", "fr", "zh"]
    for form, targets in (("TranslateRequest", ["en"]), ("LibreTranslateRequest", ["en", "fr"])):
        known = document["components"]["schemas"][form]["anyOf"]
        french = {"source": {"enum": ["fr"]}, "target": {"enum": [*targets, None]}}
        assert {"properties": french} in known
    assert (ours["source"]["default"], ours["target"]["default"]) == ("auto", "de")
    detect = document["paths"]["/detect"]["post"]
    answer = detect["responses"]["200"]["content"]["application/json"]["schema"]
    assert (answer["minItems"], answer["maxItems"]) == (3, 3)
    assert detect["summary"] == "How likely a text is in each source language"


def test_metrics_have_all_languages(server):
    about = 'flaxformer_info{source="en,de,fr",target="de,zh,en",version='
    assert about in server.get("/metrics")[1].decode()


def test_the_only_direction_needs_no_tag(translator):
    tagged = dataclasses.replace(MODEL, directions={("en", "de"): "<news>"})
    with running(translator, model=tagged) as server:
        assert read(translator, server, text="a b") == ["a b"]
        assert "languages" not in server.get("/frontend/settings")[1]
        assert server.get("/openapi.json")[1]["info"]["title"] == "Translation English → German"


@pytest.fixture(scope="module")
def run_of_two(tmp_path_factory):
    """A run whose training text has two directions, neither that of its settings."""
    tree = to_dict(runs.config())
    corpus = {"src": "a.txt", "tgt": "b.txt"}
    tree["data"]["train"] = {
        "a": {**corpus, "src_lang": "fr", "tgt_lang": "zh", "tag": "<2zh>"},
        "b": {**corpus, "src_lang": "zh", "tgt_lang": "fr", "tag": "<2fr>"},
    }
    with pytest.MonkeyPatch.context() as patch:
        settings = freeze(tree, "tests")
        patch.setattr(runs, "config", lambda: settings)
        yield runs.make_run(tmp_path_factory.mktemp("directions") / "run", {1: None})


def test_a_run_is_served_in_the_directions_of_its_text(run_of_two):
    options = serve._parser("serve", "").parse_args(["--workdir", str(run_of_two.path)])
    translator, model = served_model(options)
    assert model.first == (translator.src_lang, translator.tgt_lang) == ("fr", "zh")
    assert model.directions == {("fr", "zh"): "<2zh>", ("zh", "fr"): "<2fr>"}
    assert offered(model) == "fr to zh (first of 2 directions)"
    text = "a dog runs home ."
    with running(translator, model=model) as server:
        for source, target in model.directions:
            status, answer = server.translate(text, source=source, target=target)
            expected = translator.with_tag(model.directions[source, target]).translate(text)
            assert (status, answer["translations"][0]["text"]) == (200, expected.text)
        long = " ".join([text] * 6)
        answer = server.translate(long, source="zh", sentences=False)[1]
        assert answer["translations"][0]["sentences"][0]["split"]
        expected = translator.with_tag("<2fr>").translate(long, several="keep")
        assert answer["translations"][0]["text"] == expected.text
