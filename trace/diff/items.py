"""One representative step of each side, as numbers that can be compared between the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.diff.names import identity, work_class
from fusetui.trace.diff.pieces import Work
from fusetui.trace.diff.statistics import median
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler, stem

Int64s = NDArray[np.int64]
Rows = NDArray[np.intp]
Word = Callable[[str], str]

CROWD = 8
"""An op with more GPU events than this (a graph launch) does not tell them apart by their place."""

OP_SHIFT = 32
KERNEL_MASK = (1 << OP_SHIFT) - 1
"""The halves of an exact key: the op's number above, the kernel's below."""


class Vocabulary:
    """Numbers for words, the same for both sides; 0 is the empty word."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def number(self, word: str) -> int:
        return self._numbers.setdefault(word, len(self._numbers))


class Items(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The pieces of work of a step, sorted by (lane, start); arrays of shape [items].

    Keys are equal on both sides when two pieces may be the same: `exact` for the same kernel under
    the same op, `by_op` for the same place under the same op, `by_class` for the same kind of work
    (0: of no kind that says enough). `samples` is [steps alike, items], `ns` their median.
    """

    work: Work
    window: int  # the representative one
    row: Rows
    op: Rows
    lane: Rows
    exact: Int64s
    by_op: Int64s
    by_class: Int64s
    samples: Int64s
    ns: Int64s

    def __len__(self) -> int:
        return len(self.row)

    @property
    def trace(self) -> Trace:
        return self.work.trace

    @cached_property
    def names(self) -> list[str]:
        """Of the kernel, or the op in its place; shape [items], like the lists below."""
        return self._named(self.row)

    @cached_property
    def op_names(self) -> list[str]:
        """Of the innermost op; "" when unknown."""
        return self._named(self.op)

    @cached_property
    def computes(self) -> list[bool]:
        """Neither a copy nor a set."""
        found: list[bool] = np.isin(self.trace.role[self.row], (Role.KERNEL, Role.OP)).tolist()
        return found

    @cached_property
    def words(self) -> list[int]:
        """What a piece of work is counted as: its op, else its kernel."""
        op, kernel = self.exact >> OP_SHIFT, self.exact & KERNEL_MASK
        found: list[int] = np.where(op > 0, op, -kernel).tolist()
        return found

    @cached_property
    def stems(self) -> list[str]:
        """Of the innermost op's name."""
        return [stem(name) for name in self.op_names]

    @cached_property
    def outer(self) -> list[int]:
        """The row of the outermost op of the program around each item, -1 when unknown."""
        trace = self.trace
        ours = np.array([not is_compiler(name) for name in trace.names] or [False])
        found, row = np.full(len(self), -1, dtype=np.intp), self.op
        while (row >= 0).any():
            is_op = (row >= 0) & (trace.role[row] == Role.OP) & ours[trace.name[row]]
            found = np.where(is_op, row, found)
            row = np.where(row >= 0, trace.parent[row], -1)
        rows: list[int] = found.tolist()
        return rows

    @cached_property
    def times(self) -> list[int]:
        """`ns` as plain integers."""
        found: list[int] = self.ns.tolist()
        return found

    @cached_property
    def rows(self) -> list[int]:
        found: list[int] = self.row.tolist()
        return found

    def _named(self, rows: Rows) -> list[str]:
        numbers = np.where(rows >= 0, self.trace.name[rows], -1).tolist()
        texts = self.trace.names
        return [texts[number] if number >= 0 else "" for number in numbers]


def items(work: Work, words: Vocabulary) -> tuple[Items, tuple[str, ...]]:
    """The representative step: the median one of those with the most common sequence of work."""
    kernel, op = _word_numbers(work, words)
    exact = kernel + (op << OP_SHIFT)
    alike = _alike(work, exact)
    window = _representative(work, alike)
    chosen = work.of_window(window)
    samples = np.array([work.ns[work.of_window(w)] for w in alike], dtype=np.int64)
    samples = samples.reshape(max(1, len(alike)), chosen.stop - chosen.start)
    found = Items(
        work=work,
        window=window,
        row=work.row[chosen],
        op=work.op[chosen],
        lane=work.lane[chosen],
        exact=exact[chosen],
        by_op=_by_op(work, chosen, kernel[chosen], op[chosen]),
        by_class=_classes(work, chosen, words),
        samples=samples,
        ns=median(samples) if len(alike) else samples[0],
    )
    return found, _notes(work, alike)


def _word_numbers(work: Work, words: Vocabulary) -> tuple[Int64s, Int64s]:
    """Per piece: the numbers of its kernel's identity and of its op's stem; a wrapper is no op."""
    trace = work.trace
    names = trace.name[work.row]
    ops = np.where(work.op >= 0, trace.name[work.op], -1)
    kernel = _table(trace, np.unique(names), words, identity)[names]
    op = _table(trace, np.unique(ops[ops >= 0]), words, _op_word)[ops]
    return kernel, np.where(ops >= 0, op, 0)


def _op_word(name: str) -> str:
    return "" if is_compiler(name) else identity(stem(name))


def _table(trace: Trace, used: Rows, words: Vocabulary, word: Word) -> Int64s:
    """Word numbers by name id, filled in for the ids used."""
    table = np.zeros(len(trace.names) + 1, dtype=np.int64)
    for number in used.tolist():
        table[number] = words.number(word(trace.names[number]))
    return table


def _alike(work: Work, exact: Int64s) -> list[int]:
    """The windows that hold the most common sequence of work; the first found, on a tie."""
    spans = [work.of_window(w) for w in range(len(work.windows))]
    texts = [exact[s].tobytes() + work.lane[s].tobytes() for s in spans]
    if not texts:
        return []
    ((common, _),) = Counter(texts).most_common(1)
    return [w for w, text in enumerate(texts) if text == common]


def _representative(work: Work, alike: list[int]) -> int:
    """The window of the median duration, the lower one of two."""
    by_duration = sorted(alike, key=lambda w: int(work.windows.dur[w]))
    return by_duration[(len(by_duration) - 1) // 2] if by_duration else 0


def _by_op(work: Work, chosen: slice, kernel: Int64s, op: Int64s) -> Int64s:
    """The op, what kind of event, and the how-manieth of that kind under this very op.

    Without an op, or under one that launches a crowd, the kernel itself.
    """
    rows, owners = work.row[chosen], work.op[chosen]
    role = work.trace.role[rows].astype(np.int64)
    group = np.unique(np.stack([owners, role]), axis=1, return_inverse=True)[1].reshape(-1)
    order = np.argsort(group, kind="stable")
    first = np.searchsorted(group[order], np.arange(len(rows) and int(group.max()) + 1))
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.arange(len(rows)) - first[group[order]]
    crowd = np.bincount(group, minlength=len(first))[group] > CROWD
    known = (op > 0) & ~crowd
    return np.where(known, (op << OP_SHIFT) + (role << 16) + place, -kernel - 1)


def _classes(work: Work, chosen: slice, words: Vocabulary) -> Int64s:
    trace = work.trace
    kernels = trace.name[work.row[chosen]]
    ops = np.where(work.op[chosen] >= 0, trace.name[work.op[chosen]], -1)
    computes = np.isin(trace.role[work.row[chosen]], (Role.KERNEL, Role.OP))
    kinds, kind = np.unique(np.stack([ops, kernels, computes]), axis=1, return_inverse=True)
    found = [
        words.number(_class(trace, op, kernel) if plain else "")
        for op, kernel, plain in kinds.T.tolist()
    ]
    return np.array(found, dtype=np.int64)[kind.reshape(-1)]


def _class(trace: Trace, op: int, kernel: int) -> str:
    return work_class(trace.names[op] if op >= 0 else "", trace.names[kernel])


def _notes(work: Work, alike: list[int]) -> tuple[str, ...]:
    if len(alike) == len(work.windows):
        return ()
    return (
        f"{work.label}: steps differ in their work; times of rows are from the {len(alike)} of"
        f" {len(work.windows)} steps that are alike",
    )
