"""Spares Python's collector of cycles what stays: a trace with its answer is a million objects, and
looking at all of them again takes longer than a dozen frames."""

from __future__ import annotations

import gc

YOUNG = 20_000
"""New objects between two looks at them; a frame makes some thousands, most without cycles."""


def be_patient() -> None:
    """Has the collector look less often at what is new: several times in a frame by default."""
    gc.set_threshold(YOUNG)


def settle() -> None:
    """What is there now is not looked at again until `thaw`."""
    gc.freeze()


def thaw() -> None:
    """Collects what is no longer used of all that stayed. Takes a tenth of a second or more."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
