"""Numbers, URLs and addresses that stay as they are.

python placeholders.py mask SOURCE TARGET
python placeholders.py translate RUN < INPUT > OUTPUT

`mask` writes SOURCE.masked and TARGET.masked: what both sides of a pair have equally often, such as
1,250 or https://example.org, becomes a placeholder, ｟1｠ to ｟9｠ in the source's order. Train on
these two files with the placeholders as symbols, as the printed command does. `translate` masks
each line, translates it with `decoding.copy_symbols`, and puts back what stood there.

To keep URLs and addresses, `flaxformer-mt translate --keep` is enough, with any model. This is for
numbers in sentences, and for a model that learns where such things go.
"""

import re
import shlex
import sys
from pathlib import Path

import flaxformer_mt as fm

PLACEHOLDERS = [f"｟{number}｠" for number in range(1, 10)]
# A full stop or comma after it ends the sentence.
VALUE = re.compile(
    r"https?://[^\s<>\"｟｠]*[^\s<>\"｟｠.,;:!?)]"  # URLs
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"  # e-mail addresses
    r"|(?<![\w@｟])\d+(?:[.,:/-]\d+)*(?![\w@｠])"  # numbers, dates, times; not in H2O or <x1/>
)
PLACEHOLDER = re.compile("|".join(PLACEHOLDERS))


def placeholders_of(values: list[str]) -> dict[str, str]:
    """A placeholder for each distinct value, for the first nine of them."""
    return dict(zip(dict.fromkeys(values), PLACEHOLDERS, strict=False))


def replaced(pattern: re.Pattern[str], line: str, table: dict[str, str]) -> str:
    """The line with what the table has for each text of this pattern, if it has it."""
    return pattern.sub(lambda match: table.get(match[0], match[0]), line)


def lines_of(content: bytes) -> list[str]:
    """The lines, which end at line feeds alone, as everywhere in parallel text."""
    return content.decode().removesuffix("\n").split("\n")


def mask_files(source: str, target: str) -> None:
    sides = [lines_of(Path(name).read_bytes()) for name in (source, target)]
    results: list[list[str]] = [[], []]
    for pair in zip(*sides, strict=True):
        src, tgt = map(VALUE.findall, pair)
        alike = placeholders_of([value for value in src if src.count(value) == tgt.count(value)])
        for result, line in zip(results, pair, strict=True):
            result.append(replaced(VALUE, line, alike))
    for name, lines in zip((source, target), results, strict=True):
        Path(f"{name}.masked").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    command = ["flaxformer-mt", "train", "--config", "files"]
    command += [f"--config.data.train={source}.masked,{target}.masked"]
    command += [f"--config.data.vocabulary.symbols={','.join(PLACEHOLDERS)}", "--workdir", "RUN"]
    print(shlex.join(command))


def translate(run: str) -> None:
    translator = fm.Translator.load(run).with_config(copy_symbols=True)
    lines = lines_of(sys.stdin.buffer.read())
    tables = [placeholders_of(VALUE.findall(line)) for line in lines]
    translations = translator.translate(
        [replaced(VALUE, line, table) for line, table in zip(lines, tables, strict=True)]
    )
    for translation, table in zip(translations, tables, strict=True):
        values = {placeholder: value for value, placeholder in table.items()}
        print(replaced(PLACEHOLDER, translation.text, values))


if __name__ == "__main__":
    if sys.argv[1] == "mask":
        mask_files(*sys.argv[2:])
    else:
        translate(*sys.argv[2:])
