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
from fusetui.tui.pages.page import LISTS, ListPage, Page, describe_copy, list_actions
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
    action_applies,
    anywhere,
    chosen,
    format_all_keys,
    format_first_keys,
    keys_of,
    nothing,
    why_nothing_open,
    with_keys,
)
from fusetui.tui.state.comparison import Second
from fusetui.tui.state.screen import (
    overlay_text_size,
    page_size,
    tabs_height,
    tour_lines,
)
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
    open_overlay,
    told,
)
from fusetui.tui.state.words import divide_words

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
    """Return the page that is in front."""
    return BY_NAME[state.page]


def _page_condition(page: Page) -> Callable[[State], bool]:
    """Return the condition for the key of a page: whether it brings this page to the
    front. It also applies over an overlay."""
    return page.takes_key


def list_of(state: State) -> ListPage | None:
    """Return the list that receives the keys: an open overlay, else the list of the
    page in front. None where that page has no list or nothing to show."""
    if state.overlay is not None:
        return OVERLAYS
    page = page_of(state)
    return page if isinstance(page, ListPage) and page.has(state) else None


def tree_of(state: State) -> AnyTree | None:
    """Return the tree that receives the keys, or None where no tree does."""
    listing = list_of(state)
    return listing if isinstance(listing, TreeListPage) else None


def open_page(page: Page, state: State) -> Outcome:
    """Bring a page to the front. A message says what is missing where it cannot be
    shown. If it needs work that is not done yet, the work is started instead."""
    if missing := page.why_not(state):
        return told(state, missing)
    state = replace(state, overlay=None)
    pending_work = page.ask(state)
    if pending_work is not None:
        return pending_work
    return page.open(replace(state, page=page.name, hint=""))


def other_side(state: State) -> Outcome:
    """Show the same page about the other one of two traces."""
    switched_state = moving.other_side(state)
    return open_page(page_of(switched_state), switched_state)


def page_with_table(state: State) -> Page:
    """Return the page whose table is copied or saved: a list over the page, else the
    page in front."""
    is_over = isinstance(state.overlay, HitList | ShownCommand)
    return OVERLAYS if is_over else page_of(state)


def copy(state: State) -> Outcome:
    """Put what the cursor is on into the clipboard, and say what was copied. Where
    there is nothing, the clipboard stays as it is."""
    page = page_with_table(state)
    copied_text = page.copied(state)
    noun = "name" if isinstance(state.overlay, ShownCommand) else page.copies
    told_state = told(state, describe_copy(copied_text, noun))
    return (told_state, CopyText(copied_text)) if copied_text else told_state


def details(state: State) -> State:
    """Open all details of what the page describes. In the summary of the trace, they
    are about what its row leads to."""
    described = answer.follow(state) if answer.is_inside(state) else state
    overlay_or_reason = page_of(described).described(described)
    if isinstance(overlay_or_reason, str):
        return told(state, overlay_or_reason)
    return open_overlay(state, overlay_or_reason)


def show_source(state: State) -> Outcome:
    """Open the source code of the kernel or op that the page describes."""
    from fusetui.tui.state import source  # rarely needed

    followed_state = answer.follow(state) if answer.is_inside(state) else state
    return source.asked(
        state, page_of(followed_state).slice_with_source(followed_state)
    )


def toggle_help(state: State) -> Outcome:
    """Open the list of all keys, those of this page first, with the meanings of words
    on the screen. If it is open, return to what it was opened over."""
    overlay = state.overlay
    if isinstance(overlay, Help):
        return overlays.close(state)
    sections = tuple(help_sections(state))
    titles = [title for title, _ in sections]
    help_overlay = Help(
        sections=sections,
        sections_here=titles.index(EVERYWHERE),
        explained=divide_words(state.page),
        before=overlay,
        list_before=state.lists.get(OVERLAY),
    )
    return open_overlay(state, help_overlay)


def asks(effect: Order) -> Callable[[State], Outcome]:
    """Return the function of an action that changes nothing in the state and gives an
    order to the app, such as to quit."""
    return lambda state: (state, effect)


_anytime, _opened = (
    partial(action, needs=nothing),
    partial(action, needs=why_nothing_open),
)
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
    *folding.list_tree_actions(tree_of),
    *list_actions(list_of),
    *(
        _opened(
            page.name,
            page.title,
            page.key,
            page.help,
            partial(open_page, page),
            where=_page_condition(page),
        )
        for page in PAGES
    ),
    *search.ACTIONS,
    _opened(
        name="other-trace",
        title="Other trace",
        written="tab shift+tab",
        help="on pages that show only one of two",
        run=other_side,
        where=lambda s: len(s.sides) == 2 and not s.overlay and s.page not in PAIRED,
    ),
    _opened("details", "All details", "i", "of the slice, or of the range", details),
    _opened(
        "source",
        "Source",
        "V",
        "of a compiled kernel: Python lines, graph and generated code",
        show_source,
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
        help="the shell command that prints these figures",
        run=commands.shell,
        where=commands.on_page_or_hits,
    ),
    _opened(
        name="save",
        title="Save this table",
        written="",
        help="to a file, in any format",
        run=lambda state: commands.asked(
            state, typed=f"save {page_with_table(state).table_name(state)}.csv"
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
        toggle_help,
        where=anywhere,
    ),
    _anytime(
        "palette",
        "Palette",
        "ctrl+p",
        "all commands by name, including those without a key",
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
    """Return the action that a key has in this state, or None. The first action that
    applies is taken."""
    return chosen(ACTIONS, key, state)


def unused(key: str, written: str, state: State) -> State:
    """Return the state with a message that a key does nothing here, and where it does
    something. `written` is how a person writes the key."""
    where_text = "here"
    if state.overlay is None:
        page_key = format_first_keys(state.page, state)
        where_text = f"on page {page_key}" if page_key else "on this page"
    places = []
    for candidate in ACTIONS:
        if key in keys_of(candidate, state):
            places.append(_describe_use(candidate, state))
    if not places:
        return told(state, with_keys(f"{written} does nothing; {ALL_KEYS}", state))
    first_uses = list(dict.fromkeys(places))[:MAX_USES_NAMED]
    return told(state, f"{written} does nothing {where_text}; {'; '.join(first_uses)}")


def _describe_use(entry: Action, state: State) -> str:
    """Return where an action acts and what it does.

    in the timeline, page 1: zoom in
    """
    title = entry.title[:1].lower() + entry.title[1:]
    if entry.section == EVERYWHERE:
        return f"{title}: {entry.help}"
    where = entry.section[:1].lower() + entry.section[1:]
    page = _PAGE_OF_SECTION.get(entry.section)
    page_key = format_first_keys(page, state) if page else ""
    if page_key and page != state.page:
        where += f", page {page_key}"
    return f"{where}: {title}"


OF_ROW = ("diff-open", "details", "copy", "what-if", "source")
"""Actions that act on the row under the cursor of a list, beside those of all lists."""


def is_list_awaited(state: State) -> bool:
    """Return whether the page in front computes its list, with nothing over it."""
    if state.overlay is not None:
        return False
    page = page_of(state)
    return page.has(state) and page.awaits(state)


def waits_for_list(entry: Action, state: State) -> bool:
    """Return whether an action has to wait until the page in front has its list."""
    is_of_list = entry.section in (LISTS, folding.SECTION) or entry.name in OF_ROW
    return is_of_list and is_list_awaited(state)


def always(key: str, state: State) -> Action | None:
    """Return the action that a key has everywhere, also while a text is typed, or None."""
    return chosen((action for action in ACTIONS if action.always), key, state)


def by_section() -> Iterator[tuple[str, list[Action]]]:
    """Yield the title of each section of the help with its actions, in the order of
    SECTIONS."""
    for section in dict.fromkeys(SECTIONS):
        yield section, [action for action in ACTIONS if action.section == section]


def help_sections(
    state: State,
) -> Iterator[tuple[str, tuple[tuple[str, str, str], ...]]]:
    """Yield the sections of the help, each with (keys, title, help) for each action.

    Sections whose keys act on the page in front come first. Actions that need a replay
    on the screen come last in their section.
    """
    sections_of_page = {action.section for action in page_of(state).actions}

    def rank(section_and_actions: tuple[str, list[Action]]) -> int:
        """The page itself, what else acts on it, what acts everywhere, all others."""
        section, actions = section_and_actions
        if section == EVERYWHERE:
            return 2
        applying = [action for action in actions if action_applies(action, state)]
        do_most_apply = 2 * len(applying) > len(actions)
        if not do_most_apply:
            return 3
        return 0 if section in sections_of_page else 1

    def needs_replay(action: Action) -> bool:
        return action in replays.SECOND

    for section, actions in sorted(by_section(), key=rank):
        texts = []
        for listed in sorted(actions, key=needs_replay):
            keys = format_all_keys(listed, state)
            texts.append((keys, listed.title, listed.help))
        yield section, tuple(texts)


def _continue_after_open(outcome: Outcome) -> Outcome:
    """Return the state after a trace was opened, with what it was opened for.

    That is the comparison of ranks of its job, or the rank wait that is to be shown.
    Otherwise the timeline stays in front.
    """
    if isinstance(outcome, tuple):  # two traces, which are compared
        opened_state, compare = outcome
        if ranks.are_wanted(opened_state):
            return ranks.arrived(replace(opened_state, comparison=None))
        return ranks.arrived(opened_state), compare
    if outcome.job.comes_first:
        job = replace(outcome.job, comes_first=False)
        opened_state = replace(outcome, job=job)
        return open_page(BY_NAME[RanksPage.name], opened_state)
    return ranks.arrived(outcome)


def settle_state(before: State, state: State) -> State:
    """Return the state completed after a change; this runs after every change.

    The guided tour goes on, an answer of a replay that waited is shown, and lists
    scroll to their cursor.
    """
    state = tour.followed(before, state)
    if state.arrived and state.overlay is None and state.prompt is None:
        state = _show_replay_answer(replace(state, arrived=None), state.arrived)
    if state.overlay is not None:
        return OVERLAYS.scroll(before, state, overlay_text_size(state))
    page = page_of(state)
    return page.scroll(before, state, page_size(state)) if page.has(state) else state


def _show_replay_answer(state: State, answer: Replayed | Second) -> State:
    """Show the answer of a replay: a text over the page, or a second timeline below the
    recorded one."""
    if isinstance(answer, Replayed):
        return open_overlay(state, answer)
    return replays.seen(state, answer)


def arrived(state: State, sides: tuple[Side, ...]) -> Outcome:
    """Return the state after traces were read: new ones are opened, or a longer part
    replaces what is shown of them."""
    if state.reading is None or not state.reading.shown:
        # the page is not there yet: what else the screen will have
        line_of_hints = 1
        other_lines = tabs_height(state.size) + len(sides) + line_of_hints
        other_lines += tour_lines(state)
        size = replace(state.size, height=state.size.height - other_lines)
        lines = timeline.lanes_height(size, len(sides))
        return _continue_after_open(reading.opened(state, sides, lines))
    updated_state = reading.replaced(state, sides)
    for page in PAGES:
        updated_state = page.follow(state, updated_state)
    return search.again(state, updated_state)


def previewed(state: State, paths: Sequence[str], sides: tuple[Side, ...]) -> Outcome:
    """Show the part of a trace that is read so far, while the rest is being read. It is
    ignored once another trace is wanted."""
    if paths is not state.wanted or state.reading is None:
        return state
    preview_state = arrived(state, sides)
    assert isinstance(preview_state, State)  # one side is compared with nothing
    return reading.progressed(preview_state, shown=True)
