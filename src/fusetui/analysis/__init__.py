"""Conclusions from a trace: why the GPU is idle, what changed, which rank is late, what
limits a server."""
