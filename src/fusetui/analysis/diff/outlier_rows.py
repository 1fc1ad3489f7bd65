"""Work that only one step does, or that only one step lacks, as rows that name the step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from fusetui.analysis.diff.instances import MANY
from fusetui.analysis.diff.items import OP_SHIFT, Items
from fusetui.analysis.diff.model import Kind, Row
from fusetui.analysis.diff.outlier_fusion import fused
from fusetui.analysis.diff.outlier_piece import Piece
from fusetui.text.figures import plural

KINDS = 8
"""A step that differs in more kinds of work than this is one row."""


def piece_rows(items: Items, pieces: Sequence[Piece], side: str) -> list[Row]:
    """One row for each kind of work in each step, or one for all of a step that differs in many.

    Where an op has other kernels in a step than usual, these are one row; so is a kernel that does
    the work of several.
    """
    found, pieces = _replaced(items, pieces, side)
    compiled, pieces = _fused(items, pieces, side)
    found += compiled
    steps: defaultdict[tuple[int, bool], list[Piece]] = defaultdict(list)
    for piece in pieces:
        steps[piece.step, piece.missing].append(piece)
    for (step, _), members in steps.items():
        kinds: defaultdict[int, list[Piece]] = defaultdict(list)
        for piece in members:
            kinds[piece.word].append(piece)
        name = f"step {items.work.windows.number_of(step)} of {side}"
        groups = list(kinds.values()) if len(kinds) <= KINDS else [members]
        found += [_row(items, group, name, side, len(kinds) > KINDS) for group in groups]
    return found


def _replaced(
    items: Items, pieces: Sequence[Piece], side: str
) -> tuple[list[Row], Sequence[Piece]]:
    """The rows of ops that have other kernels in one step, and the pieces that are not in them."""
    found, left = [], []
    for step, op, members in _near(pieces):
        more, lacking = ([p for p in members if p.missing is gone] for gone in (False, True))
        other = {p.word for p in more}.isdisjoint(p.word for p in lacking)
        if op and more and lacking and other and len(members) <= KINDS:
            name = f"step {items.work.windows.number_of(step)} of {side}"
            found.append(_other_kernels(items, more, lacking, name, side))
        else:
            left += [*more, *lacking]
    return found, left


def _near(pieces: Sequence[Piece]) -> Iterator[tuple[int, int, list[Piece]]]:
    """The step, the number of the op, and its pieces that are so near to each other that they may
    be of one call."""
    ops: defaultdict[tuple[int, int], list[Piece]] = defaultdict(list)
    for piece in pieces:
        ops[piece.step, piece.word >> OP_SHIFT].append(piece)
    for (step, op), members in ops.items():
        members.sort(key=lambda piece: piece.gap)
        first = 0
        for n in range(1, len(members) + 1):
            if n == len(members) or members[n].gap - members[n - 1].gap > MANY:
                yield step, op, members[first:n]
                first = n


def _fused(items: Items, pieces: Sequence[Piece], side: str) -> tuple[list[Row], Sequence[Piece]]:
    """The rows of kernels that do the work of several in one step, or that several do the work of,
    and the pieces that are not in them."""
    steps: defaultdict[int, list[Piece]] = defaultdict(list)
    for piece in pieces:
        steps[piece.step].append(piece)
    found, taken = [], set()
    for step, members in steps.items():
        name = f"step {items.work.windows.number_of(step)} of {side}"
        for one, many in fused(items.trace, members):
            more, lacking = (many, [one]) if one.missing else ([one], many)
            found.append(_other_kernels(items, more, lacking, name, side))
            taken |= {(piece.step, piece.missing, piece.row) for piece in (one, *many)}
    return found, [p for p in pieces if (p.step, p.missing, p.row) not in taken]


def _other_kernels(
    items: Items, more: Sequence[Piece], lacking: Sequence[Piece], step: str, side: str
) -> Row:
    trace, rows = items.trace, tuple(piece.row for piece in more)
    a, b = (more, lacking) if side == "A" else (lacking, more)
    kinds = {True: Kind.FUSED, False: Kind.SPLIT}
    before, after = (sum(piece.ns for piece in found) for found in (a, b))
    return Row(
        kind=Kind.REPLACED if len(a) == len(b) else kinds[len(a) > len(b)],
        op=trace.name_of(int(trace.op[more[0].row])),
        a=tuple(trace.name_of(piece.row) for piece in a),
        b=tuple(trace.name_of(piece.row) for piece in b),
        a_ns=before,
        b_ns=after,
        a_count=len(a),
        b_count=len(b),
        why=f"only in {step}",
        a_rows=rows if side == "A" else (),
        b_rows=rows if side == "B" else (),
        counts=False,
        a_median_ns=before,
        b_median_ns=after,
    )


def _row(items: Items, pieces: Sequence[Piece], step: str, side: str, many: bool) -> Row:
    trace, missing = items.trace, pieces[0].missing
    op = int(trace.op[pieces[0].row])
    more = missing == (side == "A")
    names = tuple(trace.name_of(piece.row) for piece in pieces)
    ns, count, members = sum(p.ns for p in pieces), len(pieces), tuple(p.row for p in pieces)
    here, nothing = (names, ns, count), ((), 0, 0)
    a, b = (nothing, here) if more else (here, nothing)
    return Row(
        kind=Kind.ADDED if more else Kind.REMOVED,
        op=plural(count, "piece") + " of work" if many else trace.name_of(op) if op >= 0 else "",
        a=a[0],
        b=b[0],
        a_ns=a[1],
        b_ns=b[1],
        a_count=a[2],
        b_count=b[2],
        why=f"missing only in {step}" if missing else f"only in {step}",
        a_rows=members if side == "A" else (),  # of what is missing: in the representative step
        b_rows=members if side == "B" else (),
        counts=False,
        a_median_ns=a[1],
        b_median_ns=b[1],
    )
