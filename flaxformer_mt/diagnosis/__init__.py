"""Whether a machine can train: what `doctor` looks at."""
