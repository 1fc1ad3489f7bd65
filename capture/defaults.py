"""What a capture does unless it is told otherwise. Importing this costs nothing."""

STEPS = 7
"""Profiled steps: a verdict of the diff needs five; two more may turn out to be cold or odd."""
