"""The summary of a diff: its largest terms in a sentence, its sums by sort of work and
by place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from fusetui.analysis.diff.model import CPU, REPEATED, Diff, Row, RowKind, Subtotal
from fusetui.analysis.why.model import COMPILER, IDLE, LOADER
from fusetui.gpu.kernel_names.record import KernelName
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.text.figures import duration, plural, signed_duration
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.grouping import by_key

MAX_TERMS = 5  # that the sentence names

MIN_SHARE_OF_CHANGE = 0.02
"""A term is named when it is more than this share of the change, and this share
squared of the step."""

MIN_SHARE_OF_OPPOSITE = 0.1
"""What takes less and what takes longer are two terms where the smaller one is more
than this share of the other."""

MIN_SHARE_OF_TERM = 0.6
"""One op that makes up this share of a term is named with it."""

CPU_WORK = "dispatch on the CPU"

_TIMES = lazy_pattern(r" x\d+\Z")
_NUMBER = lazy_pattern(r"\d+")

_PLURAL: Final = {
    "GEMM": "GEMMs",
    "fill": "fills",
    "convolution": "convolutions",
    "norm": "norms",
    "reduction": "reductions",
    "embedding": "embeddings",
    "pointwise": "pointwise kernels",
    "other": "other kernels",
    "copy": "copies",
}

_WAITING_FOR_LAUNCHES = "waiting for launches"

_CAUSES_IN_WORDS: Final = {
    LOADER: "waiting for the data loader",
    COMPILER: "while code is compiled",
    "unlinked": IDLE["unlinked"].where,
    "graph": IDLE["graph"].where,
    "launch_latency": IDLE["launch_latency"].where,
    "queued": IDLE["queued"].where,
    "after": IDLE["after"].where,
    "host_sync": IDLE["host_sync"].while_,
    "host_alloc": IDLE["host_alloc"].while_,
}
"""Causes of idle time that are no waiting for launches."""


class _Term(msgspec.Struct, frozen=True):
    """A part of the change of a step."""

    ns: int
    what: str

    @property
    def text(self) -> str:
        return f"{signed_duration(self.ns)} {printable(self.what)}"


def with_summary(diff: Diff) -> Diff:
    """The diff with its summary in one sentence (`story`), and with subtotals of the
    rows of the sum: `by_work`, by their sort of work, and `by_place`, by phase and
    module or annotation, with stars for the numbers in these."""
    return msgspec.structs.replace(
        diff,
        story=_story(diff),
        by_work=_subtotals(diff, _part_by_work),
        by_place=_subtotals(diff, _part_by_place),
    )


def changes(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    """{cause in words: how much more idle time it makes in B (ns)}, the largest change
    first, without causes that did not change. `a`, `b`: {cause: idle time (ns)} of each
    side; see `DiffSide.idle`. All waiting for launches is one cause."""
    change_ns: Counter[str] = Counter()
    for cause, ns in b.items():
        change_ns[_CAUSES_IN_WORDS.get(cause, _WAITING_FOR_LAUNCHES)] += ns
    for cause, ns in a.items():
        change_ns[_CAUSES_IN_WORDS.get(cause, _WAITING_FOR_LAUNCHES)] -= ns
    largest_first = sorted(change_ns, key=lambda words: -abs(change_ns[words]))
    return {words: change_ns[words] for words in largest_first if change_ns[words]}


def _story(diff: Diff) -> str:
    """The summary: `a step takes 37.86 ms more: +14.2 ms copies in the compiled
    backward, +9 ms GEMMs; offset by -8.61 ms idle time waiting for launches; 2 kernels
    moved`. The largest terms come first; "" where a side has no steps."""
    if diff.step.a_ns is None or diff.step.b_ns is None:
        return ""
    change_ns = diff.accounting.step_ns
    who = "the median step" if diff.step.is_opposed else "a step"
    if not change_ns:
        head = f"{who} takes the same time"
    else:
        more = "more" if change_ns > 0 else "less"
        head = f"{who} takes {duration(abs(change_ns))} {more}"
    terms = _named_terms(diff)
    offsets = [term for term in terms if term.ns * change_ns < 0]
    reasons = [term for term in terms if term not in offsets]
    if reasons:
        head = f"{head}: {', '.join(term.text for term in reasons)}"
    parts = [head]
    if offsets:
        parts.append(f"offset by {', '.join(term.text for term in offsets)}")
    parts.append(_moved(diff))
    return "; ".join(part for part in parts if part)


def _named_terms(diff: Diff) -> list[_Term]:
    """The terms that the summary names, the largest first: at most MAX_TERMS, of which
    each is large enough (`_min_term_ns`), then what all others add up to, if that is
    too. Of the terms with the sign of the change, the largest is always named, first of
    all if it is not among the others."""
    change_ns = diff.accounting.step_ns
    min_ns = _min_term_ns(diff)
    terms = [term for term in _terms(diff) if term.ns]
    terms.sort(key=lambda term: -abs(term.ns))
    named = [term for term in terms[:MAX_TERMS] if abs(term.ns) > min_ns]
    reasons = [term for term in terms if term.ns * change_ns > 0]
    if reasons and reasons[0] not in named:
        named.insert(0, reasons[0])
    rest_ns = change_ns - sum(term.ns for term in named)
    if abs(rest_ns) > min_ns and named:
        named.append(_Term(ns=rest_ns, what="all else"))
    return named


def _min_term_ns(diff: Diff) -> float:
    """How large a term must be to be named (ns): MIN_SHARE_OF_CHANGE of the change, and
    the square of that share of the longer step."""
    of_change = MIN_SHARE_OF_CHANGE * abs(diff.accounting.step_ns)
    step_ns = max(diff.step.a_ns or 0, diff.step.b_ns or 0)
    return max(of_change, MIN_SHARE_OF_CHANGE**2 * step_ns)


def _moved(diff: Diff) -> str:
    """`24 kernels moved (mostly aten::cat)`; the op only if MIN_SHARE_OF_TERM of them
    are of it. "" if none moved."""
    ops = Counter(_label(row) for row in diff.rows if row.kind is RowKind.MOVED)
    if not ops:
        return ""
    text = f"{plural(ops.total(), 'kernel')} moved"
    ((op, times),) = ops.most_common(1)
    if not op or times < MIN_SHARE_OF_TERM * ops.total():
        return text
    mostly = "mostly " if len(ops) > 1 else ""
    return f"{text} ({mostly}{printable(op)})"


class _PieceOfProgram(msgspec.Struct, frozen=True):
    """What the rows of a term have in common."""

    work: str
    phase: str
    is_compiled: bool  # in B


def _terms(diff: Diff) -> list[_Term]:
    """All terms that the change of the step is the sum of, without what is not
    explained; in no order, some of them 0."""
    counted = [row for row in diff.rows if row.counts]
    terms = []
    for part, rows in by_key(counted, _part_of_program).items():
        for of_direction in _by_direction(part.work, rows):
            what = _what(part, of_direction)
            terms.append(_Term(ns=_change_ns(of_direction), what=what))
    terms += _idle_terms(diff)
    sums = diff.accounting
    # what is hidden behind compute overlaps it too
    overlap_ns = sums.overlap_ns + sum(row.hidden_change_ns for row in counted)
    more = "more" if overlap_ns < 0 else "less"
    crossing_ns = sums.earlier_ns + sums.later_ns
    terms += [
        _Term(ns=overlap_ns, what=f"from {more} overlap"),
        _Term(ns=sums.odd_ns, what="from steps with other work"),
        _Term(ns=crossing_ns, what="from work spilling over step boundaries"),
    ]
    return terms


def _part_of_program(row: Row) -> _PieceOfProgram:
    """The term that a row is part of."""
    return _PieceOfProgram(
        work=_work(row), phase=row.phase, is_compiled="b" in row.compiled
    )


def _by_direction(work: str, rows: Sequence[Row]) -> list[Sequence[Row]]:
    """The rows of a term, divided into those of ops that take longer and those of ops
    that take less: their sum would hide them. All rows as one list where one of the two
    is little (MIN_SHARE_OF_OPPOSITE), or where their details do not tell them apart."""
    longer: list[Row] = []
    shorter: list[Row] = []
    for of_op in by_key(rows, _op_of_row).values():
        direction = shorter if _change_ns(of_op) < 0 else longer
        direction += of_op
    longer_ns = abs(_change_ns(longer))
    shorter_ns = abs(_change_ns(shorter))
    smaller_ns, larger_ns = sorted((longer_ns, shorter_ns))
    if smaller_ns <= MIN_SHARE_OF_OPPOSITE * larger_ns:
        return [rows]
    detail_of_longer = _detail(work, longer)
    detail_of_shorter = _detail(work, shorter)
    if not detail_of_longer or not detail_of_shorter:
        return [rows]
    if detail_of_longer == detail_of_shorter:
        return [rows]
    return [longer, shorter]


def _op_of_row(row: Row) -> object:
    """What rows of one op have in common: the label, else the first kernel of each
    side."""
    return _label(row) or (row.a[:1], row.b[:1])


def _idle_terms(diff: Diff) -> list[_Term]:
    """The change of idle time: by its causes where both sides have a GPU, else as one
    term."""
    a = diff.side_a
    b = diff.side_b
    idle_ns = diff.accounting.idle_ns
    if not a.gpu:
        return [_Term(ns=idle_ns, what="outside all ops")]
    if not b.gpu:
        return [_Term(ns=idle_ns, what="GPU idle")]
    terms = []
    for cause, cause_ns in changes(a.idle, b.idle).items():
        terms.append(_Term(ns=cause_ns, what=f"idle {cause}"))
    return terms


def _what(part: _PieceOfProgram, rows: Sequence[Row]) -> str:
    """A term in words: `copies in the compiled backward (mostly aten::copy_)`, or `12
    layers -> 11`. `rows` are those of the term."""
    if part.work == REPEATED:
        return ", ".join(row.op for row in rows)
    text = _PLURAL.get(part.work, part.work)
    place = part.phase
    if part.is_compiled:
        place = f"the compiled {part.phase or 'regions'}"
    if place:
        text += f" in {place}"
    detail = _detail(part.work, rows)
    if detail:
        text += f" ({detail})"
    return text


def _detail(work: str, rows: Sequence[Row]) -> str:
    """What the summary adds to a term in parentheses: that its change may be noise, what
    was fused or split, another type of its products, or the op that makes up most of it
    (MIN_SHARE_OF_TERM); the first of these that holds. "" if none does. `work`: the sort
    of its rows."""
    if all(row.kind is RowKind.SAME for row in rows):
        return "may be noise"
    total_ns = _change_ns(rows)
    # what changed the other way is no reason for the sum
    of_its_sign = [row for row in rows if row.change_ns * total_ns > 0] or rows
    largest = max(of_its_sign, key=lambda row: abs(row.change_ns))
    if largest.kind in (RowKind.FUSED, RowKind.SPLIT):
        share = _change_ns([largest]) / (total_ns or 1)
        if share >= MIN_SHARE_OF_TERM:
            return _fused_or_split(largest)
    if work == "GEMM":
        change_of_math = _change_of_math(largest)
        if change_of_math:
            return change_of_math
    ns_of_op: Counter[str] = Counter()
    for row in rows:
        ns_of_op[_label(row)] += _change_ns([row])
    op = max(ns_of_op, key=lambda name: abs(ns_of_op[name]))
    is_of_its_sign = ns_of_op[op] * total_ns > 0
    is_most = abs(ns_of_op[op]) >= MIN_SHARE_OF_TERM * abs(total_ns)
    return f"mostly {op}" if op and is_of_its_sign and is_most else ""


def _fused_or_split(row: Row) -> str:
    """`aten::gelu + aten::mul in one kernel`; "" where the op is unknown."""
    if not row.op:
        return ""
    kernels = "one kernel" if row.b_count == 1 else f"{row.b_count} kernels"
    return f"{row.op} in {kernels}"


def _label(row: Row) -> str:
    """The short name for what a row does: the collective; else the first of its ops,
    without how often it is called. For a copy, and for a row that is matched as a whole,
    the short name of the most frequent kernel, "" where that is not decoded."""
    first = (row.b or row.a or ("",))[0]
    decoded = role_of_kernel(first).decoded
    if decoded is not None and decoded.collective:
        return decoded.collective
    is_copy = decoded is not None and decoded.short.startswith("memcpy")
    if not row.together and not is_copy:
        first_op = row.op.removeprefix(CPU).partition(" + ")[0]
        return _TIMES.sub("", first_op)
    takes_more_in_b = row.change_ns > 0 or not row.a
    most_frequent = _most_frequent(row.b if takes_more_in_b else row.a)
    return most_frequent.short if most_frequent is not None else ""


def _most_frequent(kernels: Sequence[str]) -> KernelName | None:
    """The decoded name of the most frequent of some kernels (at least one); None if it
    cannot be decoded."""
    ((name, _),) = Counter(kernels).most_common(1)
    return role_of_kernel(name).decoded


def _change_of_math(row: Row) -> str:
    """`in TF32`, `without TF32` or `fp32 -> bf16`, by the names of the most frequent
    kernels of both sides; "" where these are the same, or do not tell."""
    if not row.a or not row.b:
        return ""
    before = _most_frequent(row.a)
    after = _most_frequent(row.b)
    if before is None or after is None or before.name == after.name:
        return ""
    is_tf32_before = "tf32" in before.short
    is_tf32_after = "tf32" in after.short
    if is_tf32_before != is_tf32_after:
        return "without TF32" if is_tf32_before else "in TF32"
    type_before = before.dtype_a or before.dtype
    type_after = after.dtype_a or after.dtype
    if not type_before or not type_after or type_before == type_after:
        return ""
    return f"{type_before} -> {type_after}"


def _work(row: Row) -> str:
    """The sort of work of a row; dispatch on the CPU is a sort of its own."""
    return CPU_WORK if row.on_cpu else row.work or "other"


def _change_ns(rows: Iterable[Row]) -> int:
    """How much longer rows make the step (ns). Communication and copies count only as
    far as no kernels computed meanwhile."""
    return sum(row.change_ns - row.hidden_change_ns for row in rows)


class _SubtotalKey(msgspec.Struct, frozen=True):
    """What rows are summed by; see `Subtotal`."""

    name: str
    phase: str


def _part_by_work(row: Row) -> _SubtotalKey:
    return _SubtotalKey(name=_work(row), phase="")


def _part_by_place(row: Row) -> _SubtotalKey:
    return _SubtotalKey(name=_NUMBER.sub("*", row.where), phase=row.phase)


def _subtotals(
    diff: Diff, part_of: Callable[[Row], _SubtotalKey]
) -> tuple[Subtotal, ...]:
    """The sums of the rows that count, by their parts; the largest change first."""
    counted = [row for row in diff.rows if row.counts]
    subtotals = []
    for part, rows in by_key(counted, part_of).items():
        compiled = "".join(
            side for side in "ab" if any(side in row.compiled for row in rows)
        )
        subtotal = Subtotal(
            name=part.name,
            phase=part.phase,
            a_ns=sum(row.a_ns for row in rows),
            b_ns=sum(row.b_ns for row in rows),
            a_count=sum(row.a_count for row in rows),
            b_count=sum(row.b_count for row in rows),
            compiled=compiled,
        )
        subtotals.append(subtotal)
    subtotals.sort(key=lambda subtotal: (-abs(subtotal.change_ns), subtotal.name))
    return tuple(subtotals)
