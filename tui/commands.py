"""One registry of all commands: it feeds the bindings, the hints, the help and the palette."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Where = Literal["timeline", "list", "app"]


@dataclass(frozen=True, slots=True)
class Command:
    """`action` is a Textual action of the widget or screen that `where` names."""

    id: str
    title: str
    keys: tuple[str, ...]  # Textual's names; the first is shown
    action: str
    where: Where
    help: str
    hint: str = ""  # for the line at the bottom; empty: not shown there


def _timeline(name: str, title: str, keys: str, action: str, text: str, hint: str = "") -> Command:
    return Command(f"timeline.{name}", title, tuple(keys.split()), action, "timeline", text, hint)


def _app(name: str, title: str, keys: str, action: str, text: str, hint: str = "") -> Command:
    return Command(f"app.{name}", title, tuple(keys.split()), action, "app", text, hint)


COMMANDS: tuple[Command, ...] = (
    _timeline(
        "zoom-in", "Zoom in", "w plus equals_sign", "move('zoom', 1, 2)", "about the selected slice"
    ),
    _timeline("zoom-out", "Zoom out", "s minus", "move('zoom', 2, 1)", "about the selected slice"),
    _timeline("left", "Pan left", "a h left", "move('pan', -10)", "a tenth of the window"),
    _timeline("right", "Pan right", "d l right", "move('pan', 10)", "a tenth of the window"),
    _timeline(
        "screen-left", "Screen left", "A H shift+left", "move('pan', -90)", "most of a window"
    ),
    _timeline(
        "screen-right", "Screen right", "D L shift+right", "move('pan', 90)", "most of a window"
    ),
    _timeline(
        "down", "Line down", "j down", "move('next_line', 1)", "the slice below, at the same time"
    ),
    _timeline(
        "up", "Line up", "k up", "move('next_line', -1)", "the slice above, at the same time"
    ),
    _timeline(
        "lane-down", "Next lane", "J", "move('next_lane', 1)", "the first line of the next lane"
    ),
    _timeline(
        "lane-up",
        "Previous lane",
        "K",
        "move('next_lane', -1)",
        "the first line of the lane before",
    ),
    _timeline("page-down", "Page of lanes down", "pagedown", "scroll_lanes(1)", "scroll the lanes"),
    _timeline("page-up", "Page of lanes up", "pageup", "scroll_lanes(-1)", "scroll the lanes"),
    _timeline("next", "Next slice", "full_stop", "move('next_slice', 1)", "on the same line"),
    _timeline("previous", "Previous slice", "comma", "move('next_slice', -1)", "on the same line"),
    _timeline(
        "to-kernel",
        "To the kernel",
        "right_square_bracket",
        "move('to_kernel')",
        "from launch or op",
    ),
    _timeline(
        "to-launch",
        "To the launch",
        "left_square_bracket",
        "move('to_launch')",
        "then to the ops around it",
    ),
    _timeline("zoom-to", "Zoom to the slice", "enter z", "move('zoom_to')", "half of the width"),
    _timeline("focus", "Centre the slice", "f", "move('centre')", "without changing the zoom"),
    _timeline("fit", "Whole trace", "0", "fit", "show everything"),
    _timeline("start", "Start of the trace", "g home", "move('edge', -1)", "keep the zoom"),
    _timeline("end", "End of the trace", "G end", "move('edge', 1)", "keep the zoom"),
    _timeline("fold", "Fold the lane", "space", "fold", "one line, some lines, all lines"),
    _timeline("undo", "Undo the movement", "u", "undo", "back to the view before"),
    _timeline("redo", "Redo the movement", "ctrl+r", "redo", "forward again"),
    _timeline("deselect", "Clear the selection", "escape", "deselect", "and the marks"),
    _app("timeline", "Timeline", "1", "show('timeline')", "lanes of CPU threads and GPU streams"),
    _app("tree", "Op tree", "2", "show('tree')", "CPU ops with total, self and GPU time"),
    _app("kernels", "Kernels", "3", "show('kernels')", "by total time"),
    _app("diff", "Diff", "4", "show('diff')", "what changed from A to B"),
    _app("search", "Search", "slash", "search", "names that contain a text"),
    _app("next-hit", "Next hit", "n", "hit(1)", "of the search, in order of time"),
    _app("previous-hit", "Previous hit", "N", "hit(-1)", "of the search"),
    _app("details", "All details", "i", "details", "the whole name and every arg"),
    _app("swap", "Swap the sides", "x", "swap", "A becomes B"),
    _app("help", "Keys", "question_mark", "help", "this page"),
    _app("quit", "Quit", "q", "close", "close what is open, else quit"),
)

SYMBOLS = {
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "full_stop": ".",
    "comma": ",",
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


HINTS = {
    "timeline": "w/s zoom  a/d pan  j/k line  ,/. slice  ]/[ launch-kernel  / search  "
    "2 tree  3 kernels  4 diff  ? keys  q quit",
    "tree": "j/k move  Space open  Enter show in the timeline  1 timeline  3 kernels  ? keys",
    "kernels": "j/k move  Enter show in the timeline, n/N the others  1 timeline  2 tree  ? keys",
    "diff": "j/k move  Enter show in the timelines  x swap  1 timelines  2 tree  3 kernels  ? keys",
}
"""The line at the bottom of each page."""
