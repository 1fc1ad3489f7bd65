"""How we start another process of our own: anew, because a copy of one that has threads
may hang."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess


def started(code: str, **streams: Any) -> subprocess.Popen[bytes]:
    """A process of ours that was started anew and runs this code; its streams lead
    nowhere unless they are given. Interrupting keys reach only this process. Raises
    OSError."""
    import subprocess  # rarely needed

    nowhere = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    command = [sys.executable, "-P", "-c", code]
    return subprocess.Popen(
        command, process_group=0, bufsize=0, **{**nowhere, **streams}
    )
