"""Traces of inference servers: passes of the model, layers, the time between replays,
and the least time that a step can take.
"""
