#!/usr/bin/env bash
# sentencepiece 0.2.3: training accepts user-defined symbols with a blank ("New York", "<target de>") and gives
# them ids, but no text is ever encoded to them: the encoder turns blanks into "▁" before it looks for symbols.
# The same symbol spelled with "▁" is found. The Python documentation doesn't say so, and the maintainer's
# answer to issue 459 ("How to deal with space in custom symbols?") gives 'FOO bar' as an example that works.
#
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check sentencepiece==0.2.3

"$folder/venv/bin/python" - <<'PYTHON'
import importlib.metadata
import io
import itertools
import sys

import sentencepiece

print("Python", sys.version.split()[0], "sentencepiece", importlib.metadata.version("sentencepiece"))
nouns = ["house", "train", "river", "garden", "station", "New York"]
lines = [
    f"<target de> the {first} near the {second} in New York"
    for first, second in itertools.product(nouns, nouns)
] * 20
text = "<target de> the train in New York"
found = {}
for kind, blank in itertools.product(("bpe", "unigram"), (" ", "▁")):
    symbols = [f"<target{blank}de>", f"New{blank}York"]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type=kind, vocab_size=48,
        user_defined_symbols=symbols, hard_vocab_limit=False, minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = processor.encode(text, out_type=str)
    ids = [processor.piece_to_id(symbol) for symbol in symbols]
    found[kind, blank] = [symbol in pieces for symbol in symbols]
    print(kind, "symbols", symbols, "ids", ids, "decoded", [processor.decode([id]) for id in ids])
    print("   ", text, "->", pieces)
    assert processor.unk_id() not in ids

same = all(found[kind, " "] == [False, False] for kind in ("bpe", "unigram"))
same = same and all(found[kind, "▁"] == [True, True] for kind in ("bpe", "unigram"))
sys.exit(0 if same else 1)
PYTHON
