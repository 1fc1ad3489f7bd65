"""What a finding would have done about it, exactly enough to be replayed: see replay/worth.py.

Also any change that `fusetui whatif` takes, as its text, such as `fuse` or `loader`.
"""

from __future__ import annotations

import msgspec

from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.intervals import Cover


class Shorter(msgspec.Struct, frozen=True, eq=False):
    """Each of these GPU events or launch calls takes so much less; arrays of shape [rows]."""

    rows: Rows
    ns: Int64s


class Unmade(msgspec.Struct, frozen=True, eq=False):
    """These calls are not made: they take no time and wait for nothing."""

    rows: Rows


class Unawaited(msgspec.Struct, frozen=True, eq=False):
    """In these calls threads do not wait for the device; later work keeps its order."""

    rows: Rows


class Hurried(msgspec.Struct, frozen=True, eq=False):
    """What threads that launch do by themselves at these times (ns of the file), outside of calls
    that launch or wait, takes no time."""

    cover: Cover


Wanted = Shorter | Unmade | Unawaited | Hurried | str
