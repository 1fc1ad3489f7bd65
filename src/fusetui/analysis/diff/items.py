"""One representative step of each side, as numbers that can be compared between the
two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.diff.names import identity, work_class
from fusetui.analysis.diff.statistics import mean, midmean, usual_steps
from fusetui.analysis.diff.work import Work, behind_compute
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct_rows, ordinals
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler, stem
from fusetui.trace.model.quantiles import medians

MAX_PIECES_BY_PLACE = 8
"""An op that launches more pieces of work of one part (a graph does) does not tell them
apart by their place."""

OP_SHIFT = 32
"""The bit at which the op's number begins in an exact key; the kernel's is below."""

KERNEL_MASK = (1 << OP_SHIFT) - 1

WEIGHT_OF_ALL_STEPS = 1000
"""How much more the time of a piece in all steps counts than that in one step where
pieces are told apart: the latter only decides between equals."""

LANE_SHIFT = 56
"""The bit at which the lane begins in keys that tell lanes apart; the op's number stays
below it."""

ROLE_SHIFT = 24
"""The bit at which the role of an event begins in the number of a part; words stay
below it."""


class Vocabulary(dict[str, int]):
    """Numbers for words, the same for both sides; 0 is the empty word."""

    def __missing__(self, word: str) -> int:
        self.setdefault("", 0)  # so that no other word gets this number
        return self.setdefault(word, len(self))

    def text_of(self, number: int) -> str:
        """The word that has this number."""
        return next(word for word, known in self.items() if known == number)


class WorkItems(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The pieces of work of a step, sorted by (lane, start); arrays of shape [items],
    unless they say otherwise.

    Keys are equal on both sides when two pieces may be the same.
    """

    work: Work
    window: int  # the representative one
    alike: Rows  # the steps that do the same work as that one
    usual: Rows  # those of them that all figures are averaged over
    plain: Rows  # those of them without anything that the others lack
    # those of them by whose times pieces of one kernel are told apart: the same ones on
    # both sides, where these have equally many steps
    compared: Rows
    # whether the n-th of these steps are the same ones on both sides
    has_same_steps: bool
    row: Rows  # of its event
    op: Rows  # the row of the innermost CPU op around its launch, -1 for none
    lane: Rows
    exact: Int64s  # a key: the same kernel under the same op
    by_op: Int64s  # a key: the same part of the same op
    alone: Int64s  # a key: the only kernel of the same op; 0 for none
    by_class: Int64s  # a key: the same kind of work; 0 where the kind says too little
    samples: Int64s  # the time of each (ns), of shape [steps alike, items]
    every: Int64s  # the exact key of every piece of work, of all steps; shape [pieces]
    # whether the kernel alone is compared, because its op is no evidence
    by_kernel: Flags

    def __len__(self) -> int:
        return len(self.row)

    @property
    def trace(self) -> Trace:
        return self.work.trace

    @cached_property
    def ns(self) -> Int64s:
        """The time of each in a usual step (ns): a mean, so that the parts of a step
        add up."""
        if not len(self.usual):
            return medians(self.samples)
        return mean(self.samples[np.isin(self.alike, self.usual)])

    @cached_property
    def names(self) -> list[str]:
        """Of the kernel, or the op in its place; shape [items], like the lists
        below."""
        return self._named(self.row)

    @cached_property
    def op_names(self) -> list[str]:
        """Of the innermost op; "" when unknown."""
        return self._named(self.op)

    @cached_property
    def computes(self) -> list[bool]:
        """Whether it is neither a copy nor a set."""
        return [*np.isin(self.trace.role[self.row], (Role.KERNEL, Role.OP)).tolist()]

    @cached_property
    def words(self) -> list[int]:
        """What a piece of work counts as: the number of its op, else of its kernel,
        below 0."""
        op = self.exact >> OP_SHIFT
        kernel = self.exact & KERNEL_MASK
        return [*np.where(op > 0, op, -kernel).tolist()]

    @cached_property
    def stems(self) -> list[str]:
        """The names of the ops without their namespaces."""
        return [stem(name) for name in self.op_names]

    @cached_property
    def outer(self) -> list[int]:
        """The row of the outermost op of the program around each item, -1 when
        unknown."""
        return [*outermost(self.trace, self.op).tolist()]

    @cached_property
    def hidden(self) -> list[int]:
        """Of communication, copies, sets: how long kernels computed meanwhile in a
        usual step (ns)."""
        work = self.work
        if not work.gpu or not len(self.usual):
            return [0] * len(self)
        steps = [work.row[work.of_window(step)] for step in self.usual.tolist()]
        hidden_ns = behind_compute(self.trace, np.stack(steps))
        return [*mean(hidden_ns).tolist()]

    @cached_property
    def times(self) -> list[int]:
        """`ns` as a list: rules look at single items."""
        return [*self.ns.tolist()]

    @cached_property
    def compared_ns(self) -> Int64s:
        """The time of each (ns) by which pieces of one kernel are told apart: the mean
        of the middle half of the steps compared. The usual steps may be others on the
        other side, and what did not change takes another time in other steps."""
        if not len(self.compared):
            return medians(self.samples)
        return midmean(self.samples[np.isin(self.alike, self.compared)])

    @cached_property
    def compared_times(self) -> list[int]:
        """`compared_ns` as a list."""
        return [*self.compared_ns.tolist()]

    @cached_property
    def features(self) -> Int64s:
        """By what pieces of one kernel are told apart; shape [items, features]. Two
        pieces are as far apart as the sum of the differences of all features.

        These are `compared_ns` and, as far as that is equal, the times in each of the
        steps compared, where both sides have the same ones.
        """
        features = self.compared_ns[:, None]
        if not self.has_same_steps:
            return features
        by_step = self.samples[np.isin(self.alike, self.compared)].T
        return np.concatenate([WEIGHT_OF_ALL_STEPS * features, by_step], axis=1)

    @cached_property
    def medians(self) -> list[int]:
        """The median time over all steps alike (ns)."""
        ns: list[int] = medians(self.samples).tolist()
        return ns

    def keys_of(self, span: slice) -> Int64s:
        """Per piece of a step: one number for the same kernel, op and lane."""
        lanes = self.work.lane
        first_lane = lanes.min() if len(lanes) else 0
        lane_numbers = (lanes[span] - first_lane).astype(np.int64)
        return self.every[span] ^ (lane_numbers << LANE_SHIFT)

    def op_word(self, item: int) -> int:
        """The number of its op; 0 when there is none."""
        return int(self.exact[item]) >> OP_SHIFT

    def kernel_word(self, item: int) -> int:
        """The number of its kernel."""
        return int(self.exact[item]) & KERNEL_MASK

    def _named(self, rows: Rows) -> list[str]:
        """The names of events; "" for -1."""
        numbers = np.where(rows >= 0, self.trace.name[rows], -1).tolist()
        return [self.trace.names[number] if number >= 0 else "" for number in numbers]


class KnownNames(msgspec.Struct, frozen=True, eq=False):
    """What is known of how the two sides compare before their items do."""

    names_on_other_side: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Of the words of ops that have another name on the other side, that name."""
    kernels_without_op: Int64s = msgspec.field(
        default_factory=lambda: np.zeros(0, dtype=np.int64)
    )
    """The numbers of kernels that are compared without regard to their ops."""


def items(work: Work, words: Vocabulary, known: KnownNames | None = None) -> WorkItems:
    """The representative step: the median (lower of two) of those with the most common
    work."""
    known = known or KnownNames()

    def op_word(name: str) -> str:
        word = "" if is_compiler(name) else identity(stem(name))  # a wrapper is no op
        return known.names_on_other_side.get(word, word)

    trace = work.trace
    op_name = np.where(work.op >= 0, trace.name[work.op], -1)
    kernel = _numbers(trace, trace.name[work.row], words, identity)
    op = _numbers(trace, op_name, words, op_word)
    by_kernel = np.isin(kernel, known.kernels_without_op)
    op[by_kernel] = 0
    exact = kernel + (op << OP_SHIFT)
    alike = _steps_alike(work, exact)
    window = _median_window(work, alike)
    span = work.of_window(window)
    samples = np.array([work.ns[work.of_window(n)] for n in alike], dtype=np.int64)
    steps = np.array(alike, dtype=np.intp)
    return WorkItems(
        work=work,
        window=window,
        alike=steps,
        usual=steps,
        plain=steps,
        compared=steps,
        has_same_steps=False,
        row=work.row[span],
        op=work.op[span],
        lane=work.lane[span],
        exact=exact[span],
        by_op=_keys_by_op(work, span, kernel[span], op[span], words),
        alone=_keys_alone(work, span, op[span]),
        by_class=_keys_by_class(work, span, words),
        samples=samples.reshape(max(1, len(alike)), span.stop - span.start),
        every=exact,
        by_kernel=by_kernel[span],
    )


def with_usual_steps(
    a: WorkItems, b: WorkItems, without: Sequence[int] = ()
) -> tuple[WorkItems, WorkItems]:
    """Both sides with their usual steps chosen: with equally many steps, those that do
    the usual work on both sides. Leaves out the steps in `without`, if others are
    left."""
    durations_a, durations_b = a.work.windows.dur, b.work.windows.dur
    alike_a, alike_b = a.alike, b.alike
    has_same_steps = False
    if len(durations_a) == len(durations_b):
        alike_on_both = np.intersect1d(alike_a, alike_b)
        if len(alike_on_both):
            alike_a = alike_b = alike_on_both
            has_same_steps = True
    plain_a = np.setdiff1d(alike_a, without)
    if not len(plain_a):
        plain_a = a.alike
    plain_b = np.setdiff1d(alike_b, without)
    if not len(plain_b):
        plain_b = b.alike
    usual = usual_steps(durations_a, durations_b, plain_a, plain_b)
    return (
        msgspec.structs.replace(
            a,
            usual=usual.a,
            plain=plain_a,
            compared=alike_a,
            has_same_steps=has_same_steps,
        ),
        msgspec.structs.replace(
            b,
            usual=usual.b,
            plain=plain_b,
            compared=alike_b,
            has_same_steps=has_same_steps,
        ),
    )


def _numbers(
    trace: Trace,
    names: NDArray[np.integer],
    words: Vocabulary,
    word_of: Callable[[str], str],
) -> Int64s:
    """The numbers of the words for names, by their ids; 0 for -1."""
    number_of_name = np.zeros(len(trace.names) + 1, dtype=np.int64)
    for name in np.unique(names[names >= 0]).tolist():
        number_of_name[name] = words[word_of(trace.names[name])]
    return np.asarray(number_of_name[names])


def _steps_alike(work: Work, exact: Int64s) -> list[int]:
    """The windows that hold the most common sequence of work; the first found, on a
    tie."""
    sequences = []
    for window in range(len(work.windows)):
        span = work.of_window(window)
        sequences.append(exact[span].tobytes() + work.lane[span].tobytes())
    if not sequences:
        return []
    most_common = Counter(sequences).most_common(1)[0][0]
    return [n for n, sequence in enumerate(sequences) if sequence == most_common]


def _median_window(work: Work, windows: list[int]) -> int:
    """The one of median duration, the lower of two; 0 for none."""
    if not windows:
        return 0
    by_duration = sorted(windows, key=lambda window: int(work.windows.dur[window]))
    return by_duration[(len(by_duration) - 1) // 2]


def _keys_by_op(
    work: Work, span: slice, kernel: Int64s, op: Int64s, words: Vocabulary
) -> Int64s:
    """The op, the part of its work, and the index among such parts under this op.

    Without an op, or under one that launches very many kernels, the kernel itself.
    """
    rows = work.row[span]
    role = work.trace.role[rows].astype(np.int64)
    part = _numbers(work.trace, work.trace.name[rows], words, _word_of_part)
    part += role << ROLE_SHIFT
    _, group = distinct_rows((work.op[span], part))  # of one part under one call of op
    place = ordinals(group)
    pieces_of_group = np.bincount(group)
    is_told_by_place = (op > 0) & (pieces_of_group[group] <= MAX_PIECES_BY_PLACE)
    first, kind = distinct_rows((op, part, place))
    kinds = zip(
        op[first].tolist(), part[first].tolist(), place[first].tolist(), strict=True
    )
    numbers = [words[f"place {o} {p} {n}"] for o, p, n in kinds]
    by_place = np.array(numbers, dtype=np.int64)[kind]
    return np.where(is_told_by_place, by_place, -kernel - 1)


def _word_of_part(kernel: str) -> str:
    return f"part {role_of_kernel(kernel).part}"


def _keys_alone(work: Work, span: slice, op: Int64s) -> Int64s:
    """The op, where it launches nothing else of this kind of event, and what it
    launches is no helper of work that is not there; else 0."""
    trace, rows = work.trace, work.row[span]
    role = trace.role[rows].astype(np.int64)
    _, group = distinct_rows((work.op[span], role))
    is_single = np.bincount(group)[group] == 1
    helper_names = [
        name
        for name in np.unique(trace.name[rows]).tolist()
        if role_of_kernel(trace.names[name]).is_helper
    ]
    is_helper = np.isin(trace.name[rows], helper_names)
    has_key = (op > 0) & is_single & ~is_helper
    return np.where(has_key, (op << OP_SHIFT) + role, 0)


def ancestors(trace: Trace, rows: NDArray[np.integer]) -> Iterator[NDArray[np.integer]]:
    """These rows, then those around them, and so on; -1 where there is no more."""
    while (rows >= 0).any():
        yield rows
        rows = np.where(rows >= 0, trace.parent[rows], -1)


def outermost(trace: Trace, ops: Rows) -> Rows:
    """The outermost op of the program around each of these rows, -1 for none."""
    is_program = trace.named(lambda name: not is_compiler(name))
    outermost_op = np.full(len(ops), -1, dtype=np.intp)
    for row in ancestors(trace, ops):
        is_op = (row >= 0) & (trace.source_role[row] == Role.OP)
        is_op &= is_program[trace.name[row]]
        outermost_op = np.where(is_op, row, outermost_op)
    return outermost_op


def _keys_by_class(work: Work, span: slice, words: Vocabulary) -> Int64s:
    """The kind of work, 0 where it says too little. Products and softmax inside
    attention are kinds of their own."""
    trace, rows, ops = work.trace, work.row[span], work.op[span]
    outer_ops = outermost(trace, ops)
    kernel_name = trace.name[rows]
    op_name = np.where(ops >= 0, trace.name[ops], -1)
    outer_name = np.where(outer_ops >= 0, trace.name[outer_ops], -1)
    computes = np.isin(trace.role[rows], (Role.KERNEL, Role.OP)).astype(np.int64)
    first, kind = distinct_rows((op_name, kernel_name, computes, outer_name))
    numbers = []
    for item in first.tolist():
        word = ""
        if computes[item]:
            op = trace.names[op_name[item]] if op_name[item] >= 0 else ""
            outer = trace.names[outer_name[item]] if outer_name[item] >= 0 else ""
            word = _word_of_class(op, trace.names[kernel_name[item]], outer)
        numbers.append(words[word])
    return np.array(numbers, dtype=np.int64)[kind]


def _word_of_class(op: str, kernel: str, outer_op: str) -> str:
    """`gemm`, or `gemm of attention`; "" where the kind says too little."""
    word = work_class(op, kernel)
    is_in_attention = outer_op != "" and work_class(outer_op, "") == "attention"
    return f"{word} of attention" if word and is_in_attention else word
