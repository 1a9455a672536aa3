"""What must stay in a text is found, and nothing else."""

import random
import time

import pytest

from flaxformer_mt.keeping.spans import kept_spans

_FOUND = {
    "See https://example.org/a?b=1.": ["https://example.org/a?b=1"],
    "See HTTP://EXAMPLE.ORG/A, please": ["HTTP://EXAMPLE.ORG/A"],
    "(see https://en.wikipedia.org/wiki/A_(b)), or not": ["https://en.wikipedia.org/wiki/A_(b)"],
    "www.example.org? No!": ["www.example.org"],
    "请访问https://example.org/a。谢谢": ["https://example.org/a"],
    "https://example.org/a에서 봐요": ["https://example.org/a"],
    "https://example.org/{id}?q={q} is it": ["https://example.org/{id}?q={q}"],
    "Write to a.b+c@x-y.example.org, please": ["a.b+c@x-y.example.org"],
    "a@b and @name and 5@6": [],
    "mailto:me@example.org!": ["mailto:me@example.org"],
    "Dear {name}!": ["{name}"],
    "${x} then {{ user.name }} then {0} then {}": ["${x}", "{{ user.name }}", "{0}", "{}"],
    "{0:N2} of {total!r:>10} and {x:{width}}": ["{0:N2}", "{total!r:>10}", "{x:{width}}"],
    "{this is text} and {open, and { name }": ["{ name }"],
    "%1$s has %d of %-5.2f or %(name)s and %@": ["%1$s", "%d", "%-5.2f", "%(name)s", "%@"],
    "50% off, 50%off, 5 % of it, 100 % d": [],
    "%appname% and %{count} and #{id}": ["%appname%", "%{count}", "#{id}"],
    "{count, plural, one {# file} other {# files}} here": [
        "{count, plural, one {# file} other {# files}}"
    ],
    "{n, select, a {it's '{x}'} other {b {c}}} here": ["{n, select, a {it's '{x}'} other {b {c}}}"],
    "{n, select, a {it's '{' and ''} other {b}} here": [
        "{n, select, a {it's '{' and ''} other {b}}"
    ],
    "I am happy 🙂 and 👩‍👩‍👧 in 🇩🇪 1️⃣ ❤️": ["🙂", "👩‍👩‍👧", "🇩🇪", "1️⃣", "❤️"],
    # With a variation selector before what joins them.
    "🏳\ufe0f\u200d🌈 and ❤\ufe0f\u200d🔥 🕵\ufe0f\u200d♂\ufe0f ©\ufe0f": [
        *("🏳\ufe0f\u200d🌈", "❤\ufe0f\u200d🔥", "🕵\ufe0f\u200d♂\ufe0f", "©\ufe0f"),
    ],
    "© 2026, 1,234.56 and 10:30, #5, a/b, e.g. this": [],
}


@pytest.mark.parametrize("text", _FOUND)
def test_finds_what_must_stay(text):
    assert [span.core(text) for span in kept_spans(text)] == _FOUND[text]


@pytest.mark.parametrize(
    ("text", "outer"),
    [
        ("Press ({key}) now", "({key})"),
        ('Open "{file}" now', '"{file}"'),
        ("Version v{version} is out", "v{version}"),
        ("It has {size}MB left", "{size}MB"),
        ("This is {name}'s dog", "{name}'s"),
        ("It costs €{price} here", "€{price}"),
        ("{name}, come here", "{name},"),
        ("Come here, {name}!", ", {name}"),
        ("{w}x{h} and so on", "{w}x{h}"),
        ("{first}, {second} and so on", "{first}, {second}"),
        ("%d/%d are done", "%d/%d"),
        ("谢谢{name}的书", "{name}"),
        ("안녕 {name}님은", "{name}"),
        ("See <https://example.org>.", "https://example.org"),
    ],
)
def test_takes_what_belongs_to_it(text, outer):
    (span,) = kept_spans(text)
    assert text[span.start : span.end] == outer


_UNITS = [
    *"{ {{ {a {a,plural, } {a} {a}x '{ % %( %a %d https:// (https://a a@ a. @ ( www. a-".split(),
    *"1️ 🙂 👩‍ # € aaaaaaaaaa {a,plural,one{' ,{a} .{a} {{a}} %a. a'".split(),
]


@pytest.mark.parametrize("unit", _UNITS)
def test_takes_linear_time(unit):
    def seconds(size):
        text = unit * (size // len(unit))
        start = time.process_time()
        kept_spans(text)
        return time.process_time() - start

    short = min(seconds(10_000) for _ in range(3))
    # Quadratic time would be 64 times as long.
    assert min(seconds(80_000) for _ in range(2)) < 24 * short + 0.05


def test_spans_are_in_order_and_apart():
    rng = random.Random(1)
    parts = [*"{a} { } %d % https://x.y/?a=1 a@b.cd 🙂 . it ' ( )".split(), " ", ", "]
    for _ in range(2000):
        text = "".join(rng.choices(parts, k=rng.randrange(12)))
        end = 0
        for span in kept_spans(text):
            assert end <= span.start <= span.core_start < span.core_end <= span.end, text
            end = span.end
