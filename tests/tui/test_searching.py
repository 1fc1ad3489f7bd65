"""A search is counted while it is typed, and its hits are a list."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.cases import Cases
from tests.hostile import WORST, obeyed
from tests.tui.conftest import GEMM, mlp_events
from tests.tui.driving import opened as app_opened
from tests.tui.driving import screen, selected, settled
from tests.tui.prepared import after, do, drawn, explained, laid_over, opened

from fusetui.trace import Trace
from fusetui.trace.model.report import never
from fusetui.tui import registry
from fusetui.tui.helper_client import Beside
from fusetui.tui.layout.search_hits import SearchHits
from fusetui.tui.layout.view import make_sides
from fusetui.tui.loading import look
from fusetui.tui.pages.overlays import summarize_hits
from fusetui.tui.state import search
from fusetui.tui.state.state import OVERLAY, HitList, Reading, Search, Size, State


def posted_about(state: State, text: str) -> list[Any]:
    """How what a thread finds for a text changes the state."""
    posted: list[Any] = []
    look(Search(state.side, text, ""), posted.append, never)
    return posted


def found(state: State, text: str) -> list[SearchHits]:
    return [run.keywords["found"] for run in posted_about(state, text)]


def typed(state: State, text: str) -> State:
    return after(
        state,
        *do("search"),
        partial(search.typed, text=text),
        *posted_about(state, text),
    )


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("gemm", 0),
        ("gemm dur>1us", 1),
        ("gemm -dur<1us", 1),
        ("gemm dur<1s", 0),
        ("dur>1us", -1),
    ],
)
def test_a_search_by_duration_begins_with_the_longest_hit(
    mlp: Trace, text: str, begins: int
) -> None:
    """Of the products the second takes longer, of all slices the steps do; n goes on in
    time."""
    state = after(opened(mlp), partial(search.searched, text=text))
    (hits,) = [state.session.hits]
    assert hits is not None
    if begins >= 0:
        gemms = [row for row in hits.rows.tolist() if mlp.name_of(row) == GEMM]
        assert state.view.selected == gemms[begins]
    else:
        assert mlp.dur[state.view.selected] == mlp.dur[hits.rows].max() == 690_000


async def test_hits_are_counted_while_a_person_types(path: str) -> None:
    async with app_opened([path]) as (app, pilot):
        await pilot.press("slash", *"gemm")
        await settled(app, pilot)
        assert "4 slices of 1 name, 724 us" in screen(app)
        await pilot.press(*" dur>181us")
        await settled(app, pilot)
        assert "2 slices of 1 name, 364 us" in screen(app)


async def test_enter_goes_to_the_first_hit(path: str) -> None:
    async with app_opened([path]) as (app, pilot):
        await pilot.press("slash", *"family:gemm", "enter")
        assert selected(app) == GEMM


async def test_a_regex_search_selects_its_match_when_it_is_found(path: str) -> None:
    async with app_opened([path]) as (app, pilot):
        await pilot.press("slash", *"/^ampere/", "enter")
        await settled(app, pilot)
        assert selected(app) == GEMM


def test_no_key_waits_for_a_search_of_a_large_trace(
    mlp: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_SLICES_AT_ONCE", 1)
    state = opened(mlp)
    asked = search.searched(state, "gemm")
    assert isinstance(asked, tuple)
    assert isinstance(asked[1], Search)
    assert (asked[0].wanted_hit, asked[1].text) == ("gemm", "gemm")


def test_the_lanes_do_not_move_while_a_person_types(mlp: Trace) -> None:
    state = opened(mlp)
    lines = drawn(state).split("\n")
    now = drawn(typed(state, "gelu")).split("\n")
    rule = next(n for n, line in enumerate(now) if "slices of" in line)
    assert now[:rule] == lines[:rule]


def test_names_that_do_not_fit_are_counted(mlp: Trace) -> None:
    low = typed(replace(opened(mlp), size=Size(60, 18)), "a")
    assert low.found
    heading = next(line for line in drawn(low).split("\n") if "count name" in line)
    names = len(low.found.names)
    assert re.search(rf"1-\d+ of {names}$", heading.rstrip())
    roomy = drawn(typed(opened(mlp, size=Size(100, 50)), "gelu"))
    assert " of 1" not in roomy.partition("count name")[2].partition("\n")[0]


def test_every_change_of_the_text_is_searched_for_in_a_thread(mlp: Trace) -> None:
    state = after(opened(mlp), *do("search"))
    outcome = search.typed(state, "gemm")
    assert isinstance(outcome, tuple)
    assert isinstance(outcome[1], Search)


def test_wrong_query_is_reported_while_typing(mlp: Trace) -> None:
    assert "dur> needs a time with a unit" in drawn(typed(opened(mlp), "dur>5"))


def test_without_a_text_the_language_is_told(mlp: Trace) -> None:
    assert "kind:gemm dur>50us stream:7" in drawn(after(opened(mlp), *do("search")))


def test_the_hits_are_a_list(mlp: Trace) -> None:
    state = after(
        opened(mlp), partial(search.searched, text="family:gemm"), *do("hits")
    )
    assert state.overlay is not None
    second = after(state, *do("row-down", "show"))
    assert second.session.hits is not None
    assert second.session.hits.at == 1
    assert second.overlay is None


def test_a_late_answer_is_dropped(mlp: Trace) -> None:
    state = opened(mlp)
    *_, arrived = posted_about(state, "gelu")
    assert arrived(state) is state


def test_names_and_texts_stay_printable(mlp: Trace) -> None:
    assert obeyed(drawn(typed(opened(mlp), f"/{WORST}"))) == set()
    assert obeyed(drawn(typed(opened(mlp), "dur>" + WORST))) == set()


@pytest.fixture
def shaped(trace_of: Callable[..., Trace]) -> Trace:
    """Each op of the MLP has args that no name says."""
    events = mlp_events()
    for event in events:
        if event["cat"] == "cpu_op":
            event["args"] = {"Input Dims": [[8192, 768]], "Concrete Inputs": ["blue"]}
    return trace_of(events)


def test_args_are_counted_beside_the_names(shaped: Trace) -> None:
    """Names at once, then what args say as they are read."""
    state = opened(shaped)
    first, *_, last = found(state, "gelu")
    assert (len(first.rows), first.share) == (4, 0.0)
    assert (len(last.rows), len(last.extra), last.share) == (4, 0, 1.0)
    *_, last = found(state, "blue")
    ops = sum(event["cat"] == "cpu_op" for event in mlp_events())
    assert (len(last.rows), len(last.extra)) == (0, ops + 2 * 8)
    assert f"{ops + 16} slices by args" in drawn(typed(state, "blue"))
    assert "in args of aten::linear" in drawn(typed(state, "blue"))


def test_enter_leads_to_names_first_and_else_to_args(shaped: Trace) -> None:
    state = after(typed(opened(shaped), "mm"), partial(search.searched, text="mm"))
    assert state.session.hits is not None
    assert {shaped.name_of(int(row)) for row in state.session.hits.rows} >= {"aten::mm"}
    state = after(
        typed(opened(shaped), "8192x768"), partial(search.searched, text="8192x768")
    )
    assert state.session.hits is not None
    assert shaped.name_of(state.session.hits.row) == "aten::linear"


async def test_a_word_of_args_is_gone_to_when_they_were_read(tmp_path: Path) -> None:
    events = [*mlp_events(1)]
    events[1]["args"] = {"Input Dims": [[8192, 768]]}
    file = tmp_path / "shaped.json"
    file.write_text(json.dumps({"traceEvents": events}))
    async with app_opened([str(file)]) as (app, pilot):
        await pilot.press("slash", *"8192x768", "enter")
        await settled(app, pilot)
        assert selected(app) == "aten::linear"


def test_args_of_a_large_trace_are_read_beside(
    shaped: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And by this process where no other one can help."""
    posted: list[Any] = []
    side = opened(shaped).side
    own = found(opened(shaped), "blue")[-1]
    monkeypatch.setattr("fusetui.tui.loading.MIN_SLICES_FOR_HELPER", 0)
    for path in (shaped.report.path, ""):
        look(Search(side, "blue", path), posted.append, never, Beside)
        assert posted[-1].keywords["found"].is_done
    assert posted[-1].keywords["found"].extra.tolist() == own.extra.tolist()


def test_a_person_who_goes_on_typing_starts_no_process(
    shaped: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusetui.tui.loading.MIN_SLICES_FOR_HELPER", 0)
    posted: list[object] = []
    start = cast(Callable[[], Beside], posted.clear)
    asked = Search(opened(shaped).side, "blue", shaped.report.path)
    look(asked, posted.append, lambda: True, start)
    assert len(posted) == 1


async def test_lanes_are_looked_for_by_an_expression_in_a_thread(path: str) -> None:
    async with app_opened([path]) as (app, pilot):
        await pilot.press("colon", *"only /stream [0-9]$/", "enter")
        await settled(app, pilot)
        assert "1 lane shown, :only shows all" in screen(app)


PARTS = (
    ("family:gemm", "family:", "famly:gemm", ""),
    ("dur>50us", "dur>", "dur<-5us", "family>3", ""),
    (
        "stream:7",
        "stream:99",
        "kind:foo",
        "step:9",
        "step:x",
        "/(a",
        "/a**/",
        '"',
        "-",
        "",
    ),
)


def test_every_search_gives_one_plain_sentence(mlp: Trace) -> None:
    state = opened(mlp)
    with Cases() as cases:
        for text in map(" ".join, product(*PARTS)):
            with cases.case(text):
                *_, last = found(state, text)
                sentence = summarize_hits(last)
                assert len(sentence.splitlines()) == 1
                assert last.wrong or last.is_done
                finds_nothing = not last.wrong and not len(last.together)
                assert ("nothing found" in sentence) == finds_nothing


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("family:", "family: is followed by the kind or library of a kernel"),
        ("kind:foo", "kind: is followed by what a slice is (kernel, memcpy, "),
        ("step:x", "step: is followed by the number of a step"),
        ("dur<-5us", "dur< needs a time with a unit"),
        ("step:9", "nothing found: this trace has the steps 3 to 4"),
        ("stream:99", "nothing found: the only stream of this trace is 7"),
        (
            "famly:gemm",
            "nothing found: famly is not a field, so famly:gemm is searched as text",
        ),
        (
            "family>gemm",
            "only dur and at can be compared: family:gemm searches for family",
        ),
    ],
)
def test_a_search_that_finds_nothing_says_why(
    mlp: Trace, text: str, sentence: str
) -> None:
    assert sentence in drawn(typed(opened(mlp), text))
    told = after(opened(mlp), partial(search.searched, text=text)).hint
    late = after(typed(opened(mlp), text), partial(search.searched, text=text)).hint
    wanted = sentence.removeprefix("nothing found: ")
    assert wanted in late
    assert wanted in told or told == "searching"


def test_pattern_of_doubtful_form_gives_no_warning(mlp: Trace) -> None:
    """Python warns of `[[` on the screen."""
    *_, last = found(opened(mlp), "/[[:a]/")
    assert last.is_done


def met_by_keys(state: State) -> list[int]:
    """The rows that a person meets who presses n until the first hit is there again."""
    hits = state.session.hits
    assert hits is not None
    met = []
    for _ in hits.rows:
        met.append(state.session.views[0].selected)
        state = after(state, *do("next-hit"))
    assert state.session.views[0].selected == met[0]
    return met


def test_hits_by_args_are_gone_through_and_listed(
    trace_of: Callable[..., Trace],
) -> None:
    """Each that is counted, also those that are found after Enter."""
    events = mlp_events()
    for event in events:
        if event["name"] == "aten::gelu":
            event["args"] = {"Concrete Inputs": ["linear"]}
    state = opened(trace_of(events))
    first, *_, last = found(state, "linear")
    state = after(state, partial(search.searched, text="linear"))
    before = state.session.views[0].selected
    listed = after(state, *do("hits"))
    for message in (first, last):
        arrived = partial(search.arrived, side=state.side, found=message)
        state, listed = after(state, arrived), after(listed, arrived)
    assert state.session.views[0].selected == before
    counted = {*last.rows.tolist(), *last.extra.tolist()}
    assert len(counted) > len(last.rows)
    assert set(met_by_keys(state)) == counted
    assert f"of {len(counted)}: linear" in drawn(state)
    assert f" {len(counted)} hits" in laid_over(listed)
    assert "in args of aten::gelu" in laid_over(listed)


@pytest.mark.parametrize(
    ("ends", "first"), [(2_000_000, "0.000"), (200_000_000, "0.000000")]
)
def test_the_list_tells_hits_apart_by_their_starts(
    trace_of: Callable[..., Trace], ends: int, first: str
) -> None:
    """However long the trace is; times in us."""
    events = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "f",
            "pid": 1,
            "tid": 1,
            "ts": ts,
            "dur": 1,
        }
        for ts in (0, 7, ends)
    ]
    state = after(
        opened(trace_of(events)), partial(search.searched, text="f"), *do("hits")
    )
    starts = [
        line.split("█")[0].split()[-2] for line in laid_over(state).split("\n")[2:5]
    ]
    assert starts[0] == first
    assert len(set(starts)) == 3


def test_once_the_trace_is_whole_its_args_are_searched_too(shaped: Trace) -> None:
    """What was searched for while a part of it was shown."""
    state = after(opened(shaped), partial(search.searched, text="gelu"))
    reading = replace(state, reading=Reading("big.json", 10, 100, shown=True))
    outcome = registry.arrived(reading, state.sides)
    assert isinstance(outcome, tuple)
    now, asked = outcome
    assert isinstance(asked, Search)
    assert (asked.side, asked.text) == (now.sides[0], "gelu")
    assert now.session.hits is not None


def test_hits_of_a_page_are_not_searched_for_again_when_more_is_read(
    shaped: Trace,
) -> None:
    state = after(opened(shaped), *do("kernels", "show"))
    reading = replace(state, reading=Reading("big.json", 10, 100, shown=True))
    assert not isinstance(registry.arrived(reading, state.sides), tuple)


def test_an_answer_holds_when_more_is_known_of_the_trace(shaped: Trace) -> None:
    """The reasons of idle time, say, came while the search went on."""
    state = opened(shaped)
    *_, arrived = posted_about(state, "blue")
    waiting = explained(replace(state, wanted_hit="blue"))
    assert waiting.side is not state.side
    there = after(waiting, arrived)
    assert there.session.hits is not None
    assert there.wanted_hit == ""


def test_typed_text_is_searched_for_again_when_the_whole_trace_is_read(
    shaped: Trace,
) -> None:
    """Rows of a part of the trace are no rows of the whole."""
    state = typed(opened(shaped), "gelu")
    reading = replace(state, reading=Reading("big.json", 10, 100, shown=True))
    outcome = registry.arrived(reading, state.sides)
    assert isinstance(outcome, tuple)
    assert outcome[0].found is None
    assert isinstance(outcome[1], Search)


def test_an_answer_about_another_trace_is_dropped(shaped: Trace, mlp: Trace) -> None:
    state = after(opened(shaped), *do("search"))
    *_, arrived = posted_about(opened(mlp), "gelu")
    assert arrived(state) is state


def test_the_place_among_the_hits_is_that_of_today(
    mlp: Trace, trace_of: Callable[..., Trace]
) -> None:
    """When more of the trace was read, there are more hits."""
    state = after(opened(mlp), partial(search.searched, text="gelu"))
    assert state.hint.startswith("1 of 4")
    reading = replace(state, reading=Reading("big.json", 10, 100, shown=True))
    outcome = registry.arrived(reading, make_sides([trace_of(mlp_events(3))], ["mlp"]))
    assert isinstance(outcome, tuple)
    assert outcome[0].hint.startswith("1 of 6")


@pytest.mark.parametrize("keys", [("hits",), ("kernels", "instances")], ids=str)
def test_a_list_holds_when_more_of_its_trace_is_read(
    mlp: Trace, trace_of: Callable[..., Trace], keys: Sequence[str]
) -> None:
    """The slice under its cursor stays, and Enter leads to it."""
    side = opened(mlp).side
    state = after(opened(mlp), partial(search.searched, text="gelu"), *do(*keys))
    state = after(state, *do("row-down"))
    more = make_sides([trace_of([*mlp_events(3), *before_all()])], ["mlp"])
    reading = replace(state, reading=Reading("big.json", 10, 100, shown=True))
    now = after(reading, partial(registry.arrived, sides=more))
    start = side.trace.start[under_cursor(state)]
    assert now.side.trace.start[under_cursor(now)] == start
    there = after(now, *do("show"))
    assert there.side.trace.start[there.view.selected] == start


def before_all() -> list[dict[str, object]]:
    """Slices whose rows come before all others."""
    event = {"ph": "X", "cat": "cpu_op", "name": "f", "pid": 1, "tid": 0, "dur": 1}
    return [{**event, "ts": ts} for ts in range(0, 20, 2)]


def under_cursor(state: State) -> int:
    assert isinstance(state.overlay, HitList)
    assert state.overlay.side.trace is state.side.trace
    return int(state.overlay.hits.rows[state.list_of(OVERLAY).cursor])
