"""Pages beside other programs: our settings and flags exist, and our numbers are as they say."""

import dataclasses
import importlib
import re
import typing
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.cli.main import COMMANDS, module_of
from flaxformer_mt.config import ExperimentConfig, ScheduleConfig
from flaxformer_mt.config.freeze import field_types, is_corpora
from flaxformer_mt.training.optimizer import learning_rate
from tests.decoding.examples import decoded, sentences
from tests.docs.markdown import ROOT, prose

COMING = ROOT / "docs" / "coming_from.md"
DIFFERENCES = ROOT / "docs" / "differences.md"
PAGES = [COMING, DIFFERENCES]
CODE = re.compile(r"`([^`]+)`")
GROUPS = tuple(field.name for field in dataclasses.fields(ExperimentConfig))
SETTING = re.compile(rf"({'|'.join(GROUPS)})\.[a-z0-9_.]+(=\S+)?")


@dataclasses.dataclass(frozen=True)
class Row:
    line: int
    cells: tuple[str, ...]
    names: tuple[str, ...]  # of the columns

    @property
    def ours(self) -> str | None:
        """What the row says of this program, if it does."""
        if "here" in self.names:
            return self.cells[self.names.index("here")]
        return " ".join(self.cells[1:]) if self.cells[0] == "**here**" else None


def tables(page: Path) -> Iterator[list[Row]]:
    """Each table's rows, without its head."""
    rows: list[Row] = []
    names: tuple[str, ...] = ()
    for number, line in [*prose(page), (0, "")]:
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        if not line.startswith("|"):
            if rows:
                yield rows
            rows, names = [], ()
        elif not names:
            names = cells
        elif not set(line) <= set("|-: "):
            rows.append(Row(number, cells, names))


def kinds(cls: type = ExperimentConfig, prefix: str = "") -> dict[str, typing.Any]:
    """Dotted name -> type of every setting."""
    settings: dict[str, typing.Any] = {}
    for name, kind in field_types(cls).items():
        if dataclasses.is_dataclass(kind) and not is_corpora(kind):
            settings |= kinds(typing.cast(type, kind), f"{prefix}{name}.")
        else:
            settings[prefix + name] = kind
    return settings


def flags(command: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """What `--help` of a command explains."""
    module = importlib.import_module(f"flaxformer_mt.cli.{module_of(command)}")
    with pytest.raises(SystemExit):
        module.main(["--help"], command, COMMANDS[command])
    return set(re.findall(r"--[\w-]+", capsys.readouterr().out))


def complaint(code: str, capsys: pytest.CaptureFixture[str]) -> str | None:
    """What is wrong with a piece of code that is ours: a setting, or a command with its flags."""
    name, _, value = code.partition("=")
    if SETTING.fullmatch(code):
        if name not in (known := kinds()):
            return f"no such setting: {code}"
        choices = typing.get_args(known[name])
        is_choice = typing.get_origin(known[name]) is typing.Literal
        return f"no such value: {code}" if value and is_choice and value not in choices else None
    command, *words = code.split()
    if command not in COMMANDS:
        return f"neither a setting nor a command: {code}"
    asked = {word for word in words if word.startswith("--")}
    return f"{command} has no {asked}" if asked - flags(command, capsys) else None


def ours(page: Path) -> list[str]:
    """The code of a page that names something of this program, once each."""
    text = "\n".join(line for _, line in prose(page))
    settings = [code for code in CODE.findall(text) if SETTING.fullmatch(code)]
    cells = [row.ours for rows in tables(page) for row in rows if row.ours is not None]
    named = [*settings, *(code for cell in cells for code in CODE.findall(cell))]
    return list(dict.fromkeys(code for code in named if ".py" not in code))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_ours_is_there(page, capsys):
    complaints = [text for code in ours(page) if (text := complaint(code, capsys))]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(
    "code",
    [
        "training.schedule.peek=5e-4",
        "model.tie=some",
        "decoding",
        "translate --best-of",
        "fine-tune",
    ],
)
def test_what_is_made_up_is_found(code, capsys):
    assert complaint(code, capsys) is not None


def test_every_program_has_a_table_of_enough_keys():
    sizes = [len(rows) for rows in tables(COMING)]
    assert len(sizes) == 6 and 12 <= min(sizes) and max(sizes) <= 21
    assert all(row.ours for rows in tables(COMING) for row in rows)


def test_every_table_of_differences_ends_with_what_a_test_says_of_this_program():
    """Links to tests are checked by test_references.py."""
    compared = list(tables(DIFFERENCES))
    assert len(compared) >= 12
    for rows in compared:
        assert rows[-1].ours is not None, f"line {rows[-1].line}"
        for row in rows:
            is_tested = re.search(r"`tests/\S+::test_\w+`\]\(\.\./tests/", row.ours or "")
            assert row.ours is None or is_tested, f"line {row.line}"


STEPS = np.arange(1, 20_001)


def rates(**settings: typing.Any) -> np.ndarray:
    """Of updates 1, 2 ...; a schedule takes the number of earlier ones."""
    curve = learning_rate(ScheduleConfig(warmup_steps=4000, **settings), d_model=512)
    return np.asarray(curve(jnp.asarray(STEPS - 1)), np.float64)


def test_rates_beside_other_programs():
    """Theirs as their code has them; findings/ and tests/interop run some."""
    curve = np.minimum(STEPS / 4000, np.sqrt(4000 / STEPS))  # as a share of the peak
    recipe = rates(kind="peak", peak=5e-4)
    np.testing.assert_allclose(recipe, 5e-4 * curve, rtol=1e-5)
    assert recipe.argmax() == 3999
    # fairseq and Marian: update t has the rate of t - 1 earlier ones, and the first has 0.
    fairseq = 5e-4 * np.concatenate([[0], curve[:-1]])
    np.testing.assert_allclose(recipe[:-1], fairseq[1:], rtol=1e-5)
    assert fairseq.argmax() == 4000

    sockeye = 0.06325 * np.minimum(1, STEPS / 4000) / np.sqrt(np.maximum(STEPS, 4000))
    np.testing.assert_allclose(rates(kind="peak", peak=0.001), sockeye, rtol=1e-3)
    eole = 2.0 * 512**-0.5 * np.minimum(STEPS**-0.5, STEPS * 4000**-1.5)
    np.testing.assert_allclose(rates(factor=2.0), eole, rtol=1e-5)
    assert rates().max() == pytest.approx(7.0e-4, rel=0.01)


def test_scores_count_the_end_mark():
    """An output of n tokens has length n + 1, in both kinds of penalty."""
    lengths = set()
    for norm, penalty in (
        ("gnmt", lambda length: ((5 + length) / 6) ** 0.6),
        ("average", lambda length: length**0.6),
    ):
        for [best, *_] in decoded(sentences(12), length_norm=norm):
            expected = best.log_prob / penalty(len(best.tokens) + 1)
            assert best.score == pytest.approx(expected, rel=1e-5)
            lengths.add(len(best.tokens))
    assert len(lengths) > 3
