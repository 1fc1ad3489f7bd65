"""What an allocation kept because it was not worth splitting off.

A free block reaches up to the next one that is in use, or to the end of its segment, since free
neighbors become one. So what followed an allocation when it was made tells how large its block is.
"""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Int64s, Rows

UNSPLIT = 1 << 20  # at most, that is left on a block of a large pool


class Addresses(msgspec.Struct, frozen=True, eq=False):
    """Lives by address and, of one address, by birth."""

    address: Int64s  # distinct
    key: Int64s  # of shape [lives]: the row of the address, and the birth, in one ascending number
    died: Int64s  # of shape [lives]
    span: int  # of a birth in `key`

    def next_in_use(self, since: Int64s, born: Int64s, limit: Int64s) -> Int64s:
        """The first address after `since` that was in use after the event `born`, else `limit`."""
        found, place = limit.copy(), np.searchsorted(self.address, since, side="right")
        addresses = np.append(self.address, np.iinfo(np.int64).max)
        looking = np.flatnonzero(addresses[place] < limit)
        while len(looking):
            at = place[looking]
            row = np.searchsorted(self.key, at * self.span + born[looking] + 1, side="right") - 1
            lives = (row >= 0) & (self.key[row] >= at * self.span)
            lives &= self.died[row] > born[looking]
            found[looking[lives]] = addresses[at[lives]]
            looking = looking[~lives]
            place[looking] += 1
            looking = looking[addresses[place[looking]] < limit[looking]]
        return found


def addresses(address: Int64s, born: Int64s, died: Int64s, events: int) -> Addresses:
    """Of lives, in any order."""
    order: Rows = np.lexsort((born, address))
    distinct, row = np.unique(address[order], return_inverse=True)
    key = row.astype(np.int64) * (events + 2) + born[order] + 1
    return Addresses(distinct, key, died[order], events + 2)
