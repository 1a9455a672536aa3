"""docs/paper_to_code.md walks one line through `translate`: the code takes the same way."""

import re
import tempfile
from pathlib import Path

from flaxformer_mt.decoding.translator import Translator
from tests.decoding.runs import LINES, make_run
from tests.switches import calls_of

PAGE = Path(__file__).parents[2] / "docs" / "paper_to_code.md"
NAMED = re.compile(r"\[`([\w/]+\.py):([\w.]+)`\]")


def steps_of_the_page() -> list[tuple[str, str]]:
    """File and function of each step, in order."""
    section = PAGE.read_text().split("## One line through `translate`")[1].split("\n## ")[0]
    steps, _ = section.split("[`tests/decoding/test_walk.py")
    return [(file, name.rpartition(".")[2]) for file, name in NAMED.findall(steps)]


def test_a_line_passes_what_the_page_names_in_order():
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder) / "run", {1: 1.0})
        # A rule that no other test has: what is compiled runs once, when it is first needed.
        translator = Translator.load(run.path).with_config(patience=913.0)
        calls = calls_of(lambda: translator.translate(LINES[0]))
    passed = list(dict.fromkeys((call.file, call.function) for call in calls))
    steps = steps_of_the_page()
    assert len(steps) > 15 and [step for step in steps if step not in passed] == []
    assert [call for call in passed if call in steps] == steps
