"""Where a result comes from: its machine, and by which code its run was trained.

That is not always the code that measured it, which the result names. A run's record has the commit
and the versions of each start; on what machine it was is not known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flaxformer_mt.reproduction.result_file import Machine, Result
from flaxformer_mt.rundir.layout import RunRecord

_Code = tuple[str, Mapping[str, str]]  # a commit or a release, and versions of packages


def short(commit: str) -> str:
    """Still telling of changes that were not committed; a release as it is."""
    if commit.startswith("release"):
        return commit
    return commit[:10] + ("-dirty" if commit.endswith("-dirty") else "")


def machine(found: Machine) -> str:
    if found.accelerator != "none":
        return found.accelerator
    return f"{found.cores} CPU core{'' if found.cores == 1 else 's'}"


def training_details(record: RunRecord, goodput: Mapping[str, Any], devices: int) -> dict[str, str]:
    """For a result's details: whatever code started its run, and what `device_hours` assumes."""
    starts = f"{goodput['starts']} start{'' if goodput['starts'] == 1 else 's'}"
    return {
        **trained_by(record),
        "device_hours": f"wall time of {starts}, times the devices of the process that measured: "
        f"{devices}",
    }


def trained_by(*records: RunRecord) -> dict[str, str]:
    """For a result's details: whatever code started its runs, each once."""
    codes: list[dict[str, Any]] = []
    for start in (start for record in records for start in record.starts):
        code = {"commit": start.git_commit, "packages": dict(start.packages)}
        if code not in codes:
            codes.append(code)
    return {"trained_by": json.dumps(codes)}


def training_commits(result: Result) -> list[str]:
    """What trained a result's runs, in short: each commit once; none where that is not told."""
    return list(dict.fromkeys(short(commit) for commit, _ in _training_codes(result)))


def mixture(result: Result) -> str | None:
    """What trained the result's run where that is not, or not alone, what measured it."""
    trained = _training_codes(result)
    measured: _Code = (result.commit, dict(result.versions))
    if all(code == measured for code in trained):
        return None
    versions = [packages for _, packages in (*trained, measured)]
    mixed = {
        name
        for packages in versions
        for name in packages
        if any(other.get(name) != packages[name] for other in versions)
    }
    told = ", then by ".join(_described(code, mixed) for code in trained)
    return f"trained by {told}; measured by {_described(measured, mixed)}"


def _training_codes(result: Result) -> list[_Code]:
    """Without a commit as a result names what was no checkout: by its release."""
    return [
        (
            code["commit"] or f"release {code['packages'].get('flaxformer-mt', 'unknown')}",
            code["packages"],
        )
        for code in json.loads(result.details.get("trained_by", "[]"))
    ]


def _described(code: _Code, packages: set[str]) -> str:
    commit, versions = code
    shown = [f"{name} {versions.get(name, 'unknown')}" for name in sorted(packages)]
    return f"{short(commit)} ({', '.join(shown)})" if shown else short(commit)
