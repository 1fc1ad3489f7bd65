"""macOS and Windows by simulation: what those systems do not have is taken away.

FUSETUI_LAPTOP=1 runs any tests in this way. It affects the process of the tests, not
those that it starts.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress

import pytest

MISSING = ("pread", "fork", "forkpty", "memfd_create", "set_blocking", "O_DIRECTORY")


needs_fork = pytest.mark.skipif(
    "not hasattr(os, 'fork')", reason="this system has no fork"
)


def take_away(patch: pytest.MonkeyPatch) -> None:
    """What Windows does not have; of this, macOS lacks memfd_create."""
    for name in MISSING:
        patch.delattr(os, name, raising=False)
    patch.delattr(select, "poll", raising=False)
    patch.setattr(os, "supports_fd", set())
    for name in ("fcntl", "termios"):
        patch.setitem(sys.modules, name, None)


def simulate() -> None:
    """For a whole run of the tests; what they need themselves is loaded first."""
    import tests.terminal  # noqa: F401
    import textual.drivers.linux_driver  # noqa: F401

    with suppress(ImportError):
        import filelock  # noqa: F401  (of torch.compile)
    take_away(pytest.MonkeyPatch())
