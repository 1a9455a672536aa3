"""A first signal asks, a second one acts as it would have without us."""

from __future__ import annotations

import signal

import pytest

from flaxformer_mt.training.signals import StopRequest, verdict

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_a_request(number):
    before = [signal.getsignal(each) for each in SIGNALS]
    with StopRequest() as stop:
        assert stop.received is None
        signal.raise_signal(number)
        assert stop.received == number.name
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_a_second_signal_acts_as_usual():
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.received == "SIGTERM"


def test_nothing_is_left_behind_without_a_signal():
    before = [signal.getsignal(each) for each in SIGNALS]
    with pytest.raises(RuntimeError), StopRequest():
        assert [signal.getsignal(each) for each in SIGNALS] != before
        raise RuntimeError
    assert [signal.getsignal(each) for each in SIGNALS] == before


@pytest.mark.parametrize("number", SIGNALS)
def test_processes_tell_each_other_who_was_asked_to_stop(number):
    assert verdict(StopRequest().ballot(3)) is None
    with StopRequest() as stop:
        signal.raise_signal(number)
    assert verdict(stop.ballot(0)) == f"{number.name} received by process 0"
    assert verdict(stop.ballot(12)) == f"{number.name} received by process 12"
    # The largest of several ballots is one that asks for a stop.
    assert max(stop.ballot(2), StopRequest().ballot(5)) == stop.ballot(2)
