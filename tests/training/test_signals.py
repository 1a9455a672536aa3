"""A first signal asks, a second one acts as it would have without us."""

import contextlib
import signal

import pytest

from flaxformer_mt.parallel.processes import StopRequest

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def test_a_request_is_answered_with_what_is_still_finished(capfd):
    with StopRequest() as stop:
        stop.after = "this validation"
        signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err.strip() == "SIGINT: stopping after this validation"


@pytest.mark.parametrize("number", [*SIGNALS, None])
def test_a_signal_is_a_request_that_one_process_heeds_at_once(number):
    before = [signal.getsignal(each) for each in SIGNALS]
    with contextlib.suppress(RuntimeError), StopRequest() as stop:
        assert stop.received is stop.reason is None
        if number is None:
            raise RuntimeError
        signal.raise_signal(number)
        assert stop.received == number.name and stop.reason == f"{number.name} received"
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_a_second_signal_acts_as_usual():
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.received == "SIGTERM"
