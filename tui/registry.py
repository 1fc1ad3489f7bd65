"""All pages and all actions. A new page is one line here, and so is a new action. The
registry feeds the keys, the help, the palette and the reference. Where two actions have
the same key, the first that applies runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from fusetui.tui.layout.view import Side
from fusetui.tui.pages import (
    answer,
    folding,
    hang,
    kernels,
    memory,
    overlays,
    ranks,
    timeline,
)
from fusetui.tui.pages.diff import DiffPage
from fusetui.tui.pages.flame import FlamePage
from fusetui.tui.pages.folding import AnyTree, TreeListPage
from fusetui.tui.pages.overlays import OVERLAYS
from fusetui.tui.pages.page import LISTS, ListPage, Page, list_actions, what_was_copied
from fusetui.tui.pages.ranks import RanksPage
from fusetui.tui.pages.timeline import TimelinePage
from fusetui.tui.pages.tree import MODULES, TREE
from fusetui.tui.pages.why import WhyPage
from fusetui.tui.state import (
    commands,
    jumping,
    moving,
    reading,
    replays,
    search,
    tour,
)
from fusetui.tui.state.action import (
    EVERYWHERE,
    Action,
    action,
    all_keys_text,
    anything_open,
    anywhere,
    applies,
    chosen,
    keys_of,
    keys_text,
    nothing,
    with_keys,
)
from fusetui.tui.state.comparison import Second
from fusetui.tui.state.screen import body, overlay_body, tabs_height, tour_lines
from fusetui.tui.state.state import (
    OVERLAY,
    PAIRED,
    CopyText,
    Help,
    HitList,
    Order,
    Outcome,
    Replayed,
    ShownCommand,
    State,
    overlaid,
    told,
)
from fusetui.tui.state.words import screen_words

PAGES: tuple[Page, ...] = (
    *(TimelinePage(), TREE, kernels.PAGE, DiffPage(), WhyPage()),
    *(MODULES, hang.PAGE, RanksPage(), FlamePage(), memory.PAGE),
)
BY_NAME = {page.name: page for page in PAGES}
SECTIONS = (
    *(moving.SECTION, answer.SECTION, LISTS, folding.SECTION),
    *(action.section for page in PAGES for action in page.actions),
    *(EVERYWHERE, overlays.SECTION, tour.SECTION),
)
"""The sections of the help, in this order."""


def page_of(state: State) -> Page:
    return BY_NAME[state.page]


def _brings(page: Page) -> Callable[[State], bool]:
    """Where the key of a page applies, also over what lies over the page in front."""
    return page.takes_key


def list_of(state: State) -> ListPage | None:
    """The list that receives the keys: that over the page, else that of the page."""
    if state.overlay is not None:
        return OVERLAYS
    page = page_of(state)
    return page if isinstance(page, ListPage) and page.has(state) else None


def tree_of(state: State) -> AnyTree | None:
    """The tree that receives the keys."""
    listing = list_of(state)
    return listing if isinstance(listing, TreeListPage) else None


def turned_to(page: Page, state: State) -> Outcome:
    """Shows another page, unless something that it needs is missing."""
    if missing := page.why_not(state):
        return told(state, missing)
    state = replace(state, overlay=None)
    asked = page.ask(state)
    if asked is not None:
        return asked
    return page.open(replace(state, page=page.name, hint=""))


def other_side(state: State) -> Outcome:
    """The page about the other one of two traces."""
    now = moving.other_side(state)
    return turned_to(page_of(now), now)


def with_table(state: State) -> Page:
    """What `y` and `:save` are about: a list of hits over the page, else the page."""
    is_over = isinstance(state.overlay, HitList | ShownCommand)
    return OVERLAYS if is_over else page_of(state)


def copy(state: State) -> Outcome:
    """What the cursor is on goes into the clipboard."""
    page = with_table(state)
    text = page.copied(state)
    noun = "name" if isinstance(state.overlay, ShownCommand) else page.copies
    now = told(state, what_was_copied(text, noun))
    return (now, CopyText(text)) if text else now


def details(state: State) -> State:
    """Everything about what the page describes; in the answer, about what its row leads
    to."""
    described = answer.follow(state) if answer.is_inside(state) else state
    about = page_of(described).described(described)
    if isinstance(about, str):
        return told(state, about)
    return overlaid(state, about)


def source_asked(state: State) -> Outcome:
    """The source of the kernel or op that the page describes."""
    from fusetui.tui.state import source  # rarely needed

    there = answer.follow(state) if answer.is_inside(state) else state
    return source.asked(state, page_of(there).described(there))


def help_or_back(state: State) -> Outcome:
    """All keys, those that act here first; from them back to what they were asked
    over."""
    overlay = state.overlay
    if isinstance(overlay, Help):
        return overlays.close(state)
    keys = Help(
        sections=(*help_sections(state),),
        meanings=screen_words(),
        before=overlay,
        list_before=state.lists.get(OVERLAY),
    )
    return overlaid(state, keys)


def asks(effect: Order) -> Callable[[State], Outcome]:
    return lambda state: (state, effect)


_anytime, _opened = partial(action, needs=nothing), partial(action, needs=anything_open)
_ANYWHERE = "from anywhere; exit code 130"

ACTIONS: tuple[Action, ...] = (
    *overlays.ACTIONS,
    *tour.ACTIONS,  # before what has the same keys outside of it
    reading.STOP,
    *replays.SECOND,
    *answer.ACTIONS,
    *moving.ACTIONS,
    *moving.ARRANGING,
    timeline.RESET,
    *timeline.SCROLLING,
    *moving.MARKING,
    *(action for page in PAGES for action in page.actions),
    *jumping.ACTIONS,
    *replays.ACTIONS,
    *folding.tree_actions(tree_of),
    *list_actions(list_of),
    *(
        _opened(
            page.name,
            page.title,
            page.key,
            page.help,
            partial(turned_to, page),
            where=_brings(page),
        )
        for page in PAGES
    ),
    *search.ACTIONS,
    _opened(
        name="other-trace",
        title="Other trace",
        written="tab shift+tab",
        help="of two, on pages about one",
        run=other_side,
        where=lambda s: len(s.sides) == 2 and not s.overlay and s.page not in PAIRED,
    ),
    _opened("details", "All details", "i", "of the slice, or of the range", details),
    _opened(
        "source",
        "Source",
        "V",
        "of a compiled kernel: its lines of Python, its graph, the generated code",
        source_asked,
    ),
    _opened(
        "copy",
        "Copy",
        "y",
        "a slice, or a row of a table",
        copy,
        where=lambda state: (
            commands.on_page_or_hits(state) or isinstance(state.overlay, ShownCommand)
        ),
    ),
    *commands.ACTIONS,
    _opened(
        name="shell",
        title="The same in a shell",
        written="",
        help="the command line of what is on the screen",
        run=commands.shell,
        where=commands.on_page_or_hits,
    ),
    _opened(
        name="save",
        title="Save this table",
        written="",
        help="in a file of any format",
        run=lambda state: commands.asked(
            state, typed=f"save {with_table(state).table_name(state)}.csv"
        ),
        where=commands.on_page_or_hits,
    ),
    _opened(
        name="picture",
        title="Save picture",
        written="",
        help="of this page: SVG, PNG or HTML",
        run=lambda state: commands.asked(state, typed=f"picture {state.page}.svg"),
    ),
    reading.CHOOSE,
    moving.LINK,
    reading.SWAP,
    _anytime(
        "help",
        "Keys",
        "?",
        "this page",
        help_or_back,
        where=anywhere,
    ),
    _anytime(
        "palette",
        "Palette",
        "ctrl+p",
        "every command by its name, also those without a key",
        asks(Order.PALETTE),
        where=anywhere,
    ),
    _anytime(
        "suspend",
        "Suspend",
        "ctrl+z",
        "back to the shell; fg returns",
        asks(Order.SUSPEND),
    ),
    _anytime("quit", "Quit", "q", "an open overlay is closed first", asks(Order.QUIT)),
    _anytime(
        "interrupt",
        "Quit at once",
        "ctrl+c",
        _ANYWHERE,
        asks(Order.INTERRUPT),
        always=True,
    ),
)
BY_ACTION = {action.name: action for action in ACTIONS}
ALL_KEYS = "{help} shows all keys"
MAX_USES_NAMED = 2  # of a key that does nothing where it was pressed
_PAGE_OF_SECTION = {moving.SECTION: TimelinePage.name} | {
    action.section: page.name for page in PAGES for action in page.actions
}
"""The page on which the keys of a section of the help act."""


def action_for(key: str, state: State) -> Action | None:
    return chosen(ACTIONS, key, state)


def unused(key: str, written: str, state: State) -> State:
    """Says that a key does nothing here, and where it does something; `written`: how a
    person writes the key."""
    here = "here"
    if state.overlay is None:
        page_key = keys_text(state.page, state)
        here = f"on page {page_key}" if page_key else "on this page"
    uses = []
    for candidate in ACTIONS:
        if key in keys_of(candidate, state):
            uses.append(_use(candidate, state))
    if not uses:
        return told(state, with_keys(f"{written} does nothing; {ALL_KEYS}", state))
    first_uses = list(dict.fromkeys(uses))[:MAX_USES_NAMED]
    return told(state, f"{written} does nothing {here}; {'; '.join(first_uses)}")


def _use(entry: Action, state: State) -> str:
    """Where an action acts, and what it does: `in the timeline, page 1: zoom in`."""
    title = entry.title[:1].lower() + entry.title[1:]
    if entry.section == EVERYWHERE:
        return f"{title}: {entry.help}"
    where = entry.section[:1].lower() + entry.section[1:]
    page = _PAGE_OF_SECTION.get(entry.section)
    page_key = keys_text(page, state) if page else ""
    if page_key and page != state.page:
        where += f", page {page_key}"
    return f"{where}: {title}"


def always(key: str, state: State) -> Action | None:
    """What a key does wherever a person is, even in a line of text."""
    return chosen((action for action in ACTIONS if action.always), key, state)


def by_section() -> Iterator[tuple[str, list[Action]]]:
    """The actions of each section of the help, in the order of SECTIONS."""
    for section in dict.fromkeys(SECTIONS):
        yield section, [action for action in ACTIONS if action.section == section]


def help_sections(
    state: State,
) -> Iterator[tuple[str, tuple[tuple[str, str, str], ...]]]:
    """All sections with the keys, titles and helps of their actions, first those whose
    keys act on the page, or in what lies over it; what needs a replay that is drawn
    after what needs none."""
    of_page = {action.section for action in page_of(state).actions}

    def rank(entry: tuple[str, list[Action]]) -> int:
        """The page itself, what else acts on it, what acts everywhere, all others."""
        section, actions = entry
        acting = sum(applies(action, state) for action in actions)
        acts_here = 2 * acting > len(actions)
        if section == EVERYWHERE:
            return 2
        if section in of_page and acts_here:
            return 0
        return 1 if acts_here else 3

    for section, actions in sorted(by_section(), key=rank):
        texts = []
        for entry in sorted(actions, key=lambda item: item in replays.SECOND):
            keys = all_keys_text(entry, state)
            texts.append((keys, entry.title, entry.help))
        yield section, tuple(texts)


def _as_asked(outcome: Outcome) -> Outcome:
    """Another trace is open: the ranks of its job, or the wait that it was opened
    for."""
    if isinstance(outcome, tuple):  # two traces, which are compared
        now, compare = outcome
        if ranks.are_wanted(now):
            return ranks.arrived(replace(now, comparison=None))
        return ranks.arrived(now), compare
    if outcome.job.comes_first:
        job = replace(outcome.job, comes_first=False)
        now = replace(outcome, job=job)
        return turned_to(BY_NAME[RanksPage.name], now)
    return ranks.arrived(outcome)


def settled(before: State, state: State) -> State:
    """After every change: the guided tour goes on, an answer that waited for room is
    shown, and what the cursor is on scrolls into view."""
    state = tour.followed(before, state)
    if state.arrived and state.overlay is None and state.prompt is None:
        state = _with_arrived(replace(state, arrived=None), state.arrived)
    if state.overlay is not None:
        return OVERLAYS.scroll(before, state, overlay_body(state))
    page = page_of(state)
    return page.scroll(before, state, body(state)) if page.has(state) else state


def _with_arrived(state: State, answer: Replayed | Second) -> State:
    """An answer of a replay over the page, or as a second timeline."""
    if isinstance(answer, Replayed):
        return overlaid(state, answer)
    return replays.seen(state, answer)


def arrived(state: State, sides: tuple[Side, ...]) -> Outcome:
    """Traces were read: more of those that are shown, or others."""
    if state.reading is None or not state.reading.shown:
        # the page is not there yet: what else the screen will have
        line_of_hints = 1
        other_lines = tabs_height(state.size) + len(sides) + line_of_hints
        other_lines += tour_lines(state)
        size = replace(state.size, height=state.size.height - other_lines)
        lines = timeline.lanes_height(size, len(sides))
        return _as_asked(reading.opened(state, sides, lines))
    now = reading.replaced(state, sides)
    for page in PAGES:
        now = page.follow(state, now)
    return search.again(state, now)


def previewed(state: State, paths: Sequence[str], sides: tuple[Side, ...]) -> Outcome:
    """A part of the only trace is shown; the rest is still being read."""
    if paths is not state.wanted or state.reading is None:
        return state
    now = arrived(state, sides)
    assert isinstance(now, State)  # one side is compared with nothing
    return reading.progressed(now, shown=True)
