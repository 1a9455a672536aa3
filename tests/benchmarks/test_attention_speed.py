"""The forms of attention that are timed are one function, and what one cannot do has a reason."""

from __future__ import annotations

import functools

import pytest

from benchmarks import attention_speed
from benchmarks.attention_speed import FORMS, by_lengths, contest, works

WORKS = works(2)


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's by XLA, which takes the same arguments."""
    for name in ("cudnn_mask", "cudnn_lengths"):
        form = FORMS[name]
        assert isinstance(form, functools.partial)
        monkeypatch.setitem(FORMS, name, functools.partial(form.func, by="xla"))


@pytest.mark.extended
@pytest.mark.parametrize("name", WORKS)
def test_all_forms_give_the_same_output_and_gradients(forms: None, name: str) -> None:
    metrics, reasons = contest(WORKS[name], 2, 8, "float32", 1)
    packed = name == "packed_causal"
    assert reasons == (
        {"cudnn_lengths": "lengths do not tell sentences of one row apart"} if packed else {}
    )
    compared = {"jax", "cudnn_mask"} | (set() if packed else {"cudnn_lengths"})
    assert {key.removesuffix("_ms") for key in metrics if key.endswith("_ms")} == {
        "ours",
        *compared,
    }
    for form in compared:
        assert metrics[f"{form}_difference"] <= 1e-5


@pytest.mark.extended
def test_a_form_that_disagrees_shows(forms: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths without the causal mask: another function."""
    work = WORKS["uneven_causal"]
    seen = attention_speed.Work(segment_ids=work.segment_ids, causal=False)

    def blind(queries, keys, values, mask, work):  # type: ignore[no-untyped-def]
        return by_lengths(queries, keys, values, mask, seen, by="xla")

    monkeypatch.setitem(FORMS, "cudnn_lengths", blind)
    metrics, _ = contest(work, 2, 8, "float32", 1)
    assert metrics["cudnn_lengths_difference"] > 0.1 > metrics["jax_difference"]
