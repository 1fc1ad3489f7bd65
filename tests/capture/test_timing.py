"""How samples become a step time."""

import pytest

from fusetui.capture.record import StepTime

timing = pytest.importorskip("fusetui.capture.step", reason="needs torch")
pytestmark = pytest.mark.torch


def test_percentiles_are_samples() -> None:
    samples = [10 * n for n in range(10, 0, -1)]
    assert timing.summarize(samples) == StepTime(median=50, p10=10, p90=90, n=10)


def test_every_percentile_of_one_sample_is_that_sample() -> None:
    assert timing.summarize([7]) == StepTime(7, 7, 7, 1)


@pytest.mark.parametrize(
    ("step_ns", "samples"), [(0, 500), (20_000_000, 50), (10**12, 10)]
)
def test_slow_steps_get_fewer_samples(step_ns: int, samples: int) -> None:
    assert timing.sample_count(step_ns, 10**9) == samples


def test_steps_are_timed_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "WARM_UP_NS", 0)
    monkeypatch.setattr(timing, "WARM_UP_LIMIT_NS", 0)
    steps: list[int] = []
    timed = timing.time_steps(lambda: steps.append(1), "cpu", 1e-9)
    assert (timed.step_ns.n, timed.warm_up_steps, len(steps)) == (10, 3, 13)


@pytest.mark.parametrize(
    ("durations", "settled"),
    [
        ([100] * 20, True),
        ([100] * 10 + [104] * 10, True),
        ([100] * 10 + [106] * 10, False),
        ([100] * 19, False),
        ([900] + [100] * 19, True),
        (list(range(400, 200, -10)), False),
    ],
)
def test_steps_have_settled_when_two_windows_agree(
    durations: list[int], settled: bool
) -> None:
    assert timing.is_settled(durations) is settled


def test_warming_up_lasts_until_steps_are_equally_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, durations = [0], iter([50_000_000] * 15 + [20_000_000] * 100)

    def step() -> None:
        now[0] += next(durations)

    monkeypatch.setattr(timing, "perf_counter_ns", lambda: now[0])
    timed = timing.time_steps(step, "cpu", 1)
    assert (timed.warm_up_steps, timed.settled, timed.step_ns.p90) == (
        30,
        True,
        20_000_000,
    )
