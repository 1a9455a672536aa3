"""`translate` and `score` on a tiny run: forms, options, and bad input with file and line."""

import functools
import gzip
import json
import math
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from flaxformer_mt.bulk import inputs
from flaxformer_mt.bulk.reading import Lines
from flaxformer_mt.bulk.stream import shard_ends
from flaxformer_mt.serving.served_model import ServedModel
from tests.cli.conftest import Done, run_captured
from tests.decoding.runs import LINES, PAIRS, make_run

TEXT = "".join(f"{line}\n" for line in LINES).encode()
COLUMNS = "".join(f"{source}\t{target}\n" for source, target in PAIRS).encode()
LONG = b" ".join(line.encode() for line in LINES)


@pytest.fixture
def translate(run, workdir):
    return functools.partial(run, "translate", "--workdir", workdir)


@pytest.fixture
def score(run, workdir):
    return functools.partial(run, "score", "--workdir", workdir)


@pytest.fixture(scope="module")
def translations(workdir, tmp_path_factory):
    """The translations of LINES, in order."""
    source = tmp_path_factory.mktemp("plain") / "in"
    source.write_bytes(TEXT)
    done = run_captured("translate", "--workdir", workdir, "--input", source)
    assert done.status == 0, done.errors
    return done.output.splitlines()


def test_a_line_of_text_becomes_a_line_of_text(translate, translations):
    done = translate(stdin=TEXT)
    assert done.status == 0, done.errors
    assert done.output.splitlines() == translations and len(translations) == 4
    assert "the weights 'best, step 2'" in done.last


def test_a_compressed_file_says_what_its_text_says(translate, translations, tmp_path):
    (tmp_path / "in.gz").write_bytes(gzip.compress(TEXT))
    assert translate("--input", tmp_path / "in.gz").output.splitlines() == translations


def test_joined_lines_say_what_the_paragraph_says(translate, translations, tmp_path):
    words = [line.split() for line in LINES]
    wrapped = "\n\n".join("\n".join(of_line) for of_line in words).encode()
    done = translate("--join-lines", stdin=wrapped)
    assert done.status == 0, done.errors
    expected = [line for text in translations for line in (text, "")][:-1]
    assert done.output.splitlines() == expected

    (tmp_path / "in").write_bytes(wrapped)
    options = ("--input", tmp_path / "in", "--output", tmp_path / "out", "--window", 1)
    done = translate(*options, "--join-lines", "--output-shards", 2)
    assert done.status == 0, done.errors
    assert translate("--output", tmp_path / "out", "--join", 2).status == 0
    assert (tmp_path / "out").read_text().splitlines() == expected


def test_a_column_says_what_its_text_says(translate, translations):
    columns = "".join(f"{number}\t{line}\n" for number, line in enumerate(LINES)).encode()
    done = translate("--format", "tsv", "--column", 2, "--append", stdin=columns)
    assert done.output.splitlines() == [
        f"{number}\t{line}\t{text}"
        for number, (line, text) in enumerate(zip(LINES, translations, strict=True))
    ]


def test_objects_say_what_their_text_says_and_how_it_is_aligned(translate, translations):
    text = "".join(json.dumps({"t": {"en": line}}) + "\n" for line in LINES).encode()
    options = ("--format", "jsonl", "--key", "t.en", "--n-best", 2, "--alignments", "--tokens")
    done = translate(*options, stdin=text)
    objects = [json.loads(line) for line in done.output.splitlines()]
    assert [translated["translation"] for translated in objects] == translations
    for translated, line in zip(objects, LINES, strict=True):
        assert translated["t"] == {"en": line}
        first, second = translated["n_best"]
        assert first["score"] == translated["score"] >= second["score"]
        for hypothesis in (first, second):
            links = [tuple(map(int, link.split("-"))) for link in hypothesis["alignment"].split()]
            assert len(links) == len(hypothesis["translation"].split())
            assert all(0 <= src < len(line.split()) for src, _ in links)


def test_moses_s_n_best_lists_have_the_same_translations(translate, run, translations, tmp_path):
    text = TEXT + b"\n"
    options = ("--n-best", 2, "--output-format")
    objects = map(json.loads, translate(*options, "jsonl", stdin=text).output.splitlines())
    done = translate(*options, "moses", "--output", tmp_path / "lists", stdin=text)
    assert done.status == 0, done.errors
    written = (tmp_path / "lists").read_text().split("\n")
    assert written[-2:] == ["4 |||  ||| log_prob= 0.000000 ||| 0.000000", ""]
    expected = [
        f"{number} ||| {one['translation']} ||| log_prob= {one['log_prob']:.6f} ||| "
        f"{one['score']:.6f}"
        for number, translated in enumerate(objects)
        for one in translated["n_best"]
    ]
    assert written[:-1] == expected and len(expected) == 9
    (tmp_path / "ref").write_text("".join(f"{line}\n" for line in [*translations, ""]))
    scored = ("evaluate", "--hypotheses", tmp_path / "lists", "--ref", tmp_path / "ref")
    for choice in ("first", "score", "oracle"):
        assert "chrF 100.00" in run(*scored, "--from-n-best", choice, status=0).output


def test_score_is_what_translate_reported(translate, score):
    """Of tokens, whatever the lines; of texts where they encode into these tokens."""
    lines = TEXT + LONG + b"\n\n"
    options = ("--output-format", "jsonl", "--tokens", "--scores", "--translation-key", "de")
    translated = translate(*options, stdin=lines).output.encode()
    translated = translated.replace(b'"de": "', b'"de": "das alte ', 1)
    options = ("--format", "jsonl", "--from-tokens", "--overlong", "split", "--per-token")
    done = score(*options, "--translation-key", "de", stdin=translated)
    assert done.status == 0, done.errors

    objects = [json.loads(line) for line in done.output.splitlines()]
    assert len(objects) == 6
    for pair in objects:
        scored = pair["scored"]
        assert scored["score"] == pytest.approx(pair["de_score"], abs=1e-5)
        assert scored["log_prob"] == pytest.approx(pair["de_log_prob"], rel=1e-5, abs=1e-5)
        assert sum(scored["token_log_probs"]) == pytest.approx(scored["log_prob"], abs=1e-4)
    tokens = sum(len(pair["scored"]["token_log_probs"]) for pair in objects)
    mean = sum(pair["scored"]["log_prob"] for pair in objects) / tokens
    assert (
        f"6 pairs, {tokens} target tokens (end marks included): {mean:.4f} nats per token, "
        f"perplexity {math.exp(-mean):.4f}"
    ) in done.errors
    assert "1 texts encode into other tokens than the scored ones" in done.errors


def test_two_files_are_scored_as_two_columns(score, tmp_path):
    (tmp_path / "src").write_bytes(TEXT)
    (tmp_path / "tgt").write_text("".join(f"{target}\n" for _, target in PAIRS))
    files = ("--src", tmp_path / "src", "--tgt", tmp_path / "tgt")
    done = score(*files, "--output", tmp_path / "out")
    assert done.status == 0, done.errors
    scores = (tmp_path / "out").read_text().splitlines()
    assert score(stdin=COLUMNS).output.splitlines() == [
        f"{source}\t{target}\t{pair_scores}"
        for (source, target), pair_scores in zip(PAIRS, scores, strict=True)
    ]


@pytest.mark.parametrize(
    ("call", "text", "status", "message"),
    [
        ("translate --overlong refuse", b"good\n" + LONG, 2, "input:2: the source has"),
        ("translate --n-best 9", b"", 2, "must lie between 1 and the beam size, 4"),
        ("translate --suppress qqq", b"a", 2, "'qqq' is not in the target vocabulary"),
        ("translate --diversity 0.3", b"a", 2, "--diversity needs more than one group"),
        ("translate --output .", b"", 2, "is a folder; --output must be a file"),
        ("translate --output none/out", b"", 2, "cannot be written: No such file or directory"),
        ("translate --output /dev/null", b"a\n", 0, "compiling, with the weights 'best, step 2'"),
        ("score", b"a\tb\nc\n", 2, "standard input:2: has 1 column, but no column 2"),
    ],
)
def test_bad_input_is_one_line(run, workdir, call, text, status, message):
    done = run(*call.split(), "--workdir", workdir, stdin=text)
    assert done.status == status, done.errors
    assert message in done.last
    # What comes before the bad line is not lost.
    assert done.output.count("\n") == (1 if b"\n" in text[:-1] else 0)


class Unfinished(NamedTuple):
    """A translation that a bad line stopped; the line has been mended since."""

    command: tuple[object, ...]
    source: Path
    out: Path
    stopped: Done


@pytest.fixture
def unfinished(translate, tmp_path):
    folder = tmp_path / "place"
    folder.mkdir()
    source, out = folder / "in", folder / "out"
    good = TEXT * 3
    source.write_bytes(good[: len(TEXT) * 2] + b"\xff\n")
    command = ("--input", source, "--output", out, "--window", 3, "--scores")
    stopped = translate(*command)
    assert not out.exists()
    source.write_bytes(good)
    return Unfinished(command, source, out, stopped)


def test_an_output_that_a_bad_line_stopped_is_resumed_as_if_it_had_never_been_bad(
    translate, unfinished
):
    _, source, out, stopped = unfinished
    assert stopped.status == 2 and f"{source}:9: is not UTF-8" in stopped.last
    assert f"not finished; the same command resumes {out}.part" in stopped.errors
    done = translate(*unfinished.command)
    assert done.status == 0, done.errors
    assert f"{out}.part: resuming after line 6" in done.errors
    assert out.read_text() == translate("--window", 3, "--scores", stdin=TEXT * 3).output
    assert sorted(path.name for path in out.parent.iterdir()) == ["in", "out"]


def test_an_unfinished_output_is_for_the_same_command(translate, unfinished):
    for changes, name in (
        (("--weights", "1"), "weights"),
        (("--beam-size", "2"), "decoding.beam_size 4, but now it is 2"),
        (("--keep",), "decoding.keep not set, but now it is True"),
        (("--alignments",), "form.shown"),
    ):
        done = translate(*unfinished.command, *changes)
        assert done.status == 2 and f"was written with {name}" in done.last
        assert "--restart" in done.last


class Sharding:
    """A command on a file of twelve lines, whose output is made in shards."""

    def __init__(self, run, workdir: Path, folder: Path, command: str) -> None:
        self._run = run
        self.source, self.out = folder / "in", folder / "out"
        self.good = 3 * (TEXT if command == "translate" else COLUMNS)
        self.source.write_bytes(self.good)
        self.options = ("--window", 3)
        if command == "translate":
            self.options += ("--sample", "--seed", 5)
        self.model = (command, "--workdir", workdir)

    def __call__(self, *flags: object) -> Done:
        files = ("--input", self.source, "--output", self.out)
        return self._run(*self.model, *files, *self.options, *flags)

    def expected(self, output: str) -> dict[Path, str]:
        """The three shards, of whole windows, of the output that one call writes."""
        lines = [f"{line}\n" for line in output.split("\n")[:-1]]
        parts = (lines[:3], lines[3:6], lines[6:])
        return {
            self.out.with_name(f"out.shard-{index}-of-3"): "".join(part)
            for index, part in enumerate(parts)
        }

    def shards(self) -> dict[Path, str]:
        return {path: path.read_text() for path in self.out.parent.glob("out.shard*")}

    def spoil_line_10(self) -> None:
        lines = self.good.split(b"\n")
        lines[9] += b"\xff"
        self.source.write_bytes(b"\n".join(lines))

    def mend_line_10(self) -> None:
        self.source.write_bytes(self.good)


@pytest.fixture(scope="module", params=["translate", "score"])
def command(request):
    """A command that can write its output in shards."""
    return request.param


@pytest.fixture
def sharding(run, workdir, tmp_path, command):
    return Sharding(run, workdir, tmp_path, command)


@pytest.fixture(scope="module")
def whole_output(workdir, tmp_path_factory, command):
    """The output of one call. A draw depends on its line number."""
    sharding = Sharding(None, workdir, tmp_path_factory.mktemp("whole"), command)
    done = run_captured(*sharding.model, "--input", sharding.source, *sharding.options)
    assert done.status == 0, done.errors
    return done.output


def test_shards_are_joined_to_what_one_call_writes(sharding, whole_output):
    for index in (1, 0):
        assert sharding("--shard", f"{index}/3").status == 0
    done = sharding("--join", 3)
    message = f"{sharding.out}.shard-2-of-3: missing (2 of 6 files)"
    assert done.status == 2 and message in done.last

    assert sharding("--shard", "2/3").status == 0
    assert sharding("--join", 3).last == f"{sharding.out}: joined from 3 shards"
    assert sharding.out.read_text() == whole_output
    assert sharding.shards() == sharding.expected(whole_output)


def test_a_shard_that_a_bad_line_stopped_is_resumed(sharding, whole_output):
    sharding.spoil_line_10()
    done = sharding("--shard", "2/3")
    assert done.status == 2 and f"{sharding.source}:10: is not UTF-8" in done.last
    sharding.mend_line_10()
    done = sharding("--shard", "2/3")
    assert done.status == 0 and "resuming after line 9" in done.errors
    assert sharding.shards().items() <= sharding.expected(whole_output).items()


def test_one_call_makes_the_shards_that_several_calls_make(sharding, whole_output):
    """Also if a bad line interrupts it."""
    sharding.spoil_line_10()
    assert sharding("--output-shards", 3).status == 2
    sharding.mend_line_10()
    done = sharding("--output-shards", 2)
    assert done.status == 2 and "out.shards.json: was written with shards '3 of 12" in done.last
    done = sharding("--output-shards", 3)
    assert done.status == 0 and "resuming after line 9" in done.errors
    assert sharding.shards() == sharding.expected(whole_output)
    assert sharding("--join", 3).status == 0
    assert sharding.out.read_text() == whole_output


def test_a_shard_of_no_lines_is_empty(sharding):
    # Of twelve lines in nine shards, the first has none.
    assert "--shard 0/9: nothing to do" in sharding("--shard", "0/9").errors
    assert (sharding.out.parent / "out.shard-0-of-9").read_bytes() == b""


def test_flags_of_shards_that_mean_nothing_are_refused(sharding):
    for shard in ("3/3", "1", "x/2"):
        assert f"--shard {shard}: must be I/N" in sharding("--shard", shard).last
    assert "give only one" in sharding("--output-shards", 2, "--join", 2).last


def test_shards_need_an_input_that_can_be_read_twice(run, sharding, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for flag in (("--shard", "0/2"), ("--output-shards", 2)):
        for source, name in ((), "standard input"), (("--input", pipe), pipe):
            done = run(*sharding.model, *source, "--output", sharding.out, *flag)
            assert f"{flag[0]} reads the input twice: name a file instead of {name}" in done.last


@pytest.fixture
def make_shard(translate, tmp_path):
    """Makes one of two shards of `out` from a text that it writes to `in`."""

    def make(index, *flags, text=TEXT):
        (tmp_path / "in").write_bytes(text)
        files = ("--input", tmp_path / "in", "--output", tmp_path / "out")
        assert translate(*files, "--shard", f"{index}/2", *flags).status == 0

    return make


def test_only_shards_of_one_input_and_one_command_are_joined(translate, make_shard, tmp_path):
    out = tmp_path / "out"
    make_shard(0, "--window", 1)
    for flags, text, why in (
        (("--window", 3), TEXT, "has window 3, but after {}.shard-0-of-2 it must be 1"),
        (("--window", 1, "--beam-size", 2), TEXT, "has decoding.beam_size 2, but after"),
        (("--window", 1), TEXT * 2, "has start [4, "),
        (("--window", 1), TEXT.replace(b"\n", b" x\n"), "has start [2, "),
    ):
        make_shard(1, *flags, text=text)
        done = translate("--output", out, "--join", 2)
        assert done.status == 2 and f"{out}.shard-1-of-2: {why.format(out)}" in done.last
        assert not out.exists()


def test_a_shard_is_joined_though_a_line_before_it_has_been_mended(translate, make_shard, tmp_path):
    out = tmp_path / "out"
    make_shard(0, "--window", 1)
    mended = LINES[3].encode() + b"\n" + TEXT.partition(b"\n")[2]
    make_shard(1, "--window", 1, text=mended)
    assert translate("--output", out, "--join", 2).status == 0
    assert out.read_text() == translate("--window", 1, stdin=TEXT).output


def test_a_shard_without_its_record_is_not_joined(translate, make_shard, tmp_path):
    for index in (0, 1):
        make_shard(index, "--window", 1)
    record = tmp_path / "out.record-1-of-2.json"
    record.unlink()
    done = translate("--output", tmp_path / "out", "--join", 2)
    assert done.status == 2 and f"{record}: missing (1 of 4 files)" in done.last


def test_shards_that_have_changed_are_not_joined(run, workdir, tmp_path, command):
    """Cut, emptied, swapped or mended by hand; one that is made again is joined."""
    source, out = tmp_path / "in", tmp_path / "out"
    source.write_bytes(3 * (TEXT if command == "translate" else COLUMNS))
    call = (command, "--workdir", workdir, "--input", source, "--output", out, "--window", 4)
    assert run(*call, "--output-shards", 3).status == 0
    shards = [tmp_path / f"out.shard-{number}-of-3" for number in range(3)]
    contents = [shard.read_bytes() for shard in shards]
    same_size = b"x" + contents[1][1:]
    for number, content, why in (
        (1, contents[1][:20], "bytes 20, but out.record-1-of-3.json says"),
        (2, b"", "bytes 0, but out.record-2-of-3.json says"),
        (0, contents[0] + contents[1], "bytes "),
        (1, same_size, "sha256 "),
        (1, same_size.replace(b"\n", b" "), "lines 0, but out.record-1-of-3.json says 4"),
    ):
        shards[number].write_bytes(content)
        done = run(*call, "--join", 3)
        assert done.status == 2, done.errors
        assert f"{shards[number]}: has changed since it was made: {why}" in done.last
        assert not out.exists()
        shards[number].write_bytes(contents[number])
    shards[1].unlink()
    os.mkfifo(shards[1])
    assert "cannot be read: not a regular file" in run(*call, "--join", 3).last
    shards[1].unlink()
    assert run(*call, "--shard", "1/3").status == 0
    assert run(*call, "--join", 3).status == 0 and out.read_bytes() == b"".join(contents)


def test_shards_of_a_longer_input_are_not_all(translate, tmp_path):
    """Even if the numbers of those that are there are in order."""
    source, out = tmp_path / "in", tmp_path / "out"
    source.write_bytes(TEXT)
    call = ("--input", source, "--output", out, "--window", 1)
    assert translate(*call, "--output-shards", 4).status == 0
    for first, why in ((0, "4 lines, but .* ends after 2"), (2, "as the first shard it must be")):
        for number in range(2):
            for name, ending in (("shard", ""), ("record", ".json")):
                old = tmp_path / f"out.{name}-{first + number}-of-4{ending}"
                shutil.copy(old, tmp_path / f"out.{name}-{number}-of-2{ending}")
        done = translate(*call, "--join", 2)
        assert done.status == 2 and re.search(why, done.last), done.last


def test_shards_of_an_earlier_version_are_joined_unchecked(translate, tmp_path):
    """Their records tell only where they come from."""
    source, out = tmp_path / "in", tmp_path / "out"
    source.write_bytes(TEXT)
    call = ("--input", source, "--output", out, "--window", 1)
    assert translate(*call, "--output-shards", 2).status == 0
    for record in tmp_path.glob("out.record-*"):
        content = json.loads(record.read_bytes())
        del content["output"], content["whole"]
        record.write_text(json.dumps(content))
    done = translate(*call, "--join", 2)
    assert done.status == 0 and "2 of 2 shards were made by an earlier version" in done.errors
    assert out.read_text() == translate("--window", 1, stdin=TEXT).output


@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_finished_shards_are_looked_at_before_the_others_are_made(translate, tmp_path, damage):
    source, out = tmp_path / "in", tmp_path / "out"
    call = ("--input", source, "--output", out, "--window", 1, "--output-shards", 2)
    source.write_bytes(TEXT.replace(LINES[3].encode(), b"\xff"))
    assert translate(*call).status == 2
    source.write_bytes(TEXT)
    first = tmp_path / "out.shard-0-of-2"
    content = first.read_bytes()
    if damage == "cut":
        first.write_bytes(content[:-1])
    else:
        first.unlink()
    done = translate(*call)
    assert done.status == 2 and str(first) in done.last
    first.write_bytes(content)
    assert translate(*call).status == 0


def test_no_line_is_lost_if_the_input_changes_while_it_is_read(translate, tmp_path, monkeypatch):
    source, out = tmp_path / "in", tmp_path / "out"

    def changed(text, *flags):
        def counted(*arguments, **options):
            ends = shard_ends(*arguments, **options)
            source.write_bytes(text)
            return ends

        source.write_bytes(TEXT)
        monkeypatch.setattr(inputs, "shard_ends", counted)
        done = translate("--input", source, "--output", out, "--window", 1, "--restart", *flags)
        return done, [path.read_bytes().count(b"\n") for path in sorted(tmp_path.glob("out.*-2"))]

    for flags in (("--output-shards", 2), ("--shard", "0/2"), ("--shard", "1/2")):
        done, finished = changed(LINES[0].encode(), *flags)
        assert done.status == 2 and not finished
        assert f"{source}: has changed, or cannot be read twice: it ends after line 1" in done.last
    done, finished = changed(TEXT * 2, "--output-shards", 2)
    assert done.status == 0 and finished == [2, 2], done.errors


def test_a_cluster_needs_its_package(translate, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    done = translate("--engine", "ray", stdin=TEXT)
    assert done.status == 2
    assert "ray is not installed: pip install 'flaxformer-mt[ray]'" in done.last


FORBIDDING = ("--format", "jsonl", "--forbid-key", "not.said")


def translated_without(translate, forbidden, *options):
    """Translations of LINES, each without its own forbidden phrases."""
    objects = [
        {"source": line, "not": {"said": phrases}}
        for line, phrases in zip(LINES, forbidden, strict=True)
    ]
    text = "".join(json.dumps(record) + "\n" for record in objects).encode()
    done = translate(*FORBIDDING, *options, stdin=text)
    assert done.status == 0, done.errors
    return [json.loads(line)["translation"] for line in done.output.splitlines()]


def test_phrases_are_forbidden_for_all_lines_or_for_one(translate, translations):
    words = [text.split()[0] for text in translations]
    shared = translated_without(translate, [[]] * 4, "--forbid", words[0], "x y")
    assert not any(words[0] in text.split() for text in shared)
    for_one = translated_without(translate, [[], [words[1]], [], []])
    assert words[1] not in for_one[1].split()
    assert for_one[:1] + for_one[2:] == translations[:1] + translations[2:]


def test_forbidden_phrases_that_are_no_list_are_refused(translate):
    done = translate(*FORBIDDING, stdin=b'{"source": "a", "not": {"said": "x"}}\n')
    assert done.status == 2 and "input:1: has no list of texts under 'not.said'" in done.last


def test_constraints_that_the_search_cannot_have_are_refused_before_a_line(translate, tmp_path):
    (tmp_path / "terms.tsv").write_text("dog\thund\n")
    for search, name in (
        (("--sample",), "sampling"),
        (("--diverse-groups", 2), "decoding.diverse_groups"),
        (("--no-repeat-ngram", 3), "decoding.no_repeat_ngram"),
    ):
        for constraint in (
            ("--constraints-key", "must"),
            ("--terminology", tmp_path / "terms.tsv"),
        ):
            done = translate("--format", "jsonl", *constraint, *search, stdin=b'{"source": "a"}\n')
            assert (done.status, done.output) == (2, "")
            assert f"constraints need plain beam search and can't have {name}" in done.last


def test_constraints_and_terms(translate, tmp_path):
    """A call with other terms does not go on with an output."""
    terms, source, out = (tmp_path / name for name in ("terms.tsv", "in", "out"))
    terms.write_text("big\tdas\ndog\thund\n")
    objects = [{"source": line, "must": ["haus"]} for line in LINES]
    source.write_text("".join(json.dumps(record) + "\n" for record in objects) + "x\n")
    command = ("--format", "jsonl", "--input", source, "--output", out)
    command = (*command, "--constraints-key", "must", "--terminology", terms)
    command = (*command, "--max-extra-tokens", 20, "--window", 2)
    assert "in:5: " in translate(*command).last
    terms.write_text("big\tdas\n")
    assert "terminology" in translate(*command).last
    terms.write_text("big\tdas\ndog\thund\n")
    source.write_text(source.read_text().removesuffix("x\n"))
    done = translate(*command)
    assert done.status == 0 and "resuming after line" in done.errors
    for line, text in zip(LINES, out.read_text().splitlines(), strict=True):
        words = json.loads(text)["translation"].split()
        assert "haus" in words and ("big" not in line or "das" in words)
        assert "dog" not in line or "hund" in words


def test_a_term_that_cannot_be_spelled_is_told_before_anything_is_written(translate, tmp_path):
    """The line that has it may come after hours; then the repaired list would be another one."""
    terms, source, out = (tmp_path / name for name in ("terms.tsv", "in", "out"))
    terms.write_text("dog\thund\nzebra\t\u4e2d\u6587\n")
    source.write_text("\n".join([*LINES, "a zebra"]) + "\n")
    command = ("--input", source, "--output", out, "--terminology", terms, "--window", 2)
    done = translate(*command)
    assert done.status == 2 and "terms.tsv:2: the target vocabulary cannot spell" in done.last
    assert [*tmp_path.glob("out*")] == []


def test_draws_do_not_depend_on_the_window_but_on_the_seed(translate):
    sample = ("--sample", "--temperature", 2, "--n-best", 2)
    by_line, at_once = (translate(*sample, "--window", size, stdin=TEXT) for size in (1, 4096))
    assert by_line.status == 0
    rows = [line.split("\t") for line in by_line.output.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2", "3", "3", "4", "4"]
    assert by_line.output == at_once.output
    assert by_line.output != translate(*sample, "--seed", 2, stdin=TEXT).output


def test_an_ensemble_names_the_weights_of_its_members(translate, tmp_path):
    done = translate("--ensemble", make_run(tmp_path / "other", {3: 10.0}).path, stdin=TEXT)
    assert done.status == 0 and "'best, step 2 + best, step 3'" in done.last


def test_a_dtype_is_chosen(translate):
    done = translate("--dtype", "bfloat16", stdin=TEXT)
    assert done.status == 0 and done.output.count("\n") == TEXT.count(b"\n")


@pytest.mark.parametrize("runtime", ["ctranslate2", "ctranslate2-int8"])
def test_another_program_searches(translate, translations, tmp_path, monkeypatch, runtime):
    pytest.importorskip("ctranslate2", reason="needs the [export] extra")
    monkeypatch.setenv("FLAXFORMER_CACHE", str(tmp_path))
    done = translate("--runtime", runtime, stdin=TEXT)
    assert done.status == 0 and len(done.output.splitlines()) == len(translations)
    assert "greedy outputs equal" in done.errors, "compared on first use"


def test_what_another_program_does_not_have_is_refused_at_once(run, workdir):
    pytest.importorskip("ctranslate2", reason="needs the [export] extra")
    arguments = ("--workdir", workdir, "--runtime", "ctranslate2")
    done = run("translate", *arguments, "--prefix", "a", "--dtype", "bfloat16", stdin=TEXT)
    assert done.status == 2 and "searches without --dtype, --prefix" in done.last
    done = run("serve", *arguments, "--port", 0, "--shortlist")
    assert done.status == 2 and "searches without --shortlist" in done.last


def test_another_program_must_be_installed(run, workdir, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    document = ("--format", "html")
    for options in ((), document):
        arguments = ("--workdir", workdir, "--runtime", "ctranslate2", *options)
        done = run("translate", *arguments, stdin=TEXT)
        assert done.status == 2 and "--runtime ctranslate2 needs ctranslate2" in done.last


@pytest.fixture(scope="module")
def in_groups(tmp_path_factory):
    """A run whose searches have two groups."""
    run = make_run(tmp_path_factory.mktemp("runs") / "run", {1: 10.0})
    record = json.loads(run.config_file.read_text())
    record["config"]["decoding"]["diverse_groups"] = 2
    run.config_file.write_text(json.dumps(record))
    return run.path


def test_a_beam_that_its_groups_do_not_divide(run, translate, in_groups):
    options = ("--beam-size", 3, "--diverse-groups", 2)
    done = translate(*options, stdin=TEXT)
    assert done.status == 2 and "--beam-size 3 must be a multiple of the 2 groups" in done.last
    picture = ("--src", LINES[0], "--output", in_groups / "a.html")
    for command in (("translate",), ("attention", *picture), ("serve", "--port", 0)):
        done = run(*command, "--workdir", in_groups, "--beam-size", 3, stdin=TEXT)
        assert done.status == 2 and "--beam-size 3 must be a multiple of the 2 groups" in done.last
    # Draws have no groups.
    for options in (("--sample", "--beam-size", 3), ("--diversity", 0.3)):
        done = run("translate", "--workdir", in_groups, *options, stdin=TEXT)
        assert done.status == 0, done.errors


def test_a_server_is_told_that_its_search_is_diverse(run, workdir, in_groups, monkeypatch):
    received: list[int] = []

    def server(translator: Any, model: ServedModel, *_: Any, **__: Any) -> SimpleNamespace:
        received.append(model.diverse)
        return SimpleNamespace(model_at_work=model.diverse, run_until_stopped=lambda: None)

    monkeypatch.setattr("flaxformer_mt.cli.actions.serve.TranslationServer", server)
    monkeypatch.setattr(os, "_exit", received.append)  # as long as the model's thread is at work
    for folder in (workdir, in_groups):
        assert run("serve", "--workdir", folder, "--port", 0).status == 0
    assert received == [False, True, 0]


def test_a_person_is_asked_for_each_line_and_told_no_rates(translate, monkeypatch):
    monkeypatch.setattr(Lines, "interactive", True)
    done = translate(stdin=b"one\ntwo\n")
    assert done.status == 0 and done.output.count("\n") == 2
    assert done.errors.endswith("type a sentence and press Enter; Ctrl-D quits\n> > > \n")
    assert "standard input:1: too long" in translate(stdin=b"one " * 200).errors
