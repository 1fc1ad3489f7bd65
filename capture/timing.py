"""Time per step with the profiler off, in integer ns: CUDA events on a GPU, a clock on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median_low
from time import perf_counter_ns

import torch

from .record import StepTime

Call = Callable[[], object]

WARM_UP_NS, WARM_UP_LIMIT_NS = 200_000_000, 2_000_000_000
"""The minimum and maximum time of warming up; in between, it ends when step times are stable."""
WINDOW, LARGEST_CHANGE = 10, 0.05
"""Step times are stable if the medians of two windows of steps differ by at most 5 %."""
MIN_SAMPLES, MAX_SAMPLES = 10, 500


@dataclass(frozen=True)
class Timing:
    """The time per step, and whether the step time had settled when measuring began."""

    step_ns: StepTime
    warm_up_steps: int
    settled: bool


def time_steps(call: Call, device_kind: str, seconds: float) -> Timing:
    """Warms up until the step time has settled, then times single steps for `seconds`."""
    durations = _warm_up(call, synchronizer(device_kind))
    n = sample_count(durations[-1], round(seconds * 1e9))
    samples = _time_on_gpu(call, n) if device_kind == "cuda" else _time_on_cpu(call, n)
    return Timing(summarize(samples), len(durations), settled(durations))


def synchronizer(device_kind: str) -> Callable[[], None]:
    """A function that waits until the device has done all its work."""
    return torch.cuda.synchronize if device_kind == "cuda" else lambda: None


def sample_count(step_ns: int, budget_ns: int) -> int:
    """The number of steps of that duration that fit the budget, within bounds."""
    return min(max(budget_ns // max(step_ns, 1), MIN_SAMPLES), MAX_SAMPLES)


def summarize(samples_ns: Sequence[int]) -> StepTime:
    """Median and 10th and 90th percentile; each is one of the samples (nearest rank)."""
    ordered = sorted(samples_ns)

    def percentile(share: float) -> int:
        return ordered[max(ceil(share * len(ordered)) - 1, 0)]

    return StepTime(median_low(ordered), percentile(0.1), percentile(0.9), len(ordered))


def settled(durations: Sequence[int]) -> bool:
    """Whether the last steps took as long as those before them."""
    if len(durations) < 2 * WINDOW:
        return False
    before = median_low(durations[-2 * WINDOW : -WINDOW])
    return abs(median_low(durations[-WINDOW:]) - before) <= LARGEST_CHANGE * before


def _warm_up(call: Call, synchronize: Callable[[], None]) -> list[int]:
    """Runs steps until clocks and caches have settled; returns the duration of each in ns."""
    begin = perf_counter_ns()
    durations: list[int] = []
    while True:
        start = perf_counter_ns()
        call()
        synchronize()
        now = perf_counter_ns()
        durations.append(now - start)
        enough = len(durations) >= 3 and now - begin >= WARM_UP_NS
        if enough and (now - begin >= WARM_UP_LIMIT_NS or settled(durations)):
            return durations


def _time_on_cpu(call: Call, n: int) -> list[int]:
    samples = []
    for _ in range(n):
        begin = perf_counter_ns()
        call()
        samples.append(perf_counter_ns() - begin)
    return samples


def _time_on_gpu(call: Call, n: int) -> list[int]:
    """Times steps with pairs of events, read after all steps, so that no step waits for a
    reading."""
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(n)]
    for begin, end in pairs:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [round(begin.elapsed_time(end) * 1_000_000) for begin, end in pairs]
