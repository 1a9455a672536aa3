"""Loss, schedule, optimizer, state, step, loop, telemetry."""
