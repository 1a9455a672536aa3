"""Programs that are compiled beside those that run."""

import functools
import threading

import pytest

from flaxformer_mt.decoding.run import background
from flaxformer_mt.decoding.run.background import BackgroundCompiler


def test_a_task_is_done_once_and_waited_for():
    done = []
    ours = BackgroundCompiler[str]()
    for _ in range(2):
        with ours.beside({"a": lambda: done.append("a"), "b": lambda: done.append("b")}):
            ours.wait_for("b")
            ours.wait_for("a")
            ours.wait_for("unknown")
            assert sorted(done) == ["a", "b"]


def test_what_a_task_raises_is_raised_where_it_is_waited_for_and_it_may_be_done_again():
    outcomes = [MemoryError("too large"), None]

    def compile_it() -> None:
        if outcome := outcomes.pop(0):
            raise outcome

    ours = BackgroundCompiler[str]()
    with pytest.raises(MemoryError, match="too large"), ours.beside({"a": compile_it}):
        ours.wait_for("a")
    with ours.beside({"a": compile_it}):
        ours.wait_for("a")
    assert not outcomes


def test_an_error_after_the_end_is_not_the_next_call_s(monkeypatch):
    may_fail, outcomes = threading.Event(), [MemoryError("late"), None]

    def compile_it() -> None:
        assert may_fail.wait(60)
        if outcome := outcomes.pop(0):
            raise outcome

    ours = BackgroundCompiler[str]()
    with ours.beside({"a": compile_it}):
        pass
    may_fail.set()
    with pytest.raises(MemoryError, match="late"):
        ours.wait_for("a")
    with ours.beside({"a": compile_it}):
        ours.wait_for("a")
    assert not outcomes


def test_threads_that_ask_for_the_same_do_it_once():
    ours, done, together = BackgroundCompiler[int](), [], threading.Barrier(8)

    def ask() -> None:
        together.wait()
        tasks = {number: functools.partial(done.append, number) for number in range(50)}
        with ours.beside(tasks):
            for number in tasks:
                ours.wait_for(number)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [*range(50)]


def test_tasks_that_have_not_begun_are_dropped_and_the_others_not_waited_for(monkeypatch):
    monkeypatch.setattr(background, "processors", lambda: 1)
    begun, may_end, done = threading.Event(), threading.Event(), []

    def long() -> None:
        begun.set()
        assert may_end.wait(60)
        done.append("long")

    ours = BackgroundCompiler[str]()
    with ours.beside({"long": long, "dropped": lambda: done.append("dropped")}):
        assert begun.wait(60)
    assert not done
    ours.wait_for("dropped")  # there is nothing to wait for
    may_end.set()
    ours.wait_for("long")
    assert done == ["long"]
    with ours.beside({"dropped": lambda: done.append("again")}):
        ours.wait_for("dropped")
    assert done == ["long", "again"]
