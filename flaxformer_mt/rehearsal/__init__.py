"""A run's first hour on a new machine: every stage of it once, in small, against the plan."""

MINUTES = 60.0
# The stages in order, and how many minutes each may take; in all an hour.
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
FOLDER = "tpu-hour"  # below --workdir
