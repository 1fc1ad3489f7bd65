"""Finds the work that took longer on a late rank while the others waited.

The account of its device, and the regions of its program, are compared with the median
of the other ranks before the same collective.

A cause is reported only if it was recorded. It was not if the rank was late already
when its recording began, or if what it did differently explains less than half of the
delay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from fusetui.analysis.ranks.clocks import Clocks
from fusetui.analysis.ranks.facts import JobFacts
from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.model import (
    CLASSES,
    CodeRegion,
    Excess,
    KernelRuns,
    RankSummary,
    Reason,
    RegionTimes,
    unpack_table,
)
from fusetui.trace.model.arrays import (
    NO_ROW,
    Int64s,
    Rows,
    begins_runs,
    distinct,
    value_before,
)
from fusetui.trace.model.quantiles import median, medians

MAX_PEERS = 64
"""A late rank is compared with the median of at most so many others. Of more, some are
chosen at equal distances."""
MAX_SHARE_OF_DELAY = 1.1
"""Work explains at most so many times the delay at the collective that follows it. Work
that takes longer than so many times all delays ran at the same time, and is no cause."""
MIN_SHARE_OF_DELAY = 0.5
"""Work that explains less than this share of a delay is no cause of it."""
MAX_REASONS = 8
COMPUTE = CLASSES.index("compute")
SUMS_OF_CLASSES = ("span", "idle")  # whose parts are classes of their own


class _LateBegin(msgspec.Struct, frozen=True):
    """That a rank was late already when its recording, or its step, began."""

    after_ns: int  # by how much its begin is later than the earliest of the other ranks
    after_rank: int  # the rank with that earliest begin
    is_step: bool  # whether these are begins of steps, and not of recordings


class _Difference(msgspec.Struct, frozen=True):
    """How much longer a rank was in a code region than the median of other ranks.

    The region may also be a class of the account of its device.
    """

    region: CodeRegion
    ns: int  # below 0 where the rank was there for a shorter time


def explain_lateness(facts: JobFacts, rank: int) -> Reason:
    """Explain why a rank is late.

    Only the steps count in which it holds up the others. In these steps, what it did
    before the collectives for which it was late by its own work is compared with what
    the others did. A delay that was there already when its recording began counts as
    outside.

    Args:
        facts: The ranks of the job, and what was computed from them.
        rank: The index of the rank.
    """
    matched = facts.matched
    sums = _SumsOfDelays(matched)
    outside_ns = 0
    late_begin: _LateBegin | None = None

    collectives_of_rank = matched.row[matched.rank == rank]
    first_collective = int(collectives_of_rank.min()) if len(collectives_of_rank) else 0
    for delay in _list_delays_in_late_steps(facts, rank):
        others = _find_other_rows(matched, delay.row)
        begin_of_first = None
        if matched.row[delay.row] == first_collective:
            begin_of_first = _measure_late_begin(matched, facts.clocks, delay, others)
        if begin_of_first is None:
            sums.add_delay(delay, others)
        else:
            late_begin = begin_of_first
            outside_ns += delay.ns

    return Reason(
        late_ns=sums.delay_ns + outside_ns,
        outside_ns=outside_ns,
        inside_ns=sums.delay_ns,
        begins_after_ns=late_begin.after_ns if late_begin else None,
        begins_after_rank=late_begin.after_rank if late_begin else None,
        has_step=late_begin.is_step if late_begin else False,
        excess=sums.list_largest_excess(),
    )


class _Delay(msgspec.Struct, frozen=True):
    """That a rank was late for a collective by its own work."""

    row: int  # row of Matched: the rank in this collective
    ns: int


class _SumsOfDelays:
    """Adds up what a late rank did longer than the other ranks, over all its delays."""

    def __init__(self, matched: Matched) -> None:
        """Begin without delays.

        Args:
            matched: The collectives of the job, of which `add_delay` takes rows.
        """
        self._work_before = _WorkBeforeCollectives(matched)
        self._longer_ns: Counter[CodeRegion] = Counter()
        self._explained_ns: Counter[CodeRegion] = Counter()
        self.delay_ns = 0
        """All delays together."""

    def add_delay(self, delay: _Delay, others: Rows) -> None:
        """Add a delay of the rank before one collective, and what explains it.

        It is compared for how long this rank and the others were in each region of the
        program. No region explains more than MAX_SHARE_OF_DELAY of the delay.

        Args:
            delay: The delay, with the row of the rank in the collective.
            others: The rows of the other ranks in it.
        """
        self.delay_ns += delay.ns
        max_explained_ns = round(MAX_SHARE_OF_DELAY * delay.ns)
        compared = _choose_evenly_spaced(len(others))
        compared_rows = others[compared].tolist()
        for difference in self._work_before.list_differences(delay.row, compared_rows):
            self._longer_ns[difference.region] += difference.ns
            explained_ns = min(difference.ns, max_explained_ns)
            self._explained_ns[difference.region] += explained_ns

    def list_largest_excess(self) -> tuple[Excess, ...]:
        """Return the code regions that explain most of the delays, the largest first.

        A region is an op, a module, a Python function or a class of GPU time. There are
        at most MAX_REASONS. A region that took longer by more than MAX_SHARE_OF_DELAY
        of all delays is left out: it cannot have delayed the rank for all of that time.
        """
        max_longer_ns = MAX_SHARE_OF_DELAY * max(self.delay_ns, 1)
        reasons: list[Excess] = []
        for region, explained_ns in self._explained_ns.items():
            is_possible = self._longer_ns[region] <= max_longer_ns
            if explained_ns > 0 and is_possible:
                kind, name = region
                reasons.append(Excess(kind=kind, name=name, ns=explained_ns))
        reasons.sort(key=lambda reason: -reason.ns)
        return tuple(reasons[:MAX_REASONS])


def _list_delays_in_late_steps(facts: JobFacts, rank: int) -> list[_Delay]:
    """List the delays that a rank caused in steps in which it holds up the others.

    Args:
        facts: The ranks of the job, and what was computed from them.
        rank: The index of the rank.
    """
    # For each delay: its step, and whether it is one of this rank in a late step.
    delays = facts.charged.own_delays
    step = facts.steps.step_of_row[delays.row]
    is_in_step = facts.steps.is_in_step[delays.row]
    is_of_rank = facts.matched.rank[delays.row] == rank
    is_late_step = facts.caused.is_late_in_step[rank]  # per step
    # A delay before all steps looks up the last one, which is not used.
    is_listed = is_of_rank & is_in_step & is_late_step[step]

    rows = delays.row[is_listed].tolist()
    ns_of_rows = delays.ns[is_listed].tolist()
    return [_Delay(row=row, ns=ns) for row, ns in zip(rows, ns_of_rows, strict=True)]


def _find_other_rows(matched: Matched, row: int) -> Rows:
    """Find the rows of all other ranks in the same collective as a row.

    A row is one rank in one collective, as in the table `matched`.
    """
    collective = matched.collective_of_row[row]
    first = matched.first[collective]
    end = matched.first[collective + 1]
    rows: Rows = np.arange(first, end)
    others: Rows = rows[rows != row]
    return others


def _choose_evenly_spaced(count: int) -> Rows:
    """Choose at most MAX_PEERS (64) of the indices from 0 to before `count`.

    They have equal distances: all of 10 ranks, and 0, 7, 14 ... 447 of 448.
    """
    chosen: Rows = distinct(np.linspace(0, count - 1, MAX_PEERS).astype(np.intp))
    return chosen


def _measure_late_begin(
    matched: Matched, clocks: Clocks, delay: _Delay, others: Rows
) -> _LateBegin | None:
    """Measure how late a rank was already when its step began.

    If some rank did not record the begin of that step, the begins of the recordings are
    compared instead.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        clocks: The clocks of all ranks.
        delay: The delay of the rank, with its row in a collective.
        others: The rows of the other ranks in it.

    Returns:
        The late begin; None if less than MIN_SHARE_OF_DELAY of the delay was there.
    """
    rows = np.append(delay.row, others)
    ranks = matched.rank[rows]
    summaries = [matched.ranks[rank] for rank in ranks.tolist()]
    step_begins = _find_step_begins(summaries, matched.start[rows])
    recording_begins = [summary.begin_ns for summary in summaries]
    begins = np.array(recording_begins) if step_begins is None else step_begins

    # Compare them on the clock that all ranks share. The rank itself comes first.
    common_begins = clocks.to_common_clock(ranks, begins)
    own_begin = int(common_begins[0])
    begins_of_others = common_begins[1:]
    late_ns = own_begin - median(begins_of_others)
    if late_ns < MIN_SHARE_OF_DELAY * delay.ns:
        return None

    summaries_of_others = summaries[1:]
    earliest = int(np.argmin(begins_of_others))
    return _LateBegin(
        after_ns=own_begin - int(begins_of_others[earliest]),
        after_rank=summaries_of_others[earliest].rank,
        is_step=step_begins is not None,
    )


def _find_step_begins(summaries: Sequence[RankSummary], times: Int64s) -> Int64s | None:
    """Return when each rank began the step in which it is at a time.

    Args:
        summaries: The ranks.
        times: A time for each rank, on its own clock.

    Returns:
        A begin per rank, on its own clock; None if some rank is before its first step.
    """
    begins = []
    for summary, time in zip(summaries, times.tolist(), strict=True):
        steps_begun = int(np.searchsorted(summary.step_start, time, side="right"))
        if not steps_begun:
            return None
        begins.append(summary.step_start[steps_begun - 1])
    return np.array(begins, dtype=np.int64)


class _WorkBeforeCollectives:
    """Looks up what ranks did before their collectives.

    The figures of each rank are unpacked once.
    """

    def __init__(self, matched: Matched) -> None:
        """Unpack nothing yet.

        Args:
            matched: The collectives of the job, of which the methods take rows.
        """
        self._matched = matched
        self._accounts: dict[int, Int64s] = {}
        self._regions: dict[int, dict[int, RegionTimes]] = {}
        self._previous = _find_previous_rows(matched)

    def list_differences(
        self, row: int, others: Sequence[int]
    ) -> Iterable[_Difference]:
        """List what took longer, or shorter, than on the median of the other ranks.

        Args:
            row: The row of the rank in a collective, before which to look.
            others: The rows of the other ranks in it.

        Returns:
            The differences of the classes of the account, then those of regions.
        """
        return [
            *self._compare_accounts(row, others),
            *self._compare_regions(row, others),
        ]

    def _compare_accounts(self, row: int, others: Sequence[int]) -> list[_Difference]:
        """List by how much longer the rank was in each class of time, such as compute
        or exposed communication.

        The time is that before a collective, and it is compared with the median of the
        other ranks. The sums `span` and `idle` are left out, because their parts are
        listed.

        Args:
            row: The row of the rank in a collective, before which to look.
            others: The rows of the other ranks in it.

        Returns:
            A difference per class; none at all unless all of these ranks have an
            account.
        """
        own_account = self._look_up_account(row)
        if own_account is None:
            return []
        accounts_of_others = []
        for other in others:
            account = self._look_up_account(other)
            if account is None:
                return []
            accounts_of_others.append(account)

        median_account = medians(np.array(accounts_of_others))
        longer_ns = (own_account - median_account).tolist()
        differences: list[_Difference] = []
        for name, ns in zip(CLASSES, longer_ns, strict=True):
            if name not in SUMS_OF_CLASSES:
                differences.append(_Difference(region=("class", name), ns=ns))
        return differences

    def _compare_regions(self, row: int, others: Sequence[int]) -> list[_Difference]:
        """List by how much, at least, the rank was longer in each region of its
        program.

        A region is an op, module or Python function. E.g. the rank was in `load` for 9
        ms, and the others for 2, 3 and 3 ms: the difference is 6 ms. A summary leaves
        out short regions; such a one counts as 0 for the rank itself, and for the
        others as the most that it can have taken.

        Args:
            row: The row of the rank in a collective, before which to look.
            others: The rows of the other ranks in it.

        Returns:
            A difference per region; none at all unless the regions are known for all of
            these ranks. They are kept only for the longest stretches.
        """
        own_regions = self._look_up_regions(row)
        if own_regions is None:
            return []
        regions_of_others: list[RegionTimes] = []
        for other in others:
            regions = self._look_up_regions(other)
            if regions is None:
                return []
            regions_of_others.append(regions)

        all_regions = dict.fromkeys(own_regions.ns)  # each once, in a fixed order
        for regions in regions_of_others:
            all_regions |= dict.fromkeys(regions.ns)

        differences: list[_Difference] = []
        for region in all_regions:
            most_ns_of_others = [
                regions.max_ns_of(region) for regions in regions_of_others
            ]
            ns = own_regions.min_ns_of(region) - median(most_ns_of_others)
            differences.append(_Difference(region=region, ns=ns))
        return differences

    def _look_up_account(self, row: int) -> Int64s | None:
        """Return how many ns of each class of time, such as compute or idle, a rank
        spent before a collective.

        Args:
            row: The row of the rank in the collective.

        Returns:
            ns for each of CLASSES; None without a GPU.
        """
        matched = self._matched
        rank = int(matched.rank[row])
        if rank not in self._accounts:
            compressed = matched.ranks[rank].collectives.before
            self._accounts[rank] = unpack_table(compressed, len(CLASSES))
        accounts_of_rank = self._accounts[rank]
        if not len(accounts_of_rank):
            return None
        account: Int64s = accounts_of_rank[matched.row[row]].copy()

        # Compute counts from when the inputs of the collective before were ready, to
        # when the inputs of this one are.
        previous = self._previous[row]
        if previous != NO_ROW:
            account[COMPUTE] += matched.covered[previous] + matched.ahead[previous]
            account[COMPUTE] -= matched.ahead[row]
        return account

    def _look_up_regions(self, row: int) -> RegionTimes | None:
        """Return for how long the issuing thread was in which code regions before a
        collective.

        A region is an op, a module or a Python function. Returns None if it is unknown:
        the regions are kept for the longest stretches only.

        Args:
            row: The row of the rank in the collective.
        """
        rank = int(self._matched.rank[row])
        collective = int(self._matched.row[row])
        if rank not in self._regions:
            compressed = self._matched.ranks[rank].regions
            self._regions[rank] = compressed.unpack()
        return self._regions[rank].get(collective)


def compare_kernels(
    summary: RankSummary, others: Sequence[RankSummary]
) -> float | None:
    """Compute how much longer the kernels of a rank take than those of the others.

    Kernels are compared that compute and that ran equally often on all of these ranks,
    by their names. At most MAX_PEERS of the others are used, evenly spread.

    Args:
        summary: The rank.
        others: The other ranks; at least one.

    Returns:
        0.18 for 18 % more than the median of the others; None if they do not take
        longer, or if no kernel can be compared.
    """
    kernels_of_others = []
    for index in _choose_evenly_spaced(len(others)).tolist():
        kernels_of_others.append(_select_computing_kernels(others[index]))

    own_ns = 0.0
    median_of_others_ns = 0.0
    for kernel in summary.kernels:
        totals_ns: list[int] = []
        for kernels in kernels_of_others:
            same_kernel = kernels.get(kernel.name)
            if same_kernel is not None and same_kernel.count == kernel.count:
                totals_ns.append(same_kernel.total_ns)
        ran_equally_often = len(totals_ns) == len(kernels_of_others)
        if ran_equally_often:
            own_ns += kernel.total_ns
            median_of_others_ns += float(np.median(totals_ns))

    if median_of_others_ns and own_ns > median_of_others_ns:
        return own_ns / median_of_others_ns - 1
    return None


def _select_computing_kernels(summary: RankSummary) -> dict[str, KernelRuns]:
    """Return the kernels of a rank that do not communicate, by name."""
    kernels = {}
    for kernel in summary.kernels:
        if not kernel.communicates:
            kernels[kernel.name] = kernel
    return kernels


def _find_previous_rows(matched: Matched) -> Rows:
    """Find for each row the one before it on the same rank: its collective that was
    issued before.

    A row is one rank in one collective. It is NO_ROW for the first one of a rank.
    """
    order = np.lexsort((matched.row, matched.rank))
    begins_rank = begins_runs(matched.rank[order])
    previous = np.empty(len(order), dtype=np.intp)
    previous[order] = value_before(order, begins_rank, missing=NO_ROW)
    return previous
