"""The state of the app: one State, from which everything on the screen is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from fusetui.analysis.questions.query import Pattern
from fusetui.trace.layout.steps import Steps
from fusetui.trace.model.arrays import Flags, Rows
from fusetui.trace.model.columns import Trace
from fusetui.tui.layout.answer import AnswerAt
from fusetui.tui.layout.flame import FlameView
from fusetui.tui.layout.kernel_table import KernelView
from fusetui.tui.layout.memory import MEMORY, MemoryShown, OverlayLines
from fusetui.tui.layout.op_tree import TreeView
from fusetui.tui.layout.search_hits import SearchHits
from fusetui.tui.layout.text_layout import SourceShown
from fusetui.tui.layout.view import GapAt, Side, View
from fusetui.tui.state.comparison import Comparison, Second
from fusetui.tui.state.offers import Offer, RankedJob
from fusetui.tui.state.session import Hits, Range, ViewSession
from fusetui.tui.state.words import WordsOfHelp

if TYPE_CHECKING:
    from fusetui.analysis.replay.path import Path
    from fusetui.analysis.replay.whatif import WhatIf
    from fusetui.trace.program.functions import Functions
    from fusetui.tui.layout.hang import HangShown

COPIED = "copied"  # how the hint about a copied text begins
TOGETHER = 2  # traces of one offer that are opened at once, side by side


OVERLAY = "overlay"  # the name of the overlay's list in `State.lists`


class Help(msgspec.Struct, frozen=True):
    """All keys: the title of each section, and of each action its keys, title and
    help; and words on the screen with their meanings. The first `sections_here` have
    the keys that act on the page. `words`: what is typed to narrow them. `before`: the
    overlay over which the keys were asked for, to which closing them leads back, and
    where its list was."""

    sections: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]
    sections_here: int = 0
    explained: WordsOfHelp = WordsOfHelp()
    words: str = ""
    before: Overlay | None = None
    list_before: ListState | None = None


class Details(msgspec.Struct, frozen=True, eq=False):
    """Everything about a slice (by row; `raw`: its JSON), of idle time, or of a range
    of time. `before`: sentences above it, such as the finding whose evidence it is, and
    `title` then says what stands there."""

    side: Side
    about: int | GapAt | Range
    raw: bool = False
    before: tuple[str, ...] = ()
    title: str = "everything about this slice"

    @property
    def is_slice(self) -> bool:
        """Whether the details are those of a slice, not of a gap or a range."""
        return isinstance(self.about, int)


class Chooser(msgspec.Struct, frozen=True):
    """The traces to choose from, with a line of summary for each; or programs.
    `before`: the first list, to which a list of programs leads back while nothing is
    open."""

    summaries: tuple[str, ...]
    programs: tuple[Offer, ...] = ()
    recent: tuple[Offer, ...] = ()  # traces, behind those of State.offers
    only_recent: bool = False  # those of State.offers are left out
    before: Chooser | None = None


class HitList(msgspec.Struct, frozen=True, eq=False):
    """All hits of a search, or of the row of a table; the steps, where these are the
    hits."""

    side: Side
    hits: Hits
    steps: Steps | None = None


class Replayed(msgspec.Struct, frozen=True, eq=False):
    """The critical path, what a change is worth, or the time of the user's own
    functions. `form`: the format of the trace."""

    found: Path | WhatIf | Functions
    form: str = ""


class ShownCommand(msgspec.Struct, frozen=True):
    """The command line of what is on the screen, and what it leaves out."""

    line: str
    notes: tuple[str, ...] = ()


Overlay = (
    HitList
    | Help
    | Details
    | Chooser
    | Replayed
    | OverlayLines
    | SourceShown
    | ShownCommand
)


class Prompt(Enum):
    """A question to the user. Where a letter is asked for, any key answers it."""

    SEARCH = "search names"
    COMMAND = "command"
    FILTER = "words of the keys that are listed"
    ROWS = "words of the rows that are listed"
    SET_MARK = "mark this place: a letter (Esc cancels)"
    GO_TO_MARK = "go to the mark (Esc cancels)"

    @property
    def is_letter(self) -> bool:
        """Whether the prompt asks for a single letter instead of a text."""
        return self in (Prompt.SET_MARK, Prompt.GO_TO_MARK)


# pages that the state itself knows
TIMELINE = "timeline"
DIFF = "diff"
RANKS = "ranks"
HANG = "hang"

PAIRED = frozenset({TIMELINE, DIFF, RANKS, MEMORY})  # pages about both of two traces


class Size(msgspec.Struct, frozen=True):
    """The size of the screen, or of the page's part of it, in cells and lines."""

    width: int = 0
    height: int = 0


class Reading(msgspec.Struct, frozen=True):
    """The progress of reading."""

    path: str
    done: int = 0  # bytes
    total: int = 0
    shown: bool = False  # what was read so far is on the screen
    stopping: bool = False
    is_whole: bool = False  # nothing is shown before the end


class OpenNodes(msgspec.Struct, frozen=True, eq=False):
    """Which nodes of a tree are open, bool [nodes], and which are therefore shown."""

    nodes: Flags
    shown: Rows


class ListState(msgspec.Struct, frozen=True):
    """Where the cursor of a list is, and which row is the first on the screen."""

    cursor: int = 0
    top: int = 0
    opened: OpenNodes | None = None


class State(msgspec.Struct, frozen=True, eq=False):
    """Frozen: every change is a function from one State to the next."""

    session: ViewSession = ViewSession()
    page: str = TIMELINE
    active: int = 0  # the side that keys act on
    # of each side: the first line of its lanes on the screen
    tops: tuple[int, ...] = (0, 0)
    kernels: KernelView = KernelView()
    tree: TreeView = TreeView()
    flame: FlameView = FlameView()
    # where the keys are in the answer; None: in the lanes
    answer_at: AnswerAt | None = None
    # of each side: the folds that its screen asked for
    fits: tuple[tuple[int, ...], ...] = ()
    lists: Mapping[str, ListState] = {}  # by the name of the page, and OVERLAY
    comparison: Comparison | None = None
    memory: MemoryShown | None = None  # the snapshots that are open, or memory events
    hang: HangShown | None = None  # the flight-recorder dumps that are open
    job: RankedJob = RankedJob()  # the ranks that the offers are
    offers: tuple[Offer, ...] = ()  # what may be chosen from
    wanted: tuple[str, ...] = ()  # what is being read, or was read last
    paths: tuple[str, ...] = ()  # what is open
    reading: Reading | None = None
    modules_sort: str = ""  # see ModuleTree.measure
    unpacked: int = 0  # how often args became readable
    # what told the content of the only trace from others when it was opened
    kept_as: str = ""
    prompt: Prompt | None = None
    typed: str = ""  # what stands in the line of the prompt at first
    found: SearchHits | None = None  # what the search that is typed finds
    wanted_hit: str = ""  # the search whose first hit is waited for
    overlay: Overlay | None = None
    on_path: bool = False  # what is on the critical path is marked
    replayed: str = ""  # which answer of a replay is waited for
    # it waits until nothing lies over the page
    arrived: Replayed | Second | None = None
    replay: Second | None = None  # see `second`
    hint: str = ""  # "": the keys of the page
    hint_keys: tuple[str, ...] = ()  # what follows the hint, see told
    must_choose: bool = False  # no path was given to open at once: the user chooses
    size: Size = Size()
    ascii_only: bool = False
    light: bool = False  # drawn on a light background
    # captures of graphs, and the log of torch.compile, that were named at the start
    captured_by: tuple[str, ...] = ()
    compile_log: str = ""
    # by the name of an action: keys that a person chose
    keymap: Mapping[str, tuple[str, ...]] = {}
    tour: int | None = None  # the step of the guided tour
    is_tour_step_done: bool = False  # it stays on the screen until the user goes on
    colorless: bool = False  # NO_COLOR: all is drawn in shades of gray

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides that are open: one or two traces with their lanes."""
        return self.session.sides

    @property
    def side(self) -> Side:
        """The active side, which the keys act on."""
        return self.session.sides[self.active]

    @property
    def view(self) -> View:
        """The view of the active side."""
        return self.session.views[self.active]

    @property
    def second(self) -> Second | None:
        """The replay that the timeline shows below the active side; None for none."""
        if self.replay is None or self.page != TIMELINE or not self.sides:
            return None
        is_of_side = self.replay.recorded is self.side.trace
        return self.replay if is_of_side else None

    @property
    def shown(self) -> tuple[int, ...]:
        """Indices of the sides that have a timeline: all, or only the active one while
        its replay is shown."""
        if self.second:
            return (self.active,)
        return tuple(range(len(self.sides)))

    @property
    def told_sides(self) -> tuple[int, ...]:
        """Indices of the sides that the page in front is about."""
        if self.page in PAIRED:
            return self.shown
        return (self.active,) if self.sides else ()

    @property
    def timelines(self) -> int:
        """Number of timelines on the page, that of a replay included."""
        return len(self.shown) + (0 if self.second is None else 1)

    @property
    def time_range(self) -> Range | None:
        """The range of time on the active side; None until it has ended."""
        time_range = self.session.time_range
        if time_range is None or not time_range.ended:
            return None
        return time_range if time_range.side == self.active else None

    @property
    def is_searching(self) -> bool:
        """Whether the text of a search is being typed."""
        return self.prompt is Prompt.SEARCH

    @property
    def has_diff(self) -> bool:
        """Whether two whole traces are open. A part of a trace is not compared, because
        it would differ in what was not read."""
        are_whole = all(not side.trace.report.prefix for side in self.sides)
        return len(self.sides) == 2 and are_whole

    @property
    def is_open(self) -> bool:
        """Whether anything is open: a trace, a memory snapshot, or flight-recorder
        dumps."""
        return bool(self.sides) or self.memory is not None or self.hang is not None

    def list_of(self, name: str) -> ListState:
        """Return where the cursor of a list is. `name` is that of its page, or OVERLAY."""
        return self.lists.get(name, ListState())

    def with_list(self, name: str, now: ListState | None = None) -> State:
        """Return the state with another cursor in the list of this name, by default on
        the first row."""
        return replace(self, lists={**self.lists, name: now or ListState()})


class Effect(msgspec.Struct, frozen=True):
    """What an action does outside the state, as data: `performing.py` carries it out.
    New work of a kind replaces the old."""

    @property
    def kind(self) -> str:
        """Kind of work: new work of a kind replaces the old."""
        return type(self).__name__


class Read(Effect, frozen=True):
    """Read these traces in a thread, instead of what is being read."""

    paths: tuple[str, ...]


class ReadMemory(Effect, frozen=True, eq=False):
    """Read these snapshots, or the memory events of a trace, as asked for on a page;
    `alone`: nothing else is open."""

    paths: tuple[str, ...]
    alone: bool
    trace: Trace | None = None
    page: str = ""


class ReadDumps(Effect, frozen=True):
    """Read the flight-recorder dumps of a job, one file for each rank."""

    paths: tuple[str, ...]


class ReadSource(Effect, frozen=True, eq=False):
    """Find the source of a slice of a compiled region, by the log of its trace."""

    side: Side
    row: int


class Record(Effect, frozen=True):
    """Have `fusetui record` record a program, and open the trace after these; 0: list
    them all."""

    pid: int = 0
    beside: tuple[str, ...] = ()


class Compare(Effect, frozen=True, eq=False):
    """Compare two sides, which were read from these paths, in a thread or in another
    process."""

    a: Side
    b: Side
    paths: tuple[str, ...]


class Summarize(Effect, frozen=True):
    """Look up recent traces in a thread, then summarize traces one after the other."""

    wanted: tuple[tuple[int, str], ...]  # the place in the list, and the path
    known: tuple[str, ...] = ()  # traces that are not listed as recent ones
    is_alone: bool = False  # there is no list yet


class ReadRanks(Effect, frozen=True):
    """Read the ranks of a job in a thread that starts processes."""

    paths: tuple[str, ...]


class Search(Effect, frozen=True, eq=False):
    """Search a side, which was read from this path, in a thread."""

    side: Side
    text: str
    path: str


class MatchLanes(Effect, frozen=True, eq=False):
    """Look in a thread for the lanes of a side that a regular expression matches."""

    side: Side
    pattern: Pattern


class CopyText(Effect, frozen=True):
    """Put a text into the clipboard of the terminal (OSC 52)."""

    text: str


class SaveTable(Effect, frozen=True, eq=False):
    """Write the table of the page in front to a new file."""

    state: State
    path: str


class SavePicture(Effect, frozen=True, eq=False):
    """Draw the page in front into a new file."""

    state: State
    path: str


class ShowCommand(Effect, frozen=True, eq=False):
    """Show the command line of what is on the screen."""

    state: State


class Cut(Effect, frozen=True):
    """Have `fusetui cut` write a part of a trace to a new file; times in ns after its
    start."""

    trace: str
    path: str
    begin: int
    end: int

    @property
    def kind(self) -> str:
        """Kind of work: cuts into different files do not replace each other."""
        return f"cut {self.path}"


class Reproduce(Effect, frozen=True):
    """Have `fusetui reproduce` write the script of the op in a row of a trace to a new
    file."""

    trace: str
    path: str
    row: int

    @property
    def kind(self) -> str:
        """Kind of work: scripts in different files do not replace each other."""
        return f"reproduce {self.path}"


MARKS = "marks"
ROWS = "path"
FUNCTIONS = "my functions"
BESIDE = "\n"
"""What a Replay asks for; nobody can type the last one, which stands before a
change."""


class Replay(Effect, frozen=True, eq=False):
    """Work out beside the keys which slices are on the critical path of the active side
    (MARKS), what takes its time (ROWS), what the user's own functions cost (FUNCTIONS),
    what a change is worth, or (BESIDE before the change) the trace with it."""

    state: State
    asked: str

    @property
    def kind(self) -> str:
        """Kind of work: the marks of the critical path, or any other answer of a
        replay."""
        return MARKS if self.asked == MARKS else "answer"


class Refuse(Effect, frozen=True):
    """End, because there is nothing to show; the sentence says why."""

    sentence: str


Order = Enum("Order", "STOP_READING QUIT INTERRUPT SUSPEND PALETTE")
"""What needs no more words; `STOP_READING` keeps what was read so far, `QUIT` ends with
exit code 0, `INTERRUPT` as by Ctrl+C, `SUSPEND` until `fg`; `PALETTE` opens the command
palette."""
Outcome = State | tuple[State, Effect | Order]  # the result of an action


def open_overlay(state: State, overlay: Overlay, cursor: int = 0) -> State:
    """Return the state with an overlay over the page, its list with the cursor on this
    row."""
    return replace(state, overlay=overlay).with_list(OVERLAY, ListState(cursor))


def told(state: State, sentence: str, *keys: str) -> State:
    """Return the state with a message on the last line, and hints of keys after it.

    A hint such as `next-hit next` names an action, whose key is shown, and says what it
    does.
    """
    return replace(state, hint=sentence, hint_keys=keys)
