"""The answers about a job, as records: text, JSON, CSV and the app's page are made from these."""

from __future__ import annotations

import msgspec

from fusetui.analysis.ranks.bandwidth import KindOfCollective
from fusetui.analysis.ranks.reasons import Reason
from fusetui.analysis.ranks.replay import WhatIf


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
    text: str  # sentences
    reason: Reason
    what_if: WhatIf | None


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
    verdict: tuple[str, ...]  # what else is to say of who is late; why nobody is named
    bubble: float | None  # of a pipeline: the share of a step in sends and receives alone
    kinds: tuple[KindOfCollective, ...]
    balance: float | None  # of compute; None without a GPU
    no_what_if: str  # why there is none; "" if there is
    inferred: tuple[str, ...]
    notes: tuple[str, ...]
