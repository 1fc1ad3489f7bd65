"""What one step has more, or less, than the usual ones."""

from __future__ import annotations

import msgspec


class Piece(msgspec.Struct, frozen=True):
    """A piece of work that a step has, but usual steps lack; or, if `missing`, the reverse."""

    step: int
    missing: bool
    row: int  # of the trace; of what is missing: in the representative step
    ns: int
    word: int
    gap: int  # how many pieces of usual work come before it in the step
