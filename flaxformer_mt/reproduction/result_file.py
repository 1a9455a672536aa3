"""The format of a measured result, NAME.json, for reports and the README's tables."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import lzma
import math
import os
import re
import typing
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
    "amx_bf16",
    "avx512_bf16",
    "avx512f",
    "avx2",
    "svebf16",
    "bf16",
    "sve2",
    "sve",
    "asimd",
)
OPTIONAL = {"details", "hypotheses", "cpu", "instructions"}


class ResultError(UserError):
    """A malformed result file; the message names the file and the key."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """The machine of a measurement. `accelerator` is "none" on a CPU; `instructions` are the
    fastest for matrix products. `cpu` and `instructions` are empty if unknown."""

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
    cpu = _first_cpu()
    flags = (cpu.get("flags") or cpu.get("Features") or "").split()
    return Machine(
        cores=processors(),
        memory_gib=round(memory, 1),
        accelerator=accelerator,
        cpu=cpu.get("model name", ""),
        instructions=next((flag for flag in _PRODUCT_INSTRUCTIONS if flag in flags), ""),
    )


def _first_cpu() -> dict[str, str]:
    """Linux's description of a CPU by its own keys; empty where there is none."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").split("\n\n")[0].splitlines()
    fields = (line.partition(":") for line in lines)
    return {key.strip(): text.strip() for key, _, text in fields}


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
    commit = git_commit()
    if not commit and not release:
        raise ResultError(f"{path}: a result needs its commit: run the benchmark in a git checkout")
    texts = _hypothesis_files(path, hypotheses or {})
    result = Result(
        name=path.stem,
        command=command,
        config=config,
        commit=commit or f"release {release}",
        machine=machine or this_machine(),
        versions=package_versions(),
        seconds=seconds,
        metrics=dict(metrics),
        signatures=dict(signatures),
        details=dict(details or {}),
        hypotheses={file: sha256(text).hexdigest() for file, text in texts.items()},
    )
    content = {
        key: value
        for key, value in dataclasses.asdict(result).items()
        if value or key not in OPTIONAL
    }
    parse(content, path)

    path.parent.mkdir(parents=True, exist_ok=True)
    _replace_hypotheses(path, texts)
    write_json(path, content)
    return result


def _hypothesis_files(path: Path, hypotheses: Mapping[str, Sequence[str]]) -> dict[str, bytes]:
    """The text of each test set's lines by the name of its file beside `path`."""
    return {
        f"{path.stem}.{test_set}.hyp.xz": "".join(f"{line}\n" for line in lines).encode()
        for test_set, lines in hypotheses.items()
    }


def _replace_hypotheses(path: Path, texts: Mapping[str, bytes]) -> None:
    for former in path.parent.glob(f"{path.stem}.*.hyp.xz"):
        if former.name not in texts:
            remove_file(former)
    for name, text in texts.items():
        write_bytes(path.with_name(name), lzma.compress(text))


def read_result(path: Path) -> Result:
    """Raises ResultError naming the file, and the line or the key."""
    try:
        return parse(read_json(path), path)
    except RunDirectoryError as error:
        raise ResultError(str(error)) from error


def read_results(folder: Path) -> list[Result]:
    """All results of a folder, by name. One malformed file is an error, not a gap."""
    return [read_result(path) for path in sorted(folder.glob("*.json"))]


def read_hypotheses(result: Result, test_set: str, folder: Path) -> list[str]:
    """The outputs for a test set that `result`, a file of `folder`, recorded. Raises ResultError
    if they are missing or differ from these."""
    path = folder / f"{result.name}.{test_set}.hyp.xz"
    try:
        text = lzma.decompress(path.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise ResultError(f"{path}: cannot be read: {error}") from error
    if sha256(text).hexdigest() != result.hypotheses.get(path.name):
        raise ResultError(f"{path}: is not what {result.name}.json recorded")
    return text.decode().split("\n")[:-1]


def parse(content: Any, path: Path) -> Result:
    """The result in the JSON value `content` of `path`. Raises ResultError naming a key."""
    checks = _Checks(path)
    checks.types(content, Result, key="")
    checks.identity(content)
    checks.metrics(content)
    checks.hypotheses(content)
    checks.signatures(content)
    return Result(**{**content, "machine": Machine(**content["machine"])})


@dataclasses.dataclass(frozen=True)
class _Checks:
    """Checks of the content of the file `path`; one that fails raises ResultError."""

    path: Path

    def require(self, holds: bool, complaint: str) -> None:
        if not holds:
            raise ResultError(f"{self.path}: {complaint}")

    def types(self, value: Any, kind: Any, *, key: str) -> None:
        """Checks a JSON value, and all within it, against the type of a field; `key` is dotted,
        and empty for the whole result."""
        if dataclasses.is_dataclass(kind):
            self._fields(value, typing.get_type_hints(kind), key=key)
        elif typing.get_origin(kind) is Mapping:
            self.require(isinstance(value, dict), f"{key} must be an object")
            _, member_kind = typing.get_args(kind)
            for name, member in value.items():
                self.types(member, member_kind, key=f"{key}.{name}")
        elif kind is str:
            is_text = isinstance(value, str) and (value != "" or key.startswith("machine."))
            self.require(is_text, f"{key} must be a string, not {value!r}")
        else:
            # Python's JSON also has NaN and Infinity, and True is an int.
            is_finite = type(value) in (int, float) and math.isfinite(value)
            self.require(is_finite, f"{key} must be a finite number, not {value!r}")

    def _fields(self, value: Any, kinds: Mapping[str, Any], *, key: str) -> None:
        subject = key or "the result"
        self.require(isinstance(value, dict), f"{subject} must be an object")
        missing = sorted(kinds.keys() - OPTIONAL - value.keys())
        unknown = sorted(value.keys() - kinds.keys())
        self.require(not missing, f"{subject} lacks: {', '.join(missing)}")
        self.require(not unknown, f"{subject} has unknown keys: {', '.join(unknown)}")
        for name, member in value.items():
            self.types(member, kinds[name], key=f"{key}.{name}" if key else name)

    def identity(self, content: Mapping[str, Any]) -> None:
        """Checks which result it is, and how and where it was measured."""
        name, commit, cores = content["name"], content["commit"], content["machine"]["cores"]
        self.require(NAME.fullmatch(name) is not None, f"name '{name}' must match {NAME.pattern}")
        self.require(
            self.path.name == f"{name}.json", f"holds '{name}': its name must be {name}.json"
        )
        for key in ("command", "config"):
            self.require(
                ABSOLUTE_PATH.search(content[key]) is None,
                f"{key} names this machine's paths; use relative ones: {content[key]}",
            )
        self.require(
            COMMIT.fullmatch(commit) is not None,
            f"commit '{commit}' is neither a full git hash nor a release",
        )
        self.require(type(cores) is int and cores > 0, "machine.cores must be a count")

    def metrics(self, content: Mapping[str, Any]) -> None:
        self.require(content["metrics"] != {}, "metrics must map names to numbers")
        for name in content["metrics"]:
            self.require(
                NAME.fullmatch(name) is not None, f"metric '{name}' must match {NAME.pattern}"
            )

    def hypotheses(self, content: Mapping[str, Any]) -> None:
        name = content["name"]
        for file in content.get("hypotheses", {}):
            self.require(
                re.fullmatch(rf"{name}\.\w[\w.-]*\.hyp\.xz", file) is not None,
                f"hypotheses '{file}': must be named {name}.SET.hyp.xz",
            )

    def signatures(self, content: Mapping[str, Any]) -> None:
        strangers = sorted(set(content["signatures"]) - set(content["metrics"]))
        self.require(not strangers, f"signatures of missing metrics: {', '.join(strangers)}")


# Other code may have trained a result than measured it; a run's record has each start's.
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
    """The code that trained the result's run and measured it; None if they are the same."""
    trained = _training_codes(result)
    measured: _Code = (result.commit, dict(result.versions))
    if all(code == measured for code in trained):
        return None

    versions = [packages for _, packages in (*trained, measured)]
    packages = sorted(set().union(*versions))
    mixed = [
        package
        for package in packages
        if len({installed.get(package) for installed in versions}) > 1
    ]

    def described(code: _Code) -> str:
        commit, installed = code
        differing = ", ".join(f"{name} {installed.get(name, 'unknown')}" for name in mixed)
        return f"{short(commit)} ({differing})" if differing else short(commit)

    trainers = ", then by ".join(map(described, trained))
    return f"trained by {trainers}; measured by {described(measured)}"


def short(commit: str) -> str:
    if commit.startswith("release"):
        return commit
    return commit[:10] + ("-dirty" if commit.endswith("-dirty") else "")


def _training_codes(result: Result) -> list[_Code]:
    codes: list[_Code] = []
    for code in json.loads(result.details.get("trained_by", "[]")):
        packages = code["packages"]
        commit = code["commit"] or f"release {packages.get('flaxformer-mt', 'unknown')}"
        codes.append((commit, packages))
    return codes
