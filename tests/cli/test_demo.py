"""`demo`: translations, a picture, and how to go on."""

from flaxformer_mt.cli.demo import SENTENCES


def test_examples_are_translated_and_attention_drawn(run, tmp_path):
    done = run("demo", "--workdir", tmp_path / "demo", "--no-serve")
    assert done.status == 0, done.errors
    pairs = [block.split("\n→ ") for block in done.output.strip().split("\n\n")]
    assert [source for source, _ in pairs] == list(SENTENCES)
    assert pairs[0][1].startswith("Wo kann ich")
    assert SENTENCES[0] in (tmp_path / "demo" / "attention.html").read_text()
    assert f"translate --workdir {tmp_path / 'demo'}" in done.errors


def test_text_of_ones_own_is_translated(run, tmp_path):
    done = run("demo", "--workdir", tmp_path / "demo", "--no-serve", "--text", "I am tired.")
    assert done.output == "I am tired.\n→ Ich bin müde.\n\n"


def test_empty_text_is_refused(run, tmp_path):
    done = run("demo", "--workdir", tmp_path / "demo", "--text", " ")
    assert done.status == 2 and done.last.endswith("--text is empty: give a sentence")
    assert not (tmp_path / "demo").exists()


def test_without_a_server_it_says_how_to_get_one(run, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = run("demo", "--workdir", tmp_path / "demo", "--text", "Good morning.")
    assert done.status == 0 and "is not shown: " in done.last and "serve" in done.last
