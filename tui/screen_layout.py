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
    find_tab,
    format_progress,
    head,
    make_tab_bar,
    make_tour_picture,
)
from fusetui.tui.drawing.details import details_height
from fusetui.tui.drawing.picture import Said, Stack, TextPicture, text
from fusetui.tui.drawing.schemes import Glyphs, choose_glyphs
from fusetui.tui.layout.memory import MEMORY, MemorySide
from fusetui.tui.pages.hang import format_hang_head
from fusetui.tui.pages.memory import format_memory_head
from fusetui.tui.pages.overlays import OVERLAYS, make_hits_picture
from fusetui.tui.pages.page import Page, Pane
from fusetui.tui.pages.timeline import LETTERS
from fusetui.tui.registry import BY_ACTION, BY_NAME, PAGES, open_page, page_of
from fusetui.tui.state import screen
from fusetui.tui.state.action import (
    action_applies,
    format_first_keys,
    format_hint,
    format_hints,
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
    """Return the panes of the whole screen, from its first line to its last. On a
    screen that is too small they only say so."""
    problem = screen.explain_small_screen(state.size)
    if problem:
        return _make_sentence_panes(problem, state.size)
    size = screen.page_size(state)
    search_panes = _make_search_panes(state, size)
    page_lines = size.height - sum(pane.height for pane in search_panes)
    page = page_of(state)
    page_panes = page.show(state, size) if page.has(state) else ()
    return [
        _make_tabs_pane(state),
        Pane(screen.head_height(state), _make_head(state)),
        *fit_panes(page_panes, page_lines),
        *search_panes,
        *_make_tour_panes(state, screen.tour_lines(state)),
        Pane(1, _make_hints_picture(state), _click_hint),
    ]


def _make_sentence_panes(sentence: str, size: Size) -> list[Pane]:
    """Return panes that fill the screen with one sentence, wrapped, and blank lines
    below it."""
    text_width = max(1, size.width - 1)
    lines = [Said(line) for line in wrap(sentence, text_width)]
    pane = Pane(len(lines), text(lines))
    return list(fit_panes([pane], size.height))


class ShownHint(NamedTuple):
    """What stands on the last line, and the hint that it is of; "" for a sentence."""

    hint: str
    text: str


def _click_hint(state: State, x: int, y: int) -> Outcome:
    """Carry out a click on the last line: a click on a hint does what its key does. Of
    a hint that names two keys, the nearer one counts."""
    if state.prompt is not None or state.reading is not None:
        return state
    between_cells = len(BETWEEN_KEYS if state.hint else BETWEEN_HINTS)
    begin_cell = 1
    for shown in _list_shown_hints(state):
        end_cell = begin_cell + len(shown.text)
        is_first = begin_cell == 1
        if not is_first and end_cell > state.size.width - 1:
            return state  # this one did not fit any more
        if shown.hint and begin_cell <= x < end_cell:
            action = BY_ACTION[_find_action_at(shown, x - begin_cell)]
            return perform(action, state) if action_applies(action, state) else state
        begin_cell = end_cell + between_cells
    return state


def _find_action_at(shown: ShownHint, x: int) -> str:
    """Return the name of the action that cell `x` of a hint is about.

    In the hint `w/s zoom`, cells up to the slash are about `w`, all others about `s`.
    Right of all keys, the last one counts.
    """
    action_names = shown.hint.partition(" ")[0].split("/")
    keys_text_of_hint = shown.text.partition(" ")[0]
    slashes_before = keys_text_of_hint[1:x].count("/")
    return action_names[min(slashes_before, len(action_names) - 1)]


def _list_shown_hints(state: State) -> list[ShownHint]:
    """Return the hints on the last line with their texts: a message and its keys, else
    the keys of the page. Actions without keys are left out."""
    shown = [ShownHint("", state.hint)]
    for hint in state.hint_keys if state.hint else _list_page_hints(state):
        shown.append(ShownHint(hint, format_hint(hint, state)))
    return [entry for entry in shown if entry.text]


def _list_page_hints(state: State) -> list[str]:
    """Return the hints of the page in front, in their short form on a narrow screen.
    While a trace is read, the first one says how to stop that."""
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


def fit_panes(panes: Iterable[Pane], lines: int) -> Iterator[Pane]:
    """Yield panes that take exactly `lines` lines: the last ones are cut, or blank
    lines are added."""
    for pane in panes:
        height = max(0, min(pane.height, lines))
        lines -= height
        yield replace(pane, height=height)
    yield Pane(lines, text([]))


def overlay_panes(state: State) -> list[Pane]:
    """Return the panes of the overlay, from its first line to its last; none where no
    overlay is open."""
    if not state.overlay:
        return []
    problem = screen.explain_small_screen(state.size)
    if problem:
        size = screen.overlay_size(state)
        width = size.width - screen.BOX_CELLS
        return _make_sentence_panes(problem, replace(size, width=width))
    tour = _make_tour_panes(state, screen.overlay_tour_lines(state))
    return [*OVERLAYS.show(state, screen.overlay_text_size(state)), *tour]


def make_overlay_hint(state: State) -> Stack:
    """Return the last line of the screen while an overlay is open: a message, if there
    is one. Messages with keys are left out, because these keys belong to the page."""
    is_of_page = not state.hint or bool(state.hint_keys)
    sentence = text([]) if is_of_page else _make_hints_picture(state)
    return Stack([(1, sentence)])


def stack(panes: Sequence[Pane]) -> Stack:
    """Return panes as one picture, one below the other."""
    return Stack([(pane.height, pane.picture) for pane in panes])


def moused(state: State, y: int, done: Click | Turn | Drag) -> Outcome:
    """Return the state after the mouse did something on line `y` of the screen or of
    the overlay. A click also cancels a prompt."""
    if isinstance(done, Click) and state.prompt:
        state = replace(state, prompt=None)
    for pane in overlay_panes(state) or panes(state):
        if y < pane.height:
            return _handle_mouse_in_pane(state, pane, y, done)
        y -= pane.height
    return state


def _handle_mouse_in_pane(
    state: State, pane: Pane, y: int, done: Click | Turn | Drag
) -> Outcome:
    """Return the state after the mouse did something on line `y` of a pane. A pane that
    does not handle it leaves the state as it is."""
    match done:
        case Click(x) if pane.pointed:
            return pane.pointed(state, x, y)
        case Turn() if pane.wheeled:
            return pane.wheeled(state, done)
        case Drag() if pane.dragged:
            return pane.dragged(state, done)
    return state


def _make_search_panes(state: State, size: Size) -> list[Pane]:
    """Return the pane with what the typed search has found; none while no search is
    typed."""
    if not state.is_searching:
        return []
    height = min(details_height(size.height), size.height)
    return [
        Pane(height, make_hits_picture(state.found, choose_glyphs(state.ascii_only)))
    ]


def _make_tabs_pane(state: State) -> Pane:
    """Return the bar with the tabs of the pages. A click on a tab brings its page to
    the front."""
    has_memory = _has_memory(state)
    tabs = tuple(
        _make_tab(page, state) for page in PAGES if _is_listed(page, state, has_memory)
    )

    def pointed(state: State, x: int, y: int) -> Outcome:
        name = find_tab(tabs, x, state.size.width)
        return open_page(BY_NAME[name], state) if name and state.is_open else state

    return Pane(screen.tabs_height(state.size), make_tab_bar(tabs), pointed)


def _make_tab(page: Page, state: State) -> Tab:
    """Return the tab of a page: its key, its titles, and whether it is in front or
    cannot be shown."""
    return Tab(
        name=page.name,
        key=format_first_keys(page.name, state),
        title=page.title,
        short=page.short or page.title,
        is_here=page.name == state.page,
        is_missing=bool(page.why_not(state)),
    )


def _has_memory(state: State) -> bool:
    """Return whether there is anything for the memory page: a snapshot, or memory
    counters in the active trace."""
    if state.memory is not None:
        return True
    counters = state.side.counters if state.sides else ()
    return any(curve.counter.group.startswith(MEMORY) for curve in counters)


def _is_listed(page: Page, state: State, has_memory: bool) -> bool:
    """Return whether a page has a tab.

    Memory and hang have one only where there is something to show. Ranks give way to
    the hang page where no job of traces is open.
    """
    if page.name == MEMORY:
        return has_memory
    if page.name == HANG:
        return state.hang is not None
    if page.name == RANKS:
        return state.hang is None or bool(state.job.paths)
    return True


def _make_head(state: State) -> TextPicture:
    """Return the head of the screen: the progress while something is read, else one
    line for everything that is open."""
    if state.reading is not None:
        glyphs = choose_glyphs(state.ascii_only)
        return TextPicture(
            state.reading, partial(_draw_reading_line, state.reading, glyphs)
        )
    if state.memory and not state.sides:
        snapshots = state.memory.sides
        return TextPicture(snapshots, partial(_draw_snapshot_lines, snapshots))
    if state.hang and not state.sides:
        title = _make_title(format_hang_head(state.hang))
        return TextPicture(state.hang.grid, lambda width, height: [title])
    return _make_sides_head(state)


def _draw_reading_line(
    reading: Reading, glyphs: Glyphs, width: int, height: int
) -> list[Said]:
    """Return the line that says how far reading is."""
    return [Said(f" {format_progress(reading, width - 2, glyphs)}")]


def _draw_snapshot_lines(
    snapshots: Sequence[MemorySide], width: int, height: int
) -> list[Said]:
    """Return a line for each open memory snapshot."""
    return [
        _make_title(format_memory_head(snapshot, width - 2)) for snapshot in snapshots
    ]


def _make_sides_head(state: State) -> TextPicture:
    """Return a line for each trace that the page is about, with its letter if there are
    two. A replay that is shown gets a line too."""
    sides = {index: state.sides[index] for index in state.told_sides}
    second_timeline = state.second
    ellipsis = choose_glyphs(state.ascii_only).ellipsis
    has_letters = len(state.sides) == 2

    def lines(width: int, height: int) -> list[Said]:
        shown = []
        for index, side in sides.items():
            letter = f"{LETTERS[index]} " if has_letters else ""
            about = head(side, width - 4)
            shown.append(_make_title(f"{letter}{about}"))
        if second_timeline:
            sentence = clip(second_timeline.said, width - 2, ellipsis)
            shown.append(Said(f" {sentence}", "warning"))
        return shown

    return TextPicture((*sides.items(), second_timeline), lines)


def _make_title(line: str) -> Said:
    """Return a line in the style of a title."""
    return Said(f" {line}", "title")


def _make_tour_panes(state: State, lines: int) -> list[Pane]:
    """Return the pane with the current step of the guided tour, `lines` high; none
    outside of the tour."""
    if state.tour is None:
        return []
    step = STEPS[state.tour]
    title = f"{state.tour + 1} of {len(STEPS)}: {step.title}"
    hints = ("skip next" if state.is_tour_step_done else "skip skip", "back back")
    keys = format_hints(hints, state, BETWEEN_HINTS)
    if state.is_tour_step_done:
        keys = f"done: {keys}"
    rule = choose_glyphs(state.ascii_only).rule
    return [
        Pane(lines, make_tour_picture(title, with_keys(step.text, state), keys, rule))
    ]


def _make_hints_picture(state: State) -> TextPicture:
    """Return the last line of the screen: the question for a letter, a message, or what
    keys do now."""
    if state.prompt is not None and state.prompt.is_letter:
        return text([Said(f" {_format_letter_question(state, state.prompt)}")])
    texts = tuple(shown.text for shown in _list_shown_hints(state))
    between = BETWEEN_KEYS if state.hint else BETWEEN_HINTS

    def lines(width: int, height: int) -> list[Said]:
        line = joined(texts, width - 2, between)
        return [Said(f" {clip(line, width - 1)}")]

    return TextPicture(texts, lines)


def _format_letter_question(state: State, prompt: Prompt) -> str:
    """Return the question for a letter. To go to a mark, it lists the marks with their
    notes."""
    question: str = prompt.value
    if prompt is not Prompt.GO_TO_MARK:
        return question
    marks = []
    for letter, mark in sorted(state.session.bookmarks.items()):
        marks.append(f"{letter} {mark.note}".strip())
    return f"{question}: {'   '.join(marks)}"
