"""Output in a bucket: parts that another machine goes on with, and an object that appears whole."""

from __future__ import annotations

import pytest

from flaxformer_mt.bulk import sinks
from flaxformer_mt.bulk.sinks import BucketSink, Consumed, OutputError
from tests.rundir.buckets import bucket, gcs, needs_clients

__all__ = ["bucket", "gcs"]
pytestmark = needs_clients
WHO = {"weights": "average"}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def done(lines: int) -> Consumed:
    return Consumed(lines=lines, size=4 * lines, sha256=str(lines))


def begun(bucket: str, clock: Clock, **options) -> tuple[BucketSink, Consumed]:
    sink = BucketSink(f"gs://{bucket}/out/de.txt", clock=clock, **options)
    return sink, sink.begin(WHO)


def test_parts_are_uploaded_every_minute_and_joined(gcs, bucket):
    clock = Clock()
    sink, found = begun(bucket, clock)
    assert found == Consumed()
    for number in range(1, 8):
        sink.write(b"%d\n" % number)
        clock.now += 25
        sink.commit(done(number))
    folder = f"{bucket}/out/de.txt.part"
    assert gcs.names(folder) == [f"{folder}/00000000", f"{folder}/00000001", f"{folder}/state.json"]
    assert gcs.objects[f"{folder}/00000001"] == b"4\n5\n6\n"
    assert f"{bucket}/out/de.txt" not in gcs.objects
    # Killed here: another machine goes on after the last part.
    again, found = begun(bucket, clock)
    assert found == done(6)
    again.write(b"seven\n")
    again.commit(done(7))
    again.finish()
    again.close()
    assert gcs.names(f"{bucket}/") == [f"{bucket}/out/de.txt"]
    assert gcs.objects[f"{bucket}/out/de.txt"] == b"1\n2\n3\n4\n5\n6\nseven\n"


def test_a_large_window_goes_at_once_and_an_empty_output_is_an_object(gcs, bucket, monkeypatch):
    monkeypatch.setattr(sinks, "PART", 10)
    sink, _ = begun(bucket, Clock())
    sink.write(b"x" * 11)
    sink.commit(done(1))
    assert gcs.objects[f"{bucket}/out/de.txt.part/00000000"] == b"x" * 11
    sink, found = begun(bucket, Clock(), restart=True)
    assert found == Consumed()
    sink.finish()
    assert gcs.objects[f"{bucket}/out/de.txt"] == b""


@pytest.mark.parametrize("failing", ["joining", "renaming"])
def test_an_end_that_breaks_off_is_no_output(gcs, bucket, failing, monkeypatch):
    monkeypatch.setattr(sinks, "persistently", lambda action: action())
    sink, _ = begun(bucket, Clock())
    sink.write(b"one\n")
    sink.commit(done(1))
    refused = {
        "joining": [("PUT", f"{bucket}/out/de.txt.part/whole")],
        # Where the store cannot move, gcsfs copies.
        "renaming": [
            ("MOVE", f"{bucket}/out/de.txt.part/whole"),
            ("PUT", f"{bucket}/out/de.txt"),
        ],
    }[failing]
    gcs.fault = lambda method, name: 403 if (method, name) in refused else None
    with pytest.raises(OutputError, match=r"cannot be written: Forbidden.*complete is in gs://"):
        sink.finish()
    gcs.fault = lambda method, name: None
    assert f"{bucket}/out/de.txt" not in gcs.objects
    again, found = begun(bucket, Clock())
    assert found == done(1)
    again.finish()
    assert gcs.objects[f"{bucket}/out/de.txt"] == b"one\n"


def of_three_parts(bucket: str, **options) -> BucketSink:
    clock = Clock()
    sink, _ = begun(bucket, clock, **options)
    for number in range(1, 4):
        sink.write(b"%d\n" % number)
        clock.now += 60
        sink.commit(done(number))
    return sink


def stop_at_deletion(gcs, monkeypatch, number: int) -> None:
    monkeypatch.setattr(sinks, "persistently", lambda action: action())
    deletions = iter(range(100))
    gcs.fault = lambda method, name: (
        403 if method == "DELETE" and next(deletions) >= number else None
    )


@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_a_stop_while_parts_are_deleted_loses_nothing(gcs, bucket, number, grown, monkeypatch):
    """FILE is complete: the same command only tidies up, or goes on where the input has grown."""
    file = f"{bucket}/out/de.txt"
    sink = of_three_parts(bucket)
    stop_at_deletion(gcs, monkeypatch, number)
    with pytest.raises(OutputError, match="cannot be written: Forbidden"):
        sink.finish()
    sink.close()
    gcs.fault = lambda method, name: None
    assert gcs.objects[file] == b"1\n2\n3\n"
    assert len(gcs.names(f"{file}.part/")) == 4 - number
    again, found = begun(bucket, Clock())
    assert found == done(3)
    if grown:
        again.write(b"four\n")
        again.commit(done(4))
        again.close()
        again, found = begun(bucket, Clock())
        assert found == done(4)
    again.finish()
    assert gcs.names(f"{bucket}/") == [file]
    assert gcs.objects[file] == b"1\n2\n3\n" + b"four\n" * grown


def test_a_stop_while_file_becomes_a_part_again_doubles_nothing(gcs, bucket, monkeypatch):
    sink = of_three_parts(bucket)
    stop_at_deletion(gcs, monkeypatch, 1)
    with pytest.raises(OutputError):
        sink.finish()
    # Of the record and the new first part, what comes second is refused.
    writes = iter(range(100))
    gcs.fault = lambda method, name: 403 if method == "PUT" and next(writes) >= 1 else None
    with pytest.raises(OutputError):
        begun(bucket, Clock())
    gcs.fault = lambda method, name: None
    again, found = begun(bucket, Clock())
    assert found == done(3)
    again.finish()
    assert gcs.objects[f"{bucket}/out/de.txt"] == b"1\n2\n3\n"


def test_a_whole_that_was_taken_away_is_made_again(gcs, bucket, monkeypatch):
    sink = of_three_parts(bucket)
    stop_at_deletion(gcs, monkeypatch, 1)
    with pytest.raises(OutputError):
        sink.finish()
    gcs.fault = lambda method, name: None
    del gcs.objects[f"{bucket}/out/de.txt"]
    assert begun(bucket, Clock())[1] == Consumed()


def test_restarted_with_fewer_parts_none_is_left(gcs, bucket):
    of_three_parts(bucket)
    sink, found = begun(bucket, Clock(), restart=True)
    assert found == Consumed()
    sink.write(b"one\n")
    sink.commit(done(1))
    sink.finish()
    assert gcs.names(f"{bucket}/") == [f"{bucket}/out/de.txt"]
    assert gcs.objects[f"{bucket}/out/de.txt"] == b"one\n"


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # gcsfs, to aiohttp
def test_an_output_of_many_megabytes_is_joined(gcs, bucket):
    sink, _ = begun(bucket, Clock())
    whole = b""
    for number in range(1, 4):
        data = bytes([64 + number]) * (9 << 20)
        whole += data
        sink.write(data)
        sink.commit(done(number))
    sink.finish()
    assert gcs.objects[f"{bucket}/out/de.txt"] == whole
