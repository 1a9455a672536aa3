"""The comparison itself: it must see what differs, and nothing else."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.interop import ExportError
from flaxformer_mt.interop.parity import Reference, compare
from tests.interop.translators import LINES, translator


class StandIn:
    """A runtime that is the reference, but for what a test changes."""

    name = "stand-in 1.0"

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.off_by = 0.0
        self.other_outputs: dict[int, list[int]] = {}
        self.other_tokens: dict[int, list[int]] = {}

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        encoded = [[*ids, EOS] for ids in self.reference.vocabularies.src.encode(lines)]
        return [self.other_tokens.get(n, ids) for n, ids in enumerate(encoded)]

    def greedy(self, sources, limits):
        outputs = self.reference.greedy(sources)
        assert all(len(ids) < limit for ids, limit in zip(outputs, limits, strict=True))
        return [self.other_outputs.get(n, ids) for n, ids in enumerate(outputs)]

    def log_probs(self, sources, targets):
        rows = self.reference.log_probs(sources, targets)
        rows[1] = rows[1] + np.float32(self.off_by)
        return rows


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(translator())


@pytest.fixture
def runtime(reference) -> StandIn:
    return StandIn(reference)


def test_a_runtime_that_is_the_reference_agrees(reference, runtime):
    parity = compare(reference, runtime, LINES, "the test's lines", bound=1e-6)
    assert parity.agrees
    assert (parity.sentences, parity.same_output, parity.largest) == (len(LINES), len(LINES), 0)
    outputs = reference.greedy(runtime.encode(LINES))
    assert parity.tokens == sum(len(ids) + 1 for ids in outputs)
    message = f"stand-in 1.0 on the test's lines: greedy outputs equal for {len(LINES)} of"
    assert message in str(parity)


def test_a_difference_is_judged_by_the_bound_and_the_mean_by_its_share(reference, runtime):
    runtime.off_by = -0.01
    assert not compare(reference, runtime, LINES, "", bound=1e-3).agrees
    parity = compare(reference, runtime, LINES, "", bound=0.02)
    assert parity.agrees
    assert parity.largest == pytest.approx(0.01, rel=1e-3)
    share = parity.mean / 0.02
    assert compare(reference, runtime, LINES, "", bound=0.02, mean_share=1.01 * share).agrees
    assert not compare(reference, runtime, LINES, "", bound=0.02, mean_share=0.99 * share).agrees
    assert 0 < parity.mean < 0.01


def test_another_output_is_no_near_tie(reference, runtime):
    [first] = reference.greedy(runtime.encode(LINES)[:1])
    runtime.other_outputs = {0: [first[0], (first[1] - 3) % 50 + 4, *first[2:]]}
    parity = compare(reference, runtime, LINES, "", bound=1e-3)
    assert (parity.same_output, parity.near_ties) == (len(LINES) - 1, 0)
    assert not parity.agrees
    parity = compare(reference, runtime, LINES, "", bound=50)
    assert parity.near_ties == 1 and parity.agrees, "any two tokens are near, by such a bound"
    assert "(1 of the others diverge at near-equal tokens)" in str(parity)
    # Nor is one that ends elsewhere.
    runtime.other_outputs = {0: first[:-2]}
    assert not compare(reference, runtime, LINES, "", bound=1e-3).agrees


def test_other_tokens_and_what_is_no_number_are_errors_and_long_lines_counted(reference, runtime):
    runtime.off_by = float("nan")
    with pytest.raises(ExportError, match="log-probabilities that are not finite"):
        compare(reference, runtime, LINES, "", bound=1)
    runtime.other_tokens = {2: [9, EOS]}
    with pytest.raises(ExportError, match=r"stand-in 1.0 splits 'who .*' into tokens \[9, 2\]"):
        compare(reference, runtime, LINES, "", bound=1)
    runtime.off_by, runtime.other_tokens = 0.0, {}
    parity = compare(reference, runtime, [*LINES, "dog " * 50, ""], "", bound=1)
    assert (parity.sentences, parity.left_out) == (len(LINES), 2)
    assert "(2 blank or too long for the model, skipped)" in str(parity)
    with pytest.raises(ExportError, match="no line has 1 to 39 tokens: nothing to compare"):
        compare(reference, runtime, ["dog " * 50], "", bound=1)


def test_rules_of_the_search_are_not_the_models():
    original = translator()
    plain = Reference(original)
    sources = [[*ids, EOS] for ids in original.vocabularies.src.encode(LINES)]
    outputs = plain.greedy(sources)
    assert any(len(set(output)) < len(output) for output in outputs), "some token stands twice"
    search = {"no_repeat_ngram": 1, "beam_size": 4, "length_penalty": 1.0}
    original.config = dataclasses.replace(original.config, **search)
    assert Reference(original).greedy(sources) == outputs
