"""The answers about a job: text, JSON, CSV and the app's page are made from these."""

from __future__ import annotations

import msgspec


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
    """What took longer than on the median of the other ranks, over all collectives it was late
    for."""

    kind: str  # class, annotation, op or frame
    name: str
    ns: int


class Reason(msgspec.Struct, frozen=True):
    """Why a rank is late. late_ns = outside_ns + inside_ns."""

    late_ns: int  # by its own work, beside a rank that was in time, over all collectives
    outside_ns: int  # of those for which it was late already where its window begins
    inside_ns: int
    begins_after_ns: int | None  # where outside: its begin after the earliest other's
    begins_after_rank: int | None
    has_step: bool  # whether that begin is a step's
    excess: tuple[Excess, ...]  # the largest first


class WhatIf(msgspec.Struct, frozen=True):
    """The mean step of all ranks, in ns."""

    rank: int
    step_ns: int  # as recorded
    replayed_ns: int  # with all stretches as recorded
    would_be_ns: int  # with the stretches of this rank as long as the median of the others'


class WorstWait(msgspec.Struct, frozen=True):
    """The longest wait of a rank."""

    name: str  # of the collective
    start_ns: int  # since the first slice of that rank's trace
    wait_ns: int
    for_rank: int | None  # None if clocks do not tell


class RankRow(msgspec.Struct, frozen=True):
    """One rank. Figures of steps are medians; without steps they are those of the whole trace."""

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
    caused_ns: int  # how long others waited for it: the mean over those that did, all collectives
    waited_ns: int  # how long it waited for others, all collectives but sends and receives
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
    rank: int | None
    reason: str


class HostClock(msgspec.Struct, frozen=True):
    """The clock of one host beside that of the reference."""

    host: str
    ranks: int  # that are given
    by: str  # reference, ends, bounds; "" if nothing bounds it
    offset_ns: int | None
    uncertainty_ns: int | None
    drift_ns_per_s: float
    contradicted: bool  # the ends of collectives lie outside the bounds: these are used


class ClockAnswer(msgspec.Struct, frozen=True):
    """How far times of different ranks can be compared."""

    reference_rank: int | None
    shared: str  # why the clocks are one; "" if they are not known to be
    feasible: bool
    uncertainty_ns: int | None  # the largest of all ranks; None if some rank is not bounded
    refused: str  # why times of ranks are not compared; "" if they are
    guessed: str  # what hosts were guessed from; "" if they were recorded
    hosts: tuple[HostClock, ...]


class Slow(msgspec.Struct, frozen=True):
    """A rank of a pipeline that computes longer than the other ranks of its stage; or a stage that
    computes longer than the other stages."""

    index: int  # of the rank, or of the first one of the stage
    stage: int | None  # from 0; None where stages are not known
    stages: int
    like: tuple[int, ...]  # of a slow stage all given ranks, by their numbers
    what: str  # the class of the account that is longer
    excess_ns: int  # a step, over the median of the others
    others_ns: int  # that median


class Straggler(msgspec.Struct, frozen=True):
    """A rank that others wait for. `cause`: inside (it was recorded), outside (it was not), untold
    (what was recorded does not explain the delay)."""

    rank: int
    last_count: int
    of: int  # how many collectives it took part in
    caused_ns: int
    waiters: int  # how many ranks waited
    cause: str
    stage: int | None  # of a pipeline, from 0: it computes longer than its like
    reason: Reason
    what_if: WhatIf | None = None
    slower: float | None = None  # by how much its kernels take longer than the same of others
    slow: Slow | None = None


class JobVerdict(msgspec.Struct, frozen=True):
    """What else is to say of who is late. `kind`: in turn (another rank in each step), untold,
    nobody, or "" where somebody is named or nothing is known."""

    stages: int | None  # of a pipeline, 0 if not known; None where ranks do not send to each other
    kind: str = ""
    waits_ns: tuple[float, ...] = ()  # of each step in turn, or of the mean step untold
    in_turn: int = 0  # ranks
    why: str = ""  # it is untold


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
    untold: int  # collectives of which clocks do not tell which rank was last
    clocks: ClockAnswer
    ranks: tuple[RankRow, ...]  # the one that causes most waiting first
    left_out: tuple[LeftOut, ...]
    stragglers: tuple[Straggler, ...]
    verdict: JobVerdict
    bubble: float | None  # of a pipeline: the share of a step in sends and receives alone
    kinds: tuple[KindOfCollective, ...]
    balance: float | None  # of compute; None without a GPU
    no_what_if: str  # why there is none; "" if there is
    inferred: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all ranks of the job are given."""
        return self.world_size is not None and not self.missing
