"""Windows of lines: order, refusals with their line, going on, memory."""

import dataclasses
import io
import tracemalloc

import pytest

from flaxformer_mt.bulk import stream as module
from flaxformer_mt.bulk.forms import Form, Shown
from flaxformer_mt.bulk.output_errors import OutputError
from flaxformer_mt.bulk.reading import InputError, Lines, open_lines
from flaxformer_mt.bulk.sinks import FileSink, StreamSink
from flaxformer_mt.bulk.stream import NOTES, stream, windows
from flaxformer_mt.bulk.translating import SEVERAL, SHORT, TranslateSettings
from flaxformer_mt.decoding.errors import LineError, OverlongError
from flaxformer_mt.decoding.text.translation import Hypothesis, Translation
from flaxformer_mt.progress import Meter
from tests.conftest import Killed

TEXT = b"".join(b"line %d\n" % number for number in range(1, 24))


@dataclasses.dataclass
class Upper:
    """A translator whose scores tell which lines share a window."""

    calls: int = 0
    together: int | None = None  # sentences of a line

    def translate_with(self, texts, options, wanted):
        self.calls += 1
        return [self.translation(number, text, texts) for number, text in enumerate(texts)]

    def translation(self, number, text, texts):
        if len(text) > 100:
            raise OverlongError(number, f"{len(text)} tokens", splits=text[0] == "y")
        if text.startswith("bad prefix"):
            raise LineError(number, "has a bad prefix")
        said = {"text": text.upper(), "tokens": (7,), "log_prob": -1.0}
        return Translation(
            hypotheses=(Hypothesis(**said, score=-float(len(texts))),),
            split=text.startswith("split"),
            short=text.startswith("short"),
            at_limit=text.endswith("5"),
        )


def streamed(lines, sink, *, translate=None, form=None, window=5, say=None, **meter):
    settings = TranslateSettings(form=form or Form(shown=Shown(scores=True)))
    translator = translate or Upper()
    return stream(
        lines,
        sink,
        lambda found: ((part, settings.make(part, translator)) for part in found),
        identity={"who": 1},
        window=window,
        meter=Meter("translate", say or [].append, share=lines.share, **meter),
    )


def run(text, sink, **options):
    """Streams the text, lets go of the sink, and returns the sums."""
    try:
        return streamed(Lines("in.txt", io.BytesIO(text)), sink, **options)
    finally:
        sink.close()


def output(text, **options):
    written = io.BytesIO()
    run(text, StreamSink(written), **options)
    return written.getvalue()


def test_lines_come_in_order_and_in_windows(monkeypatch):
    expected = b"".join(b"-%d.0000\tLINE %d\n" % (5 - 2 * (n > 20), n) for n in range(1, 24))
    assert output(TEXT) == expected
    assert output(b"") == b""
    assert output(b"a") == b"-1.0000\tA\n"
    # Long lines close a window.
    monkeypatch.setattr(module, "WINDOW_BYTES", 100)
    text = b"".join(b"x" * size + b"\n" for size in (30, 30, 30, 30, 200, 1, 1, 1))
    in_windows = list(windows(Lines("x", io.BytesIO(text)), window=3))
    assert [(window.first, len(window.lines)) for window in in_windows] == [(1, 3), (4, 2), (6, 3)]
    assert sum(window.size for window in in_windows) == len(text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"bad \xff line", r"in\.txt:8: is not UTF-8 text \(byte 5\)"),
        (b"y" * 101, r"in\.txt:8: 101 tokens; use --overlong split$"),
        (b"x" * 101, r"in\.txt:8: 101 tokens$"),
        (b"bad prefix", r"in\.txt:8: has a bad prefix$"),
    ],
)
def test_lines_before_a_refused_one_are_written(line, message):
    lines = TEXT.split(b"\n")
    lines[7] = line
    written = io.BytesIO()
    with pytest.raises(InputError, match=message):
        run(b"\n".join(lines), StreamSink(written))
    assert [text.split(b"\t")[1] for text in written.getvalue().splitlines()] == [
        b"LINE %d" % number for number in range(1, 8)
    ]


class Fragile(FileSink):
    """A file whose writer is killed before or in the midst of its n-th step."""

    def __init__(self, path, steps):
        super().__init__(str(path))
        self.steps = steps

    def write(self, data):
        self.steps -= 1
        if not self.steps:
            super().write(data[: len(data) // 2])
            raise Killed
        super().write(data)

    def commit(self, consumed):
        self.steps -= 1
        if not self.steps:
            raise Killed
        super().commit(consumed)


def killed(text, path, steps):
    with pytest.raises(Killed):
        run(text, Fragile(path, steps))
    assert not path.exists()


def test_what_was_counted_is_gone_on_with(tmp_path):
    text = b"".join(b"split %d\n" % number for number in range(1, 31))
    killed(text, tmp_path / "out", 9)
    sums = run(text, FileSink(str(tmp_path / "out")))
    split, limit = TranslateSettings(form=Form()).counts(sums).describe()
    assert split == "30 lines too long for the model: translated in pieces"
    assert limit.startswith("3 translations reached the length limit: see")


def remarks(text, **options):
    """What a call says of its lines."""
    said = []
    output(text, say=said.append, **options)
    return said


def test_lines_that_are_too_long_are_named_up_to_a_limit():
    lines = [b"split %d\n" % number for number in range(1, 31)]
    said = remarks(b"".join(lines), window=7)
    assert said[0] == "in.txt:1: too long: translated in pieces"
    assert said[NOTES:] == ["more lines like these are only counted"]
    said = remarks(b"".join(lines[:NOTES]), window=7)
    assert len(said) == NOTES and said[-1].startswith("in.txt:20: ")


class Several(Upper):
    def translation(self, number, text, texts):
        plain = super().translation(number, text, texts)
        count = text.count(".")
        by_sentence = self.together is not None and count > self.together
        return dataclasses.replace(
            plain,
            sentences=count,
            by_sentence=by_sentence,
            at_risk=count > 1 and not by_sentence,
        )


def test_lines_of_several_sentences_are_one_bounded_line_at_the_end():
    text = b"one.\n" + b"one. two.\n" * 30
    numbers = ", ".join(map(str, range(2, NOTES + 2)))
    expected = [f"in.txt: 30 lines {SEVERAL} (lines {numbers}, ...)"]
    assert remarks(text, translate=Several()) == expected
    assert remarks(text[:15], translate=Several()) == [f"in.txt: 1 line {SEVERAL} (line 2)"]
    assert not remarks(b"one.\n" * 9, translate=Several())


def test_lines_translated_sentence_by_sentence_are_counted():
    translate = Several(together=1)
    assert not remarks(b"one. two.\n" * 3, translate=translate)
    sums = run(b"one.\n" + b"one. two.\n" * 3, StreamSink(io.BytesIO()), translate=translate)
    (said,) = TranslateSettings().counts(sums).describe()
    assert said.startswith("3 lines of several sentences, as the training text rarely has them")


def test_lines_whose_output_is_far_too_short_are_named_at_the_end():
    lines = b"short\n" + b"one.\n" * 8 + b"short\n"
    assert remarks(lines) == [f"in.txt: 2 lines {SHORT} (lines 1, 10)"]


def test_a_call_that_ends_early_has_said_its_remarks():
    said = []
    with pytest.raises(InputError):
        output(b"a. b.\n" * 7 + b"bad prefix.\n", translate=Several(), say=said.append)
    assert said == [f"in.txt: 7 lines {SEVERAL} (lines 1, 2, 3, 4, 5, 6, 7)"]


def test_another_input_is_not_gone_on_with(tmp_path):
    path = tmp_path / "out"
    killed(TEXT, path, 5)
    for text in (TEXT.replace(b"line 3", b"line x"), TEXT[:20], b""):
        with pytest.raises(OutputError, match=r"in.txt: its first 10 lines differ from those the"):
            run(text, FileSink(str(path)))
    # What comes after is not known yet, and may differ.
    run(TEXT + b"more\n", FileSink(str(path)))
    assert path.read_bytes().count(b"\n") == 24


def test_memory_does_not_grow_with_the_number_of_lines(tmp_path):
    source = tmp_path / "in"

    def peak(count):
        source.write_bytes(b"a line of thirty-one characters\n" * count)
        tracemalloc.start()
        with open_lines(str(source)) as lines:
            streamed(lines, FileSink(str(tmp_path / "out")), form=Form(), window=200)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (tmp_path / "out").read_bytes().count(b"\n") == count
        return size

    few = peak(800)
    assert peak(8_000) < 1.2 * few
