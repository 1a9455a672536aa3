"""What docs/differences.md says of programs that can be run here; each needs its own package."""

import dataclasses
import io
import logging
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import sentencepiece

from flaxformer_mt.data.vocabulary import EOS
from tests.interop.test_runners import model_of, write
from tests.interop.translators import LINES, translator

# Of these, PyTorch and transformers, the environment of tests/interop/peers.txt has.
needs_transformers = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore"),  # what these packages say of themselves
]
SOURCES, LIMIT = LINES[:6], 30


@pytest.fixture
def program(tmp_path):
    """CTranslate2's translator of a random model that likes to end, and the sources' pieces."""
    pytest.importorskip("ctranslate2", reason="needs the [export] extra")
    original = translator(logits_bias=True)
    bias = original.params["embedding"]["softmax_bias"]
    original.params["embedding"]["softmax_bias"] = bias.at[EOS].add(3.0)
    write("ctranslate2", original, tmp_path)
    model = model_of(tmp_path)
    return model.program.translator, model.encode(SOURCES)


def searched(program, penalty: float, **options):
    """Tokens and score of the best two of each source."""
    translate, sources = program
    usual = {"beam_size": 2, "num_hypotheses": 2, "max_decoding_length": LIMIT}
    usual |= {"min_decoding_length": 0, "return_scores": True, "length_penalty": penalty}
    results = translate.translate_batch(sources, **(usual | options))
    return [
        list(zip(map(tuple, result.hypotheses), result.scores, strict=True)) for result in results
    ]


def test_ctranslate2_divides_by_the_tokens_and_the_end_mark(program):
    lengths = set()
    for plain, divided in zip(searched(program, 0), searched(program, 1), strict=True):
        log_probs = dict(plain)
        for tokens, score in divided:
            if tokens in log_probs and len(tokens) < LIMIT:
                assert log_probs[tokens] / (len(tokens) + 1) == pytest.approx(score, abs=1e-5)
                lengths.add(len(tokens))
    assert len(lengths) > 1


def test_ctranslate2_stops_at_the_limit_without_an_end_mark(program):
    """It would be among the tokens, and its probability in the score."""
    translate, sources = program
    options = {"beam_size": 4, "num_hypotheses": 4, "max_decoding_length": 2}
    best = searched(program, 0, **options, return_end_token=True)[0]
    cut = [(tokens, score) for tokens, score in best if tokens[-1] != "</s>"]
    for tokens, score in cut:
        [scored] = translate.score_batch(sources[:1], [list(tokens)])
        assert len(tokens) == 2
        assert score == pytest.approx(sum(scored.log_probs[:2]), abs=1e-4)
    assert 0 < len(cut) < len(best)


def test_ctranslate2_counts_a_prefix_in_the_length_alone(program):
    """Of the outputs that end before the limit."""
    translate, sources = program
    prefixes = [list(tokens[:2]) for (tokens, _), *_ in searched(program, 0, min_decoding_length=3)]
    given = {"target_prefix": prefixes, "num_hypotheses": 1}
    plain, divided = (searched(program, penalty, **given) for penalty in (0, 1))
    scored = translate.score_batch(sources, [list(tokens) for [(tokens, _)] in plain])
    ended = 0
    for [(tokens, score)], [(same, shared)], forced in zip(plain, divided, scored, strict=True):
        if len(tokens) < LIMIT and same == tokens:
            assert score == pytest.approx(sum(forced.log_probs[2:]), abs=1e-4)
            assert shared == pytest.approx(score / (len(tokens) + 1), abs=1e-5)
            ended += 1
    assert ended > 1


def test_ctranslate2_scales_up_what_it_does_not_exclude(program):
    """Of one token, and the end mark that follows it."""
    translate, sources = program
    options = {"beam_size": 1, "num_hypotheses": 1, "max_decoding_length": 1}
    [first, *_] = searched(program, 0, **options, min_decoding_length=1)
    ((token,), raised) = first[0]
    [scored] = translate.score_batch(sources[:1], [[token]])
    [ended] = translate.score_batch(sources[:1], [[]])
    alone, end = scored.log_probs[0], ended.log_probs[0]
    assert raised == pytest.approx(alone - math.log1p(-math.exp(end)), abs=1e-4) and raised > alone


def test_optax_starts_at_0_and_smooths_every_type():
    curve = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 4000, 100_000)
    assert float(curve(0)) == 0 and float(curve(1)) == pytest.approx(2.5e-7, rel=1e-3)
    smoothed = optax.smooth_labels(jax.nn.one_hot(4, 10), 0.1)
    np.testing.assert_allclose(smoothed, np.where(np.arange(10) == 4, 0.91, 0.01), rtol=1e-5)


def test_orbax_casts_to_the_type_that_is_asked_for(tmp_path, caplog):
    checkpointer = ocp.StandardCheckpointer()
    checkpointer.save(tmp_path / "saved", {"w": jnp.full(3, 1 + 2**-10)})
    checkpointer.wait_until_finished()
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    wanted = {"w": jax.ShapeDtypeStruct((3,), jnp.bfloat16, sharding=sharding)}
    with caplog.at_level(logging.WARNING):
        restored = checkpointer.restore(tmp_path / "saved", wanted)["w"]
    assert restored.dtype == jnp.bfloat16 and (restored == 1).all() and not caplog.records


def test_sentencepiece_normalises_unless_it_is_told_not_to():
    model = io.BytesIO()
    text = iter(["hello world", "a b c d e f 1 2"] * 50)
    options = {"vocab_size": 30, "model_type": "bpe", "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=text, model_writer=model, **options)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    assert processor.decode(processor.encode("①２  a")) == "12 a"


@dataclasses.dataclass(frozen=True)
class Marian:
    """transformers' own model with random weights that like to end, and one row of source ids."""

    model: object
    source: object

    def generate(self, **options):
        usual = {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 20}
        usual |= {"return_dict_in_generate": True, "output_scores": True}
        output = self.model.generate(self.source, **(usual | options))
        for ids, score in zip(output.sequences.tolist(), output.sequences_scores, strict=True):
            last = ids.index(0, 1)
            yield ids[: last + 1], float(score)

    def log_probs(self, ids: list[int]) -> list[float]:
        """Of each token after the first, by one pass."""
        import torch

        given = torch.tensor([ids[:-1]])
        logits = self.model(input_ids=self.source, decoder_input_ids=given).logits[0]
        picked = logits.log_softmax(-1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
        return picked.tolist()


@pytest.fixture
def marian():
    torch = pytest.importorskip("torch", reason="needs PyTorch (tests/interop/peers.txt)")
    transformers = pytest.importorskip(
        "transformers", reason="needs transformers (tests/interop/peers.txt)"
    )
    torch.manual_seed(0)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16}
    sizes |= {f"{side}_ffn_dim": 16 for side in ("encoder", "decoder")}
    sizes |= {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
    marks = {"pad_token_id": 39, "decoder_start_token_id": 39, "eos_token_id": 0}
    config = transformers.MarianConfig(
        vocab_size=40, max_position_embeddings=64, forced_eos_token_id=0, **sizes, **marks
    )
    model = transformers.MarianMTModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.final_logits_bias[0, 0] = 1.0
    return Marian(model, torch.tensor([[5, 6, 7, 0]]))


class TestTransformers:
    pytestmark = needs_transformers

    @pytest.mark.parametrize("prefix", [[39], [39, 11, 12]], ids=["free", "prefix"])
    def test_the_end_mark_counts_and_a_prefix_does_not(self, marian, prefix):
        import torch

        given = {"decoder_input_ids": torch.tensor([prefix]), "length_penalty": 1.0}
        lengths = set()
        for ids, score in marian.generate(**given):
            log_probs = marian.log_probs(ids)[len(prefix) - 1 :]
            assert score == pytest.approx(sum(log_probs) / len(log_probs), abs=1e-4)
            lengths.add(len(log_probs))
        assert lengths == {1, 2}

    def test_a_forced_end_counts_as_certain(self, marian):
        options = {"max_new_tokens": 2, "min_new_tokens": 1, "length_penalty": 0.0}
        ids, score = next(iter(marian.generate(**options)))
        first, end = marian.log_probs(ids)
        assert score == pytest.approx(first, abs=1e-4) and end < -0.1

    def test_the_first_rate_is_0_and_every_type_is_smoothed(self, marian):
        import torch
        from transformers import get_inverse_sqrt_schedule
        from transformers.trainer_pt_utils import LabelSmoother

        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
        curve = get_inverse_sqrt_schedule(optimizer, 4000)
        rates = [curve.get_last_lr()[0]]
        optimizer.step()
        curve.step()
        assert [*rates, *curve.get_last_lr()] == [0, 1e-3 / 4000]

        logits = torch.zeros(1, 1, 10, requires_grad=True)
        LabelSmoother(epsilon=0.1)({"logits": logits}, torch.tensor([[4]])).backward()
        target = 0.1 - logits.grad.numpy().ravel()
        np.testing.assert_allclose(target, np.where(np.arange(10) == 4, 0.91, 0.01), rtol=1e-4)

    def test_weights_have_the_type_they_were_saved_in(self, marian, tmp_path):
        import torch

        marian.model.half().save_pretrained(tmp_path)
        loaded = type(marian.model).from_pretrained(tmp_path)
        assert loaded.dtype == torch.float16
        in_full = type(marian.model).from_pretrained(tmp_path, dtype=torch.float32)
        assert in_full.dtype == torch.float32

    def test_a_source_beyond_the_table_of_positions_is_an_index_error(self, marian):
        with pytest.raises(IndexError, match="out of range"):
            marian.model.generate(marian.source.repeat(1, 20), max_new_tokens=1)
