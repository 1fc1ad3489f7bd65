"""Detects Enter while another program runs."""

from __future__ import annotations

import select
import sys


class EnterKey:
    """Enter on standard input, as long as that is open."""

    def __init__(self) -> None:
        self._input_ended = False

    def was_pressed(self) -> bool:
        """Whether a line has come since the last call; it does not wait for one."""
        if self._input_ended:
            return False
        try:
            if not select.select([sys.stdin], [], [], 0)[0]:
                return False
            line = sys.stdin.readline()
        except (OSError, ValueError):  # it is gone, as a terminal may be
            line = ""
        self._input_ended = not line
        return bool(line)
