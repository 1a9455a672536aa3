"""Masks as a caller adds them: one file, handed to `translate`."""

import dataclasses

import jax
import numpy as np
import pytest

from flaxformer_mt.data import shortlist, vocabulary
from flaxformer_mt.data.shortlist import Shortlist
from flaxformer_mt.decoding.errors import DecodingError, LineError
from flaxformer_mt.decoding.masks.base import Allowed, MaskArrays
from flaxformer_mt.decoding.run import shortlists
from flaxformer_mt.decoding.run.arrays import BatchFiller, ConstraintSizes
from flaxformer_mt.decoding.search.settings import Rules
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.model.transformer import Transformer
from tests.decoding.no_digits import NoDigits
from tests.decoding.runs import config, parameters

PAIRS = [
    ("in 1984 he had 7 dogs and 12 cats", "1984 hatte er 7 hunde und 12 katzen"),
    ("page 56 has 90 lines", "seite 56 hat 90 zeilen"),
    ("we met 3 of the 20 people", "wir trafen 3 der 20 leute"),
]
LINES = [source for source, _ in PAIRS]


@pytest.fixture(scope="module")
def numbering():
    """A model that writes digits: the rows of their types are the longest."""
    settings = config()
    small = dataclasses.replace(settings.data.vocabulary, size=60)
    vocabularies = vocabulary.train_pair(PAIRS * 5, small)
    model = Transformer(settings.model, vocabularies.src.size, vocabularies.tgt.size)
    params = parameters(model, 1)
    table = params["embedding"]["shared"]
    digits = np.isin(np.arange(len(table)), NoDigits.of(vocabularies.tgt).types)
    louder = jax.numpy.where(digits[:, None], 4 * table, table)
    params = {**params, "embedding": {**params["embedding"], "shared": louder}}
    return Translator(params, model, vocabularies, settings.decoding)


def has_digit(translations) -> list[bool]:
    return [any(map(str.isdigit, translation.text)) for translation in translations]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_mask_bans_its_types_whatever_the_model_expects(numbering, beam):
    translator = numbering.with_config(beam_size=beam)
    mask = NoDigits.of(numbering.vocabularies.tgt)
    assert all(has_digit(translator.translate(LINES)))
    assert not any(has_digit(translator.translate(LINES, masks=[mask])))


def test_a_mask_holds_among_a_shortlist_s_types(numbering, monkeypatch):
    monkeypatch.setattr(shortlists, "LEAST_TYPES", 32)
    monkeypatch.setattr(shortlist, "FREQUENT", 1)
    types = numbering.vocabularies.tgt.size
    known = Shortlist(np.full((types, 1), 5), np.arange(types)[::-1], "")
    shortened = Translator(
        numbering.params,
        numbering.model,
        numbering.vocabularies,
        numbering.config,
        shortlist=known,
    )
    mask = NoDigits.of(numbering.vocabularies.tgt)
    assert any(has_digit(shortened.translate(LINES)))
    assert not any(has_digit(shortened.translate(LINES, masks=[mask])))


def test_a_mask_is_beside_the_others(numbering):
    mask = NoDigits.of(numbering.vocabularies.tgt)
    translator = numbering.with_config(no_repeat_ngram=1, max_extra_tokens=16)
    (translation,) = translator.translate(
        LINES[1:2], masks=[mask], constraints=[[]], forbid=["seite"]
    )
    assert not has_digit([translation])[0]
    assert "seite" not in translation.text.split()
    assert len(set(translation.tokens)) == len(translation.tokens)


@dataclasses.dataclass(frozen=True)
class NotAfter:
    """Bans a type after another one, by a table of two states: whether that one was last."""

    type: int
    last: int

    def arrays(self, sources, types, shape):
        table = np.zeros((2, len(types)), bool)
        table[1] = types == self.type
        return MaskArrays(shared=table)

    def in_states(self, arrays, states, types, shape):
        table = np.zeros((states, types), bool)
        table[: len(arrays.shared)] = arrays.shared
        return MaskArrays(shared=table)

    def banned(self, arrays, generated):
        before = jax.numpy.maximum(generated.position - 1, 0)
        last = jax.numpy.take(generated.tokens, before, axis=2)
        return arrays.shared[(last == self.last).astype(int)]


def test_a_mask_with_a_table_has_it_in_the_sizes_that_programs_are_compiled_for(numbering):
    translator = numbering.with_config(beam_size=1)
    first, second = translator.translate(LINES[0]).tokens[:2]
    mask = NotAfter(second, first)
    sizes = ConstraintSizes(4, 8, 16)
    filler = BatchFiller(Rules(beam_size=1, masks=(mask,)), 1, [sizes])
    assert filler.empty((1, 16), 60, sizes).mask_shared[-1].shape == (16, 60)

    (alone,) = translator.translate(LINES[:1], masks=[mask])
    assert alone.tokens[0] == first and alone.tokens[1] != second
    assert translator.translate(LINES[:1], masks=[mask], constraint_sizes=[sizes]) == [alone]
    with pytest.raises(LineError, match="about 1 letters of forbidden phrases"):
        translator.translate(LINES[:1], masks=[mask], constraint_sizes=[ConstraintSizes(4, 8, 1)])


def test_of_a_mask_that_bans_everything_the_line_is_named_and_not_the_model(numbering):
    every = NoDigits(tuple(range(numbering.vocabularies.tgt.size)))
    with pytest.raises(LineError, match="the search found no translation of at most") as error:
        numbering.translate(["", *LINES[:1]], masks=[every])
    assert error.value.number == 1


def test_of_a_damaged_model_the_model_is_named_and_not_the_mask(numbering):
    params = jax.tree.map(lambda leaf: leaf * jax.numpy.nan, numbering.params)
    damaged = Translator(params, numbering.model, numbering.vocabularies, numbering.config)
    mask = NoDigits.of(numbering.vocabularies.tgt)
    with pytest.raises(DecodingError, match="not finite"):
        damaged.translate(LINES, masks=[mask])


def test_bans_without_the_columns_that_pad_a_tpus_logits_hold_for_the_first():
    free = np.array([True, True, True, True, False, False])
    banned = jax.numpy.array([[[True, False, False, False]]])
    allowed = Allowed(jax.numpy.array([-1]), free, None).without(banned)
    assert allowed.flags(beams=1)[0, 0].tolist() == [False, True, True, True, False, False]
