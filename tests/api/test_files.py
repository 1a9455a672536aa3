"""`fm.translate_file`, `fm.score_file` and `fm.join_shards`, as a program uses them."""

import pickle
import signal

import pytest

import flaxformer_mt as fm
from flaxformer_mt.bulk.loading import Loading
from flaxformer_mt.bulk.output_errors import OutputError
from flaxformer_mt.bulk.scoring import ScoreSettings
from flaxformer_mt.bulk.translating import TranslateSettings
from flaxformer_mt.config import ConfigError
from flaxformer_mt.decoding.options import SearchOptions
from tests.cli.conftest import run_captured
from tests.decoding.runs import LINES, PAIRS, make_run


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "run", {1: 10.0}).path


@pytest.fixture(scope="module")
def translator(workdir):
    return fm.Translator.load(workdir)


@pytest.fixture(scope="module")
def translations(translator):
    return [translation.text for translation in translator.translate(LINES, several="keep")]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def stopped_at(line, monkeypatch):
    """Interrupts translations, as Ctrl-C does, at a line's window."""
    translate_with = fm.Translator.translate_with

    def interrupted(self, lines, *options):
        if line in lines:
            raise KeyboardInterrupt
        return translate_with(self, lines, *options)

    monkeypatch.setattr(fm.Translator, "translate_with", interrupted)


def test_a_file_is_translated(workdir, source, out, translations):
    report = fm.translate_file(workdir, source, out)
    assert out.read_text().splitlines() == translations
    assert (report.lines, report.weights) == (4, "best, step 1")
    assert report.tokens > 0 and report.seconds > 0 and report.compile_seconds is not None
    assert report.describe()[-1].startswith("4 lines, ")


def test_lines_have_the_wishes_of_translate(translator, source, out):
    wanted = {"n_best": 2, "suppress": ["s"], "sampling": fm.Sampling(seed=3)}
    form = fm.Form(write="jsonl", shown=fm.Shown(tokens=True))
    fm.translate_file(translator, source, out, form=form, **wanted)
    records = [fm.Form(read="jsonl").parse(line).value for line in out.read_bytes().splitlines()]
    expected = translator.translate(LINES, **wanted, first=1, several="keep")
    assert [[hypothesis["tokens"] for hypothesis in record["n_best"]] for record in records] == [
        [list(hypothesis.tokens) for hypothesis in line.hypotheses] for line in expected
    ]


def test_an_interrupted_file_is_resumed(workdir, source, out, translations, monkeypatch, capfd):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stopped_at(LINES[2], patch)
        fm.translate_file(workdir, source, out, window=1)
    assert not out.exists()
    assert f"not finished; the same command resumes {out}.part" in capfd.readouterr().err

    with pytest.raises(OutputError, match="was written with form.shown"):
        fm.translate_file(workdir, source, out, window=1, n_best=2)
    report = fm.translate_file(workdir, source, out, window=1)
    assert report.lines == 2
    assert f"{out}.part: resuming after line 2" in capfd.readouterr().err
    assert out.read_text().splitlines() == translations


def test_the_command_resumes_what_a_program_began(workdir, source, out, translations, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stopped_at(LINES[2], patch)
        fm.translate_file(workdir, source, out, window=1)
    files = ("--input", source, "--output", out, "--window", 1)
    done = run_captured("translate", "--workdir", workdir, *files)
    assert done.status == 0 and "resuming after line 2" in done.errors
    assert out.read_text().splitlines() == translations


def test_shards_are_joined(translator, source, out, translations):
    for number in (1, 0):
        fm.translate_file(translator, source, out, window=1, shard=f"{number}/2")
    assert (out.parent / "out.shard-1-of-2").read_text().splitlines() == translations[2:]
    fm.join_shards(out, 2)
    assert out.read_text().splitlines() == translations
    fm.translate_file(translator, source, out, window=1, output_shards=4)
    assert len([*out.parent.glob("out.shard-*-of-4")]) == 4


def test_pairs_are_scored_in_one_file_or_two(translator, tmp_path, out):
    for side, name in enumerate(("src", "tgt")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    (tmp_path / "both").write_text("".join("\t".join(pair) + "\n" for pair in PAIRS))
    counts = fm.score_file(translator, (tmp_path / "src", tmp_path / "tgt"), out).counts
    scores = out.read_text().splitlines()
    assert counts.pairs == 4 and counts.perplexity > 1
    assert fm.score_file(translator, tmp_path / "both", out).counts == counts
    assert out.read_text().splitlines() == [
        "\t".join([*pair, score]) for pair, score in zip(PAIRS, scores, strict=True)
    ]


def test_a_program_keeps_its_signals(translator, source, out):
    handlers = []

    def load():
        handlers.append(signal.getsignal(signal.SIGTERM))
        return translator

    before = signal.getsignal(signal.SIGTERM)
    fm.translate_file(load, source, out)
    assert handlers == [before]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"shard": "2/2"}, ConfigError, "shard 2/2: must be I/N"),
        ({"shard": "0/2", "output_shards": 2}, ConfigError, "give either"),
        ({"output_shards": 0}, ConfigError, "0 shards: must be from 1 to 100,000"),
        ({"shard": "0/2", "output": None}, ConfigError, "shard needs an output file"),
        ({"shard": "0/2", "input": None}, ConfigError, "reads the input twice: .* standard input"),
        ({"window": 0}, ConfigError, "window = 0 must be at least 1"),
        ({"engine": "slurm"}, ValueError, "engine = 'slurm': must be 'local', 'ray' or Ray"),
        ({"engine": "ray"}, ConfigError, "a Translator belongs to its process"),
        ({"first": 3}, TypeError, "unexpected keyword argument 'first'"),
        ({"n_best": 9}, ValueError, "n_best = 9 must be 1 to beam_size = 4"),
        ({"output": ""}, OutputError, "name is empty"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(
    translator, source, out, arguments, error, message
):
    call = {"input": source, "output": out, **arguments}
    with pytest.raises(error, match=message):
        fm.translate_file(translator, **call)
    assert not [*out.parent.glob("out*")]


def test_pairs_and_their_form_go_together(translator, source, out):
    with pytest.raises(ConfigError, match="two files need 'files'"):
        fm.score_file(translator, (source, source), out, form=fm.PairForm(name="tsv"))
    with pytest.raises(ConfigError, match="two files need 'files'"):
        fm.score_file(translator, source, out, form=fm.PairForm(name="files"))
    with pytest.raises(ValueError, match="from tsv you can write tsv, text or moses, not jsonl"):
        fm.Form(read="tsv", write="jsonl")
    with pytest.raises(ValueError, match="chips = 0 must be at least 1"):
        fm.Ray(chips=0)


def test_what_a_worker_needs_can_be_sent_to_it(workdir):
    search = SearchOptions(sampling=fm.Sampling(), terminology=fm.Terminology.of({"dog": "Hund"}))
    for task in (TranslateSettings(search=search), ScoreSettings(form=fm.PairForm(name="tsv"))):
        loading = Loading(
            task=task, load=fm.Translator.load, window=3, is_continued=True, is_worker=True
        )
        assert pickle.loads(pickle.dumps(loading)).task.identity() == task.identity()
