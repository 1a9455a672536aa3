"""Output in a bucket: parts that another machine goes on with, and an object that appears whole."""

from types import SimpleNamespace

import pytest

from flaxformer_mt.bulk import sinks
from flaxformer_mt.bulk.output_errors import OutputError
from flaxformer_mt.bulk.sinks import BucketSink, Consumed
from flaxformer_mt.errors import FINAL
from tests.rundir.buckets import needs_clients

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
    sink, consumed = begun(file)
    assert consumed == Consumed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sinks, "UPLOAD_EVERY", 0.0)
        for number in range(1, 4):
            commit(sink, number, b"%d\n" % number)
    return sink


def refuse(gcs, method, number):
    """Refuses the requests of this method after the first `number`."""
    seen = iter(range(100))
    gcs.fault = lambda verb, name: 403 if verb in method and next(seen) >= number else None


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # gcsfs, to aiohttp
def test_parts_are_uploaded_every_minute_and_joined(gcs, bucket, file, monkeypatch):
    seconds = 0.0
    monkeypatch.setattr(sinks, "time", SimpleNamespace(monotonic=lambda: seconds))
    sink, consumed = begun(file)
    assert consumed == Consumed()
    for number in range(1, 8):
        seconds += 25
        commit(sink, number, b"%d\n" % number)
    assert gcs.names(f"{file}.part") == [
        f"{file}.part/{name}" for name in ("00000000", "00000001", "state.json")
    ]
    assert gcs.objects[f"{file}.part/00000001"] == b"4\n5\n6\n"
    assert file not in gcs.objects

    # Killed here: another machine goes on after the last part.
    with pytest.raises(OutputError, match=r"^gs://\S+state\.json: was written with w") as refused:
        BucketSink(f"gs://{file}").begin({"weights": "best"})
    assert refused.value.exit_status == FINAL
    again, consumed = begun(file)
    assert consumed == done(6)
    last = b"seven\n" * (1 << 18)  # more than is copied at a time
    commit(again, 7, last)
    again.finish()
    again.close()
    assert gcs.names(f"{bucket}/") == [file]
    assert gcs.objects[file] == b"1\n2\n3\n4\n5\n6\n" + last


def test_a_large_window_goes_at_once_and_an_empty_output_is_an_object(gcs, file, monkeypatch):
    monkeypatch.setattr(sinks, "UPLOAD_BYTES", 10)
    sink, _ = begun(file)
    commit(sink, 1, b"x" * 11)
    assert gcs.objects[f"{file}.part/00000000"] == b"x" * 11
    sink, consumed = begun(file, restart=True, ends=((0, ""), (0, "")))
    assert consumed == Consumed()
    sink.finish()
    assert gcs.objects[file] == b""
    assert b'"stop": [' in gcs.objects[f"{file}.json"]  # as it is no shard by its name


# Where the store cannot move, gcsfs copies.
@pytest.mark.parametrize(("method", "number"), [("PUT", 2), ("MOVE PUT", 3)])
def test_an_end_that_breaks_off_is_no_output(gcs, file, method, number):
    """While the parts are joined, or while the whole is renamed."""
    sink, _ = begun(file)
    commit(sink, 1, b"one\n")
    refuse(gcs, method, number)
    with pytest.raises(OutputError, match=r"be written: Forbidden.*finished output is in gs://"):
        sink.finish()
    gcs.allow()
    assert file not in gcs.objects
    again, consumed = begun(file)
    assert consumed == done(1)
    again.finish()
    assert gcs.objects[file] == b"one\n"


@pytest.mark.parametrize("number", range(4))
def test_a_stop_while_parts_are_deleted_leaves_the_whole(gcs, bucket, file, number):
    """The same command tidies up; once the record is gone it makes FILE anew."""
    sink = of_three_parts(file)
    refuse(gcs, "DELETE", number)
    with pytest.raises(OutputError, match="cannot be written: Forbidden"):
        sink.finish()
    sink.close()
    gcs.allow()
    assert gcs.objects[file] == b"1\n2\n3\n"
    assert len(gcs.names(f"{file}.part/")) == 4 - number
    again, consumed = begun(file)
    assert consumed == (Consumed() if number else done(3))
    commit(again, 4, b"four\n")
    again.finish()
    assert gcs.names(f"{bucket}/") == [file]
    assert gcs.objects[file] == (b"" if number else b"1\n2\n3\n") + b"four\n"


def test_parts_that_their_owner_has_taken_away_are_made_again(gcs, file):
    of_three_parts(file)
    for name in gcs.names(f"{file}.part/0"):
        del gcs.objects[name]
    assert begun(file)[1] == Consumed()


def test_restarted_with_fewer_parts_none_is_left(gcs, bucket, file):
    of_three_parts(file)
    sink, consumed = begun(file, restart=True)
    assert consumed == Consumed()
    commit(sink, 1, b"one\n")
    sink.finish()
    assert gcs.names(f"{bucket}/") == [file]
    assert gcs.objects[file] == b"one\n"


def test_parts_that_were_cut_are_not_joined(gcs, file):
    sink = of_three_parts(file)
    gcs.objects[f"{file}.part/00000001"] = b""
    with pytest.raises(OutputError, match="its parts have 4 bytes, but 6 were written; start over"):
        sink.finish()
    assert file not in gcs.objects
