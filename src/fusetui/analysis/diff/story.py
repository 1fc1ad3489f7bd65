"""The summary of a diff: its largest terms in a sentence, its sums by sort of work and
by place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from fusetui.analysis.diff.model import CPU, REPEATED, Diff, Row, RowKind, Subtotal
from fusetui.analysis.why.model import COMPILER, IDLE, LOADER
from fusetui.gpu.kernel_names import decode
from fusetui.text.figures import duration, plural, signed_duration
from fusetui.text.patterns import late
from fusetui.text.printable import printable
from fusetui.trace.model.grouping import by_key

TERMS = 5  # how many terms the sentence names
# a term after the first is named when it is this share of the change, or of the step
WORTH = 0.02
# what takes less and what takes longer are two where each is this share of the other
HIDDEN = 0.1
MOSTLY = 0.6  # one op that makes up this share of a term is named with it

_TIMES = late(r" x\d+\Z")
_NUMBER = late(r"\d+")
_PLURAL = {
    **{
        of: f"{of}s"
        for of in ("GEMM", "fill", "convolution", "norm", "reduction", "embedding")
    },
    **{of: f"{of} kernels" for of in ("pointwise", "other")},
    "copy": "copies",
}
CPU_WORK = "dispatch on the CPU"


def with_summary(diff: Diff) -> Diff:
    """The diff with its summary in one sentence, and with subtotals of the rows of the
    sum: by their sort of work, and by phase and module or annotation, whose numbers are
    starred."""
    by_work = _parts(diff, lambda row: (_work(row), ""))
    by_place = _parts(diff, lambda row: (_NUMBER.sub("*", row.where), row.phase))
    return replace(diff, story=_story(diff), by_work=by_work, by_place=by_place)


class _Term(msgspec.Struct, frozen=True):
    """A part of the change of a step."""

    ns: int
    what: str

    @property
    def text(self) -> str:
        return f"{signed_duration(self.ns)} {printable(self.what)}"


def _story(diff: Diff) -> str:
    """`a step takes 37.86 ms more: +14.2 ms copies in the compiled backward, ...;
    offset by -8.61 ms idle time ...`; by size."""
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
    """The largest terms, and always the largest of those that have the sign of the
    change; last what all others come to, where that is much."""
    change_ns = diff.accounting.step_ns
    step_ns = max(diff.step.a_ns or 0, diff.step.b_ns or 0)
    min_ns = max(WORTH * abs(change_ns), WORTH * WORTH * step_ns)
    terms = [term for term in _terms(diff) if term.ns]
    terms.sort(key=lambda term: -abs(term.ns))
    named = [term for term in terms[:TERMS] if abs(term.ns) > min_ns]
    reasons = [term for term in terms if term.ns * change_ns > 0]
    if reasons and reasons[0] not in named:
        named.insert(0, reasons[0])
    rest_ns = change_ns - sum(term.ns for term in named)
    if abs(rest_ns) > min_ns and named:
        named.append(_Term(ns=rest_ns, what="all else"))
    return named


def _moved(diff: Diff) -> str:
    """`24 kernels moved (mostly aten::cat)`."""
    ops = Counter(_label(row) for row in diff.rows if row.kind is RowKind.MOVED)
    if not ops:
        return ""
    ((op, times),) = ops.most_common(1)
    mostly = "mostly " if len(ops) > 1 else ""
    named = (
        f" ({mostly}{printable(op)})" if op and times >= MOSTLY * ops.total() else ""
    )
    return f"{plural(ops.total(), 'kernel')} moved{named}"


def _terms(diff: Diff) -> list[_Term]:
    counted = (row for row in diff.rows if row.counts)
    groups = by_key(counted, lambda row: (_work(row), row.phase, "b" in row.compiled))
    found = [
        _Term(ns=_change(part), what=_term(*key, part))
        for key, rows in groups.items()
        for part in _by_direction(key[0], rows)
    ]
    sums = diff.accounting
    overlap = sums.overlap_ns + sum(
        row.hidden_change_ns for row in diff.rows if row.counts
    )
    return [
        *found,
        *_idle_terms(diff),
        _Term(ns=overlap, what=f"by {'more' if overlap < 0 else 'less'} overlap"),
        _Term(ns=sums.odd_ns, what="by steps with other work"),
        _Term(
            ns=sums.earlier_ns + sums.later_ns,
            what="by work that crosses the borders of the step",
        ),
    ]


def _by_direction(work: str, rows: Sequence[Row]) -> list[Sequence[Row]]:
    """The rows of ops that take longer and those of ops that take less, where both are
    much, and can be told apart: their sum would hide them."""
    by_op = by_key(rows, lambda row: _label(row) or (row.a[:1], row.b[:1]))
    sides: list[Sequence[Row]] = [
        [row for one in by_op.values() if (_change(one) < 0) is less for row in one]
        for less in (False, True)
    ]
    few, many = sorted(abs(_change(side)) for side in sides)
    details = {_detail(work, side) for side in sides} if few > HIDDEN * many else set()
    return sides if len(details) == 2 and all(details) else [rows]


def _idle_terms(diff: Diff) -> list[_Term]:
    """By what the GPU waited for, where both sides have one."""
    a, b, ns = diff.side_a, diff.side_b, diff.accounting.idle_ns
    if not a.gpu:
        return [_Term(ns=ns, what="outside all ops")]
    if not b.gpu:
        return [_Term(ns=ns, what="idle time of the GPU")]
    return [
        _Term(ns=cause_ns, what=f"idle time {cause}")
        for cause, cause_ns in changes(a.idle, b.idle).items()
    ]


def _term(work: str, phase: str, compiled: bool, rows: Sequence[Row]) -> str:
    """`copies in the compiled backward (mostly aten::copy_)`, or `12 layers -> 11`."""
    if work == REPEATED:
        return ", ".join(row.op for row in rows)
    place = f"the compiled {phase or 'regions'}" if compiled else phase
    detail = _detail(work, rows)
    where = f"{' in ' if place else ''}{place}{f' ({detail})' if detail else ''}"
    return f"{_PLURAL.get(work, work)}{where}"


def _detail(work: str, rows: Sequence[Row]) -> str:
    """What to say about the row, or the op, that makes up most of a term."""
    if all(row.kind is RowKind.SAME for row in rows):
        return "may be noise"
    whole = _change(rows)
    # what changed the other way is no reason for the sum
    of_its_sign = [row for row in rows if row.change_ns * whole > 0] or rows
    largest = max(of_its_sign, key=lambda row: abs(row.change_ns))
    if (
        largest.kind in (RowKind.FUSED, RowKind.SPLIT)
        and _change([largest]) / (whole or 1) >= MOSTLY
    ):
        kernels = "one kernel" if largest.b_count == 1 else f"{largest.b_count} kernels"
        return f"{largest.op} in {kernels}" if largest.op else ""
    if work == "GEMM" and (said := _math(largest)):
        return said
    by_op: Counter[str] = Counter()
    for row in rows:
        by_op[_label(row)] += _change([row])
    op, ns = max(by_op.items(), key=lambda found: abs(found[1]))
    return (
        f"mostly {op}"
        if op and ns * whole > 0 and abs(ns) >= MOSTLY * abs(whole)
        else ""
    )


def _label(row: Row) -> str:
    """The collective, else the op; a row of many ops has none."""
    known = decode((row.b or row.a or ("",))[0])
    if known is not None and known.collective:
        return known.collective
    if row.together or (known is not None and known.short.startswith("memcpy")):
        names = Counter(row.b if row.change_ns > 0 or not row.a else row.a)
        known = decode(names.most_common(1)[0][0])
        return known.short if known is not None else ""
    return _TIMES.sub("", row.op.removeprefix(CPU).partition(" + ")[0])


def _math(row: Row) -> str:
    """`without TF32`, or other types, where the kernel names of both sides tell."""
    if not (row.a and row.b):
        return ""
    one, other = (
        decode(Counter(names).most_common(1)[0][0]) for names in (row.a, row.b)
    )
    if one is None or other is None or one.name == other.name:
        return ""
    tf32 = ["tf32" in known.short for known in (one, other)]
    if tf32[0] != tf32[1]:
        return "without TF32" if tf32[0] else "in TF32"
    types = [known.dtype_a or known.dtype for known in (one, other)]
    return f"{types[0]} -> {types[1]}" if all(types) and types[0] != types[1] else ""


def _work(row: Row) -> str:
    return CPU_WORK if row.on_cpu else row.work or "other"


def _change(rows: Iterable[Row]) -> int:
    """How much longer they make the step: communication hidden behind compute does
    not."""
    return sum(row.change_ns - row.hidden_change_ns for row in rows)


def _parts(diff: Diff, key: Callable[[Row], tuple[str, str]]) -> tuple[Subtotal, ...]:
    """The largest change first."""
    found = []
    for (name, phase), rows in by_key(
        (row for row in diff.rows if row.counts), key
    ).items():
        compiled = "".join(
            side for side in "ab" if any(side in row.compiled for row in rows)
        )
        each = zip(*((r.a_ns, r.b_ns, r.a_count, r.b_count) for r in rows), strict=True)
        a_ns, b_ns, a_count, b_count = map(sum, each)
        found.append(Subtotal(name, phase, a_ns, b_ns, a_count, b_count, compiled))
    return tuple(sorted(found, key=lambda part: (-abs(part.change_ns), part.name)))


_WAITING = {
    LOADER: "waiting for the data loader",
    COMPILER: "while code is compiled",
    **{
        of: IDLE[of].where
        for of in ("unlinked", "graph", "launch_latency", "queued", "after")
    },
    **{of: IDLE[of].while_ for of in ("host_sync", "host_alloc")},
}
"""Causes of idle time that are no waiting for launches."""


def changes(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    """What is said of each cause, and how much more idle time it makes in B (ns); by
    size."""
    found: Counter[str] = Counter()
    for side, sign in ((b, 1), (a, -1)):
        for cause, ns in side.items():
            found[_WAITING.get(cause, "waiting for launches")] += sign * ns
    return {
        text: ns
        for text, ns in sorted(found.items(), key=lambda item: -abs(item[1]))
        if ns
    }
