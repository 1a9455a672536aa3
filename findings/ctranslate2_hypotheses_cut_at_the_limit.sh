#!/usr/bin/env bash
# CTranslate2 4.8.5: a hypothesis that `max_decoding_length` cuts is scored without an end mark, beside hypotheses whose
# end marks are counted. Whatever the end mark's probability there, it costs a cut one nothing. So where a model would
# go on (a repetition, a table, a list of names), the cut hypothesis can be returned as the best and an n-best list is
# not in the order of the model's probabilities. `score_batch` counts the end mark for the same tokens, so the two
# scores of one output differ by nats. Nothing in a result says that an output was cut.
#
# `flaxformer_mt/interop/ctranslate2_search.py` adds the end mark's log-probability before it ranks.
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check ctranslate2==4.8.5 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pathlib
import sys

import ctranslate2
import numpy as np

WIDTH, TYPES = 16, ["<pad>", "<s>", "</s>", "<unk>", "a", "b", "c", "d"]
random = np.random.default_rng(3)


def linear(spec, rows: int, columns: int) -> None:
    spec.weight = random.normal(0, 0.4, (rows, columns)).astype(np.float32)


spec = ctranslate2.specs.TransformerSpec.from_config((1, 1), 2, pre_norm=False)
for stack, is_decoder in ((spec.encoder, False), (spec.decoder, True)):
    embedding = stack.embeddings if is_decoder else stack.embeddings[0]
    embedding.weight = random.normal(0, 0.25, (len(TYPES), WIDTH)).astype(np.float32)
    stack.scale_embeddings = True
    stack.position_encodings.encodings = random.normal(0, 0.5, (64, WIDTH)).astype(np.float32)
    layer = stack.layer[0]
    attentions = [(layer.self_attention, (3 * WIDTH, WIDTH))]
    if is_decoder:
        attentions.append((layer.attention, (WIDTH, 2 * WIDTH, WIDTH)))
    for attention, sizes in attentions:
        for part, rows in zip(attention.linear, sizes, strict=True):
            linear(part, rows, WIDTH)
    linear(layer.ffn.linear_0, 32, WIDTH)
    linear(layer.ffn.linear_1, WIDTH, 32)
    for part in (layer.ffn.linear_0, layer.ffn.linear_1):
        part.bias = np.zeros(len(part.weight), np.float32)
    for norm in [attention.layer_norm for attention, _ in attentions] + [layer.ffn.layer_norm]:
        norm.gamma, norm.beta = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
linear(spec.decoder.projection, len(TYPES), WIDTH)
# It never leaves a probability to what a search excludes, and seldom ends.
spec.decoder.projection.bias = np.array([-30, -30, -4, -30, 0, 0, 0, 0], np.float32)
spec.register_source_vocabulary(TYPES)
spec.register_target_vocabulary(TYPES)
spec.config.add_source_eos = True
spec.config.decoder_start_token = "<s>"
spec.validate()
pathlib.Path("model").mkdir()
spec.save("model")

print("Python", sys.version.split()[0], "ctranslate2", ctranslate2.__version__, "numpy", np.__version__)
model = ctranslate2.Translator("model", intra_threads=1)
source = ["a", "b", "c"]
(result,) = model.translate_batch(
    [source],
    beam_size=4,
    num_hypotheses=4,
    min_decoding_length=0,
    max_decoding_length=6,
    length_penalty=0,
    return_scores=True,
)
(whole,) = model.score_batch([source], [result.hypotheses[0]])
print("best hypothesis:", *result.hypotheses[0])
returned, tokens, with_end = result.scores[0], sum(whole.log_probs[:-1]), sum(whole.log_probs)
print(f"its score {returned:.4f}; score_batch: tokens {tokens:.4f}, with the end mark {with_end:.4f}")
scored = model.score_batch([source] * 4, result.hypotheses)
rows = [
    (len(pieces), score, sum(one.log_probs))
    for pieces, score, one in zip(result.hypotheses, result.scores, scored, strict=True)
]
for length, score, log_prob in rows:
    print(f"{length} tokens: returned {score:.4f}, with the end mark {log_prob:.4f}")
is_cut = len(result.hypotheses[0]) == 6
sys.exit(0 if is_cut and abs(returned - tokens) < 1e-3 and with_end < tokens - 1 else 1)
PYTHON
