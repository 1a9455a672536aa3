"""The command line: one thin file per command, the only place that wires rooms together."""
