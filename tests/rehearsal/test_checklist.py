"""The hour's list: its clock, when it stops, and what it says. Stand-ins take the parts' place."""

import functools
import json
from pathlib import Path

import pytest

from flaxformer_mt.diagnosis.machine import Finding
from flaxformer_mt.parallel.processes import DIED, MISSING
from flaxformer_mt.rehearsal import checklist
from flaxformer_mt.rehearsal.checklist import LIMITS, MINUTES, Checklist, Hour
from flaxformer_mt.rehearsal.limited import TimedPart

FINE = {"process": 0, "name": "one", "state": "ok", "text": "fine", "advice": "", "values": {}}
HOUR = Hour(config=["--config", "quickstart"], place=["--workdir", "there"], processes=[])


def printing(findings: list[dict[str, object]], *, then: str = "pass") -> list[str]:
    """Words after `python -m` that print these findings as `doctor --json` does."""
    text = json.dumps(findings, indent=2)
    return [
        "timeit",
        "-n1",
        "-r1",
        "-s",
        f"import os; print({text!r}, flush=True); {then}; os._exit(0)",
    ]


class StandIn(Checklist):
    """Parts whose commands are given, each with a limit of some seconds."""

    def __init__(self, hour: Hour, work: Path, say, commands, limits) -> None:
        super().__init__(hour, work, say)
        self.commands, self.limits = commands, limits

    def _parts(self) -> list[TimedPart]:
        return [
            TimedPart(name=name, command=functools.partial(returned, words), most=self.limits[name])
            for name, words in self.commands.items()
        ]


def returned(words: list[str], seconds: float) -> list[str]:
    return words


def ended(tmp_path: Path, commands, hour: Hour = HOUR, **limits: float):
    """The findings, and what was said."""
    said: list[str] = []
    limits = dict.fromkeys(commands, 60.0) | limits
    return list(StandIn(hour, tmp_path, said.append, commands, limits).run()), said


def test_all_limits_together_are_an_hour():
    assert sum(LIMITS.values()) == MINUTES == 60


def test_findings_come_from_every_part_until_one_fails(tmp_path):
    failing = FINE | {"state": "FAIL", "text": "slow"}
    commands = {"machine": printing([FINE]), "steps": printing([failing]), "save": printing([FINE])}
    findings, said = ended(tmp_path, commands)
    assert [finding.state for finding in findings] == ["ok", "FAIL"]
    assert any(line.startswith("steps: differs") for line in said), said
    assert not any(line.startswith("save") for line in said)


def test_a_part_that_hangs_ends_at_its_limit_and_its_last_words_are_shown(tmp_path):
    words = "import sys, time; print('at work', file=sys.stderr, flush=True); time.sleep(60)"
    (finding,), said = ended(tmp_path, {"machine": printing([], then=words)}, machine=2)
    assert (finding.state, finding.text) == ("FAIL", "stopped after 2 s")
    assert "  | at work" in said


def test_when_the_hour_is_over_no_part_begins(tmp_path):
    over = Hour(config=[], place=[], processes=[], minutes=-1)
    (finding,), said = ended(tmp_path, {"machine": printing([FINE])}, over)
    assert finding.state == "FAIL" and "no time is left" in finding.text and not said


def test_what_other_programs_print_first_and_other_processes_find_is_told_apart(tmp_path):
    output = tmp_path / "out"
    elsewhere = FINE | {"process": 2, "name": "input"}
    output.write_text("[Gloo] Rank 0\n" + json.dumps([FINE, elsewhere], indent=2))
    assert [finding.name for finding in checklist._findings(output)] == ["one", "input @2"]
    output.write_text("[Gloo] Rank 1 is connected\n")
    assert checklist._findings(output) == []


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (f"a\n{MISSING} within 9 s\nF1130 {DIED}\n    @ 0x7f stack\n", f"{MISSING} within 9 s"),
        (f"F1130 {DIED}. absl::Status\n    @ 0x7f\n", "another host's process has died"),
        ("KeyError: 1\n", "status 1"),
    ],
)
def test_why_jax_ended_a_process_is_said_in_words(log, reason):
    assert checklist._in_words(log, "status 1: something").startswith(reason)
    assert not any("@ 0x7f" in line for line in checklist._tail(log))


def test_the_first_process_plans_for_its_topology_and_others_wait_that_long(tmp_path):
    topology = FINE | {"name": "topology", "values": {"name": "v5e:2x4", "slices": 2}}
    first = Checklist(HOUR, tmp_path, lambda _: None)
    first._learn([Finding(**{key: value for key, value in topology.items() if key != "process"})])
    words = first._plan_command(1.0)
    assert words[words.index("--topology") + 1] == "v5e:2x4" and words[-2:] == ["2", "--json"]
    assert first._why_not_planned() is None
    commands = {name: printing([]) for name in ("machine", "plan", "steps")}
    _, said = ended(tmp_path, commands, machine=60, plan=120, steps=60)
    assert "steps: at most 0:03:00" in said and not any(line.startswith("plan") for line in said)


def test_without_a_topology_nothing_is_planned_unless_a_plan_is_given(tmp_path):
    commands = {"machine": printing([FINE]), "plan": printing([]), "steps": printing([FINE])}
    findings, _ = ended(tmp_path, commands)
    assert [finding.name for finding in findings] == ["one", "plan", "one"]
    assert findings[1].state == "warn" and "--plan" in findings[1].advice
    given = Hour(config=[], place=[], processes=[], plan="plan.json")
    assert [finding.name for finding in ended(tmp_path, commands, given)[0]] == ["one", "one"]


def test_each_parts_command_has_the_words_of_the_run(tmp_path):
    hour = Hour(
        config=["--config", "quickstart"],
        place=["--workdir", "there"],
        processes=["--process-id", "0"],
        plan="plan.json",
        parts=["save"],
    )
    machine, save = Checklist(hour, tmp_path, lambda _: None)._parts()
    assert machine.name == "machine" and "--plan" not in machine.command(99)
    assert list(save.command(99)) == [
        *("flaxformer_mt", "doctor", "--part", "save", "--json", "--config", "quickstart"),
        *("--workdir", "there", "--process-id", "0", "--join-within", "79", "--plan", "plan.json"),
    ]
