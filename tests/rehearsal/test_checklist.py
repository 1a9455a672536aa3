"""The hour's list: its clock, when it stops, and what it says. Stand-ins take the stages' place."""

import functools
import json
from pathlib import Path

import pytest

from flaxformer_mt.diagnosis.machine import Finding
from flaxformer_mt.parallel.processes import DIED, MISSING
from flaxformer_mt.rehearsal import LIMITS, MINUTES, checklist, rehearsed
from flaxformer_mt.rehearsal.checklist import Checklist, Hour
from flaxformer_mt.rehearsal.limited import TimedStage

FINE = {"process": 0, "name": "one", "state": "ok", "text": "fine", "advice": "", "values": {}}
HOUR = Hour(config=["--config", "quickstart"], place=["--workdir", "there"], processes=[])


def printing(content: object, *, then: str = "pass") -> list[str]:
    """Words after `python -m` that print findings as `doctor --json` does, or a plan."""
    text = json.dumps(content, indent=2)
    return silent(f"print({text!r}, flush=True); {then}")


def silent(program: str) -> list[str]:
    return ["timeit", "-n1", "-r1", "-s", f"import os; {program}; os._exit(0)"]


class StandIn(Checklist):
    """Stages whose commands are given, each with a limit of some seconds."""

    def __init__(self, hour: Hour, work: Path, say, commands, limits) -> None:
        super().__init__(hour, work, say)
        self.commands, self.limits = commands, limits

    def _stages(self) -> list[TimedStage]:
        return [
            TimedStage(
                name=name, command=functools.partial(returned, words), most=self.limits[name]
            )
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
    assert any(line.startswith("steps: failed") for line in said), said
    assert not any(line.startswith("save") for line in said)


def test_a_part_that_hangs_ends_at_its_limit_and_its_last_words_are_shown(tmp_path):
    words = "import sys, time; print('at work', file=sys.stderr, flush=True); time.sleep(60)"
    (finding,), said = ended(tmp_path, {"machine": printing([], then=words)}, machine=2)
    assert (finding.state, finding.text) == ("FAIL", "stopped after 2 s")
    assert "  | at work" in said


def test_a_stage_of_the_first_process_that_finds_nothing_or_is_cut_short_fails(tmp_path):
    commands = {"machine": printing([FINE]), "steps": silent("print('[', flush=True)")}
    (_, finding), _ = ended(tmp_path, commands)
    assert (finding.name, finding.state) == ("steps", "FAIL")
    assert "without a finding" in finding.text


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
        (f"{MISSING} within 9 s\nKeyError: 1\n", "status 1"),  # they came in the last moment
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


def unfit(**changes: object) -> dict[str, object]:
    plan = dict.fromkeys(rehearsed._KEYS, 1) | {"fits": False, "topology": "v5e:2x4"}
    return plan | {"needed_bytes": 20 << 30, "hbm_bytes": 16 << 30, **changes}


@pytest.mark.parametrize(
    ("printed", "status", "state", "text", "next_stages"),
    [
        (unfit(fits=True, step_seconds=0.0183), 0, "ok", "18.3 ms a step", 1),
        (unfit(), 1, "FAIL", "it needs 20.00 of 16.00 GiB", 0),
        (None, 2, "warn", "not possible here: status 2: no such chip", 1),
    ],
)
def test_what_planning_comes_to(tmp_path, printed, status, state, text, next_stages):
    """A step that doesn't fit ends the hour; one that can't be planned here is only measured."""
    topology = FINE | {"name": "topology", "values": {"name": "v5e:2x4", "slices": 1}}
    said = f"import sys; print('no such chip', file=sys.stderr, flush=True); os._exit({status})"
    planning = printing(printed, then=said) if printed else silent(said)
    commands = {"machine": printing([topology]), "plan": planning, "steps": printing([FINE])}
    (_, plan, *others), _ = ended(tmp_path, commands)
    assert (plan.name, plan.state) == ("plan", state) and text in plan.text
    assert len(others) == next_stages


def test_hosts_that_wait_for_the_first_hear_that_its_step_does_not_fit(tmp_path):
    topology = FINE | {"name": "topology", "values": {"name": "v5e:2x4", "slices": 1}}
    machine = printing([topology, FINE | {"process": 1}])
    stopping = printing([FINE | {"name": "steps", "state": "FAIL"}])
    commands = {"machine": machine, "plan": printing(unfit()), "steps": stopping}
    findings, _ = ended(tmp_path, commands)
    assert [finding.name for finding in findings] == ["topology", "one @1", "plan", "steps"]


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
        stages=["save"],
    )
    machine, save = Checklist(hour, tmp_path, lambda _: None)._stages()
    assert machine.name == "machine" and "--plan" not in machine.command(99)
    assert list(save.command(99)) == [
        *("flaxformer_mt", "doctor", "--stage", "save", "--json", "--config", "quickstart"),
        *("--workdir", "there", "--process-id", "0", "--join-within", "79", "--plan", "plan.json"),
    ]
