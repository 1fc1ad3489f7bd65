"""Finds blocks of work (layers, iterations) that one side repeats more often.

A *block* is a sequence of kernels that a lane runs several times in a row, such as the
kernels of one layer. A *kernel* is one GPU event, or one CPU op in a trace without a
GPU. Where a lane of A repeats a block more often than its partner in B, or the reverse,
the *surplus* are the blocks that have no counterpart.

In this file, the *longer* lane is the one that repeats a block more often, and the
*shorter* one is its partner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.diff.sequences import choose_cheapest_partners, count_occurrences
from fusetui.trace.model.arrays import (
    Flags,
    Int64s,
    Rows,
    count_leading,
    distinct,
    runs_of_true,
)

MAX_BLOCKS = 8
"""At most this many different blocks are looked for in a lane: that of the forward
pass, that of the backward pass and others."""

MAX_COMPARED_CELLS = 1 << 24
"""Blocks are compared by all of their kernels if that takes at most this many
comparisons; else by every second kernel, or every third, and so on."""

MIN_DISTINCT_KERNELS = 4
"""A block consists of at least this many different kernels."""

MIN_REPETITIONS = 3
"""A block occurs at least this often in a row on the side that has it more often."""

MAX_BLOCK_SIZES = 16
"""This many sizes of a block are tried: the most frequent distances between equal
kernels."""

MIN_AGREEING_SHARE = 0.75
"""At least this share of the kernels of a block must agree on how many blocks one side
has more."""

NO_WORK = 0
"""The key of positions beyond the end of a lane."""


class LaneWork(msgspec.Struct, frozen=True, eq=False):
    """The kernels of a lane, in order of time."""

    keys: Int64s  # one per kernel: equal for what may be the same work
    features: Int64s  # times, [kernels, features] in ns: see `WorkItems.features`
    items: Rows  # one per kernel: its index into the items of the side

    def without(self, positions: Rows) -> LaneWork:
        """Return the lane without the kernels at these positions."""
        return LaneWork(
            keys=np.delete(self.keys, positions),
            features=np.delete(self.features, positions, axis=0),
            items=np.delete(self.items, positions),
        )


class Block(msgspec.Struct, frozen=True):
    """A block of work that occurs more often on one side than on the other."""

    side: int  # the one that has it more often: 0 for A, 1 for B
    times_in_a: int  # how often it occurs in A
    times_in_b: int
    items: tuple[int, ...]  # the items of the surplus blocks of that side, ascending
    items_on_other_lanes: tuple[int, ...] = ()  # what these blocks launched elsewhere


class RepeatedBlock(msgspec.Struct, frozen=True, eq=False):
    """A block that the longer lane has more often than the shorter one.

    Each block has a *mark*: a kind of kernel that occurs once in it. The positions of
    the marks say where the blocks are.
    """

    kernels_per_block: int
    surplus_blocks: int  # how many blocks more the longer lane has
    marks_in_longer: Rows  # positions in the longer lane, one per block
    marks_in_shorter: Rows


def find_surplus_blocks(a: LaneWork, b: LaneWork) -> list[Block]:
    """Find the blocks of work that one of two lanes repeats more often than the other.

    A lane is a stream, and a block is a sequence of kernels such as a layer. The
    surplus of each block is left out of its lane before the next block is searched.
    Blocks that A has more often are found first. At most MAX_BLOCKS are found.
    """
    rest_of_a = a
    rest_of_b = b
    surplus_blocks: list[Block] = []
    while len(surplus_blocks) < MAX_BLOCKS:
        more_in_a = find_most_explaining_block(rest_of_a.keys, rest_of_b.keys)
        if more_in_a is not None:
            surplus = _locate_surplus_blocks(rest_of_a, rest_of_b, more_in_a)
            surplus_items = rest_of_a.items[surplus]
            block = _describe_surplus(more_in_a, surplus_items, longer_side=0)
            surplus_blocks.append(block)
            rest_of_a = rest_of_a.without(surplus)
            continue

        more_in_b = find_most_explaining_block(rest_of_b.keys, rest_of_a.keys)
        if more_in_b is None:
            break
        surplus = _locate_surplus_blocks(rest_of_b, rest_of_a, more_in_b)
        surplus_items = rest_of_b.items[surplus]
        block = _describe_surplus(more_in_b, surplus_items, longer_side=1)
        surplus_blocks.append(block)
        rest_of_b = rest_of_b.without(surplus)
    return surplus_blocks


def _describe_surplus(
    block: RepeatedBlock, surplus_items: Rows, *, longer_side: int
) -> Block:
    """Describe a block that one side repeats more often than the other.

    Args:
        block: The repeated block.
        surplus_items: The items of the blocks that have no counterpart.
        longer_side: The side that has these items: 0 for A, 1 for B.
    """
    times_in_longer = len(block.marks_in_longer)
    times_in_shorter = len(block.marks_in_shorter)
    is_more_in_a = longer_side == 0
    return Block(
        side=longer_side,
        times_in_a=times_in_longer if is_more_in_a else times_in_shorter,
        times_in_b=times_in_shorter if is_more_in_a else times_in_longer,
        items=tuple(surplus_items.tolist()),
    )


def _locate_surplus_blocks(
    longer: LaneWork, shorter: LaneWork, block: RepeatedBlock
) -> Rows:
    """Return where in the longer lane the blocks without a counterpart are.

    The longer lane is the one that repeats the block more often. Each block of the
    shorter lane is paired, in order, with the block of the longer lane whose times fit
    it best. The blocks that remain are the surplus.

    Returns:
        Indices of kernels in the longer lane, ascending.
    """
    costs = _compute_pairing_costs(longer, shorter, block)
    # For each block of the shorter lane, the index of its partner in the longer lane.
    with_counterpart = choose_cheapest_partners(costs, block.surplus_blocks)
    every_block = np.arange(len(block.marks_in_longer))
    without_counterpart = np.setdiff1d(every_block, with_counterpart)

    positions = []
    for first, last in find_consecutive_runs(without_counterpart):
        marked = _find_marked_range(block, with_counterpart, first, last)
        shift = _find_best_fitting_shift(
            longer, shorter, marked, max_shift=block.kernels_per_block
        )
        positions.append(np.arange(marked.begin + shift, marked.end + shift))
    return distinct(np.concatenate(positions))


def _compute_pairing_costs(
    longer: LaneWork, shorter: LaneWork, block: RepeatedBlock
) -> Iterator[Int64s]:
    """Yield what it costs to pair each block of the shorter lane with its candidates.

    The shorter lane repeats a block of kernels less often than the longer one. Its
    block n has `surplus_blocks` + 1 candidates: the blocks n, n + 1, and so on of the
    longer lane. The cost of a pair is the sum of the differences of the times of its
    kernels. Where the kernels are different work, both times are added instead.

    Yields:
        For each block of the shorter lane, one cost per candidate.
    """
    _, times_per_kernel = longer.features.shape
    offsets = _choose_compared_offsets(block, times_per_kernel)
    longer_blocks = _collect_block_kernels(longer, block.marks_in_longer, offsets)
    shorter_blocks = _collect_block_kernels(shorter, block.marks_in_shorter, offsets)

    for index in range(len(block.marks_in_shorter)):
        own_keys = shorter_blocks.keys[index]
        own_times = shorter_blocks.times[index]
        candidates = slice(index, index + block.surplus_blocks + 1)
        candidate_keys = longer_blocks.keys[candidates]
        candidate_times = longer_blocks.times[candidates]

        # Each array has the shape [candidates, kernels].
        differences = np.abs(candidate_times - own_times).sum(axis=2)
        sums = (candidate_times + own_times).sum(axis=2)
        cost_of_kernel = np.where(candidate_keys == own_keys, differences, sums)
        yield cost_of_kernel.sum(axis=1)


def _choose_compared_offsets(block: RepeatedBlock, times_per_kernel: int) -> Rows:
    """Choose by which kernels two blocks are compared, as offsets in a block.

    Comparing every kernel of large blocks would be slow. Beyond MAX_COMPARED_CELLS
    comparisons, only every second, third, ... kernel is compared.

    Args:
        block: The repeated block.
        times_per_kernel: How many times (ns) each kernel is compared by.
    """
    candidates_per_block = block.surplus_blocks + 1
    block_pairs = len(block.marks_in_shorter) * candidates_per_block
    comparisons = block_pairs * block.kernels_per_block * times_per_kernel

    stride = 1 + comparisons // MAX_COMPARED_CELLS
    return np.arange(0, block.kernels_per_block, stride)


class _BlockKernels(msgspec.Struct, frozen=True, eq=False):
    """The compared kernels of several blocks.

    What lies beyond the end of the lane has the key NO_WORK and takes no time.
    """

    keys: Int64s  # shape [blocks, kernels]
    times: Int64s  # shape [blocks, kernels, times]; see `LaneWork.features`


def _collect_block_kernels(
    lane: LaneWork, starts: Rows, offsets: Rows
) -> _BlockKernels:
    """Collect some kernels of each repeated block of a lane (stream).

    With blocks that start at 10 and 14, and the offsets 0 and 2, these are the kernels
    10 and 12 of the one block, and 14 and 16 of the other. Positions beyond the end of
    the lane get the key NO_WORK and take no time.

    Args:
        lane: The lane that the blocks are in.
        starts: The position in the lane at which each block starts.
        offsets: Which kernels to collect, counted from the start of their block.
    """
    positions = np.add.outer(starts, offsets)  # [blocks, kernels]
    is_outside = positions >= len(lane.keys)
    positions[is_outside] = 0  # any position: what is looked up there is replaced

    keys = lane.keys[positions]
    times = lane.features[positions]
    keys[is_outside] = NO_WORK
    times[is_outside] = 0
    return _BlockKernels(keys=keys, times=times)


def find_consecutive_runs(numbers: Rows) -> list[tuple[int, int]]:
    """Divide ascending numbers into runs without a hole.

    Returns:
        (first, last) of each run, both included.

    >>> find_consecutive_runs(np.array([1, 2, 3, 7]))
    [(1, 3), (7, 7)]
    """
    if not len(numbers):
        return []
    run_starts = np.flatnonzero(np.diff(numbers) > 1) + 1
    return [(int(run[0]), int(run[-1])) for run in np.split(numbers, run_starts)]


def _find_best_fitting_shift(
    longer: LaneWork, shorter: LaneWork, marked: _MarkedRange, *, max_shift: int
) -> int:
    """Return by how many kernels to shift a range of surplus to make the rest fit best.

    The surplus are repeated kernels that only the longer lane has. A layer may begin at
    another kernel than the one that marks it. So the range is shifted to where the
    kernels that remain have the most similar times to those of the shorter lane.

    Args:
        longer: The lane (stream) that has the surplus.
        shorter: Its partner in the other trace.
        marked: The range of the surplus before the shift.
        max_shift: The range may be shifted by up to so many kernels.

    Returns:
        The number of kernels; negative for a shift backward.
    """
    # A shift forward takes the first kernel out of the range and the one behind it in;
    # a shift backward takes the last kernel out and the one before the range in.
    forward = np.arange(max_shift)
    backward = -1 - forward
    misfit_forward = _measure_misfit_of_shifts(
        longer,
        shorter,
        leaving=marked.begin + forward,
        entering=marked.end + forward,
        partners=marked.counterpart + forward,
    )
    misfit_backward = _measure_misfit_of_shifts(
        longer,
        shorter,
        leaving=marked.end + backward,
        entering=marked.begin + backward,
        partners=marked.counterpart + backward,
    )
    return _find_best_shift(misfit_backward, misfit_forward)


class _MarkedRange(NamedTuple):
    """Surplus from one mark to another, and where the shorter lane goes on after it."""

    begin: int  # position of a mark in the longer lane
    end: int  # position of the mark of the block after the surplus
    counterpart: int  # position in the shorter lane of the block paired with that block


def _find_marked_range(
    block: RepeatedBlock, with_counterpart: list[int], first: int, last: int
) -> _MarkedRange:
    """Return the range of a run of surplus blocks, from mark to mark.

    It goes from the mark of the first block to the next mark after the run. A mark is a
    kernel that occurs once in each block. With marks at 0, 10, 20 and 30, the run of
    the second and third block is the range [10, 30).

    Args:
        block: The repeated block, with the positions of its marks.
        with_counterpart: For each block of the shorter lane, the index of the block of
            the longer lane that it is paired with.
        first: The index of the first surplus block of the run.
        last: The index of its last surplus block.
    """
    # After the last block of the lane there is no mark that says where it ends. Then
    # the range of the same length that starts one block earlier is used.
    if last + 1 == len(block.marks_in_longer):
        first -= 1
        last -= 1

    next_block = last + 1
    if next_block in with_counterpart:
        index_in_shorter = with_counterpart.index(next_block)
        counterpart = block.marks_in_shorter[index_in_shorter]
    else:
        counterpart = block.marks_in_shorter[-1]
    return _MarkedRange(
        begin=int(block.marks_in_longer[first]),
        end=int(block.marks_in_longer[next_block]),
        counterpart=int(counterpart),
    )


def _find_best_shift(misfit_backward: Int64s, misfit_forward: Int64s) -> int:
    """Return the shift with the least misfit; negative for a shift backward.

    Of equal misfits, backward shifts are preferred to forward ones: the largest
    backward shift, so that the range begins early, or else the smallest forward shift.

    >>> _find_best_shift(np.array([50, 20, 30]), misfit_forward=np.array([50, 40]))
    -1
    >>> _find_best_shift(np.array([50, 60]), misfit_forward=np.array([50, 70, 10]))
    2

    Args:
        misfit_backward: The misfit of a backward shift by 0, 1, 2, ... kernels.
        misfit_forward: The same for forward shifts.
    """
    if misfit_forward.min() < misfit_backward.min():
        return int(misfit_forward.argmin())
    best_shifts = np.flatnonzero(misfit_backward == misfit_backward.min())
    return -int(best_shifts[-1])


def _measure_misfit_of_shifts(
    longer: LaneWork,
    shorter: LaneWork,
    *,
    leaving: Rows,
    entering: Rows,
    partners: Rows,
) -> Int64s:
    """Return how the misfit changes as a surplus range is shifted one by one.

    The surplus are kernels that only the longer lane has. The misfit is the sum of the
    differences between the times of all its other kernels and those of their partners
    in the shorter lane.

    With each shift, one kernel leaves the surplus at one end and another one enters it
    at the other end. The one that leaves gets the partner that the one that enters had.
    Say these take 30 and 50 ns, and the partner 32 ns. Then the misfit falls from 18 to
    2 ns. The shift ends before the first kernel that is not the same work in all three
    positions.

    Args:
        longer: The lane that has the surplus.
        shorter: Its partner.
        leaving: Positions in the longer lane, in the order in which they leave.
        entering: Positions in the longer lane, in the order in which they enter.
        partners: Positions in the shorter lane, in the same order.

    Returns:
        The change (ns, negative: better) for shifts by 0, 1, ... kernels.
    """
    has_leaving = _is_position(longer, leaving)
    has_entering = _is_position(longer, entering)
    has_partner = _is_position(shorter, partners)
    shifts_inside = count_leading(has_leaving & has_entering & has_partner)

    keys_leaving = longer.keys[leaving[:shifts_inside]]
    keys_entering = longer.keys[entering[:shifts_inside]]
    keys_of_partners = shorter.keys[partners[:shifts_inside]]
    is_same_work = (keys_leaving == keys_entering) & (keys_leaving == keys_of_partners)
    shifts = count_leading(is_same_work)

    # The features of a kernel are its times.
    times_leaving = longer.features[leaving[:shifts]]
    times_entering = longer.features[entering[:shifts]]
    times_of_partners = shorter.features[partners[:shifts]]
    misfit_before = np.abs(times_entering - times_of_partners).sum(axis=1)
    misfit_after = np.abs(times_leaving - times_of_partners).sum(axis=1)
    misfit_change = np.cumsum(misfit_after - misfit_before)
    return np.concatenate([[0], misfit_change])  # a shift by 0 changes nothing


def _is_position(lane: LaneWork, positions: Rows) -> Flags:
    """Return for each of these numbers whether it is a position in the lane.

    Positions go from 0 to the number of kernels - 1.
    """
    return np.asarray((positions >= 0) & (positions < len(lane.keys)))


def find_most_explaining_block(
    longer_keys: Int64s, shorter_keys: Int64s
) -> RepeatedBlock | None:
    """Find the block whose surplus explains the most kernels of the longer lane.

    The longer lane is the one that repeats the block more often. Of several blocks that
    explain equally many, the smallest is chosen. Returns None if the longer lane
    repeats no block more often than the shorter one.

    Args:
        longer_keys: The keys of the kernels of one lane, in order of time; equal for
            equal work.
        shorter_keys: The keys of the kernels of its partner.
    """
    with_surplus = []
    for block_keys in _find_candidate_blocks(longer_keys):
        block = _measure_surplus_of_block(block_keys, longer_keys, shorter_keys)
        if block is not None:
            with_surplus.append(block)

    # The smallest block comes first, so it is the one that max returns of equal ones.
    return max(
        with_surplus,
        key=lambda block: block.kernels_per_block * block.surplus_blocks,
        default=None,
    )


def _find_candidate_blocks(keys: Int64s) -> Iterator[Int64s]:
    """Yield the keys of each block that a lane repeats MIN_REPETITIONS times in a row.

    A block is a sequence of kernels, and equal keys mean equal work. Small blocks come
    first. Two things are left out: a known block that begins at another of its kernels,
    and blocks of fewer than MIN_DISTINCT_KERNELS different keys.
    """
    known_blocks: set[bytes] = set()
    for size in _find_block_sizes(keys):
        # A part of the lane in which each kernel equals the kernel `size` positions
        # later repeats a block of that size: once more than the part is long.
        repeating = runs_of_true(keys[:-size] == keys[size:])
        repetitions = 1 + (repeating.end - repeating.begin) // size
        begins = repeating.begin[repetitions >= MIN_REPETITIONS]

        for start in begins.tolist():
            block_keys = keys[start : start + size]
            # The same block may begin at another of its kernels.
            in_any_order = np.sort(block_keys).tobytes()
            has_enough_kinds = len(distinct(block_keys)) >= MIN_DISTINCT_KERNELS
            if has_enough_kinds and in_any_order not in known_blocks:
                known_blocks.add(in_any_order)
                yield block_keys


def _find_block_sizes(keys: Int64s) -> list[int]:
    """Return the numbers of kernels that a repeated block may have, ascending.

    These are the MAX_BLOCK_SIZES most frequent distances between one kernel and the
    next equal one. No size is below MIN_DISTINCT_KERNELS. The keys (5, 7, 6, 5, 7, 6,
    5) have the distance 3 four times, so 3 is the only size.
    """
    # A stable sort by key puts the positions of equal kernels next to each other, in
    # ascending order.
    positions = np.argsort(keys, kind="stable")
    is_equal_to_next = keys[positions[1:]] == keys[positions[:-1]]
    distance_to_next = np.diff(positions)
    is_possible = is_equal_to_next & (distance_to_next >= MIN_DISTINCT_KERNELS)
    possible_sizes = distance_to_next[is_possible]

    sizes, frequencies = np.unique(possible_sizes, return_counts=True)
    most_frequent_first = sizes[np.argsort(-frequencies, kind="stable")]
    return sorted(most_frequent_first[:MAX_BLOCK_SIZES].tolist())


def _measure_surplus_of_block(
    block_keys: Int64s, longer_keys: Int64s, shorter_keys: Int64s
) -> RepeatedBlock | None:
    """Determine how many blocks more the longer lane has, and where all blocks are.

    The blocks are located by a mark: a key that occurs once in the block and also
    occurs in the shorter lane. Its surplus has to agree with most of the block. Of
    several such keys, the one that is rarest in the longer lane is used.

    Args:
        block_keys: The keys of the kernels of one block.
        longer_keys: The keys of the kernels of the lane that repeats the block.
        shorter_keys: The keys of the kernels of its partner.

    Returns:
        None if the kernels of the block do not agree on a number of surplus blocks, or
        if the block has no mark.
    """
    keys, times_in_block = np.unique(block_keys, return_counts=True)
    times_in_longer = count_occurrences(keys, longer_keys)
    times_in_shorter = count_occurrences(keys, shorter_keys)

    # How many blocks more there are by the occurrences of each key alone.
    surplus_kernels = times_in_longer - times_in_shorter
    surplus_blocks, remainder = np.divmod(surplus_kernels, times_in_block)
    are_whole_blocks = (remainder == 0) & (surplus_blocks > 0)
    agreed_number = _find_agreed_number(
        surplus_blocks, times_in_block, are_whole_blocks
    )
    if agreed_number is None:
        return None

    agrees = are_whole_blocks & (surplus_blocks == agreed_number)
    is_once_in_block = times_in_block == 1
    is_in_shorter = times_in_shorter > 0
    marks = np.flatnonzero(agrees & is_once_in_block & is_in_shorter)
    if not len(marks):
        return None

    rarest_mark = marks[times_in_longer[marks].argmin()]
    return RepeatedBlock(
        kernels_per_block=len(block_keys),
        surplus_blocks=agreed_number,
        marks_in_longer=np.flatnonzero(longer_keys == keys[rarest_mark]),
        marks_in_shorter=np.flatnonzero(shorter_keys == keys[rarest_mark]),
    )


def _find_agreed_number(
    surplus_blocks: Int64s, times_in_block: Int64s, is_counted: Flags
) -> int | None:
    """Return the number of surplus blocks on which most kernels of a block agree.

    >>> surplus_blocks, times_in_block = np.array([2, 2, 5]), np.array([4, 3, 1])
    >>> _find_agreed_number(surplus_blocks, times_in_block, np.array([True, True, True]))
    2

    Args:
        surplus_blocks: For each key of the block, the number of surplus blocks by the
            occurrences of this key alone.
        times_in_block: For each key, how many kernels of the block have it.
        is_counted: For each key, whether its number is meaningful.

    Returns:
        None if fewer than MIN_AGREEING_SHARE of the kernels of the block agree.
    """
    kernels_per_block = times_in_block.sum()
    numbers, index_of_number = np.unique(
        surplus_blocks[is_counted], return_inverse=True
    )
    if not len(numbers):
        return None

    # For each number, how many kernels of the block agree on it.
    agreeing_kernels = np.bincount(index_of_number, weights=times_in_block[is_counted])
    most_agreed = agreeing_kernels.argmax()
    if agreeing_kernels[most_agreed] < MIN_AGREEING_SHARE * kernels_per_block:
        return None
    return int(numbers[most_agreed])
