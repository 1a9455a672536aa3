"""The figures of `benchmarks.onnx_runtime`, of outputs that are known."""

import pytest

from benchmarks import onnx_runtime
from flaxformer_mt.data.vocabulary import EOS, UNK
from flaxformer_mt.interop.huggingface import numbering_of
from flaxformer_mt.interop.parity import Reference
from tests.interop.translators import LINES, translator


@pytest.mark.parametrize(
    ("theirs", "share"),
    [
        ([[5, 6], []], 1.0),
        ([[5, 7], []], 3 / 4),
        ([[5], []], 1 / 4 * 2),
        ([[5, 6, 7], []], 3 / 5),
        ([[5, 6], [8]], 3 / 5),
    ],
)
def test_the_share_is_of_places_with_end_marks(theirs, share):
    assert onnx_runtime.equal_share([[5, 6], []], theirs) == pytest.approx(share)


def test_the_sample_is_of_lines_that_the_model_takes(tmp_path):
    made = translator(max_length=20)
    path = tmp_path / "text"
    path.write_text("\n".join(["", LINES[2], "dog " * 40, LINES[3], LINES[0]]) + "\n")
    sample = onnx_runtime.read_sample(made, Reference(made), path, 2)
    assert sample.lines == [LINES[2], LINES[3]]
    assert [source[-1] for source in sample.sources] == [EOS, EOS]
    assert len(sample.limits) == 2


def test_answers_of_optimum_are_compared_by_this_programs_tokens(tmp_path):
    made = translator(tie="target")
    path = tmp_path / "text"
    path.write_text("\n".join(LINES[:3]) + "\n")
    reference, numbering = Reference(made), numbering_of(made)
    sample = onnx_runtime.read_sample(made, reference, path, 3)
    greedy, beam = reference.greedy(sample.sources), onnx_runtime.by_beam_here(made, sample.sources)

    def as_there(rows):
        return [[numbering.start, *(numbering.tgt[id] for id in (*ids, EOS))] for ids in rows]

    sources = [[numbering.src[id] for id in ids] for ids in sample.sources]
    answer = {"sources": sources, "outputs": {"1": as_there(greedy), "2": as_there(beam)}}
    assert set(onnx_runtime.of_optimum(made, sample, answer, greedy).values()) == {1.0}
    answer["sources"][0] = answer["sources"][0][1:]
    answer["outputs"]["2"][1][1] = numbering.tgt[UNK]
    metrics = onnx_runtime.of_optimum(made, sample, answer, greedy)
    assert metrics["optimum_sources_equal_share"] == pytest.approx(2 / 3)
    assert metrics["optimum_greedy_tokens_equal_share"] == 1.0
    assert metrics["optimum_beam_outputs_equal_share"] == pytest.approx(2 / 3)


def test_without_optimums_environment_it_says_what_to_do(tmp_path):
    for arguments, message in (
        ([], "--peers DIR or --python PYTHON"),
        (["--peers", str(tmp_path)], "the environment 'optimum' is not there: --install makes it"),
        (["--python", str(tmp_path / "no")], "there is no such interpreter"),
    ):
        with pytest.raises(SystemExit, match=message):
            onnx_runtime.main(["--workdir", "run", "--src", "text", "--web", "web", *arguments])
