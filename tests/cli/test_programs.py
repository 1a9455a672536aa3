"""Which commands keep what they compile for the next call."""

import pytest

import flaxformer_mt as fm
from flaxformer_mt.cli.main import COMMANDS, main
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.parallel import compile_cache

ARGUMENTS = {
    "demo": "--workdir NEW",
    "quickstart": "--workdir NEW",
    "train": "--workdir NEW --config quickstart",
    "translate": "--workdir RUN --input TEXT",
    "score": "--workdir RUN --input TEXT",
    "evaluate": "--workdir RUN --src TEXT --ref TEXT",
    "attention": "--workdir RUN --src a --output NEW.svg",
    "serve": "--workdir RUN",
    "reproduce": "table3 --workdir NEW --only base --folder HERE --corpus mine "
    "--train text text --valid text text --test text text",
    "doctor": "",
    "export": "--workdir RUN --format stablehlo --output NEW",
    "import": "--from RUN --workdir NEW",
}
WITHOUT_PROGRAMS = {"prepare", "average", "trees", "compare", "figures", "plan", "config"}


class Kept(BaseException):
    """Ends a command where it would compile."""


@pytest.fixture
def kept(monkeypatch):
    def keep(folder):
        raise Kept

    monkeypatch.setattr(compile_cache, "keep_compiled", keep)
    keep_programs.cache_clear()


def test_all_commands_are_here():
    assert ARGUMENTS.keys() | WITHOUT_PROGRAMS == COMMANDS.keys()


@pytest.mark.parametrize("command", ARGUMENTS)
def test_commands_that_compile_keep_their_programs(command, tmp_path, kept):
    places = {
        "RUN": tmp_path / "run",
        "NEW": tmp_path / "new",
        "TEXT": tmp_path / "text",
        "HERE": tmp_path,
    }
    fm.demo_run(places["RUN"])
    places["TEXT"].write_text("a\tb\n", encoding="utf-8")
    arguments = ARGUMENTS[command]
    for name, place in places.items():
        arguments = arguments.replace(name, str(place))
    with pytest.raises(Kept):
        main([command, *arguments.split()])
