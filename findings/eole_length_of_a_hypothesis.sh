#!/usr/bin/env bash
# eole 0.6.4: the length that a score is divided by counts the begin mark beside the end mark. An output of n tokens
# and the end mark has length n + 2, under "avg" (|Y|^alpha) as under "wu" (((5 + |Y|) / 6)^alpha). A comment in
# the code says that the length is "the current length + 1, to include the EOS token", but the current length
# includes the begin mark already. OpenNMT-py, from which it stems, has the same lines.
# So the same alpha chooses other outputs than in tensor2tensor, fairseq, Marian, CTranslate2 and transformers,
# which count n + 1, and scores of exported models differ.
#
# `flaxformer_mt/decoding/penalties.py` counts the end mark only, as tensor2tensor does.
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# What its search imports, and not the rest of what eole asks for.
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6 \
    pyonmttok==1.38.1 pydantic==2.14.4 pyyaml==6.0.4 regex==2026.11.19 safetensors==0.8.0 huggingface_hub==2.4.0
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps eole==0.6.4

cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON' 2>log || { cat log >&2; exit 1; }
import importlib.metadata
import sys

import torch
from eole.predict.beam_search import BeamSearch, GNMTGlobalScorer

versions = (f"{name} {importlib.metadata.version(name)}" for name in ("torch", "eole"))
print("Python", sys.version.split()[0], *versions)
UNK, PAD, BOS, EOS, WORD, TYPES = 0, 1, 2, 3, 4, 6


def score(penalty: str, alpha: float, steps: int) -> float:
    """Of the output whose last of so many tokens, each of log-probability -1, is the end mark."""
    search = BeamSearch(
        beam_size=2, n_best=1, batch_size=1, min_length=0, max_length=20, ratio=0.0,
        pad=PAD, bos=BOS, eos=EOS, unk=UNK, start=BOS, ban_unk_token=False, exclusion_tokens=set(),
        block_ngram_repeat=0, return_attention=False, stepwise_penalty=False,
        global_scorer=GNMTGlobalScorer(alpha, 0.0, penalty, "none"),
    )
    search.initialize(torch.zeros(1, 3, 4), torch.tensor([3]))
    for step in range(1, steps + 1):
        log_probs = torch.full((2, TYPES), -9.0)
        log_probs[:, EOS if step == steps else WORD] = -1.0
        search.advance(log_probs, None)
        if any(map(any, search.is_finished_list)):
            search.update_finished()
    return float(search.scores[0][0])


wrong = 0.0
for steps in (1, 2, 4):
    average, wu = score("avg", 1.0, steps), score("wu", 0.6, steps)
    print(f"{steps - 1} tokens and the end mark, log P {-steps}: avg {average:.4f}, wu {wu:.4f}")
    length = steps + 1
    wrong = max(wrong, abs(average + steps / length), abs(wu + steps / ((5 + length) / 6) ** 0.6))
sys.exit(0 if wrong < 1e-5 else 1)
PYTHON
