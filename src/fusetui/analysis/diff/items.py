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

from fusetui.analysis.diff.names import identity, work_class
from fusetui.analysis.diff.statistics import mean, midmean, usual_steps
from fusetui.analysis.diff.work import Work, hidden_behind_compute
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.arrays import (
    Flags,
    Int64s,
    Rows,
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

LANE_SHIFT = 56
"""The bit at which the lane begins in keys that tell lanes apart; the id of the op
stays below it."""

ROLE_SHIFT = 24
"""The bit at which the role of an event begins in the number of a part; the ids of
words stay below it."""


class Vocabulary(dict[str, int]):
    """The ids of words, shared by both sides.

    A new word gets the next id when it is looked up. The empty word has the id 0.
    """

    def __missing__(self, word: str) -> int:
        self.setdefault("", 0)  # so that no other word gets this id
        return self.setdefault(word, len(self))

    def word_of_id(self, word_id: int) -> str:
        """Return the word that has this id."""
        return next(word for word, known_id in self.items() if known_id == word_id)


class WorkItems(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The items of one side: the pieces of its representative step.

    They are sorted by lane, then by start. Arrays and lists have one entry per item
    unless they say otherwise. A *key* is a number that is equal on both sides where two
    items may do the same work.
    """

    work: Work
    representative_step: int  # index of the step that the items are of
    # Indices of the steps that do the same work as the representative one.
    alike_steps: Rows
    # The next three are chosen from `alike_steps`; see `with_usual_steps`.
    usual_steps: Rows  # those over which all figures are averaged
    plain_steps: Rows  # those in which nothing happened that other steps lack
    # Those by whose times several pieces of one kernel are told apart: the same steps
    # on both sides, where the sides have equally many steps.
    compared_steps: Rows
    # Whether the n-th compared step of A and that of B are the same step.
    has_same_steps: bool
    row: Rows  # row of the event in the trace
    op: Rows  # row of the innermost CPU op around the launch, -1 for none
    lane: Rows
    exact_keys: Int64s  # equal for the same kernel under the same op
    op_keys: Int64s  # equal for the same part of the work of the same op
    single_kernel_keys: Int64s  # equal for the only kernel of the same op; 0: no key
    class_keys: Int64s  # equal for the same kind of work; 0 where it says too little
    samples: Int64s  # durations in ns, shape [alike steps, items]
    exact_keys_of_all_steps: Int64s  # one per piece of all steps
    # Whether the item is compared by its kernel alone, because its op is no evidence.
    is_without_op: Flags

    def __len__(self) -> int:
        return len(self.row)

    @property
    def trace(self) -> Trace:
        """The trace of this side."""
        return self.work.trace

    @cached_property
    def ns(self) -> Int64s:
        """The mean time of each item over the usual steps (ns).

        It is a mean and no median, so that the times of items add up to that of a step.
        """
        if not len(self.usual_steps):
            return medians(self.samples)
        return mean(self.samples[np.isin(self.alike_steps, self.usual_steps)])

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
        return [*np.isin(self.trace.role[self.row], (Role.KERNEL, Role.OP)).tolist()]

    @cached_property
    def op_or_kernel(self) -> list[int]:
        """The id of the op of each item; without an op, minus the id of its kernel."""
        op_ids = self.exact_keys >> OP_SHIFT
        kernel_ids = self.exact_keys & KERNEL_MASK
        return [*np.where(op_ids != NO_OP, op_ids, -kernel_ids).tolist()]

    @cached_property
    def stems(self) -> list[str]:
        """The name of the op of each item without its namespace; "" if none."""
        return [stem(name) for name in self.op_names]

    @cached_property
    def outermost_ops(self) -> list[int]:
        """The row of the outermost op of the program around each item, -1 for none."""
        return [*outermost(self.trace, self.op).tolist()]

    @cached_property
    def hidden_times(self) -> list[int]:
        """The mean time during which kernels computed while each item ran (ns).

        It is 0 for items that compute themselves. So it says how much of communication,
        copies and fills is hidden.
        """
        work = self.work
        if not work.gpu or not len(self.usual_steps):
            return [0] * len(self)

        rows_by_step = [
            work.row[work.slice_of_window(step)] for step in self.usual_steps.tolist()
        ]
        hidden_ns = hidden_behind_compute(self.trace, np.stack(rows_by_step))
        return [*mean(hidden_ns).tolist()]

    @cached_property
    def times(self) -> list[int]:
        """`ns` as a list, for rules that look at single items."""
        return [*self.ns.tolist()]

    @cached_property
    def compared_ns(self) -> Int64s:
        """The time by which several pieces of one kernel are told apart (ns).

        It is the mean of the middle half of the compared steps. `ns` would not do: the
        usual steps of the two sides may differ, and work that did not change takes
        another time in other steps.
        """
        if not len(self.compared_steps):
            return medians(self.samples)
        is_compared = np.isin(self.alike_steps, self.compared_steps)
        return midmean(self.samples[is_compared])

    @cached_property
    def compared_times(self) -> list[int]:
        """`compared_ns` as a list."""
        return [*self.compared_ns.tolist()]

    @cached_property
    def features(self) -> Int64s:
        """The times by which pieces of one kernel are told apart, [items, features].

        The distance of two pieces is the sum of the differences of all features. If the
        sides have no steps in common, the only feature is `compared_ns`. Otherwise it
        counts WEIGHT_OF_ALL_STEPS times, and the times in each compared step are
        features too. They decide where `compared_ns` is equal.
        """
        features = self.compared_ns[:, None]  # one column
        if not self.has_same_steps:
            return features
        is_compared = np.isin(self.alike_steps, self.compared_steps)
        time_in_each_step = self.samples[is_compared].T
        return np.concatenate(
            [WEIGHT_OF_ALL_STEPS * features, time_in_each_step], axis=1
        )

    @cached_property
    def medians(self) -> list[int]:
        """The median time of each item over all alike steps (ns)."""
        median_ns: list[int] = medians(self.samples).tolist()
        return median_ns

    def keys_of(self, pieces: slice) -> Int64s:
        """Return keys that also tell the lanes of this side apart.

        They are equal for the same kernel under the same op on the same lane.

        Args:
            pieces: A slice of the pieces of all steps.
        """
        lanes = self.work.lane
        first_lane = lanes.min() if len(lanes) else 0
        lane_numbers = (lanes[pieces] - first_lane).astype(np.int64)
        return self.exact_keys_of_all_steps[pieces] ^ (lane_numbers << LANE_SHIFT)

    def op_id(self, item: int) -> int:
        """Return the id of the op of an item; NO_OP if it has none."""
        return int(self.exact_keys[item]) >> OP_SHIFT

    def kernel_id(self, item: int) -> int:
        """Return the id of the kernel of an item."""
        return int(self.exact_keys[item]) & KERNEL_MASK

    def _names_of_rows(self, rows: Rows) -> list[str]:
        """Return the names of the slices in these rows; "" for row -1."""
        name_indices = np.where(rows >= 0, self.trace.name[rows], -1).tolist()
        return [self.trace.names[index] if index >= 0 else "" for index in name_indices]


class KnownNames(msgspec.Struct, frozen=True, eq=False):
    """What is known about names of ops before the items of a side are made."""

    names_on_other_side: Mapping[str, str] = msgspec.field(default_factory=dict)
    """{name of an op of this side: its name on the other side}, of renamed ops."""
    kernels_without_op: Int64s = msgspec.field(
        default_factory=lambda: np.zeros(0, dtype=np.int64)
    )
    """The ids of kernels that are compared without regard to their ops."""


def items(work: Work, words: Vocabulary, known: KnownNames | None = None) -> WorkItems:
    """Make the items of a side from the pieces of its representative step.

    Of the steps that do the most common work, the representative one is the step of
    median duration (the shorter of two). All alike steps count as usual until
    `with_usual_steps` chooses from them.

    Args:
        work: The pieces of all steps of the side.
        words: The vocabulary of both sides. New words are added to it.
        known: Names of ops that are to be replaced or ignored.
    """
    ids = _ids_of_pieces(work, words, known or KnownNames())
    exact_keys = ids.kernel + (ids.op << OP_SHIFT)
    alike_steps = _alike_steps(work, exact_keys)
    representative_step = _median_step(work, alike_steps)

    pieces = work.slice_of_window(representative_step)
    kernel_ids = ids.kernel[pieces]
    op_ids = ids.op[pieces]
    ns_by_step = [work.ns[work.slice_of_window(step)] for step in alike_steps]
    samples = np.array(ns_by_step, dtype=np.int64)
    # Without any step there is still one row of samples, of no items.
    samples_shape = (max(1, len(alike_steps)), pieces.stop - pieces.start)
    steps = np.array(alike_steps, dtype=np.intp)
    return WorkItems(
        work=work,
        representative_step=representative_step,
        alike_steps=steps,
        usual_steps=steps,
        plain_steps=steps,
        compared_steps=steps,
        has_same_steps=False,
        row=work.row[pieces],
        op=work.op[pieces],
        lane=work.lane[pieces],
        exact_keys=exact_keys[pieces],
        op_keys=_op_keys(work, pieces, kernel_ids, op_ids, words),
        single_kernel_keys=_single_kernel_keys(work, pieces, op_ids),
        class_keys=_class_keys(work, pieces, words),
        samples=samples.reshape(samples_shape),
        exact_keys_of_all_steps=exact_keys,
        is_without_op=ids.is_without_op[pieces],
    )


class _IdsOfPieces(msgspec.Struct, frozen=True, eq=False):
    """The ids of the names of all pieces of work, one per piece of all steps."""

    kernel: Int64s
    op: Int64s  # of the innermost op, NO_OP for none
    is_without_op: Flags  # compared without regard to its op, whose id is NO_OP


def _ids_of_pieces(work: Work, words: Vocabulary, known: KnownNames) -> _IdsOfPieces:
    """Look up the ids of the kernel and the op of each piece; add new words."""

    def word_of_op(name: str) -> str:
        # What torch.compile puts around a program is no op of the program.
        word = "" if is_compiler(name) else identity(stem(name))
        return known.names_on_other_side.get(word, word)

    trace = work.trace
    kernel_names = trace.name[work.row]
    op_names = np.where(work.op >= 0, trace.name[work.op], -1)
    kernel_ids = _word_ids(trace, kernel_names, words, identity)
    op_ids = _word_ids(trace, op_names, words, word_of_op)

    is_without_op = np.isin(kernel_ids, known.kernels_without_op)
    op_ids[is_without_op] = NO_OP
    return _IdsOfPieces(kernel=kernel_ids, op=op_ids, is_without_op=is_without_op)


def with_usual_steps(
    a: WorkItems, b: WorkItems, without: Sequence[int] = ()
) -> tuple[WorkItems, WorkItems]:
    """Choose the plain, the usual and the compared steps of both sides.

    If both sides have equally many steps, the same steps are chosen from on both sides:
    those that do the usual work on both. If there are none, or if the numbers of steps
    differ, each side chooses from its own alike steps.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        without: Indices of steps that are neither plain nor usual, unless no other
            steps are left.

    Returns:
        Both sides with these steps.
    """
    alike_a = a.alike_steps
    alike_b = b.alike_steps
    has_same_steps = False
    if len(a.work.windows) == len(b.work.windows):
        alike_on_both = np.intersect1d(a.alike_steps, b.alike_steps)
        if len(alike_on_both):
            alike_a = alike_on_both
            alike_b = alike_on_both
            has_same_steps = True

    plain_a = _steps_without(alike_a, without, if_none_left=a.alike_steps)
    plain_b = _steps_without(alike_b, without, if_none_left=b.alike_steps)
    usual = usual_steps(a.work.windows.dur, b.work.windows.dur, plain_a, plain_b)
    with_steps_a = msgspec.structs.replace(
        a,
        usual_steps=usual.a,
        plain_steps=plain_a,
        compared_steps=alike_a,
        has_same_steps=has_same_steps,
    )
    with_steps_b = msgspec.structs.replace(
        b,
        usual_steps=usual.b,
        plain_steps=plain_b,
        compared_steps=alike_b,
        has_same_steps=has_same_steps,
    )
    return with_steps_a, with_steps_b


def _steps_without(steps: Rows, without: Sequence[int], *, if_none_left: Rows) -> Rows:
    """Return the steps that are not in `without`; `if_none_left` if there are none."""
    steps_left = np.setdiff1d(steps, without)
    return steps_left if len(steps_left) else if_none_left


def _word_ids(
    trace: Trace,
    name_indices: NDArray[np.integer],
    words: Vocabulary,
    word_of_name: Callable[[str], str],
) -> Int64s:
    """Look up the id of the word that each name stands for.

    Args:
        trace: The trace that the names are of.
        name_indices: Indices into `trace.names`, -1 for no name.
        words: The vocabulary of both sides. New words are added to it.
        word_of_name: Returns the word that a name stands for.

    Returns:
        The ids, in the shape of `name_indices`; 0 for no name.
    """
    # One entry more than there are names: the last one, 0, is that of index -1.
    id_of_name = np.zeros(len(trace.names) + 1, dtype=np.int64)
    for index in np.unique(name_indices[name_indices >= 0]).tolist():
        id_of_name[index] = words[word_of_name(trace.names[index])]
    return np.asarray(id_of_name[name_indices])


def _alike_steps(work: Work, exact_keys: Int64s) -> list[int]:
    """Return the indices of the steps that do the most common work.

    Steps do the same work if their sequences of exact keys and lanes are equal. Of two
    sequences that are equally common, the one that occurs first counts.

    Args:
        work: The pieces of all steps of a side.
        exact_keys: The exact key of each piece.
    """
    sequences = []
    for step in range(len(work.windows)):
        pieces = work.slice_of_window(step)
        sequences.append(exact_keys[pieces].tobytes() + work.lane[pieces].tobytes())
    if not sequences:
        return []

    ((most_common, _),) = Counter(sequences).most_common(1)
    return [step for step, sequence in enumerate(sequences) if sequence == most_common]


def _median_step(work: Work, steps: list[int]) -> int:
    """Return the step of median duration, the shorter of two; 0 without steps."""
    if not steps:
        return 0
    by_duration = sorted(steps, key=lambda step: int(work.windows.dur[step]))
    return by_duration[(len(by_duration) - 1) // 2]


def _op_keys(
    work: Work, pieces: slice, kernel_ids: Int64s, op_ids: Int64s, words: Vocabulary
) -> Int64s:
    """Make keys of the op, the part of its work, and the order among equal parts.

    An op such as attention launches kernels for several parts of its work (see
    `KernelRole.part`). Pieces of one part under one call of an op are told apart by
    their order. That does not work without an op, or if a call launches more than
    MAX_PIECES_BY_ORDER pieces of a part. Then the key is that of the kernel, negative.

    Args:
        work: The pieces of all steps of a side.
        pieces: The pieces that get keys.
        kernel_ids: The ids of their kernels.
        op_ids: The ids of their ops.
        words: The vocabulary of both sides. New words are added to it.
    """
    rows = work.row[pieces]
    role = work.trace.role[rows].astype(np.int64)
    part = _word_ids(work.trace, work.trace.name[rows], words, _word_of_part)
    part += role << ROLE_SHIFT

    # A group has the pieces of one part under one call of an op.
    _, group_of_piece = distinct_rows((work.op[pieces], part))
    order_in_group = ordinals(group_of_piece)
    is_told_by_order = group_size_of_each(group_of_piece) <= MAX_PIECES_BY_ORDER

    keys_by_order = _ids_of_ordered_parts(op_ids, part, order_in_group, words)
    keys_by_kernel = -kernel_ids - 1
    has_key_by_order = (op_ids != NO_OP) & is_told_by_order
    return np.where(has_key_by_order, keys_by_order, keys_by_kernel)


def _ids_of_ordered_parts(
    op_ids: Int64s, part: Int64s, order_in_group: Int64s, words: Vocabulary
) -> Int64s:
    """Return an id for each combination of op, part, and order among equal parts."""
    first, distinct = distinct_rows((op_ids, part, order_in_group))
    ids = []
    for piece in first.tolist():
        word = f"place {op_ids[piece]} {part[piece]} {order_in_group[piece]}"
        ids.append(words[word])
    return np.array(ids, dtype=np.int64)[distinct]


def _word_of_part(kernel: str) -> str:
    """Return `part main`, for example; names of ops have no space, so none is equal."""
    return f"part {role_of_kernel(kernel).part}"


def _single_kernel_keys(work: Work, pieces: slice, op_ids: Int64s) -> Int64s:
    """Make keys of the op for pieces that are the only work of its call.

    A piece has no such key (0) if its call launches other pieces of the same role
    (kernel, copy, fill), or if its kernel only helps other work.

    Args:
        work: The pieces of all steps of a side.
        pieces: The pieces that get keys.
        op_ids: The ids of their ops.
    """
    trace = work.trace
    rows = work.row[pieces]
    role = trace.role[rows].astype(np.int64)

    # A group has the pieces of one role under one call of an op.
    _, group_of_piece = distinct_rows((work.op[pieces], role))
    is_single = group_size_of_each(group_of_piece) == 1

    helper_names = []
    for name_index in np.unique(trace.name[rows]).tolist():
        if role_of_kernel(trace.names[name_index]).is_helper:
            helper_names.append(name_index)
    is_helper = np.isin(trace.name[rows], helper_names)

    has_key = (op_ids != NO_OP) & is_single & ~is_helper
    return np.where(has_key, (op_ids << OP_SHIFT) + role, 0)


def ancestors(trace: Trace, rows: NDArray[np.integer]) -> Iterator[NDArray[np.integer]]:
    """Yield rows of slices, then the slices around them, and so on to the outermost.

    Args:
        trace: The trace that the rows are of.
        rows: Rows of slices, -1 for none.

    Yields:
        Rows in the shape of `rows`, -1 where no slice is around.
    """
    while (rows >= 0).any():
        yield rows
        rows = np.where(rows >= 0, trace.parent[rows], -1)


def outermost(trace: Trace, ops: Rows) -> Rows:
    """Return the row of the outermost op of the program around each of these ops.

    An op may itself be the outermost one. What torch.compile inserts is no op of the
    program. The result is -1 where there is no op.
    """
    is_program_name = trace.named(lambda name: not is_compiler(name))
    outermost_op = np.full(len(ops), -1, dtype=np.intp)
    for row in ancestors(trace, ops):
        is_op = (row >= 0) & (trace.source_role[row] == Role.OP)
        is_op &= is_program_name[trace.name[row]]
        outermost_op = np.where(is_op, row, outermost_op)
    return outermost_op


def _class_keys(work: Work, pieces: slice, words: Vocabulary) -> Int64s:
    """Make keys of the kind of work, such as `gemm` (see `work_class`).

    Products and softmax inside attention are kinds of their own. A piece has no such
    key (0) if it is a copy or a fill, or if its kind says too little.

    Args:
        work: The pieces of all steps of a side.
        pieces: The pieces that get keys.
        words: The vocabulary of both sides. New words are added to it.
    """
    trace = work.trace
    rows = work.row[pieces]
    kernel_name = trace.name[rows]
    op_name = _name_indices(trace, work.op[pieces])
    outer_op_name = _name_indices(trace, outermost(trace, work.op[pieces]))
    computes = np.isin(trace.role[rows], (Role.KERNEL, Role.OP)).astype(np.int64)

    # Each distinct combination of names is looked at once.
    first, distinct = distinct_rows((op_name, kernel_name, computes, outer_op_name))
    ids = []
    for piece in first.tolist():
        word = ""
        if computes[piece]:
            word = _word_of_class(
                op=_name_or_empty(trace, int(op_name[piece])),
                kernel=trace.names[kernel_name[piece]],
                outer_op=_name_or_empty(trace, int(outer_op_name[piece])),
            )
        ids.append(words[word])
    return np.array(ids, dtype=np.int64)[distinct]


def _name_indices(trace: Trace, rows: Rows) -> Int64s:
    """Return the indices of the names of the slices in these rows; -1 for row -1."""
    return np.where(rows >= 0, trace.name[rows], -1)


def _name_or_empty(trace: Trace, name_index: int) -> str:
    """Return the name with this index; "" for -1."""
    return trace.names[name_index] if name_index >= 0 else ""


def _word_of_class(op: str, kernel: str, outer_op: str) -> str:
    """Return `gemm` or `gemm of attention`, say; "" where the kind says too little."""
    word = work_class(op, kernel)
    is_in_attention = outer_op != "" and work_class(outer_op, "") == "attention"
    return f"{word} of attention" if word and is_in_attention else word
