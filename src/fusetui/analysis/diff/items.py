"""Describes a representative step of each side with keys that both sides share.

A *piece* of work is one GPU event in a step, or one CPU op that computes something in a
trace without a GPU. An *item* is a piece of the representative step of a side, given by
its index. Two items may do the same work if one of their keys is equal: the same kernel
under the same op, the same part of the same op, and so on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.diff.names import classify_work, remove_run_numbers
from fusetui.analysis.diff.statistics import (
    choose_steps_to_average,
    compute_midmean,
    mean,
)
from fusetui.analysis.diff.windows import TraceSteps
from fusetui.analysis.diff.work import Work, measure_hidden_time
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    distinct,
    distinct_rows,
    group_size_of_each,
    ordinals,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler, stem
from fusetui.trace.model.quantiles import medians

MAX_PIECES_BY_ORDER = 8
"""An op that launches more pieces of one part of its work (as a graph does) does not
tell them apart by their order."""

NO_OP = 0
"""The id of the op of items that no op of the program launched."""

OP_SHIFT = 32
"""The bit at which the id of the op begins in an exact key; the kernel's is below."""

KERNEL_MASK = (1 << OP_SHIFT) - 1
"""The bits of an exact key that are the id of the kernel."""

WEIGHT_OF_ALL_STEPS = 1000
"""How much more the time of a piece over all steps counts than its time in one step,
where pieces of one kernel are told apart: the latter only decides between equals."""

NO_NAME = -1
"""The index of the name of a slice that is not there."""

LANE_SHIFT = 56
"""The bit at which the lane begins in keys that tell lanes apart; the id of the op
stays below it."""


class Vocabulary:
    """The ids of words, shared by both sides. The empty word has the id 0."""

    def __init__(self) -> None:
        """Start with the empty word."""
        self._words = [""]
        self._id_of_word = {"": 0}

    def get_or_add_id(self, word: str) -> int:
        """Return the id of a word. A new word gets the next id."""
        if word not in self._id_of_word:
            self._id_of_word[word] = len(self._words)
            self._words.append(word)
        return self._id_of_word[word]

    def get_word(self, word_id: int) -> str:
        """Return the word that has this id."""
        return self._words[word_id]


class WorkItems(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The items of a trace: the kernels (or CPU ops) of its representative step.

    They are sorted by lane, then by start. Arrays and lists have one entry per item
    unless they say otherwise. A *key* is a number that is equal on both sides where two
    items may do the same work.
    """

    work: Work
    representative_step: int  # index of the step that the items are of
    # Indices of the steps that do the same work as the representative one.
    same_work_steps: Rows
    # The next three are chosen from `same_work_steps`; see `choose_usual_steps`.
    usual_steps: Rows  # those over which all figures are averaged
    plain_steps: Rows  # those in which nothing happened that other steps lack
    # Those by whose times several pieces of one kernel are told apart: the same steps
    # on both sides, where the sides have equally many steps.
    compared_steps: Rows
    # Whether the n-th compared step of A and that of B are the same step.
    has_same_steps: bool
    row: Rows  # row of the event in the trace
    op: Rows  # row of the innermost CPU op around the launch, NO_ROW for none
    lane: Rows
    exact_keys: Int64s  # equal for the same kernel under the same op
    op_keys: Int64s  # equal for the same part of the work of the same op
    single_kernel_keys: Int64s  # equal for the only kernel of the same op; 0: no key
    class_keys: Int64s  # equal for the same kind of work; 0 where it says too little
    samples: Int64s  # durations in ns, shape [steps with the same work, items]
    exact_keys_of_all_steps: Int64s  # one per piece of all steps
    # Whether the item is compared by its kernel alone, because its op is no evidence.
    is_without_op: Flags

    def __len__(self) -> int:
        return len(self.row)

    @property
    def trace(self) -> Trace:
        """The trace of this side."""
        return self.work.trace

    @property
    def steps(self) -> TraceSteps:
        """The steps of the trace that are compared."""
        return self.work.steps

    @cached_property
    def mean_ns(self) -> Int64s:
        """The mean time (ns) of each kernel or copy over the usual steps.

        It is a mean and no median, so that the times of items add up to that of a step.
        Without usual steps it is the median of all samples.
        """
        if not len(self.usual_steps):
            return medians(self.samples)
        is_usual = np.isin(self.same_work_steps, self.usual_steps)
        return mean(self.samples[is_usual])

    @cached_property
    def names(self) -> list[str]:
        """The name of the kernel of each item, or of the op without a GPU."""
        return self._names_of_rows(self.row)

    @cached_property
    def op_names(self) -> list[str]:
        """The name of the innermost op around each item, as `aten::mm`; "" if none."""
        return self._names_of_rows(self.op)

    @cached_property
    def computes(self) -> list[bool]:
        """Whether each item is neither a copy nor a fill of memory."""
        roles = self.trace.role[self.row]
        return [*np.isin(roles, (Role.KERNEL, Role.OP)).tolist()]

    @cached_property
    def op_ids(self) -> Int64s:
        """The id of the op of each item, NO_OP for none; equal for equal ops."""
        return self.exact_keys >> OP_SHIFT

    @cached_property
    def kernel_ids(self) -> Int64s:
        """The id of the kernel of each item; equal for equal kernels."""
        return self.exact_keys & KERNEL_MASK

    @cached_property
    def op_or_kernel(self) -> list[int]:
        """The id of the op of each item; minus the id of the kernel without an op."""
        has_op = self.op_ids != NO_OP
        return [*np.where(has_op, self.op_ids, -self.kernel_ids).tolist()]

    @cached_property
    def stems(self) -> list[str]:
        """The name of the op of each item without its namespace; "" if none."""
        return [stem(name) for name in self.op_names]

    @cached_property
    def outermost_ops(self) -> list[int]:
        """The row of the outermost op of the program around each item, or NO_ROW."""
        return [*find_outermost_ops(self.trace, self.op).tolist()]

    @cached_property
    def hidden_times(self) -> list[int]:
        """The mean time (ns) during which kernels computed while each item ran.

        It is 0 for items that compute themselves. So it tells how much of
        communication, copies and fills is hidden behind compute. Without a GPU or usual
        steps, all are 0.
        """
        work = self.work
        if not work.gpu or not len(self.usual_steps):
            return [0] * len(self)

        rows_by_step = [
            work.row[work.slice_of_step(step)] for step in self.usual_steps.tolist()
        ]
        hidden_ns = measure_hidden_time(self.trace, np.stack(rows_by_step))
        return [*mean(hidden_ns).tolist()]

    @cached_property
    def mean_times(self) -> list[int]:
        """`mean_ns` as a list, for rules that look at single items."""
        return [*self.mean_ns.tolist()]

    @cached_property
    def compared_ns(self) -> Int64s:
        """The time by which several pieces of one kernel are told apart (ns).

        It is the mean of the middle half of the compared steps. `mean_ns` would not do: the
        usual steps of the two sides may differ, and work that did not change takes
        another time in other steps.
        """
        if not len(self.compared_steps):
            return medians(self.samples)
        is_compared = np.isin(self.same_work_steps, self.compared_steps)
        return compute_midmean(self.samples[is_compared])

    @cached_property
    def compared_times(self) -> list[int]:
        """`compared_ns` as a list, for rules that look at single items."""
        return [*self.compared_ns.tolist()]

    @cached_property
    def features(self) -> Int64s:
        """The times by which runs of one kernel are told apart, [items, features].

        Two items are as far apart as the sum of the differences of all features. The
        first feature is `compared_ns`, the mean over the compared steps. If A and B
        have the same steps, the time in each compared step is a feature too. The first
        one then counts WEIGHT_OF_ALL_STEPS times, so that the others only decide
        between equals.
        """
        if not self.has_same_steps:
            return self.compared_ns[:, None]  # one column
        is_compared = np.isin(self.same_work_steps, self.compared_steps)
        time_in_each_step = self.samples[is_compared].T  # [items, steps]
        time_over_all_steps = WEIGHT_OF_ALL_STEPS * self.compared_ns
        return np.column_stack([time_over_all_steps, time_in_each_step])

    @cached_property
    def median_times(self) -> list[int]:
        """The median time of each item over all steps that do the same work (ns)."""
        median_ns: list[int] = medians(self.samples).tolist()
        return median_ns

    def make_keys_with_stream(self, pieces: slice) -> Int64s:
        """Return keys that are equal for the same kernel of one op on one stream.

        They are valid within this trace only, because streams are numbered per trace.

        Args:
            pieces: A slice of the kernels and copies of all steps.
        """
        lanes = self.work.lane
        first_lane = lanes.min() if len(lanes) else 0  # so that numbers stay small
        lane_numbers = (lanes[pieces] - first_lane).astype(np.int64)
        return self.exact_keys_of_all_steps[pieces] ^ (lane_numbers << LANE_SHIFT)

    def has_op(self, item: int) -> bool:
        """Return whether a CPU op is around the launch of an item."""
        return bool(self.op[item] != NO_ROW)

    def op_id(self, item: int) -> int:
        """Return the id of the op of an item; NO_OP if it has none."""
        return int(self.op_ids[item])

    def kernel_id(self, item: int) -> int:
        """Return the id of the kernel of an item."""
        return int(self.kernel_ids[item])

    def _names_of_rows(self, rows: Rows) -> list[str]:
        """Return the names of the slices in these rows; "" for NO_ROW."""
        indices = _look_up_name_indices(self.trace, rows).tolist()
        return [_get_name_or_empty(self.trace, index) for index in indices]


class KnownNames(msgspec.Struct, frozen=True, eq=False):
    """What is known about names of ops before the items of a side are made."""

    names_on_other_side: Mapping[str, str] = msgspec.field(default_factory=dict)
    """{name of an op of this side: its name on the other side}, of renamed ops."""
    kernels_without_op: Int64s = msgspec.field(
        default_factory=lambda: np.zeros(0, dtype=np.int64)
    )
    """The ids of kernels that are compared without regard to their ops."""


def make_items(
    work: Work, words: Vocabulary, known: KnownNames | None = None
) -> WorkItems:
    """Make the items of a trace: the kernels and copies of its representative step.

    Of the steps that do the most common work, the representative one has the median
    duration, or the shorter of two. All of these steps count as usual until
    `choose_usual_steps` chooses from them.

    Args:
        work: The kernels and copies of all steps of the trace.
        words: The ids of names, shared by both traces. New names are added to it.
        known: Names of ops that are to be replaced or ignored.
    """
    piece_ids = _look_up_piece_ids(work, words, known or KnownNames())
    # One number for both ids: that of the op has the upper bits.
    exact_keys = (piece_ids.op << OP_SHIFT) + piece_ids.kernel
    same_work_steps = _find_same_work_steps(work, exact_keys)
    representative_step = _find_median_step(work, same_work_steps)

    pieces = work.slice_of_step(representative_step)
    kernel_ids = piece_ids.kernel[pieces]
    op_ids = piece_ids.op[pieces]
    step_indices = np.array(same_work_steps, dtype=np.intp)
    return WorkItems(
        work=work,
        representative_step=representative_step,
        same_work_steps=step_indices,
        usual_steps=step_indices,
        plain_steps=step_indices,
        compared_steps=step_indices,
        has_same_steps=False,
        row=work.row[pieces],
        op=work.op[pieces],
        lane=work.lane[pieces],
        exact_keys=exact_keys[pieces],
        op_keys=_make_op_keys(work, pieces, kernel_ids, op_ids, words),
        single_kernel_keys=_make_single_kernel_keys(work, pieces, op_ids),
        class_keys=_make_class_keys(work, pieces, words),
        samples=_collect_samples(work, same_work_steps),
        exact_keys_of_all_steps=exact_keys,
        is_without_op=piece_ids.is_without_op[pieces],
    )


def _collect_samples(work: Work, steps: Sequence[int]) -> Int64s:
    """Return the time of each kernel in each of these steps in ns, [steps, kernels].

    The steps run the same kernels in the same order. Without any step there is one row,
    of no kernels.
    """
    if not steps:
        return np.zeros((1, 0), dtype=np.int64)
    return np.array([work.ns[work.slice_of_step(step)] for step in steps])


class _IdsOfPieces(msgspec.Struct, frozen=True, eq=False):
    """The ids of the names of all pieces of work, one per piece of all steps."""

    kernel: Int64s
    op: Int64s  # of the innermost op, NO_OP for none
    is_without_op: Flags  # compared without regard to its op, whose id is NO_OP


def _look_up_piece_ids(
    work: Work, words: Vocabulary, known: KnownNames
) -> _IdsOfPieces:
    """Look up the ids of the kernel and of the op of each piece of work.

    A piece is a kernel or copy of any step. Names that have no id yet get one. The op
    id is NO_OP for a piece without an op, and for kernels that are to be compared
    without their op.
    """

    def word_of_op(name: str) -> str:
        # What torch.compile puts around a program is no op of the program.
        word = "" if is_compiler(name) else remove_run_numbers(stem(name))
        return known.names_on_other_side.get(word, word)

    trace = work.trace
    kernel_names = trace.name[work.row]
    op_names = _look_up_name_indices(trace, work.op)
    kernel_ids = _look_up_word_ids(trace, kernel_names, words, remove_run_numbers)
    op_ids = _look_up_word_ids(trace, op_names, words, word_of_op)

    is_without_op = np.isin(kernel_ids, known.kernels_without_op)
    op_ids[is_without_op] = NO_OP
    return _IdsOfPieces(kernel=kernel_ids, op=op_ids, is_without_op=is_without_op)


def choose_usual_steps(
    a: WorkItems, b: WorkItems, without: Sequence[int] = ()
) -> tuple[WorkItems, WorkItems]:
    """Choose the plain, the usual and the compared steps of both traces.

    All of them do the most common work of their trace. Compared steps are all such
    steps. Plain steps are those of them that are not in `without`. Usual steps are the
    plain ones over which figures are averaged.

    If both traces have equally many steps, only steps that do the most common work in
    both are chosen from. If there are none, or if the numbers differ, each trace
    chooses from its own steps.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        without: Indices of steps that are neither plain nor usual, unless no other
            steps are left.

    Returns:
        The items of A and of B with these steps.
    """
    compared_a = a.same_work_steps
    compared_b = b.same_work_steps
    has_same_steps = False
    if len(a.steps) == len(b.steps):
        common_steps = np.intersect1d(a.same_work_steps, b.same_work_steps)
        if len(common_steps):
            compared_a = common_steps
            compared_b = common_steps
            has_same_steps = True

    plain_a = _exclude_steps(compared_a, without, if_none_left=a.same_work_steps)
    plain_b = _exclude_steps(compared_b, without, if_none_left=b.same_work_steps)
    usual = choose_steps_to_average(a.steps.dur, b.steps.dur, plain_a, plain_b)
    with_steps_a = msgspec.structs.replace(
        a,
        usual_steps=usual.a,
        plain_steps=plain_a,
        compared_steps=compared_a,
        has_same_steps=has_same_steps,
    )
    with_steps_b = msgspec.structs.replace(
        b,
        usual_steps=usual.b,
        plain_steps=plain_b,
        compared_steps=compared_b,
        has_same_steps=has_same_steps,
    )
    return with_steps_a, with_steps_b


def _exclude_steps(steps: Rows, without: Sequence[int], *, if_none_left: Rows) -> Rows:
    """Return the steps that are not in `without`, ascending.

    If none is left, return `if_none_left` instead.
    """
    steps_left = np.setdiff1d(steps, without)
    return steps_left if len(steps_left) else if_none_left


def _look_up_word_ids(
    trace: Trace,
    name_indices: NDArray[np.integer],
    words: Vocabulary,
    word_of_name: Callable[[str], str],
) -> Int64s:
    """Look up the id of the word that each name stands for.

    Args:
        trace: The trace that the names are of.
        name_indices: Indices into `trace.names`, NO_NAME for no name.
        words: The vocabulary of both sides. New words are added to it.
        word_of_name: Returns the word that a name stands for.

    Returns:
        The ids, in the shape of `name_indices`; 0 for no name.
    """
    # One entry more than there are names: the last one, 0, is that of NO_NAME (-1).
    id_of_name = np.zeros(len(trace.names) + 1, dtype=np.int64)
    for index in distinct(name_indices[name_indices != NO_NAME]).tolist():
        word = word_of_name(trace.names[index])
        id_of_name[index] = words.get_or_add_id(word)
    return np.asarray(id_of_name[name_indices])


def _find_same_work_steps(work: Work, exact_keys: Int64s) -> list[int]:
    """Return the indices of the steps that do the most common work.

    Steps do the same work if they run the same kernels under the same ops on the same
    lanes (streams), in the same order. Of two sequences that are equally common, the
    one that occurs first counts.

    Args:
        work: The kernels and copies of all steps of a trace.
        exact_keys: One key per kernel or copy: equal for the same kernel under the same
            op.
    """
    sequences = []
    for step in range(len(work.steps)):
        in_step = work.slice_of_step(step)
        sequences.append(exact_keys[in_step].tobytes() + work.lane[in_step].tobytes())
    if not sequences:
        return []

    steps_with_sequence = Counter(sequences)
    most_common = max(sequences, key=steps_with_sequence.__getitem__)
    return [step for step, sequence in enumerate(sequences) if sequence == most_common]


def _find_median_step(work: Work, steps: list[int]) -> int:
    """Return the step of median duration; 0 without steps.

    Of two middle steps, it is the shorter one.
    """
    if not steps:
        return 0
    by_duration = sorted(steps, key=work.steps.dur.__getitem__)
    middle = (len(by_duration) - 1) // 2
    return by_duration[middle]


def _make_op_keys(
    work: Work, pieces: slice, kernel_ids: Int64s, op_ids: Int64s, words: Vocabulary
) -> Int64s:
    """Make keys that are equal for the same part of the work of the same op.

    An op such as attention launches kernels for several parts of its work
    (`KernelRole.part`). Kernels of one part under one call are told apart by their
    order. That fails without an op, or if a call launches more than MAX_PIECES_BY_ORDER
    kernels of a part. Then the key is that of the kernel, as a negative number.

    Args:
        work: The kernels and copies of all steps of a trace.
        pieces: The slice of them that get keys.
        kernel_ids: The ids of their kernels.
        op_ids: The ids of their ops.
        words: The ids of names, shared by both traces. New names are added to it.
    """
    rows = work.row[pieces]
    role = work.trace.role[rows].astype(np.int64)
    part = _look_up_word_ids(work.trace, work.trace.name[rows], words, _make_part_word)

    # A group has the kernels of one part under one call of an op.
    _, group = distinct_rows((work.op[pieces], role, part))
    order_in_group = ordinals(group)
    is_told_by_order = group_size_of_each(group) <= MAX_PIECES_BY_ORDER

    keys_by_order = _look_up_ids_of_rows((op_ids, role, part, order_in_group), words)
    keys_by_kernel = -kernel_ids - 1  # below 0, where no other key is
    has_key_by_order = (op_ids != NO_OP) & is_told_by_order
    return np.where(has_key_by_order, keys_by_order, keys_by_kernel)


def _look_up_ids_of_rows(columns: Sequence[Int64s], words: Vocabulary) -> Int64s:
    """Return an id for each row of a table; equal rows have equal ids in both traces.

    Args:
        columns: The columns of the table.
        words: The ids of words, shared by both traces. New rows are added to it.
    """
    first, row_number = distinct_rows(columns)
    ids = []
    for row in first.tolist():
        numbers = [str(column[row]) for column in columns]
        ids.append(words.get_or_add_id(f"row {' '.join(numbers)}"))
    return np.array(ids, dtype=np.int64)[row_number]


def _make_part_word(kernel: str) -> str:
    """Return the part of an op that a kernel does, as a word: `part main`.

    No name of an op has a space in it, so no op has the same word.
    """
    return f"part {role_of_kernel(kernel).part}"


def _make_single_kernel_keys(work: Work, pieces: slice, op_ids: Int64s) -> Int64s:
    """Make keys of the op for kernels that are the only work of a call of it.

    The key is 0, which means none, if the call launches other work of the same role
    (kernel, copy, fill). It is 0 too without an op, and for kernels that only help
    other work.

    Args:
        work: The kernels and copies of all steps of a trace.
        pieces: The slice of them that get keys.
        op_ids: The ids of their ops.
    """
    trace = work.trace
    rows = work.row[pieces]
    role = trace.role[rows].astype(np.int64)

    # A group has the kernels of one role under one call of an op.
    _, group = distinct_rows((work.op[pieces], role))
    is_single = group_size_of_each(group) == 1

    # Each distinct name is looked at once.
    names_of_helpers = []
    for name_index in distinct(trace.name[rows]).tolist():
        if role_of_kernel(trace.names[name_index]).is_helper:
            names_of_helpers.append(name_index)
    is_helper = np.isin(trace.name[rows], names_of_helpers)

    has_key = (op_ids != NO_OP) & is_single & ~is_helper
    op_and_role = (op_ids << OP_SHIFT) + role
    return np.where(has_key, op_and_role, 0)


def iterate_enclosing_slices(
    trace: Trace, rows: NDArray[np.integer]
) -> Iterator[NDArray[np.integer]]:
    """Yield rows of slices, then the slices around them, up to the outermost.

    Args:
        trace: The trace that the rows are of.
        rows: Rows of slices, NO_ROW for none.

    Yields:
        Rows in the shape of `rows`, NO_ROW where no slice is around. Nothing if there
        are no slices.
    """
    has_slice = rows != NO_ROW
    while has_slice.any():
        yield rows
        rows = np.where(has_slice, trace.parent[rows], NO_ROW)
        has_slice = rows != NO_ROW


def find_outermost_ops(trace: Trace, ops: Rows) -> Rows:
    """Return the row of the outermost op of the program around each of these ops.

    An op may itself be the outermost one. Ops that torch.compile inserts do not count.
    Where there is no op, in `ops` or in the result, the row is NO_ROW.
    """
    is_program_name = trace.named(lambda name: not is_compiler(name))
    outermost_op = np.full(len(ops), NO_ROW, dtype=np.intp)
    for row in iterate_enclosing_slices(trace, ops):
        is_op = (row != NO_ROW) & (trace.source_role[row] == Role.OP)
        is_op &= is_program_name[trace.name[row]]
        # Slices come from the inside to the outside, so the last op found is outermost.
        outermost_op = np.where(is_op, row, outermost_op)
    return outermost_op


def _make_class_keys(work: Work, pieces: slice, words: Vocabulary) -> Int64s:
    """Make keys that are equal for the same kind of work, such as `gemm`.

    Products and softmax inside attention are kinds of their own. The key is 0, which
    means none, for copies and fills, and where the names tell no kind.

    Args:
        work: The kernels and copies of all steps of a trace.
        pieces: The slice of them that get keys.
        words: The ids of names, shared by both traces. New names are added to it.
    """
    trace = work.trace
    rows = work.row[pieces]
    kernel_name = trace.name[rows]
    op_name = _look_up_name_indices(trace, work.op[pieces])
    outer_op_name = _look_up_name_indices(
        trace, find_outermost_ops(trace, work.op[pieces])
    )
    computes = np.isin(trace.role[rows], (Role.KERNEL, Role.OP)).astype(np.int64)

    # Each distinct combination of names is looked at once.
    first, row_number = distinct_rows((op_name, kernel_name, computes, outer_op_name))
    ids = []
    for piece in first.tolist():
        word = ""
        if computes[piece]:
            word = _describe_kind_of_work(
                op=_get_name_or_empty(trace, int(op_name[piece])),
                kernel=trace.names[kernel_name[piece]],
                outer_op=_get_name_or_empty(trace, int(outer_op_name[piece])),
            )
        ids.append(words.get_or_add_id(word))
    return np.array(ids, dtype=np.int64)[row_number]


def _look_up_name_indices(trace: Trace, rows: Rows) -> Int64s:
    """Return the indices of the names of some slices; NO_NAME for NO_ROW."""
    return np.where(rows != NO_ROW, trace.name[rows], NO_NAME)


def _get_name_or_empty(trace: Trace, name_index: int) -> str:
    """Return the name with this index; "" for NO_NAME."""
    return trace.names[name_index] if name_index != NO_NAME else ""


def _describe_kind_of_work(op: str, kernel: str, outer_op: str) -> str:
    """Return the kind of work of a kernel, such as `gemm` or `gemm of attention`.

    Returns "" if the names tell no kind.

    Args:
        op: The name of the innermost op around the launch; "" for none.
        kernel: The name of the kernel.
        outer_op: The name of the outermost op; attention there makes the kind one of
            attention.
    """
    kind = classify_work(op, kernel)
    is_in_attention = outer_op != "" and classify_work(outer_op, "") == "attention"
    return f"{kind} of attention" if kind and is_in_attention else kind
