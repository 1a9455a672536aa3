"""Output in a bucket: parts that another machine goes on with, and an object that appears whole."""

from __future__ import annotations

import pytest

from flaxformer_mt.bulk import sinks
from flaxformer_mt.bulk.sinks import BucketSink, Consumed, OutputError
from tests.rundir.buckets import bucket, gcs, needs_clients

__all__ = ["bucket", "gcs"]
pytestmark = needs_clients


@pytest.fixture
def file(bucket):
    return f"{bucket}/out/de.txt"


def done(lines):
    return Consumed(lines=lines, size=4 * lines, sha256=str(lines))


def begun(file, **options):
    sink = BucketSink(f"gs://{file}", **options)
    return sink, sink.begin({"weights": "average"})


def commit(sink, number, data):
    sink.write(data)
    sink.commit(done(number))


def of_three_parts(file):
    sink, found = begun(file, every=0.0)
    assert found == Consumed()
    for number in range(1, 4):
        commit(sink, number, b"%d\n" % number)
    return sink


def refuse(gcs, monkeypatch, method, number=0):
    """Refuses the requests of this method after the first `number`."""
    monkeypatch.setattr(sinks.paths, "persistently", lambda action: action())
    seen = iter(range(100))
    gcs.fault = lambda verb, name: 403 if verb in method and next(seen) >= number else None


def allow(gcs):
    gcs.fault = lambda method, name: None


def test_parts_are_uploaded_every_minute_and_joined(gcs, bucket, file):
    now = 0.0
    sink, found = begun(file, clock=lambda: now)
    assert found == Consumed()
    for number in range(1, 8):
        now += 25
        commit(sink, number, b"%d\n" % number)
    assert gcs.names(f"{file}.part") == [
        f"{file}.part/{name}" for name in ("00000000", "00000001", "state.json")
    ]
    assert gcs.objects[f"{file}.part/00000001"] == b"4\n5\n6\n"
    assert file not in gcs.objects
    # Killed here: another machine goes on after the last part.
    again, found = begun(file)
    assert found == done(6)
    commit(again, 7, b"seven\n")
    again.finish()
    again.close()
    assert gcs.names(f"{bucket}/") == [file]
    assert gcs.objects[file] == b"1\n2\n3\n4\n5\n6\nseven\n"


def test_a_large_window_goes_at_once_and_an_empty_output_is_an_object(gcs, file, monkeypatch):
    monkeypatch.setattr(sinks, "PART", 10)
    sink, _ = begun(file)
    commit(sink, 1, b"x" * 11)
    assert gcs.objects[f"{file}.part/00000000"] == b"x" * 11
    sink, found = begun(file, restart=True)
    assert found == Consumed()
    sink.finish()
    assert gcs.objects[file] == b""


# Where the store cannot move, gcsfs copies.
@pytest.mark.parametrize(("method", "number"), [("PUT", 2), ("MOVE PUT", 3)])
def test_an_end_that_breaks_off_is_no_output(gcs, file, method, number, monkeypatch):
    """While the parts are joined, or while the whole is renamed."""
    sink, _ = begun(file)
    commit(sink, 1, b"one\n")
    refuse(gcs, monkeypatch, method, number)
    with pytest.raises(OutputError, match=r"cannot be written: Forbidden.*complete is in gs://"):
        sink.finish()
    allow(gcs)
    assert file not in gcs.objects
    again, found = begun(file)
    assert found == done(1)
    again.finish()
    assert gcs.objects[file] == b"one\n"


@pytest.mark.parametrize("number", range(4))
def test_a_stop_while_parts_are_deleted_loses_nothing(gcs, bucket, file, number, monkeypatch):
    """FILE is complete: the same command only tidies up, or goes on where the input has grown."""
    grown = number % 2
    sink = of_three_parts(file)
    refuse(gcs, monkeypatch, "DELETE", number)
    with pytest.raises(OutputError, match="cannot be written: Forbidden"):
        sink.finish()
    sink.close()
    allow(gcs)
    assert gcs.objects[file] == b"1\n2\n3\n"
    assert len(gcs.names(f"{file}.part/")) == 4 - number
    again, found = begun(file)
    assert found == done(3)
    if grown:
        commit(again, 4, b"four\n")
        again.close()
        again, found = begun(file)
        assert found == done(4)
    again.finish()
    assert gcs.names(f"{bucket}/") == [file]
    assert gcs.objects[file] == b"1\n2\n3\n" + b"four\n" * grown


@pytest.mark.parametrize("whole", [True, False])
def test_a_stop_while_file_becomes_a_part_again_doubles_nothing(gcs, file, monkeypatch, whole):
    sink = of_three_parts(file)
    refuse(gcs, monkeypatch, "DELETE", 1)
    with pytest.raises(OutputError):
        sink.finish()
    if not whole:  # taken away by its owner: made again
        allow(gcs)
        del gcs.objects[file]
        assert begun(file)[1] == Consumed()
        return
    # Of the record and the new first part, what comes second is refused.
    refuse(gcs, monkeypatch, "PUT", 1)
    with pytest.raises(OutputError):
        begun(file)
    allow(gcs)
    again, found = begun(file)
    assert found == done(3)
    again.finish()
    assert gcs.objects[file] == b"1\n2\n3\n"


def test_restarted_with_fewer_parts_none_is_left(gcs, bucket, file):
    of_three_parts(file)
    sink, found = begun(file, restart=True)
    assert found == Consumed()
    commit(sink, 1, b"one\n")
    sink.finish()
    assert gcs.names(f"{bucket}/") == [file]
    assert gcs.objects[file] == b"one\n"


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # gcsfs, to aiohttp
def test_an_output_of_many_megabytes_is_joined(gcs, file):
    sink, _ = begun(file)
    parts = [bytes([64 + number]) * (9 << 20) for number in range(1, 4)]
    for number, data in enumerate(parts, start=1):
        commit(sink, number, data)
    sink.finish()
    assert gcs.objects[file] == b"".join(parts)
