"""A run's first hour on a new machine: every stage of it once, in small, against the plan."""
