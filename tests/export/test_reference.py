"""What other runtimes are held to: the model alone."""

from __future__ import annotations

import dataclasses

from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.export.reference import Reference
from tests.export.translators import LINES, translator


def test_rules_of_the_search_are_not_the_models() -> None:
    made = translator()
    plain = Reference(made)
    sources = [[*ids, EOS] for ids in made.vocabularies.src.encode(LINES)]
    outputs = plain.greedy(sources)
    assert any(len(set(output)) < len(output) for output in outputs), "some token stands twice"
    made.config = dataclasses.replace(
        made.config, no_repeat_ngram=1, beam_size=4, length_penalty=1.0
    )
    assert Reference(made).greedy(sources) == outputs
