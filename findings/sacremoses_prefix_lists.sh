#!/usr/bin/env bash
# sacremoses 0.2.0: the abbreviation lists ("non-breaking prefixes") of Chinese and Cantonese are letters
# of the Latvian alphabet, and the Spanish list has entries whose UTF-8 was decoded as Latin-1. Its
# tokenizer separates Chinese characters for English, but not for Chinese.
#
# So `flaxformer_mt/abbreviations.py` takes English's list for Chinese and Cantonese.
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check sacremoses==0.2.0

"$folder/venv/bin/python" - <<'PYTHON'
import importlib.metadata
import sys

from sacremoses import MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

print("Python", sys.version.split()[0], "sacremoses", importlib.metadata.version("sacremoses"))
prefixes = NonbreakingPrefixes()
lists = {language: list(prefixes.words(language)) for language in ("zh", "yue", "lv", "es")}
for language, words in lists.items():
    print(language, len(words), "entries:", *words[:12])

latvian = "Ā Č Ē Ģ Ī Ķ Ļ Ņ Š Ū Ž".split()
in_chinese = [letter for letter in latvian if letter in lists["zh"] and letter in lists["yue"]]
print("Latvian letters in the lists of zh and yue:", *in_chinese)
broken = [word for word in lists["es"] if "Ã" in word]
print("Spanish entries decoded as Latin-1:", *broken)
tokens = {}
for language in ("zh", "en"):
    tokens[language] = MosesTokenizer(lang=language).tokenize("这是 Ā. 和 Š. 的 Mr. 文本")
    print(language, *tokens[language])

same = lists["zh"] == lists["yue"] and in_chinese == latvian and broken
same = same and tokens["zh"][:2] == ["这是", "Ā."] and tokens["en"][:2] == ["这", "是"]
sys.exit(0 if same else 1)
PYTHON
