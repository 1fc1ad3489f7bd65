"""Finds blocks of work (layers, iterations) that one side repeats more often.

A *block* is a sequence of kernels that a lane runs several times in a row, such
as the kernels of one layer. A *kernel* is one GPU event, or one CPU op in a trace
without a GPU. Where a lane of A repeats a block more often than its partner in B, or
the reverse, the *surplus* are the blocks that have no counterpart.

In this file, the *longer* lane is the one that repeats a block more often, and the
*shorter* one is its partner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.diff.sequences import choose_cheapest_partners, occurrences
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


def blocks(a: LaneWork, b: LaneWork) -> list[Block]:
    """Find the blocks of work that one of two lanes repeats more often than the other.

    A lane is a stream, and a block is a sequence of kernels such as a layer. The
    surplus of each block is left out of its lane before the next block is searched.
    Blocks that A has more often are found first. At most MAX_BLOCKS are found.
    """
    lanes = [a, b]
    unequal: list[Block] = []
    while len(unequal) < MAX_BLOCKS:
        repeated = _find_block_with_surplus(lanes)
        if repeated is None:
            break
        side, block = repeated
        surplus = _locate_surplus_blocks(lanes[side], lanes[1 - side], block)
        times_in_longer = len(block.marks_in_longer)
        times_in_shorter = len(block.marks_in_shorter)
        unequal.append(
            Block(
                side=side,
                times_in_a=times_in_longer if side == 0 else times_in_shorter,
                times_in_b=times_in_shorter if side == 0 else times_in_longer,
                items=tuple(lanes[side].items[surplus].tolist()),
            )
        )
        lanes[side] = lanes[side].without(surplus)
    return unequal


def _find_block_with_surplus(
    lanes: Sequence[LaneWork],
) -> tuple[int, RepeatedBlock] | None:
    """Find a block of kernels that one lane repeats more often than the other.

    Args:
        lanes: The lane (stream) of A and that of B.

    Returns:
        The index of the lane that has the block more often (0 for A, which is tried
        first), and the block. None if there is none.
    """
    for side in (0, 1):
        block = find_most_explaining_block(
            longer_keys=lanes[side].keys, shorter_keys=lanes[1 - side].keys
        )
        if block is not None:
            return side, block
    return None


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
    # The blocks of the longer lane, by index, that are paired with a block of the
    # shorter lane: one for each block of the shorter lane.
    with_counterpart = choose_cheapest_partners(
        _compute_pairing_costs(longer, shorter, block), block.surplus_blocks
    )
    every_block = np.arange(len(block.marks_in_longer))
    without_counterpart = np.setdiff1d(every_block, with_counterpart)

    positions = []
    for run in consecutive_runs(without_counterpart):
        begin, end = _find_best_fitting_range(
            longer, shorter, block, with_counterpart, run
        )
        positions.append(np.arange(begin, end))
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
    offsets = _choose_compared_offsets(
        block, features_per_kernel=longer.features.shape[1]
    )
    longer_blocks = _collect_block_kernels(longer, block.marks_in_longer, offsets)
    shorter_blocks = _collect_block_kernels(shorter, block.marks_in_shorter, offsets)

    for index in range(len(block.marks_in_shorter)):
        candidates = slice(index, index + block.surplus_blocks + 1)
        candidate_features = longer_blocks.features[candidates]
        own_features = shorter_blocks.features[index]

        is_same_work = longer_blocks.keys[candidates] == shorter_blocks.keys[index]
        differences = np.abs(candidate_features - own_features).sum(axis=2)
        sums = (candidate_features + own_features).sum(axis=2)
        cost_of_kernel = np.where(is_same_work, differences, sums)
        yield cost_of_kernel.sum(axis=1)


def _choose_compared_offsets(block: RepeatedBlock, *, features_per_kernel: int) -> Rows:
    """Choose by which kernels two blocks are compared, as offsets in a block.

    Comparing every kernel of large blocks would be slow. Beyond MAX_COMPARED_CELLS
    comparisons, only every second, third, ... kernel is compared.

    Args:
        block: The repeated block.
        features_per_kernel: How many times are compared for each kernel.
    """
    candidates_per_block = block.surplus_blocks + 1
    block_pairs = len(block.marks_in_shorter) * candidates_per_block
    comparisons = block_pairs * block.kernels_per_block * features_per_kernel

    stride = 1 + comparisons // MAX_COMPARED_CELLS
    return np.arange(0, block.kernels_per_block, stride)


class _BlockKernels(msgspec.Struct, frozen=True, eq=False):
    """The compared kernels of several blocks.

    What lies beyond the end of the lane has the key NO_WORK and takes no time.
    """

    keys: Int64s  # shape [blocks, kernels]
    features: Int64s  # shape [blocks, kernels, features]


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
    # A column plus a row: positions of the shape [blocks, kernels].
    positions = starts[:, None] + offsets
    is_inside = positions < len(lane.keys)
    positions = np.minimum(positions, len(lane.keys) - 1)
    return _BlockKernels(
        keys=np.where(is_inside, lane.keys[positions], NO_WORK),
        features=np.where(is_inside[..., None], lane.features[positions], 0),
    )


def consecutive_runs(numbers: Rows) -> list[tuple[int, int]]:
    """Divide ascending numbers into runs without a hole.

    Returns:
        (first, last) of each run, both included.

    >>> consecutive_runs(np.array([1, 2, 3, 7]))
    [(1, 3), (7, 7)]
    """
    if not len(numbers):
        return []
    run_starts = np.flatnonzero(np.diff(numbers) > 1) + 1
    return [(int(run[0]), int(run[-1])) for run in np.split(numbers, run_starts)]


def _find_best_fitting_range(
    longer: LaneWork,
    shorter: LaneWork,
    block: RepeatedBlock,
    with_counterpart: list[int],
    run: tuple[int, int],
) -> tuple[int, int]:
    """Choose the kernels of the longer lane that count as a run of surplus blocks.

    The longer lane is the one that repeats a block more often. A mark is a kernel that
    occurs once in each block, but it need not be the first one. So the range starts at
    the first mark of the run, or up to a block before or after it. The start is chosen
    so that the remaining kernels fit the shorter lane best.

    Args:
        longer: The lane that repeats the block more often.
        shorter: Its partner.
        block: The repeated block.
        with_counterpart: For each block of the shorter lane, the index of the block of
            the longer lane that it is paired with.
        run: The indices of the first and the last surplus block of the run.

    Returns:
        The range [begin, end) of positions in the longer lane.
    """
    begin, end, counterpart = _find_marked_range(block, with_counterpart, run)

    # A shift forward takes the first kernel out of the range and the one behind it in; a
    # shift backward takes the last kernel out and the one before the range in.
    forward = np.arange(block.kernels_per_block)
    backward = -1 - forward
    misfit_forward = _measure_misfit_of_shifts(
        longer,
        shorter,
        leaving=begin + forward,
        entering=end + forward,
        partners=counterpart + forward,
    )
    misfit_backward = _measure_misfit_of_shifts(
        longer,
        shorter,
        leaving=end + backward,
        entering=begin + backward,
        partners=counterpart + backward,
    )
    shift = _find_best_shift(misfit_backward, misfit_forward)
    return begin + shift, end + shift


class _MarkedRange(NamedTuple):
    """Surplus from one mark to another, and where the shorter lane goes on after it."""

    begin: int  # position of a mark in the longer lane
    end: int  # position of the mark of the block after the surplus
    counterpart: int  # position in the shorter lane of the block paired with that block


def _find_marked_range(
    block: RepeatedBlock, with_counterpart: list[int], run: tuple[int, int]
) -> _MarkedRange:
    """Return the range of a run of surplus blocks, from mark to mark.

    It goes from the mark of the first block to the next mark after the run. A mark is a
    kernel that occurs once in each block. With marks at 0, 10, 20 and 30, the run of
    the second and third block is the range [10, 30).

    Args:
        block: The repeated block, with the positions of its marks.
        with_counterpart: For each block of the shorter lane, the index of the block of
            the longer lane that it is paired with.
        run: The indices of the first and the last surplus block of the run.
    """
    first, last = run
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
    is_in_longer = _is_position(longer, leaving) & _is_position(longer, entering)
    is_in_both = is_in_longer & _is_position(shorter, partners)
    positions_inside = count_leading(is_in_both)
    leaving = leaving[:positions_inside]
    entering = entering[:positions_inside]
    partners = partners[:positions_inside]

    keys_leaving = longer.keys[leaving]
    is_same_as_entering = keys_leaving == longer.keys[entering]
    is_same_as_partner = keys_leaving == shorter.keys[partners]
    shifts = count_leading(is_same_as_entering & is_same_as_partner)

    features_of_partner = shorter.features[partners[:shifts]]
    features_of_leaving = longer.features[leaving[:shifts]]
    features_of_entering = longer.features[entering[:shifts]]
    misfit_after = np.abs(features_of_leaving - features_of_partner).sum(axis=1)
    misfit_before = np.abs(features_of_entering - features_of_partner).sum(axis=1)
    change_by_shift = np.cumsum(misfit_after - misfit_before)
    return np.concatenate([[0], change_by_shift])  # a shift by 0 changes nothing


def _is_position(lane: LaneWork, positions: Rows) -> Flags:
    """Return for each of these numbers whether it is a position in the lane.

    Positions go from 0 to the number of kernels - 1.
    """
    return np.asarray((positions >= 0) & (positions < len(lane.keys)))


def find_most_explaining_block(
    *, longer_keys: Int64s, shorter_keys: Int64s
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
    best: RepeatedBlock | None = None
    most_explained = 0
    for block_keys in _find_candidate_blocks(longer_keys):
        candidate = _measure_surplus_of_block(block_keys, longer_keys, shorter_keys)
        if candidate is None:
            continue
        explained_kernels = candidate.kernels_per_block * candidate.surplus_blocks
        if best is None or explained_kernels > most_explained:
            best = candidate
            most_explained = explained_kernels
    return best


def _find_candidate_blocks(keys: Int64s) -> Iterator[Int64s]:
    """Yield the keys of each block that a lane repeats MIN_REPETITIONS times in a row.

    A block is a sequence of kernels, and equal keys mean equal work. Small blocks come
    first. Two things are left out: a known block that begins at another of its kernels,
    and blocks of fewer than MIN_DISTINCT_KERNELS different keys.
    """
    known_blocks: set[bytes] = set()
    for size in _find_block_sizes(keys):
        # A part of the lane in which each kernel equals the kernel `size` positions later
        # repeats a block of that size: once more than the part is long.
        repeating = runs_of_true(keys[:-size] == keys[size:])
        repetitions = 1 + (repeating.end - repeating.begin) // size
        begins = repeating.begin[repetitions >= MIN_REPETITIONS]

        for start in begins.tolist():
            block_keys = keys[start : start + size]
            sorted_keys = np.sort(block_keys).tobytes()
            if sorted_keys in known_blocks:
                continue
            if len(distinct(block_keys)) >= MIN_DISTINCT_KERNELS:
                known_blocks.add(sorted_keys)
                yield block_keys


def _find_block_sizes(keys: Int64s) -> list[int]:
    """Return the numbers of kernels that a repeated block may have, ascending.

    These are the MAX_BLOCK_SIZES most frequent distances between one kernel and the
    next equal one. No size is below MIN_DISTINCT_KERNELS. The keys (5, 7, 6, 5, 7, 6, 5)
    have the distance 3 four times, so 3 is the only size.
    """
    # A stable sort by key puts the positions of equal kernels next to each other, in
    # ascending order.
    by_key = np.argsort(keys, kind="stable")
    equals_next = keys[by_key[1:]] == keys[by_key[:-1]]
    distance_to_next = by_key[1:] - by_key[:-1]
    distances = distance_to_next[equals_next]
    distances = distances[distances >= MIN_DISTINCT_KERNELS]

    sizes, frequencies = np.unique(distances, return_counts=True)
    most_frequent_first = np.argsort(-frequencies, kind="stable")
    return sorted(sizes[most_frequent_first][:MAX_BLOCK_SIZES].tolist())


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
    times_in_longer = occurrences(keys, longer_keys)
    times_in_shorter = occurrences(keys, shorter_keys)

    surplus_kernels = times_in_longer - times_in_shorter
    surplus_blocks, remainder = np.divmod(surplus_kernels, times_in_block)
    is_multiple = (remainder == 0) & (surplus_blocks > 0)
    agreed_number = _find_agreed_number(surplus_blocks, times_in_block, is_multiple)
    if agreed_number is None:
        return None

    may_be_mark = is_multiple & (surplus_blocks == agreed_number)
    may_be_mark &= (times_in_block == 1) & (times_in_shorter > 0)
    marks = np.flatnonzero(may_be_mark)
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
