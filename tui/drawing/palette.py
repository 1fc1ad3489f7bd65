"""Colours: one per kind of slice, and the styles of everything else, made once."""

from __future__ import annotations

from functools import cache

from rich.style import Style

from fusetui.tui.layout.kinds import Kind

COLORS: dict[Kind, tuple[str, str, str]] = {  # block, its neighbour, text; all of the 256
    Kind.GEMM: ("#5f87d7", "#5f87ff", "#000000"),
    Kind.ATTENTION: ("#af87d7", "#af87ff", "#000000"),
    Kind.POINTWISE: ("#87af5f", "#87d75f", "#000000"),
    Kind.FUSED: ("#5fd7af", "#5fd787", "#000000"),
    Kind.REDUCTION: ("#d7af5f", "#ffaf5f", "#000000"),
    Kind.COPY: ("#9e9e9e", "#8a8a8a", "#000000"),
    Kind.COMM: ("#d75f5f", "#ff5f5f", "#000000"),
    Kind.GPU_OTHER: ("#87afaf", "#87afd7", "#000000"),
    Kind.OP: ("#5f5f87", "#5f5faf", "#ffffff"),
    Kind.CALL: ("#875f5f", "#af5f5f", "#ffffff"),
    Kind.ANNOTATION: ("#5f875f", "#5f8700", "#ffffff"),
    Kind.PYTHON: ("#585858", "#4e4e4e", "#ffffff"),
    Kind.COMPILED: ("#5f8787", "#008787", "#ffffff"),
    Kind.OTHER: ("#6c6c6c", "#626262", "#ffffff"),
}

IDLE_COLORS = {  # by the names of gaps.IDLE; all of the 256, with black text
    "unlinked": "#8a8a8a",
    "graph": "#87d7d7",
    "host_sync": "#d78787",
    "host_alloc": "#d7af87",
    "host_call": "#d7afd7",
    "host_op": "#87afd7",
    "host_python": "#87af87",
    "host_annotation": "#5faf87",
    "host_nothing": "#b2b2b2",
    "launch_call": "#af87af",
    "launch_latency": "#8787af",
    "queued": "#5fafaf",
    "after": "#9e9e9e",
}

PLAIN = Style()
DIM = Style(color="#949494")
BOLD = Style(bold=True)
TITLE = Style(color="#d7d7af", bold=True)
GOOD = Style(color="#87d787")
BAD = Style(color="#ff8787")
WARN = Style(color="#ffd787")
WINDOW = Style(color="#ffffaf", bold=True)
BUSY = Style(color="#5f87af")
SELECTED = Style(color="#000000", bgcolor="#ffffaf", bold=True)
MARKED = Style(color="#000000", bgcolor="#ffd75f")
HERE = Style(color="#000000", bgcolor="#87afd7", bold=True)  # the page in front
CURSOR = Style(bgcolor="#3a3a3a", bold=True)


@cache
def fill(kind: Kind, second: bool = False) -> Style:
    """A slice wide enough for a text; the second tint for every other of two neighbours."""
    first, neighbour, text = COLORS[kind]
    return Style(color=text, bgcolor=neighbour if second else first)


@cache
def idle_fill(reason: str) -> Style:
    """Time in which a device was idle for a reason."""
    return Style(color="#000000", bgcolor=IDLE_COLORS[reason])


@cache
def idle_bar(reason: str) -> Style:
    """A cell that is idle for a small part of its time."""
    return Style(color=IDLE_COLORS[reason])


@cache
def bar(kind: Kind) -> Style:
    """A cell that slices fill only in part."""
    return Style(color=COLORS[kind][0])


@cache
def swatch(kind: Kind) -> Style:
    """Text in the colour of a kind, for tables; the darker ones half way to white."""
    color, _, text = COLORS[kind]
    if text == "#ffffff":
        channels = ((int(color[n : n + 2], 16) + 255) // 2 for n in (1, 3, 5))
        color = "#" + "".join(f"{c:02x}" for c in channels)
    return Style(color=color)
