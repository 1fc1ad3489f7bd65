"""What is kept of one rank: everything that the answers about a job are computed from.

Times are ns of the rank's own clock, `base_ns` included. Arrays are int64; -1 means not known.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from isal import isal_zlib

from fusetui.analysis.questions.process_groups import Group
from fusetui.analysis.why.idle_reasons import IDLE
from fusetui.trace.model.arrays import Int64s

VERSION = 4  # incremented with every change of what a summary holds or means

CLASSES = ("span", "compute", "exposed_comm", "exposed_copy", "idle", *IDLE)
"""The classes of an account, in the order of the rows of `accounts` and `before`."""

MOST_COLLECTIVES = 16_384
MOST_KERNELS = 200
MOST_PLACES = 256
"""A summary keeps at most so many collectives, names of kernels, and stretches before collectives
whose places are known; what is left out is said."""


class KernelRuns(msgspec.Struct, frozen=True):
    """All runs of the kernels of one name."""

    name: str
    count: int
    total_ns: int
    communicates: bool


class PlaceTime(msgspec.Struct, frozen=True):
    """For how long slices of one name were innermost of their kind on the issuing thread, before
    the collective `number` and since the one before it."""

    number: int
    kind: str  # annotation, op or frame
    name: str
    ns: int


class Collectives(msgspec.Struct, frozen=True, eq=False):
    """The collectives of a rank in the order in which they were issued; arrays of shape [n]."""

    group: Int64s  # index in RankSummary.groups
    name: Int64s  # index in RankSummary.names
    dtype: Int64s  # index in RankSummary.names
    sequence: Int64s  # as recorded (`Seq`), else -1
    size: Int64s  # bytes, as nccl-tests counts them: see collectives
    peer: Int64s  # of a send the receiver, of a receive the sender
    issued: Int64s
    start: Int64s
    end: Int64s
    covered: Int64s  # ns between start and end in which the device computed
    before: bytes  # the account from the end of the collective before; see `packed`

    def __len__(self) -> int:
        return len(self.start)


class RankSummary(msgspec.Struct, frozen=True, eq=False):
    """One rank. Bounded: see MOST_COLLECTIVES; some hundred kB for a usual trace."""

    version: int
    path: str
    rank: int  # -1: neither the file nor its name says
    rank_by: str  # where the rank comes from, for users
    world_size: int  # 0 if it was not recorded
    host: str
    devices: int  # listed in the file
    device: int  # whose account this is, -1 without a GPU
    device_name: str
    begin_ns: int
    end_ns: int
    steps: tuple[str, ...]
    step_start: Int64s
    step_end: Int64s
    accounts: Int64s  # of the steps; shape [steps, CLASSES], empty without a GPU
    account: Int64s  # of the device's span; shape [CLASSES], empty without a GPU
    kernels: tuple[KernelRuns, ...]  # the longest totals
    groups: tuple[Group, ...]
    names: tuple[str, ...]  # of collectives and dtypes
    collectives: Collectives
    places: tuple[PlaceTime, ...]
    memory_peak: int  # bytes allocated, -1 if it was not recorded
    note: str  # of a trace that was reconstructed and not recorded, else ""
    inferred: tuple[str, ...]  # what was not recorded and inferred instead; sentences
    damage: tuple[str, ...]  # what is missing of the file; sentences

    def name_of(self, number: int) -> str:
        """The name of a collective."""
        return self.names[int(self.collectives.name[number])]


class NoSummary(msgspec.Struct, frozen=True):
    """A file of which there is no summary, and why: one plain sentence."""

    path: str
    reason: str


def packed(accounts: Int64s) -> bytes:
    """Accounts [n, CLASSES], of which most figures are 0 and few are ever looked at."""
    return isal_zlib.compress(accounts.astype("<i8").tobytes(), 1)


def unpacked(data: bytes) -> Int64s:
    """What `packed` packed."""
    return np.frombuffer(isal_zlib.decompress(data), dtype="<i8").reshape(-1, len(CLASSES))


def encoded(summary: RankSummary) -> bytes:
    """The summary as bytes; equal summaries give equal bytes."""
    return msgspec.msgpack.encode(summary, enc_hook=_plain)


def decoded(data: bytes) -> RankSummary:
    """What `encoded` wrote. Raises msgspec.MsgspecError for anything else, or another version."""
    found = msgspec.msgpack.decode(data, type=RankSummary, dec_hook=_array)
    if found.version != VERSION:
        raise msgspec.ValidationError("of another version")
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, value.astype("<i8").tobytes()
    raise NotImplementedError


def _array(kind: Any, value: Any) -> Any:
    shape, data = value
    try:
        return np.frombuffer(data, dtype="<i8").reshape(shape)
    except (ValueError, TypeError) as error:
        raise msgspec.ValidationError(str(error)) from None
