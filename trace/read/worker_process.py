"""A worker that runs in a process of its own: see workers.py."""

from __future__ import annotations

import gc
import sys

from fusetui.trace.read.workers import work

if __name__ == "__main__":
    gc.disable()
    work(*map(int, sys.argv[1:]))
