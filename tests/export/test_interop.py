"""Against transformers itself: forward logits to 1e-4 and greedy outputs exactly, both ways.

Needs an environment with PyTorch and transformers (`tests/export/peers.txt`; CONTRIBUTING.md says
how to make one); skipped elsewhere.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

from flaxformer_mt.config import DataConfig
from flaxformer_mt.data.vocabulary import BOS, EOS
from flaxformer_mt.decoding import Translator
from flaxformer_mt.export.export import Sample, export
from flaxformer_mt.export.import_run import import_marian
from flaxformer_mt.export.parity import Reference
from tests.export import marian_models
from tests.export.translators import LINES, translator

pytestmark = [
    pytest.mark.interop,
    # What these packages and PyTorch say of themselves is theirs to mend.
    pytest.mark.filterwarnings("ignore"),
]
torch = pytest.importorskip("torch", reason="needs PyTorch (tests/export/peers.txt)")
transformers = pytest.importorskip(
    "transformers", reason="needs transformers (tests/export/peers.txt)"
)

TOLERANCE = 1e-4


@pytest.fixture
def few(tmp_path: Path) -> str:
    """Lines for an import's own comparison: random models write on to the limit."""
    (tmp_path / "few.txt").write_text("the cat .\nit\n")
    return str(tmp_path / "few.txt")


def ours_and_theirs(made: Translator, sources, targets, model, ids):
    """Logits of every position of each target: this program's and theirs, in this one's order."""
    starting = [[BOS, *target] for target in targets]
    src, src_segment_ids = padded(sources)
    tgt, tgt_segment_ids = padded(starting)

    @jax.jit
    def logits(params):
        hidden = made.model.apply(
            {"params": params},
            src,
            tgt,
            src_segment_ids=src_segment_ids,
            tgt_segment_ids=tgt_segment_ids,
            src_positions=np.broadcast_to(np.arange(src.shape[1]), src.shape),
            tgt_positions=np.broadcast_to(np.arange(tgt.shape[1]), tgt.shape),
            deterministic=True,
        )
        return made.model.apply({"params": params}, hidden, method="logits")

    types = ids(range(made.model.tgt_vocab_size), "tgt")
    for source, target, ours in zip(
        sources, starting, np.asarray(logits(made.params)), strict=True
    ):
        with torch.no_grad():
            theirs = model(
                input_ids=torch.tensor([ids(source, "src")]),
                decoder_input_ids=torch.tensor([ids(target, "tgt")]),
            ).logits[0]
        yield ours[: len(target)], theirs.numpy()[:, types]


def padded(rows) -> tuple[np.ndarray, np.ndarray]:
    table = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    lengths = np.array([len(row) for row in rows])
    return table, np.int32(np.arange(table.shape[1]) < lengths[:, None])


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {"pickled": True},
        {"activation_function": "relu", "tie_word_embeddings": None},
        {"tie_word_embeddings": False},
    ],
    ids=["swish", "relu", "untied"],
)
def test_an_imported_model_is_the_same(changes, separate: bool, tmp_path: Path, few: str) -> None:
    changes = dict(changes)
    if changes.get("tie_word_embeddings", "given") is None:
        changes["tie_word_embeddings"] = not separate
    model = marian_models.write_model(tmp_path / "marian", separate=separate, **changes)
    parity = import_marian(tmp_path / "marian", tmp_path / "run", ["x"], sample=few)
    assert parity is not None and parity.agrees and parity.same_output == parity.sentences
    made = Translator.load(tmp_path / "run")

    tokenizer = transformers.MarianTokenizer.from_pretrained(str(tmp_path / "marian"))
    there = {
        "src": tokenizer.encoder,
        "tgt": tokenizer.target_encoder if separate else tokenizer.encoder,
    }
    pieces = {"src": made.vocabularies.src.pieces(), "tgt": made.vocabularies.tgt.pieces()}

    def ids(tokens, side):
        return [
            there[side]["<pad>" if (piece := pieces[side][token]) == "<s>" else piece]
            for token in tokens
        ]

    lines = [*marian_models.ENGLISH[::9], ">>deu<< she likes it all .", "unknown: ß ∞"]
    sources = [[*tokens, EOS] for tokens in made.vocabularies.src.encode(lines)]
    for line, source in zip(lines, sources, strict=True):
        assert tokenizer(line).input_ids == ids(source, "src"), line
    targets = [[4 + (5 * n + k) % 40 for k in range(3 + n)] for n in range(len(sources))]
    for ours, theirs in ours_and_theirs(made, sources, targets, model, ids):
        # The first is padding, which has no share here.
        np.testing.assert_allclose(ours[:, 1:], theirs[:, 1:], atol=TOLERANCE)
        assert (ours[:, 0] == -100).all()

    made.config = made.config.__class__(max_extra_tokens=8)
    reference = Reference(made)
    outputs = reference.greedy(sources)
    for source, output in zip(sources, outputs, strict=True):
        generated = model.generate(
            torch.tensor([ids(source, "src")]),
            num_beams=1,
            do_sample=False,
            max_new_tokens=len(source) + 8,
            bad_words_ids=[[there["tgt"]["<pad>"]], [there["tgt"]["<unk>"]]],
        )[0].tolist()
        assert generated[1:] == ids([*output, EOS], "tgt")
    texts = tokenizer.batch_decode(
        [ids(output, "tgt") for output in outputs], skip_special_tokens=True
    )
    assert made.vocabularies.tgt.decode(outputs) == texts


@pytest.mark.parametrize(
    "form",
    [
        {"norm_epsilon": 1e-5},
        {"tie": "target", "activation": "silu", "attention_bias": True, "logits_bias": True},
        {"tie": "none", "d_k": 5, "scan_layers": True},
    ],
    ids=str,
)
def test_an_exported_model_is_the_same(form, tmp_path: Path) -> None:
    """Random weights exaggerate nothing: epsilon 1e-6 in place of 1e-5 is not seen either."""
    made = translator(**form)
    languages = DataConfig(src_lang="en", tgt_lang="de")
    parity = export(
        made,
        tmp_path / "out",
        form="huggingface",
        languages=languages,
        sample=Sample(LINES, "lines"),
    )
    assert parity is not None and parity.same_output == parity.sentences == len(LINES)
    model = transformers.MarianMTModel.from_pretrained(str(tmp_path / "out")).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = transformers.MarianTokenizer.from_pretrained(str(tmp_path / "out"))
    sources = [[*tokens, EOS] for tokens in made.vocabularies.src.encode(LINES)]
    assert [tokenizer(line).input_ids for line in LINES] == sources
    outputs = Reference(made).greedy(sources)

    def same(tokens, side):
        return list(tokens)

    for ours, theirs in ours_and_theirs(made, sources, outputs, model, same):
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)
    for source, output in zip(sources, outputs, strict=True):
        generated = model.generate(
            torch.tensor([source]), num_beams=1, max_new_tokens=len(source) + 6
        )[0].tolist()
        assert generated == [BOS, *output, EOS]
    texts = tokenizer.batch_decode(outputs, skip_special_tokens=True)
    assert texts == made.vocabularies.tgt.decode(outputs)
