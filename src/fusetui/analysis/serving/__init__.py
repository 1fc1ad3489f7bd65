"""Traces of inference servers: model passes, layers, the time between replays, and the
least time of a step.
"""
