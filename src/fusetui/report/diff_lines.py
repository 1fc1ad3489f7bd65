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
from fusetui.analysis.diff.names import count_shared_start, remove_run_numbers
from fusetui.analysis.diff.statistics import FLOOR_PERCENT
from fusetui.analysis.diff.story import sum_idle_changes
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


def sort_by_effect(changes: Iterable[DiffLine]) -> list[DiffLine]:
    """Return the lines with the largest change first, whatever its direction. Lines
    that count in the sum come before the others, and lines without a change last."""
    return sorted(
        changes,
        key=lambda line: (not line.is_change, not line.counts, -abs(line.change_ns)),
    )


class LargestLines(msgspec.Struct, frozen=True):
    """The lines of the largest changes, and the others; both in the order of
    sort_by_effect."""

    shown: list[DiffLine]
    rest: list[DiffLine]


def largest(changes: Iterable[DiffLine], number: int) -> LargestLines:
    """Return the `number` lines with the largest changes, and the others, both in the
    order of `sort_by_effect`. Lines with nothing but zeros are always among the others."""
    ordered = sort_by_effect(changes)
    candidates = [n for n, line in enumerate(ordered) if not line.is_nothing]
    by_change = sorted(candidates, key=lambda n: -abs(ordered[n].change_ns))
    shown_indices = set(by_change[:number])
    return LargestLines(
        shown=[line for n, line in enumerate(ordered) if n in shown_indices],
        rest=[line for n, line in enumerate(ordered) if n not in shown_indices],
    )


class Region(msgspec.Struct, frozen=True):
    """A part of the program that torch.compile made anew on a side: its sums, and its
    lines."""

    line: DiffLine
    inner: tuple[DiffLine, ...]


def lines(diff: Diff) -> list[DiffLine]:
    """Return the lines of a diff: all work in program order, then the changes in
    dispatch on the CPU."""
    return _make_lines(diff.rows)


class Regions(NamedTuple):
    """The compiled parts of the program that have many lines, and the lines of all
    else."""

    regions: list[Region]
    other_lines: list[DiffLine]


def regions(diff: Diff) -> Regions:
    """Return the lines of a diff with one line for each compiled part of the program
    that has at least MANY_LINES. The lines of everything else are returned beside them.
    """
    work = [row for row in diff.rows if row.counts and not row.on_cpu]
    rows_by_part = by_key(work, lambda row: (row.phase, row.where))
    folded_regions = []
    folded_rows: set[int] = set()  # by identity
    for (phase, where), rows in rows_by_part.items():
        inner = tuple(_make_lines(rows))
        is_compiled = any(row.compiled for row in rows)
        if is_compiled and len(inner) >= MANY_LINES:
            line = _make_region_line(f"{phase} {where}".strip(), rows)
            folded_regions.append(Region(line=line, inner=inner))
            folded_rows.update(id(row) for row in rows)
    other_rows = [row for row in diff.rows if id(row) not in folded_rows]
    return Regions(regions=folded_regions, other_lines=_make_lines(other_rows))


def _make_region_line(name: str, rows: Sequence[Row]) -> DiffLine:
    """Return the line that sums up a compiled part of the program.

    forward ## over_arch ##: 372 kernels -> 511 kernels, 498 compiled
    """
    a_ns = sum(row.a_ns for row in rows)
    b_ns = sum(row.b_ns for row in rows)
    kernels_a = _count_kernels(
        sum(row.a_count for row in rows),
        compiled=sum(row.a_count for row in rows if "a" in row.compiled),
    )
    kernels_b = _count_kernels(
        sum(row.b_count for row in rows),
        compiled=sum(row.b_count for row in rows if "b" in row.compiled),
    )
    return DiffLine(
        mark=_sign_of_change(a_ns, b_ns),
        kind=REGION,
        a_ns=a_ns,
        b_ns=b_ns,
        change_ns=b_ns - a_ns,
        what=f"{printable(name) or 'the program'}: {kernels_a}{ARROW}{kernels_b}",
        rows=tuple(rows),
    )


def _count_kernels(number: int, compiled: int) -> str:
    """Return a number of kernels in words, and how many of them are compiled: `511
    kernels, 498 compiled`."""
    kernels = plural(number, "kernel")
    return f"{kernels}, {count(compiled)} compiled" if compiled else kernels


def _make_lines(rows: Sequence[Row]) -> list[DiffLine]:
    """Return the lines of these rows: those of the work, where rows that say the same
    share one line. Then comes one line for each sort of dispatch on the CPU."""
    work = [row for row in rows if not row.on_cpu]
    work_lines = [_make_work_line(same) for same in by_key(work, _line_key).values()]
    dispatch = [row for row in rows if row.on_cpu]
    # What is in one step only is told apart from what is in each.
    by_sort = by_key(
        dispatch, lambda row: (row.kind, row.counts, _single_step_note(row))
    )
    return work_lines + [_make_dispatch_line(same) for same in by_sort.values()]


def _line_key(row: Row) -> tuple[object, ...]:
    """Return a key by which rows are joined: those with equal keys say the same about
    the same names, and are one line. The reason is left out for changes of time, as it
    differs from row to row."""
    is_of_time = row.kind in (RowKind.SAME, RowKind.MOVED, *TIMED)
    return (
        row.kind,
        row.op,
        row.phase,
        tuple(map(remove_run_numbers, row.a)),
        tuple(map(remove_run_numbers, row.b)),
        "" if is_of_time else row.why,
    )


def closing(diff: Diff) -> list[DiffLine]:
    """Return the lines that close the sum of a diff: idle time, work that crosses a
    step or overlaps, what is not explained, and the step. Lines with nothing but zeros
    are left out, except the step."""
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
            why=_explain_idle_change(diff) if both_have_gpu else "",
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


def _explain_idle_change(diff: Diff) -> str:
    """Return why idle time changed: the largest causes of the change, then those that
    offset it. At most MAX_WAITS causes are named."""
    idle_ns = diff.accounting.idle_ns
    change_by_cause = sum_idle_changes(diff.side_a.idle, diff.side_b.idle)
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


def _make_work_line(rows: Sequence[Row]) -> DiffLine:
    """Return one line for rows that say the same about the same kernels. There must be
    at least one row."""
    row = rows[0]
    a_ns = sum(row.a_ns for row in rows)
    b_ns = sum(row.b_ns for row in rows)
    kind = _line_kind(row.kind, a_ns, b_ns)
    parts = _name_parts(row, _common_place(rows))
    if len(rows) > 1:
        times = f"{APART}x{len(rows)}"
        why = _explain_several_rows(row, kind, a_ns, b_ns)
    else:
        times = ""
        why = _explain_row(row)
    return DiffLine(
        mark=MARKS.get(row.kind) or _sign_of_change(a_ns, b_ns),
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


def _line_kind(kind: RowKind, a_ns: int, b_ns: int) -> str:
    """Return the kind of a line as text. A change by a quarter or more is not called
    the same, even if it may be noise."""
    is_large_change = a_ns > 0 and 4 * abs(b_ns - a_ns) >= a_ns
    if kind is RowKind.SAME and is_large_change:
        return NOISE
    return str(kind)


def _explain_several_rows(row: Row, kind: str, a_ns: int, b_ns: int) -> str:
    """Return why several rows changed, of which `row` is one. The times in ns are those
    of all rows."""
    if row.kind in TIMED or kind == NOISE:
        return f"the same work takes {change(a_ns, b_ns)} time"
    if row.kind is RowKind.MOVED:
        return ELSEWHERE
    return _explain_row(row)


def _explain_row(row: Row) -> str:
    """Return why one row changed. That the kernel is the same is left out where the
    kind of the row says so."""
    why = row.why
    if row.kind is RowKind.SAME:
        why = why.removeprefix(SAME).removeprefix(", ")
    return printable(why)


def _sign_of_change(a_ns: int, b_ns: int) -> str:
    """Return `+` if B takes more time, and `-` if it takes less. It is `~` if the times
    differ by no more than the floor of noise."""
    if 100 * abs(b_ns - a_ns) <= FLOOR_PERCENT * max(a_ns, b_ns):
        return "~"
    return "+" if b_ns > a_ns else "-"


def _common_place(rows: Sequence[Row]) -> str:
    """Return the module or annotation of these rows. If only the beginnings of their
    names agree, it is that beginning with a star. Without either it is the phase."""
    phase = rows[0].phase
    places = sorted({row.where for row in rows})
    first = places[0]
    last = places[-1]
    if first == last:
        return first or phase
    # What the first and the last of sorted texts share, all of them share.
    common = first[: count_shared_start(first, last)].rstrip("0123456789")
    return f"{common}*" if len(common) >= MIN_PLACE_CHARS else phase


def _name_parts(row: Row, place: str) -> tuple[str, ...]:
    """Return the parts of the text of a row, without empty ones: where it is, the op,
    and the kernel or both kernels."""
    op = printable(row.op)
    where = clip(printable(place), MAX_NAME_CELLS)
    number = max(row.a_count, row.b_count)
    if row.work == REPEATED:
        parts = [op]
    elif row.kind is RowKind.FUSED:
        several = _name_several_kernels(op, row.a, number)
        parts = [where, f"{several}{ARROW}{_name_few_kernels(row.b)}"]
    elif row.kind is RowKind.SPLIT:
        several = _name_several_kernels(op, row.b, number)
        parts = [where, f"{_name_few_kernels(row.a)}{ARROW}{several}"]
    elif row.together and row.kind is RowKind.REPLACED:
        parts = [
            where,
            row.work,
            f"{_name_with_count(row.a)}{ARROW}{_name_with_count(row.b)}",
        ]
    elif row.together:
        kernel = _shorten_kernel_name(row.a[0])
        parts = [where, row.work, f"{kernel}  {row.a_count}{ARROW}{row.b_count} times"]
    elif row.kind is RowKind.REPLACED and row.a_count != row.b_count:
        parts = [
            where,
            op,
            f"{_join_kernel_names(row.a)}{ARROW}{_join_kernel_names(row.b)}",
        ]
    else:
        kernel = _shorten_kernel_name((row.b or row.a)[0])
        parts = [where, op, kernel if kernel != op else ""]
    return tuple(part for part in parts if part)


def _name_several_kernels(op: str, kernels: Sequence[str], number: int) -> str:
    """Return the side of a fused or split row with several kernels, by its ops:
    `aten::gelu (3 kernels)`. `number` is how many kernels it has in a step."""
    if not op:
        return _join_kernel_names(kernels)
    is_one_op = " x" not in op and " + " not in op
    return f"{op} ({number} kernels)" if is_one_op and number > 1 else op


def _name_few_kernels(kernels: Sequence[str]) -> str:
    """Return the other side of a fused or split row: its kernel, or `kernel + 2 more`."""
    first = _name_kernel(kernels[0])
    if len(kernels) == 1:
        return first
    return f"{first} + {len(kernels) - 1} more"


def _name_with_count(kernels: Sequence[str]) -> str:
    """Return the number of kernels and the most frequent one: `7 (4 x gemm)`. A single
    kernel is named alone."""
    if len(kernels) == 1:
        return _shorten_kernel_name(kernels[0])
    ((most_frequent, times),) = Counter(kernels).most_common(1)
    return f"{len(kernels)} ({times} x {_shorten_kernel_name(most_frequent)})"


def _join_kernel_names(kernels: Sequence[str]) -> str:
    """Return the short names of kernels, joined by plus signs."""
    return " + ".join(_shorten_kernel_name(kernel) for kernel in kernels)


def _shorten_kernel_name(name: str) -> str:
    """Return a short name for a kernel, at most MAX_NAME_CELLS wide."""
    decoded = decode(name)
    short = name if decoded is None else decoded.short
    return clip(printable(short), MAX_NAME_CELLS)


def _name_kernel(name: str) -> str:
    """Return a kernel by its own name, unless that is long or a C++ signature, which is
    shortened."""
    is_plain = len(name) <= MAX_SYMBOL_CHARS and name.isidentifier()
    return name if is_plain else _shorten_kernel_name(name)


def _single_step_note(row: Row) -> str:
    """Return `only in step 3` for a row about a single step, or "" for any other."""
    return row.why if row.why.startswith(ONLY) else ""


def _make_dispatch_line(rows: Sequence[Row]) -> DiffLine:
    """Return one line for rows of one sort of dispatch, at least one row. Dispatch is
    the time of ops on the CPU."""
    row = rows[0]
    a_ns = sum(row.a_ns for row in rows)
    b_ns = sum(row.b_ns for row in rows)
    calls = ", ".join(_name_dispatch(row) for row in rows)
    return DiffLine(
        mark=_mark_dispatch(row.kind, a_ns, b_ns),
        kind=str(row.kind),
        a_ns=a_ns if any(row.a for row in rows) else None,
        b_ns=b_ns if any(row.b for row in rows) else None,
        change_ns=b_ns - a_ns,
        what=f"{CPU}{calls}",
        why=_single_step_note(row),
        counts=row.counts,
        rows=tuple(rows),
    )


def _name_dispatch(row: Row) -> str:
    """Return the calls whose time a row of dispatch has. If both sides have some, that
    is the time of all: `all aten::mm (2 more)`."""
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


def _mark_dispatch(kind: RowKind, a_ns: int, b_ns: int) -> str:
    """Return the mark of a line of dispatch. Calls that occur more often may take less
    time, so the mark is that of the time."""
    sign = _sign_of_change(a_ns, b_ns)
    if kind in (RowKind.ADDED, RowKind.REMOVED) and sign != "~":
        return sign
    return MARKS.get(kind, "~")


class FittedText(NamedTuple):
    """The text of a line, and those of its parts that it has no room for."""

    text: str
    left_out: Sequence[str]


def fitted(line: DiffLine, most: int) -> FittedText:
    """Return the text of a line in at most `most` cells, and the parts that are left
    out. If `what` is too wide, the place is shortened or left out, then the op. Only
    then is the kernel cut.

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
    last_parts = _fit_last_parts(line.parts, rest_cells)
    text = last_parts.text
    place_cells = rest_cells - width(text) - width(APART)
    if len(last_parts.left_out) == 1 and place_cells >= MIN_PLACE_CELLS:
        text = f"{clip(line.parts[0], place_cells)}{APART}{text}"
    return FittedText(
        text=clip(f"{indent}{text}{line.times}", most), left_out=last_parts.left_out
    )


def _fit_last_parts(parts: Sequence[str], most: int) -> FittedText:
    """Return as many of the last parts as fit into `most` cells, but never all of them.
    The last part is always there, cut if need be."""
    for number_left_out in range(1, len(parts)):
        text = APART.join(parts[number_left_out:])
        if width(text) <= most:
            return FittedText(text=text, left_out=parts[:number_left_out])
    return FittedText(text=_cut_text(parts[-1], most), left_out=parts[:-1])


def _cut_text(text: str, most: int) -> str:
    """Return a text cut to `most` cells. Of `A -> B` both sides are cut, so that both
    can be seen."""
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
    """Return lines of marks, to be printed below two names, under the words and numbers
    that the other name lacks.

        >>> differing("gemm_128x64_nn", "gemm_128x128_tn")
        NameMarks(a='         ^^ ^^', b='         ^^^ ^^')
    """
    words_a = WORDS.findall(a[:MAX_COMPARED_CHARS])
    words_b = WORDS.findall(b[:MAX_COMPARED_CHARS])
    marks_a = ""
    marks_b = ""
    # autojunk would ignore words that occur often in long names
    matcher = SequenceMatcher(None, words_a, words_b, autojunk=False)
    for tag, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        sign = " " if tag == "equal" else mark
        marks_a += sign * sum(map(len, words_a[a_from:a_to]))
        marks_b += sign * sum(map(len, words_b[b_from:b_to]))
    return NameMarks(a=marks_a.rstrip(), b=marks_b.rstrip())
