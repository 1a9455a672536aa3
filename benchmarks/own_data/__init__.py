"""The study that `configs/files.py` is fitted to and judged by: real text, a time, two cores.

    python -m benchmarks.own_data --data FOLDER --workdir DIR --plan | --next HOURS | --record

A cell is a corpus and a number of minutes (`corpora.py`). In each, three kinds of contestants
train: the config `files` with that time, settings of our own search (`settings.py`), and peers with
their documented configs (`peers.py`). Choices look at the dev set only; `record.py` scores the test
outputs.

DIR keeps a record of each trial (`trials/`), its outputs, and what it trained (`runs/`). A trial
that has a record is not run again: to measure `files` anew, delete `trials/*.ours.*` and
`runs/*/ours_*`.

Run it on a machine that does nothing else. Where that can't be, `--idle` works on the search alone,
at idle priority, and limits CPU seconds instead of time. `files` and the peers need the machine for
themselves: `files` plans its minutes by timing steps, and PyTorch's threads use up CPU seconds
while they wait for each other.
"""
