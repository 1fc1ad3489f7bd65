"""Writes the summary of a diff, and adds up its rows.

The summary is one sentence. It names the largest *terms*: parts of the change of the
step, such as the GEMMs of the backward pass, or idle time of one cause.
"""

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

MAX_TERMS = 5
"""The sentence names at most this many terms."""

MIN_SHARE_OF_CHANGE = 0.02
"""A term is named when it is more than this share of the change, and this share squared
of the step."""

MIN_SHARE_OF_OPPOSITE = 0.1
"""What takes less and what takes longer are two terms where the smaller one is more
than this share of the other."""

MIN_SHARE_OF_TERM = 0.6
"""One op that makes up this share of a term is named with it."""

CPU_WORK = "dispatch on the CPU"
"""The sort of work of rows of dispatch."""

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
"""The causes of idle time that are not waiting for launches."""


class _Term(msgspec.Struct, frozen=True):
    """A part of the change of a step."""

    ns: int  # how much longer it makes the step of B
    what: str

    @property
    def text(self) -> str:
        """`+14.2 ms copies in the compiled backward`."""
        return f"{signed_duration(self.ns)} {printable(self.what)}"


def add_summary(diff: Diff) -> Diff:
    """Add the summary sentence and the subtotals to a comparison of two traces.

    `story` is the sentence. `by_work` adds up the rows by their sort of work.
    `by_place` adds them up by their phase and their module or annotation, whose numbers
    are replaced by stars.
    """
    return msgspec.structs.replace(
        diff,
        story=_write_story(diff),
        by_work=_add_up_subtotals(diff, _make_key_of_work),
        by_place=_add_up_subtotals(diff, _make_key_of_place),
    )


def sum_idle_changes(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    """Return how much longer each cause makes the idle time of B.

    All kinds of waiting for launches count as one cause.

    Args:
        a: {cause: idle time in ns} of A; see `DiffSide.idle`.
        b: The same of B.

    Returns:
        {cause in words: change in ns}, the largest change first, without causes that
        did not change.
    """
    change_by_words: Counter[str] = Counter()
    for cause, ns in b.items():
        change_by_words[_CAUSES_IN_WORDS.get(cause, _WAITING_FOR_LAUNCHES)] += ns
    for cause, ns in a.items():
        change_by_words[_CAUSES_IN_WORDS.get(cause, _WAITING_FOR_LAUNCHES)] -= ns

    changes = {words: ns for words, ns in change_by_words.items() if ns != 0}
    largest_first = sorted(changes, key=lambda words: -abs(changes[words]))
    return {words: changes[words] for words in largest_first}


def _write_story(diff: Diff) -> str:
    """Write one sentence that says how much longer a step of B takes, and why.

    For example: `B takes 37.86 ms more per step: +14.2 ms copies in the compiled
    backward, +9 ms GEMMs; offset by -8.61 ms idle time waiting for launches; 2 kernels
    moved`. The largest terms come first.

    Returns "" if a trace has no steps.
    """
    if diff.step.a_ns is None or diff.step.b_ns is None:
        return ""

    change_ns = diff.accounting.step_ns
    per_step = "in the median step" if diff.step.is_opposed else "per step"
    if not change_ns:
        head = f"B takes the same time {per_step}"
    else:
        more = "more" if change_ns > 0 else "less"
        head = f"B takes {duration(abs(change_ns))} {more} {per_step}"

    reasons: list[str] = []
    offsets: list[str] = []  # they make the change smaller
    for term in _choose_named_terms(diff):
        is_offset = term.ns * change_ns < 0
        if is_offset:
            offsets.append(term.text)
        else:
            reasons.append(term.text)

    parts = [f"{head}: {', '.join(reasons)}" if reasons else head]
    if offsets:
        parts.append(f"offset by {', '.join(offsets)}")
    moved = _describe_moved_kernels(diff)
    if moved:
        parts.append(moved)
    return "; ".join(parts)


def _choose_named_terms(diff: Diff) -> list[_Term]:
    """Choose the terms of the change that the summary names, the largest first.

    These are at most MAX_TERMS terms that are large enough (`_compute_min_term_ns`).
    The largest term with the sign of the change is always named; if it is not large
    enough, it comes first. At the end comes what all other terms add up to, if that is
    large enough.
    """
    change_ns = diff.accounting.step_ns
    min_ns = _compute_min_term_ns(diff)
    terms = [term for term in _collect_terms(diff) if term.ns]
    terms.sort(key=lambda term: -abs(term.ns))

    chosen = [term for term in terms[:MAX_TERMS] if abs(term.ns) > min_ns]
    # A sentence that names only what goes the other way would explain nothing.
    reasons = [term for term in terms if term.ns * change_ns > 0]
    if reasons and reasons[0] not in chosen:
        chosen.insert(0, reasons[0])

    rest_ns = change_ns - sum(term.ns for term in chosen)
    if abs(rest_ns) > min_ns and chosen:
        chosen.append(_Term(ns=rest_ns, what="everything else"))
    return chosen


def _compute_min_term_ns(diff: Diff) -> float:
    """Return how large a term of the change has to be for the summary to name it (ns).

    It is MIN_SHARE_OF_CHANGE of the change. Where the change is tiny, it is the square
    of that share of the longer step.
    """
    min_of_change = MIN_SHARE_OF_CHANGE * abs(diff.accounting.step_ns)
    step_ns = max(diff.step.a_ns or 0, diff.step.b_ns or 0)
    return max(min_of_change, MIN_SHARE_OF_CHANGE**2 * step_ns)


def _describe_moved_kernels(diff: Diff) -> str:
    """Write how many kernels moved to another place.

    It reads `24 kernels moved (mostly aten::cat)`. The op is only named if it has
    MIN_SHARE_OF_TERM of them. Returns "" if none moved.
    """
    moved_rows = [row for row in diff.rows if row.kind is RowKind.MOVED]
    if not moved_rows:
        return ""
    text = f"{plural(len(moved_rows), 'kernel')} moved"
    kernels_by_op = Counter(_choose_label(row) for row in moved_rows)
    main_op = max(kernels_by_op, key=kernels_by_op.__getitem__)
    is_most = kernels_by_op[main_op] >= MIN_SHARE_OF_TERM * len(moved_rows)
    if not main_op or not is_most:
        return text
    mostly = "mostly " if len(kernels_by_op) > 1 else ""
    return f"{text} ({mostly}{printable(main_op)})"


class _TermKey(msgspec.Struct, frozen=True):
    """What the rows of a term have in common."""

    work: str  # the sort of work
    phase: str
    is_compiled: bool  # in B


def _collect_terms(diff: Diff) -> list[_Term]:
    """Return all terms of the change of the step, without what is not explained.

    A term is a number of ns and a text such as `copies in the backward`. The terms are
    in no order, and some of them are 0.
    """
    counted = [row for row in diff.rows if row.counts]
    terms = []
    for key, rows in by_key(counted, _make_term_key).items():
        for rows_of_direction in _split_by_direction(key.work, rows):
            what = _describe_term(key, rows_of_direction)
            terms.append(_Term(ns=_sum_changes(rows_of_direction), what=what))
    terms += _make_idle_terms(diff)

    sums = diff.accounting
    # What is hidden behind compute overlaps it too.
    overlap_ns = sums.overlap_ns + sum(row.hidden_change_ns for row in counted)
    more = "more" if overlap_ns < 0 else "less"
    crossing_ns = sums.earlier_ns + sums.later_ns
    terms += [
        _Term(ns=overlap_ns, what=f"from {more} overlap"),
        _Term(ns=sums.odd_ns, what="from steps that do different work"),
        _Term(ns=crossing_ns, what="from work spilling over step boundaries"),
    ]
    return terms


def _make_term_key(row: Row) -> _TermKey:
    """Return what the rows of one term of the change have in common."""
    return _TermKey(
        work=_find_sort_of_row(row), phase=row.phase, is_compiled="b" in row.compiled
    )


def _split_by_direction(work: str, rows: Sequence[Row]) -> list[Sequence[Row]]:
    """Divide the rows of a term into ops that take longer and ops that take less.

    The sum of both would hide them. The rows stay together if one of the two is small
    (MIN_SHARE_OF_OPPOSITE), or if their details would not tell them apart.

    Args:
        work: The sort of work of the rows.
        rows: The rows of a term.

    Returns:
        One or two lists of rows.
    """
    longer: list[Row] = []
    shorter: list[Row] = []
    for rows_of_op in by_key(rows, _identify_op).values():
        if _sum_changes(rows_of_op) < 0:
            shorter += rows_of_op
        else:
            longer += rows_of_op

    more_ns = abs(_sum_changes(longer))
    less_ns = abs(_sum_changes(shorter))
    if min(more_ns, less_ns) <= MIN_SHARE_OF_OPPOSITE * max(more_ns, less_ns):
        return [rows]
    detail_of_longer = _describe_detail(work, longer)
    detail_of_shorter = _describe_detail(work, shorter)
    have_details = detail_of_longer != "" and detail_of_shorter != ""
    if not have_details or detail_of_longer == detail_of_shorter:
        return [rows]
    return [longer, shorter]


def _identify_op(row: Row) -> object:
    """Return the label of a row, or the first kernel of each side without a label."""
    return _choose_label(row) or (row.a[:1], row.b[:1])


def _make_idle_terms(diff: Diff) -> list[_Term]:
    """Return the change of idle time as terms: `+2 ms idle host_sync`, for example.

    There is one for each cause if both sides have a GPU, else one for all idle time:
    causes are only known of GPUs.
    """
    a = diff.side_a
    b = diff.side_b
    idle_ns = diff.accounting.idle_ns
    if not a.gpu:
        return [_Term(ns=idle_ns, what="outside all ops")]
    if not b.gpu:
        return [_Term(ns=idle_ns, what="GPU idle")]
    terms = []
    for cause, cause_ns in sum_idle_changes(a.idle, b.idle).items():
        terms.append(_Term(ns=cause_ns, what=f"idle {cause}"))
    return terms


def _describe_term(key: _TermKey, rows: Sequence[Row]) -> str:
    """Write what a term of the change is.

    It reads `copies in the compiled backward (mostly aten::copy_)`. Repeated blocks are
    written as `12 layers -> 11`.

    Args:
        key: The sort of work and the part of the program that the rows have in common.
        rows: The rows of the term.
    """
    if key.work == REPEATED:
        return ", ".join(row.op for row in rows)

    text = _PLURAL.get(key.work, key.work)
    place = key.phase
    if key.is_compiled:
        place = f"the compiled {key.phase or 'regions'}"
    if place:
        text += f" in {place}"
    detail = _describe_detail(key.work, rows)
    if detail:
        text += f" ({detail})"
    return text


def _describe_detail(work: str, rows: Sequence[Row]) -> str:
    """Write what the summary adds to a term of the change in parentheses.

    It is the first of these that holds:

        - The change may be noise.
        - Most of it was fused or split.
        - The products have another type.
        - One op makes up most of it (MIN_SHARE_OF_TERM).

    Returns "" if none of them holds.

    Args:
        work: The sort of work of the rows.
        rows: The rows of a term.
    """
    if all(row.kind is RowKind.SAME for row in rows):
        return "may be noise"

    total_ns = _sum_changes(rows)
    # What changed the other way is no reason for the sum.
    rows_of_same_sign = [row for row in rows if row.change_ns * total_ns > 0]
    largest = max(rows_of_same_sign or rows, key=lambda row: abs(row.change_ns))
    is_fusion = largest.kind in (RowKind.FUSED, RowKind.SPLIT)
    if is_fusion and _is_most_of(_sum_changes([largest]), total_ns):
        return _describe_fusion(largest)
    if work == "GEMM":
        change_of_math = _describe_change_of_math(largest)
        if change_of_math:
            return change_of_math

    ns_by_op: Counter[str] = Counter()
    for row in rows:
        ns_by_op[_choose_label(row)] += _sum_changes([row])
    largest_op = max(ns_by_op, key=lambda op: abs(ns_by_op[op]))
    if largest_op and _is_most_of(ns_by_op[largest_op], total_ns):
        return f"mostly {largest_op}"
    return ""


def _is_most_of(part_ns: int, total_ns: int) -> bool:
    """Return whether a change is MIN_SHARE_OF_TERM of a total, in the same direction.

    >>> _is_most_of(-80, total_ns=-100), _is_most_of(80, total_ns=-100)
    (True, False)
    """
    has_same_sign = part_ns * total_ns > 0
    return has_same_sign and abs(part_ns) >= MIN_SHARE_OF_TERM * abs(total_ns)


def _describe_fusion(row: Row) -> str:
    """Write into how many kernels the ops of a row went.

    It reads `aten::gelu + aten::mul in one kernel`. Returns "" if the op is unknown.
    """
    if not row.op:
        return ""
    kernels = "one kernel" if row.b_count == 1 else f"{row.b_count} kernels"
    return f"{row.op} in {kernels}"


def _choose_label(row: Row) -> str:
    """Return a short name for what a row does.

    It is the name of the collective, else the first of its ops, without how often it is
    called. Of a copy, and of a row that is matched as a whole, it is the short name of
    the most frequent kernel; "" if that cannot be decoded.
    """
    kernels = row.b or row.a
    decoded = role_of_kernel(kernels[0]).decoded if kernels else None
    if decoded is not None and decoded.collective:
        return decoded.collective

    is_copy = decoded is not None and decoded.short.startswith("memcpy")
    if not row.together and not is_copy:
        # Of `aten::gelu x2 + aten::mul`, `aten::gelu`.
        first_op, _, _ = row.op.removeprefix(CPU).partition(" + ")
        return _TIMES.sub("", first_op)

    takes_more_in_b = row.change_ns > 0 or not row.a
    most_frequent = _decode_most_frequent_kernel(row.b if takes_more_in_b else row.a)
    return most_frequent.short if most_frequent is not None else ""


def _decode_most_frequent_kernel(kernels: Sequence[str]) -> KernelName | None:
    """Return the decoded name of the most frequent of some kernels.

    Args:
        kernels: Names of kernels, at least one.

    Returns:
        None if the name cannot be decoded.
    """
    times = Counter(kernels)
    most_frequent = max(times, key=times.__getitem__)
    return role_of_kernel(most_frequent).decoded


def _describe_change_of_math(row: Row) -> str:
    """Write how the type of a product changed: `in TF32`, `fp32 -> bf16`.

    The names of the most frequent kernels of both sides tell it. Returns "" if they are
    the same or do not tell it.
    """
    if not row.a or not row.b:
        return ""
    before = _decode_most_frequent_kernel(row.a)
    after = _decode_most_frequent_kernel(row.b)
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


def _find_sort_of_row(row: Row) -> str:
    """Return the sort of work of a row; dispatch on the CPU is a sort of its own."""
    if row.on_cpu:
        return CPU_WORK
    return row.work or "other"


def _sum_changes(rows: Iterable[Row]) -> int:
    """Return how much longer rows make the step (ns).

    Communication and copies count only for the time in which no kernel computed,
    because the rest is hidden.
    """
    return sum(row.change_ns - row.hidden_change_ns for row in rows)


class _SubtotalKey(msgspec.Struct, frozen=True):
    """What rows are added up by; see `Subtotal`."""

    name: str
    phase: str


def _make_key_of_work(row: Row) -> _SubtotalKey:
    """Return the key of a row by its sort of work."""
    return _SubtotalKey(name=_find_sort_of_row(row), phase="")


def _make_key_of_place(row: Row) -> _SubtotalKey:
    """Return the key of a row by its place, with stars for numbers, and its phase."""
    return _SubtotalKey(name=_NUMBER.sub("*", row.where), phase=row.phase)


def _add_up_subtotals(
    diff: Diff, key_of: Callable[[Row], _SubtotalKey]
) -> tuple[Subtotal, ...]:
    """Add up the rows of a comparison that are in its sum, by a key of the row.

    Returns one subtotal per key, the largest change first.
    """
    counted = [row for row in diff.rows if row.counts]
    subtotals = []
    for key, rows in by_key(counted, key_of).items():
        compiled_sides = ""
        for side in "ab":
            if any(side in row.compiled for row in rows):
                compiled_sides += side
        subtotal = Subtotal(
            name=key.name,
            phase=key.phase,
            a_ns=sum(row.a_ns for row in rows),
            b_ns=sum(row.b_ns for row in rows),
            a_count=sum(row.a_count for row in rows),
            b_count=sum(row.b_count for row in rows),
            compiled=compiled_sides,
        )
        subtotals.append(subtotal)
    subtotals.sort(key=lambda subtotal: (-abs(subtotal.change_ns), subtotal.name))
    return tuple(subtotals)
