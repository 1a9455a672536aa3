"""Whether a machine can train: what `doctor` looks at, one concern a file."""
