"""States of the app, made without a terminal: traces open, actions of the registry
carried out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from tests.finding import find
from tests.flight_dumps import Job
from textual.strip import Strip

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.hang.grid import make_collective_grid
from fusetui.trace import Trace
from fusetui.trace.flight.reading import read_dumps
from fusetui.trace.model.report import never
from fusetui.tui import screen_layout
from fusetui.tui.background_results import compute_pieces
from fusetui.tui.background_results import opened as opened_snapshot
from fusetui.tui.drawing.picture import Picture
from fusetui.tui.drawing.schemes import DARK, Scheme, Styled, build_styles
from fusetui.tui.drawing.segments import painted
from fusetui.tui.layout.hang import HangShown, make_first_view
from fusetui.tui.layout.view import make_sides
from fusetui.tui.registry import ACTIONS, arrived, settle_state
from fusetui.tui.state import memory, reading
from fusetui.tui.state.action import Run, perform
from fusetui.tui.state.offers import make_offers
from fusetui.tui.state.reading import accept_diff
from fusetui.tui.state.screen import overlay_size
from fusetui.tui.state.state import Outcome, Size, State

SIZE = Size(100, 30)
BY_NAME = {action.name: action for action in ACTIONS}


def after(state: State, *runs: Run) -> State:
    """The state after these, one after the other; what they ask of the world is left
    out."""
    for run in runs:
        outcome: Outcome = run(state)
        state = settle_state(
            state, outcome[0] if isinstance(outcome, tuple) else outcome
        )
    return state


def do(*names: str) -> list[Run]:
    """Actions of the registry."""
    return [partial(perform, BY_NAME[name]) for name in names]


def opened(*traces: Trace, size: Size = SIZE, paths: tuple[str, ...] = ()) -> State:
    """The app with these traces read, and compared where there are two."""
    sides = make_sides(traces, ["first", "second"][: len(traces)])
    state = State(
        size=size, offers=make_offers(paths), wanted=paths, paths=paths[: len(traces)]
    )
    state = after(state, partial(arrived, sides=sides))
    if len(traces) == 2:
        a, b = traces
        state = after(state, lambda now: accept_diff(now, a, b, diff(a, b)))
    return state


def remembered(state: State, *paths: Path) -> State:
    """With memory snapshots open, alone where no trace is."""
    sides = tuple(opened_snapshot(str(path)) for path in paths)
    return after(state, partial(memory.arrived, sides=sides))


def dumps_of_two_groups(folder: Path) -> HangShown:
    """Of a job of 3 ranks whose rank 1 does not come to collective 201."""
    job = Job(3)
    job.group("pair", 0, 1)
    for _ in range(200):
        job.everywhere()
        job.everywhere(group="pair")
    job.issue(0, over=False)
    paths = job.write(folder)
    return make_first_view(paths, make_collective_grid(read_dumps(paths)))


def explained(state: State) -> State:
    """All that a thread finds out about the traces."""
    for side in state.sides:
        for piece in compute_pieces(side.trace, never):
            if not isinstance(piece, tuple):
                state = reading.accept_answer(state, side.trace, piece)
    return state


def at(name: str) -> Run:
    """The first slice of a name selected."""

    def run(state: State) -> State:
        row = int(find(state.side.trace, name)[0])
        return replace(state, session=state.session.selected(state.active, row))

    return run


def drawn(state: State) -> str:
    """The lines of the screen, without colors."""
    return _text(screen_layout.stack(screen_layout.panes(state)), state.size)


def laid_over(state: State) -> str:
    """The lines of the overlay."""
    return _text(
        screen_layout.stack(screen_layout.overlay_panes(state)), overlay_size(state)
    )


def line(picture: Picture, y: int, size: Size) -> str:
    """The text of one line."""
    return strip(picture.line(y, size.width, size.height), size.width).text


def strip(parts: Sequence[Styled], width: int, scheme: Scheme = DARK) -> Strip:
    """A line as the canvas paints it."""
    return painted(parts, width, build_styles(scheme, scheme.background))


def _text(picture: Picture, size: Size) -> str:
    return "\n".join(line(picture, y, size) for y in range(size.height))
