"""What waits for what where that is not recorded, and communication that others no
longer wait for only because they are behind it on a stream. Times are in us; a launch
call takes 2, its kernel starts 5 after that begins."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.analysis.replay.conftest import Ask
from tests.analysis.replay.events import Event, call, host, kernel, launched

Us = Callable[..., tuple[float, float | None]]
REDUCES = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
)


def reduced(sync: str) -> list[Event]:
    """On one stream a kernel 5-105, a collective until 605, a kernel until 705; the
    thread waits until 710, then launches one of 1000, and waits for that."""
    return [
        *launched(0, 5, 100, 1),
        *launched(2, 105, 500, 2, name=REDUCES),
        *launched(4, 605, 100, 3),
        call(sync, 6, 704, 4),
        *launched(710, 715, 1000, 5),
        call("cudaDeviceSynchronize", 712, 1008, 6),
    ]


@pytest.mark.parametrize("sync", ["cudaDeviceSynchronize", "cudaStreamSynchronize"])
def test_a_thread_still_waits_for_it(us: Us, sync: str) -> None:
    """The collective ends at 605 as it did; the kernel behind it has ended at 205."""
    assert us(reduced(sync), "overlap") == (1720, 605 + 5 + 5 + 1000 + 5)


def test_work_behind_a_removed_collective_no_longer_waits(us: Us) -> None:
    """Of two kernels of 500 behind the collective the last ends at 1105."""
    events = [*reduced("cudaDeviceSynchronize")[:4], *launched(4, 605, 500, 3)]
    events += [*launched(6, 1105, 500, 4)]
    assert us(events, "overlap") == (1605, 1105)


def test_communication_waits_for_the_one_before(us: Us) -> None:
    """The second begins when the first ends, at 605, though the kernel between has
    ended at 205; the last kernel needs neither."""
    events = [*reduced("")[:6], *launched(6, 705, 500, 4, name=REDUCES)]
    events += [*launched(8, 1205, 100, 5)]
    assert us(events, "overlap") == (1305, 605 + 500)


def recorded_event(
    stream: int, awaits: int, record: int, ts: float, number: int
) -> list[Event]:
    args = {"stream": stream, "wait_on_stream": awaits, "correlation": number}
    args["wait_on_cuda_event_record_corr_id"] = record
    return [
        call("cudaStreamWaitEvent", ts, 0.3, number),
        host("Stream Wait Event", ts, 0.3, "cuda_sync", pid=0, tid=stream, args=args),
    ]


def test_an_event_after_it_still_is(us: Us) -> None:
    """A kernel of another stream waits for what stream 7 had been given, the collective
    too."""
    events = [*reduced("")[:6], call("cudaEventRecord", 6, 0.3, 8)]
    events += recorded_event(8, 7, 8, 7, 9)
    events += launched(8, 705, 100, 10, tid=8)
    assert us(events, "overlap") == (805, 605 + 100)


def warm() -> tuple[list[Event], int]:
    """Ten launches that are waited for, which tell the latency; and when they are
    over."""
    events = []
    for n in range(10):
        at = 130 * n
        events += [*launched(at, at + 5, 100, 1000 + n)]
        events += [call("cudaDeviceSynchronize", at + 3, 107, 2000 + n)]
    return events, 1300


@pytest.mark.parametrize("another", [False, True])
def test_removed_collective_still_waits_for_its_input(
    asked: Ask, another: bool
) -> None:
    """A collective of another stream is late, as it waits for a kernel by an event that
    was not recorded, be it the first on its stream or not: it stays as late."""
    events, at = warm()
    if another:  # came first
        events += launched(at, at + 5, 5, 99, name=REDUCES, tid=8)
        at += 100
    events += [
        *launched(at, at + 5, 60, 1),
        call("cudaStreamWaitEvent", at + 3, 0.3, 2),
    ]
    events += launched(at + 6, at + 67, 500, 3, name=REDUCES, tid=8)
    found = asked(events, "overlap")
    assert found.after_ns == found.before_ns == (at + 567) * 1000


def joined(*between: Event) -> list[Event]:
    """A collective of 500 on a stream of its own, then a kernel on stream 7 that begins
    1 after it though launched long before; `between` their launches."""
    events, at = warm()
    events += [
        *launched(at, at + 5, 60, 1),
        *launched(at + 2, at + 7, 500, 2, name=REDUCES, tid=8),
    ]
    events += [event | {"ts": at + event["ts"]} for event in between]
    return [*events, *launched(at + 20, at + 508, 100, 3)]


WAIT = call("cudaStreamWaitEvent", 5, 0.3, 4)
COPY = (
    call("cudaMemcpyAsync", 7, 2, 5),
    kernel(12, 496, 5, "Memcpy HtoD", tid=9, cat="gpu_memcpy"),
)


@pytest.mark.parametrize(("between", "saved"), [((WAIT,), 400), ((WAIT, *COPY), 100)])
def test_work_does_not_wait_for_later_launches(
    asked: Ask, between: tuple[Event, ...], saved: int
) -> None:
    """A copy that ends just after the collective was launched after the wait: the
    kernel ends 100 before it now, which is the last end then."""
    found = asked(joined(*between), "kernel:AllReduce 100us")
    assert found.inferred_waits == 1
    assert "events_unknown" in found.notes
    assert found.saved_ns == saved * 1000


@pytest.mark.parametrize(("between", "said"), [((), True), ((WAIT,), False)])
def test_collective_late_without_a_reason_is_noted(
    asked: Ask, between: tuple[Event, ...], said: bool
) -> None:
    found = asked(joined(*between), "kernel:AllReduce x0")
    assert ("late_unexplained" in found.notes) is said
