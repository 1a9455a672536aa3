"""Windows of lines: order, refusals with their line, going on, memory."""

from __future__ import annotations

import dataclasses
import io
import tracemalloc

import pytest

from flaxformer_mt.bulk import stream as module
from flaxformer_mt.bulk.forms import Form, Shown
from flaxformer_mt.bulk.reading import InputError, Lines, open_lines
from flaxformer_mt.bulk.sinks import Consumed, FileSink, OutputError, StreamSink
from flaxformer_mt.bulk.stream import NOTES, stream, windows
from flaxformer_mt.bulk.work import TranslateSettings
from flaxformer_mt.decoding import Hypothesis, LineError, OverlongError, Translation
from flaxformer_mt.progress import Meter

TEXT = b"".join(b"line %d\n" % number for number in range(1, 24))


@dataclasses.dataclass
class Upper:
    """A translator whose scores tell which lines share a window."""

    longest: int = 100
    calls: int = 0

    def translate(self, texts, **settings):
        for number, text in enumerate(texts):
            if len(text) > self.longest:
                raise OverlongError(number, f"{len(text)} tokens", splits=text[0] == "y")
            if text.startswith("bad prefix"):
                raise LineError(number, "has a bad prefix")
        self.calls += 1
        return [
            Translation(
                hypotheses=(
                    Hypothesis(
                        text=text.upper(), tokens=(7,), log_prob=-1.0, score=-float(len(texts))
                    ),
                ),
                split=text.startswith("split"),
                at_limit=text.endswith("5"),
            )
            for text in texts
        ]


def streamed(lines, sink, *, translate=None, form=None, window=5, say=None, **meter):
    settings = TranslateSettings(form=form or Form(shown=Shown(scores=True)))
    say = [].append if say is None else say
    return stream(
        lines,
        sink,
        lambda each: settings.make(each, translate or Upper()),
        identity={"who": 1},
        window=window,
        meter=Meter("translate", say, share=lines.share, **meter),
    )


def run(text: bytes, sink, *, say=None, **options) -> None:
    said: list[str] = []
    sums = streamed(Lines("in.txt", io.BytesIO(text)), sink, say=said.append, **options)
    if say is not None:
        say += [*said, *TranslateSettings(form=Form()).describe(sums)]


def output(text: bytes, **options) -> bytes:
    kept = io.BytesIO()
    run(text, StreamSink(kept), **options)
    return kept.getvalue()


def test_lines_come_in_order_and_in_windows():
    expected = b"".join(
        b"-%d.0000\tLINE %d\n" % (5 if number <= 20 else 3, number) for number in range(1, 24)
    )
    assert output(TEXT) == expected
    assert output(b"") == b""
    assert output(b"a") == b"-1.0000\tA\n"


def test_long_lines_close_a_window(monkeypatch):
    monkeypatch.setattr(module, "WINDOW_BYTES", 100)
    text = b"".join(b"x" * size + b"\n" for size in (30, 30, 30, 30, 200, 1, 1, 1))
    found = list(windows(Lines("x", io.BytesIO(text)), window=3))
    assert [(each.first, len(each.lines)) for each in found] == [(1, 3), (4, 2), (6, 3)]
    assert sum(each.size for each in found) == len(text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"bad \xff line", r"in\.txt:8: is not UTF-8 text \(byte 5\)"),
        (b"y" * 101, r"in\.txt:8: 101 tokens; --overlong split$"),
        (b"x" * 101, r"in\.txt:8: 101 tokens$"),
        (b"bad prefix", r"in\.txt:8: has a bad prefix$"),
    ],
)
def test_lines_before_a_refused_one_are_written(line, message):
    lines = TEXT.split(b"\n")
    lines[7] = line
    kept = io.BytesIO()
    with pytest.raises(InputError, match=message):
        run(b"\n".join(lines), StreamSink(kept))
    assert [text.split(b"\t")[1] for text in kept.getvalue().splitlines()] == [
        b"LINE %d" % number for number in range(1, 8)
    ]


class Killed(BaseException):
    pass


class Fragile(FileSink):
    """A file whose writer is killed before or in the midst of its n-th step."""

    def __init__(self, path: str, steps: int) -> None:
        super().__init__(path)
        self.steps = steps

    def write(self, data: bytes) -> None:
        self.steps -= 1
        if not self.steps:
            super().write(data[: len(data) // 2])
            raise Killed
        super().write(data)

    def commit(self, consumed: Consumed) -> None:
        self.steps -= 1
        if not self.steps:
            raise Killed
        super().commit(consumed)


@pytest.mark.parametrize("ends", [b"", b"last"])
def test_killed_anywhere_and_gone_on_with_is_the_same_output(tmp_path, ends):
    text = TEXT + ends
    expected = output(text)
    for steps in range(1, 13):
        path = tmp_path / f"out-{steps}"
        sink = Fragile(str(path), steps)
        try:
            run(text, sink)
        except Killed:
            assert not path.exists()
        sink.close()
        if not path.exists():
            translate = Upper()
            second = FileSink(str(path))
            run(text, second, translate=translate)
            second.close()
            assert translate.calls <= 5 - (steps - 1) // 2
        assert path.read_bytes() == expected


def test_what_was_counted_is_gone_on_with(tmp_path):
    text = b"".join(b"split %d\n" % number for number in range(1, 31))
    sink = Fragile(str(tmp_path / "out"), 9)
    with pytest.raises(Killed):
        run(text, sink)
    sink.close()
    say: list[str] = []
    sink = FileSink(str(tmp_path / "out"))
    run(text, sink, say=say)
    sink.close()
    assert say[-2] == "30 lines longer than the model takes: translated in pieces"
    assert say[-1].startswith("3 translations as long as an output may be, perhaps cut short")
    say.clear()
    output(text, say=say)
    assert say[0] == "in.txt:1: longer than the model takes; translated in pieces and rejoined"
    assert say[NOTES] == "further lines like these are only counted"
    assert len(say) == NOTES + 3


def test_another_input_is_not_gone_on_with(tmp_path):
    path = str(tmp_path / "out")
    sink = Fragile(path, 5)
    with pytest.raises(Killed):
        run(TEXT, sink)
    sink.close()
    for text in (TEXT.replace(b"line 3", b"line x"), TEXT[:20], b""):
        sink = FileSink(path)
        with pytest.raises(OutputError, match=r"in.txt: its first 10 lines are not those that the"):
            run(text, sink)
        sink.close()
    # What comes after is not known yet, and may differ.
    sink = FileSink(path)
    run(TEXT + b"more\n", sink)
    sink.close()
    assert (tmp_path / "out").read_bytes().count(b"\n") == 24


def test_memory_does_not_grow_with_the_number_of_lines(tmp_path):
    source = tmp_path / "in"

    def peak(count: int) -> int:
        source.write_bytes(b"a line of thirty-one characters\n" * count)
        tracemalloc.start()
        with open_lines(str(source)) as lines:
            streamed(lines, FileSink(str(tmp_path / "out")), form=Form(), window=500)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (tmp_path / "out").read_bytes().count(b"\n") == count
        return size

    few = peak(2_000)
    assert peak(20_000) < 1.2 * few


def test_on_a_terminal_the_meter_s_line_goes_before_output_comes(capsys):
    class Screen(io.BytesIO):
        """Standard output on the terminal that has the line."""

        def write(self, data) -> int:
            seen.append(capsys.readouterr().err)
            return super().write(data)

    seen: list[str] = []
    lines = Lines("x", io.BytesIO(TEXT))
    streamed(lines, StreamSink(Screen()), form=Form(), say=print, terminal=True)
    assert len(seen) == 5 and seen[0] == ""
    for before in seen[1:]:
        assert "\r\x1b[Ktranslate: " in before and before.endswith("\r\x1b[K")
