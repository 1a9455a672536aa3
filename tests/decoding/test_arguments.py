"""Arguments of another type than they should have: named, not taken for something else."""

import numpy as np
import pytest

from flaxformer_mt.decoding.constraints.terminology import Terminology
from flaxformer_mt.decoding.errors import TargetError
from flaxformer_mt.decoding.options import LineOptions, SearchOptions
from flaxformer_mt.decoding.search.sampling import Sampling
from flaxformer_mt.decoding.translator import Translator
from tests.decoding.runs import LINES

TWO = LINES[:2]


@pytest.mark.parametrize("name", ["constraints", "forbid_each"])
def test_a_str_in_place_of_a_list_of_phrases_is_one_phrase(translator, name):
    alone = translator.translate(TWO, **{name: [["hund"], []]})
    assert translator.translate(TWO, **{name: ["hund", []]}) == alone
    assert translator.translate(TWO, **{name: (("hund",), ())}) == alone


def test_an_empty_str_in_place_of_a_list_is_no_phrase(translator):
    alone = translator.translate(TWO)
    for given in ({"forbid": ""}, {"suppress": ""}, {"forbid_each": ["", ""]}):
        assert translator.translate(TWO, **given) == alone
    constrained = translator.translate(TWO, constraints=["hund", []])
    assert translator.translate(TWO, constraints=["hund", ""]) == constrained
    assert LineOptions(forbid="", constraints="") == LineOptions()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"constraints": "hund"}, r"constraints must be a list with a list .* not str 'hund'"),
        ({"constraints": {"hund": "x"}}, "constraints must be a list with .* not dict"),
        ({"constraints": {"hund", "haus"}}, "constraints must be .*: a set has no order"),
        ({"constraints": [b"hund", []]}, r"constraints\[0\] must be a str or a list .* not bytes"),
        ({"constraints": [None, []]}, r"constraints\[0\] must be .* not None"),
        ({"constraints": [[], [3]]}, r"constraints\[1\]\[0\] must be a str, not int 3"),
        ({"forbid_each": 5}, "forbid_each must be a list with .* not int 5"),
        ({"forbid_each": [["x"], [None]]}, r"forbid_each\[1\]\[0\] must be a str, not None"),
        ({"forbid": b"hund"}, "forbid must be a str or a list of str, not bytes"),
        ({"forbid": ["hund", b"haus"]}, r"forbid\[1\] must be a str, not bytes"),
        ({"forbid": None}, "forbid must be a str or a list of str, not None"),
        ({"suppress": 7}, "suppress must be a str or a list of str, not int 7"),
        ({"suppress": [7]}, r"suppress\[0\] must be a str, not int 7"),
        ({"prefixes": b"die"}, "prefixes must be a str or a list of str, not bytes"),
        ({"prefixes": ["die", None]}, r"prefixes\[1\] must be a str, not None"),
        ({"terminology": {"dog": "hund"}}, "terminology must be a Terminology, not dict"),
        ({"sampling": 1.0}, "sampling must be a Sampling, not float"),
        ({"n_best": "2"}, "n_best must be an integer, not str '2'"),
        ({"n_best": True}, "n_best must be an integer, not bool True"),
        ({"first": 0.5}, "first must be an integer, not float 0.5"),
        ({"overlong": None}, "overlong must be 'split' or 'refuse', not None"),
        ({"mbr": "no"}, "mbr must be a bool, not str 'no'"),
        ({"constraint_sizes": 1}, "constraint_sizes must be a list of ConstraintSizes, not int 1"),
        ({"constraint_sizes": [[1]]}, r"constraint_sizes\[0\] must be a ConstraintSizes, not list"),
        ({"masks": "digits"}, "masks must be a list of Mask, not str 'digits'"),
        ({"masks": [3]}, r"masks\[0\] must be a Mask, not int 3"),
        ({"nbest": 2}, "unexpected keyword argument 'nbest'"),
    ],
)
def test_another_type_is_named(translator, given, message):
    with pytest.raises(TypeError, match=message):
        translator.translate(TWO, **given)


@pytest.mark.parametrize("name", ["several", "overlong"])
def test_another_word_is_named_before_anything_is_searched(translator, monkeypatch, name):
    monkeypatch.setattr(Translator, "_decoder", None)
    with pytest.raises(ValueError, match=f"{name} must be '.*' or '.*', not str 'no'"):
        translator.translate(TWO, **{name: "no"})


@pytest.mark.parametrize("lines", [None, 5, b"a dog", {"a dog": 1}, {"a", "b"}, [b"a"], ["a", 1.5]])
def test_lines_must_be_text(translator, lines):
    for ask in (translator.translate, translator.compile):
        with pytest.raises(TypeError, match=r"^lines.* must be a (list of )?str, not "):
            ask(lines)


def test_lines_may_come_from_any_ordered_collection(translator):
    expected = translator.translate(TWO)
    assert translator.translate(iter(TWO)) == expected
    assert translator.translate(np.array(TWO)) == expected
    assert translator.translate(tuple(TWO), n_best=np.int64(1)) == expected


@pytest.mark.parametrize("name", ["prefixes", "constraints", "forbid_each"])
@pytest.mark.parametrize("items", [1, 3])
def test_a_list_of_another_length_is_named(translator, name, items):
    argument = {name: ["hund"] * items}
    with pytest.raises(ValueError, match=rf"{name} has {items} items? for 2 lines"):
        translator.translate(TWO, **argument)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (None, "pairs must be a list of .* tuples, not None"),
        ([5], "pair 0 is int 5, not a .source, translation. tuple"),
        ([{"a": 1, "b": 2}], "pair 0 is dict .* not a"),
        ([("a dog", "hund"), (b"a dog", "hund")], "pair 1: the source must be a str, not bytes"),
        ([("a dog", b"hund")], "pair 0: a translation must be a str or .* not bytes"),
        ([("a dog", None)], "pair 0: a translation must be a str or .* not None"),
    ],
)
def test_pairs_must_be_texts_or_tokens(translator, pairs, message):
    for ask in (translator.score, translator.align):
        with pytest.raises(TypeError, match=message):
            ask(pairs)


def test_tokens_must_be_integers(translator):
    for tokens in ([4.7], [True], [None], ["5"]):
        with pytest.raises(TargetError, match="must be a str or a sequence of token ids: .* not"):
            translator.score([("a dog", tokens)])
    assert translator.score([("a dog", np.array([4, 5]))]) == translator.score([("a dog", [4, 5])])


def test_other_methods_name_other_types(translator):
    for wrong, ask in (
        ("load_ensemble takes a list", lambda: Translator.load_ensemble("run")),
        ("window must be an integer", lambda: translator.translate_lines(TWO, window=2.5)),
        ("takes lines of text, not bytes", lambda: translator.translate_lines(b"ab")),
        ("n_best must be an integer", lambda: translator.translate_lines(TWO, n_best="2")),
        ("layer must be an integer", lambda: translator.align([("a", "b")], layer="1")),
        ("dtype must be 'float32' or 'bf", lambda: translator.with_dtype(None)),
        ("'beam_size' = '4': must be of type int", lambda: translator.with_config(beam_size="4")),
        ("unknown setting 'beam'; did you", lambda: translator.with_config(beam=4)),
    ):
        with pytest.raises(TypeError, match=wrong):
            ask()
    with pytest.raises(ValueError, match="'length_norm' = 'x': must be one of 'gnmt', 'average'"):
        translator.with_config(length_norm="x")
    with pytest.raises(ValueError, match="several must be 'auto' or 'split' or 'keep'"):
        translator.translate_lines(TWO, several="all")
    with pytest.raises(ValueError, match="at least one run"):
        Translator.load_ensemble([])


def test_a_terminology_or_sampling_of_other_types_is_named():
    for wrong in (["dog"], "dog", None, {"dog": None}, {5: "hund"}, {"dog": ["hund"]}):
        with pytest.raises(TypeError, match="terms must map a str to a str"):
            Terminology.of(wrong)
    with pytest.raises(TypeError, match=r"with Terminology.of"):
        Terminology({"dog": "hund"})
    for name, value in (("temperature", "1"), ("top_k", 2.5), ("seed", None), ("top_p", None)):
        with pytest.raises(TypeError, match=f"{name} = .* must be a"):
            Sampling(**{name: value})


def test_options_of_a_line_are_texts_and_one_object_a_line(translator):
    assert LineOptions(constraints="hund") == LineOptions(constraints=["hund"])
    for wrong in ({"prefix": 3}, {"forbid": None}, {"constraints": [b"hund"]}):
        with pytest.raises(TypeError, match=f"{next(iter(wrong))}.* must be a"):
            LineOptions(**wrong)
    with pytest.raises(ValueError, match="wanted has 1 item for 2 lines"):
        translator.translate_with(TWO, SearchOptions(), [LineOptions()])
    with pytest.raises(TypeError, match="lines must be a list of str, not str"):
        translator.translate_with("a dog", SearchOptions(), [LineOptions()] * 5)
