"""What the search finds with each of its settings, against outputs on record.

The model is a trained one, so that hypotheses differ by more than rounding.
`python -m tests.decoding.test_settings` records the outputs anew: only where one should change.
"""

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.decoding.constraints.terminology import Terminology
from flaxformer_mt.decoding.search.sampling import Sampling
from flaxformer_mt.decoding.translator import Translator

RUN = Path(__file__).parent.parent / "frozen" / "format_1"
RECORD = Path(__file__).with_suffix(".json")
LINES = [
    "We are going home.",
    "The old teacher has not bought the red car.",
    "Who sings?",
    "The farmers in the market sell fish and bread.",
]

# Settings of `with_config`, and arguments of `translate`.
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "greedy": ({"beam_size": 1}, {}),
    "beam": ({}, {}),
    "n_best": ({}, {"n_best": 4}),
    "length_penalty": ({"length_penalty": 0.9}, {}),
    "negative_length_penalty": ({"length_penalty": -0.5}, {}),
    "average": ({"length_norm": "average", "length_penalty": 1.0}, {"n_best": 2}),
    "ends_among_the_beam": ({"ends_among": "beam"}, {"n_best": 4}),
    "patience": ({"patience": 0.5}, {"n_best": 2}),
    "coverage_penalty": ({"coverage_penalty": 0.4}, {"n_best": 2}),
    "no_repeat_ngram": ({"no_repeat_ngram": 1}, {"n_best": 2}),
    "groups": ({"diverse_groups": 2, "diversity": 1.5}, {"n_best": 4}),
    "limits": ({"max_ratio": 0.3, "max_extra_tokens": 2}, {}),
    "sampling": ({}, {"sampling": Sampling(temperature=0.8, seed=3), "n_best": 2}),
    "top_k": ({}, {"sampling": Sampling(top_k=5)}),
    "top_p": ({}, {"sampling": Sampling(top_p=0.6), "n_best": 4}),
    "mbr": ({}, {"mbr": True, "n_best": 2}),
    "prefixes": ({}, {"prefixes": ["Wir gehen", "", "Wer", "Die Bauern"]}),
    "suppress": ({}, {"suppress": ["en", "."]}),
    "forbid": ({}, {"forbid": ["Wen", "der", "St"], "n_best": 2}),
    "forbid_each": (
        {"no_repeat_ngram": 3},
        {"forbid_each": [["Wen"], [], ["Wen", "Wer"], ["Die"]]},
    ),
    "constraints": (
        {},
        {"constraints": [["nach Hause", "gehen"], [], ["singt"], ["Fisch"]], "n_best": 2},
    ),
    "terminology": (
        {"coverage_penalty": 0.1},
        {
            "terminology": Terminology.of({"teacher": "Lehrer", "car": "Auto", "fish": "Fisch"}),
            "forbid": ["Der"],
        },
    ),
}


@functools.cache
def translator() -> Translator:
    return Translator.load(RUN)


def outputs(name: str) -> list[list[tuple[list[int], float]]]:
    """Tokens and score of each hypothesis of each line."""
    settings, arguments = SETTINGS[name]
    translations = translator().with_config(**settings).translate(LINES, **arguments)
    return [
        [(list(hypothesis.tokens), hypothesis.score) for hypothesis in translation.hypotheses]
        for translation in translations
    ]


@pytest.mark.parametrize("name", SETTINGS)
def test_outputs_are_those_on_record(name):
    recorded = json.loads(RECORD.read_text())[name]
    for hypotheses, expected in zip(outputs(name), recorded, strict=True):
        assert [tokens for tokens, _ in hypotheses] == [tokens for tokens, _ in expected]
        scores = [score for _, score in expected]
        assert [score for _, score in hypotheses] == pytest.approx(scores, rel=1e-4)


if __name__ == "__main__":
    recorded = [f"{json.dumps(name)}: {json.dumps(outputs(name))}" for name in SETTINGS]
    RECORD.write_text("{\n" + ",\n".join(recorded) + "\n}\n")
