"""Tells whether the terminal is slower than the drawing."""

from __future__ import annotations

from textual.app import App

TOO_MANY = 3  # queued writes


def writer_is_behind(app: App[object]) -> bool:
    """True if output is waiting to be sent, so that a frame drawn now would be stale when it
    arrives."""
    thread = getattr(getattr(app, "_driver", None), "_writer_thread", None)
    queue = getattr(thread, "_queue", None)
    return queue is not None and queue.qsize() > TOO_MANY
