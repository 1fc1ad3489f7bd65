"""Tells whether the terminal is slower than the drawing."""

from __future__ import annotations

from textual.app import App


def writer_is_behind(app: App[object]) -> bool:
    """True if the thread that writes has not handed over all output yet, so that a frame drawn now
    would be stale when it arrives."""
    thread = getattr(getattr(app, "_driver", None), "_writer_thread", None)
    queue = getattr(thread, "_queue", None)
    if queue is None:
        return False
    waiting = getattr(queue.not_empty, "_waiters", True)  # for something to write
    return queue.qsize() > 0 or not waiting
