"""`--keep` and `--copy-unknown` of the commands: forms, resuming, scores, and what is said."""

import json

import pytest

from tests.decoding.runs import LINES

KEPT = "the cat {name} sees https://example.org/a?b=1 ."
TEXT = f"{KEPT}\n1,234.56\n\n🙂\n{LINES[0]}\n"


@pytest.fixture
def translate(run, workdir):
    def call(*arguments, stdin=TEXT):
        return run("translate", "--workdir", workdir, *arguments, stdin=stdin.encode())

    return call


def test_lines_keep_what_must_stay(translate):
    plain, kept = translate(), translate("--keep")
    assert (plain.status, kept.status) == (0, 0)
    first, *others, last = kept.output.splitlines()
    assert first.count("{name}") == first.count("https://example.org/a?b=1") == 1
    assert others == ["1,234.56", "", "🙂"]
    assert last == plain.output.splitlines()[-1]
    assert "{name}" not in plain.output
    assert translate("--keep", "--no-keep").output == plain.output


def test_unknown_words_are_copied(translate):
    done = translate("--copy-unknown", stdin="the Łódź cat sees a dog .\n猫\n")
    first, second = done.output.splitlines()
    assert first.count("Łódź") == 1
    assert second == "猫"


def test_objects_have_alignments_and_tokens_of_what_is_kept(run, workdir, translate, tmp_path):
    form = ("--format", "jsonl", "--n-best", 2, "--alignments", "--tokens")
    done = translate("--keep", *form, stdin=json.dumps({"source": KEPT}) + "\n")
    assert done.status == 0, done.errors
    translated = json.loads(done.output)
    for hypothesis in translated["n_best"]:
        words = hypothesis["translation"].split()
        assert f"2-{words.index('{name}')}" in hypothesis["alignment"].split()

    scored = run(
        *("score", "--workdir", workdir, "--keep", "--format", "jsonl", "--from-tokens"),
        stdin=done.output.encode(),
    )
    assert scored.status == 0, scored.errors
    assert json.loads(scored.output)["scored"]["score"] == pytest.approx(
        translated["score"], abs=1e-4
    )
    assert "encode into other tokens" not in scored.errors


def test_columns_keep_what_must_stay(translate):
    done = translate("--keep", "--format", "tsv", "--append", stdin=f"{KEPT}\tb\n{{x}}\tb\n")
    first, second = done.output.splitlines()
    assert first.startswith(f"{KEPT}\tb\t")
    assert first.count("{name}") == 2
    assert second == "{x}\tb\t{x}"


def test_an_output_is_resumed_with_the_same_settings_only(translate, tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"
    source.write_bytes(TEXT.encode() + b"\xff\n")
    command = ("--input", source, "--output", out, "--window", 3)
    assert translate("--keep", *command).status == 2
    source.write_bytes(TEXT.encode())
    for other in ([], ["--keep", "--copy-unknown"]):
        refused = translate(*other, *command)
        assert refused.status == 2
        assert "decoding." in refused.last
        assert "--restart" in refused.last
    done = translate("--keep", *command)
    assert "resuming after line 3" in done.errors
    assert out.read_text() == translate("--keep").output


def test_contradictions_name_the_line(translate):
    unknown = "a dog\nthe жук sees\n"
    done = translate("--copy-unknown", "--forbid", "жук", stdin=unknown)
    assert done.status == 2
    assert "input:2: the forbidden phrase 'жук' is a word of the source that is copied" in done.last


def test_evaluate_says_what_it_keeps(run, workdir, tmp_path):
    (tmp_path / "src").write_text(f"{KEPT}\n")
    (tmp_path / "ref").write_text("{name}\n")
    command = ("evaluate", "--workdir", workdir, "--src", tmp_path / "src", "--ref")
    command += (tmp_path / "ref", "--output", tmp_path / "scores")
    plain = run(*command, "--name", "plain", status=0)
    kept = run(*command, "--name", "kept", "--keep", "--copy-unknown", status=0)
    assert "kept as they are" not in plain.errors
    said = "URLs, addresses, placeholders and emoji (--keep) and unknown words (--copy-unknown)"
    assert f"kept as they are in the sources: {said}" in kept.errors
    for name, keeps in (("plain", False), ("kept", True)):
        scores = json.loads((tmp_path / "scores" / f"{name}.json").read_text())
        assert scores["keep"] == scores["copy_unknown"] == keeps


def test_documents_keep_what_must_stay(translate, tmp_path):
    (tmp_path / "in.html").write_text("<p>the <b>cat</b> sees <i>{name}</i> at https://e.x/?a=1 .")
    done = translate("--keep", "--format", "html", "--input", tmp_path / "in.html")
    assert done.status == 0, done.errors
    assert "<i>{name}</i>" in done.output
    assert done.output.count("https://e.x/?a=1") == 1
