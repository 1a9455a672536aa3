#!/usr/bin/env bash
# translate-toolkit 3.20.4: `unit.source` of a TMX or XLIFF 1.2 unit has the native codes that <ph>, <bpt> and <ept>
# hold, as if they were text: "Press <b>Enter</b>" for a segment whose text is "Press Enter". Both standards give these
# elements to codes of the original format (TMX 1.4b, section 4.2; XLIFF 1.2, section 3.2). Its placeables don't tell
# them apart either: `rich_source` of XLIFF holds them as unknown markup with the code as its text. So whoever builds
# parallel text with it trains on markup, unless the elements themselves (`source_dom`) are walked. A TMX unit of three
# languages pairs the source with whichever other comes first, unless the store is told its target language.
#
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check translate-toolkit==3.20.4

"$folder/venv/bin/python" - <<'PYTHON'
import importlib.metadata
import sys

from translate.storage import factory

print("Python", sys.version.split()[0], "translate-toolkit", importlib.metadata.version("translate-toolkit"))
codes = '<bpt {0}="1">&lt;b&gt;</bpt>{1}<ept {0}="1">&lt;/b&gt;</ept>'
tmx = f"""<tmx version="1.4"><header srclang="en" creationtool="x" creationtoolversion="1" segtype="sentence"
 o-tmf="x" adminlang="en" datatype="html"/><body>
<tu><tuv xml:lang="fr"><seg>Entrée</seg></tuv>
<tuv xml:lang="en"><seg>Press {codes.format("i", "Enter")}<ph x="2">&lt;br/&gt;</ph></seg></tuv>
<tuv xml:lang="de"><seg>{codes.format("i", "Eingabe")} drücken</seg></tuv></tu></body></tmx>"""
xliff = f"""<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="a" source-language="en" target-language="de" datatype="html"><body><trans-unit id="1">
<source>Press {codes.format("id", "Enter")}</source>
<target>{codes.format("id", "Eingabe")} drücken</target></trans-unit></body></file></xliff>"""

[unit] = factory.getclass("a.tmx").parsestring(tmx.encode()).units
print("TMX:", repr(unit.source), repr(unit.target))
[exchanged] = factory.getclass("a.xliff").parsestring(xliff.encode()).units
print("XLIFF:", repr(exchanged.source), repr(exchanged.target), exchanged.rich_source)

lasts = unit.source == "Press <b>Enter</b><br/>" and unit.target == "Entrée"
lasts = lasts and exchanged.source == "Press <b>Enter</b>"
lasts = lasts and exchanged.target == "<b>Eingabe</b> drücken"
sys.exit(0 if lasts else 1)
PYTHON
