"""The appearance of each color token on a dark and a light screen, in 256 colors and in
16.

Pictures name tokens, such as `kernel.gemm`, `idle.queued` or `selection`, each of which
has one meaning; only the canvas asks a scheme for their styles. In every scheme a text
has a contrast of at least 4.5 (WCAG 2.1, success criterion 1.4.3) and a block of 3
(1.4.11); tests compute both. The characters used for drawing are here too: one set for
terminals with Unicode, one for ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

import msgspec
from msgspec.structs import replace
from rich.style import Style
from textual.theme import Theme

from fusetui.text.patterns import lazy_pattern

Styled = tuple[str, str]  # a text, and the token of its style

TABLE = """
token                  dark           light          dark-16               light-16
background             #121212        white          black                 white
surface                #1c1c1c        #eeeeee        black                 white
foreground             #e4e4e4        #1c1c1c        white                 black
faint                  #a4a4a4        #585858        silver                black
title                  white          black          white                 black
good                   #87d787        #005f00        green                 blue
bad                    #ff8787        #af0000        bright-red            red
warning                #ffaf87        #af005f        bright-magenta        magenta
window                 #afd7ff        #005f87        bright-cyan           blue
busy                   #5f87af        #5f87af        cyan                  bright-blue
selection              #ffff87/black  #af8700/black  bright-yellow/black   black/white
marked                 #eeeeee/black  #303030/white  white/black           blue/white
path                   #ff5f00/black  #af0000/white  bright-red/black      red/white
front                  #87afd7/black  #005f87/white  cyan/black            blue/white
cursor                 #303030/       #d7d7d7/       blue/white            blue/white
kernel.gemm            #5f87d7/black  #5f87d7/black  bright-blue/white     bright-blue/white
kernel.attention       #af87d7/black  #af5fd7/black  bright-magenta/black  magenta/white
kernel.pointwise       #87af5f/black  #5f8700/black  green/black           blue/white
kernel.fused           #5fd7af/black  #00875f/black  bright-cyan/black     red/white
kernel.reduction       #d7875f/black  #d75f00/black  bright-red/black      bright-red/black
kernel.copy            #a8a8a8/black  #8a8a8a/black  silver/black          gray/black
kernel.comm            #d75f87/black  #ff0087/black  magenta/white         bright-magenta/black
kernel.other           #5fafaf/black  #875f87/white  cyan/black            gray/black
slice.op               #5f5f87/white  #5f5faf/white  gray/black            gray/black
slice.call             #875f5f/white  #875f5f/white  red/white             red/white
slice.annotation       #5f875f/black  #5f875f/black  green/black           blue/white
slice.python           #6c6c6c/white  #6c6c6c/white  gray/black            gray/black
slice.compiled         #008787/black  #008787/black  cyan/black            magenta/white
slice.other            #767676/black  #767676/black  silver/black          gray/black
kernel.gemm.text       #87afff        #0000af        silver                blue
kernel.attention.text  #d7afff        #5f00af        bright-magenta        magenta
kernel.pointwise.text  #afd787        #005f00        green                 black
kernel.fused.text      #87ffd7        #005f5f        bright-cyan           black
kernel.reduction.text  #d7af87        #870000        bright-red            red
kernel.copy.text       #d0d0d0        #4e4e4e        silver                black
kernel.comm.text       #ff87af        #87005f        silver                black
kernel.other.text      #87d7ff        #5f005f        cyan                  black
slice.op.text          #afafff        #00005f        silver                black
slice.call.text        #ffafaf        #5f0000        silver                black
slice.annotation.text  #87d7af        #005f00        silver                black
slice.python.text      #bcbcbc        #444444        silver                black
slice.compiled.text    #5fd7d7        #005f5f        cyan                  black
slice.other.text       #c6c6c6        #303030        silver                black
idle.unlinked          #5f8787/black  #262626/white  silver/black          gray/black
idle.graph             #87d789/black  #0087ff/black  silver/black          gray/black
idle.host_sync         #ff8789/black  #d75f5f/black  silver/black          gray/black
idle.host_alloc        #d7afaf/black  #af875f/black  silver/black          gray/black
idle.host_call         #d7afd7/black  #af87af/black  silver/black          gray/black
idle.host_op           #8787af/black  #5f5faf/white  silver/black          gray/black
idle.host_python       #87d7d7/black  #0087af/black  silver/black          gray/black
idle.host_annotation   #5f8761/black  #5f875f/black  silver/black          gray/black
idle.host_nothing      #d2d2d2/black  #444444/white  silver/black          gray/black
idle.launch_call       #af8787/black  #af5f5f/black  silver/black          gray/black
idle.launch_latency    #87afd7/black  #5f5fff/black  silver/black          gray/black
idle.queued            #afaffd/black  #8787ff/black  silver/black          gray/black
idle.after             #808080/black  #626262/white  silver/black          gray/black
"""
"""`block/text` is a block of color and the text on it, else the color of a text. The
names of kernels and slices are those of layout/kinds.py, of idle time the keys of
IDLE."""

SAME = {
    "memory.parameters": "kernel.gemm",
    "memory.optimizer_state": "kernel.attention",
    "memory.gradients": "kernel.reduction",
    "memory.activations": "kernel.pointwise",
    "memory.temporary": "kernel.comm",
    "memory.workspace": "kernel.other",
    "memory.graph_pool": "kernel.fused",
    "memory.before_recording": "slice.python",
    "memory.unknown": "kernel.copy",
    "code.keyword": "kernel.attention.text",
    "code.string": "kernel.pointwise.text",
    "code.number": "kernel.reduction.text",
    "code.function": "kernel.gemm.text",
}
"""Tokens that look as others do, which are never beside them."""
NAMED = {
    "black": "#000000",
    "red": "#aa0000",
    "green": "#00aa00",
    "blue": "#0000aa",
    "magenta": "#aa00aa",
    "cyan": "#00aaaa",
    "silver": "#aaaaaa",
    "gray": "#555555",
    "bright-red": "#ff5555",
    "bright-green": "#55ff55",
    "bright-yellow": "#ffff55",
    "bright-blue": "#5555ff",
    "bright-magenta": "#ff55ff",
    "bright-cyan": "#55ffff",
    "white": "#ffffff",
}
"""The 16 colors as Rich numbers them (rich._palettes.STANDARD_PALETTE): a terminal that
has no others gets exactly these, and shows them as it likes."""
BOLD = ("title", "window", "selection", "front", "cursor")
BAR = ".bar"
TEXT = ".text"
"""After the token of a kernel, a slice or idle time: what fills a cell only partly, in
the color of the block, and texts in tables in a color like it."""
SIGN = lazy_pattern(r"\{([a-z_]+)\}")
"""The name of a field of Glyphs, in the texts that explain signs."""
CURSOR = ".cursor"  # after any token: the same on a row under the cursor


class Scheme(msgspec.Struct, frozen=True, eq=False):
    """The colors of each token, of a block and of the text on it; "" for none."""

    name: str
    colors: Mapping[str, tuple[str, str]]
    background: str
    surface: str  # behind what lies over the page
    foreground: str

    @property
    def theme(self) -> Theme:
        """The colors of this scheme as a theme for the widgets of Textual."""
        return Theme(
            f"fusetui-{self.name}",
            primary=self.colors["busy"][1],
            foreground=self.foreground,
            background=self.background,
            surface=self.surface,
            panel=self.surface,
            dark=self.background < self.foreground,
        )


def _parse_scheme(column: int) -> Scheme:
    """Parse one column of TABLE into a color scheme.

    `column` is 0 for the first scheme. A cell is a color of text, or `block/text` for a
    filled block and the text on it. Colors are hexadecimal, or names in NAMED. Tokens
    in SAME get the colors of another token.
    """
    titles, *rows = TABLE.strip().splitlines()
    name = titles.split()[1 + column]
    colors: dict[str, tuple[str, str]] = {}
    for row in rows:
        token, *cells = row.split()
        block, _, text = cells[column].rpartition("/")
        colors[token] = NAMED.get(block, block), NAMED.get(text, text)
    for token, similar_token in SAME.items():
        colors[token] = colors[similar_token]
    return Scheme(
        name=name,
        colors=colors,
        background=colors["background"][1],
        surface=colors["surface"][1],
        foreground=colors["foreground"][1],
    )


DARK = _parse_scheme(0)
LIGHT = _parse_scheme(1)
DARK_16 = _parse_scheme(2)
LIGHT_16 = _parse_scheme(3)
SCHEMES = (DARK, LIGHT, DARK_16, LIGHT_16)


def choose_scheme(light: bool, has_16_colors: bool) -> Scheme:
    """Return the color scheme for a light or dark terminal with 256 or only 16 colors."""
    if has_16_colors:
        return LIGHT_16 if light else DARK_16
    return LIGHT if light else DARK


@cache
def build_styles(scheme: Scheme, background: str) -> Mapping[str, Style]:
    """Return the style of each token, such as "kernel.gemm", and the same under the
    cursor (token + CURSOR).

    `background` is put into every style, because the background of the terminal may be
    any color. Equal styles are the same object, so that callers can compare them by
    `is`, which is fast.
    """
    token_styles = _styles_without_background(scheme)
    cursor_style = token_styles["cursor"]
    base_style = Style(color=scheme.foreground, bgcolor=background)
    styles = {}
    for token, style in token_styles.items():
        styles[token] = base_style + style
        if cursor_style.color:  # it hides the colors of the row
            under_cursor = cursor_style
        elif style.bgcolor:  # the text of a block is readable on the block alone
            under_cursor = style
        else:
            under_cursor = style + cursor_style
        styles[token + CURSOR] = base_style + under_cursor
    first_of_equal: dict[Style, Style] = {}
    return {
        token: first_of_equal.setdefault(style, style)
        for token, style in styles.items()
    }


def _styles_without_background(scheme: Scheme) -> dict[str, Style]:
    """Return the style of each token as it is in the scheme, without the background of
    the screen. A token that fills blocks gets a second style (token + BAR), for cells
    that are only partly filled."""
    styles = {"plain": Style(), "strong": Style(bold=True)}
    for token, (block, text) in scheme.colors.items():
        bold = True if token in BOLD else None
        styles[token] = Style(color=text or None, bgcolor=block or None, bold=bold)
        if block:
            styles[token + BAR] = Style(color=block)
    return styles


class Glyphs(msgspec.Struct, frozen=True):
    """Every drawing character. `levels` goes from empty to full; `parts` are eighths of
    a cell."""

    levels: str
    parts: str
    full: str
    rule: str
    window: tuple[str, str, str]  # left end, middle, right end
    thumb: str  # of a scroll bar
    swatch: str  # before a name in a legend
    edge: str  # where a block begins beside another
    selected: str
    selected_cell: str
    path: str  # of a slice or cell on the critical path
    ellipsis: str
    folded: str
    unfolded: str
    leaf: str
    chain: str
    underline: tuple[str, str, str]  # left end, middle, right end
    # a block is filled with the letter of its kind: colors may be missing
    letters: bool = False

    @property
    def top(self) -> int:
        """The level of a completely filled cell; 0 is an empty one."""
        return len(self.levels) - 1

    def bars(self, levels: Iterable[int]) -> str:
        """Return one character for each level, from 0 (empty) to `top` (full)."""
        return "".join([self.levels[level] for level in levels])


UNICODE = Glyphs(
    levels=" ▁▂▃▄▅▆▇█",
    parts=" ▏▎▍▌▋▊▉",
    full="█",
    rule="─",
    window=("├", "─", "┤"),
    thumb="┃",
    swatch="■",
    edge="▏",
    selected="▸",
    selected_cell="◆",
    path="●",
    ellipsis="…",
    folded="▸",
    unfolded="▾",
    leaf="·",
    chain="‹",
    underline=("└", "─", "┘"),
)
ASCII = Glyphs(
    levels=" .:-=+*##",
    parts="    ####",
    full="#",
    rule="-",
    window=("[", "-", "]"),
    thumb="!",
    swatch="#",
    edge="|",
    selected=">",
    selected_cell="*",
    path="@",
    ellipsis="~",
    folded="+",
    unfolded="-",
    leaf=" ",
    chain="<",
    underline=("`", "-", "'"),
    letters=True,
)
COLORLESS = replace(UNICODE, letters=True)


def choose_glyphs(ascii_only: bool, colorless: bool = False) -> Glyphs:
    """Return the drawing characters for a terminal.

    `ascii_only` avoids all characters outside of ASCII. `colorless` adds letters to
    blocks, because colors cannot show what a slice does.
    """
    if ascii_only:
        return ASCII
    return COLORLESS if colorless else UNICODE


def spell_sign(text: str, glyphs: Glyphs) -> str:
    """Return a text with drawing characters in place of their names in braces: `{path}`
    becomes the character `path` of `glyphs`, `{levels}` all levels but the empty one."""

    def characters(match: re.Match[str]) -> str:
        return "".join(getattr(glyphs, match[1])).strip()

    return SIGN.sub(characters, text)


def draw_share_bar(part: int, whole: int, width: int, glyphs: Glyphs) -> str:
    """Return a bar for the share of `part` in `whole`, padded to `width` cells.

    A full bar is `width` cells. Bars end at an eighth of a cell, and any share above 0
    is visible. If `part` or `whole` is not positive, the bar is blank.
    """
    if part <= 0 or whole <= 0:
        return " " * width
    eighths = round(8 * width * part / whole)
    eighths = max(1, min(8 * width, eighths))
    full_cells, last_eighths = divmod(eighths, 8)
    bar = glyphs.full * full_cells + glyphs.parts[last_eighths]
    return bar.ljust(width)[:width]
