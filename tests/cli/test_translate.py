"""`translate` and `score` on a tiny run: forms, options, and bad input with file and line."""

import functools
import gzip
import json
import math
import os
import re
import shutil
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from flaxformer_mt.bulk.reading import Lines
from flaxformer_mt.bulk.stream import shard_ends
from flaxformer_mt.cli import streams
from flaxformer_mt.serving.settings import ServedModel
from tests.decoding.runs import LINES, PAIRS, make_run

TEXT = "".join(f"{line}\n" for line in LINES).encode()
LONG = b" ".join(line.encode() for line in LINES)


@pytest.fixture
def translate(run, workdir):
    return functools.partial(run, "translate", "--workdir", workdir)


@pytest.fixture
def score(run, workdir):
    return functools.partial(run, "score", "--workdir", workdir)


def test_all_forms_say_the_same(translate, tmp_path):
    plain = translate(stdin=TEXT)
    assert plain.status == 0, plain.errors
    expected = plain.output.splitlines()
    assert len(expected) == 4 and "the weights 'best, step 2'" in plain.last
    (tmp_path / "in.gz").write_bytes(gzip.compress(TEXT))
    assert translate("--input", tmp_path / "in.gz").output == plain.output
    columns = "".join(f"{n}\t{line}\n" for n, line in enumerate(LINES)).encode()
    options = ("--format", "tsv", "--column", 2, "--append")
    tsv = translate(*options, stdin=columns)
    assert tsv.output.splitlines() == [
        f"{n}\t{line}\t{text}" for n, (line, text) in enumerate(zip(LINES, expected, strict=True))
    ]
    objects = "".join(json.dumps({"t": {"en": line}}) + "\n" for line in LINES).encode()
    options = ("--format", "jsonl", "--key", "t.en", "--n-best", 2, "--alignments", "--tokens")
    jsonl = translate(*options, stdin=objects)
    found = [json.loads(line) for line in jsonl.output.splitlines()]
    assert [each["translation"] for each in found] == expected
    for each, line in zip(found, LINES, strict=True):
        assert each["t"] == {"en": line}
        first, second = each["n_best"]
        assert first["score"] == each["score"] >= second["score"]
        for said in (first, second):
            links = [tuple(map(int, link.split("-"))) for link in said["alignment"].split()]
            assert len(links) == len(said["translation"].split())
            assert all(0 <= src < len(line.split()) for src, _ in links)


def test_score_is_what_translate_reported(translate, score, tmp_path):
    """Of tokens, whatever the lines; of texts where they encode into these tokens."""
    lines = TEXT + LONG + b"\n\n"
    options = ("--output-format", "jsonl", "--tokens", "--scores", "--translation-key", "de")
    made = translate(*options, stdin=lines).output.encode()
    made = made.replace(b'"de": "', b'"de": "das alte ', 1)
    options = ("--format", "jsonl", "--from-tokens", "--overlong", "split", "--per-token")
    options += ("--translation-key", "de")
    done = score(*options, stdin=made)
    assert done.status == 0, done.errors
    objects = [json.loads(line) for line in done.output.splitlines()]
    assert len(objects) == 6
    for each in objects:
        assert each["scored"]["score"] == pytest.approx(each["de_score"], abs=1e-5)
        assert each["scored"]["log_prob"] == pytest.approx(each["de_log_prob"], rel=1e-5, abs=1e-5)
        assert sum(each["scored"]["token_log_probs"]) == pytest.approx(
            each["scored"]["log_prob"], abs=1e-4
        )
    tokens = sum(len(each["scored"]["token_log_probs"]) for each in objects)
    mean = sum(each["scored"]["log_prob"] for each in objects) / tokens
    assert (
        f"6 pairs, {tokens} target tokens (end marks included): {mean:.4f} nats per token, "
        f"perplexity {math.exp(-mean):.4f}"
    ) in done.errors
    assert "1 texts encode into other tokens than the scored ones" in done.errors

    (tmp_path / "src").write_bytes(TEXT)
    (tmp_path / "tgt").write_text("".join(f"{target}\n" for _, target in PAIRS))
    files = ("--src", tmp_path / "src", "--tgt", tmp_path / "tgt")
    two = score(*files, "--output", tmp_path / "out")
    assert two.status == 0, two.errors
    numbers = (tmp_path / "out").read_text().splitlines()
    rows = "".join(f"{source}\t{target}\n" for source, target in PAIRS).encode()
    tsv = score(stdin=rows)
    assert tsv.output.splitlines() == [
        f"{source}\t{target}\t{number}"
        for (source, target), number in zip(PAIRS, numbers, strict=True)
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


def test_an_unfinished_output_is_for_the_same_command(translate, tmp_path):
    """Stopped by a bad line, which is mended, and gone on with: as if it had never been bad."""
    place = tmp_path / "place"
    place.mkdir()
    source, out = place / "in", place / "out"
    good = TEXT * 3
    source.write_bytes(good[: len(TEXT) * 2] + b"\xff\n")
    command = ("--input", source, "--output", out, "--window", 3, "--scores")
    done = translate(*command)
    assert done.status == 2 and f"{source}:9: is not UTF-8" in done.last
    assert f"not finished; the same command resumes {out}.part" in done.errors
    assert not out.exists()
    source.write_bytes(good)
    for changed, name in (
        (("--weights", "1"), "weights"),
        (("--beam-size", "2"), "decoding.beam_size 4, but now it is 2"),
        (("--alignments",), "form.shown"),
    ):
        done = translate(*command, *changed)
        assert done.status == 2 and f"was written with {name}" in done.last
        assert "--restart" in done.last
    done = translate(*command)
    assert done.status == 0, done.errors
    assert f"{out}.part: resuming after line 6" in done.errors
    assert out.read_text() == translate("--window", 3, "--scores", stdin=good).output
    assert sorted(path.name for path in place.iterdir()) == ["in", "out"]


@pytest.mark.parametrize("command", ["translate", "score"])
def test_shards_are_joined_to_what_one_call_writes(run, workdir, tmp_path, command):
    """Also one that a bad line has stopped; a draw depends on the number of its line."""
    source, out = tmp_path / "in", tmp_path / "out"
    columns = "".join(f"{source}\t{target}\n" for source, target in PAIRS).encode()
    good = 3 * (TEXT if command == "translate" else columns)
    more = ("--window", 3) + (("--sample", "--seed", 5) if command == "translate" else ())
    source.write_bytes(good)
    whole = run(command, "--workdir", workdir, *more, stdin=good)
    assert whole.status == 0, whole.errors
    call = (command, "--workdir", workdir, "--input", source, "--output", out, *more)
    for index in (1, 0):
        assert run(*call, "--shard", f"{index}/3").status == 0
    done = run(*call, "--join", 3)
    assert done.status == 2 and f"{out}.shard-2-of-3: missing (2 of 6 files)" in done.last
    source.write_bytes(good.replace(b"\n", b"\xff\n", 10).replace(b"\xff\n", b"\n", 9))
    done = run(*call, "--shard", "2/3")
    assert done.status == 2 and f"{source}:10: is not UTF-8" in done.last
    source.write_bytes(good)
    done = run(*call, "--shard", "2/3")
    assert done.status == 0 and "resuming after line 9" in done.errors
    assert run(*call, "--join", 3).last == f"{out}: joined from 3 shards"
    assert out.read_text() == whole.output
    shards = {path: path.read_bytes() for path in tmp_path.glob("out.shard-*")}
    assert len(shards) == 3
    for path in (out, *shards):
        path.unlink()
    source.write_bytes(good.replace(b"\n", b"\xff\n", 10).replace(b"\xff\n", b"\n", 9))
    assert run(*call, "--output-shards", 3).status == 2
    source.write_bytes(good)
    done = run(*call, "--output-shards", 2)
    assert done.status == 2 and "out.shards.json: was written with shards '3 of 12" in done.last
    done = run(*call, "--output-shards", 3)
    assert done.status == 0 and "resuming after line 9" in done.errors
    assert {path: path.read_bytes() for path in tmp_path.glob("out.shard*")} == shards
    assert run(*call, "--join", 3).status == 0 and out.read_text() == whole.output
    done = run(*call, "--shard", "0/9")
    assert "--shard 0/9: nothing to do" in done.errors
    assert (tmp_path / "out.shard-0-of-9").read_bytes() == b""
    for wrong in ("3/3", "1", "x/2"):
        assert f"--shard {wrong}: must be I/N" in run(*call, "--shard", wrong).last
    os.mkfifo(pipe := tmp_path / "pipe")
    for flag in (("--shard", "0/2"), ("--output-shards", 2)):
        for given, what in ((), "standard input"), (("--input", pipe), pipe):
            done = run(*call[:3], *given, "--output", out, *flag)
            assert f"{flag[0]} reads the input twice: name a file instead of {what}" in done.last
    assert "give only one" in run(*call, "--output-shards", 2, "--join", 2).last


def test_only_shards_of_one_input_and_one_command_are_joined(translate, tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"

    def made(index, *flags, text=TEXT):
        source.write_bytes(text)
        shard = ("--shard", f"{index}/2", *flags)
        assert translate("--input", source, "--output", out, *shard).status == 0

    made(0, "--window", 1)
    other = LINES[3].encode() + b"\n" + TEXT.partition(b"\n")[2]
    for flags, text, why in (
        (("--window", 3), TEXT, "has window 3, but after {}.shard-0-of-2 it must be 1"),
        (("--window", 1, "--beam-size", 2), TEXT, "has decoding.beam_size 2, but after"),
        (("--window", 1), TEXT * 2, "has start [4, "),
        (("--window", 1), TEXT.replace(b"\n", b" x\n"), "has start [2, "),
    ):
        made(1, *flags, text=text)
        done = translate("--output", out, "--join", 2)
        assert done.status == 2 and f"{out}.shard-1-of-2: {why.format(out)}" in done.last
        assert not out.exists()
    made(1, "--window", 1, text=other)  # the first line has been mended
    assert translate("--output", out, "--join", 2).status == 0
    assert out.read_text() == translate("--window", 1, stdin=TEXT).output
    (record := tmp_path / "out.record-1-of-2.json").unlink()
    done = translate("--output", out, "--join", 2)
    assert done.status == 2 and f"{record}: missing (1 of 4 files)" in done.last


@pytest.mark.parametrize("command", ["translate", "score"])
def test_shards_that_have_changed_are_not_joined(run, workdir, tmp_path, command):
    """Cut, emptied, swapped or mended by hand; one that is made again is joined."""
    source, out = tmp_path / "in", tmp_path / "out"
    columns = "".join(f"{source}\t{target}\n" for source, target in PAIRS).encode()
    source.write_bytes(3 * (TEXT if command == "translate" else columns))
    call = (command, "--workdir", workdir, "--input", source, "--output", out, "--window", 4)
    assert run(*call, "--output-shards", 3).status == 0
    shards = [tmp_path / f"out.shard-{number}-of-3" for number in range(3)]
    whole = [shard.read_bytes() for shard in shards]
    same_size = b"x" + whole[1][1:]
    for number, content, why in (
        (1, whole[1][:20], "bytes 20, but out.record-1-of-3.json says"),
        (2, b"", "bytes 0, but out.record-2-of-3.json says"),
        (0, whole[0] + whole[1], "bytes "),
        (1, same_size, "sha256 "),
        (1, same_size.replace(b"\n", b" "), "lines 0, but out.record-1-of-3.json says 4"),
    ):
        shards[number].write_bytes(content)
        done = run(*call, "--join", 3)
        assert done.status == 2, done.errors
        assert f"{shards[number]}: has changed since it was made: {why}" in done.last
        assert not out.exists()
        shards[number].write_bytes(whole[number])
    shards[1].unlink()
    os.mkfifo(shards[1])
    assert "cannot be read: not a regular file" in run(*call, "--join", 3).last
    shards[1].unlink()
    assert run(*call, "--shard", "1/3").status == 0
    assert run(*call, "--join", 3).status == 0 and out.read_bytes() == b"".join(whole)


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
            found = shard_ends(*arguments, **options)
            source.write_bytes(text)
            return found

        source.write_bytes(TEXT)
        monkeypatch.setattr(streams, "shard_ends", counted)
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


def test_phrases_that_must_not_occur(translate):
    """On the command line for all lines, in JSON for one."""
    command = ("--format", "jsonl", "--forbid-key", "not.said")

    def translated(own, *options):
        objects = [
            {"source": line, "not": {"said": each}} for line, each in zip(LINES, own, strict=True)
        ]
        text = "".join(json.dumps(each) + "\n" for each in objects).encode()
        done = translate(*command, *options, stdin=text)
        assert done.status == 0, done.errors
        return [json.loads(line)["translation"] for line in done.output.splitlines()]

    free = translated([[]] * 4)
    words = [text.split()[0] for text in free]
    shared = translated([[]] * 4, "--forbid", words[0], "x y")
    assert not any(words[0] in text.split() for text in shared)
    own = translated([[], [words[1]], [], []])
    assert words[1] not in own[1].split() and own[:1] + own[2:] == free[:1] + free[2:]
    bad = translate(*command, stdin=b'{"source": "a", "not": {"said": "x"}}\n')
    assert bad.status == 2 and "input:1: has no list of texts under 'not.said'" in bad.last


def test_constraints_that_the_search_cannot_have_are_refused_before_a_line(translate, tmp_path):
    (tmp_path / "terms.tsv").write_text("dog\thund\n")
    for search, name in (
        (("--sample",), "sampling"),
        (("--diverse-groups", 2), "decoding.diverse_groups"),
        (("--no-repeat-ngram", 3), "decoding.no_repeat_ngram"),
    ):
        for given in (("--constraints-key", "must"), ("--terminology", tmp_path / "terms.tsv")):
            done = translate("--format", "jsonl", *given, *search, stdin=b'{"source": "a"}\n')
            assert (done.status, done.output) == (2, "")
            assert f"constraints need plain beam search and can't have {name}" in done.last


def test_constraints_and_terms(translate, tmp_path):
    """A call with other terms does not go on with an output."""
    terms, source, out = (tmp_path / name for name in ("terms.tsv", "in", "out"))
    terms.write_text("big\tdas\ndog\thund\n")
    objects = [{"source": line, "must": ["haus"]} for line in LINES]
    source.write_text("".join(json.dumps(each) + "\n" for each in objects) + "x\n")
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


def test_samples_and_ensembles(translate, tmp_path):
    sample = ("--sample", "--temperature", 2, "--n-best", 2)
    one, two = (translate(*sample, "--window", window, stdin=TEXT) for window in (1, 4096))
    assert one.status == 0
    rows = [line.split("\t") for line in one.output.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2", "3", "3", "4", "4"]
    assert one.output == two.output != translate(*sample, "--seed", 2, stdin=TEXT).output
    done = translate("--ensemble", make_run(tmp_path / "other", {3: 10.0}).path, stdin=TEXT)
    assert done.status == 0 and "'best, step 2 + best, step 3'" in done.last
    done = translate("--dtype", "bfloat16", stdin=TEXT)
    assert done.status == 0 and done.output.count("\n") == TEXT.count(b"\n")


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
    told: list[int] = []

    def server(translator: Any, model: ServedModel, *_: Any, **__: Any) -> SimpleNamespace:
        told.append(model.diverse)
        return SimpleNamespace(model_at_work=model.diverse, run_until_stopped=lambda: None)

    monkeypatch.setattr("flaxformer_mt.serving.server.TranslationServer", server)
    monkeypatch.setattr(os, "_exit", told.append)  # as long as the model's thread is at work
    for folder in (workdir, in_groups):
        assert run("serve", "--workdir", folder, "--port", 0).status == 0
    assert told == [False, True, 0]


def test_a_person_is_asked_for_each_line_and_told_no_rates(translate, monkeypatch):
    monkeypatch.setattr(Lines, "interactive", True)
    done = translate(stdin=b"one\ntwo\n")
    assert done.status == 0 and done.output.count("\n") == 2
    assert done.errors.endswith("type a sentence and press Enter; Ctrl-D quits\n> > > \n")
    assert "standard input:1: too long" in translate(stdin=b"one " * 200).errors
