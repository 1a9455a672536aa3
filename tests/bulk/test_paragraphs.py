"""Paragraphs of hard-wrapped text: how their lines are joined, and where they are in the input."""

import contextlib
import dataclasses
import io
import itertools

import pytest

from flaxformer_mt.bulk import reading
from flaxformer_mt.bulk.forms import Form
from flaxformer_mt.bulk.inputs import OpenInput
from flaxformer_mt.bulk.paragraphs import joined
from flaxformer_mt.bulk.reading import InputError, Lines, Paragraphs, Shard
from flaxformer_mt.bulk.sinks import FileSink, StreamSink
from flaxformer_mt.bulk.stream import shard_ends
from flaxformer_mt.bulk.translating import TranslateSettings
from tests.bulk.test_stream import Upper, streamed
from tests.conftest import Killed

TEXT = b"\xef\xbb\xbfOne\n  two. \r\nThree.\n\n \nFour\nfive.\n\xe2\x80\xa8\nsix\n"
EXPECTED = [b"One two. Three.", b"", b"", b"Four five.", b"", b"six"]
FORM = Form(join_lines=True)


def paragraphs(text):
    return Paragraphs(Lines("x", io.BytesIO(text)))


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["One", "two."], "One two."),
        (["  One ", "\ttwo."], "One two."),
        (["a well-", "known man"], "a well-known man"),
        (["he left -", "no, she did"], "he left - no, she did"),
        (["from 3-", "5 of them"], "from 3- 5 of them"),
        (["trans\u00ad", "lated"], "translated"),
        (["これは", "家です。", "大きい"], "これは家です。大きい"),
        (["他说：“走", "吧”（笑）", "。"], "他说：“走吧”（笑）。"),
        (["用 Linux", "系统"], "用 Linux 系统"),
        (["우리는", "집에"], "우리는 집에"),
        (["ภาษา", "ไทย"], "ภาษาไทย"),
        ([], ""),
    ],
)
def test_lines_are_joined_as_their_script_is_written(lines, text):
    assert joined(lines) == text


def test_paragraphs_are_lines_and_blank_lines_stay():
    source = paragraphs(TEXT)
    given = [(line, source.number, source.line) for line in source]
    assert [line for line, _, _ in given] == EXPECTED
    assert [number for _, number, _ in given] == [1, 2, 3, 4, 5, 6]
    assert [line for _, _, line in given] == [1, 4, 5, 6, 8, 9]
    assert list(paragraphs(b"")) == [] and list(paragraphs(b"\n\n")) == [b"", b""]


def test_shards_are_cut_between_paragraphs():
    ends = shard_ends(paragraphs(TEXT), 2, window=2)
    numbers = [number for (number, _), _ in ends]
    parts = [
        list(Shard(paragraphs(TEXT), start, stop, 1)) for start, stop in itertools.pairwise(numbers)
    ]
    assert parts[0] + parts[1] == EXPECTED and all(parts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"one\n\ntwo\nbad \xff line\n", r"x:4: is not UTF-8 text \(byte 5\)"),
        (b"one\n\ntwo\n" + b"w" * 28 + b"\n", "x:3: the paragraph that begins here has over 30 b"),
        (b"one\n\nbad prefix\nx\n", "x:3: has a bad prefix"),
        (b"one\n\n" + b"y" * 60 + b"\n" + b"y" * 60 + b"\n", "x:3: 121 tokens; use --overlong sp"),
    ],
)
def test_an_error_names_the_line_of_the_input(monkeypatch, text, message):
    if b"www" in text:
        monkeypatch.setattr(reading, "LONGEST", 30)
    output = io.BytesIO()
    with pytest.raises(InputError, match=message):
        streamed(paragraphs(text), StreamSink(output), translate=Known(), form=FORM)
    assert output.getvalue() == b"ONE\n\n"


@dataclasses.dataclass
class Known(Upper):
    """A translator whose training text is known, or not."""

    training_text: object = "known"
    takes_whole_lines: bool = False
    killed: bool = False

    def translate_with(self, texts, options, wanted):
        self.several = options.several
        if self.killed and self.calls:
            raise Killed
        return super().translate_with(texts, options, wanted)


def test_an_output_goes_on_between_paragraphs(tmp_path):
    path = tmp_path / "out"
    options: dict = {"form": FORM, "window": 2}
    with contextlib.closing(FileSink(str(path))) as sink, pytest.raises(Killed):
        streamed(paragraphs(TEXT), sink, translate=Known(killed=True), **options)
    said = []
    with contextlib.closing(FileSink(str(path))) as sink:
        streamed(paragraphs(TEXT), sink, translate=Known(), say=said.append, **options)
    assert path.read_bytes() == b"\n".join(EXPECTED).upper() + b"\n"
    assert any("resuming after line 2" in line for line in said)


@pytest.mark.parametrize(
    ("training_text", "takes_whole_lines", "join_lines", "several"),
    [
        (None, False, True, "split"),
        (None, True, True, "auto"),
        ("known", False, True, "auto"),
        (None, False, False, "auto"),
    ],
)
def test_sentences_of_joined_lines_are_split_where_nothing_else_is_known(
    training_text, takes_whole_lines, join_lines, several
):
    translator = Known(training_text=training_text, takes_whole_lines=takes_whole_lines)
    form = Form(join_lines=join_lines)
    streamed(paragraphs(b"One.\n"), StreamSink(io.BytesIO()), translate=translator, form=form)
    assert translator.several == several


def test_a_person_types_paragraphs(capsys):
    class Terminal(io.BytesIO):
        def isatty(self):
            return True

    lines = Lines("terminal", Terminal(b"One\ntwo.\n\nThree.\n"))
    typed = OpenInput(Paragraphs(lines), cut=None, is_typed=True)
    assert typed.lines.interactive and "then an empty line" in typed.advice
    typed.prompt()
    assert next(typed.lines) == b"One two."
    assert capsys.readouterr().err == "> > > "


def test_only_text_has_lines_to_join():
    for read in ("tsv", "jsonl"):
        with pytest.raises(ValueError, match=f"in plain text only, not in {read}"):
            Form(read=read, write=read, join_lines=True)


def test_records_of_other_jobs_know_nothing_of_joined_lines():
    assert "join_lines" not in TranslateSettings().identity()["form"]
    assert TranslateSettings(form=FORM).identity()["form"]["join_lines"] is True
