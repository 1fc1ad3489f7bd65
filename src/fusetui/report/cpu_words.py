"""Describes the time of CPU threads in words: the breakdown of a trace without GPU
events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fusetui.analysis.why.model import CpuWork, Share
from fusetui.text.figures import percent
from fusetui.text.tables import cut_line

CPU_TIME = "CPU thread time"
MAX_NAMES = 3
"""Of each kind, in a sentence."""

MIN_SHARE = 0.01
"""Of the CPU time: an op or function with less is not named in a sentence."""


class BreakdownPiece(NamedTuple):
    """One way to divide a time (ns): which time, what the shares are called, the
    largest first."""

    time: str
    by: str
    shares: tuple[Share, ...]
    whole_ns: int


def divide_cpu_time(work: CpuWork) -> list[BreakdownPiece]:
    """Return the time of CPU threads divided by op, by function, and by where they
    wait. Divisions without shares are left out."""
    parts = (
        BreakdownPiece(
            time=CPU_TIME,
            by="op or runtime call",
            shares=work.ops,
            whole_ns=work.whole_ns,
        ),
        BreakdownPiece(
            time=CPU_TIME, by="function", shares=work.functions, whole_ns=work.whole_ns
        ),
        BreakdownPiece(
            time=CPU_TIME, by="wait", shares=work.waits, whole_ns=work.whole_ns
        ),
    )
    return [part for part in parts if part.shares]


def describe_breakdown(parts: Sequence[BreakdownPiece], name_cells: int) -> str:
    """Return a sentence with the largest shares of a time, divided in each of the ways
    `parts`, or "" if no share is considerable. Names are cut to `name_cells` cells.

        CPU thread time by op or runtime call: aten::mm 45 %, ...; by function: work 30 %.
    """
    texts = []
    for part in parts:
        shares = [
            f"{cut_line(share.name, name_cells)} {percent(share.ns, part.whole_ns)}"
            for share in part.shares[:MAX_NAMES]
            if share.ns >= MIN_SHARE * part.whole_ns
        ]
        if shares:
            texts.append(f"by {part.by}: {', '.join(shares)}")
    return f"{parts[0].time} {'; '.join(texts)}." if texts else ""
