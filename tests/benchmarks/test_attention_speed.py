"""The forms of attention that are timed are one function, and one that disagrees shows."""

import functools

import pytest

from benchmarks import attention_speed
from benchmarks.attention_speed import FORMS, by_lengths, contest, works


@pytest.mark.extended
def test_all_forms_give_the_same_output_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cudnn_mask", "cudnn_lengths"):  # by XLA, which takes the same arguments
        form = FORMS[name]
        assert isinstance(form, functools.partial)
        monkeypatch.setitem(FORMS, name, functools.partial(form.func, by="xla"))
    for name, work in works(2).items():
        metrics, reasons = contest(work, 2, 8, "float32", 1)
        compared = {"jax", "cudnn_mask", "cudnn_lengths"} - reasons.keys()
        assert reasons.keys() == ({"cudnn_lengths"} if name == "packed_causal" else set())
        for form in compared:
            assert metrics[f"{form}_difference"] <= 1e-5 and f"{form}_ms" in metrics
    # Lengths without the causal mask are another function.
    work = works(2)["uneven_causal"]
    seen = attention_speed.Work(segment_ids=work.segment_ids, causal=False)

    def blind(queries, keys, values, mask, _):  # type: ignore[no-untyped-def]
        return by_lengths(queries, keys, values, mask, seen, by="xla")

    monkeypatch.setitem(FORMS, "cudnn_lengths", blind)
    metrics, _ = contest(work, 2, 8, "float32", 1)
    assert metrics["cudnn_lengths_difference"] > 0.1 > metrics["jax_difference"]
