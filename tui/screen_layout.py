"""The whole screen as panes: bar of pages, head, page, hints; and what a click
meets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from textwrap import wrap

from msgspec.structs import replace

from fusetui.text.cutting import clip, joined
from fusetui.tui.drawing.canvas import Click, Drag, Turn
from fusetui.tui.drawing.chrome import (
    Tab,
    head,
    reading_line,
    tab_at,
    tabs_picture,
    tour_picture,
)
from fusetui.tui.drawing.details import details_height
from fusetui.tui.drawing.picture import Said, Stack, TextPicture, text
from fusetui.tui.drawing.schemes import glyphs_for
from fusetui.tui.layout.memory import MEMORY
from fusetui.tui.pages.hang import hang_head
from fusetui.tui.pages.memory import memory_head
from fusetui.tui.pages.overlays import OVERLAYS, found_picture
from fusetui.tui.pages.page import Page, Pane
from fusetui.tui.registry import BY_ACTION, BY_NAME, PAGES, page_of, turned_to
from fusetui.tui.state import screen
from fusetui.tui.state.action import (
    applies,
    hint_text,
    hints_text,
    keys_text,
    perform,
    with_keys,
)
from fusetui.tui.state.state import HANG, RANKS, Outcome, Prompt, Size, State
from fusetui.tui.state.tour import STEPS

BETWEEN = "  "  # two hints
BETWEEN_KEYS = "   "  # a sentence and its keys
STOP_HINT = "stop stop and keep what was read"
AGAIN = ("A ", "B ")


def panes(state: State) -> list[Pane]:
    """From the first line of the screen to the last."""
    if said := screen.too_small(state.size):
        return _sentence(said, state.size)
    size = screen.body(state)
    front, found = page_of(state), _found(state, size)
    shown = front.show(state, size) if front.has(state) else ()
    page = exactly(shown, size.height - sum(pane.height for pane in found))
    head = Pane(screen.head_height(state), _head(state))
    asked = _tour(state, screen.tour_lines(state))
    return [
        _tabs(state),
        head,
        *page,
        *found,
        *asked,
        Pane(1, _hints(state), _hint_pointed),
    ]


def _sentence(said: str, size: Size) -> list[Pane]:
    lines = wrap(said, max(1, size.width - 1))
    return [*exactly([Pane(len(lines), text([*map(Said, lines)]))], size.height)]


def _hint_pointed(state: State, x: int, y: int) -> Outcome:
    """A click on a hint does what its first key does; where two are named, the nearer
    one."""
    if state.prompt is not None or state.reading is not None:
        return state
    end = 1
    between = BETWEEN_KEYS if state.hint else BETWEEN
    for hint, said in _shown_hints(state):
        begin, end = end, end + len(said) + len(between)
        if begin > 1 and begin + len(said) > state.size.width - 1:
            break  # this one did not fit any more
        if hint and begin <= x < begin + len(said):
            names = hint.partition(" ")[0].split("/")
            second = len(names) > 1 and x - begin > said.partition(" ")[0].find("/") > 0
            found = BY_ACTION[names[second]]
            return perform(found, state) if applies(found, state) else state
    return state


def _shown_hints(state: State) -> list[tuple[str, str]]:
    """The hints that stand on the last line now, and their texts; "" is the hint of a
    sentence."""
    hints = [*state.hint_keys]
    if not state.hint:
        own = page_of(state).hints if page_of(state).has(state) else "quit quit"
        can_stop = state.reading is not None and not state.reading.is_whole
        hints = [STOP_HINT] * can_stop + own.split("; ")
    texts = [("", state.hint), *((hint, hint_text(hint, state)) for hint in hints)]
    return [(hint, text) for hint, text in texts if text]


def exactly(found: Iterable[Pane], lines: int) -> Iterator[Pane]:
    """Panes on this many lines: cut if there are fewer, with blank lines below if
    more."""
    for pane in found:
        height = max(0, min(pane.height, lines))
        lines -= height
        yield replace(pane, height=height)
    yield Pane(lines, text([]))


def overlay_panes(state: State) -> list[Pane]:
    if not state.overlay:
        return []
    if said := screen.too_small(state.size):
        size = screen.overlay_size(state)
        return _sentence(said, replace(size, width=size.width - screen.BESIDE))
    tour = _tour(state, screen.overlay_tour_lines(state))
    return [*OVERLAYS.show(state, screen.overlay_body(state)), *tour]


def stack(found: Sequence[Pane]) -> Stack:
    return Stack([(pane.height, pane.picture) for pane in found])


def moused(state: State, y: int, done: Click | Turn | Drag) -> Outcome:
    """What the mouse did on a line of the screen or of the overlay; a click cancels a
    prompt."""
    if isinstance(done, Click) and state.prompt:
        state = replace(state, prompt=None)
    for pane in overlay_panes(state) or panes(state):
        if y < pane.height:
            break
        y -= pane.height
    else:
        return state
    match done:
        case Click(x) if pane.pointed:
            return pane.pointed(state, x, y)
        case Turn() if pane.wheeled:
            return pane.wheeled(state, done)
        case Drag() if pane.dragged:
            return pane.dragged(state, done)
    return state


def _found(state: State, size: Size) -> list[Pane]:
    if not state.is_searching:
        return []
    height = min(details_height(size.height), size.height)
    return [Pane(height, found_picture(state.found, glyphs_for(state.ascii_only)))]


def _tabs(state: State) -> Pane:
    """The bar of pages; a click brings one to the front."""

    def tab(page: Page) -> Tab:
        text = f"{keys_text(page.name, state)} {page.title}".strip()
        return Tab(page.name, text, page.name == state.page, bool(page.why_not(state)))

    counters = state.side.counters if state.sides else ()
    has_memory = any(curve.counter.group.startswith(MEMORY) for curve in counters)
    has_memory = has_memory or state.memory is not None
    tabs = tuple(tab(page) for page in PAGES if _is_listed(page, state, has_memory))

    def pointed(state: State, x: int, y: int) -> Outcome:
        name = tab_at(tabs, x, state.size.width)
        return turned_to(BY_NAME[name], state) if name and state.is_open else state

    return Pane(screen.tabs_height(state.size), tabs_picture(tabs), pointed)


def _is_listed(page: Page, state: State, has_memory: bool) -> bool:
    """The pages of memory and of a hang only where they are about something; the ranks
    give way to a hang where no job of traces is open."""
    if page.name == MEMORY:
        return has_memory
    if page.name == HANG:
        return state.hang is not None
    if page.name == RANKS:
        return state.hang is None or bool(state.job.paths)
    return True


def _head(state: State) -> TextPicture:
    """What is open, one line for each side; while something is read, the progress."""
    if (reading := state.reading) is not None:
        line = partial(reading_line, reading, glyphs=glyphs_for(state.ascii_only))
        return TextPicture(reading, lambda width, height: [Said(f" {line(width - 2)}")])
    if state.memory and not state.sides:
        opened = state.memory.sides
        return TextPicture(
            opened, lambda w, _: [_title(memory_head(one, w - 2)) for one in opened]
        )
    if state.hang and not state.sides:
        title = _title(hang_head(state.hang))
        return TextPicture(state.hang.grid, lambda width, height: [title])
    sides, second = {n: state.sides[n] for n in state.told_sides}, state.second
    marks = AGAIN if len(state.sides) == 2 else ("",) * len(state.sides)
    cut = glyphs_for(state.ascii_only).ellipsis

    def lines(width: int, height: int) -> list[Said]:
        heads = [
            _title(f"{marks[n]}{head(side, width - 4)}") for n, side in sides.items()
        ]
        said = (
            [Said(f" {clip(second.said, width - 2, cut)}", "warning")] if second else []
        )
        return [*heads, *said]

    return TextPicture((*sides.items(), second), lines)


def _title(text: str) -> Said:
    return Said(f" {text}", "title")


def _tour(state: State, lines: int) -> list[Pane]:
    if state.tour is None:
        return []
    step, rule = STEPS[state.tour], glyphs_for(state.ascii_only).rule
    title = f"{state.tour + 1} of {len(STEPS)}: {step.title}"
    keys = hints_text(("skip skip", "back back"), state, BETWEEN)
    return [Pane(lines, tour_picture(title, with_keys(step.text, state), keys, rule))]


def _hints(state: State) -> TextPicture:
    if state.prompt is not None and state.prompt.is_letter:
        marks, asked = sorted(state.session.bookmarks.items()), state.prompt.value
        letters = "   ".join(f"{letter} {mark.note}".strip() for letter, mark in marks)
        is_there = state.prompt is Prompt.GO_TO_MARK
        return text([Said(f" {asked}: {letters}" if is_there else f" {asked}")])
    shown = tuple(said for _, said in _shown_hints(state))
    between = BETWEEN_KEYS if state.hint else BETWEEN

    def lines(width: int, height: int) -> list[Said]:
        return [Said(f" {clip(joined(shown, width - 2, between), width - 1)}")]

    return TextPicture(shown, lines)
