"""The format of a measured result, NAME.json, for reports and the README's tables."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import lzma
import math
import os
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from flaxformer_mt.data.processes import processors
from flaxformer_mt.errors import UserError
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.layout import RunRecord
from flaxformer_mt.rundir.paths import read_json, remove_file, write_bytes, write_json
from flaxformer_mt.versions import git_commit, package_versions

NAME = re.compile(r"[a-z][a-z0-9_]*")
COMMIT = re.compile(r"[0-9a-f]{40}(-dirty)?|release [0-9]+\.[0-9]+\.[0-9]+")
ABSOLUTE_PATH = re.compile(r"(?:^|[\s=:'\"])(?:/|~/|[A-Za-z]:\\)")

# Linux's names of x86's and Arm's instructions for matrix products, best first.
_PRODUCT_INSTRUCTIONS = (
    *("amx_bf16", "avx512_bf16", "avx512f", "avx2"),
    *("svebf16", "bf16", "sve2", "sve", "asimd"),
)
OPTIONAL = {"details", "hypotheses", "cpu", "instructions"}


class ResultError(UserError):
    """A malformed result file; the message names the file and the key."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """What a result was measured on. `accelerator` is "none" on a CPU; `instructions` are the
    fastest for matrix products. `cpu` and they are empty if unknown."""

    cores: int
    memory_gib: float
    accelerator: str
    cpu: str = ""
    instructions: str = ""

    def __str__(self) -> str:
        if self.accelerator != "none":
            return self.accelerator
        return f"{self.cores} CPU core{'' if self.cores == 1 else 's'}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One measured result.

    `command` is as typed in the repository's root, with relative paths; `config` as `--config`
    takes it; `commit` the full hash, with "-dirty" if tracked files differed, or "release X.Y.Z";
    `seconds` the command's wall-clock time. `metrics` are finite numbers; `signatures` say how some
    were computed (sacreBLEU's strings); `details` are words. `hypotheses` maps files of
    translations beside the result, for `evaluate --hypotheses`, to their text's SHA-256.
    """

    name: str
    command: str
    config: str
    commit: str
    machine: Machine
    versions: Mapping[str, str]
    seconds: float
    metrics: Mapping[str, float]
    signatures: Mapping[str, str]
    details: Mapping[str, str] = dataclasses.field(default_factory=dict)
    hypotheses: Mapping[str, str] = dataclasses.field(default_factory=dict)


def this_machine(accelerator: str | None = None) -> Machine:
    """Cores this process may use, physical memory in GiB, and JAX's device unless one is given."""
    if accelerator is None:
        import jax

        device = jax.devices()[0]
        accelerator = "none" if device.platform == "cpu" else device.device_kind
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").split("\n\n")[0].splitlines()
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = (said.get("flags") or said.get("Features") or "").split()
    best = next((flag for flag in _PRODUCT_INSTRUCTIONS if flag in flags), "")
    name = said.get("model name", "")
    return Machine(processors(), round(memory, 1), accelerator, name, best)


def write_result(
    path: Path,
    *,
    command: str,
    config: str,
    seconds: float,
    metrics: Mapping[str, float],
    signatures: Mapping[str, str],
    details: Mapping[str, str] | None = None,
    hypotheses: Mapping[str, Sequence[str]] | None = None,
    machine: Machine | None = None,
    release: str | None = None,
) -> Result:
    """Writes `path`, named `NAME.json`, and returns its content.

    The lines of `hypotheses`, by test set, go to `NAME.SET.hyp.xz` beside it. Outside a checkout
    `release` stands for the commit. Raises ResultError, and writes nothing, for a malformed result.
    """
    commit = git_commit() or (f"release {release}" if release else None)
    if commit is None:
        raise ResultError(f"{path}: a result needs its commit: run the benchmark in a git checkout")
    texts = {
        f"{path.stem}.{of}.hyp.xz": "".join(f"{line}\n" for line in lines).encode()
        for of, lines in (hypotheses or {}).items()
    }
    result = Result(
        name=path.stem,
        command=command,
        config=config,
        commit=commit,
        machine=machine or this_machine(),
        versions=package_versions(),
        seconds=seconds,
        metrics=dict(metrics),
        signatures=dict(signatures),
        details=dict(details or {}),
        hypotheses={file: sha256(text).hexdigest() for file, text in texts.items()},
    )
    told = dataclasses.asdict(result).items()
    content = {key: value for key, value in told if value or key not in OPTIONAL}
    parse(content, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob(f"{path.stem}.*.hyp.xz"):
        if old.name not in texts:
            remove_file(old)
    for file, text in texts.items():
        write_bytes(path.with_name(file), lzma.compress(text))
    write_json(path, content)
    return result


def read_result(path: Path) -> Result:
    """Raises ResultError naming the file, and the line or the key."""
    try:
        return parse(read_json(path), path)
    except RunDirectoryError as error:
        raise ResultError(str(error)) from error


def read_results(folder: Path) -> list[Result]:
    """All results of a folder, by name. One malformed file is an error, not a gap."""
    return [read_result(path) for path in sorted(folder.glob("*.json"))]


def read_hypotheses(result: Result, of: str, folder: Path) -> list[str]:
    """The outputs for a test set that `result`, a file of `folder`, recorded. Raises ResultError
    if they are missing or differ from these."""
    path = folder / f"{result.name}.{of}.hyp.xz"
    try:
        text = lzma.decompress(path.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise ResultError(f"{path}: cannot be read: {error}") from error
    if sha256(text).hexdigest() != result.hypotheses.get(path.name):
        raise ResultError(f"{path}: is not what {result.name}.json recorded")
    return text.decode().split("\n")[:-1]


def parse(content: Any, path: Path) -> Result:
    """The result in the JSON value `content` of `path`. Raises ResultError naming a key."""

    def check(holds: bool, complaint: str) -> None:
        if not holds:
            raise ResultError(f"{path}: {complaint}")

    def typed(value: Any, kind: str, where: str) -> None:
        if kind in forms or kind.startswith("Mapping"):
            whole = where or "the result"
            check(isinstance(value, dict), f"{whole} must be an object")
            of_each = dict.fromkeys(value, kind.partition(", ")[2].removesuffix("]"))
            if kind in forms:
                of_each = {one.name: str(one.type) for one in dataclasses.fields(forms[kind])}
                missing = sorted(of_each.keys() - OPTIONAL - value.keys())
                unknown = sorted(value.keys() - of_each.keys())
                check(not missing, f"{whole} lacks: {', '.join(missing)}")
                check(not unknown, f"{whole} has unknown keys: {', '.join(unknown)}")
            for key, each in value.items():
                typed(each, of_each[key], f"{where}.{key}" if where else key)
        elif kind == "str":
            said = isinstance(value, str) and (value != "" or where.startswith("machine."))
            check(said, f"{where} must be a string, not {value!r}")
        else:
            # Python's JSON also has NaN and Infinity, and True is an int.
            finite = type(value) in (int, float) and math.isfinite(value)
            check(finite, f"{where} must be a finite number, not {value!r}")

    forms: dict[str, type[Result] | type[Machine]] = {"Result": Result, "Machine": Machine}
    typed(content, "Result", "")
    name, commit, machine, metrics = (content[k] for k in ("name", "commit", "machine", "metrics"))
    check(NAME.fullmatch(name) is not None, f"name '{name}' must match {NAME.pattern}")
    check(path.name == f"{name}.json", f"holds '{name}': its name must be {name}.json")
    for key in ("command", "config"):
        complaint = f"{key} names this machine's paths; use relative ones: {content[key]}"
        check(ABSOLUTE_PATH.search(content[key]) is None, complaint)
    complaint = f"commit '{commit}' is neither a full git hash nor a release"
    check(COMMIT.fullmatch(commit) is not None, complaint)
    check(type(machine["cores"]) is int and machine["cores"] > 0, "machine.cores must be a count")
    check(metrics != {}, "metrics must map names to numbers")
    for key in metrics:
        check(NAME.fullmatch(key) is not None, f"metric '{key}' must match {NAME.pattern}")
    for file in content.get("hypotheses", {}):
        fits = re.fullmatch(rf"{name}\.\w[\w.-]*\.hyp\.xz", file) is not None
        check(fits, f"hypotheses '{file}': must be named {name}.SET.hyp.xz")
    strangers = sorted(set(content["signatures"]) - set(metrics))
    check(not strangers, f"signatures of missing metrics: {', '.join(strangers)}")
    return Result(**{**content, "machine": Machine(**machine)})


# Other code than measured a result may have trained it; a run's record has each start's.
_Code = tuple[str, Mapping[str, str]]  # a commit or a release, and versions of packages


def trained_by(*records: RunRecord) -> dict[str, str]:
    """For a result's details: the code that started its runs, each once."""
    codes: list[dict[str, Any]] = []
    for start in (start for record in records for start in record.starts):
        code = {"commit": start.git_commit, "packages": dict(start.packages)}
        if code not in codes:
            codes.append(code)
    return {"trained_by": json.dumps(codes)}


def training_commits(result: Result) -> list[str]:
    """The commits that trained a result's runs, if known, each once."""
    return list(dict.fromkeys(short(commit) for commit, _ in _training_codes(result)))


def mixture(result: Result) -> str | None:
    """What trained the result's run, unless only what measured it."""
    trained = _training_codes(result)
    measured: _Code = (result.commit, dict(result.versions))
    if all(code == measured for code in trained):
        return None
    versions = [packages for _, packages in (*trained, measured)]
    names = sorted(set().union(*versions))
    mixed = [name for name in names if len({each.get(name) for each in versions}) > 1]

    def described(code: _Code) -> str:
        shown = ", ".join(f"{name} {code[1].get(name, 'unknown')}" for name in mixed)
        return f"{short(code[0])} ({shown})" if shown else short(code[0])

    told = ", then by ".join(map(described, trained))
    return f"trained by {told}; measured by {described(measured)}"


def short(commit: str) -> str:
    if commit.startswith("release"):
        return commit
    return commit[:10] + ("-dirty" if commit.endswith("-dirty") else "")


def _training_codes(result: Result) -> list[_Code]:
    recorded = json.loads(result.details.get("trained_by", "[]"))
    codes = [(one["commit"], one["packages"]) for one in recorded]
    return [(commit or f"release {of.get('flaxformer-mt', 'unknown')}", of) for commit, of in codes]
