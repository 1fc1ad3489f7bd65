"""Turns rows into the lines of a table for people; repeated rows, and dispatch of one
kind, are one line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

import msgspec

from fusetui.analysis.diff.model import (
    CPU,
    ELSEWHERE,
    ONLY,
    REPEATED,
    Diff,
    Row,
    RowKind,
)
from fusetui.analysis.diff.names import identity, shared_start
from fusetui.analysis.diff.statistics import FLOOR_PERCENT
from fusetui.analysis.diff.story import changes
from fusetui.gpu.kernel_names import decode
from fusetui.text.cutting import clip, width
from fusetui.text.figures import change, count, microseconds, plural, signed_duration
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.grouping import by_key

MAX_NAME = 48
MAX_PLAIN = 64
# a compiled part of the program with so many lines is one line that can be opened
MANY_LINES = 12
MOST_WAITS = 3
ARROW = " -> "
APART = "  "  # between the parts of a line

MARKS = {
    RowKind.SAME: "~",
    RowKind.FASTER: "-",
    RowKind.SLOWER: "+",
    RowKind.REMOVED: "-",
    RowKind.ADDED: "+",
}

SAME = "the same kernel"
REGION = "region"
NOISE = "may be noise"
EARLIER = "work that ran in the step, launched before it"
LATER = "work of the step that ran after it"
OVERLAP = "work that ran at the same time as other work"
ODD = "the effect on the median of steps with other work"
STEP = "step"
PINNED = ("idle", "", STEP)
"""The lines that are always in sight: idle time, what is not explained, the sum."""
TIMED = (RowKind.FASTER, RowKind.SLOWER)


class DiffLine(msgspec.Struct, frozen=True):
    """One line; ns per step, None on a side that has nothing. Every text is safe to
    print."""

    mark: str  # + more time, - less, ~ no change beyond noise
    kind: str
    a_ns: int | None
    b_ns: int | None
    change_ns: int
    what: str
    why: str = ""
    counts: bool = True
    rows: tuple[Row, ...] = ()  # what the line stands for
    # of `what`: the place, the op, the kernel, where they are known
    parts: tuple[str, ...] = ()
    times: str = ""  # the end of `what`: how many rows it stands for

    @property
    def is_nothing(self) -> bool:
        """Whether all its figures would be zeros."""
        figures = {microseconds(ns) for ns in (self.a_ns, self.b_ns, self.change_ns)}
        return figures == {microseconds(0)}

    @property
    def is_change(self) -> bool:
        """Whether its change would be more than zero."""
        return microseconds(abs(self.change_ns)) != microseconds(0)


def by_effect(changes: Iterable[DiffLine]) -> list[DiffLine]:
    """The largest change first, whatever its direction; lines of the sum before the
    others, and lines without a change last."""
    return sorted(
        changes,
        key=lambda line: (not line.is_change, not line.counts, -abs(line.change_ns)),
    )


class LargestLines(msgspec.Struct, frozen=True):
    """The lines of the largest changes, and the others; both in the order of
    by_effect."""

    shown: list[DiffLine]
    rest: list[DiffLine]


def largest(changes: Iterable[DiffLine], number: int) -> LargestLines:
    """So many lines, whether they are part of the sum or not, and the others. Lines of
    nothing but zeros are always among the others."""
    ordered = by_effect(changes)
    candidates = [n for n, line in enumerate(ordered) if not line.is_nothing]
    by_change = sorted(candidates, key=lambda n: -abs(ordered[n].change_ns))
    chosen = set(by_change[:number])
    return LargestLines(
        shown=[line for n, line in enumerate(ordered) if n in chosen],
        rest=[line for n, line in enumerate(ordered) if n not in chosen],
    )


class Region(msgspec.Struct, frozen=True):
    """A part of the program that torch.compile made anew on a side: its sums, and its
    lines."""

    line: DiffLine
    inner: tuple[DiffLine, ...]


def lines(diff: Diff) -> list[DiffLine]:
    """All rows in program order, then the changes in dispatch on the CPU."""
    return _lines(diff.rows)


def regions(diff: Diff) -> tuple[list[Region], list[DiffLine]]:
    """The compiled parts of the program that have many lines, and the lines of all
    else."""
    work = (row for row in diff.rows if row.counts and not row.on_cpu)
    found: list[Region] = []
    folded: set[int] = set()
    for (phase, where), rows in by_key(
        work, lambda row: (row.phase, row.where)
    ).items():
        inner = tuple(_lines(rows))
        if any(row.compiled for row in rows) and len(inner) >= MANY_LINES:
            found.append(Region(_region(f"{phase} {where}".strip(), rows), inner))
            folded.update(map(id, rows))
    return found, _lines(row for row in diff.rows if id(row) not in folded)


def _region(name: str, rows: Sequence[Row]) -> DiffLine:
    """`forward ## over_arch ##: 372 kernels -> 511 kernels, 498 compiled`."""
    a_ns, b_ns = _sums(rows)
    sides = []
    for side in "ab":
        counts = [(getattr(row, f"{side}_count"), row.compiled) for row in rows]
        made = sum(times for times, compiled in counts if side in compiled)
        kernels = plural(sum(times for times, _ in counts), "kernel")
        sides.append(f"{kernels}, {count(made)} compiled" if made else kernels)
    what = f"{printable(name) or 'the program'}: {ARROW.join(sides)}"
    return DiffLine(
        _sign(a_ns, b_ns), REGION, a_ns, b_ns, b_ns - a_ns, what, rows=tuple(rows)
    )


def _sums(rows: Sequence[Row]) -> tuple[int, int]:
    return sum(row.a_ns for row in rows), sum(row.b_ns for row in rows)


def _lines(rows: Iterable[Row]) -> list[DiffLine]:
    listed = list(rows)
    work = [row for row in listed if not row.on_cpu]
    cpu = [row for row in listed if row.on_cpu]
    # What is in one step only is told apart from what is in each.
    dispatch = by_key(cpu, lambda row: (row.kind, row.counts, _only(row)))
    return [*map(_work, _alike(work)), *map(_dispatch, dispatch.values())]


def closing(diff: Diff) -> list[DiffLine]:
    """The lines that close the sum: idle time, work that crosses the borders of a step
    or overlaps other work, what is not explained, and the step itself; none whose
    figures are all zeros."""
    sums, a, b = diff.accounting, diff.side_a, diff.side_b
    gpu = a.gpu and b.gpu
    idle = "no GPU event runs in the step" if gpu else "outside all ops"
    waits = _waits(changes(a.idle, b.idle), sums.idle_ns) if gpu else ""
    found = [
        DiffLine("", "idle", a.idle_ns, b.idle_ns, sums.idle_ns, idle, waits),
        DiffLine("", "earlier", a.earlier_ns, b.earlier_ns, sums.earlier_ns, EARLIER),
        DiffLine("", "later", -a.later_ns, -b.later_ns, sums.later_ns, LATER),
        DiffLine("", "overlap", -a.overlap_ns, -b.overlap_ns, sums.overlap_ns, OVERLAP),
        DiffLine("", "odd", a.odd_ns, b.odd_ns, sums.odd_ns, ODD),
        DiffLine("", "", None, None, sums.not_explained_ns, "not explained"),
        DiffLine(
            "",
            STEP,
            diff.step.a_ns,
            diff.step.b_ns,
            sums.step_ns,
            "= the sum of all above",
        ),
    ]
    return [line for line in found if line.kind == STEP or not line.is_nothing]


def _waits(causes: dict[str, int], idle_ns: int) -> str:
    """What the GPU waited for longer, or less long (ns): the largest causes of the
    change of idle time, then those that offset it."""
    reasons, offsets = [], []
    for cause, ns in [*causes.items()][:MOST_WAITS]:
        text = f"{signed_duration(ns)} {cause}"
        if ns * idle_ns < 0:
            offsets.append(text)
        else:
            reasons.append(text)
    parts = [", ".join(reasons)]
    if offsets:
        parts.append(f"offset by {', '.join(offsets)}")
    return "; ".join(part for part in parts if part)


def _alike(rows: Iterable[Row]) -> list[list[Row]]:
    """Groups of rows that say the same about the same names, in the order of their
    first rows."""

    def said(row: Row) -> tuple[object, ...]:
        timed = row.kind in (RowKind.SAME, RowKind.MOVED, *TIMED)
        names = tuple(map(identity, row.a)), tuple(map(identity, row.b))
        return row.kind, row.op, row.phase, *names, "" if timed else row.why

    return list(by_key(rows, said).values())


def _work(rows: Sequence[Row]) -> DiffLine:
    row = rows[0]
    a_ns, b_ns = _sums(rows)
    parts = _parts(row, _place(rows))
    times = f"{APART}x{len(rows)}" if len(rows) > 1 else ""
    return DiffLine(
        mark=MARKS.get(row.kind) or _sign(a_ns, b_ns),
        kind=_kind(row.kind, a_ns, b_ns),
        a_ns=a_ns if row.a else None,
        b_ns=b_ns if row.b else None,
        change_ns=b_ns - a_ns,
        what=APART.join(parts) + times,
        why=_why(row, len(rows), a_ns, b_ns),
        counts=row.counts,
        rows=tuple(rows),
        parts=parts,
        times=times,
    )


def _kind(kind: RowKind, a_ns: int, b_ns: int) -> str:
    """What changed by a quarter or more is not called the same, even where it may be
    noise."""
    is_large_change = a_ns > 0 and 4 * abs(b_ns - a_ns) >= a_ns
    if kind is RowKind.SAME and is_large_change:
        return NOISE
    return str(kind)


def _why(row: Row, times: int, a_ns: int, b_ns: int) -> str:
    if times > 1 and (row.kind in TIMED or _kind(row.kind, a_ns, b_ns) == NOISE):
        return f"the same work, {change(a_ns, b_ns)} time"
    if times > 1 and row.kind is RowKind.MOVED:
        return ELSEWHERE
    why = (
        row.why.removeprefix(SAME).removeprefix(", ")
        if row.kind is RowKind.SAME
        else row.why
    )
    return printable(why)


def _sign(a_ns: int, b_ns: int) -> str:
    if 100 * abs(b_ns - a_ns) <= FLOOR_PERCENT * max(a_ns, b_ns):
        return "~"
    return "+" if b_ns > a_ns else "-"


def _place(rows: Sequence[Row]) -> str:
    """The module or annotation of all of them; with a star when only their beginnings
    agree. Where there is none: the phase."""
    places = sorted({row.where for row in rows})
    if len(places) == 1:
        return places[0] or rows[0].phase
    common = places[0][: shared_start(places[0], places[-1])].rstrip("0123456789")
    return f"{common}*" if len(common) > 2 else rows[0].phase


def _parts(row: Row, place: str) -> tuple[str, ...]:
    """Where it is, the op, and the kernel, or both kernels where they differ."""
    op, where = printable(row.op), clip(printable(place), MAX_NAME)
    if row.work == REPEATED:
        parts = [op]
    elif row.kind in (RowKind.FUSED, RowKind.SPLIT):
        parts = [where, _several(row, op)]
    elif row.together and row.kind is RowKind.REPLACED:
        parts = [where, row.work, ARROW.join(map(_counted, (row.a, row.b)))]
    elif row.together:
        kernels = f"{_short(row.a[0])}  {row.a_count}{ARROW}{row.b_count} times"
        parts = [where, row.work, kernels]
    elif row.kind is RowKind.REPLACED and row.a_count != row.b_count:
        parts = [where, op, f"{_names(row.a)}{ARROW}{_names(row.b)}"]
    else:
        kernel = _short((row.b or row.a)[0])
        parts = [where, op, kernel if kernel != op else ""]
    return tuple(part for part in parts if part)


def _several(row: Row, op: str) -> str:
    """Several kernels of an op, or of several ops, for one or for others."""
    fused = row.kind is RowKind.FUSED
    ones = row.b if fused else row.a
    one = (
        _plain(ones[0])
        if len(ones) == 1
        else f"{_plain(ones[0])} + {len(ones) - 1} more"
    )
    many = max(row.a_count, row.b_count)
    if op and " x" not in op and " + " not in op and many > 1:
        op = f"{op} ({many} kernels)"
    others = op or _names(row.a if fused else row.b)
    return f"{others}{ARROW}{one}" if fused else f"{one}{ARROW}{others}"


def _counted(names: Sequence[str]) -> str:
    """The number of kernels, and the most frequent one."""
    ((most, times),) = Counter(names).most_common(1)
    return (
        _short(most) if len(names) == 1 else f"{len(names)} ({times} x {_short(most)})"
    )


def _names(names: Sequence[str]) -> str:
    return " + ".join(_short(name) for name in names)


def _short(name: str) -> str:
    known = decode(name)
    return clip(printable(known.short if known is not None else name), MAX_NAME)


def _plain(name: str) -> str:
    """A kernel by its own name, unless that is a C++ signature."""
    return name if len(name) <= MAX_PLAIN and name.isidentifier() else _short(name)


def _only(row: Row) -> str:
    return row.why if row.why.startswith(ONLY) else ""


def _dispatch(rows: Sequence[Row]) -> DiffLine:
    a_ns, b_ns = _sums(rows)
    return DiffLine(
        mark=_mark_of_dispatch(rows[0].kind, a_ns, b_ns),
        kind=str(rows[0].kind),
        a_ns=a_ns if any(r.a for r in rows) else None,
        b_ns=b_ns if any(r.b for r in rows) else None,
        change_ns=b_ns - a_ns,
        what=CPU + ", ".join(_name_of_dispatch(row) for row in rows),
        why=_only(rows[0]),
        counts=rows[0].counts,
        rows=tuple(rows),
    )


def _name_of_dispatch(row: Row) -> str:
    """The calls whose time the row has: where both sides have some, that is the time of
    all."""
    name = printable(row.op.removeprefix(CPU))
    more_in_b = row.b_count - row.a_count
    if row.a_count and row.b_count and more_in_b:
        return f"all {name} ({count(abs(more_in_b))} {'more' if more_in_b > 0 else 'fewer'})"
    if abs(more_in_b) > 1:
        return f"{name} x{count(abs(more_in_b))}"
    return name


def _mark_of_dispatch(kind: RowKind, a_ns: int, b_ns: int) -> str:
    """What occurs more often may take less time: the mark is that of the time."""
    sign = _sign(a_ns, b_ns)
    counted = kind in (RowKind.ADDED, RowKind.REMOVED)
    return sign if counted and sign != "~" else MARKS.get(kind, "~")


LEAST = 10  # cells: a shorter part of a place says nothing


def fitted(line: DiffLine, most: int) -> tuple[str, Sequence[str]]:
    """The text in at most `most` cells, and the parts that it has no room for. Where
    `what` is wider, the place is shortened or left out, then the op, and only then the
    kernel is cut.

    >>> parts = ("Attention_*", "aten::bmm", "gemm bf16 128x128x64")
    >>> what = "Attention_*  aten::bmm  gemm bf16 128x128x64  x24"
    >>> line = DiffLine("-", "removed", 9, None, -9, what, parts=parts, times="  x24")
    >>> fitted(line, 36)
    ('aten::bmm  gemm bf16 128x128x64  x24', ('Attention_*',))
    >>> fitted(line, 22)[0]
    'gemm bf16 128x12…  x24'
    """
    if width(line.what) <= most or not line.parts:
        return clip(line.what, most), ()
    indent = line.what[: len(line.what) - len(line.what.lstrip())]
    room = most - width(indent) - width(line.times)
    for left_out in range(1, len(line.parts)):
        text = APART.join(line.parts[left_out:])
        if width(text) <= room:
            break
    else:
        left_out, text = len(line.parts) - 1, _cut(line.parts[-1], room)
    spare = room - width(text) - width(APART)
    if left_out == 1 and spare >= LEAST:
        text = f"{clip(line.parts[0], spare)}{APART}{text}"
    return clip(f"{indent}{text}{line.times}", most), line.parts[:left_out]


def _cut(text: str, most: int) -> str:
    """Of `A -> B` both sides are cut, so that both can be seen."""
    before, arrow, after = text.partition(ARROW)
    if not arrow:
        return clip(text, most)
    room = most - width(ARROW)
    first = clip(before, max(room // 2, room - width(after)))
    return f"{first}{ARROW}{clip(after, room - width(first))}"


WORDS = lazy_pattern(r"[A-Za-z]+|[0-9]+|.", re.DOTALL)
LONGEST = 2000  # characters compared; matching is quadratic at worst


def differing(a: str, b: str, mark: str = "^") -> tuple[str, str]:
    """A line of marks for each name: under the words and numbers that the other does
    not have.

    >>> differing("gemm_128x64_nn", "gemm_128x128_tn")
    ('         ^^ ^^', '         ^^^ ^^')
    """
    words_a, words_b = WORDS.findall(a[:LONGEST]), WORDS.findall(b[:LONGEST])
    marks_a, marks_b = [], []
    matcher = SequenceMatcher(None, words_a, words_b, autojunk=False)
    for what, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        sign = " " if what == "equal" else mark
        marks_a.append(sign * sum(map(len, words_a[a_from:a_to])))
        marks_b.append(sign * sum(map(len, words_b[b_from:b_to])))
    return "".join(marks_a).rstrip(), "".join(marks_b).rstrip()
