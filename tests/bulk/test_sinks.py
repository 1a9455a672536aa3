"""Files that appear whole, and that a second call goes on with where it is the same call."""

import contextlib
import errno
import fcntl
import itertools
import json
import os
from unittest import mock

import pytest

from flaxformer_mt.bulk.output_errors import OutputError
from flaxformer_mt.bulk.sinks import Consumed, FileSink, ShardedSink
from tests.conftest import Killed

WHO = {"weights": "average", "n_best": 1}
TWO = Consumed(lines=2, size=8, sha256="ab", sums={"split": 1})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out"


def begun(path, *, identity=WHO, **options):
    sink = FileSink(str(path), **options)
    return sink, sink.begin(identity)


def interrupted(path):
    """A call that committed two lines, wrote half of a third and was killed."""
    sink, done = begun(path)
    assert done == Consumed()
    sink.write(b"one\ntwo\n")
    sink.commit(TWO)
    sink.write(b"thr")
    sink.close()


def finished(path, sink, data, expected):
    sink.write(data)
    sink.finish()
    assert path.read_bytes() == expected
    assert [file.name for file in path.parent.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "identity", [{**WHO, "n_best": 2}, {"weights": "average"}, {**WHO, "new": 0}]
)
def test_another_call_does_not_go_on(path, identity):
    interrupted(path)
    with pytest.raises(OutputError, match=r"out\.part\.json: was written with (n_best|new)"):
        begun(path, identity=identity)
    assert path.with_name("out.part").read_bytes() == b"one\ntwo\nthr"
    sink, done = begun(path, identity=identity, restart=True)
    assert done == Consumed()
    finished(path, sink, b"new\n", b"new\n")


def test_where_nothing_was_committed_any_call_begins_and_two_at_once_do_not(path):
    path.write_bytes(b"before")
    sink, _ = begun(path)
    sink.write(b"half a window")
    with pytest.raises(OutputError, match="out.part: another process is writing it"):
        begun(path)
    sink.close()
    sink, done = begun(path, identity={"weights": "best"})
    assert done == Consumed() and path.read_bytes() == b"before"
    finished(path, sink, b"", b"")


def test_a_part_that_another_process_just_finished_is_begun_anew(path, monkeypatch):
    first, _ = begun(path)
    first.write(b"whole")
    lock = fcntl.flock

    def late(stream, how):
        monkeypatch.setattr(fcntl, "flock", lock)
        first.finish()
        lock(stream, how)

    monkeypatch.setattr(fcntl, "flock", late)
    sink, done = begun(path)
    assert done == Consumed()
    finished(path, sink, b"new", b"new")


def test_parts_that_are_not_ours_are_not_touched(path):
    part, state = path.with_name("out.part"), path.with_name("out.part.json")
    part.write_bytes(b"mine")
    with pytest.raises(OutputError, match="exists without its record out.part.json"):
        begun(path)
    for damaged in ("{", "[]", json.dumps({"format": 9}), json.dumps({"format": 2})):
        state.write_text(damaged)
        with pytest.raises(OutputError, match=r"out\.part\.json:.*; start over with --restart"):
            begun(path)
    assert part.read_bytes() == b"mine"
    part.unlink()
    state.unlink()
    interrupted(path)
    part.write_bytes(b"one")
    with pytest.raises(OutputError, match="has 3 bytes, but out.part.json says 8"):
        begun(path)

    # Moved away by its owner: nothing to go on with.
    part.unlink()
    sink, done = begun(path)
    sink.close()
    assert done == Consumed()


def test_an_output_that_was_changed_is_not_continued(path):
    """Records of earlier versions can't tell."""
    part, state = path.with_name("out.part"), path.with_name("out.part.json")
    interrupted(path)
    part.write_bytes(b"ONE\ntwo\nthr")
    with pytest.raises(OutputError, match="its first 8 bytes have changed since they were written"):
        begun(path)
    early = json.loads(state.read_bytes())
    del early["proof"]
    state.write_text(json.dumps(early))
    sink, done = begun(path)
    assert done == TWO
    finished(path, sink, b"three\n", b"ONE\ntwo\nthree\n")


def test_an_output_is_not_written_through_a_link_or_into_a_pipe(path, tmp_path):
    part, victim = path.with_name("out.part"), tmp_path / "victim"
    victim.touch()  # an empty one looks like a new part
    part.symlink_to(victim)
    with pytest.raises(OutputError, match=r"out\.part: cannot be written: is a symbolic link"):
        begun(path)
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(OutputError, match=r"out\.part: cannot be written: not a regular file"):
        begun(path)


def test_a_full_disk_is_explained_and_the_record_tells_of_no_more_than_is_there(path, monkeypatch):
    sink, _ = begun(path)
    sink.write(b"one\n")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", mock.Mock(side_effect=full))
        with pytest.raises(OutputError, match=r"No space left.*finished output is in .*out\.part"):
            sink.commit(TWO)
    sink.close()
    sink, done = begun(path)
    sink.close()
    assert done == Consumed()


def test_any_number_of_shards_may_be_empty(tmp_path):
    shard = mock.Mock(**{"begin.return_value": Consumed()})
    sink = ShardedSink(f"{tmp_path}/x.shards.json", [*[0] * 600, 1], lambda _: shard)
    assert sink.begin({}) == Consumed() and shard.finish.call_count == 600


def test_shards_are_complete_after_a_kill_at_any_moment(tmp_path, monkeypatch):
    def work(folder):
        names = [str(folder / f"out.shard-{number}") for number in range(3)]
        ends = [((0, ""), (2, "b")), ((2, "b"), (2, "b")), ((2, "b"), (5, "c"))]
        stops = [stop for _, (stop, _) in ends]

        def opened(number):
            return FileSink(names[number], ends=ends[number])

        sink = ShardedSink(f"{folder}/out.shards.json", stops, opened)
        with contextlib.closing(sink):
            done = sink.begin(WHO)
            for line in range(done.lines + 1, 6):
                sink.write(b"%d\n" % line)
                sink.commit(Consumed(lines=line))
            sink.finish()

    def counted(action):
        def act(*arguments, **options):
            if next(moments) == kill:
                raise Killed
            return action(*arguments, **options)

        return act

    moments = itertools.count()
    for name in ("replace", "unlink", "fsync"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    for kill in itertools.count():
        folder, moments = tmp_path / str(kill), itertools.count()
        folder.mkdir()
        shard, record = folder / "out.shard-0", folder / "out.record-0.json"
        shard.write_bytes(b"old\n")
        record.write_bytes(b'"old"')
        with contextlib.suppress(Killed):
            work(folder)
        if shard.exists():
            assert (shard.read_bytes() == b"old\n") == (record.read_bytes() == b'"old"')
        if next(moments) <= kill:
            break
        work(folder)
        records = [
            json.loads(path.read_bytes()) for path in sorted(folder.glob("out.record-?.json"))
        ]
        assert [content["stop"] for content in records] == [[2, "b"], [2, "b"], [5, "c"]]
        shards = {
            path.name: path.read_bytes() for path in folder.iterdir() if "record" not in path.name
        }
        assert shards == {"out.shard-0": b"1\n2\n", "out.shard-1": b"", "out.shard-2": b"3\n4\n5\n"}
    assert kill > 15
