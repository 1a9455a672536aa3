"""The report of `reproduce`."""

from argparse import Namespace

from flaxformer_mt.api import say
from flaxformer_mt.cli.actions.figures import make_folder
from flaxformer_mt.reproduction.records import read_records
from flaxformer_mt.reproduction.report import report
from flaxformer_mt.rundir.paths import write_text


def write_report(options: Namespace) -> int:
    """Writes the report, or checks it; returns the exit status."""
    text = report(read_records(options.results))
    path = options.report
    if not options.check:
        make_folder(str(path.parent))
        write_text(path, text)
        say(f"{path}: written from {options.results}")
    elif not path.exists() or path.read_text("utf-8") != text:
        say(f"{path}: out of date with {options.results}: run `reproduce report`")
        return 1
    return 0
