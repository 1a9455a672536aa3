"""What is said of a long stream, and when."""

from flaxformer_mt.progress import Meter


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_every_ten_seconds_with_the_time_left():
    clock, said = Clock(), []
    meter = Meter("translate", said.append, share=lambda size: size / 8000, clock=clock)
    meter.begin(skipped=0)
    for _ in range(6):
        clock.now += 4
        meter.advance(lines=100, tokens=1000, size=1000)
    assert said == [
        "translate: 300 lines, 25.0 lines/s, 250 tokens/s, 37.5% of the input, 0:00:20 left",
        "translate: 600 lines, 25.0 lines/s, 250 tokens/s, 75.0% of the input, 0:00:08 left",
    ]
    assert meter.describe() == "600 lines, 25.0 lines/s, 250 tokens/s"

    # What an earlier call has done counts for the share alone.
    clock = Clock()
    meter = Meter("score", print, share=lambda size: size / 8000, clock=clock)
    meter.begin(skipped=4000)
    clock.now = 3600.0
    meter.advance(lines=36, tokens=0, size=1000)
    assert meter.describe_progress() == "36 lines, 0.0 lines/s, 62.5% of the input, 3:00:00 left"


def test_on_a_terminal_one_line_is_renewed_and_an_unknown_size_has_no_share(capsys):
    clock, said = Clock(), []
    meter = Meter("translate", said.append, share=lambda size: None, terminal=True, clock=clock)
    for _ in range(3):
        clock.now += 0.15
        meter.advance(lines=1, tokens=1, size=1)
    assert meter.describe_progress() == "3 lines, 6.7 lines/s, 7 tokens/s"  # and no time left
    meter.say("a note")
    meter.close()
    written = capsys.readouterr().err
    assert written.count("\r\x1b[Ktranslate: ") == 2 and "\n" not in written
    # It is gone before anything else is said.
    assert written.endswith("\r\x1b[K") and said == ["a note"]
