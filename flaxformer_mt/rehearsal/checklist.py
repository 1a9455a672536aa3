"""The first hour: all stages in order, each with its limit, until one fails.

Each stage is a process of its own, `doctor --stage NAME`: an accelerator belongs to one process at
a time, a stage that hangs can be ended, and a resumed training really starts anew. Several hosts
run the same list, meet in every stage and leave it with the same status, so that all stop together.
Only the first one plans, and prints findings.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from flaxformer_mt.diagnosis.machine import Finding, has_failed
from flaxformer_mt.parallel.processes import DIED, MISSING
from flaxformer_mt.planning import PlanningError
from flaxformer_mt.planning.topology import TopologyName
from flaxformer_mt.rehearsal import LIMITS, MINUTES
from flaxformer_mt.rehearsal.limited import Running, TimedStage, allotted
from flaxformer_mt.rehearsal.rehearsed import read_plan
from flaxformer_mt.training.instruments import duration

_LEAVING = 20  # seconds of a stage's limit that are left once the other processes haven't come
_TAIL = 12  # last lines of the log of a stage that failed
_ELSEWHERE = " @"  # between a finding's name and the number of another process
_STAGE_ALONE = "see the lines above; `doctor --stage NAME` runs a stage alone"
_UNPLANNED = "nothing is compared: plan elsewhere, and give --plan"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hour:
    """What is rehearsed: the words of the commands, as a user would type them.

    `config` are `--config` and overrides, `place` is `--workdir` with its folder, and `processes`
    are the flags of a run of several. `plan` is a file, if the step has been planned elsewhere.
    """

    config: Sequence[str]
    place: Sequence[str]
    processes: Sequence[str]
    plan: str | None = None
    minutes: float = MINUTES
    stages: Collection[str] = tuple(LIMITS)


@dataclasses.dataclass
class Checklist:
    """Runs the stages; what they write lies in the local folder `work`."""

    hour: Hour
    work: Path
    say: Callable[[str], None]
    topology: TopologyName | None = None  # of the devices, once the first stage has told
    is_first: bool = False  # of several processes
    has_others: bool = False

    def run(self) -> Iterator[Finding]:
        """The findings of all stages until one fails, each stage's as soon as it has ended."""
        end = time.perf_counter() + 60 * self.hour.minutes
        stages, handed_on = self._stages(), 0.0
        for number, stage in enumerate(stages):
            seconds = allotted(stage, stages[number + 1 :], end - time.perf_counter())
            if seconds is None:
                yield Finding(stage.name, "FAIL", "no time is left for it", "raise --minutes")
                return
            if stage.name == "plan" and (reason := self._why_not_planned()):
                if self.is_first and self.hour.plan is None:
                    yield Finding("plan", "warn", reason, "give --plan: nothing is compared")
                # The others wait in the next stage while the first one plans.
                handed_on = 0.0 if self.is_first else seconds
                continue
            findings = self._run_stage(stage, seconds + handed_on)
            handed_on = 0.0
            yield from findings
            # The others have to hear that the step doesn't fit: they meet the first one in `steps`.
            goes_on = stage.name == "plan" and self.has_others
            if has_failed(findings) and not goes_on:
                return

    def _run_stage(self, stage: TimedStage, seconds: float) -> list[Finding]:
        self.say(f"{stage.name}: at most {duration(seconds)}")
        running = Running(stage, self.work, seconds)
        reason, taken = running.end()
        if stage.name == "plan":
            findings = _of_plan(running.output, reason)
        else:
            findings = self._of_stage(running, reason)
        verdict = "failed" if has_failed(findings) else "passed"
        self.say(f"{stage.name}: {verdict} after {duration(taken)}")
        return findings

    def _of_stage(self, running: Running, reason: str) -> list[Finding]:
        """What it has found, and why it failed, if it did and hasn't said so itself."""
        name = running.stage.name
        findings = _findings(running.output)
        if name == "machine":
            self._learn(findings)
        if self.is_first and not findings:
            reason = reason or "it ended without a finding"
        if reason and not has_failed(findings):
            log = running.log_text()
            for line in _tail(log):
                self.say(f"  | {line}")
            findings.append(Finding(name, "FAIL", _in_words(log, reason), _STAGE_ALONE))
        return findings

    def is_of_first(self, finding: Finding) -> bool:
        """Whether the first process, or the only one, has found it."""
        return _ELSEWHERE not in finding.name

    def _learn(self, findings: Sequence[Finding]) -> None:
        self.is_first = bool(findings)  # the others print nothing
        self.has_others = not all(map(self.is_of_first, findings))
        for finding in findings:
            if finding.name == "topology" and finding.values:
                name, slices = finding.values["name"], finding.values["slices"]
                self.topology = TopologyName(str(name), int(slices or 1))

    def _why_not_planned(self) -> str | None:
        if self.hour.plan is not None:
            return "given"
        if not self.is_first:
            return "the first process plans"
        return None if self.topology else "no plan can be made for these devices"

    def _stages(self) -> list[TimedStage]:
        return [
            TimedStage(
                name=name,
                command=self._plan_command if name == "plan" else self._command(name),
                most=60 * minutes * self.hour.minutes / MINUTES,
            )
            for name, minutes in LIMITS.items()
            if name == "machine" or name in self.hour.stages
        ]

    def _plan_command(self, _: float) -> list[str]:
        assert self.topology is not None
        name, slices = self.topology
        where = ["--topology", name, "--slices", str(slices)]
        return ["flaxformer_mt", "plan", *self.hour.config, *where, "--json"]

    def _command(self, name: str) -> Callable[[float], list[str]]:
        def words(seconds: float) -> list[str]:
            command = ["flaxformer_mt", "doctor", "--stage", name, "--json", *self.hour.config]
            command += [*self.hour.place, *self.hour.processes]
            # A stage that ends itself can say more than one that is ended.
            joining = max(seconds / 2, seconds - _LEAVING)
            command += ["--join-within", str(max(1, int(joining)))]
            if name != "machine" and (plan := self._plan_file()):
                command += ["--plan", plan]
            return command

        return words

    def _plan_file(self) -> str | None:
        if self.hour.plan is not None:
            return self.hour.plan
        planned = self.work / "plan.out"
        return str(planned) if planned.exists() and _read_json(planned) else None


def _tail(log: str) -> list[str]:
    """The last lines of a log, without the stacks of C++ that follow the message that counts."""
    lines = [line for line in log.splitlines() if not line.lstrip().startswith(("@ ", "*** "))]
    return lines[-_TAIL:]


def _in_words(log: str, reason: str) -> str:
    """Why a stage failed, if JAX ended its process: it says so in front of a stack of C++."""
    if DIED not in log and not reason.startswith("stopped"):
        return reason
    if missing := [line for line in log.splitlines() if line.startswith(MISSING)]:
        return missing[-1]
    if DIED in log:
        return "another host's process has died or can't be reached, so JAX ended this one"
    return reason


def _findings(output: Path) -> list[Finding]:
    """Those that a stage has printed as JSON; none if it isn't the first process."""
    findings = []
    for fields in _read_json(output) or []:
        number = fields.pop("process")
        finding = Finding(**fields)
        if number:
            finding = dataclasses.replace(finding, name=f"{finding.name}{_ELSEWHERE}{number}")
        findings.append(finding)
    return findings


def _of_plan(output: Path, reason: str) -> list[Finding]:
    """Whether a step was planned, and whether it fits; `reason` is why planning failed."""
    if _read_json(output) is None:
        return [Finding("plan", "warn", f"not possible here: {reason}", _UNPLANNED)]
    try:
        plan = read_plan(str(output))
    except PlanningError as error:
        advice = "lower data.batch.tokens, or see `plan --fit`"
        return [Finding("plan", "FAIL", str(error).removeprefix(f"--plan {output}: "), advice)]
    milliseconds = 1e3 * plan["step_seconds"]
    text = f"{plan['topology']}: {milliseconds:,.1f} ms a step, by {plan['compiler']}"
    return [Finding("plan", "ok", text, values={"step_seconds": plan["step_seconds"]})]


def _read_json(output: Path) -> Any:
    """What a command has printed as JSON; None if it printed none."""
    lines = output.read_text("utf-8", errors="replace").splitlines()
    # On CPUs Gloo writes to standard output, too, before it.
    start = next((number for number, line in enumerate(lines) if line in ("[", "{")), None)
    try:
        return None if start is None else json.loads("\n".join(lines[start:]))
    except ValueError:  # it was ended in the midst of it
        return None
