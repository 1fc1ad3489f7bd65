"""Calls of ops as a trace records them, complete enough to make them again."""
