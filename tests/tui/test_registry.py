"""Every key of every action is pressed, and changes what a person sees or ends the
app."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import cast

import pytest
import pytest_asyncio
from msgspec.structs import replace
from tests.analysis.ranks.made import rank
from tests.snapshots import Machine, train, trained
from tests.tui.conftest import mlp_events
from tests.tui.driving import strips
from tests.tui.prepared import (
    SIZE,
    after,
    at,
    do,
    dumps_of_two_groups,
    explained,
    opened,
    remembered,
)
from textual.pilot import Pilot

from fusetui.analysis.ranks.answer import explained as answered
from fusetui.analysis.ranks.answer import make_strip
from fusetui.analysis.replay.marks import compute_marks
from fusetui.analysis.replay.predicted import predict_slices
from fusetui.analysis.replay.whatif import whatif
from fusetui.trace import Trace, open_trace
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.layout.hang import HangShown
from fusetui.tui.layout.memory import MemoryShown
from fusetui.tui.layout.text_layout import ShownLine, SourceShown
from fusetui.tui.pages import ranks
from fusetui.tui.pages.page import Page
from fusetui.tui.registry import ACTIONS, PAGES, always
from fusetui.tui.state import moving, replays, search
from fusetui.tui.state.action import Action, Run, action
from fusetui.tui.state.comparison import make_second_timeline
from fusetui.tui.state.offers import RankedJob
from fusetui.tui.state.state import (
    MARKS,
    Chooser,
    Order,
    Reading,
    Replayed,
    Size,
    State,
)

Patch = pytest.MonkeyPatch
LOW = Size(100, 14)  # too low for all lanes
CLOSE = do("zoom-in", "zoom-in")

ENDS: dict[str, Order] = {
    "suspend": Order.SUSPEND,
    "palette": Order.PALETTE,
    "quit": Order.QUIT,
    "interrupt": Order.INTERRUPT,
}
"""What leaves the screen as it is, and is asked of the world instead."""


class Case:
    """What is open when the keys of an action are pressed, and what was done then."""

    def __init__(self, *runs: Run, sides: int = 1, size: Size = SIZE) -> None:
        self.runs, self.sides, self.size = runs, sides, size


def is_read(state: State) -> State:
    return replace(state, reading=Reading("big.json", 10, 100))


def chooses(state: State) -> State:
    return replace(state, overlay=Chooser(("...",) * 2))


def with_source(state: State) -> State:
    lines = (ShownLine("a"), ShownLine("b"))
    return replace(state, overlay=SourceShown("source", lines, sections=(1,)))


def toured(state: State) -> State:
    return replace(state, tour=1)


def with_region(state: State) -> State:
    """The lines of the diff inside its first one, as those of a compiled part of the
    program."""
    shown = state.comparison
    assert shown is not None
    assert shown.found is not None
    found = replace(shown.found, inner={0: shown.found.lines[1:]})
    return replace(state, comparison=replace(shown, found=found))


def flamed(state: State) -> State:
    """The flame graph of time on the CPU, in which every op has a part."""
    return after(state, *do("flame", "flame-time"))


def of_a_job(state: State) -> State:
    return replace(state, job=RankedJob(("rank0.json", "rank1.json")))


def with_modules(state: State) -> State:
    """The modules page of a trace that has some; its steps are annotations."""
    return after(state, explained, *do("modules"))


def ranked(state: State) -> State:
    """Two ranks that were read."""
    read = [rank(n, [(10 + 40 * n, 60)], host="h") for n in range(2)]
    found = answered(read)
    return ranks.known(
        state, state.job.paths, answer=found.answer, strip=make_strip(found)
    )


def remembers(state: State) -> State:
    """Snapshots of two devices and of one beside the trace, their page in front."""
    assert SNAPSHOTS
    return after(replace(state, memory=SNAPSHOTS[0]), *do("memory"))


def with_dumps(state: State) -> State:
    """Flight-recorder dumps of two groups, the timeline in front."""
    assert DUMPS
    return replace(state, hang=DUMPS[0])


def hangs(state: State) -> State:
    """The same with their page in front, in the middle of many collectives."""
    return after(with_dumps(state), *do("hang", *["hang-before"] * 100))


def with_path(state: State) -> State:
    """The critical path is known and marked."""
    trace = state.side.trace
    marked = after(state, *do("path"))
    return replays.arrived(marked, trace, MARKS, compute_marks(trace))


def with_worth(state: State) -> State:
    """What a change is worth lies over the page."""
    return replace(state, overlay=Replayed(whatif(state.side.trace, [CHANGE])))


def with_second(state: State) -> State:
    """The replay of a change is shown below the recording."""
    trace = state.side.trace
    return replays.seen(
        state,
        make_second_timeline(trace, (predict_slices(trace, [CHANGE]), ()), "replayed"),
    )


CHANGE = "op:aten::linear x0.5"
LINEAR = at("aten::linear")
SNAPSHOTS: list[MemoryShown] = []
DUMPS: list[HangShown] = []
NEAR = do("memory-in", "memory-in", "memory-in")
CASES = {
    "cut": Case(),
    "reproduce": Case(LINEAR),
    "save": Case(*do("kernels")),
    "picture": Case(),
    "shell": Case(),
    "close": Case(*do("help")),
    "source": Case(LINEAR),
    "source-part": Case(with_source),
    "help-filter": Case(*do("help")),
    "raw": Case(LINEAR, *do("details")),
    "leave": Case(chooses),
    "beside": Case(chooses),
    "stop": Case(is_read),
    "skip": Case(toured),
    "back": Case(toured),
    "into-answer": Case(explained),
    "answer-down": Case(explained, *do("into-answer")),
    "answer-up": Case(explained, *do("into-answer")),
    "answer-right": Case(explained, *do("into-answer")),
    "answer-left": Case(explained, *do("into-answer", "answer-right")),
    "answer-show": Case(explained, *do("into-answer")),
    "answer-leave": Case(explained, *do("into-answer")),
    "next-pane": Case(explained),
    "zoom-in": Case(),
    "zoom-out": Case(*CLOSE),
    "pan-left": Case(*CLOSE),
    "pan-right": Case(*CLOSE),
    "screen-left": Case(*CLOSE),
    "screen-right": Case(*CLOSE),
    "down": Case(),
    "up": Case(LINEAR),
    "lane-down": Case(LINEAR),
    "lane-up": Case(LINEAR),
    "next": Case(LINEAR),
    "previous": Case(LINEAR, *do("next")),
    "to-kernel": Case(LINEAR),
    "to-launch": Case(LINEAR, *do("to-kernel")),
    "zoom-to": Case(LINEAR),
    "center": Case(LINEAR, *CLOSE),
    "whole": Case(*CLOSE),
    "start": Case(*CLOSE),
    "end": Case(*CLOSE),
    "fold": Case(LINEAR),
    "pin": Case(LINEAR),
    "hide": Case(LINEAR),
    "isolate": Case(LINEAR),
    "sort": Case(),
    "families": Case(LINEAR),
    "unfold-all": Case(LINEAR, *do("fold")),
    "undo": Case(*CLOSE),
    "redo": Case(*CLOSE, *do("undo")),
    "deselect": Case(LINEAR),
    "other-side": Case(*do("timeline"), LINEAR, sides=2),
    "other-trace": Case(*do("kernels"), sides=2),
    "page-down": Case(size=LOW),
    "page-up": Case(*do("page-down"), size=LOW),
    "range": Case(LINEAR),
    "mark": Case(),
    "to-mark": Case(partial(moving.set_mark, letter="a")),
    "tree-mode": Case(*do("tree")),
    "tree-sort-right": Case(*do("tree")),
    "tree-sort-left": Case(*do("tree")),
    "turn": Case(*do("tree")),
    "unfold": Case(*do("tree", "row-down")),
    "fold-node": Case(*do("tree")),
    "flame": Case(explained),
    "flame-in": Case(explained, *do("flame")),
    "flame-out": Case(explained, *do("flame", "flame-in")),
    "flame-left": Case(explained, flamed, *do("flame-in", "flame-right")),
    "flame-right": Case(explained, flamed, *do("flame-in")),
    "flame-zoom": Case(explained, *do("flame", "flame-in")),
    "flame-back": Case(explained, *do("flame", "flame-in", "flame-in", "flame-zoom")),
    "flame-show": Case(explained, *do("flame", "flame-in")),
    "flame-tree": Case(explained, *do("flame")),
    "flame-time": Case(explained, *do("flame")),
    "diff-open": Case(with_region, sides=2),
    "diff-zoom-in": Case(sides=2),
    "diff-zoom-out": Case(*do("diff-zoom-in"), sides=2),
    "diff-left": Case(*do("diff-zoom-in"), sides=2),
    "diff-right": Case(*do("diff-zoom-in"), sides=2),
    "diff-whole": Case(*do("diff-zoom-in"), sides=2),
    "group-by": Case(*do("kernels")),
    "narrow": Case(*do("kernels", "group-by")),
    "widen": Case(*do("kernels", "group-by", "narrow")),
    "kernel-columns": Case(*do("kernels")),
    "filter-rows": Case(*do("kernels")),
    "sort-right": Case(*do("kernels")),
    "sort-left": Case(*do("kernels")),
    "instances": Case(*do("kernels")),
    "row-down": Case(*do("kernels")),
    "row-up": Case(*do("kernels", "last")),
    "rows-down": Case(*do("kernels")),
    "rows-up": Case(*do("kernels", "last")),
    "first": Case(*do("kernels", "last")),
    "last": Case(*do("kernels")),
    "show": Case(*do("kernels")),
    "timeline": Case(*do("kernels")),
    "tree": Case(),
    "kernels": Case(),
    "diff": Case(*do("timeline"), sides=2),
    "why": Case(explained),
    "modules": Case(explained),
    "modules-sort-right": Case(with_modules),
    "modules-sort-left": Case(with_modules),
    "hang": Case(with_dumps),
    "hang-before": Case(hangs),
    "hang-after": Case(hangs),
    "hang-left": Case(hangs),
    "hang-right": Case(hangs),
    "hang-first": Case(hangs),
    "hang-newest": Case(hangs),
    "hang-group": Case(hangs),
    "hang-group-before": Case(hangs),
    "hang-reason": Case(hangs),
    "ranks": Case(of_a_job),
    "ranks-sort-right": Case(of_a_job, *do("ranks"), ranked),
    "ranks-sort-left": Case(of_a_job, *do("ranks"), ranked),
    "ranks-beside": Case(of_a_job, *do("ranks"), ranked, *do("row-down")),
    "ranks-others": Case(of_a_job, *do("ranks"), ranked, *do("row-down")),
    "memory": Case(remembers, *do("kernels")),
    "memory-in": Case(remembers),
    "memory-out": Case(remembers, *NEAR),
    "memory-left": Case(remembers, *NEAR, *do("memory-screen-right")),
    "memory-right": Case(remembers, *NEAR, *do("memory-screen-left")),
    "memory-screen-left": Case(remembers, *NEAR, *do("memory-screen-right")),
    "memory-screen-right": Case(remembers, *NEAR, *do("memory-screen-left")),
    "memory-whole": Case(remembers, *NEAR),
    "memory-before": Case(remembers),
    "memory-after": Case(remembers),
    "memory-earlier": Case(remembers),
    "memory-later": Case(remembers),
    "memory-peak": Case(remembers, *do("memory-before")),
    "memory-turn": Case(remembers),
    "memory-by": Case(remembers),
    "memory-by-last": Case(remembers),
    "memory-device": Case(remembers),
    "memory-map": Case(remembers),
    "next-gap": Case(explained),
    "previous-gap": Case(explained, *do("next-gap")),
    "next-alike": Case(LINEAR),
    "previous-alike": Case(LINEAR),
    "next-step": Case(),
    "previous-step": Case(),
    "other-pass": Case(LINEAR),
    "steps": Case(),
    "path": Case(with_path),
    "path-next": Case(with_path),
    "path-previous": Case(with_path),
    "path-rows": Case(),
    "my-functions": Case(),
    "what-if": Case(LINEAR),
    "second": Case(with_worth),
    "recorded": Case(with_second),
    "search": Case(),
    "next-hit": Case(partial(search.searched, text="linear")),
    "previous-hit": Case(partial(search.searched, text="linear")),
    "hits": Case(partial(search.searched, text="linear")),
    "details": Case(LINEAR),
    "copy": Case(LINEAR),
    "command": Case(),
    "record": Case(),
    "choose": Case(),
    "link": Case(sides=2),
    "swap": Case(sides=2),
    "help": Case(),
    "suspend": Case(),
    "palette": Case(),
    "reset": Case(*CLOSE),
    "quit": Case(),
    "interrupt": Case(),
}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Trace]:
    """Of two and three steps."""
    found: list[Trace] = []
    for steps in (2, 3):
        file = tmp_path_factory.mktemp("traces") / f"{steps}.json"
        file.write_text(json.dumps({"traceEvents": mlp_events(steps)}))
        found.append(open_trace(str(file)))
    folder = tmp_path_factory.mktemp("snapshots")
    machine, other = Machine(total=1 << 30), Machine(device=1)
    train(machine, 3)
    train(other, 2)
    paths = machine.write(folder / "a.pickle", other), trained(folder)
    DUMPS.append(dumps_of_two_groups(tmp_path_factory.mktemp("dumps")))
    SNAPSHOTS.append(remembered(State(), *paths).memory or MemoryShown((), ()))
    return found[0], found[1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Pilot[int]]:
    """One app for all keys: each test puts a state of its own into it."""
    app = FusetuiApp(AppOptions(("a", "b"), opened=0))
    async with app.run_test(size=(SIZE.width, SIZE.height)) as pilot:
        yield pilot


def test_every_action_has_a_case_and_a_name_of_its_own() -> None:
    names = [action.name for action in ACTIONS]
    assert sorted(names) == sorted(CASES)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
async def test_every_key_has_an_effect(
    action: Action, running: Pilot[int], traces: tuple[Trace, Trace], monkeypatch: Patch
) -> None:
    case, app = CASES[action.name], cast(FusetuiApp, running.app)
    state = after(
        opened(*traces[: case.sides], paths=("a", "b"), size=case.size), *case.runs
    )
    asked: list[Order] = []
    monkeypatch.setattr(app._performing, "perform", asked.append)
    with app._context():
        for key in action.keys:
            app.do(lambda _: state)
            await running.pause()
            before = strips(app)
            asked.clear()
            await running.press(key)
            if action.name in ENDS:
                assert asked == [ENDS[action.name]], key
            else:
                assert strips(app) != before, key


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_shown_without_a_trace_that_fits(page: Page, mlp: Trace) -> None:
    """Its key is answered, with the page or with a sentence."""
    state = opened(mlp)
    there = after(state, *do(page.name))
    assert there.page == page.name or there.hint


@pytest.mark.parametrize(("name", "keys"), [("zoom-in", "w"), ("of-no-key", "Hyper+w")])
def test_an_action_has_a_name_of_its_own_and_keys(name: str, keys: str) -> None:
    with pytest.raises(ValueError, match=name):
        action(name, "Anything", keys, "", lambda state: state)


def test_ctrl_c_works_wherever_a_person_is_and_q_does_not() -> None:
    state = State(size=SIZE)
    interrupts = always("ctrl+c", state)
    assert interrupts is not None
    assert interrupts.name == "interrupt"
    assert always("q", state) is None
