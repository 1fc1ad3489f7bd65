"""Traces of inference servers: graph replays joined with their capture, steps of the server,
layers, the time between replays, and the least time that a step can take.
"""
