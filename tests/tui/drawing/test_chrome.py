"""The top line says what a person must know before sharing a trace."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fusetui.trace import Trace
from fusetui.trace.scrub.detect import secrets_of
from fusetui.tui.drawing.chrome import Tab, find_tab, head, make_tab_bar
from fusetui.tui.layout.view import Side

Open = Callable[..., Trace]
TOKEN = "hf_" + "aB3dE5gH7jK9" * 3


def test_a_secret_is_named_and_not_told(
    trace_of: Open, event: Callable[..., dict[str, object]]
) -> None:
    trace = trace_of([event()], metadata={"env": {"HF_TOKEN": TOKEN, "HOME": "/root"}})
    line = head(Side(trace, (), 0, "a"), 120)
    assert "looks like a secret: HF_TOKEN" in line
    assert TOKEN not in line


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_secret_does_not_displace_device_steps_and_times(
    trace_of: Open, event: Callable[..., dict[str, object]], width: int
) -> None:
    step = event("ProfilerStep#1", 0, 100, cat="user_annotation")
    kernel = event("k", 10, 50, cat="kernel", pid=0, tid=7)
    devices = [{"id": 0, "name": "NVIDIA H100"}]
    told = {"metadata": {"HF_TOKEN": TOKEN}, "deviceProperties": devices}
    line = head(Side(trace_of([step, kernel], **told), (), 0, "a"), width)
    assert line.startswith("a   NVIDIA H100   1 step   100 us   GPU busy 50 us")
    assert ("secret" in line) == (width == 100)


def test_a_token_in_the_name_of_an_event_or_a_lane_is_told(
    trace_of: Open, event: Callable[..., dict[str, object]]
) -> None:
    thread = {
        "ph": "M",
        "name": "thread_name",
        "pid": 1,
        "tid": 1,
        "args": {"name": f"x {TOKEN}"},
    }
    assert secrets_of(trace_of([event(f"load {TOKEN}")])) == ("a Hugging Face token",)
    assert secrets_of(trace_of([event(), thread])) == ("a Hugging Face token",)


@pytest.mark.parametrize("kind", ["process_name", "process_labels"])
def test_a_token_in_the_name_of_a_process_is_reported(
    trace_of: Open, event: Callable[..., dict[str, object]], kind: str
) -> None:
    value = f"python train.py --token {TOKEN}"
    key = "name" if kind == "process_name" else "labels"
    process = {"ph": "M", "name": kind, "pid": 1, "tid": 0, "args": {key: value}}
    assert "a Hugging Face token" in secrets_of(trace_of([event(), process]))


def test_nothing_is_said_of_a_trace_without_secrets(
    trace_of: Open, event: Callable[..., dict[str, object]]
) -> None:
    trace = trace_of(
        [event("TOKENIZERS_PARALLELISM=false")], metadata={"cache_key": "a1" * 20}
    )
    assert "secret" not in head(Side(trace, (), 0, "a"), 200)


def test_a_trace_that_nobody_recorded_says_so(
    trace_of: Open, event: Callable[..., dict[str, object]]
) -> None:
    trace = trace_of([event()], reconstructed="from published times")
    assert "reconstructed, not recorded" in head(Side(trace, (), 0, "a"), 120)


def test_busy_is_a_time_and_no_share(
    trace_of: Open, event: Callable[..., dict[str, object]]
) -> None:
    """Shares are those of the verdict, which is about a step: two shares would
    contradict."""
    kernels = [event(f"k{n}", 100, 50, cat="kernel", pid=n, tid=7) for n in range(2)]
    one, both = (Side(trace_of(kernels[:n]), (), 0, "a") for n in (1, 2))
    assert "GPU busy 50 us   " in head(one, 120)
    assert "GPUs busy 100 us in all   " in head(both, 120)


TITLES = {
    "Timeline": "Time",
    "Op tree": "Tree",
    "Kernels": "Kern",
    "Diff": "Diff",
    "Why": "Why",
    "Modules": "Mod",
    "Ranks": "Ranks",
    "Flame": "Flame",
    "Memory": "Mem",
}


def tabs(in_front: str = "Timeline") -> tuple[Tab, ...]:
    """The nine pages, of which one is in front."""
    return tuple(
        Tab(
            name=title,
            key=str(number),
            title=title,
            short=short,
            is_here=title == in_front,
            is_missing=False,
        )
        for number, (title, short) in enumerate(TITLES.items(), start=1)
    )


def bar(width: int, in_front: str = "Timeline") -> str:
    """The bar of pages."""
    parts = make_tab_bar(tabs(in_front)).line(0, width, 1)
    return "".join(text for text, _ in parts)


def test_all_pages_have_their_names_at_80_columns() -> None:
    line = bar(80)
    assert len(line) <= 80
    for number, title in enumerate(TITLES, start=1):
        assert f" {number} {title}" in line


def test_names_are_short_where_there_is_less_room() -> None:
    line = bar(66)
    assert len(line) <= 66
    for number, short in enumerate(TITLES.values(), start=1):
        assert f" {number} {short}" in line


@pytest.mark.parametrize("in_front", TITLES)
def test_at_60_columns_there_are_all_keys_and_the_name_in_front(in_front: str) -> None:
    line = bar(60, in_front)
    assert len(line) <= 60
    assert in_front in line
    assert [word for word in line.split() if word.isdigit()] == [*"123456789"]


@pytest.mark.parametrize("width", [40, 60, 66, 80, 100, 120])
def test_a_click_meets_the_page_whose_key_is_there(width: int) -> None:
    line = bar(width)
    for number, title in enumerate(TITLES, start=1):
        assert find_tab(tabs(), line.index(str(number)), width) == title
    assert find_tab(tabs(), len(line), width) == ""
