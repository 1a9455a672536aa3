"""Where sentences end: nothing is lost, no sentence has a line break, doubt cuts nothing."""

import importlib
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.abbreviations import _imported_lists, abbreviations, moses_lists
from flaxformer_mt.sentences import sentence_ends, split_sentences, unquoted

LINE_ENDS = "\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029"
PARTS = [
    *"aB3 .!?…,\"'”)(。！」\t\xa0\u3000।॥።།༄؟։．｡«»；;:あ你と-–",
    *LINE_ENDS,
    *("Dr", " é", "។ល។", "፡፡"),
]
texts = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)
languages = st.sampled_from(["", "en", "de_DE", "el", "hy", "ja", "xx"])


@settings(deadline=None)  # lists of abbreviations are read at first use
@given(texts | st.text(), languages)
def test_sentences_are_lines_without_outer_blanks_and_joined_the_text_again(text, language):
    for at_marks, any_case in ((True, False), (False, False), (True, True)):
        split = split_sentences(text, language, at_marks=at_marks, any_case=any_case)
        assert split.joined(split.texts) == text
        assert len(split.glue) == len(split.texts) + 1
        assert all(glue.strip() == "" for glue in split.glue)
        for sentence in split.texts:
            assert sentence == sentence.strip() != ""
            assert not re.search(f"[{LINE_ENDS}]", sentence)


@settings(deadline=None)
@given(texts, languages)
def test_ends_are_the_places_between_sentences(text, language):
    split = split_sentences(text, language)
    ends = sentence_ends(text, language)
    assert len(ends) >= len(split.texts) - 1 and all(0 < end < len(text) for end in ends)
    between = [text[a:b].strip() for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
    assert [part for part in between if part] == list(split.texts)


@pytest.mark.parametrize("arguments", [(["A. B."], "en"), ("A. B.", None), (b"A.", "en")])
def test_arguments_of_a_wrong_type_are_named(arguments):
    with pytest.raises(
        TypeError, match=r"takes one text and its language.*not (list|str|bytes) and"
    ):
        split_sentences(*arguments)


ONE = {
    "en": [
        "He met Gen. Powell in Rome.",
        "Sen. Smith left on Jan. 5 for Mt. Everest.",
        "The Warner Bros. Studio and J.-P. Sartre.",
        "See Sec. 5, No. 7, pp. 3 and Fig. 2.",
        "Dr. Smith met J. S. Bach and J.R.R. Tolkien.",
        "WE MET DR. SMITH, GEN. LEE AND MRS. BROWN.",
        "1. Introduction",
        "3.14 is pi.5 no",
        "It is, e.g. 5 km away.",
        '"Go!" she said.',
        "a man . another man .",  # tokenised lower-case text
        "Read vol. 3, figs. 4 and eq. 5.",
        "The U.S. Army and the p.m. Edition of Smith Jr. Books.",
        "Dr. The and Mr. He are names.",
    ],
    "de": [
        "Das kostet 5 Mio. Euro.",
        "Siehe Abs. 2, Kap. 3 und Bd. 4.",
        "Siehe Art. 5 GG.",
        "Am 3. Mai kam Ludwig XIV. König wurde er früh.",
        "Vgl. Nr. 5. Abschnitt",
        "In der Goethestr. 5 wohnt Dipl.-Ing. Müller.",
        "z.B. Wien, d. h. Österreich, u.a. Graz.",
        "Der 100. Geburtstag",
        "Siehe Abb. 3, Tab. 2 und Fig. 4.",
        "Die Fa. Bosch, gegr. 1886, hat Mo. Di. und Mi. Pause.",
    ],
    "deu_Latn": ["Das kostet 5 Mio. Euro."],
    "es": ["La Sra. García llegó.", "Los EE. UU. y la Avda. Norte, p. ej. Juan."],
    "it": ["Il Sig. Rossi è qui.", "La Sig.ra Rossi e la Dott.ssa Verdi.", "Parla dell'Avv. Neri."],
    "nl": ["Dhr. Jansen komt.", "Mevr. De Vries en mw. De Boer, ca. 50 jaar."],
    "af": ["Mnr. Botha en Mev. Nel kom."],
    "fr": ["Voir art. 5 et vol. 2.", "M. Dupont et Mme. Durand", "En 50 av. J.-C. César"],
    "pt_BR": ["A Sra. Silva mora na Av. Paulista.", "V. Exa. Sabe"],
    "ru": ["На ул. Ленина живёт А. С. Пушкин.", "5 млн. Рублей", "оз. Байкал"],
    "uk": ["На вул. Франка"],
    "be": ["На вул. Леніна"],
    "pl": ["Na ul. Długiej mieszka prof. Nowak."],
    "da": ["Fru Hansen og f.eks. Peter", "Den 3. Maj"],
    "tr": ["Prof. Dr. Ali ve Doç. Dr. Can", "2. Dünya Savaşı"],
    "sv": ["Dr. Svensson och prof. Ek"],
    "lv": ["Tur ir māja, piem. Rīga."],
    "sw": ["Bw. Juma na Bi. Asha"],
    "hi": ["डॉ. शर्मा आए।", "भारत में 4।5 करोड़ लोग हैं।"],
    "te": ["డా. రావు"],
    "th": ["ดร. สมชาย"],
    "ja": [
        "「はい。」と言った。",
        "Yahoo!知恵袋",
        "価格は１．５倍です。",
        "彼は（本当に？）来た。",
        "番組「あさ．」に出た。",
        "「はい。」を聞いた。",
        "「はい。」への答え。",
        "「はい。」に驚いた。",
        "１ 始め ２．次の話",
    ],
    "zh": ["埃德加．斯諾說。", "《红与黑！》的作者。"],
    "km": ["ផ្លែឈើ។ល។ និង"],
    "bo": ["༄༅། །འདི་ཁང་པ་རེད།"],
    "xx": ["Mr. Smith met Dr. Brown on Jan. 5."],
}
TWO = {
    "en": [
        "It was 12. She left.",
        "It was 1990. Then it ended.",
        "No. It is not.",
        '(He left.) "She stayed."',
        "See www.a.org/x?y=1. Next.",
        "See https://a.org/b. Next.",
        "He paid. $5 is left.",
        "Wait... She left.",
        "I don't. He does.",
        "In the 70’s. Then it ended.",
        "It went at 5 m/s. Then it stopped.",
        "It is at 11 a.m. The shop opens.",
        "He lives in the U.S. They left.",
        "Tea, milk, etc. We buy it all.",
        "You left? – No, he did.",
    ],
    "de": ["Er sagte: „Geh.“ Sie ging.", "Er ging. »Wohin?« fragte sie.", "1990. Danach kam er."],
    "fr": [
        "Il dit : « Va. » Elle part.",
        "Il part. « Va » dit-il.",
        "Où vas-tu ? Chez moi.",
        "Il aime l'art. Elle aussi.",
        "C'est un long vol. Il dort.",
        'Il part. " Va " dit-il.',
        '" Va. " Elle part.',
        "Il est à la N.Y.U. Mais où ?",
    ],
    "es": ["¿Qué? ¡Sí!", "Pan, vino, etc. Todo es bueno."],
    "hi": [
        "यह एक घर है। वह बड़ा है।",
        "यह घर है।वह बड़ा है।",
        "यह घर है।.. वह बड़ा है।",
        "यह घर है।' वह बड़ा है।",
        "यह घर है। 'वह बड़ा है।'",
        '"मैं जाऊँगा।" उसने कहा।',
    ],
    "bn": ["এটা একটি বাড়ি। এটা বড়।"],
    "ur": ["یہ گھر ہے۔ وہ بڑا ہے۔"],
    "ar": ["هل هذا بيت؟ نعم هو كبير."],
    "hy": ["Սա տուն է։ Այն մեծ է։", "Սա տուն է: Այն մեծ է:"],
    "am": ["ይህ ቤት ነው። ትልቅ ነው።", "ይህ ቤት ነው፡፡ ትልቅ ነው፡፡", "ይህ ቤት ነው፧ አዎ።"],
    "km": ["នេះជាផ្ទះ។ វាធំ។"],
    "my": ["ဒါအိမ်ပါ။ ကြီးတယ်။"],
    "bo": ["འདི་ཁང་པ་རེད། དེ་ཆེན་པོ་རེད།"],
    "el": ["Τι κάνεις; Καλά είμαι.", "Τι κάνεις\u037e Καλά είμαι."],
    "ja": [
        "これは家です｡大きいです｡",
        "本当!?はい。",
        "「行く。」「行かない。」",
        "家です．大きい．",
        "Ａ．エックスです。終わり。",
        "「行くよ。」へえ、そう。",
        "「行くよ。」にっこりした。",
    ],
    "zh": ['他说："走吧。"然后走了。', "你好!我是学生。", "真的吗？！是的。"],
    "ka": ["ეს სახლია. ის დიდია."],
    "ko": ["이것은 집. 그것은 크다."],
    "it": ["Non so dov'è. Lui lo sa."],
    "pt": ["Ela sabe quem é. Ele não sabe."],
    "sv": ["Det är en ö. Den är stor."],
    "da": ["Det er en ø. Den er stor."],
    "vi": ["Em chào thầy ạ. Em là Nam."],
    "ru": ["Это я. Ты кто?", "Здесь много лиц. Он ушёл."],
}


@pytest.mark.parametrize("language", ONE)
def test_no_abbreviation_initial_or_ordinal_ends_a_sentence(language):
    wrong = [text for text in ONE[language] if split_sentences(text, language).texts != (text,)]
    assert not wrong


@pytest.mark.parametrize("language", TWO)
def test_every_languages_marks_end_a_sentence(language):
    split = [split_sentences(text, language).texts for text in TWO[language]]
    assert {len(sentences) for sentences in split} == {2}, split


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "go." She left.', ['He said "go."', "She left."]),
        ("Wait … Yes... No.", ["Wait …", "Yes...", "No."]),
        ("Am 3. Mai kam er. Er ging.", ["Am 3. Mai kam er.", "Er ging."]),
        ("彼は来た。彼女は行った！ 終わり", ["彼は来た。", "彼女は行った！", "終わり"]),
        ("¿Qué? ¡Sí! Ya.", ["¿Qué?", "¡Sí!", "Ya."]),
        ("one line\r\nanother\u2028third", ["one line", "another", "third"]),
        (" \n\t ", []),
    ],
    ids=range(8),
)
def test_in_an_unknown_language(text, sentences):
    assert list(split_sentences(text, "").texts) == sentences


@pytest.mark.parametrize(
    ("text", "language", "sentences"),
    [
        ("He said: “Stop. Go.” She left.", "en", ["He said: “Stop. Go.”", "She left."]),
        ("“Who? Me?” he said. No.", "en", ["“Who? Me?” he said.", "No."]),
        ('"Who? Me?", he said. No.', "en", ['"Who? Me?", he said.', "No."]),
        ('He said "No. Yes." and left.', "en", ['He said "No. Yes." and left.']),
        ("Er rief: „Halt. Geh.“ Sie ging.", "de", ["Er rief: „Halt. Geh.“", "Sie ging."]),
        ("Il dit : « Va. Pars. » Elle part.", "fr", ["Il dit : « Va. Pars. »", "Elle part."]),
        ("他说：“走吧。快点。”然后走了。", "zh", ["他说：“走吧。快点。”", "然后走了。"]),
        ("「はい。でも。」と言った。終わり。", "ja", ["「はい。でも。」と言った。", "終わり。"]),
        # Inches, and a mark without its other half.
        ('It is 5". He is 6". Go.', "en", ['It is 5".', 'He is 6".', "Go."]),
        ("He said: “Stop. Go. She left.", "en", ["He said: “Stop.", "Go.", "She left."]),
    ],
)
def test_a_short_quotation_within_a_sentence_is_not_cut(text, language, sentences):
    assert list(split_sentences(text, language).texts) == sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("– “He came. He saw.” She left.", ["– “He came.", "He saw.”", "She left."]),
        ("(“He came. He saw.”) She left.", ["(“He came.", "He saw.”)", "She left."]),
        ("(“He came. He saw.” She left.)", ["(“He came.", "He saw.”", "She left.)"]),
        ("1. “He came. He saw.” She left.", ["1. “He came.", "He saw.”", "She left."]),
        ("Yes. [2.1] “Who? Me?” Yes.", ["Yes.", "[2.1] “Who?", "Me?”", "Yes."]),
        ("– “Who? Me?” he said. No.", ["– “Who? Me?” he said.", "No."]),
        ("(“Who? Me?”) he said. No.", ["(“Who? Me?”) he said.", "No."]),
        ("(“Who? Me?”), he said. No.", ["(“Who? Me?”), he said.", "No."]),
        ("Paul: 1 – “Who? Me?” No.", ["Paul: 1 – “Who? Me?”", "No."]),
    ],
)
def test_a_sign_before_a_quotation_of_whole_sentences_weaves_it_into_none(text, sentences):
    assert list(split_sentences(text, "en").texts) == sentences


def test_a_long_quotation_within_a_sentence_is_cut_at_its_sentences():
    said = " ".join(["Stop it now, please."] * 5)
    assert len(split_sentences(f"He said: “{said}” She left.", "en").texts) == 6


RUSSIAN, FRENCH, GERMAN = "слово " * 25, "un mot " * 20, "ein Wort " * 15


@pytest.mark.parametrize(
    ("text", "language", "count"),
    [
        (f"«{RUSSIAN}конец.» Он ушёл. Она пришла. Мы остались. «Да, конечно.»", "ru", 5),
        (f"Он сказал «{RUSSIAN}конец». Он ушёл. Она пришла. «Да, конечно.»", "ru", 4),
        ("Главная » Новости. Он ушёл. Она пришла « Далее.", "ru", 3),
        (f"« {FRENCH}fin. » Il part. Elle reste. Nous aussi. « Oui. »", "fr", 5),
        (f"« {FRENCH}fin », dit-il. Il part. Elle reste. « Oui. »", "fr", 4),
        (f"»{GERMAN}Ende.« Er ging. Sie kam. Wir blieben. »Ja, gut.«", "de", 5),
        (f"Er rief »{GERMAN}Ende«, laut. Er ging. Sie kam. »Ja.«", "de", 4),
    ],
)
def test_the_end_of_a_long_quotation_begins_no_short_one(text, language, count):
    assert len(split_sentences(text, language).texts) == count


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Han sagde: »Stop. Gå hjem.« Hun gik.", "da"),
        ("Er rief (»Halt. Geh.«) laut. Sie ging.", "de"),
        ("Er rief »Halt. Geh.« und ging. Sie blieb.", "de"),
        ("Il parle d'« Un. Deux. » ici. Elle part.", "fr"),
        ("قال«اذهب. تعال.» ثم ذهب.", "ar"),
    ],
)
def test_angle_marks_of_either_direction_hold_a_short_quotation(text, language):
    assert len(split_sentences(text, language).texts) == 2


@pytest.mark.parametrize(
    ("sentences", "expected"),
    [
        (["“A.", "B.", "C.”", "D."], ["“|A.|", "|B.|", "|C.|”", "|D.|"]),
        (["« A.", "B. »"], ["« |A.|", "|B.| »"]),
        (['"A.', 'B."', '"C."'], ['"|A.|', '|B.|"', '|"C."|']),
        (["„A.", "B.“"], ["„|A.|", "|B.|“"]),
        (["– “A.", "B.”", "C."], ["– “|A.|", "|B.|”", "|C.|"]),
        (["(“A.", "B.”)"], ["(“|A.|", "|B.|”)"]),
        (["1. « A.", "B. »"], ["1. « |A.|", "|B.| »"]),
        (["»A.", "B.«"], ["»|A.|", "|B.|«"]),
        # No quotation of whole sentences, or half of one.
        (["» A.", "B. «"], ["|» A.|", "|B. «|"]),
        (["(“A.", "”)"], ["|(“A.|", "|”)|"]),
        (["1.", "B.”"], ["|1.|", "|B.”|"]),
        (["“A.", "B.” he said."], ["|“A.|", "|B.” he said.|"]),
        (["“A.", "“B.", "C.”"], ["|“A.|", "“|B.|", "|C.|”"]),
        (["“A.", "B."], ["|“A.|", "|B.|"]),
        (["“A.”", "“B.”"], ["|“A.”|", "|“B.”|"]),
        (["“", "A.”"], ["|“|", "|A.”|"]),
        (["“A.", "”"], ["|“A.|", "|”|"]),
        ([], []),
    ],
)
def test_marks_of_a_quotation_of_whole_sentences_are_set_aside(sentences, expected):
    plain = unquoted(sentences)
    shown = [f"{sentence.opening}|{sentence.text}|{sentence.closing}" for sentence in plain]
    assert shown == expected


@pytest.mark.parametrize("blanks", [" ", "\t", "\n \xa0"])
def test_blanks_before_a_number_change_nothing(blanks):
    assert split_sentences(f"{blanks}1. We go.", "en").texts == ("1. We go.",)


def test_lower_case_begins_a_sentence_if_asked_for():
    assert split_sentences("a dog . a cat . ", "en", any_case=True).texts == ("a dog .", "a cat .")


def test_a_related_or_longer_code_has_its_languages_list():
    assert abbreviations("uk").always >= {"вул", "ул"}
    for code in ("de", "de_AT", "de-CH", "deu", "ger", "deu_Latn"):
        assert {"Mio", "Abs", "Kap"} <= abbreviations(code).always and abbreviations(code).ordinals


@pytest.mark.parametrize(
    "unit",
    [
        "a. ",
        ". ",
        "!",
        '."',
        '。"',
        "༄། ",
        "।1",
        "!?あ",
        "。",
        '"。と',
        "a . - ",
        "A. ",
        ".»  ",
        ". «",
        "“A. b.” x ",
        "((-1. “A. b.”) x ",
        "“",
    ],
)
def test_time_is_linear(unit):
    def seconds(text):
        start = time.process_time()
        split = split_sentences(text, "en")
        assert split.joined(split.texts) == text
        return time.process_time() - start

    # A quadratic one would take 400 times as long; the limit is far from both.
    assert seconds(unit * 100_000) < 40 * max(seconds(unit * 5_000), 0.005)


def test_threads_that_need_moses_lists_first_import_them_once(monkeypatch):
    together, imported, import_module = threading.Barrier(4), [], importlib.import_module

    def slow_import(name: str):
        imported.append(name)
        time.sleep(0.05)  # while others come
        return import_module(name)

    def lists(_: int):
        together.wait()
        return moses_lists()

    for name in [name for name in sys.modules if name.partition(".")[0] == "sacremoses"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(importlib, "import_module", slow_import)
    _imported_lists.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        assert len({*map(id, pool.map(lists, range(4)))}) == 1
    assert imported == ["sacremoses.corpus"] and "sacremoses" not in sys.modules
