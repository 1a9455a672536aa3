"""A run's first hour on a new machine: every part of it once, in small, against the plan."""
