"""The records of a job: the summaries of its ranks, and the answers about the job.

A summary has everything that answers are computed from. Text, JSON, CSV and the app's
page are made from the answers.

Times of a summary are ns of the rank's own clock, `base_ns` included. Arrays are int64;
-1 means unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np
from isal import isal_zlib

from fusetui.analysis.questions.process_groups import ProcessGroup
from fusetui.analysis.why.model import IDLE
from fusetui.trace.model.arrays import Flags, Int64s

VERSION = 13  # incremented with every change of what a summary holds or means

CLASSES = ("span", "compute", "exposed_comm", "exposed_copy", "idle", *IDLE)
"""The classes of an account, in the order of the rows of `accounts` and `before`."""

MAX_COLLECTIVES = 16_384
MAX_KERNEL_NAMES = 200
MAX_STRETCHES_WITH_REGIONS = 256
"""A summary keeps at most so many collectives and names of kernels, and the code regions
before at most so many collectives. Users are told of collectives that are left out."""
MAX_NAMES_OF_A_KIND = 64
"""Before one collective, at most so many annotations, ops and Python frames each are
kept: those with the most time. Of the others, only the longest time is kept."""
REGION_KINDS = ("annotation", "op", "frame")
"""The kinds of a CodeRegion; tables in `PackedRegions` hold their indices."""


class KernelRuns(msgspec.Struct, frozen=True):
    """All runs of the kernels of one name."""

    name: str
    count: int
    total_ns: int
    communicates: bool


CodeRegion = tuple[str, str]
"""A part of the program in which a thread can be: its kind, one of REGION_KINDS, and its
name, such as ("op", "aten::mm"). With the kind `class` it is instead a class of the
account of a device, such as ("class", "compute")."""


class RegionTimes(msgspec.Struct, frozen=True):
    """How long the issuing thread was in each code region before one collective.

    It counts from the collective before to the issue of this one. A thread is in a
    region while a slice of that name is the innermost one of its kind.
    """

    ns: dict[CodeRegion, int]
    # by kind the longest time of a name that is not in `ns`; a kind of which no name is
    # left out is missing
    left_out_ns: dict[str, int]

    def min_ns_of(self, region: CodeRegion) -> int:
        """Return for how many ns the thread was certainly in a code region; 0 if it is
        not listed.

        A region is an op, a module or a Python function. Short regions are not listed.
        """
        return self.ns.get(region, 0)

    def max_ns_of(self, region: CodeRegion) -> int:
        """Return for how many ns at most the thread can have been in a code region.

        A region that is left out took no longer than the longest one of its kind that
        is left out.
        """
        kind, _ = region
        return self.ns.get(region, self.left_out_ns.get(kind, 0))


class PackedRegions(msgspec.Struct, frozen=True):
    """The code regions before the collectives of a rank, as compressed tables."""

    names: tuple[str, ...]
    # a table with the columns: index of the collective, index in REGION_KINDS, index in
    # `names`, ns; see `pack_table`
    times: bytes
    # a table with the columns: index of the collective, index in REGION_KINDS, ns,
    # which is the longest time of a name that is left out; no row where none is
    left_out: bytes

    def unpack(self) -> dict[int, RegionTimes]:
        """Return the code regions before each collective, by its index in Collectives.

        Collectives for which they are unknown are missing.
        """
        regions: dict[int, RegionTimes] = {}
        time_rows = unpack_table(self.times, TIME_COLUMNS).tolist()
        for collective, kind_index, name_index, ns in time_rows:
            before = regions.setdefault(collective, RegionTimes(ns={}, left_out_ns={}))
            region = REGION_KINDS[kind_index], self.names[name_index]
            before.ns[region] = ns

        left_out_rows = unpack_table(self.left_out, LEFT_OUT_COLUMNS).tolist()
        for collective, kind_index, ns in left_out_rows:
            regions[collective].left_out_ns[REGION_KINDS[kind_index]] = ns
        return regions


TIME_COLUMNS = 4  # of PackedRegions.times
LEFT_OUT_COLUMNS = 3  # of PackedRegions.left_out


def pack_regions(before: Mapping[int, RegionTimes]) -> PackedRegions:
    """Compress the code regions before collectives.

    `PackedRegions.unpack` turns the result back.

    Args:
        before: The regions before each collective, by its index.
    """
    # Names recur in many rows, so each is kept once and the rows have its index.
    index_of_name: dict[str, int] = {}
    time_rows: list[tuple[int, int, int, int]] = []
    left_out_rows: list[tuple[int, int, int]] = []
    for collective, regions in before.items():
        for (kind, name), ns in regions.ns.items():
            kind_index = REGION_KINDS.index(kind)
            name_index = index_of_name.setdefault(name, len(index_of_name))
            time_rows.append((collective, kind_index, name_index, ns))

        for kind, ns in regions.left_out_ns.items():
            kind_index = REGION_KINDS.index(kind)
            left_out_rows.append((collective, kind_index, ns))

    return PackedRegions(
        names=tuple(index_of_name),
        times=pack_table(np.array(time_rows, dtype=np.int64)),
        left_out=pack_table(np.array(left_out_rows, dtype=np.int64)),
    )


NO_SEQUENCE = -1
NO_PEER = -1
NO_RANK = -1
NO_DEVICE = -1
UNKNOWN_BYTES = -1
"""In place of a sequence number, a peer, a rank, a device or a size that is unknown."""


class Collectives(msgspec.Struct, frozen=True, eq=False):
    """The collectives of a rank in the order in which they were issued.

    Arrays have one entry per collective. Times are ns of the rank's clock.
    """

    group: Int64s  # index in RankSummary.groups
    name: Int64s  # index in RankSummary.names
    sequence: Int64s  # the recorded sequence number (`Seq`), else NO_SEQUENCE
    size: Int64s  # bytes as nccl-tests counts them, else UNKNOWN_BYTES
    peer: Int64s  # of a send the receiver, of a receive the sender; else NO_PEER
    issued: Int64s  # when the call that issued it began, else its start
    start: Int64s
    end: Int64s
    covered: Int64s  # for how many ns between start and end the device computed
    # when its inputs were computed: before its start where its stream was busy
    ready: Int64s
    ahead: Int64s  # for how many ns between ready and start the device computed
    # for how many ns before its end, and since ready, the device computed nothing
    stalled: Int64s
    before: bytes  # the account from the end of the collective before; see `pack_table`

    def __len__(self) -> int:
        return len(self.start)

    @property
    def has_peer(self) -> Flags:
        """Which of them are sends and receives whose other rank is recorded."""
        return np.asarray(self.peer != NO_PEER)


class RankSummary(msgspec.Struct, frozen=True, eq=False):
    """One rank. Bounded: see MAX_COLLECTIVES; some hundred kB for a usual trace."""

    version: int
    path: str
    rank: int  # NO_RANK: neither the file nor its name says
    rank_by: str  # where the rank comes from, for users
    world_size: int  # 0 if it was not recorded
    host: str
    devices: int  # listed in the file
    device: int  # whose account this is, NO_DEVICE without a GPU
    device_name: str
    begin_ns: int
    end_ns: int
    steps: tuple[str, ...]
    step_start: Int64s
    step_end: Int64s
    accounts: Int64s  # of the steps; shape [steps, CLASSES], empty without a GPU
    account: Int64s  # of the device's span; shape [CLASSES], empty without a GPU
    kernels: tuple[KernelRuns, ...]  # the longest totals
    groups: tuple[ProcessGroup, ...]
    names: tuple[str, ...]  # of collectives
    collectives: Collectives
    # numbers of the collectives that the recording cuts, ascending
    cut: tuple[int, ...]
    # renamed: caches of summaries have it as `places`
    regions: PackedRegions = msgspec.field(name="places")
    memory_peak: int  # bytes allocated, UNKNOWN_BYTES if it was not recorded
    note: str  # of a trace that was reconstructed and not recorded, else ""
    inferred: tuple[str, ...]  # what was not recorded and inferred instead; sentences
    damage: tuple[str, ...]  # what is missing of the file; sentences

    @property
    def has_number(self) -> bool:
        """Whether it is known which rank of its job this is."""
        return self.rank != NO_RANK

    def name_of(self, collective: int) -> str:
        """Return the name of the collective with this index."""
        return self.names[int(self.collectives.name[collective])]


def pack_table(table: Int64s) -> bytes:
    """Compress a table of integers of shape [n, columns] into bytes.

    It is for tables whose figures are mostly small and seldom looked at. The number of
    columns is not kept, so it has to be known to unpack the table.
    """
    return isal_zlib.compress(table.astype("<i8").tobytes(), 1)


def unpack_table(data: bytes, columns: int) -> Int64s:
    """Unpack a table of integers that was compressed into bytes.

    Args:
        data: The compressed table.
        columns: The number of its columns, which is not part of `data`.

    Returns:
        The table, of shape [n, columns]. It cannot be written to.
    """
    table = np.frombuffer(isal_zlib.decompress(data), dtype="<i8")
    return table.reshape(-1, columns)


def encode_summary(summary: RankSummary) -> bytes:
    """Encode the summary of a rank as bytes, to be cached or sent to another process.

    Equal summaries give equal bytes.
    """
    return msgspec.msgpack.encode(summary, enc_hook=_encode_array)


def _encode_array(array: Int64s) -> tuple[tuple[int, ...], bytes]:
    """Return the shape of an array and its values as bytes, for msgspec."""
    return array.shape, array.astype("<i8").tobytes()


def decode_summary(data: bytes) -> RankSummary:
    """Decode the summary of a rank from the bytes that `encode_summary` made of it.

    Raises:
        msgspec.MsgspecError: For anything else, and for a summary of another version.
    """
    summary = msgspec.msgpack.decode(data, type=RankSummary, dec_hook=_decode_array)
    if summary.version != VERSION:
        raise msgspec.ValidationError("of another version")
    return summary


def _decode_array(kind: Any, value: Any) -> Any:
    """Decode an int64 array from its shape and its bytes, for msgspec.

    Args:
        kind: The type of the field, which is always an array.
        value: The shape and the bytes, as `_encode_array` returns them.

    Raises:
        msgspec.ValidationError: If the two do not fit together.
    """
    shape, data = value
    try:
        return np.frombuffer(data, dtype="<i8").reshape(shape)
    except (ValueError, TypeError) as error:
        raise msgspec.ValidationError(str(error)) from None


class KindOfCollective(msgspec.Struct, frozen=True):
    """All collectives of one name, group and size."""

    name: str
    group: str
    ranks: int  # of the group, 0 if that is not known
    given: int  # the ranks that are given, at most
    bytes: int | None
    count: int
    wait_ns: int  # of all ranks, the mean per collective and rank, times the count
    transfer_ns: int | None  # the median
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None


class Excess(msgspec.Struct, frozen=True):
    """Work of a late rank that took longer than on the median of the other ranks.

    It is the sum over all collectives for which the rank was late.
    """

    kind: str  # class, annotation, op or frame: as in CodeRegion
    name: str
    ns: int


class Reason(msgspec.Struct, frozen=True):
    """Why a rank is late.

    A delay is `outside` if the rank was late already when its recording began, and else
    `inside`: late_ns = outside_ns + inside_ns.
    """

    # by its own work, compared with a rank that was in time, over all collectives
    late_ns: int
    outside_ns: int
    inside_ns: int
    # of an outside delay: by how much its begin is later than the earliest begin of
    # the other ranks, and the rank that has this begin
    begins_after_ns: int | None
    begins_after_rank: int | None
    has_step: bool  # whether that begin is the begin of a step
    excess: tuple[Excess, ...]  # the largest first


class MeanStepChange(msgspec.Struct, frozen=True):
    """The mean step of all ranks, in ns, if one late rank were as fast as the others."""

    rank: int
    step_ns: int  # as recorded
    replayed_ns: int  # replayed with all stretches of work as recorded
    # replayed with the stretches of this rank as long as the median of the others'
    would_be_ns: int


class JointStepChange(msgspec.Struct, frozen=True):
    """The mean step of all ranks, in ns, if several late ranks were as fast as the
    others."""

    ranks: tuple[int, ...]  # all that are to be fixed, ascending
    step_ns: int  # as recorded
    # with the stretches of these ranks as long as the median of the others'
    would_be_ns: int


class WorstWait(msgspec.Struct, frozen=True):
    """The longest wait of a rank."""

    name: str  # of the collective
    start_ns: int  # since the first slice of that rank's trace
    wait_ns: int
    for_rank: int | None  # None if clocks do not tell


class RankRow(msgspec.Struct, frozen=True):
    """One rank. Figures of steps are medians; without steps they are those of the whole
    trace."""

    rank: int
    path: str
    host: str
    device: str
    steps: int
    step_ns: int
    compute_ns: int | None  # None without a GPU, as the following
    exposed_comm_ns: int | None
    exposed_copy_ns: int | None
    idle_ns: int | None
    idle: dict[str, int]
    collectives: int
    unmatched: int
    last_count: int
    # how long others waited for it: the mean over those that did, all collectives
    caused_ns: int
    # how long it waited for others, all collectives but sends and receives
    waited_ns: int
    bubble_ns: int  # how long it waited in sends and receives
    memory_peak_bytes: int | None
    offset_ns: int | None  # None if nothing bounds it
    uncertainty_ns: int | None
    drift_ns_per_s: float
    outliers: tuple[str, ...]  # which of its figures stand out
    worst_wait: WorstWait | None  # None if it never waits
    damage: tuple[str, ...]
    inferred: tuple[str, ...]


class LeftOut(msgspec.Struct, frozen=True):
    """A file that takes no part in the answers."""

    path: str
    rank: int | None  # None where it could not be read
    reason: str  # one plain sentence


ClockSource = Literal["reference", "ends", "bounds", ""]  # "" if nothing bounds it


class HostClock(msgspec.Struct, frozen=True):
    """The clock of one host relative to the reference."""

    host: str
    ranks: int  # that are given
    by: ClockSource
    offset_ns: int | None
    uncertainty_ns: int | None
    drift_ns_per_s: float
    contradicted: bool  # the ends of collectives lie outside the bounds: these are used


class ClockAnswer(msgspec.Struct, frozen=True):
    """How far times of different ranks can be compared."""

    reference_rank: int | None
    shared: str  # why the clocks are one; "" if they are not known to be
    feasible: bool
    # the largest of all ranks; None if some rank is not bounded
    uncertainty_ns: int | None
    # on one host, differences of up to this do not decide who arrives last; None if
    # every rank has a host of its own
    on_one_host_ns: int | None
    refused: str  # why times of ranks are not compared; "" if they are
    guessed: str  # what hosts were guessed from; "" if they were recorded
    hosts: tuple[HostClock, ...]


class Slow(msgspec.Struct, frozen=True):
    """A rank of a pipeline that computes longer than the other ranks of its stage; or a
    stage that computes longer than the other stages."""

    index: int  # of the rank, or of the first one of the stage
    stage: int | None  # from 0; None where stages are not known
    stages: int
    like: tuple[int, ...]  # of a slow stage all given ranks, by their numbers
    what: str  # the class of the account that is longer
    excess_ns: int  # a step, over the median of the others
    others_ns: int  # that median


StragglerCause = Literal["inside", "outside", "untold"]


class LateStep(msgspec.Struct, frozen=True):
    """A step in which a rank delays the others."""

    name: str
    caused_ns: int  # as in RankRow, in this step


class Straggler(msgspec.Struct, frozen=True):
    """A rank that others wait for, or that is slow in a pipeline."""

    rank: int
    last_count: int  # in how many collectives it started last
    of: int  # how many collectives it took part in
    caused_ns: int  # as in RankRow
    waiters: int  # how many ranks waited
    # inside: what delays it was recorded; outside: it was late before the recording;
    # untold: what was recorded does not explain the delay
    cause: StragglerCause
    stage: int | None  # of a pipeline, from 0: it computes longer than its like
    reason: Reason  # of the late steps only
    what_if: MeanStepChange | None = None
    # by which share its kernels take longer than the same kernels of others
    slower: float | None = None
    slow: Slow | None = None
    late_steps: tuple[LateStep, ...] = ()  # () in a job without steps


class JobVerdict(msgspec.Struct, frozen=True):
    """What is to say about a job as a whole, besides its stragglers.

    `kind` says who is late if there are no stragglers: `in turn` (another rank each
    time), `untold` (no rank is to blame), `nobody`; or "" where there are stragglers or
    nothing is known.
    """

    # of a pipeline, 0 if not known; None where ranks do not send to each other
    stages: int | None
    kind: str = ""
    waits_ns: tuple[float, ...] = ()  # of each step in turn, or of the mean step untold
    in_turn: int = 0  # how many ranks are late in some step
    why: str = ""  # why it is untold
    # what fixing several late ranks saves, if it is more than fixing the best one
    if_all: JointStepChange | None = None


class JobAnswer(msgspec.Struct, frozen=True):
    """Everything about a job."""

    world_size: int | None
    given: int
    missing: tuple[int, ...]
    steps: int
    collectives: int  # that were matched
    unmatched: int
    no_group: int  # of the unmatched, those whose process group was not recorded
    one_given: int  # of the unmatched, those of groups of which one rank alone is given
    cut: int  # collectives that a recording cuts; none of them is matched or unmatched
    untold: int  # collectives of which clocks do not tell which rank was last
    clocks: ClockAnswer
    ranks: tuple[RankRow, ...]  # the one that causes most waiting first
    left_out: tuple[LeftOut, ...]
    stragglers: tuple[Straggler, ...]
    verdict: JobVerdict
    # of a pipeline: the share of a step in sends and receives alone
    bubble: float | None
    kinds: tuple[KindOfCollective, ...]
    balance: float | None  # of compute; None without a GPU
    no_what_if: str  # why there is none; "" if there is
    inferred: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all ranks of the job are given."""
        return self.world_size is not None and not self.missing
