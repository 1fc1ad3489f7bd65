"""Rules about the clocks and the power of the GPU while kernels ran.

They are silent unless counters were recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.device_counters import (
    CLOCK,
    POWER,
    read_device_counters,
)
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels, choose_heaviest_rows
from fusetui.analysis.why.rule import Claim, Rule, format_share_of_work
from fusetui.text.figures import count, percent, plural
from fusetui.trace.model.arrays import Flags, Floats, Int64s, Rows, distinct_rows
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.sorted_arrays import count_below, count_until

MIN_RUNS: Final = 20
"""A kernel with fewer runs is not judged."""
MIN_FAST_RUNS: Final = 5
"""Nor is one with fewer runs near the highest clock: their median is its usual time."""
MIN_CLOCK_DROP_SHARE: Final = 0.05
"""By how much clocks must differ to count, as a share of the highest."""
MAX_DROP_OF_HIGHEST: Final = 0.02
"""A clock that is lower by this share of the highest, or less, counts as the highest.
"""
MIN_T_STATISTIC: Final = 4.0
"""From this t statistic of the rank correlation on, it is no chance."""
MIN_SHARE_OF_HIGHEST_POWER: Final = 0.97
"""From this share of the highest power on, a kernel runs at the highest power."""
CAPPED_SHARE: Final = 0.2
"""Capped kernels are worth a claim from this share of the compute time on."""


@Rule(
    remedy="Find out what lowers the clock ({nvidia:nvidia-smi -q -d "
    "PERFORMANCE|amd:amd-smi metric|:power and temperature limits}). Lock "
    "the clock to compare measurements.",
    thresholds={
        "fewest": MIN_RUNS,
        "varies": MIN_CLOCK_DROP_SHARE,
        "near": MAX_DROP_OF_HIGHEST,
        "certain": MIN_T_STATISTIC,
    },
    of_kernels=True,
    without_gpu=True,  # silent without counters, and so without GPU events
)
def clock_drop(facts: Facts) -> Iterator[Claim]:
    """Report runs of kernels that took longer at a lower clock than others.

    They are compared with runs of the same kernel on the same shapes. At stake is how
    much longer they took, as far as the lower clock explains it, added up.
    """
    kernels = facts.kernels
    clock_mhz = average_over_kernels(kernels, CLOCK)
    slower = find_slower_runs(kernels, clock_mhz)
    at_stake_ns = int(slower.lost_ns.sum())
    if not at_stake_ns:
        return

    low_mhz = round(np.median(clock_mhz[slower.kernels]))
    high_mhz = round(np.median(slower.highest_mhz))

    yield Claim(
        text=f"{plural(len(slower.kernels), 'run')} of {plural(slower.names, 'kernel')} took an "
        f"estimated {format_share_of_work(facts, at_stake_ns)} longer at a lower SM clock: "
        f"{count(low_mhz)} instead of {count(high_mhz)} MHz (medians).",
        at_stake_ns=at_stake_ns,
        rows=choose_heaviest_rows(kernels.rows[slower.kernels], slower.lost_ns),
        why_likely=(
            "The cause of the lower clock may also slow these kernels in other ways."
        ),
        part_of="power-capped",
    )


@Rule(
    remedy="Raise the power limit if it was lowered{nvidia: (nvidia-smi -pl)|amd: "
    "(amd-smi set --power-cap)}. Otherwise, reduce the bytes and bits per "
    "result with lower precision and fused kernels.",
    thresholds={
        "at_the_top": MIN_SHARE_OF_HIGHEST_POWER,
        "often": CAPPED_SHARE,
        "varies": MIN_CLOCK_DROP_SHARE,
    },
    of_kernels=True,
    without_gpu=True,  # silent without counters, and so without GPU events
)
def power_capped(facts: Facts) -> Iterator[Claim]:
    """Report each device that is at its highest power while its clock is lowered.

    A kernel is *capped* if it ran at MIN_SHARE_OF_HIGHEST_POWER of the highest power,
    and MIN_CLOCK_DROP_SHARE or more below the highest clock. At stake is what the lower
    clock costs at most. There is no claim where capped kernels take less than
    CAPPED_SHARE of the measured time, or where the power is always at its highest, so
    that it says nothing.
    """
    kernels = facts.kernels
    clock_mhz = average_over_kernels(kernels, CLOCK)
    power_w = average_over_kernels(kernels, POWER)

    for device in kernels.devices:
        capped = _find_capped_kernels(kernels, device, clock_mhz, power_w)
        if capped is None:
            continue

        at_stake_ns = _estimate_clock_cost(kernels, capped, clock_mhz)
        usual_mhz = round(float(np.median(clock_mhz[capped.is_capped])))
        share = percent(capped.ns, capped.measured_ns)

        yield Claim(
            text=f"The GPU ran at its highest power, {count(round(capped.highest_w))} "
            f"W, for {share} of its compute time. The median SM clock was then "
            f"{count(usual_mhz)} instead of {count(round(capped.fastest_mhz))} "
            f"MHz, which costs at most {format_share_of_work(facts, at_stake_ns)}.",
            at_stake_ns=at_stake_ns,
            kernels=capped.is_capped,
            why_likely="The power limit itself was not recorded.",
        )


class _CappedKernels(msgspec.Struct, frozen=True, eq=False):
    """The kernels of a device that ran at its highest power and a lowered clock."""

    is_capped: Flags
    """Which kernels they are; one flag per kernel."""
    ns: int
    """How long any of them ran."""
    measured_ns: int
    """How long any kernel of the device ran whose clock and power are known."""
    highest_w: float
    """The highest power that the device drew, in watts."""
    fastest_mhz: float
    """The highest clock of the device."""


def _find_capped_kernels(
    kernels: Kernels, device: int, clock_mhz: Floats, power_w: Floats
) -> _CappedKernels | None:
    """Find the kernels of a device that ran at its highest power and below its highest
    clock.

    Args:
        device: The index of the device; see Kernels.device.
        clock_mhz: The mean clock over each kernel, nan where it was not recorded.
        power_w: The mean power, likewise.

    Returns:
        None if they take less than CAPPED_SHARE of the measured time, or if the power
            of the device is always at its highest.
    """
    is_measured = kernels.is_compute & ~np.isnan(clock_mhz) & ~np.isnan(power_w)
    is_measured &= kernels.device == device
    if not is_measured.any():
        return None

    highest_w = power_w[is_measured].max()
    fastest_mhz = clock_mhz[is_measured].max()
    is_at_top = power_w >= MIN_SHARE_OF_HIGHEST_POWER * highest_w
    is_slower = clock_mhz <= (1 - MIN_CLOCK_DROP_SHARE) * fastest_mhz
    is_capped = is_measured & is_at_top & is_slower

    capped_ns = kernels.cover_events(is_capped, device).ns
    measured_ns = kernels.cover_events(is_measured, device).ns
    draws_less = (is_measured & ~is_at_top).any()
    if capped_ns < CAPPED_SHARE * measured_ns or not draws_less:
        return None

    return _CappedKernels(
        is_capped=is_capped,
        ns=capped_ns,
        measured_ns=measured_ns,
        highest_w=highest_w,
        fastest_mhz=fastest_mhz,
    )


def _estimate_clock_cost(
    kernels: Kernels, capped: _CappedKernels, clock_mhz: Floats
) -> int:
    """Estimate how much longer capped kernels took than at the highest clock, at most.

    Where several ran at once, the time counts once. Returns ns.
    """
    lost_share = 1 - clock_mhz[capped.is_capped] / capped.fastest_mhz
    lost_ns = kernels.effective_ns[capped.is_capped] * lost_share
    lost_ns *= capped.ns / max(kernels.add_up_ns(capped.is_capped), 1)

    return int(lost_ns.sum())


def average_over_kernels(kernels: Kernels, kind: str) -> Floats:
    """Compute the mean of a counter over the time of each kernel.

    Args:
        kind: CLOCK or POWER.

    Returns:
        One mean per kernel, nan where the counter was not recorded.
    """
    trace = kernels.trace
    means = np.full(len(kernels.rows), np.nan)
    pids = [track.pid for track in trace.tracks] or [None]
    pid_of_track = np.array(pids, dtype=object)

    for counter in read_device_counters(trace):
        if counter.kind != kind:
            continue

        is_of_device = pid_of_track == counter.device
        indices = np.flatnonzero(is_of_device[trace.track[kernels.rows]])
        rows = kernels.rows[indices]
        means[indices] = counter.mean(trace.start[rows], trace.end[rows])

    return means


class SlowerRuns(msgspec.Struct, frozen=True, eq=False):
    """Runs of kernels that took longer at a lower clock; arrays of shape [runs]."""

    kernels: Rows
    """Indices into Kernels."""
    lost_ns: Int64s
    """How much longer each took than the median at the highest clock.

    It is no more than the clock explains.
    """
    highest_mhz: Floats
    """The highest clock at which the same kernel ran."""
    names: int
    """How many kernels they are runs of."""


def find_slower_runs(kernels: Kernels, clock_mhz: Floats) -> SlowerRuns:
    """Find the runs of kernels that took longer because of a lower clock.

    Only kernels that run alone count. Runs of the same name, shapes and blocks are
    compared. None of them counts unless they are many, their clocks differ, and their
    durations follow the clock (see _estimate_lost_ns).

    Args:
        clock_mhz: The mean clock over each kernel, nan where it was not recorded.
    """
    has_clock = ~np.isnan(clock_mhz)
    compared = np.flatnonzero(kernels.is_compute & kernels.runs_alone & has_clock)
    lost_ns = np.zeros(len(compared), dtype=np.int64)
    highest_mhz = np.zeros(len(compared))
    slower_kernels = 0

    runs_of_launches = grouped(_number_launches(kernels, compared))
    for members in runs_of_launches.members_of_each():
        runs = compared[members]
        took_ns = kernels.end[runs] - kernels.start[runs]
        lost_ns[members] = _estimate_lost_ns(took_ns, clock_mhz[runs])
        highest_mhz[members] = clock_mhz[runs].max()
        if lost_ns[members].any():
            slower_kernels += 1

    is_slower = lost_ns > 0
    return SlowerRuns(
        kernels=compared[is_slower],
        lost_ns=lost_ns[is_slower],
        highest_mhz=highest_mhz[is_slower],
        names=slower_kernels,
    )


def _number_launches(kernels: Kernels, indices: Rows) -> Rows:
    """Number some kernels so that runs of the same launch get the same number.

    A launch is the same if the name, the shapes, the number of blocks and the device
    are.

    Args:
        indices: The kernels, as indices into Kernels.

    Returns:
        A number from 0 on for each of `indices`.
    """
    columns = (
        kernels.trace.name[kernels.rows[indices]],
        kernels.job_indices[indices],
        kernels.blocks[indices],
        kernels.device[indices],
    )
    _, group = distinct_rows(columns)
    return group


def _estimate_lost_ns(took_ns: Int64s, clock_mhz: Floats) -> Int64s:
    """Estimate how much longer each run of one kernel took because of the clock.

    It is what it took longer than the median of the runs near the highest clock, but no
    more than the clock explains.

    Args:
        took_ns: How long each run took.
        clock_mhz: The mean clock over each run.

    Returns:
        ns for each run. All are 0 if there are fewer than MIN_RUNS runs, or fewer than
        MIN_FAST_RUNS near the highest clock, if the clocks hardly differ, or if the
        durations do not follow them.
    """
    highest_mhz = clock_mhz.max()
    is_fast: Flags = clock_mhz >= (1 - MAX_DROP_OF_HIGHEST) * highest_mhz
    clocks_differ = clock_mhz.min() <= (1 - MIN_CLOCK_DROP_SHARE) * highest_mhz
    has_enough_runs = len(took_ns) >= MIN_RUNS
    has_enough_fast_runs = is_fast.sum() >= MIN_FAST_RUNS
    is_comparable = clocks_differ and has_enough_runs and has_enough_fast_runs
    if not is_comparable or not is_slower_at_lower_clock(took_ns, clock_mhz):
        return np.zeros_like(took_ns)

    longer_ns = took_ns - np.median(took_ns[is_fast])
    explained_ns = took_ns * (1 - clock_mhz / highest_mhz)
    lost_ns = np.maximum(np.minimum(longer_ns, explained_ns), 0)

    return np.where(is_fast, 0, lost_ns).astype(np.int64)


def is_slower_at_lower_clock(took_ns: Int64s, clock_mhz: Floats) -> bool:
    """Whether runs take longer the lower the clock is, more than by chance.

    This is Spearman's rank correlation, judged by its t statistic with n - 2 degrees of
    freedom.

    >>> is_slower_at_lower_clock(np.arange(10), clock_mhz=np.arange(10.0)[::-1])
    True
    >>> is_slower_at_lower_clock(np.arange(10), clock_mhz=np.arange(10.0))
    False

    Args:
        took_ns: How long each run took.
        clock_mhz: The mean clock over each run.
    """
    rank_of_time = compute_mean_ranks(took_ns)
    rank_of_clock = compute_mean_ranks(clock_mhz)
    if not rank_of_time.std() or not rank_of_clock.std():
        return False

    rho = float(np.corrcoef(rank_of_time, rank_of_clock)[0, 1])
    degrees_of_freedom = len(took_ns) - 2
    # t^2 >= MIN_T_STATISTIC^2, where t^2 = rho^2 * degrees_of_freedom / (1 - rho^2)
    unexplained = 1 - rho * rho
    is_certain = rho * rho * degrees_of_freedom >= MIN_T_STATISTIC**2 * unexplained

    return rho < 0 and is_certain


def compute_mean_ranks(values: NDArray[np.int64] | Floats) -> Floats:
    """Return the rank of each value, from 1; equal values share the mean of theirs.

    >>> compute_mean_ranks(np.array([30, 10, 30])).tolist()
    [2.5, 1.0, 2.5]
    """
    ascending = np.sort(values)
    first_rank = count_below(ascending, values) + 1
    last_rank = count_until(ascending, values)
    mean_rank: Floats = (first_rank + last_rank) / 2
    return mean_rank
