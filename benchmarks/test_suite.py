"""How long the tests take: `python -m benchmarks.test_suite`, with nothing else running.

Runs `launch/local.sh test` and writes benchmarks/results/test_suite.json: pytest's own seconds, the
cases, and the twenty slowest. Arguments go to pytest.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import RESULTS
from flaxformer_mt.reproduction.result_file import this_machine, write_result

LOCAL = Path(__file__).parent.parent / "launch" / "local.sh"


def main(arguments: list[str]) -> int:
    """pytest's exit status; a failing run leaves no result."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        status = subprocess.call([str(LOCAL), "test", f"--junitxml={report}", *arguments])
        if status:
            return status
        suite = ElementTree.parse(report).getroot()[0]
    cases = {
        f"{case.get('classname')}::{case.get('name')}": float(case.get("time", 0))
        for case in suite.iter("testcase")
    }
    slowest = sorted(cases, key=cases.__getitem__, reverse=True)[:20]
    write_result(
        RESULTS / "test_suite.json",
        command=" ".join(["python -m benchmarks.test_suite", *arguments]),
        config="the default tests",
        seconds=float(suite.get("time", 0)),
        metrics={"seconds": float(suite.get("time", 0)), "cases": int(suite.get("tests", 0))},
        signatures={},
        details={name: f"{cases[name]:.1f} s" for name in slowest},
        machine=this_machine("none"),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
