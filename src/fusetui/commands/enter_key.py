"""Detects Enter while another program runs."""

from __future__ import annotations

import select
import sys


class EnterKey:
    """Enter on standard input, as long as that is open."""

    def __init__(self) -> None:
        self._input_ended = False

    def was_pressed(self) -> bool:
        """Return whether a line came on standard input since the last call, without
        waiting for one. Always False once standard input has ended."""
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
