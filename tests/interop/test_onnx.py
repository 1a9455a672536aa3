"""Folders of ONNX graphs: what is in them, how they are called, and what is refused.

`test_runners.py` runs their `translate.py`, and `python -m benchmarks.onnx_runtime` optimum.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

import flaxformer_mt as fm
from flaxformer_mt.config import DataConfig
from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import ExportError, onnx, runner
from flaxformer_mt.interop.export import export
from flaxformer_mt.interop.folder import write_program
from flaxformer_mt.interop.huggingface import Card, numbering_of
from flaxformer_mt.interop.parity import Reference
from tests.decoding.runs import make_run
from tests.interop.translators import LINES, translator

onnx_package = pytest.importorskip("onnx", reason="needs the [export] extra")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the [export] extra")

CARD = Card(data=DataConfig(src_lang="en", tgt_lang="de"))
PRE = {"norm": "pre", "positions": "learned", "tie": "target", "decoder_layers": 2}


def written(folder: Path, **changes: Any) -> Translator:
    made = translator(**changes)
    onnx.write(made, folder, card=CARD)
    return made


def session(folder: Path, name: str) -> Any:
    return onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])


def generated_lines(count: int) -> list[str]:
    random = np.random.default_rng(0)
    words = np.array(" ".join(LINES).split())
    return [" ".join(random.choice(words, length)) for length in random.integers(1, 14, count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("written")
    written(place, decoder_layers=2)
    return place


@pytest.mark.parametrize("changes", [{}, PRE, {"tie": "none"}], ids=str)
def test_a_hundred_greedy_outputs_are_the_runs_token_for_token(changes, tmp_path):
    made = written(tmp_path, max_length=80, **changes)
    reference, lines = Reference(made), generated_lines(100)
    sources = [[*ids, EOS] for ids in made.vocabularies.src.encode(lines)]
    runtime = onnx.ONNXRuntime(tmp_path, numbering_of(made))
    assert runtime.encode(lines) == sources
    expected = reference.greedy(sources)
    assert runtime.greedy(sources, reference.limits(sources)) == expected
    assert len(set(map(tuple, expected))) > 50


def test_inputs_and_outputs_are_those_of_optimum(folder):
    """As of `optimum-cli export onnx --task text2text-generation-with-past` 0.1.0 for Marian."""
    encoder, decoder = (session(folder, name) for name in runner.GRAPHS)
    source = ["batch_size", "encoder_sequence_length"]
    assert described(encoder.get_inputs()) == {"input_ids": source, "attention_mask": source}
    assert described(encoder.get_outputs()) == {"last_hidden_state": [*source, 16]}

    past = "past_decoder_sequence_length"
    new = f"{past} + decoder_sequence_length"
    assert described(decoder.get_inputs()) == {
        "encoder_attention_mask": source,
        "input_ids": ["batch_size", "decoder_sequence_length"],
        "encoder_hidden_states": [*source, 16],
        **cache("past_key_values", past),
        "use_cache_branch": [1],
    }
    assert described(decoder.get_outputs()) == {
        "logits": ["batch_size", "decoder_sequence_length", 61],
        **cache("present", new),
    }


def described(values: Any) -> dict[str, list[str | int]]:
    return {value.name: value.shape for value in values}


def cache(prefix: str, length: str) -> dict[str, list[str | int]]:
    lengths = {"decoder": length, "encoder": "encoder_sequence_length"}
    return {
        f"{prefix}.{layer}.{stack}.{role}": ["batch_size", 2, lengths[stack], 8]
        for layer in (0, 1)
        for stack in ("decoder", "encoder")
        for role in ("key", "value")
    }


def test_the_graphs_are_valid_and_of_a_version_that_old_runtimes_read(folder):
    for name in runner.GRAPHS:
        model = onnx_package.load(folder / name)
        onnx_package.checker.check_model(model, full_check=True)
        assert model.ir_version == 8
        assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]


class Calls:
    """The decoder called as optimum calls it, for two sentences of 3 and 5 tokens."""

    def __init__(self, folder: Path) -> None:
        encoder, self._decoder = (session(folder, name) for name in runner.GRAPHS)
        mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
        source = {"input_ids": np.arange(10, 20).reshape(2, 5), "attention_mask": mask}
        [encoded] = encoder.run(None, source)
        self.source = {"encoder_attention_mask": mask, "encoder_hidden_states": encoded}
        self._names = [given.name for given in self._decoder.get_inputs() if "past" in given.name]

    def empty(self, tokens: int = 0) -> dict[str, np.ndarray]:
        """A cache for the first step, which is to ignore it."""
        return {name: np.full((2, 2, tokens, 8), np.nan, np.float32) for name in self._names}

    def step(
        self, ids: np.ndarray, past: dict[str, np.ndarray], *, uses_cache: bool
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        branch = {"use_cache_branch": np.array([uses_cache])}
        inputs = {"input_ids": ids, **self.source, **past, **branch}
        logits, *present = self._decoder.run(None, inputs)
        return logits, dict(zip(self._names, present, strict=True))


IDS = np.array([[60, 12, 5, 9], [60, 30, 31, 2]])


@pytest.mark.parametrize("tokens", [0, 1], ids=["optimum 2", "optimum 1"])
def test_the_first_step_ignores_the_cache(folder, tokens):
    """Optimum 2 gives it an empty one, earlier releases one of a single token."""
    calls = Calls(folder)
    logits, present = calls.step(IDS, calls.empty(tokens), uses_cache=False)
    expected, _ = calls.step(IDS, calls.empty(), uses_cache=False)
    np.testing.assert_array_equal(logits, expected)
    assert np.isfinite(logits).all()
    assert [array.shape[2] for array in present.values()] == [4, 4, 5, 5] * 2


@pytest.mark.parametrize("split", [1, 2, 3])
def test_tokens_by_the_cache_are_tokens_at_once(folder, split):
    """Also several at once after the first ones, none of which sees a later one."""
    calls = Calls(folder)
    expected, _ = calls.step(IDS, calls.empty(), uses_cache=False)
    first, past = calls.step(IDS[:, :split], calls.empty(), uses_cache=False)
    second, present = calls.step(IDS[:, split:], past, uses_cache=True)
    logits = np.concatenate([first, second], axis=1)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    assert all(array.shape[2] in (4, 5) for array in present.values())


def test_with_a_cache_the_encoders_output_is_not_read(folder):
    calls = Calls(folder)
    expected, _ = calls.step(IDS, calls.empty(), uses_cache=False)
    _, past = calls.step(IDS[:, :3], calls.empty(), uses_cache=False)
    calls.source["encoder_hidden_states"][:] = np.nan
    logits, _ = calls.step(IDS[:, 3:], past, uses_cache=True)
    np.testing.assert_allclose(logits, expected[:, 3:], atol=1e-5)


def test_padding_of_the_source_changes_nothing(folder):
    calls = Calls(folder)
    expected, _ = calls.step(IDS, calls.empty(), uses_cache=False)
    calls.source["encoder_hidden_states"][0, 3:] = 7.0
    logits, _ = calls.step(IDS, calls.empty(), uses_cache=False)
    np.testing.assert_array_equal(logits, expected)


def test_positions_beyond_the_longest_are_refused(tmp_path):
    """By the encoder, and by the decoder where the cache has that many tokens."""
    written(tmp_path, max_length=5, decoder_layers=2)
    ids = np.full((1, 6), 5)
    with pytest.raises(Exception, match="broadcast an axis"):
        session(tmp_path, runner.GRAPHS[0]).run(None, {"input_ids": ids, "attention_mask": ids})
    calls = Calls(tmp_path)
    _, past = calls.step(IDS, calls.empty(), uses_cache=False)
    _, past = calls.step(IDS[:, 3:], past, uses_cache=True)
    with pytest.raises(Exception, match="out of data bounds"):
        calls.step(IDS[:, 3:], past, uses_cache=True)


def test_the_settings_say_what_the_model_is(tmp_path):
    made = written(tmp_path, **PRE)
    config, generation, settings = (
        json.loads((tmp_path / f"{name}.json").read_text())
        for name in ("config", "generation_config", "settings")
    )
    start = numbering_of(made).start
    expected = {"model_type": "marian", "normalize_before": True, "decoder_layers": 2}
    expected |= {"static_position_embeddings": False, "vocab_size": start + 1}
    assert expected.items() <= config.items()
    assert generation["decoder_start_token_id"] == settings["start"] == start
    assert [[settings[mark]] for mark in ("pad", "bos", "unk", "start")] == generation[
        "bad_words_ids"
    ]
    assert not list(tmp_path.glob("*.safetensors"))


def test_arrays_of_a_model_too_large_for_a_file_are_in_a_second(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx, "_LONGEST_FILE", 30_000)
    made = written(tmp_path)
    assert not (tmp_path / "encoder_model.onnx_data").exists()
    data = tmp_path / "decoder_model_merged.onnx_data"
    assert data.stat().st_size > 8_000
    [source] = made.vocabularies.src.encode(LINES[:1])
    reference = Reference(made)
    runtime = onnx.ONNXRuntime(tmp_path, numbering_of(made))
    assert runtime.greedy([[*source, EOS]], [8]) == [reference.greedy([[*source, EOS]])[0][:7]]


class SeemsTooLarge(NamedTuple):
    """A model's arrays, and what protobuf does with a message of more than 2 GiB."""

    graph: Any

    def ByteSize(self) -> int:
        raise ValueError("Failed to serialize proto")


@pytest.mark.parametrize(("longest", "has_second"), [(4096, False), (4095, True)])
def test_whether_a_second_file_is_needed_is_known_by_the_arrays(longest, has_second, monkeypatch):
    array = onnx_package.numpy_helper.from_array(np.zeros(512, np.float32), "a")
    graph = onnx_package.helper.make_graph([], "g", [], [], [array, array])
    save = mock.Mock()
    monkeypatch.setattr(onnx_package, "save_model", save)
    monkeypatch.setattr(onnx, "_LONGEST_FILE", longest)
    onnx._save(SeemsTooLarge(graph), Path("m.onnx"))
    assert save.call_args.kwargs.get("save_as_external_data", False) == has_second


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"d_k": 9}, "optimum's form needs model.d_k = 9 and model.d_v = 8 to be 16 / 2"),
        ({"d_v": 12}, "model.d_k = 8 and model.d_v = 12"),
        ({"num_heads": 3, "d_k": 4, "d_v": 4}, "to be 16 / 3"),
    ],
)
def test_heads_that_optimum_cannot_run_are_refused(changes, reason, tmp_path):
    with pytest.raises(ExportError, match=reason):
        export(translator(**changes), tmp_path / "x", form="onnx", card=CARD, sample=None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("package", "sample"), [("onnx", None), ("onnxruntime", (LINES, "lines"))])
def test_a_missing_package_is_named(package, sample, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"{package}, which is not installed: pip install 'flaxformer-mt\[export\]'"
    with pytest.raises(ExportError, match=message):
        export(translator(), tmp_path / "x", form="onnx", card=CARD, sample=sample)
    assert not list(tmp_path.iterdir())


def test_a_number_type_it_lacks_is_refused(tmp_path):
    with pytest.raises(ExportError, match="'onnx' is float32 only: float16 is for ctranslate2"):
        export(
            translator(),
            tmp_path / "x",
            form="onnx",
            quantization="float16",
            card=CARD,
            sample=None,
        )


def test_outputs_that_differ_leave_no_folder(tmp_path, monkeypatch):
    """A model whose begin mark is another's is not the run's."""

    def with_another(*arguments: Any, start: int) -> None:
        write_program(*arguments, start=start - 1)

    monkeypatch.setattr(onnx, "write_program", with_another)
    with pytest.raises(ExportError, match="not written, since the runtimes disagree"):
        export(translator(), tmp_path / "x", form="onnx", card=CARD, sample=(LINES, "lines"))
    assert not list(tmp_path.iterdir())


def test_a_run_is_exported_and_compared(tmp_path):
    run = make_run(tmp_path / "run", {1: None})
    parity = fm.export(run, tmp_path / "out", format="onnx")
    assert parity is not None and parity.agrees and parity.largest < 1e-4
    assert parity.runtime == f"ONNX Runtime {onnxruntime.__version__}"
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "pip install onnxruntime numpy sentencepiece\n" in readme
    assert "ORTModelForSeq2SeqLM.from_pretrained" in readme
    assert "`early_stopping`" in readme
