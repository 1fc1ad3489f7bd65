"""Turns rows into the lines of a table; repeated rows, and dispatch of one kind, form
one line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

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
from fusetui.analysis.diff.story import idle_changes
from fusetui.gpu.kernel_names import decode
from fusetui.text.cutting import clip, width
from fusetui.text.figures import change, count, microseconds, plural, signed_duration
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.grouping import by_key

MAX_NAME_CELLS = 48
MAX_SYMBOL_CHARS = 64
"""Of a kernel's own name that is shown as it is."""

MANY_LINES = 12
"""A compiled part of the program with so many lines is one line that can be opened."""

MAX_WAITS = 3
"""Causes of a change of idle time that are named."""

MIN_PLACE_CHARS = 3
"""Of the common beginning of several places, where it stands for all of them."""

MIN_PLACE_CELLS = 10
"""A place that is cut to fewer says nothing."""

MAX_COMPARED_CHARS = 2000
"""Of a name, as the time of the comparison is quadratic at worst."""

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
EARLIER = "work launched earlier that ran in the step"
LATER = "work launched in the step that ran later"
OVERLAP = "work that overlaps other work"
ODD = "effect on the median of steps that do different work"
STEP = "step"
PINNED = ("idle", "", STEP)
"""The lines that are always in sight: idle time, what is not explained, the sum."""
TIMED = (RowKind.FASTER, RowKind.SLOWER)


class DiffLine(msgspec.Struct, frozen=True):
    """One line; ns per step, None on a side that has nothing. Every text is safe to
    print."""

    mark: str  # + more time, - less, ~ no change beyond noise, "" neither
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


class Regions(NamedTuple):
    """The compiled parts of the program that have many lines, and the lines of all
    else."""

    regions: list[Region]
    other_lines: list[DiffLine]


def regions(diff: Diff) -> Regions:
    """The lines of a diff, with one line for each part of the program that
    torch.compile made and that has at least MANY_LINES."""
    work = [row for row in diff.rows if row.counts and not row.on_cpu]
    rows_by_part = by_key(work, lambda row: (row.phase, row.where))
    folded_regions = []
    folded_rows: set[int] = set()  # by identity
    for (phase, where), rows in rows_by_part.items():
        inner = tuple(_lines(rows))
        is_compiled = any(row.compiled for row in rows)
        if is_compiled and len(inner) >= MANY_LINES:
            line = _region_line(f"{phase} {where}".strip(), rows)
            folded_regions.append(Region(line=line, inner=inner))
            folded_rows.update(id(row) for row in rows)
    other_rows = [row for row in diff.rows if id(row) not in folded_rows]
    return Regions(regions=folded_regions, other_lines=_lines(other_rows))


def _region_line(name: str, rows: Sequence[Row]) -> DiffLine:
    """`forward ## over_arch ##: 372 kernels -> 511 kernels, 498 compiled`."""
    a_ns = sum(row.a_ns for row in rows)
    b_ns = sum(row.b_ns for row in rows)
    kernels_a = _kernels(
        sum(row.a_count for row in rows),
        compiled=sum(row.a_count for row in rows if "a" in row.compiled),
    )
    kernels_b = _kernels(
        sum(row.b_count for row in rows),
        compiled=sum(row.b_count for row in rows if "b" in row.compiled),
    )
    return DiffLine(
        mark=_sign(a_ns, b_ns),
        kind=REGION,
        a_ns=a_ns,
        b_ns=b_ns,
        change_ns=b_ns - a_ns,
        what=f"{printable(name) or 'the program'}: {kernels_a}{ARROW}{kernels_b}",
        rows=tuple(rows),
    )


def _kernels(number: int, compiled: int) -> str:
    """`511 kernels, 498 compiled`."""
    kernels = plural(number, "kernel")
    return f"{kernels}, {count(compiled)} compiled" if compiled else kernels


def _lines(rows: Sequence[Row]) -> list[DiffLine]:
    """Those of the work, then one for each sort of dispatch."""
    work = [row for row in rows if not row.on_cpu]
    work_lines = [_work_line(same) for same in by_key(work, _what_it_says).values()]
    dispatch = [row for row in rows if row.on_cpu]
    # What is in one step only is told apart from what is in each.
    by_sort = by_key(dispatch, lambda row: (row.kind, row.counts, _only_in(row)))
    return work_lines + [_dispatch_line(same) for same in by_sort.values()]


def _what_it_says(row: Row) -> tuple[object, ...]:
    """Rows for which this is equal are one line: they say the same about the same
    names. What is said of times differs from row to row."""
    is_of_time = row.kind in (RowKind.SAME, RowKind.MOVED, *TIMED)
    return (
        row.kind,
        row.op,
        row.phase,
        tuple(map(identity, row.a)),
        tuple(map(identity, row.b)),
        "" if is_of_time else row.why,
    )


def closing(diff: Diff) -> list[DiffLine]:
    """The lines that close the sum: idle time, work that crosses the borders of a step
    or overlaps other work, what is not explained, and the step itself; none whose
    figures are all zeros."""
    changes_ns = diff.accounting
    a = diff.side_a
    b = diff.side_b
    both_have_gpu = a.gpu and b.gpu
    terms = [
        DiffLine(
            mark="",
            kind="idle",
            a_ns=a.idle_ns,
            b_ns=b.idle_ns,
            change_ns=changes_ns.idle_ns,
            what="GPU idle" if both_have_gpu else "outside all ops",
            why=_waits(diff) if both_have_gpu else "",
        ),
        DiffLine(
            mark="",
            kind="earlier",
            a_ns=a.earlier_ns,
            b_ns=b.earlier_ns,
            change_ns=changes_ns.earlier_ns,
            what=EARLIER,
        ),
        DiffLine(
            mark="",
            kind="later",
            a_ns=-a.later_ns,
            b_ns=-b.later_ns,
            change_ns=changes_ns.later_ns,
            what=LATER,
        ),
        DiffLine(
            mark="",
            kind="overlap",
            a_ns=-a.overlap_ns,
            b_ns=-b.overlap_ns,
            change_ns=changes_ns.overlap_ns,
            what=OVERLAP,
        ),
        DiffLine(
            mark="",
            kind="odd",
            a_ns=a.odd_ns,
            b_ns=b.odd_ns,
            change_ns=changes_ns.odd_ns,
            what=ODD,
        ),
        DiffLine(
            mark="",
            kind="",
            a_ns=None,
            b_ns=None,
            change_ns=changes_ns.not_explained_ns,
            what="not explained",
        ),
    ]
    step = DiffLine(
        mark="",
        kind=STEP,
        a_ns=diff.step.a_ns,
        b_ns=diff.step.b_ns,
        change_ns=changes_ns.step_ns,
        what="total",
    )
    return [*(term for term in terms if not term.is_nothing), step]


def _waits(diff: Diff) -> str:
    """What the GPU waited for longer, or less long: the largest causes of the change of
    idle time, then those that offset it."""
    idle_ns = diff.accounting.idle_ns
    change_by_cause = idle_changes(diff.side_a.idle, diff.side_b.idle)
    largest_causes = [*change_by_cause.items()][:MAX_WAITS]
    reasons = []
    offsets = []
    for cause, ns in largest_causes:
        text = f"{signed_duration(ns)} {cause}"
        if ns * idle_ns < 0:
            offsets.append(text)
        else:
            reasons.append(text)
    clauses = []
    if reasons:
        clauses.append(", ".join(reasons))
    if offsets:
        clauses.append(f"offset by {', '.join(offsets)}")
    return "; ".join(clauses)


def _work_line(rows: Sequence[Row]) -> DiffLine:
    """One line for rows that say the same, at least one."""
    row = rows[0]
    a_ns = sum(row.a_ns for row in rows)
    b_ns = sum(row.b_ns for row in rows)
    kind = _kind(row.kind, a_ns, b_ns)
    parts = _parts(row, _place(rows))
    if len(rows) > 1:
        times = f"{APART}x{len(rows)}"
        why = _why_of_several(row, kind, a_ns, b_ns)
    else:
        times = ""
        why = _why_of_one(row)
    return DiffLine(
        mark=MARKS.get(row.kind) or _sign(a_ns, b_ns),
        kind=kind,
        a_ns=a_ns if row.a else None,
        b_ns=b_ns if row.b else None,
        change_ns=b_ns - a_ns,
        what=APART.join(parts) + times,
        why=why,
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


def _why_of_several(row: Row, kind: str, a_ns: int, b_ns: int) -> str:
    """Why several rows changed, of which `row` is one; the times are those of all."""
    if row.kind in TIMED or kind == NOISE:
        return f"the same work takes {change(a_ns, b_ns)} time"
    if row.kind is RowKind.MOVED:
        return ELSEWHERE
    return _why_of_one(row)


def _why_of_one(row: Row) -> str:
    """Why a row changed; its kind says already that a kernel is the same."""
    why = row.why
    if row.kind is RowKind.SAME:
        why = why.removeprefix(SAME).removeprefix(", ")
    return printable(why)


def _sign(a_ns: int, b_ns: int) -> str:
    if 100 * abs(b_ns - a_ns) <= FLOOR_PERCENT * max(a_ns, b_ns):
        return "~"
    return "+" if b_ns > a_ns else "-"


def _place(rows: Sequence[Row]) -> str:
    """The module or annotation of all of them; with a star when only their beginnings
    agree. Where there is none: the phase."""
    phase = rows[0].phase
    places = sorted({row.where for row in rows})
    first = places[0]
    last = places[-1]
    if first == last:
        return first or phase
    # What the first and the last of sorted texts share, all of them share.
    common = first[: shared_start(first, last)].rstrip("0123456789")
    return f"{common}*" if len(common) >= MIN_PLACE_CHARS else phase


def _parts(row: Row, place: str) -> tuple[str, ...]:
    """Where it is, the op, and the kernel, or both kernels where they differ."""
    op = printable(row.op)
    where = clip(printable(place), MAX_NAME_CELLS)
    number = max(row.a_count, row.b_count)
    if row.work == REPEATED:
        parts = [op]
    elif row.kind is RowKind.FUSED:
        several = _several_kernels(op, row.a, number)
        parts = [where, f"{several}{ARROW}{_few_kernels(row.b)}"]
    elif row.kind is RowKind.SPLIT:
        several = _several_kernels(op, row.b, number)
        parts = [where, f"{_few_kernels(row.a)}{ARROW}{several}"]
    elif row.together and row.kind is RowKind.REPLACED:
        parts = [where, row.work, f"{_counted(row.a)}{ARROW}{_counted(row.b)}"]
    elif row.together:
        kernel = _short(row.a[0])
        parts = [where, row.work, f"{kernel}  {row.a_count}{ARROW}{row.b_count} times"]
    elif row.kind is RowKind.REPLACED and row.a_count != row.b_count:
        parts = [where, op, f"{_added_up(row.a)}{ARROW}{_added_up(row.b)}"]
    else:
        kernel = _short((row.b or row.a)[0])
        parts = [where, op, kernel if kernel != op else ""]
    return tuple(part for part in parts if part)


def _several_kernels(op: str, kernels: Sequence[str], number: int) -> str:
    """The side with several kernels of a row that was fused or split, by their op or
    ops: `aten::gelu (3 kernels)`. `number`: how many they are in a step."""
    if not op:
        return _added_up(kernels)
    is_one_op = " x" not in op and " + " not in op
    return f"{op} ({number} kernels)" if is_one_op and number > 1 else op


def _few_kernels(kernels: Sequence[str]) -> str:
    """The other side of such a row: its kernel, or `kernel + 2 more`."""
    first = _symbol(kernels[0])
    if len(kernels) == 1:
        return first
    return f"{first} + {len(kernels) - 1} more"


def _counted(kernels: Sequence[str]) -> str:
    """`7 (4 x gemm)`: the number of kernels, and the most frequent one."""
    if len(kernels) == 1:
        return _short(kernels[0])
    ((most_frequent, times),) = Counter(kernels).most_common(1)
    return f"{len(kernels)} ({times} x {_short(most_frequent)})"


def _added_up(kernels: Sequence[str]) -> str:
    return " + ".join(_short(kernel) for kernel in kernels)


def _short(name: str) -> str:
    decoded = decode(name)
    short = name if decoded is None else decoded.short
    return clip(printable(short), MAX_NAME_CELLS)


def _symbol(name: str) -> str:
    """A kernel by its own name, unless that is a C++ signature."""
    is_plain = len(name) <= MAX_SYMBOL_CHARS and name.isidentifier()
    return name if is_plain else _short(name)


def _only_in(row: Row) -> str:
    """`only in step 3`, of a row about one step; "" of any other."""
    return row.why if row.why.startswith(ONLY) else ""


def _dispatch_line(rows: Sequence[Row]) -> DiffLine:
    """One line for dispatch of one sort, at least one row."""
    row = rows[0]
    a_ns = sum(row.a_ns for row in rows)
    b_ns = sum(row.b_ns for row in rows)
    calls = ", ".join(_name_of_dispatch(row) for row in rows)
    return DiffLine(
        mark=_mark_of_dispatch(row.kind, a_ns, b_ns),
        kind=str(row.kind),
        a_ns=a_ns if any(row.a for row in rows) else None,
        b_ns=b_ns if any(row.b for row in rows) else None,
        change_ns=b_ns - a_ns,
        what=f"{CPU}{calls}",
        why=_only_in(row),
        counts=row.counts,
        rows=tuple(rows),
    )


def _name_of_dispatch(row: Row) -> str:
    """The calls whose time the row has: where both sides have some, that is the time of
    all."""
    name = printable(row.op.removeprefix(CPU))
    more_in_b = row.b_count - row.a_count
    difference = count(abs(more_in_b))
    if row.a_count and row.b_count and more_in_b > 0:
        return f"all {name} ({difference} more)"
    if row.a_count and row.b_count and more_in_b < 0:
        return f"all {name} ({difference} fewer)"
    if abs(more_in_b) > 1:
        return f"{name} x{difference}"
    return name


def _mark_of_dispatch(kind: RowKind, a_ns: int, b_ns: int) -> str:
    """What occurs more often may take less time: the mark is that of the time."""
    sign = _sign(a_ns, b_ns)
    if kind in (RowKind.ADDED, RowKind.REMOVED) and sign != "~":
        return sign
    return MARKS.get(kind, "~")


class FittedText(NamedTuple):
    """The text of a line, and those of its parts that it has no room for."""

    text: str
    left_out: Sequence[str]


def fitted(line: DiffLine, most: int) -> FittedText:
    """The text in at most `most` cells. Where `what` is wider, the place is shortened
    or left out, then the op, and only then the kernel is cut.

    >>> parts = ("Attention_*", "aten::bmm", "gemm bf16 128x128x64")
    >>> what = "Attention_*  aten::bmm  gemm bf16 128x128x64  x24"
    >>> line = DiffLine("-", "removed", 9, None, -9, what, parts=parts, times="  x24")
    >>> fitted(line, 36)
    FittedText(text='aten::bmm  gemm bf16 128x128x64  x24', left_out=('Attention_*',))
    >>> fitted(line, 22).text
    'gemm bf16 128x12…  x24'
    """
    if width(line.what) <= most or not line.parts:
        return FittedText(text=clip(line.what, most), left_out=())
    unindented = line.what.lstrip()
    indent = line.what[: len(line.what) - len(unindented)]
    rest_cells = most - width(indent) - width(line.times)
    last_parts = _last_parts(line.parts, rest_cells)
    text = last_parts.text
    place_cells = rest_cells - width(text) - width(APART)
    if len(last_parts.left_out) == 1 and place_cells >= MIN_PLACE_CELLS:
        text = f"{clip(line.parts[0], place_cells)}{APART}{text}"
    return FittedText(
        text=clip(f"{indent}{text}{line.times}", most), left_out=last_parts.left_out
    )


def _last_parts(parts: Sequence[str], most: int) -> FittedText:
    """As many of the last parts as fit into `most` cells, but not all; at least the
    last one, which is cut if need be."""
    for number_left_out in range(1, len(parts)):
        text = APART.join(parts[number_left_out:])
        if width(text) <= most:
            return FittedText(text=text, left_out=parts[:number_left_out])
    return FittedText(text=_cut(parts[-1], most), left_out=parts[:-1])


def _cut(text: str, most: int) -> str:
    """Of `A -> B` both sides are cut, so that both can be seen."""
    before, arrow, after = text.partition(ARROW)
    if not arrow:
        return clip(text, most)
    rest_cells = most - width(ARROW)
    before = clip(before, max(rest_cells // 2, rest_cells - width(after)))
    after = clip(after, rest_cells - width(before))
    return f"{before}{ARROW}{after}"


WORDS = lazy_pattern(r"[A-Za-z]+|[0-9]+|.", re.DOTALL)


class NameMarks(NamedTuple):
    """A line of marks below each of two names."""

    a: str
    b: str


def differing(a: str, b: str, mark: str = "^") -> NameMarks:
    """Marks under the words and numbers that the other name does not have.

    >>> differing("gemm_128x64_nn", "gemm_128x128_tn")
    NameMarks(a='         ^^ ^^', b='         ^^^ ^^')
    """
    words_a = WORDS.findall(a[:MAX_COMPARED_CHARS])
    words_b = WORDS.findall(b[:MAX_COMPARED_CHARS])
    marks_a = ""
    marks_b = ""
    matcher = SequenceMatcher(None, words_a, words_b, autojunk=False)
    for tag, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        sign = " " if tag == "equal" else mark
        marks_a += sign * sum(map(len, words_a[a_from:a_to]))
        marks_b += sign * sum(map(len, words_b[b_from:b_to]))
    return NameMarks(a=marks_a.rstrip(), b=marks_b.rstrip())
