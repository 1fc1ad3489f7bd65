"""Traces of inference servers: graph replays joined with their capture, steps of the server,
layers, the time between replays, and the least time that a step can take.
"""

__all__ = [
    "answer",
    "between",
    "graphs",
    "join",
    "kv",
    "layers",
    "limit",
    "opening",
    "passes",
    "steps",
]
