"""One registry of all commands: it feeds the bindings, the hints, the help and the palette."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Where = Literal["timeline", "app"]


@dataclass(frozen=True, slots=True)
class Command:
    """`action` is a Textual action of the widget or screen that `where` names."""

    id: str
    title: str
    keys: tuple[str, ...]  # Textual's names; the first is shown
    action: str
    where: Where
    help: str
    always: bool = False  # also while a text is typed, or a page is on top


Entry = tuple[str, str, str, str, str]  # id, title, keys, action, help

TIMELINE: tuple[Entry, ...] = (
    (
        "zoom-in",
        "Zoom in",
        "w plus equals_sign",
        "move('zoom', (1, 2))",
        "about the selection",
    ),
    ("zoom-out", "Zoom out", "s minus", "move('zoom', (2, 1))", "about the selection"),
    ("left", "Pan left", "a h left", "move('pan', (-10,))", "a tenth of the window"),
    ("right", "Pan right", "d l right", "move('pan', (10,))", "a tenth of the window"),
    ("screen-left", "Screen left", "A H shift+left", "move('pan', (-90,))", "most of a window"),
    ("screen-right", "Screen right", "D L shift+right", "move('pan', (90,))", "most of a window"),
    ("down", "Line down", "j down", "move('next_line', (1,))", "the slice below, at the same time"),
    ("up", "Line up", "k up", "move('next_line', (-1,))", "the slice above, at the same time"),
    ("lane-down", "Next lane", "J", "move('next_lane', (1,))", "the first line of the next lane"),
    (
        "lane-up",
        "Previous lane",
        "K",
        "move('next_lane', (-1,))",
        "the first line of the one before",
    ),
    ("page-down", "Page of lanes down", "pagedown", "scroll_lanes(1)", "scroll the lanes"),
    ("page-up", "Page of lanes up", "pageup", "scroll_lanes(-1)", "scroll the lanes"),
    ("next", "Next slice", "full_stop", "move('next_slice', (1,))", "on the same line"),
    ("previous", "Previous slice", "comma", "move('next_slice', (-1,))", "on the same line"),
    (
        "to-kernel",
        "To the kernel",
        "right_square_bracket",
        "move('to_kernel')",
        "from a launch or op",
    ),
    (
        "to-launch",
        "To the launch",
        "left_square_bracket",
        "move('to_launch')",
        "then the ops around",
    ),
    ("zoom-to", "Zoom to the slice", "enter z", "move('zoom_to')", "half of the width"),
    ("focus", "Centre the slice", "f", "move('centre')", "without changing the zoom"),
    ("fit", "Whole trace", "0", "fit", "show everything"),
    ("start", "Start of the trace", "g home", "move('edge', (-1,))", "keep the zoom"),
    ("end", "End of the trace", "G end", "move('edge', (1,))", "keep the zoom"),
    ("fold", "Fold the lane", "space", "fold", "one line, some lines, all lines"),
    ("undo", "Undo the movement", "u", "app.undo", "back to the view before"),
    ("redo", "Redo the movement", "ctrl+r", "app.redo", "forward again"),
    ("range", "Range of time", "v", "app.range", "from here; v again: to there"),
    ("mark", "Set a mark", "m", "app.mark", "then a letter: this window and selection"),
    ("to-mark", "Go to a mark", "apostrophe", "app.to_mark", "then its letter"),
    ("deselect", "Clear the selection", "escape", "app.clear", "the range first"),
)
APP: tuple[Entry, ...] = (
    ("timeline", "Timeline", "1", "show('timeline')", "lanes of CPU threads and GPU streams"),
    ("tree", "Op tree", "2", "show('tree')", "CPU ops with total, self and GPU time"),
    ("kernels", "Kernels", "3", "show('kernels')", "by total time"),
    ("diff", "Diff", "4", "show('diff')", "what changed from A to B"),
    ("search", "Search", "slash", "search", "names that contain a text"),
    ("next-hit", "Next hit", "n", "hit(1)", "of the search, in order of time"),
    ("previous-hit", "Previous hit", "N", "hit(-1)", "of the search"),
    ("details", "All details", "i", "details", "of the slice, or of the range"),
    ("copy", "Copy", "y", "copy", "full name; start and time of a slice"),
    ("command", "Command", "colon", "command", "goto, step, mark, open, diff, q"),
    ("choose", "Other traces", "o", "choose", "the other variants or ranks that were named"),
    ("link", "Together or apart", "b", "link", "whether both traces move at once"),
    ("swap", "Swap the sides", "x", "swap", "A becomes B"),
    ("stop", "Stop reading", "escape", "stop", "and keep what was read of the trace"),
    ("help", "Keys", "question_mark", "help", "this page"),
    ("suspend", "Suspend", "ctrl+z", "suspend_process", "back to the shell; fg returns"),
    ("quit", "Quit", "q", "close", "close what is open, else quit"),
    ("interrupt", "Quit at once", "ctrl+c", "interrupt", "from anywhere; exit code 130"),
)
ALWAYS = ("interrupt",)


def _commands(where: Where, entries: tuple[Entry, ...]) -> tuple[Command, ...]:
    return tuple(
        Command(f"{where}.{name}", title, tuple(keys.split()), action, where, text, name in ALWAYS)
        for name, title, keys, action, text in entries
    )


COMMANDS = (*_commands("timeline", TIMELINE), *_commands("app", APP))

SYMBOLS = {
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "full_stop": ".",
    "comma": ",",
    "colon": ":",
    "apostrophe": "'",
    "right_square_bracket": "]",
    "left_square_bracket": "[",
    "question_mark": "?",
    "slash": "/",
    "escape": "Esc",
    "enter": "Enter",
    "space": "Space",
    "tab": "Tab",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "home": "Home",
    "end": "End",
}


def key_text(key: str) -> str:
    """A key as people write it: `]`, `Shift+←`, `Ctrl+r`."""
    *modifiers, last = key.split("+")
    return "+".join([*(m.capitalize() for m in modifiers), SYMBOLS.get(last, last)])


def commands_of(where: Where) -> tuple[Command, ...]:
    return tuple(command for command in COMMANDS if command.where == where)


STOP_HINT = "Esc stop and keep what was read"
HINTS = {
    "timeline": (
        "? keys",
        "w/s zoom",
        "a/d pan",
        "j/k line",
        ",/. slice",
        "]/[ launch-kernel",
        "/ search",
        "2 tree",
        "3 kernels",
        "4 diff",
        "v range",
        "y copy",
        "m/' mark",
        ": command",
        "q quit",
    ),
    "tree": (
        "? keys",
        "j/k move",
        "Space open",
        "Enter show in the timeline",
        "1 timeline",
        "y copy",
    ),
    "kernels": (
        "? keys",
        "j/k move",
        "Enter show in the timeline",
        "n/N the others",
        "1 timeline",
        "y copy",
    ),
    "diff": (
        "? keys",
        "j/k move",
        "Enter show in the timelines",
        "x swap",
        "1 timelines",
        "y copy",
    ),
}
"""The line at the bottom of each page, what matters most first."""
