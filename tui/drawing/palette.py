"""Colours: one per kind of slice, and the styles of everything else, made once."""

from __future__ import annotations

from functools import cache

from rich.style import Style

from fusetui.tui.layout.kinds import Kind

COLORS: dict[Kind, tuple[str, str]] = {  # block, text; all of the 256
    Kind.GEMM: ("#5f87d7", "#000000"),
    Kind.ATTENTION: ("#af87d7", "#000000"),
    Kind.POINTWISE: ("#87af5f", "#000000"),
    Kind.FUSED: ("#5fd7af", "#000000"),
    Kind.REDUCTION: ("#d7875f", "#000000"),
    Kind.COPY: ("#a8a8a8", "#000000"),
    Kind.COMM: ("#d75f87", "#000000"),
    Kind.GPU_OTHER: ("#5fafaf", "#000000"),
    Kind.OP: ("#5f5f87", "#ffffff"),
    Kind.CALL: ("#875f5f", "#ffffff"),
    Kind.ANNOTATION: ("#5f875f", "#000000"),
    Kind.PYTHON: ("#6c6c6c", "#ffffff"),
    Kind.COMPILED: ("#008787", "#ffffff"),
    Kind.OTHER: ("#767676", "#000000"),
}

IDLE_COLORS = {  # by the names of gaps.IDLE; all of the 256, with black text
    "unlinked": "#8a8a8a",
    "graph": "#87d7d7",
    "host_sync": "#d78787",
    "host_alloc": "#d7afaf",
    "host_call": "#d7afd7",
    "host_op": "#87afd7",
    "host_python": "#87af87",
    "host_annotation": "#5faf87",
    "host_nothing": "#b2b2b2",
    "launch_call": "#af87af",
    "launch_latency": "#8787af",
    "queued": "#afafd7",
    "after": "#9e9e9e",
}

PLAIN = Style()
DIM = Style(color="#949494")
BOLD = Style(bold=True)
TITLE = Style(color="#ffffff", bold=True)
GOOD = Style(color="#87d787")
BAD = Style(color="#ff8787")
WARN = Style(color="#ffaf87")
WINDOW = Style(color="#afd7ff", bold=True)
BUSY = Style(color="#5f87af")
SELECTED = Style(color="#000000", bgcolor="#ffff87", bold=True)
MARKED = Style(color="#000000", bgcolor="#eeeeee")
CURSOR = Style(bgcolor="#3a3a3a", bold=True)


@cache
def fill(kind: Kind) -> Style:
    """A slice wide enough for a text."""
    block, text = COLORS[kind]
    return Style(color=text, bgcolor=block)


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
    color, text = COLORS[kind]
    if text == "#ffffff":
        channels = ((int(color[n : n + 2], 16) + 255) // 2 for n in (1, 3, 5))
        color = "#" + "".join(f"{c:02x}" for c in channels)
    return Style(color=color)
