"""What clients get as JSON, and that writing it holds nobody up."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import threading
from typing import Any

import numpy as np
import pytest

from flaxformer_mt.decoding.teacher_forcing import Attention
from flaxformer_mt.serving import answers
from flaxformer_mt.serving.engine import ATTENTION, Attended, Engine
from flaxformer_mt.serving.requests import KINDS, AttentionRequest, Kind
from tests.serving.stand_in import StandIn, quick, running


class Wide(StandIn):
    """Many heads."""

    heads = 300

    def attend(self, src: str, tgt: str) -> Attention:
        found = super().attend(src, tgt)
        many: dict[str, Any] = {
            kind: np.repeat(getattr(found, kind)[:, :1], self.heads, axis=1) for kind in KINDS
        }
        return dataclasses.replace(found, **many)


def attended(translator: StandIn, asked: AttentionRequest) -> Attended:
    (found,) = Engine(translator, widest=1, largest=1).run(ATTENTION, [asked])
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", KINDS)
def test_attention_is_its_layers_weights_rounded(kind: Kind) -> None:
    asked = AttentionRequest(text="a » b", translation='é "y"\n z', kind=kind, layer=1)
    found = attended(StandIn(), asked)
    assert found.weights.base is None, "a view would keep all layers of all kinds"
    answer = json.loads(answers.attention(asked, found))
    expected = getattr(StandIn().attend(asked.text, asked.translation or ""), kind)[1]
    assert np.shape(answer["weights"]) == expected.shape
    np.testing.assert_allclose(answer["weights"], expected, atol=5.1e-5)
    assert answer["translation"] == asked.translation and answer["heads"] == len(expected)
    assert answer["layers"] == (2 if kind == "encoder" else 3)
    assert (len(answer["rows"]), len(answer["columns"])) == expected.shape[1:]


def test_more_weights_than_an_answer_may_have_are_refused() -> None:
    with running(Wide(), quick(max_attention_weights=4 * 4 * 300)) as server:
        payload = {"text": "a b c", "kind": "encoder"}
        assert server.post("/attention", payload)[0] == 200
        status, answer = server.post("/attention", {**payload, "text": "a b c d"})
        assert status == 413
        assert answer["error"] == (
            "5 x 5 tokens with 300 heads have 7500 weights; at most 4800 a request"
        )
        assert server.metric('flaxformer_refused_total{reason="size"}') == 1


def test_while_an_answer_is_written_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    may, begun, writes = threading.Event(), threading.Event(), answers.attention

    def slowly(*arguments: Any) -> bytes:
        begun.set()
        assert may.wait(20)
        return writes(*arguments)

    monkeypatch.setattr(answers, "attention", slowly)
    with concurrent.futures.ThreadPoolExecutor(1) as client, running(StandIn()) as server:
        asked = client.submit(server.post, "/attention", {"text": "a b"})
        assert begun.wait(20)
        assert server.ask("GET", "/health")[0] == 200
        assert server.post("/translate", {"text": "a b"})[0] == 200
        may.set()
        assert asked.result()[0] == 200


def test_the_interpreter_is_held_for_no_more_than_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    whole = answers.as_json

    def counted(content: Any) -> bytes:
        sizes.append(np.size(content))
        return whole(content)

    monkeypatch.setattr(answers, "as_json", counted)
    asked = AttentionRequest(text="w " * 30, translation="w " * 20, layer=0)
    answer = json.loads(answers.attention(asked, attended(Wide(), asked)))
    assert np.shape(answer["weights"]) == (Wide.heads, 21, 31) and max(sizes) <= 31
