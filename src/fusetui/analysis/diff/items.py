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
from fusetui.analysis.diff.statistics import mean, median, usual_steps
from fusetui.analysis.diff.work import Work, behind_compute
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct_rows, ordinals
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler, stem

# an op with more GPU events (a graph launch) does not tell them apart by their place
CROWD = 8
OP_SHIFT = 32  # in an exact key, the op's number is above, the kernel's below
KERNEL_MASK = (1 << OP_SHIFT) - 1
# of the lane in keys that tell lanes apart; the op's number stays below it
LANE_SHIFT = 56


class Vocabulary(dict[str, int]):
    """Numbers for words, the same for both sides; 0 is the empty word."""

    def __missing__(self, word: str) -> int:
        self.setdefault("", 0)
        return self.setdefault(word, len(self))

    def text_of(self, number: int) -> str:
        """The word that has this number."""
        return next(word for word, of in self.items() if of == number)


class WorkItems(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The pieces of work of a step, sorted by (lane, start); arrays of shape [items].

    Keys are equal on both sides when two pieces may be the same: `exact` for the same
    kernel under the same op, `by_op` for the same part of the same op, `alone` for the
    only kernel of the same op, `by_class` for the same kind of work (0: the kind says
    too little). `samples` is [steps alike, items].
    """

    work: Work
    window: int  # the representative one
    alike: Rows  # the steps that do the same work as that one
    usual: Rows  # those of them that all figures are averaged over
    plain: Rows  # those of them without anything that the others lack
    row: Rows
    op: Rows
    lane: Rows
    exact: Int64s
    by_op: Int64s
    alone: Int64s
    by_class: Int64s
    samples: Int64s
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
        """The time of each in a usual step: a mean, so that the parts of a step add
        up."""
        if not len(self.usual):
            return median(self.samples)
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
        """Neither a copy nor a set."""
        return [*np.isin(self.trace.role[self.row], (Role.KERNEL, Role.OP)).tolist()]

    @cached_property
    def words(self) -> list[int]:
        """What a piece of work counts as: its op, else its kernel."""
        op, kernel = self.exact >> OP_SHIFT, self.exact & KERNEL_MASK
        return [*np.where(op > 0, op, -kernel).tolist()]

    @cached_property
    def stems(self) -> list[str]:
        return [stem(name) for name in self.op_names]

    @cached_property
    def outer(self) -> list[int]:
        """The row of the outermost op of the program around each item, -1 when
        unknown."""
        return [*outermost(self.trace, self.op).tolist()]

    @cached_property
    def hidden(self) -> list[int]:
        """Of communication, copies, sets: how long kernels computed meanwhile in a
        usual step."""
        work = self.work
        if not work.gpu or not len(self.usual):
            return [0] * len(self)
        steps = [work.row[work.of_window(step)] for step in self.usual.tolist()]
        return [*mean(behind_compute(self.trace, np.stack(steps))).tolist()]

    @cached_property
    def times(self) -> list[int]:
        return [*self.ns.tolist()]

    @cached_property
    def medians(self) -> list[int]:
        """Over all steps alike."""
        return [*median(self.samples).tolist()]

    def keys_of(self, span: slice) -> Int64s:
        """Per piece of a step: one number for the same kernel, op and lane."""
        lanes = self.work.lane[span] - (
            self.work.lane.min() if len(self.work.lane) else 0
        )
        return self.every[span] ^ (lanes.astype(np.int64) << LANE_SHIFT)

    def op_word(self, item: int) -> int:
        """The number of its op; 0 when there is none."""
        return int(self.exact[item]) >> OP_SHIFT

    def kernel_word(self, item: int) -> int:
        """The number of its kernel."""
        return int(self.exact[item]) & KERNEL_MASK

    def _named(self, rows: Rows) -> list[str]:
        numbers = np.where(rows >= 0, self.trace.name[rows], -1).tolist()
        return [self.trace.names[number] if number >= 0 else "" for number in numbers]


class Known(msgspec.Struct, frozen=True, eq=False):
    """What is known of how the two sides compare before their items do."""

    names: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Of the words of ops that have another name on the other side, that name."""
    alone: Int64s = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The numbers of kernels that are compared without regard to their ops."""


def items(work: Work, words: Vocabulary, known: Known | None = None) -> WorkItems:
    """The representative step: the median (lower of two) of those with the most common
    work."""
    known = known or Known()

    def op_word(name: str) -> str:
        word = "" if is_compiler(name) else identity(stem(name))  # a wrapper is no op
        return known.names.get(word, word)

    trace, ops = work.trace, np.where(work.op >= 0, work.trace.name[work.op], -1)
    kernel = _numbers(trace, trace.name[work.row], words, identity)
    op = _numbers(trace, ops, words, op_word)
    by_kernel = np.isin(kernel, known.alone)
    op[by_kernel] = 0
    exact = kernel + (op << OP_SHIFT)
    alike = _alike(work, exact)
    by_duration = sorted(alike, key=lambda w: int(work.windows.dur[w]))
    window = by_duration[(len(by_duration) - 1) // 2] if by_duration else 0
    chosen = work.of_window(window)
    samples = np.array([work.ns[work.of_window(w)] for w in alike], dtype=np.int64)
    steps = np.array(alike, dtype=np.intp)
    return WorkItems(
        work=work,
        window=window,
        alike=steps,
        usual=steps,
        plain=steps,
        row=work.row[chosen],
        op=work.op[chosen],
        lane=work.lane[chosen],
        exact=exact[chosen],
        by_op=_by_op(work, chosen, kernel[chosen], op[chosen], words),
        alone=_alone(work, chosen, op[chosen]),
        by_class=_classes(work, chosen, words),
        samples=samples.reshape(max(1, len(alike)), chosen.stop - chosen.start),
        every=exact,
        by_kernel=by_kernel[chosen],
    )


def settled(
    a: WorkItems, b: WorkItems, without: Sequence[int] = ()
) -> tuple[WorkItems, WorkItems]:
    """Both sides with their usual steps chosen: with equally many steps, those that do
    the usual work on both sides. Leaves out the steps in `without`, if others are
    left."""
    of_a, of_b = a.work.windows.dur, b.work.windows.dur
    common = np.intersect1d(a.alike, b.alike) if len(of_a) == len(of_b) else a.alike[:0]
    plain = [
        np.setdiff1d(common if len(common) else of.alike, without) for of in (a, b)
    ]
    plain = [
        steps if len(steps) else of.alike
        for steps, of in zip(plain, (a, b), strict=True)
    ]
    usual_a, usual_b = usual_steps(of_a, of_b, *plain)
    a = msgspec.structs.replace(a, usual=usual_a, plain=plain[0])
    return a, msgspec.structs.replace(b, usual=usual_b, plain=plain[1])


def _numbers(
    trace: Trace,
    names: NDArray[np.integer],
    words: Vocabulary,
    word: Callable[[str], str],
) -> Int64s:
    """The numbers of the words for names, by their ids; 0 for -1."""
    table = np.zeros(len(trace.names) + 1, dtype=np.int64)
    for number in np.unique(names[names >= 0]).tolist():
        table[number] = words[word(trace.names[number])]
    return np.asarray(table[names])


def _alike(work: Work, exact: Int64s) -> list[int]:
    """The windows that hold the most common sequence of work; the first found, on a
    tie."""
    spans = [work.of_window(w) for w in range(len(work.windows))]
    texts = [exact[s].tobytes() + work.lane[s].tobytes() for s in spans]
    common = Counter(texts).most_common(1)
    return [w for w, text in enumerate(texts) if text == common[0][0]]


def _by_op(
    work: Work, chosen: slice, kernel: Int64s, op: Int64s, words: Vocabulary
) -> Int64s:
    """The op, the part of its work, and the index among such parts under this op.

    Without an op, or under one that launches very many kernels, the kernel itself.
    """
    rows = work.row[chosen]
    names, roles = work.trace.name[rows], work.trace.role[rows].astype(np.int64)
    role = _numbers(
        work.trace, names, words, lambda name: f"part {role_of_kernel(name).part}"
    ) + (roles << 24)
    _, group = distinct_rows((work.op[chosen], role))
    place = ordinals(group)
    known = (op > 0) & (np.bincount(group)[group] <= CROWD)
    first, kind = distinct_rows((op, role, place))
    kinds = zip(*(column[first].tolist() for column in (op, role, place)), strict=True)
    numbers = [words[f"place {o} {r} {p}"] for o, r, p in kinds]
    return np.where(known, np.array(numbers, dtype=np.int64)[kind], -kernel - 1)


def _alone(work: Work, chosen: slice, op: Int64s) -> Int64s:
    """The op, where it launches nothing else of this kind of event, and what it
    launches is no helper of work that is not there; else 0."""
    trace, rows = work.trace, work.row[chosen]
    role = trace.role[rows].astype(np.int64)
    _, group = distinct_rows((work.op[chosen], role))
    helpers = [
        n
        for n in np.unique(trace.name[rows]).tolist()
        if role_of_kernel(trace.names[n]).is_helper
    ]
    single = (np.bincount(group)[group] == 1) & ~np.isin(trace.name[rows], helpers)
    return np.where((op > 0) & single, (op << OP_SHIFT) + role, 0)


def ancestors(trace: Trace, rows: NDArray[np.integer]) -> Iterator[NDArray[np.integer]]:
    """These rows, then those around them, and so on; -1 where there is no more."""
    while (rows >= 0).any():
        yield rows
        rows = np.where(rows >= 0, trace.parent[rows], -1)


def outermost(trace: Trace, ops: Rows) -> Rows:
    """The outermost op of the program around each of these rows, -1 for none."""
    ours = trace.named(lambda name: not is_compiler(name))
    found = np.full(len(ops), -1, dtype=np.intp)
    for row in ancestors(trace, ops):
        is_op = (row >= 0) & (trace.source_role[row] == Role.OP) & ours[trace.name[row]]
        found = np.where(is_op, row, found)
    return found


def _classes(work: Work, chosen: slice, words: Vocabulary) -> Int64s:
    """Products and softmax inside attention are classes of their own."""
    trace = work.trace
    kernels = trace.name[work.row[chosen]]
    ops = np.where(work.op[chosen] >= 0, trace.name[work.op[chosen]], -1)
    computes = np.isin(trace.role[work.row[chosen]], (Role.KERNEL, Role.OP)).astype(
        np.int64
    )
    around = outermost(trace, work.op[chosen])
    inside = np.where(around >= 0, trace.name[around], -1)
    columns = ops, kernels, computes, inside
    first, kind = distinct_rows(columns)
    found = []
    for own, kernel, plain, outer in zip(
        *(of[first].tolist() for of in columns), strict=True
    ):
        name = work_class(trace.names[own] if own >= 0 else "", trace.names[kernel])
        attention = outer >= 0 and work_class(trace.names[outer], "") == "attention"
        found.append(
            words[f"{name}{' of attention' * (attention and name != '')}" * plain]
        )
    return np.array(found, dtype=np.int64)[kind]
