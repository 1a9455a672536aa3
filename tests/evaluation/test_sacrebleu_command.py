"""`evaluate` and `compare` beside the command that comes with sacreBLEU, digit by digit."""

import io
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import sentencepiece as spm
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.tokenizers import tokenizer_spm

from flaxformer_mt.evaluation import OF_PIECES, bleu_tokenizers, significance
from flaxformer_mt.evaluation.bleu_tokenizers import model_file, sacrebleu_with
from flaxformer_mt.evaluation.metrics import Bleu, Chrf, Metric, ScoringError, Ter, measure
from flaxformer_mt.evaluation.paper_protocol import PaperBleu
from flaxformer_mt.evaluation.references import References
from flaxformer_mt.evaluation.scoring import Scoring, assess
from tests.cli.conftest import run_captured
from tests.evaluation.noise import grammar_text, noisy

_, FIRST = grammar_text(60)
SECOND, THIRD = noisy(FIRST, 0.2, 7), noisy(FIRST, 0.3, 8)
ONE, TWO = noisy(FIRST, 0.3, 1), noisy(FIRST, 0.26, 5)
GAPS = [None if line % 3 == 1 else text for line, text in enumerate(SECOND)]
NAMES = {"BLEU": "sacrebleu_13a", "chrF2": "chrf", "TER": "ter"}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    texts = {"a.de": FIRST, "b.de": SECOND, "c.de": THIRD, "one": ONE, "two": TWO}
    texts["gaps.de"] = [text or "" for text in GAPS]
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def theirs(*words: str) -> str:
    """What sacreBLEU's command writes, with ten decimals."""
    command = [sys.executable, "-m", "sacrebleu", *words, "--quiet", "--no-color", "-w", "10"]
    command += ["--metrics", "bleu", "chrf", "ter"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def ours(*words: str) -> Any:
    done = run_captured(*words, "--json")
    assert done.status == 0, done.errors
    return json.loads(done.output)


@pytest.mark.parametrize("references", ["a.de b.de", "b.de a.de c.de", "a.de gaps.de"])
def test_several_references_score_as_in_the_command(folder, references):
    """Blank lines are references without words to both."""
    scores = ours(
        "evaluate", "--hypotheses", "one", "--resamples", "0", "--ref", *references.split()
    )
    for expected in json.loads(theirs(*references.split(), "-i", "one")):
        name = NAMES[expected["name"]]
        assert scores["one"]["metrics"][name] == pytest.approx(expected["score"], abs=1e-9)
        assert scores["one"]["signatures"][name] == expected["signature"]
        assert expected["signature"].startswith(f"nrefs:{len(references.split())}|")


@pytest.mark.parametrize(("flag", "method"), [("bs", "bootstrap"), ("ar", "randomization")])
def test_paired_tests_on_several_references_are_the_command_s(folder, monkeypatch, flag, method):
    monkeypatch.setattr(significance, "_TIE", -1e-9)  # so that ties count as there
    references = ["a.de", "b.de", "c.de"]
    draws = [f"--paired-{flag}", f"--paired-{flag}-n", "300"]
    # Its JSON of the bootstrap ends in a TypeError.
    table = theirs(*references, "-i", "one", "two", *draws, "-f", "latex")
    baseline, system = (re.findall(r"\d[\d.]*", row) for row in table.split("\n")[4:6])
    width = len(baseline) // 3
    draws = ["--resamples", "300", "--trials", "300", "--method", "both"]
    compared = ours("compare", "one", "two", *draws, "--ref", *references)["systems"]
    for number, metric in enumerate(NAMES.values()):
        score, *spread, p_value = map(float, system[number * (width + 1) :][: width + 1])
        assert compared[1]["metrics"][metric] == pytest.approx(score, abs=1e-9)
        assert compared[0]["metrics"][metric] == pytest.approx(
            float(baseline[number * width]), abs=1e-9
        )
        tested = compared[1]["against_baseline"][method][metric]
        assert f"{tested['p_value']:.4f}" == f"{p_value:.4f}"
        if flag == "bs":
            interval = compared[1]["intervals"]["metrics"][metric]
            half = (interval["high"] - interval["low"]) / 2
            # Theirs are computed in float32.
            assert [interval["mean"], half] == pytest.approx(spread, abs=1e-4)


PAIRS = [
    (Bleu(), BLEU(force=True)),
    (Chrf(), CHRF()),
    (Chrf(word_order=2, lowercase=True), CHRF(word_order=2, lowercase=True)),
    (Ter(), TER()),
]


@pytest.mark.parametrize(("mine", "its"), PAIRS, ids=["bleu", "chrf", "chrf++", "ter"])
@pytest.mark.parametrize(
    ("references", "number"),
    [([FIRST, SECOND, THIRD], "3"), ([FIRST, GAPS], "var"), ([GAPS, FIRST], "var"), ([FIRST], "1")],
)
def test_missing_references_are_those_of_sacrebleu_s_python_interface(
    mine, its, references, number
):
    (measured,) = measure([mine], ONE, references)
    expected = its.corpus_score(ONE, references)
    assert measured.score == pytest.approx(expected.score, abs=1e-9)
    assert measured.signature == str(its.get_signature())
    assert measured.signature.startswith(f"nrefs:{number}|")
    assert measured.of(slice(0, 2)).signature == measured.signature


def test_blank_lines_may_be_missing_references(folder):
    words = ["--hypotheses", "one", "--resamples", "0", "--ref", "a.de", "gaps.de"]
    done = run_captured("evaluate", *words)
    assert "a.de: 20 lines with a blank reference: compared as text without" in done.errors
    scores = ours("evaluate", *words, "--blank-references", "missing")["one"]
    assert scores["missing_references"] == [[], [*range(2, 61, 3)]]
    expected = TER().corpus_score(ONE, [FIRST, GAPS])
    assert scores["metrics"]["ter"] == pytest.approx(expected.score, abs=1e-9)
    assert scores["signatures"]["chrf"].startswith("nrefs:var|")
    done = run_captured("evaluate", *words[:-1], "--blank-references", "missing")
    assert done.status == 2 and "is for several references: --ref FILE FILE" in done.last


def test_a_sentence_that_is_blank_in_all_references_is_empty():
    references = References.of([["a", "", " ", "b"], ["", "", "x", None]])
    assert references.blank_lines() == [1, 3]
    assert references.without_blanks().columns == (["a", "", None, "b"], [None, "", "x", None])


def test_a_short_reference_is_named(folder):
    (folder / "short.de").write_text("".join(f"{text}\n" for text in FIRST[1:]))
    for command in (["evaluate", "--hypotheses", "one"], ["compare", "one", "two"]):
        done = run_captured(*command, "--ref", "a.de", "short.de")
        assert done.status == 2
        assert re.search("short.de has 59 lines, a.de has 60: they must match", done.last)
    with pytest.raises(ScoringError, match="reference 2 has 59 sentences, but the first has 60"):
        References.of([FIRST, FIRST[1:]])
    with pytest.raises(ScoringError, match="line 2 has no reference: each sentence needs one"):
        measure([Bleu()], ONE, [GAPS, GAPS])
    with pytest.raises(ScoringError, match="line 1 has no reference: each sentence needs one"):
        References.of([None, "a"])


def test_metrics_of_one_reference_are_left_out_or_refuse(folder):
    scoring = Scoring(language="de", ter=False, resamples=0)
    assessment = assess(ONE, [FIRST, SECOND], scoring=scoring)
    assert set(assessment.scores.metrics) == {"sacrebleu_13a", "chrf"}
    skipped = "the paper's BLEU is skipped: it takes one reference per sentence"
    assert assessment.scores.notes == [skipped]
    with pytest.raises(ScoringError, match="the paper's BLEU takes one reference"):
        measure([PaperBleu(language="de")], ONE, [FIRST, SECOND])
    with pytest.raises(ScoringError, match="COMET takes one reference per sentence: leave out"):
        assess(ONE, [FIRST, SECOND], sources=ONE, scoring=Scoring(comet="x"))
    done = run_captured("evaluate", "--hypotheses", "one", "--comet", "x", "--ref", "a.de", "b.de")
    assert done.status == 2 and "--comet takes one reference per sentence" in done.last


class Exact(Metric):
    """The share of sentences that are their reference."""

    signature = "exact match"

    def row(self, hypothesis: str, reference: str) -> list[int]:
        return [hypothesis == reference, 1]

    def score(self, totals: Any) -> Any:
        return 100 * totals[..., 0] / totals[..., 1]


def test_a_metric_of_one_s_own_takes_the_best_reference():
    (exact,) = measure([Exact(name="exact")], SECOND, [FIRST, SECOND])
    assert (exact.score, exact.signature) == (100, "exact match")
    lower = Exact(name="exact", higher_is_better=False)
    (exact,) = measure([lower], SECOND, [FIRST, SECOND])
    assert exact.score < 60


@pytest.fixture
def models(tmp_path, monkeypatch) -> Iterator[Path]:
    """sacreBLEU's folder of SentencePiece models, empty, and no network."""
    monkeypatch.setenv("SACREBLEU", str(tmp_path / "sacrebleu"))
    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path / "sacrebleu"))
    unreachable = urllib.error.URLError("Name or service not known")
    monkeypatch.setattr(urllib.request, "urlopen", mock.Mock(side_effect=unreachable))
    sacrebleu_with.cache_clear()
    yield tmp_path / "sacrebleu" / "models"
    sacrebleu_with.cache_clear()


def test_spbleu_is_the_command_s_with_the_models_that_it_keeps(folder, models):
    """With a small model in the place of FLORES's, which sacreBLEU would download."""
    models.mkdir(parents=True)
    written = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(FIRST), model_writer=written, vocab_size=80, minloglevel=2
    )
    for tokenizer in OF_PIECES:
        model_file(tokenizer).write_bytes(written.getvalue())
    for tokenizer in OF_PIECES:
        words = ["--tokenize", tokenizer]
        expected, *_ = json.loads(theirs("a.de", "b.de", "-i", "one", *words))
        call = ["--hypotheses", "one", "--no-ter", "--resamples", "0", "--ref", "a.de", "b.de"]
        scores = ours("evaluate", *call, *words)["one"]
        name = f"sacrebleu_{tokenizer}"
        assert scores["metrics"][name] == pytest.approx(expected["score"], abs=1e-9)
        assert scores["signatures"][name] == expected["signature"]
        assert scores["metrics"][name] != ours("evaluate", *call)["one"]["metrics"]["sacrebleu_13a"]


def test_every_tokenisation_of_sacrebleu_is_offered():
    done = run_captured("evaluate", "--help")
    choices = re.search(r"--tokenize \{(.*?)\}", re.sub(r"\s+", " ", done.output))
    assert choices and choices[1].replace(" ", "").split(",") == [*BLEU.TOKENIZERS]


def test_a_model_that_is_missing_or_damaged_is_named(folder, models):
    call = ["evaluate", "--hypotheses", "one", "--ref", "a.de", "--tokenize", "flores200"]
    done = run_captured(*call)
    assert done.status == 1 and "(Name or service not known): on a machine with a" in done.last
    file = models / "flores200sacrebleuspm"
    assert f"copy its ~/.sacrebleu/models/{file.name} to {file}, in the folder" in done.last
    assert "sacreBLEU can't download from https://tinyurl.com/flores200sacrebleuspm" in done.last
    file.write_text("<html>please log in</html>")
    done = run_captured(*call)
    assert done.status == 2 and f"{file}: is not a SentencePiece model (" in done.last
    assert "remove it, and sacreBLEU downloads it again from https://tinyurl.com" in done.last


def test_other_reasons_why_a_tokenisation_cannot_be_used(monkeypatch):
    with pytest.raises(ScoringError, match="no tokenizer 'moses': none, zh"):
        Bleu(tokenizer="moses")
    monkeypatch.setattr(bleu_tokenizers, "missing_extra", lambda tokenizer: "")
    fail = mock.Mock(side_effect=RuntimeError("another dictionary"))
    monkeypatch.setattr(bleu_tokenizers, "BLEU", fail)
    with pytest.raises(ScoringError, match="tokenizer ko-mecab can't be used: another dictionary"):
        Bleu(tokenizer="ko-mecab")
