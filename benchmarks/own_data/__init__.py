"""The study that `configs/files.py` is fitted to and judged by: real text, a time, two cores.

    python -m benchmarks.own_data --data FOLDER --workdir DIR --plan | --next HOURS | --record

A cell is a corpus and a number of minutes (`corpora.py`). In each, three kinds of contestants
train: the config `files` with that time, settings of our own search (`settings.py`), and peers with
their documented configs (`peers.py`). Choices look at the dev set only; `record.py` scores the test
outputs.
"""
