"""The whole screen as panes: bar of pages, heading, page and hints; and the target of a
click."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from textwrap import wrap
from typing import NamedTuple

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
from fusetui.tui.drawing.schemes import Glyphs, glyphs_for
from fusetui.tui.layout.memory import MEMORY, MemorySide
from fusetui.tui.pages.hang import hang_head
from fusetui.tui.pages.memory import memory_head
from fusetui.tui.pages.overlays import OVERLAYS, found_picture
from fusetui.tui.pages.page import Page, Pane
from fusetui.tui.pages.timeline import LETTERS
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
from fusetui.tui.state.state import (
    HANG,
    RANKS,
    Outcome,
    Prompt,
    Reading,
    Size,
    State,
)
from fusetui.tui.state.tour import STEPS

BETWEEN_HINTS = "  "
BETWEEN_KEYS = "   "  # after a sentence, whose keys follow
PALETTE_HINT = "palette palette"
MIN_CELLS_FOR_ALL_HINTS = 100  # of a screen: see Page.narrow_hints
PALETTE_AFTER = 8  # hints of a page: on a narrow screen they are more useful
STOP_HINT = "stop stop and keep what was read"


def panes(state: State) -> list[Pane]:
    """From the first line of the screen to the last."""
    problem = screen.too_small(state.size)
    if problem:
        return _sentence_panes(problem, state.size)
    size = screen.body(state)
    search_panes = _search_panes(state, size)
    page_lines = size.height - sum(pane.height for pane in search_panes)
    page = page_of(state)
    page_panes = page.show(state, size) if page.has(state) else ()
    return [
        _tabs(state),
        Pane(screen.head_height(state), _head(state)),
        *exactly(page_panes, page_lines),
        *search_panes,
        *_tour(state, screen.tour_lines(state)),
        Pane(1, _hints(state), _hint_pointed),
    ]


def _sentence_panes(sentence: str, size: Size) -> list[Pane]:
    """A sentence alone on so many cells and lines, and blank lines below it."""
    text_width = max(1, size.width - 1)
    lines = [Said(line) for line in wrap(sentence, text_width)]
    pane = Pane(len(lines), text(lines))
    return list(exactly([pane], size.height))


class ShownHint(NamedTuple):
    """What stands on the last line, and the hint that it is of; "" for a sentence."""

    hint: str
    text: str


def _hint_pointed(state: State, x: int, y: int) -> Outcome:
    """A click on a hint does what its first key does; where two are named, the nearer
    one."""
    if state.prompt is not None or state.reading is not None:
        return state
    between = len(BETWEEN_KEYS if state.hint else BETWEEN_HINTS)
    begin = 1
    for shown in _shown_hints(state):
        end = begin + len(shown.text)
        is_first = begin == 1
        if not is_first and end > state.size.width - 1:
            return state  # this one did not fit any more
        if shown.hint and begin <= x < end:
            action = BY_ACTION[_name_at(shown, x - begin)]
            return perform(action, state) if applies(action, state) else state
        begin = end + between
    return state


def _name_at(shown: ShownHint, x: int) -> str:
    """The action that a cell of a hint is about: `zoom-out` right of the `/` in `w/s
    zoom`; right of all keys the last one."""
    names = shown.hint.partition(" ")[0].split("/")
    keys = shown.text.partition(" ")[0]
    slashes_before = keys[1:x].count("/")
    return names[min(slashes_before, len(names) - 1)]


def _shown_hints(state: State) -> list[ShownHint]:
    """The hints that stand on the last line now, and their texts: a sentence and its
    keys, else what keys do on the page. Those of actions without keys are left out."""
    shown = [ShownHint("", state.hint)]
    for hint in state.hint_keys if state.hint else _hints_of_page(state):
        shown.append(ShownHint(hint, hint_text(hint, state)))
    return [entry for entry in shown if entry.text]


def _hints_of_page(state: State) -> list[str]:
    """What the keys of the page in front do, first how to stop reading while there is
    anything to keep."""
    page = page_of(state)
    hints = ["quit quit"]
    if page.has(state):
        is_narrow = state.size.width < MIN_CELLS_FOR_ALL_HINTS
        shown = page.narrow_hints if is_narrow and page.narrow_hints else page.hints
        hints = shown.split("; ")
    if PALETTE_HINT not in hints:
        hints.insert(PALETTE_AFTER, PALETTE_HINT)
    if state.reading is not None and not state.reading.is_whole:
        hints.insert(0, STOP_HINT)
    return hints


def exactly(panes: Iterable[Pane], lines: int) -> Iterator[Pane]:
    """Panes on this many lines: cut if there are fewer, with blank lines below if
    more."""
    for pane in panes:
        height = max(0, min(pane.height, lines))
        lines -= height
        yield replace(pane, height=height)
    yield Pane(lines, text([]))


def overlay_panes(state: State) -> list[Pane]:
    """What lies over the page, from its first line to its last; nothing where nothing
    does."""
    if not state.overlay:
        return []
    problem = screen.too_small(state.size)
    if problem:
        size = screen.overlay_size(state)
        width = size.width - screen.BOX_CELLS
        return _sentence_panes(problem, replace(size, width=width))
    tour = _tour(state, screen.overlay_tour_lines(state))
    return [*OVERLAYS.show(state, screen.overlay_body(state)), *tour]


def overlay_hint(state: State) -> Stack:
    """The last line of the screen below what lies over the page: a sentence, if there
    is one. One with keys is of the page, where these act."""
    is_of_page = not state.hint or bool(state.hint_keys)
    sentence = text([]) if is_of_page else _hints(state)
    return Stack([(1, sentence)])


def stack(panes: Sequence[Pane]) -> Stack:
    """Panes as one picture."""
    return Stack([(pane.height, pane.picture) for pane in panes])


def moused(state: State, y: int, done: Click | Turn | Drag) -> Outcome:
    """What the mouse did on a line of the screen or of the overlay; a click cancels a
    prompt."""
    if isinstance(done, Click) and state.prompt:
        state = replace(state, prompt=None)
    for pane in overlay_panes(state) or panes(state):
        if y < pane.height:
            return _moused_in(state, pane, y, done)
        y -= pane.height
    return state


def _moused_in(state: State, pane: Pane, y: int, done: Click | Turn | Drag) -> Outcome:
    """What the mouse did on line `y` of a pane."""
    match done:
        case Click(x) if pane.pointed:
            return pane.pointed(state, x, y)
        case Turn() if pane.wheeled:
            return pane.wheeled(state, done)
        case Drag() if pane.dragged:
            return pane.dragged(state, done)
    return state


def _search_panes(state: State, size: Size) -> list[Pane]:
    """What the search that is typed finds; nothing while none is."""
    if not state.is_searching:
        return []
    height = min(details_height(size.height), size.height)
    return [Pane(height, found_picture(state.found, glyphs_for(state.ascii_only)))]


def _tabs(state: State) -> Pane:
    """The bar of pages; a click brings one to the front."""
    has_memory = _has_memory(state)
    tabs = tuple(
        _tab(page, state) for page in PAGES if _is_listed(page, state, has_memory)
    )

    def pointed(state: State, x: int, y: int) -> Outcome:
        name = tab_at(tabs, x, state.size.width)
        return turned_to(BY_NAME[name], state) if name and state.is_open else state

    return Pane(screen.tabs_height(state.size), tabs_picture(tabs), pointed)


def _tab(page: Page, state: State) -> Tab:
    """The tab of a page: its key and its titles."""
    return Tab(
        name=page.name,
        key=keys_text(page.name, state),
        title=page.title,
        short=page.short or page.title,
        is_here=page.name == state.page,
        is_missing=bool(page.why_not(state)),
    )


def _has_memory(state: State) -> bool:
    """Whether a snapshot is open, or the active trace has memory counters."""
    if state.memory is not None:
        return True
    counters = state.side.counters if state.sides else ()
    return any(curve.counter.group.startswith(MEMORY) for curve in counters)


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
    if state.reading is not None:
        glyphs = glyphs_for(state.ascii_only)
        return TextPicture(
            state.reading, partial(_reading_lines, state.reading, glyphs)
        )
    if state.memory and not state.sides:
        snapshots = state.memory.sides
        return TextPicture(snapshots, partial(_snapshot_lines, snapshots))
    if state.hang and not state.sides:
        title = _title(hang_head(state.hang))
        return TextPicture(state.hang.grid, lambda width, height: [title])
    return _sides_head(state)


def _reading_lines(
    reading: Reading, glyphs: Glyphs, width: int, height: int
) -> list[Said]:
    """How far reading is."""
    return [Said(f" {reading_line(reading, width - 2, glyphs)}")]


def _snapshot_lines(
    snapshots: Sequence[MemorySide], width: int, height: int
) -> list[Said]:
    """A line for each snapshot."""
    return [_title(memory_head(snapshot, width - 2)) for snapshot in snapshots]


def _sides_head(state: State) -> TextPicture:
    """A line for each side that the page is about, of two with its letter, and one for
    a replay that is shown."""
    sides = {index: state.sides[index] for index in state.told_sides}
    second = state.second
    ellipsis = glyphs_for(state.ascii_only).ellipsis
    has_letters = len(state.sides) == 2

    def lines(width: int, height: int) -> list[Said]:
        shown = []
        for index, side in sides.items():
            letter = f"{LETTERS[index]} " if has_letters else ""
            about = head(side, width - 4)
            shown.append(_title(f"{letter}{about}"))
        if second:
            sentence = clip(second.said, width - 2, ellipsis)
            shown.append(Said(f" {sentence}", "warning"))
        return shown

    return TextPicture((*sides.items(), second), lines)


def _title(line: str) -> Said:
    return Said(f" {line}", "title")


def _tour(state: State, lines: int) -> list[Pane]:
    """The step of the guided tour on so many lines; nothing outside of it."""
    if state.tour is None:
        return []
    step = STEPS[state.tour]
    title = f"{state.tour + 1} of {len(STEPS)}: {step.title}"
    keys = hints_text(("skip skip", "back back"), state, BETWEEN_HINTS)
    rule = glyphs_for(state.ascii_only).rule
    return [Pane(lines, tour_picture(title, with_keys(step.text, state), keys, rule))]


def _hints(state: State) -> TextPicture:
    """The last line: which letter is asked for, else what keys do now."""
    if state.prompt is not None and state.prompt.is_letter:
        return text([Said(f" {_letter_question(state, state.prompt)}")])
    texts = tuple(shown.text for shown in _shown_hints(state))
    between = BETWEEN_KEYS if state.hint else BETWEEN_HINTS

    def lines(width: int, height: int) -> list[Said]:
        line = joined(texts, width - 2, between)
        return [Said(f" {clip(line, width - 1)}")]

    return TextPicture(texts, lines)


def _letter_question(state: State, prompt: Prompt) -> str:
    """What letter is asked for; where one goes to a mark, the marks with their notes."""
    question: str = prompt.value
    if prompt is not Prompt.GO_TO_MARK:
        return question
    marks = []
    for letter, mark in sorted(state.session.bookmarks.items()):
        marks.append(f"{letter} {mark.note}".strip())
    return f"{question}: {'   '.join(marks)}"
