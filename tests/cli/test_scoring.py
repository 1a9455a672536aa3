"""`evaluate` and `compare` on files and runs, and bad input explained.

That scores are sacreBLEU's is `tests/evaluation`'s.
"""

import gzip
import json
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from flaxformer_mt.cli.actions import scoring
from flaxformer_mt.data.prepare.manifest import MANIFEST, VALID_TEXT
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.evaluation import comet
from flaxformer_mt.rundir.layout import RunDirectory
from tests.decoding.runs import make_run
from tests.evaluation.noise import grammar_text, noisy

SIZE = 40
SOURCES, REFERENCES = grammar_text(SIZE)
FAST = ["--resamples", 50]


@pytest.fixture
def files(tmp_path):
    """Sources, references and two systems' outputs."""
    texts = {
        "test.en": SOURCES,
        "test.de": REFERENCES,
        "one.txt": noisy(REFERENCES, 0.3, 1),
        "two.txt": noisy(REFERENCES, 0.1, 2),
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


@pytest.fixture
def trained(files):
    return make_run(files / "run", {5: 1.0})


def lines(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def test_another_system_s_output_is_scored(run, files):
    done = run(
        *("evaluate", "--hypotheses", files / "one.txt", "--ref", files / "test.de", *FAST),
        *("--src", files / "test.en", "--output", files / "scores", "--name", "other"),
    )
    assert done.status == 0, done.errors
    assert done.output.startswith("other: sacrebleu_13a ")
    assert "95% interval" in done.output and "tok:moses-de" in done.output
    recorded = json.loads((files / "scores" / "other.json").read_text())
    assert f"sacrebleu_13a {recorded['metrics']['sacrebleu_13a']:.2f}" in done.output
    assert (files / "scores" / "other.html").exists()
    assert (files / "scores" / "other.src.txt").read_text() == (files / "test.en").read_text()


CHINESE = ["我喜欢音乐。", "今天天气很好,我们去公园。", "NBA 2024 年的比赛"]
THAI = ["ฉันชอบดนตรีมาก", "วันนี้อากาศดีมากเราไปสวน", "การแข่งขันปี 2024"]


@pytest.mark.parametrize(
    ("text", "references", "pair", "tokenizer"),
    [
        (CHINESE, "r.zh", "en-zh", None),
        (CHINESE, "zh_CN/test.zh-CN.txt", "en-zh", None),
        (CHINESE, "zho_Hans.devtest", "en-zh", None),
        (CHINESE, "r.yue", "en-yue", "char"),
        (THAI, "ref.th.gz", "en-th", "char"),
        (THAI, "r.my", "en-my", "char"),
    ],
)
def test_bleu_is_sacrebleu_s_for_the_ending_s_language(
    run, tmp_path, text, references, pair, tokenizer
):
    """`sacrebleu -l PAIR`; by characters where its 13a would find no words."""
    (tmp_path / references).parent.mkdir(exist_ok=True)
    content = "".join(f"{line}\n" for line in text).encode()
    content = gzip.compress(content) if references.endswith("gz") else content
    (tmp_path / references).write_bytes(content)
    hypotheses = [text[0], text[1][:9], text[2][2:]]
    (tmp_path / "hyp").write_text("".join(f"{line}\n" for line in hypotheses))
    done = run(
        *("evaluate", "--hypotheses", tmp_path / "hyp", "--ref", tmp_path / references),
        *("--resamples", 0, "--no-ter", "--json"),
    )
    scores = json.loads(done.output)["hyp"]
    metric = BLEU(trg_lang=pair[3:], tokenize=tokenizer)
    score = metric.corpus_score(hypotheses, [text])
    name = f"sacrebleu_{tokenizer or 'zh'}"
    assert scores["metrics"][name] == pytest.approx(score.score, abs=1e-12)
    assert scores["signatures"][name] == str(metric.get_signature())
    assert f"BLEU is tokenised by '{tokenizer or 'zh'}'" in done.errors


def test_the_ending_of_hypotheses_and_a_given_language_choose_alike(run, tmp_path):
    for name in ("h.zh", "ref.txt", "h.txt"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in CHINESE))
    fast = ["--resamples", 0, "--no-ter", "--ref", tmp_path / "ref.txt"]
    by_ending = run("evaluate", "--hypotheses", tmp_path / "h.zh", *fast)
    two = run("evaluate", "--hypotheses", tmp_path / "h.txt", *fast, "--tgt-lang", "zh_CN")
    three = run("evaluate", "--hypotheses", tmp_path / "h.zh", *fast, "--tokenize", "13a")
    assert "sacrebleu_zh 100.00" in by_ending.output and "sacrebleu_zh 100.00" in two.output
    assert "which finds no words in text without blanks such as zh" in three.errors
    systems = [f"a={tmp_path / 'h.txt'}", f"b={tmp_path / 'h.zh'}"]
    compared = run("compare", *systems, *fast[2:], "--resamples", 10, "--trials", 10)
    assert "tok:zh" in compared.output


@pytest.mark.parametrize("code", ["de_DE", "de-AT", "deu_Latn", "deu"])
def test_a_region_has_its_language_s_rules(run, files, code):
    (files / f"test.{code}").write_text((files / "test.de").read_text())
    fast = ["--resamples", 0, "--no-ter", "--json"]
    system = ["--hypotheses", files / "one.txt", "--ref"]
    by_name, by_flag, plain = (
        json.loads(run("evaluate", *system, *language, *fast).output)["one"]
        for language in (
            [files / f"test.{code}"],
            [files / "test.en", "--tgt-lang", code],
            [files / "test.de"],
        )
    )
    assert by_name["metrics"] == plain["metrics"]
    assert by_name["signatures"]["bleu_paper"] == plain["signatures"]["bleu_paper"]
    assert "compounds:atat" in by_flag["signatures"]["bleu_paper"]


def test_a_folder_in_an_output_s_place_is_told_before_translating(run, files, trained, monkeypatch):
    (files / "scores" / "x.json").mkdir(parents=True)
    monkeypatch.setattr(Translator, "load", lambda *_, **__: pytest.fail("the model is read"))
    done = run(
        *("evaluate", "--workdir", trained.path, "--src", files / "test.en", "--name", "x"),
        *("--ref", files / "test.de", "--output", files / "scores"),
    )
    assert done.status == 1 and "x.json: cannot be written: Is a directory" in done.last


def test_a_run_scores_by_the_tokenisation_that_it_records(run, files):
    chinese, characters = make_run(files / "chinese", {5: 1.0}), make_run(files / "kept", {5: 1.0})
    for run_directory, change in (
        (chinese, {"tgt_lang": "zh"}),
        (characters, {"bleu_tokenizer": "char"}),
    ):
        content = json.loads(run_directory.config_file.read_text())
        content["config"]["data"] |= change
        run_directory.config_file.write_text(json.dumps(content))
    text = ["--src", files / "test.en", "--ref", files / "test.de", "--name", "x"]
    fast = ["--beam-size", 1, "--resamples", 0, "--no-ter", "--examples", 0]
    done = run("evaluate", "--workdir", chinese.path, *text, *fast, status=0)
    assert "tok:zh" in done.output
    done = run("evaluate", "--workdir", characters.path, *text, *fast, "--json")
    assert "sacrebleu_char" in json.loads(done.output)["x"]["metrics"]


def test_files_of_other_lengths_are_named(run, files, trained):
    (files / "short.txt").write_text("ein Satz\n")
    short, ref = files / "short.txt", files / "test.de"
    said = f"short.txt has 1 lines, {ref} has {SIZE}: they must match line by line"
    for call in (
        ("evaluate", "--hypotheses", short, "--ref", ref),
        ("evaluate", "--hypotheses", ref, "--ref", ref, "--src", short),
        ("evaluate", "--workdir", trained.path, "--src", short, "--ref", ref),
        ("compare", short, files / "one.txt", "--ref", ref),
        ("compare", files / "one.txt", files / "two.txt", "--ref", ref, "--src", short),
    ):
        done = run(*call)
        assert done.status == 2 and said in done.last, (call, done.errors)


def test_json_and_options_and_nothing_left_behind(run, files):
    before = sorted(files.iterdir())
    done = run(
        *("evaluate", "--hypotheses", files / "one.txt", "--ref", files / "test.de", "--json"),
        *("--tokenize", "intl", "--lowercase", "--no-ter", "--resamples", 0),
    )
    scores = json.loads(done.output)["one"]
    assert set(scores["metrics"]) == {"sacrebleu_intl_lc", "chrf"}
    assert "intervals" not in scores and sorted(files.iterdir()) == before


def test_a_recorded_language_goes_before_names_of_folders(run, files):
    text = ["--ref", files / "test.de", "--output", files / "en-zh", "--resamples", 0, "--no-ter"]
    run("evaluate", "--hypotheses", files / "one.txt", "--name", "a", *text, status=0)
    system = files / "en-zh" / "a.json"
    done = run("compare", system, files / "two.txt", "--resamples", 10, "--trials", 10, status=0)
    assert "tok:moses-de" in done.output and "tok:zh" not in done.output


def test_a_run_is_evaluated_and_compared_with_a_file(run, files, trained):
    sides = ["--src", files / "test.en", "--ref", files / "test.de"]
    done = run("evaluate", "--workdir", trained, *sides, "--beam-size", 1, "--examples", 3, *FAST)
    assert done.status == 0, done.errors
    assert sorted(path.name for path in trained.evaluation.iterdir()) == [
        *("test.html", "test.hyp.txt", "test.json", "test.ref.txt", "test.src.txt")
    ]
    evaluated = json.loads((trained.evaluation / "test.json").read_text())
    assert evaluated["weights"] == "best, step 5" and "bleu_paper" in evaluated["metrics"]
    assert evaluated["by_source_length"][0]["sentences"] > 0

    done = run(
        *("compare", trained, f"B={files / 'one.txt'}", files / "two.txt", *FAST),
        *("--trials", 50, "--json", "--output", files / "compared.json"),
    )
    assert done.status == 0, done.errors
    content = json.loads(done.output)
    assert content == json.loads((files / "compared.json").read_text())
    assert [system["name"] for system in content["systems"]] == ["run", "B", "two.txt"]
    assert content["systems"][0]["metrics"] == evaluated["metrics"]


def test_a_run_is_evaluated_on_several_references(run, files, trained):
    others = noisy(REFERENCES, 0.2, 4)
    (files / "other.de").write_text("".join(f"{line}\n" for line in others))
    sides = ["--src", files / "test.en", "--ref", files / "test.de", files / "other.de"]
    run("evaluate", "--workdir", trained, *sides, "--beam-size", 1, *FAST, status=0)
    assert lines(trained.evaluation / "test.ref2.txt") == others
    evaluated = json.loads((trained.evaluation / "test.json").read_text())
    assert evaluated["signatures"]["ter"].startswith("nrefs:2|")
    outputs = lines(trained.evaluation / "test.hyp.txt")
    bleu = BLEU().corpus_score(outputs, [REFERENCES, others])
    assert evaluated["metrics"]["sacrebleu_13a"] == bleu.score
    few = ["--resamples", 10, "--trials", 10]
    done = run("compare", trained, files / "one.txt", *few, status=0)  # with the run's references
    assert done.output.count("nrefs:2|") == 3
    done = run("compare", trained, files / "one.txt", *few, *sides[2:4])
    assert done.status == 2 and "run: was evaluated on 2 references, not 1" in done.last


def test_files_by_no_name_take_the_place_of_a_test_set_that_the_run_has(run, files, trained):
    sides = ["--src", files / "test.en", "--ref", files / "test.de"]
    (files / "valid.en").write_text("x\n")
    for texts in (["--name", "valid", *sides], ["--src", files / "valid.en", *sides[2:]]):
        done = run("evaluate", "--workdir", trained, *texts)
        assert done.status == 2 and "'valid' is already a test set of this run" in done.errors


def write_validation_text(run: RunDirectory, **manifest: object) -> None:
    """Writes it as `prepare` does; each line contains a line separator (U+0085)."""
    run.data.mkdir(exist_ok=True)
    for name, sentences in zip(VALID_TEXT, (SOURCES, REFERENCES), strict=True):
        (run.data / name).write_text("".join(f"{sentence}\u0085\n" for sentence in sentences))
    content = dict.fromkeys(("settings", "inputs", "vocabulary", "store")) | {"corpora": []}
    (run.data / MANIFEST).write_text(json.dumps({**content, "format": 1, **manifest}))


def test_the_validation_text_is_the_run_s_own(run, files, trained):
    """A copy of the run on another machine is evaluated on it."""
    write_validation_text(trained)
    call = ("evaluate", "--workdir", trained, "--beam-size", 2, "--no-ter", *FAST)
    run(*call, "--set", "valid", status=0)
    sources = (trained.evaluation / "valid.src.txt").read_bytes()
    assert sources == (trained.data / VALID_TEXT[0]).read_bytes()


def test_validation_text_that_is_missing_or_another_is_named(run, files, trained):
    call = ("evaluate", "--workdir", trained, "--beam-size", 2, "--no-ter", *FAST)
    done = run(*call, "--set", "valid")
    assert done.status == 2 and f"{trained}: has no validation text: give files" in done.last
    write_validation_text(trained, valid_text={})
    done = run(*call, "--set", "valid")
    assert done.status == 2 and "does not match manifest.json: restore it" in done.last


def test_a_test_set_that_the_run_has_not_is_named(run, files, trained):
    write_validation_text(trained, valid_text={})
    call = ("evaluate", "--workdir", trained, "--beam-size", 2, "--no-ter", *FAST)
    done = run(*call, "--set", "test")
    assert done.status == 2 and "has no test set 'test'; it has valid" in done.last
    done = run(*call)
    assert done.status == 2 and "has no data.test: evaluate 'valid', or give" in done.last


def test_own_files_may_have_blank_lines_and_longer_ones_than_the_model_takes(run, files, trained):
    for name in ("test.en", "test.de"):
        with open(files / name, "a") as file:
            file.write("\n" + "the big dog " * 20 + "\n")
    sides = ("--src", files / "test.en", "--ref", files / "test.de")
    run("evaluate", "--workdir", trained, "--beam-size", 2, "--no-ter", *FAST, *sides, status=0)
    recorded = json.loads((trained.evaluation / "test.json").read_text())
    assert recorded["sentences"] == SIZE + 2
    assert (recorded["beam_size"], recorded["length_penalty"]) == (2, 0.6)
    assert recorded["seconds"] > 0
    translator = Translator.load(trained.path).with_config(beam_size=2)
    outputs = translator.translate(lines(files / "test.en"))
    assert lines(trained.evaluation / "test.hyp.txt") == [output.text for output in outputs]
    assert recorded["split_lines"] == [n for n, output in enumerate(outputs, 1) if output.split]
    assert SIZE + 2 in recorded["split_lines"]


NAMED = ["--testset", "wmt14/full", "--json", *FAST]


@pytest.fixture
def loaded(monkeypatch):
    """The names of test sets that were read, in order; each has one reference too many."""
    names: list[str] = []

    def load(name: str, langpair: str) -> tuple[list[str], list[str], int]:
        names.append(name)
        return SOURCES, REFERENCES, 1

    monkeypatch.setattr(scoring, "load_testset", load)
    return names


def test_another_system_s_output_is_scored_on_a_test_set_by_name(run, files, loaded):
    call = ("evaluate", "--hypotheses", files / "one.txt", *NAMED, "--langpair", "en-de")
    done = run(*call)
    assert "1 more reference not used" in done.errors
    assert "bleu_paper" in json.loads(done.output)["one"]["metrics"]


def test_a_run_is_evaluated_on_a_test_set_by_name(run, trained, loaded):
    call = ("evaluate", "--workdir", trained, "--beam-size", 1, *NAMED, "--langpair", "en-de")
    done = run(*call)
    assert list(json.loads(done.output)) == ["wmt14_full.en-de"]
    # It is read, and told of, once.
    assert loaded == ["wmt14/full"] and done.errors.count("1 more reference") == 1


def test_a_test_set_of_other_languages_is_not_scored_by_the_run_s_rules(run, trained, loaded):
    call = ("evaluate", "--workdir", trained, "--beam-size", 1, *NAMED, "--langpair", "fr-en")
    done = run(*call)
    assert done.status == 2 and "--langpair fr-en: this run translates en to de" in done.last
    done = run(*call, "--tgt-lang", "en")
    assert "tok:moses-en" in json.loads(done.output)["wmt14_full.fr-en"]["signatures"]["bleu_paper"]


def test_sacrebleus_options_of_chrf_and_ter(run, files):
    words = [
        "--chrf-word-order",
        2,
        "--ter-options",
        "normalized",
        "case_sensitive",
        "--resamples",
        0,
    ]
    given = ["--hypotheses", files / "one.txt", "--ref", files / "test.de"]
    scores = json.loads(run("evaluate", *given, *words, "--json").output)["one"]
    hypotheses, references = lines(files / "one.txt"), [lines(files / "test.de")]
    theirs = {
        "chrf++": CHRF(word_order=2),
        "ter": TER(normalized=True, case_sensitive=True),
    }
    for name, metric in theirs.items():
        expected = metric.corpus_score(hypotheses, references).score
        assert scores["metrics"][name] == pytest.approx(expected, abs=1e-9)
        assert scores["signatures"][name] == str(metric.get_signature())
    unused = run("evaluate", *given, "--ter-options", "no_punct", "--no-ter")
    assert unused.status == 2 and "has no use with --no-ter" in unused.last


OF_ONE = "evaluate --hypotheses one.txt --ref test.de"


@pytest.mark.parametrize(
    ("call", "status", "message"),
    [
        (f"{OF_ONE} --src bad", 2, "bad:2: is not UTF-8 text"),
        (f"{OF_ONE} --comet", 1, "COMET needs the package unbabel-comet"),
        (f"{OF_ONE} --output one.txt", 1, "one.txt: cannot be written: File exists"),
        ("compare one.txt two.txt --ref test.de --set test", 2, "--set is for run directories"),
        ("compare one.txt two.txt --ref test.de --output no/x", 1, "no/x: cannot be written"),
        ("compare gone.txt two.txt --ref test.de --output no/x", 1, "no/x: cannot be written"),
        ("compare gone.txt two.txt --ref test.de --output .", 1, ": cannot be written: Is a dir"),
        (f"{OF_ONE} --output taken", 1, "one.hyp.txt: cannot be written: Is a directory"),
    ],
)
def test_bad_input_is_explained_in_a_line(run, files, call, status, message, monkeypatch):
    monkeypatch.chdir(files)
    monkeypatch.setattr(comet, "PROGRAM", "no-such-program")
    (files / "bad").write_bytes(b"good\n\xff\n")
    (files / "taken" / "one.hyp.txt").mkdir(parents=True)
    done = run(*call.split())
    assert done.status == status and message in done.last, done.errors
