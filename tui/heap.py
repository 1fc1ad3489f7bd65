"""Spares Python's collector of cycles what stays: a trace with its answer is a million objects, and
looking at all of them again takes longer than a dozen frames."""

from __future__ import annotations

import gc


def settle() -> None:
    """What is there now is not looked at again until `thaw`."""
    gc.freeze()


def thaw() -> None:
    """Collects what is no longer used of all that stayed. Takes a tenth of a second or more."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
