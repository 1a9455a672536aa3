"""Batches of sources on devices: their shapes, arrays, programs and schedules."""
