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
from fusetui.analysis.diff.work import Work, hidden_behind_compute
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
    """Numbers for words, the same for both sides. A new word gets the next number when
    it is looked up; 0 is the empty word."""

    def __missing__(self, word: str) -> int:
        self.setdefault("", 0)  # so that no other word gets this number
        return self.setdefault(word, len(self))

    def word_of_id(self, number: int) -> str:
        """The word that has this number."""
        return next(word for word, known in self.items() if known == number)


class WorkItems(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The pieces of work of the representative step of a side, sorted by (lane, start);
    arrays of shape [items], unless they say otherwise. An item is the number of a piece
    in these arrays.

    Keys are numbers that are equal on both sides where two pieces may be the same.
    """

    work: Work
    representative_step: int  # the number of the representative step
    # the numbers of the steps that do the same work as that one, and of some of them:
    alike_steps: Rows
    usual_steps: Rows  # those that all figures are averaged over
    plain_steps: Rows  # those without anything that the others lack
    # those by whose times pieces of one kernel are told apart: the same ones on both
    # sides, where these have equally many steps
    compared_steps: Rows
    # whether the n-th of these steps are the same ones on both sides
    has_same_steps: bool
    row: Rows  # of its event
    op: Rows  # the row of the innermost CPU op around its launch, -1 for none
    lane: Rows
    exact_keys: Int64s  # a key: the same kernel under the same op
    op_keys: Int64s  # a key: the same part of the same op
    single_kernel_keys: Int64s  # a key: the only kernel of the same op; 0 for none
    class_keys: Int64s  # a key: the same kind of work; 0 where the kind says too little
    samples: Int64s  # the time of each (ns), of shape [steps alike, items]
    # `exact` of every piece of work; shape [pieces of all steps]
    exact_keys_of_all_steps: Int64s
    # whether the kernel alone is compared, because its op is no evidence
    is_without_op: Flags

    def __len__(self) -> int:
        return len(self.row)

    @property
    def trace(self) -> Trace:
        """The trace of the side."""
        return self.work.trace

    @cached_property
    def ns(self) -> Int64s:
        """The time of each in a usual step (ns): a mean, so that the parts of a step
        add up."""
        if not len(self.usual_steps):
            return medians(self.samples)
        return mean(self.samples[np.isin(self.alike_steps, self.usual_steps)])

    @cached_property
    def names(self) -> list[str]:
        """The name of each kernel, or of the op in its place; shape [items], like the
        lists below."""
        return self._named(self.row)

    @cached_property
    def op_names(self) -> list[str]:
        """The name of the innermost op around each item, with its namespace; "" when
        unknown."""
        return self._named(self.op)

    @cached_property
    def computes(self) -> list[bool]:
        """Whether each item is neither a copy nor a set of memory."""
        return [*np.isin(self.trace.role[self.row], (Role.KERNEL, Role.OP)).tolist()]

    @cached_property
    def op_or_kernel(self) -> list[int]:
        """The number of the op of each item or, where it has none, minus the number of
        its kernel."""
        op = self.exact_keys >> OP_SHIFT
        kernel = self.exact_keys & KERNEL_MASK
        return [*np.where(op > 0, op, -kernel).tolist()]

    @cached_property
    def stems(self) -> list[str]:
        """The names of the ops without their namespaces; "" when unknown."""
        return [stem(name) for name in self.op_names]

    @cached_property
    def outermost_ops(self) -> list[int]:
        """The row of the outermost op of the program around each item, -1 when
        unknown."""
        return [*outermost(self.trace, self.op).tolist()]

    @cached_property
    def hidden_times(self) -> list[int]:
        """How long kernels computed during each item in a usual step (ns); 0 for items
        that compute, which leaves communication, copies and sets."""
        work = self.work
        if not work.gpu or not len(self.usual_steps):
            return [0] * len(self)
        steps = [
            work.row[work.slice_of_window(step)] for step in self.usual_steps.tolist()
        ]
        hidden_ns = hidden_behind_compute(self.trace, np.stack(steps))
        return [*mean(hidden_ns).tolist()]

    @cached_property
    def times(self) -> list[int]:
        """`ns` as a list, for rules, which look at single items."""
        return [*self.ns.tolist()]

    @cached_property
    def compared_ns(self) -> Int64s:
        """The time of each (ns) by which pieces of one kernel are told apart: the mean
        of the middle half of the steps compared. The usual steps may be others on the
        other side, and what did not change takes another time in other steps."""
        if not len(self.compared_steps):
            return medians(self.samples)
        return midmean(self.samples[np.isin(self.alike_steps, self.compared_steps)])

    @cached_property
    def compared_times(self) -> list[int]:
        """`compared_ns` as a list."""
        return [*self.compared_ns.tolist()]

    @cached_property
    def features(self) -> Int64s:
        """The times by which pieces of one kernel are told apart; shape [items,
        features]. Two pieces are as far apart as the sum of the differences of all
        features.

        The only feature is `compared_ns`, if the sides have no steps in common. Else
        that counts WEIGHT_OF_ALL_STEPS times, and the times in each of the compared
        steps, which decide where it is equal, are features too.
        """
        features = self.compared_ns[:, None]
        if not self.has_same_steps:
            return features
        by_step = self.samples[np.isin(self.alike_steps, self.compared_steps)].T
        return np.concatenate([WEIGHT_OF_ALL_STEPS * features, by_step], axis=1)

    @cached_property
    def medians(self) -> list[int]:
        """The median time over all steps alike (ns)."""
        ns: list[int] = medians(self.samples).tolist()
        return ns

    def keys_of(self, span: slice) -> Int64s:
        """A number for each piece of `span`, a slice of the pieces of all steps: equal
        for the same kernel under the same op on the same lane of this side."""
        lanes = self.work.lane
        first_lane = lanes.min() if len(lanes) else 0
        lane_numbers = (lanes[span] - first_lane).astype(np.int64)
        return self.exact_keys_of_all_steps[span] ^ (lane_numbers << LANE_SHIFT)

    def op_id(self, item: int) -> int:
        """The number of the op of an item; 0 when there is none."""
        return int(self.exact_keys[item]) >> OP_SHIFT

    def kernel_id(self, item: int) -> int:
        """The number of the kernel of an item."""
        return int(self.exact_keys[item]) & KERNEL_MASK

    def _named(self, rows: Rows) -> list[str]:
        """The names of the slices in these rows; "" for -1."""
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
    """The items of a side: the pieces of its representative step, which is the median
    one (the lower of two) of the steps that do the most common work.

    `words`: the vocabulary of both sides, to which new words are added. All steps alike
    are usual ones until `with_usual_steps` chooses.
    """
    numbers = _numbers_of_pieces(work, words, known or KnownNames())
    exact = numbers.kernel + (numbers.op << OP_SHIFT)
    alike = _steps_alike(work, exact)
    window = _median_window(work, alike)
    span = work.slice_of_window(window)
    kernel = numbers.kernel[span]
    op = numbers.op[span]
    samples = np.array(
        [work.ns[work.slice_of_window(n)] for n in alike], dtype=np.int64
    )
    steps = np.array(alike, dtype=np.intp)
    return WorkItems(
        work=work,
        representative_step=window,
        alike_steps=steps,
        usual_steps=steps,
        plain_steps=steps,
        compared_steps=steps,
        has_same_steps=False,
        row=work.row[span],
        op=work.op[span],
        lane=work.lane[span],
        exact_keys=exact[span],
        op_keys=_keys_by_op(work, span, kernel, op, words),
        single_kernel_keys=_keys_by_single_kernel(work, span, op),
        class_keys=_keys_by_class(work, span, words),
        samples=samples.reshape(max(1, len(alike)), span.stop - span.start),
        exact_keys_of_all_steps=exact,
        is_without_op=numbers.is_without_op[span],
    )


class _NumbersOfPieces(msgspec.Struct, frozen=True, eq=False):
    """The numbers of the names of all pieces of work, equal on both sides for the same
    name; arrays of shape [pieces of all steps]."""

    kernel: Int64s
    op: Int64s  # of the innermost one, 0 for none
    is_without_op: Flags  # compared without regard to its op, whose number is 0


def _numbers_of_pieces(
    work: Work, words: Vocabulary, known: KnownNames
) -> _NumbersOfPieces:
    """The numbers of the names of all pieces; new words are added to `words`."""

    def word_of_op(name: str) -> str:
        # what torch.compile puts around a program is no op of it
        word = "" if is_compiler(name) else identity(stem(name))
        return known.names_on_other_side.get(word, word)

    trace = work.trace
    op_name = np.where(work.op >= 0, trace.name[work.op], -1)
    kernel = _numbers(trace, trace.name[work.row], words, identity)
    op = _numbers(trace, op_name, words, word_of_op)
    is_without_op = np.isin(kernel, known.kernels_without_op)
    op[is_without_op] = 0
    return _NumbersOfPieces(kernel=kernel, op=op, is_without_op=is_without_op)


def with_usual_steps(
    a: WorkItems, b: WorkItems, without: Sequence[int] = ()
) -> tuple[WorkItems, WorkItems]:
    """Both sides with their plain, usual and compared steps chosen.

    With equally many steps, these are of the steps that do the usual work on both
    sides, if there are such; else of the steps alike of each side. The plain and the
    usual ones are without the steps in `without`, if others are left.
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
    plain_a = _steps_without(alike_a, without, a.alike_steps)
    plain_b = _steps_without(alike_b, without, b.alike_steps)
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


def _steps_without(steps: Rows, without: Sequence[int], otherwise: Rows) -> Rows:
    """These steps but for those in `without`; `otherwise` if none is left."""
    steps_left = np.setdiff1d(steps, without)
    return steps_left if len(steps_left) else otherwise


def _numbers(
    trace: Trace,
    names: NDArray[np.integer],
    words: Vocabulary,
    word_of: Callable[[str], str],
) -> Int64s:
    """The numbers in the vocabulary of `word_of(name)` for names, which are given by
    their numbers in the trace, -1 for none; 0 for none. Shape of `names`."""
    number_of_name = np.zeros(len(trace.names) + 1, dtype=np.int64)  # the last: of -1
    for name in np.unique(names[names >= 0]).tolist():
        number_of_name[name] = words[word_of(trace.names[name])]
    return np.asarray(number_of_name[names])


def _steps_alike(work: Work, exact: Int64s) -> list[int]:
    """The numbers of the windows with the most common sequence of exact keys and lanes;
    on a tie, the sequence that comes first. Empty without windows."""
    sequences = []
    for window in range(len(work.windows)):
        span = work.slice_of_window(window)
        sequences.append(exact[span].tobytes() + work.lane[span].tobytes())
    if not sequences:
        return []
    most_common = Counter(sequences).most_common(1)[0][0]
    return [n for n, sequence in enumerate(sequences) if sequence == most_common]


def _median_window(work: Work, windows: list[int]) -> int:
    """The one of these windows that has the median duration, the lower of two; 0 if
    there are none."""
    if not windows:
        return 0
    by_duration = sorted(windows, key=lambda window: int(work.windows.dur[window]))
    return by_duration[(len(by_duration) - 1) // 2]


def _keys_by_op(
    work: Work, span: slice, kernel: Int64s, op: Int64s, words: Vocabulary
) -> Int64s:
    """The keys `by_op` of the pieces in `span`: of the op, the part of its work that
    the kernel is (see `KernelRole.part`), and how many such parts come before it under
    this call of the op.

    A negative number of the kernel where that does not tell pieces apart: without an
    op, or under a call that launches more than MAX_PIECES_BY_PLACE of a part. `kernel`
    and `op`: their numbers, of shape [span].
    """
    rows = work.row[span]
    role = work.trace.role[rows].astype(np.int64)
    part = _numbers(work.trace, work.trace.name[rows], words, _word_of_part)
    part += role << ROLE_SHIFT
    _, group = distinct_rows((work.op[span], part))  # of one part under one call of op
    place = ordinals(group)
    pieces_of_group = np.bincount(group)
    are_few = pieces_of_group[group] <= MAX_PIECES_BY_PLACE
    by_place = _numbers_of_places(op, part, place, words)
    return np.where((op > 0) & are_few, by_place, -kernel - 1)


def _numbers_of_places(
    op: Int64s, part: Int64s, place: Int64s, words: Vocabulary
) -> Int64s:
    """A number for each op, part of its work and place among equal parts, from the
    vocabulary; all of shape [span]."""
    first, distinct = distinct_rows((op, part, place))
    numbers = []
    for n in first.tolist():
        numbers.append(words[f"place {op[n]} {part[n]} {place[n]}"])
    return np.array(numbers, dtype=np.int64)[distinct]


def _word_of_part(kernel: str) -> str:
    """`part main`; such words have a space, which the names of ops have not."""
    return f"part {role_of_kernel(kernel).part}"


def _keys_by_single_kernel(work: Work, span: slice, op: Int64s) -> Int64s:
    """The keys `by_single_kernel` of the pieces in `span`: of the op, if its call
    launches nothing else of this role (kernel, copy, set), and the kernel is no helper
    of other work; else 0. `op`: the numbers of the ops, of shape [span]."""
    trace = work.trace
    rows = work.row[span]
    role = trace.role[rows].astype(np.int64)
    _, group = distinct_rows((work.op[span], role))
    is_single = np.bincount(group)[group] == 1
    helper_names = []
    for name in np.unique(trace.name[rows]).tolist():
        if role_of_kernel(trace.names[name]).is_helper:
            helper_names.append(name)
    is_helper = np.isin(trace.name[rows], helper_names)
    has_key = (op > 0) & is_single & ~is_helper
    return np.where(has_key, (op << OP_SHIFT) + role, 0)


def ancestors(trace: Trace, rows: NDArray[np.integer]) -> Iterator[NDArray[np.integer]]:
    """Rows of slices (-1 for none), then the rows of the slices around them, and so on
    until none is left; all of the shape of `rows`, -1 where nothing is around."""
    while (rows >= 0).any():
        yield rows
        rows = np.where(rows >= 0, trace.parent[rows], -1)


def outermost(trace: Trace, ops: Rows) -> Rows:
    """The row of the outermost op of the program around each of these ops, which may be
    the op itself; -1 for none. What torch.compile inserts is no op of the program."""
    is_program = trace.named(lambda name: not is_compiler(name))
    outermost_op = np.full(len(ops), -1, dtype=np.intp)
    for row in ancestors(trace, ops):
        is_op = (row >= 0) & (trace.source_role[row] == Role.OP)
        is_op &= is_program[trace.name[row]]
        outermost_op = np.where(is_op, row, outermost_op)
    return outermost_op


def _keys_by_class(work: Work, span: slice, words: Vocabulary) -> Int64s:
    """The keys `by_class` of the pieces in `span`: of the kind of work, 0 for copies
    and sets and where the kind says too little (see `work_class`). Products and softmax
    inside attention are kinds of their own."""
    trace = work.trace
    rows = work.row[span]
    kernel_name = trace.name[rows]
    op_name = _names_or_none(trace, work.op[span])
    outer_name = _names_or_none(trace, outermost(trace, work.op[span]))
    computes = np.isin(trace.role[rows], (Role.KERNEL, Role.OP)).astype(np.int64)
    # each distinct combination of names is looked at once
    first, distinct = distinct_rows((op_name, kernel_name, computes, outer_name))
    numbers = []
    for n in first.tolist():
        word = ""
        if computes[n]:
            op = _text_or_none(trace, int(op_name[n]))
            outer_op = _text_or_none(trace, int(outer_name[n]))
            word = _word_of_class(op, trace.names[kernel_name[n]], outer_op)
        numbers.append(words[word])
    return np.array(numbers, dtype=np.int64)[distinct]


def _names_or_none(trace: Trace, rows: Rows) -> Int64s:
    """The numbers of the names of the slices in these rows; -1 for row -1."""
    return np.where(rows >= 0, trace.name[rows], -1)


def _text_or_none(trace: Trace, name: int) -> str:
    """The name with this number; "" for -1."""
    return trace.names[name] if name >= 0 else ""


def _word_of_class(op: str, kernel: str, outer_op: str) -> str:
    """`gemm`, or `gemm of attention`; "" where the kind says too little."""
    word = work_class(op, kernel)
    is_in_attention = outer_op != "" and work_class(outer_op, "") == "attention"
    return f"{word} of attention" if word and is_in_attention else word
