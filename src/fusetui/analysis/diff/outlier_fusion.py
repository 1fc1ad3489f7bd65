"""Which pieces of work one kernel does, in a step that was compiled otherwise than the others."""

from __future__ import annotations

from collections.abc import Sequence

from fusetui.analysis.diff.collectors import Collector, collector
from fusetui.analysis.diff.ops import known_names
from fusetui.analysis.diff.outlier_piece import Piece
from fusetui.trace.model.columns import Trace

MOST = 16
"""A step that differs in more pieces is not searched."""


def fused(trace: Trace, pieces: Sequence[Piece]) -> list[tuple[Piece, list[Piece]]]:
    """Of the pieces in which one step differs: each kernel whose name lists ops, and the pieces of
    these ops, in a row, that the step lacks (or has, if it lacks the kernel)."""
    if len(pieces) > MOST:
        return []
    found: list[tuple[Piece, list[Piece]]] = []
    taken: set[int] = set()
    for one in sorted(pieces, key=lambda piece: piece.row):
        kind = collector(trace.name_of(one.row))
        if kind is None:
            continue
        others = [p for p in pieces if p.missing != one.missing and p.row not in taken]
        many = _run(trace, sorted(others, key=lambda piece: piece.row), kind)
        if many:
            taken |= {piece.row for piece in many}
            found.append((one, many))
    return found


def _run(trace: Trace, others: Sequence[Piece], kind: Collector) -> list[Piece]:
    """The first pieces in a row that the kernel may do, if they are evidence enough."""
    many: list[Piece] = []
    names: list[frozenset[str]] = []
    for piece in others:
        listed = known_names(trace, int(trace.op[piece.row])) & kind.ops
        if listed:
            many.append(piece)
            names.append(listed)
        elif many:
            break
    enough = len(many) >= max(kind.least, 2) and any(known & kind.core for known in names)
    return many if enough else []
