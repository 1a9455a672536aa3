"""The counts of `tests.readability` on small sources, and the project's own."""

import textwrap

import pytest

from tests import readability


@pytest.fixture
def function(tmp_path, monkeypatch):
    """Reads the one function of a source, as a file of the package or of the tests."""

    def read(source: str, file: str = "flaxformer_mt/file.py") -> readability.Function:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        monkeypatch.setattr(readability, "ROOT", tmp_path)
        (only,) = readability.functions([path])
        return only

    return read


@pytest.mark.parametrize(
    ("statement", "branches"),
    [
        ("return x", 0),
        ("if x: pass\n    elif y: pass\n    else: pass", 2),
        ("for n in x: pass\n    else: pass", 1),
        ("while x: pass", 1),
        ("return x and y and x or y", 3),
        ("return 1 if x else 2 if y else 3", 2),
        ("return [n for row in x if row for n in row if n if y]", 5),
        ("assert x", 1),
        ("try: x()\n    except ValueError: pass\n    except KeyError: pass", 2),
        ("match x:\n        case 1: pass\n        case _: pass", 2),
        ("return lambda z: z if x else y", 1),
    ],
)
def test_branches_count_what_a_dense_line_hides(function, statement, branches):
    assert function(f"def f(x, y):\n    {statement}\n").branches == 1 + branches


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("what = f'{x} is bad'\n    raise ValueError(f'{what}: go')", ("what",)),
        ("what = 'a' + x\n    raise ValueError(what)", ("what",)),
        ("what = 'a' if x else 'b'\n    raise ValueError(f'no {what}')", ("what",)),
        ("what = f'{x}'\n    print(what)\n    raise ValueError(what)", ()),
        ("what = x()\n    raise ValueError(what)", ()),
        ("what = f'{x}'\n    return what", ()),
    ],
)
def test_a_message_in_a_variable_of_one_use_is_cut(function, body, names):
    assert function(f"def f(x):\n    {body}\n").cut_messages == names


def test_local_names_are_assigned_ones_with_those_of_comprehensions(function):
    source = "def f(x):\n    a = b = x\n    with x as c: pass\n    return [d for d in x]\n"
    assert function(source).local_names == {"a", "b", "c", "d"}


def test_of_a_test_assertions_are_limited_and_not_branches(function):
    source = "def test_it():\n" + "    assert 1\n" * 13
    of_package, of_tests = function(source), function(source, "tests/test_file.py")
    assert list(readability.complaints(of_package)) == ["14 branches of 12"]
    assert list(readability.complaints(of_tests)) == ["13 assertions of 8"]


def test_a_function_over_each_limit_is_named(function):
    lines = "".join(f"    name{n} = x\n" for n in range(61))
    assert list(readability.complaints(function(f"def f(x):\n{lines}"))) == [
        "62 lines of 60",
        "61 local names of 25",
    ]


def test_a_public_class_name_stands_for_one_thing(tmp_path, monkeypatch):
    monkeypatch.setattr(readability, "ROOT", tmp_path)
    for file, name in (("a.py", "Plan"), ("b.py", "Plan"), ("c.py", "_Plan"), ("d.py", "Other")):
        (tmp_path / file).write_text(f"class {name}: pass\n")
    repeated = readability.repeated_classes(sorted(tmp_path.glob("*.py")))
    assert repeated == {"Plan": ["a.py", "b.py"]}


def test_shares_are_of_all_local_names(function):
    read = [function("def f(x):\n    found = data = row = line = x\n")]
    assert readability.share_of_names(read, readability.FILLER_NAMES) == 25.0
    assert readability.share_of_names(read, readability.EMPTY_NOUNS) == 25.0


def test_density_counts_code_without_comments_and_docstrings(tmp_path):
    path = tmp_path / "file.py"
    path.write_text('"""Title.\n\nText."""\n\n\ndef f(x):\n    # why\n\n    return x\n')
    lines, nodes, blank = readability.density([path])
    # Nine nodes, of which the docstring has two, in two lines of code.
    assert (lines, nodes, blank) == (9, 4.5, 25.0)


def test_at_most_ten_functions_are_left_whole_with_a_reason():
    assert len(readability.WHOLE) <= 10
    assert all(len(reason) > 10 for reason in readability.WHOLE.values())


def test_every_function_left_whole_is_there_and_over_a_limit():
    for place in readability.WHOLE:
        file, name = place.split()
        (function,) = (
            function
            for function in readability.functions([readability.ROOT / file])
            if function.name == name
        )
        assert list(readability.complaints(function))
