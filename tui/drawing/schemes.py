"""The colors of a dark and a light screen, in 256 colors and in 16.

Pictures are drawn in the styles of the palette, which are those of `DARK`. On its way to the
terminal each style becomes that of the scheme in use. In every scheme a text has a contrast of at
least 4.5 (WCAG 2.1, success criterion 1.4.3) and a block of 3 (1.4.11); tests compute both.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec
from rich.style import Style
from textual.theme import Theme

from fusetui.tui.layout.kinds import Kind

Pair = tuple[str, str]
"""A block and the text on it."""
BLACK, WHITE = "#000000", "#ffffff"
NO_STYLE, STRONG = Style(), Style(bold=True)


class Scheme(msgspec.Struct, frozen=True, eq=False):
    """`texts`: colors on the background; the others are pairs of a block and the text on it."""

    name: str
    background: str
    surface: str  # of what lies over the page
    foreground: str
    texts: Mapping[str, str]
    marks: Mapping[str, Pair]
    kinds: Mapping[Kind, Pair]
    swatches: Mapping[Kind, str]  # texts in tables
    idle: Mapping[str, Pair]  # by the keys of IDLE; never near those of GPU work
    cursor: Pair | None = None  # where a row under the cursor loses its own colors

    @property
    def is_dark(self) -> bool:
        return self.background < self.foreground

    @property
    def theme(self) -> Theme:
        """The same for the widgets of Textual."""
        return Theme(
            f"fusetui-{self.name}",
            primary=self.texts["BUSY"],
            foreground=self.foreground,
            background=self.background,
            surface=self.surface,
            panel=self.surface,
            dark=self.is_dark,
        )


DARK = Scheme(
    "dark",
    background="#121212",
    surface="#1c1c1c",
    foreground="#e4e4e4",
    texts={
        "DIM": "#a4a4a4",
        "TITLE": WHITE,
        "GOOD": "#87d787",
        "BAD": "#ff8787",
        "WARN": "#ffaf87",
        "WINDOW": "#afd7ff",
        "BUSY": "#5f87af",
    },
    marks={
        "SELECTED": ("#ffff87", BLACK),
        "MARKED": ("#eeeeee", BLACK),
        "HERE": ("#87afd7", BLACK),
        "CURSOR": ("#303030", ""),
    },
    kinds={
        Kind.GEMM: ("#5f87d7", BLACK),
        Kind.ATTENTION: ("#af87d7", BLACK),
        Kind.POINTWISE: ("#87af5f", BLACK),
        Kind.FUSED: ("#5fd7af", BLACK),
        Kind.REDUCTION: ("#d7875f", BLACK),
        Kind.COPY: ("#a8a8a8", BLACK),
        Kind.COMM: ("#d75f87", BLACK),
        Kind.GPU_OTHER: ("#5fafaf", BLACK),
        Kind.OP: ("#5f5f87", WHITE),
        Kind.CALL: ("#875f5f", WHITE),
        Kind.ANNOTATION: ("#5f875f", BLACK),
        Kind.PYTHON: ("#6c6c6c", WHITE),
        Kind.COMPILED: ("#008787", BLACK),
        Kind.OTHER: ("#767676", BLACK),
    },
    swatches={
        Kind.GEMM: "#87afff",
        Kind.ATTENTION: "#d7afff",
        Kind.POINTWISE: "#afd787",
        Kind.FUSED: "#87ffd7",
        Kind.REDUCTION: "#d7af87",
        Kind.COPY: "#d0d0d0",
        Kind.COMM: "#ff87af",
        Kind.GPU_OTHER: "#87d7ff",
        Kind.OP: "#afafff",
        Kind.CALL: "#ffafaf",
        Kind.ANNOTATION: "#87d7af",
        Kind.PYTHON: "#bcbcbc",
        Kind.COMPILED: "#5fd7d7",
        Kind.OTHER: "#c6c6c6",
    },
    idle={  # no two uses of this scheme may have the same color: translation()
        "unlinked": ("#5f8787", BLACK),
        "graph": ("#87d789", BLACK),
        "host_sync": ("#ff8789", BLACK),
        "host_alloc": ("#d7afaf", BLACK),
        "host_call": ("#d7afd7", BLACK),
        "host_op": ("#8787af", BLACK),
        "host_python": ("#87d7d7", BLACK),
        "host_annotation": ("#5f8761", BLACK),
        "host_nothing": ("#d2d2d2", BLACK),
        "launch_call": ("#af8787", BLACK),
        "launch_latency": ("#87afd7", BLACK),
        "queued": ("#afaffd", BLACK),
        "after": ("#808080", BLACK),
    },
)

LIGHT = Scheme(
    "light",
    background=WHITE,
    surface="#eeeeee",
    foreground="#1c1c1c",
    texts={
        "DIM": "#585858",
        "TITLE": BLACK,
        "GOOD": "#005f00",
        "BAD": "#af0000",
        "WARN": "#af005f",
        "WINDOW": "#005f87",
        "BUSY": "#5f87af",
    },
    marks={
        "SELECTED": ("#af8700", BLACK),
        "MARKED": ("#303030", WHITE),
        "HERE": ("#005f87", WHITE),
        "CURSOR": ("#d7d7d7", ""),
    },
    kinds={
        Kind.GEMM: ("#5f87d7", BLACK),
        Kind.ATTENTION: ("#af5fd7", BLACK),
        Kind.POINTWISE: ("#5f8700", BLACK),
        Kind.FUSED: ("#00875f", BLACK),
        Kind.REDUCTION: ("#d75f00", BLACK),
        Kind.COPY: ("#8a8a8a", BLACK),
        Kind.COMM: ("#ff0087", BLACK),
        Kind.GPU_OTHER: ("#875f87", WHITE),
        Kind.OP: ("#5f5faf", WHITE),
        Kind.CALL: ("#875f5f", WHITE),
        Kind.ANNOTATION: ("#5f875f", BLACK),
        Kind.PYTHON: ("#6c6c6c", WHITE),
        Kind.COMPILED: ("#008787", BLACK),
        Kind.OTHER: ("#767676", BLACK),
    },
    swatches={
        Kind.GEMM: "#0000af",
        Kind.ATTENTION: "#5f00af",
        Kind.POINTWISE: "#005f00",
        Kind.FUSED: "#005f5f",
        Kind.REDUCTION: "#870000",
        Kind.COPY: "#4e4e4e",
        Kind.COMM: "#87005f",
        Kind.GPU_OTHER: "#5f005f",
        Kind.OP: "#00005f",
        Kind.CALL: "#5f0000",
        Kind.ANNOTATION: "#005f00",
        Kind.PYTHON: "#444444",
        Kind.COMPILED: "#005f5f",
        Kind.OTHER: "#303030",
    },
    idle={
        "unlinked": ("#262626", WHITE),
        "graph": ("#0087ff", BLACK),
        "host_sync": ("#d75f5f", BLACK),
        "host_alloc": ("#af875f", BLACK),
        "host_call": ("#af87af", BLACK),
        "host_op": ("#5f5faf", WHITE),
        "host_python": ("#0087af", BLACK),
        "host_annotation": ("#5f875f", BLACK),
        "host_nothing": ("#444444", WHITE),
        "launch_call": ("#af5f5f", BLACK),
        "launch_latency": ("#5f5fff", BLACK),
        "queued": ("#8787ff", BLACK),
        "after": ("#626262", WHITE),
    },
)

# The 16 colors as Rich numbers them (rich._palettes.STANDARD_PALETTE): a terminal that has no
# others gets exactly these, and shows them as it likes.
RED, GREEN, BLUE, MAGENTA, CYAN = "#aa0000", "#00aa00", "#0000aa", "#aa00aa", "#00aaaa"
SILVER, GRAY = "#aaaaaa", "#555555"
BRIGHT_RED, BRIGHT_GREEN, BRIGHT_YELLOW = "#ff5555", "#55ff55", "#ffff55"
BRIGHT_BLUE, BRIGHT_MAGENTA, BRIGHT_CYAN = "#5555ff", "#ff55ff", "#55ffff"

DARK_16 = Scheme(
    "dark-16",
    background=BLACK,
    surface=BLACK,
    foreground=WHITE,
    texts={
        "DIM": SILVER,
        "TITLE": WHITE,
        "GOOD": BRIGHT_GREEN,
        "BAD": BRIGHT_RED,
        "WARN": BRIGHT_MAGENTA,
        "WINDOW": BRIGHT_CYAN,
        "BUSY": CYAN,
    },
    marks={
        "SELECTED": (BRIGHT_YELLOW, BLACK),
        "MARKED": (WHITE, BLACK),
        "HERE": (CYAN, BLACK),
        "CURSOR": (BLUE, WHITE),
    },
    kinds={
        Kind.GEMM: (BRIGHT_BLUE, WHITE),
        Kind.ATTENTION: (BRIGHT_MAGENTA, BLACK),
        Kind.POINTWISE: (GREEN, BLACK),
        Kind.FUSED: (BRIGHT_CYAN, BLACK),
        Kind.REDUCTION: (BRIGHT_RED, BLACK),
        Kind.COPY: (SILVER, BLACK),
        Kind.COMM: (MAGENTA, WHITE),
        Kind.GPU_OTHER: (CYAN, BLACK),
        Kind.OP: (GRAY, BLACK),
        Kind.CALL: (RED, WHITE),
        Kind.ANNOTATION: (GREEN, BLACK),
        Kind.PYTHON: (GRAY, BLACK),
        Kind.COMPILED: (CYAN, BLACK),
        Kind.OTHER: (SILVER, BLACK),
    },
    swatches={
        **dict.fromkeys(Kind, SILVER),
        Kind.ATTENTION: BRIGHT_MAGENTA,
        Kind.POINTWISE: GREEN,
        Kind.FUSED: BRIGHT_CYAN,
        Kind.REDUCTION: BRIGHT_RED,
        Kind.GPU_OTHER: CYAN,
        Kind.COMPILED: CYAN,
    },
    idle=dict.fromkeys(DARK.idle, (SILVER, BLACK)),
    cursor=(BLUE, WHITE),
)

LIGHT_16 = Scheme(
    "light-16",
    background=WHITE,
    surface=WHITE,
    foreground=BLACK,
    texts={
        "DIM": BLACK,
        "TITLE": BLACK,
        "GOOD": BLUE,
        "BAD": RED,
        "WARN": MAGENTA,
        "WINDOW": BLUE,
        "BUSY": BRIGHT_BLUE,
    },
    marks={
        "SELECTED": (BLACK, WHITE),
        "MARKED": (BLUE, WHITE),
        "HERE": (BLUE, WHITE),
        "CURSOR": (BLUE, WHITE),
    },
    kinds={
        Kind.GEMM: (BRIGHT_BLUE, WHITE),
        Kind.ATTENTION: (MAGENTA, WHITE),
        Kind.POINTWISE: (BLUE, WHITE),
        Kind.FUSED: (RED, WHITE),
        Kind.REDUCTION: (BRIGHT_RED, BLACK),
        Kind.COPY: (GRAY, BLACK),
        Kind.COMM: (BRIGHT_MAGENTA, BLACK),
        Kind.GPU_OTHER: (GRAY, BLACK),
        Kind.OP: (GRAY, BLACK),
        Kind.CALL: (RED, WHITE),
        Kind.ANNOTATION: (BLUE, WHITE),
        Kind.PYTHON: (GRAY, BLACK),
        Kind.COMPILED: (MAGENTA, WHITE),
        Kind.OTHER: (GRAY, BLACK),
    },
    swatches={
        **dict.fromkeys(Kind, BLACK),
        Kind.GEMM: BLUE,
        Kind.ATTENTION: MAGENTA,
        Kind.REDUCTION: RED,
    },
    idle=dict.fromkeys(DARK.idle, (GRAY, BLACK)),
    cursor=(BLUE, WHITE),
)

BOLD = ("TITLE", "WINDOW", "SELECTED", "HERE", "CURSOR")
SCHEMES = (DARK, LIGHT, DARK_16, LIGHT_16)


def scheme_for(light: bool, few_colors: bool) -> Scheme:
    """`few_colors`: the terminal has 16."""
    if few_colors:
        return LIGHT_16 if light else DARK_16
    return LIGHT if light else DARK


@cache
def styles(scheme: Scheme) -> dict[tuple[str, str], Style]:
    """Every style of a scheme, by its use and name."""
    found: dict[tuple[str, str], Style] = {}
    for name, color in scheme.texts.items():
        found["text", name] = Style(color=color, bold=True if name in BOLD else None)
    for name, (block, text) in scheme.marks.items():
        bold = True if name in BOLD else None
        found["mark", name] = Style(color=text or None, bgcolor=block, bold=bold)
    for kind, (block, text) in scheme.kinds.items():
        found["fill", kind] = Style(color=text, bgcolor=block)
        found["bar", kind] = Style(color=block)
        found["swatch", kind] = Style(color=scheme.swatches[kind])
    for reason, (block, text) in scheme.idle.items():
        found["idle", reason] = Style(color=text, bgcolor=block)
        found["idle bar", reason] = Style(color=block)
    return found


@cache
def translation(scheme: Scheme, background: str) -> dict[Style | None, Style]:
    """What is shown for each style of the palette, also for rows under the cursor, and for None.
    The background is always there: that of the terminal may be any color. Equal styles are one
    object, so that `is` compares them."""
    drawn, shown = styles(DARK), styles(scheme)
    under, over = drawn["mark", "CURSOR"], shown["mark", "CURSOR"]
    behind = Style(color=scheme.foreground, bgcolor=background)
    own = {style: shown[use] for use, style in drawn.items()}
    own |= {NO_STYLE: NO_STYLE, STRONG: STRONG}
    found: dict[Style | None, Style] = {style: behind + new for style, new in own.items()}
    for style, new in own.items():
        found[style + under] = behind + (over if scheme.cursor else new + over)
    found[None] = found[NO_STYLE]
    first: dict[Style, Style] = {}
    return {style: first.setdefault(new, new) for style, new in found.items()}
