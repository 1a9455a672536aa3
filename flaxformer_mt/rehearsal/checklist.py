"""The first hour: all parts in order, each with its limit, until one differs from the plan.

Each part is a process of its own, `doctor --part NAME`: an accelerator belongs to one process at a
time, a part that hangs can be ended, and a resumed training really starts anew. Several hosts run
the same list. They meet in each part and leave it with the same status, so all stop together.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from flaxformer_mt.diagnosis.machine import Finding
from flaxformer_mt.parallel.processes import DIED, MISSING
from flaxformer_mt.rehearsal.limited import Running, TimedPart, allotted
from flaxformer_mt.rehearsal.rehearsed import read_plan
from flaxformer_mt.training.instruments import duration

MINUTES = 60.0
# At most so many minutes; in all an hour. Compiling big's step has taken 12 minutes of two cores.
LIMITS = {
    "machine": 8,
    "plan": 15,
    "steps": 10,
    "input": 4,
    "save": 6,
    "train": 8,
    "resume": 5,
    "decode": 4,
}
_LEAVING = 20  # seconds of a part's limit that are left once the other processes haven't come
_TAIL = 12  # last lines of the log of a part that failed


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
    parts: Sequence[str] = tuple(LIMITS)


@dataclasses.dataclass
class Checklist:
    """Runs the parts; what they write lies in the local folder `work`."""

    hour: Hour
    work: Path
    say: Callable[[str], None]
    topology: tuple[str, int] | None = None  # of the devices, once the first part has told
    is_first: bool = False  # of several processes

    def run(self) -> Iterator[Finding]:
        """The findings of all parts until one fails, each part's as soon as it has ended."""
        end = time.perf_counter() + 60 * self.hour.minutes
        parts, handed_on = self._parts(), 0.0
        for number, part in enumerate(parts):
            seconds = allotted(part, parts[number + 1 :], end - time.perf_counter())
            if seconds is None:
                yield Finding(part.name, "FAIL", "no time is left for it", "raise --minutes")
                return
            if part.name == "plan" and (reason := self._why_not_planned()):
                if self.is_first and self.hour.plan is None:
                    yield Finding("plan", "warn", reason, "give --plan: nothing is compared")
                # The first process plans while the others wait in the next part.
                handed_on = 0.0 if self.is_first else seconds
                continue
            findings, failed = self._run_part(part, seconds + handed_on)
            handed_on = 0.0
            yield from findings
            if failed:
                return

    def _run_part(self, part: TimedPart, seconds: float) -> tuple[list[Finding], bool]:
        """Its findings, and whether it failed."""
        self.say(f"{part.name}: at most {duration(seconds)}")
        running = Running(part, self.work, seconds)
        reason, taken = running.end()
        reason = reason and _in_words(running.log_text(), reason)
        if part.name == "plan":
            findings = [] if reason else [_of_plan(running.output)]
        else:
            findings = _findings(running.output)
        if part.name == "machine":
            self._learn(findings)
        failed = bool(reason) or any(finding.state == "FAIL" for finding in findings)
        if reason and not any(finding.state == "FAIL" for finding in findings):
            for line in _tail(running.log_text()):
                self.say(f"  | {line}")
            advice = "see the lines above; a part alone: `doctor --part NAME`"
            findings.append(Finding(part.name, "FAIL", reason, advice))
        verdict = "differs from what is expected" if failed else "as expected"
        self.say(f"{part.name}: {verdict}, after {duration(taken)}")
        return findings, failed

    def _learn(self, findings: Sequence[Finding]) -> None:
        self.is_first = bool(findings)  # the others print nothing
        for finding in findings:
            if finding.name == "topology" and finding.values:
                name, slices = finding.values["name"], finding.values["slices"]
                self.topology = str(name), int(slices or 1)

    def _why_not_planned(self) -> str | None:
        if self.hour.plan is not None:
            return "given"
        if not self.is_first:
            return "the first process plans"
        return None if self.topology else "no plan can be made for these devices"

    def _parts(self) -> list[TimedPart]:
        return [
            TimedPart(
                name=name,
                command=self._plan_command if name == "plan" else self._command(name),
                most=60 * minutes * self.hour.minutes / MINUTES,
            )
            for name, minutes in LIMITS.items()
            if name == "machine" or name in self.hour.parts
        ]

    def _plan_command(self, _: float) -> list[str]:
        assert self.topology is not None
        name, slices = self.topology
        where = ["--topology", name, "--slices", str(slices)]
        return ["flaxformer_mt", "plan", *self.hour.config, *where, "--json"]

    def _command(self, name: str) -> Callable[[float], list[str]]:
        def words(seconds: float) -> list[str]:
            command = ["flaxformer_mt", "doctor", "--part", name, "--json", *self.hour.config]
            command += [*self.hour.place, *self.hour.processes]
            command += ["--join-within", str(max(1, int(seconds) - _LEAVING))]
            if name != "machine" and (plan := self._plan_file()):
                command += ["--plan", plan]
            return command

        return words

    def _plan_file(self) -> str | None:
        if self.hour.plan is not None:
            return self.hour.plan
        made = self.work / "plan.out"
        return str(made) if made.exists() else None


def _tail(log: str) -> list[str]:
    """The last lines of a log, without the stacks of C++ that follow the message that counts."""
    lines = [line for line in log.splitlines() if not line.lstrip().startswith(("@ ", "*** "))]
    return lines[-_TAIL:]


def _in_words(log: str, reason: str) -> str:
    """Why a part failed, if JAX ended its process: it says so in front of a stack of C++."""
    lines = log.splitlines()
    if missing := [line for line in lines if line.startswith(MISSING)]:
        return missing[-1]
    if DIED in log:
        return "another host's process has died or can't be reached, so JAX ended this one"
    return reason


def _findings(output: Path) -> list[Finding]:
    """Those that a part has printed as JSON; none if it isn't the first process."""
    lines = output.read_text("utf-8", errors="replace").splitlines()
    # On CPUs Gloo writes to standard output, too, before them.
    if "[" not in lines:
        return []
    told: list[dict[str, Any]] = json.loads("\n".join(lines[lines.index("[") :]))
    findings = []
    for fields in told:
        number = fields.pop("process")
        finding = Finding(**fields)
        if number:
            finding = dataclasses.replace(finding, name=f"{finding.name} @{number}")
        findings.append(finding)
    return findings


def _of_plan(output: Path) -> Finding:
    plan = read_plan(str(output))
    milliseconds = 1e3 * plan["step_seconds"]
    text = f"{plan['topology']}: {milliseconds:,.1f} ms a step, by {plan['compiler']}"
    return Finding("plan", "ok", text, values={"step_seconds": plan["step_seconds"]})
