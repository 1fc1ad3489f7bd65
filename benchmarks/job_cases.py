"""The cases: which job, what is planted into it, and what an answer must say."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.job_maker import (
    Collective,
    Exchange,
    Job,
    Kernel,
    Op,
    Played,
    Slice,
    played,
)
from benchmarks.job_programs import Fault, Shape, programs
from benchmarks.job_traces import FIRST_STEP, Clock, Recording, write

GEMM = Fault("gemm", 0.12)
LOADING = Fault("loading", 1500.0)
TOKENS = Fault("tokens", 0.15)
SYNC = Fault("sync", 60.0)
SMALL = Fault("gemm", 0.045)
GARBAGE = Fault("gc", 3000.0)
LONG_PAUSE = Fault("gc", 8000.0)
SELDOM = Fault("loading", 4000.0, steps=(2, 5))
SELDOM_SLOW = Fault("gemm", 0.6, steps=(2, 5))
LESS_LOADING = Fault("loading", 1000.0)
LESS_GARBAGE = Fault("gc", 2000.0)
EVEN_STEPS, ODD_STEPS = (0, 2, 4, 6), (1, 3, 5, 7)
ONCE_LOADING = Fault("loading", 8000.0, steps=(3,))
ONCE_GARBAGE = Fault("gc", 8000.0, steps=(3,))
ONCE_SLOW = Fault("gemm", 1.5, steps=(3,))
BEGIN = Fault("begin", 6000.0)
TINY = Fault("gemm", 0.003)
SLOW_STAGE = Fault("gemm", 0.25)
HOSTS = Shape(dp=16, hosts=2, steps=4)
TENSOR = Shape(dp=4, tp=2)
FAR = Shape(dp=2, tp=8, hosts=2, steps=4)
MANY = Shape(dp=8, tp=8, hosts=8, steps=3, layers=1, norm=True)
PIPE = Shape(dp=1, pp=4, layers=1, steps=3)
PIPES = Shape(dp=2, pp=4, layers=1, steps=3)
CPU = Shape(dp=4, gloo=True, scale=10.0, steps=4, layers=2)
FORWARD_TENSOR = Shape(dp=4, tp=2, overlap=True, forward_only=True)
FORWARD_TENSOR_SMALL = FORWARD_TENSOR._replace(dp=2)
FORWARD_TENSOR_WIDE = FORWARD_TENSOR._replace(dp=2, tp=4)
BOTH_TENSOR = FORWARD_TENSOR._replace(forward_only=False)
FORWARD_BUSY = FORWARD_TENSOR._replace(data_us=900.0)
FORWARD_BUSY_SMALL = FORWARD_TENSOR_SMALL._replace(data_us=900.0)
BOTH_SMALL = BOTH_TENSOR._replace(dp=2)
BOTH_WIDE = BOTH_TENSOR._replace(dp=2, tp=4)
BOTH_BUSY = BOTH_TENSOR._replace(data_us=900.0)
BOTH_BUSY_SMALL = BOTH_SMALL._replace(data_us=900.0)
BOTH_BUSY_WIDE = BOTH_WIDE._replace(data_us=900.0)
BOUND_TENSOR = FORWARD_TENSOR._replace(data_us=1700.0)
PLAIN = Shape()
LONG = Shape(dp=4, steps=8)
DRIFTING = HOSTS._replace(scale=6.0)
LONG_DRIFTING = DRIFTING._replace(dp=8, layers=1, steps=8)
LONG_TENSOR = FORWARD_TENSOR_SMALL._replace(steps=8)
DDP = Shape(overlap=True)
FSDP = Shape(sharded=True)


class Case(NamedTuple):
    """`expect`: rank (the culprit is named), ranks (both culprits are), nobody, stage
    (its ranks), flips (nobody, and the total), outside (the culprit is not given).
    `second`: the fault of another rank. `apart`: us between the clocks of the hosts."""

    family: str
    name: str
    shape: Shape
    expect: str = "nobody"
    fault: Fault | None = None
    apart: float = 0.0
    drift: float = 0.0
    names: bool = True
    given: float = 1.0  # share of the ranks
    torn: float = 0.0  # us by which the clock of one rank is ahead of its own host's
    lost: str = ""  # collectives of one rank: first, middle, shifted
    second: Fault | None = None


CASES = (
    Case("straggler, one host", "dp-gemm", PLAIN, "rank", GEMM),
    Case("straggler, one host", "dp-loading", PLAIN, "rank", LOADING),
    Case("straggler, one host", "dp-tokens", PLAIN, "rank", TOKENS),
    Case("straggler, one host", "dp-sync", PLAIN, "rank", SYNC),
    Case("straggler, one host", "dp-sometimes", PLAIN, "rank", LOADING._replace(steps=(0, 2, 3))),
    Case("straggler, one host", "dp-small", PLAIN, "rank", SMALL),
    Case("late in 2 of 8 steps", "few-loading", LONG, "rank", SELDOM),
    Case("late in 2 of 8 steps", "few-tp2dp2-loading", LONG_TENSOR, "rank", SELDOM),
    Case("late in 2 of 8 steps", "few-gemm", LONG, "rank", SELDOM_SLOW),
    Case("late in 1 of 8 steps", "once-loading", LONG, "rank", ONCE_LOADING),
    Case("late in 1 of 8 steps", "once-gc", LONG, "rank", ONCE_GARBAGE),
    Case("late in 1 of 8 steps", "once-gemm", LONG, "rank", ONCE_SLOW),
    Case("late in 1 of 8 steps", "once-tp2dp2-loading", LONG_TENSOR, "rank", ONCE_LOADING),
    Case("late in 1 of 8 steps", "once-drift", LONG_DRIFTING, "rank",
         ONCE_LOADING._replace(amount=20_000.0), apart=1000, drift=50e-6),
    Case("two late ranks, same steps", "pair-loading", PLAIN, "ranks", LOADING,
         second=LESS_LOADING),
    Case("two late ranks, same steps", "pair-gc", PLAIN, "ranks", GARBAGE, second=LESS_GARBAGE),
    Case("two late ranks, same steps", "pair-loading-gemm", PLAIN, "ranks", LOADING, second=GEMM),
    Case("two late ranks, same steps", "pair-few", LONG, "ranks", SELDOM, second=SELDOM),
    Case("two late ranks, same steps", "pair-drift", DRIFTING, "ranks",
         LOADING._replace(amount=6000.0), apart=1000, drift=50e-6,
         second=LOADING._replace(amount=5000.0)),
    # Nobody is late in most steps, so the total is to be reported, as of ranks that
    # flip.
    Case("two late ranks, other steps", "turns-loading", LONG, "flips",
         LOADING._replace(steps=EVEN_STEPS), second=LOADING._replace(steps=ODD_STEPS)),
    Case("two late ranks, other steps", "turns-gc", LONG, "flips",
         LONG_PAUSE._replace(steps=EVEN_STEPS), second=LONG_PAUSE._replace(steps=ODD_STEPS)),
    Case("two late ranks, other steps", "turns-few", LONG, "flips", SELDOM,
         second=SELDOM_SLOW._replace(steps=(1, 6))),
    Case("two late ranks, other steps", "turns-drift", LONG_DRIFTING, "flips",
         LOADING._replace(amount=6000.0, steps=EVEN_STEPS), apart=1000, drift=50e-6,
         second=LOADING._replace(amount=6000.0, steps=ODD_STEPS)),
    Case("late before the window", "dp-begin", PLAIN, "rank", BEGIN),
    Case("late before the window", "tp2dp4-begin", TENSOR, "rank", BEGIN),
    Case("gradients overlapped", "ddp-gemm", DDP, "rank", GEMM),
    Case("gradients overlapped", "ddp-loading", DDP, "rank", LOADING),
    Case("sharded parameters", "fsdp-gemm", FSDP, "rank", GEMM),
    Case("sharded parameters", "fsdp-loading", FSDP, "rank", LOADING),
    Case("two hosts", "hosts-0", HOSTS, "rank", GEMM),
    Case("two hosts", "hosts-0.2ms", HOSTS, "rank", GEMM, apart=200),
    Case("two hosts", "hosts-1ms", HOSTS, "rank", GEMM, apart=-1000),
    Case("two hosts", "hosts-5ms", HOSTS, "rank", GEMM, apart=5000),
    Case("two hosts", "hosts-5ms-loading", HOSTS, "rank", LOADING, apart=-5000),
    Case("two hosts", "hosts-1ms-small", HOSTS, "rank", SMALL, apart=1000),
    Case("two hosts, drift", "drift", HOSTS._replace(scale=6.0), "rank", GEMM, 1000, 50e-6),
    Case("two hosts, no names", "unnamed-1ms", HOSTS, "rank", GEMM, apart=1000, names=False),
    Case("tensor in data", "tp2dp4-gemm", TENSOR, "rank", GEMM),
    Case("tensor in data", "tp2dp4-tokens", TENSOR, "rank", TOKENS),
    Case("tensor in data", "tp2dp4-loading", TENSOR, "rank", LOADING),
    Case("tensor in data", "tp4dp2-sync", Shape(dp=2, tp=4), "rank", SYNC),
    Case("tensor forward, overlapped", "fw-tp2dp2-loading", FORWARD_TENSOR_SMALL, "rank", LOADING),
    Case("tensor forward, overlapped", "fw-tp2dp4-loading", FORWARD_TENSOR, "rank", LOADING),
    Case("tensor forward, overlapped", "fw-tp4dp2-loading", FORWARD_TENSOR_WIDE, "rank", LOADING),
    Case("tensor forward, overlapped", "fw-tp2dp2-gc", FORWARD_TENSOR_SMALL, "rank", GARBAGE),
    Case("tensor forward, overlapped", "fw-tp2dp4-gc", FORWARD_TENSOR, "rank", GARBAGE),
    Case("tensor forward, overlapped", "fw-tp4dp2-gc", FORWARD_TENSOR_WIDE, "rank", GARBAGE),
    Case("tensor forward, overlapped", "fw-tp2dp2-gemm", FORWARD_TENSOR_SMALL, "rank", GEMM),
    Case("tensor forward, overlapped", "fw-tp2dp4-gemm", FORWARD_TENSOR, "rank", GEMM),
    Case("tensor forward, overlapped", "fw-tp4dp2-gemm", FORWARD_TENSOR_WIDE, "rank", GEMM),
    Case("tensor forward, overlapped", "fw-tp2dp2-balanced", FORWARD_TENSOR_SMALL),
    Case("tensor forward, overlapped", "fw-tp2dp4-balanced", FORWARD_TENSOR),
    Case("tensor forward, overlapped", "fw-tp4dp2-balanced", FORWARD_TENSOR_WIDE),
    Case("tensor, overlapped", "both-tp2dp4-loading", BOTH_TENSOR, "rank", LOADING),
    Case("tensor, overlapped", "both-tp2dp4-gc", BOTH_TENSOR, "rank", GARBAGE),
    Case("tensor, overlapped", "both-tp2dp4-gemm", BOTH_TENSOR, "rank", GEMM),
    Case("tensor, overlapped", "both-tp2dp4-balanced", BOTH_TENSOR),
    Case("long pauses", "fw-tp2dp2-pause", FORWARD_TENSOR_SMALL, "rank", LONG_PAUSE),
    Case("long pauses", "fw-tp4dp2-pause", FORWARD_TENSOR_WIDE, "rank", LONG_PAUSE),
    Case("long pauses", "both-tp2dp2-pause", BOTH_SMALL, "rank", LONG_PAUSE),
    Case("long pauses", "both-tp2dp4-pause", BOTH_TENSOR, "rank", LONG_PAUSE),
    Case("long pauses", "both-tp4dp2-pause", BOTH_WIDE, "rank", LONG_PAUSE),
    Case("long reductions", "fw-busy-tp2dp2-gc", FORWARD_BUSY_SMALL, "rank", GARBAGE),
    Case("long reductions", "fw-busy-tp2dp2-pause", FORWARD_BUSY_SMALL, "rank", LONG_PAUSE),
    Case("long reductions", "fw-busy-tp2dp4-loading", FORWARD_BUSY, "rank", LOADING),
    Case("long reductions", "fw-busy-tp2dp4-pause", FORWARD_BUSY, "rank", LONG_PAUSE),
    Case("long reductions", "both-busy-tp2dp2-gc", BOTH_BUSY_SMALL, "rank", GARBAGE),
    Case("long reductions", "both-busy-tp2dp2-pause", BOTH_BUSY_SMALL, "rank", LONG_PAUSE),
    Case("long reductions", "both-busy-tp2dp2-loading", BOTH_BUSY_SMALL, "rank", LOADING),
    Case("long reductions", "both-busy-tp2dp4-gc", BOTH_BUSY, "rank", GARBAGE),
    Case("long reductions", "both-busy-tp2dp4-pause", BOTH_BUSY, "rank", LONG_PAUSE),
    Case("long reductions", "both-busy-tp2dp4-loading", BOTH_BUSY, "rank", LOADING),
    Case("long reductions", "both-busy-tp2dp4-gemm", BOTH_BUSY, "rank", GEMM),
    Case("long reductions", "both-busy-tp4dp2-loading", BOTH_BUSY_WIDE, "rank", LOADING),
    Case("long reductions", "both-busy-tp2dp4-balanced", BOTH_BUSY),
    Case("tensor forward, slow links", "bound-tp2dp4-loading", BOUND_TENSOR, "rank", LOADING),
    Case("tensor forward, slow links", "bound-tp2dp4-gemm", BOUND_TENSOR, "rank", GEMM),
    Case("tensor forward, slow links", "bound-tp2dp4-balanced", BOUND_TENSOR),
    Case("tensor in data, two hosts", "tp8dp2-gemm", FAR, "rank", GEMM, apart=1000),
    Case("tensor in data, two hosts", "tp8dp2-loading", FAR, "rank", LOADING, apart=5000),
    Case("64 ranks on 8 hosts", "many-gemm", MANY, "rank", GEMM, apart=700),
    Case("64 ranks on 8 hosts", "many-balanced", MANY, apart=700),
    Case("pipeline, balanced", "pp4", PIPE),
    Case("pipeline, balanced", "pp4-batched", PIPE._replace(batched=True)),
    Case("pipeline, balanced", "pp4-norm", PIPE._replace(norm=True)),
    Case("pipeline, balanced", "pp4dp2", PIPES),
    Case("pipeline, balanced", "pp4dp2-hosts", PIPES._replace(dp=4, hosts=2), apart=1000),
    Case("pipeline, slow stage", "pp4-slow", PIPE, "stage", SLOW_STAGE),
    Case("pipeline, slow stage", "pp4-slow-batched", PIPE._replace(batched=True), "stage",
         SLOW_STAGE),
    Case("pipeline, slow stage", "pp4-slow-norm", PIPE._replace(norm=True), "stage", SLOW_STAGE),
    Case("pipeline, slow stage", "pp4dp2-slow", PIPES, "stage", SLOW_STAGE),
    Case("pipelines, one slow rank", "pp4dp2-gemm", PIPES, "rank", SLOW_STAGE),
    Case("pipelines, one slow rank", "pp4dp2-loading", PIPES, "rank", Fault("loading", 4000.0)),
    Case("gloo", "gloo-gemm", CPU, "rank", GEMM),
    Case("gloo", "gloo-loading", CPU, "rank", Fault("loading", 20_000.0)),
    Case("gloo", "gloo-balanced", CPU),
    Case("gloo, two groups", "gloo-tp2dp2", CPU._replace(dp=2, tp=2), "rank", GEMM),
    Case("a flip in each step", "flips", PLAIN, "flips", LOADING),
    Case("a flip in each step", "flips-hosts", HOSTS, "flips", LOADING, apart=1000),
    Case("0.2 % of the step", "tiny", PLAIN, "nobody", TINY),
    Case("0.2 % of the step", "tiny-tp2dp4", TENSOR, "nobody", TINY),
    Case("0.2 % of the step", "tiny-hosts", HOSTS, "nobody", TINY, apart=1000),
    Case("balanced", "balanced-dp", PLAIN),
    Case("balanced", "balanced-ddp", DDP),
    Case("balanced", "balanced-fsdp", FSDP),
    Case("balanced", "balanced-tp2dp4", TENSOR),
    Case("balanced", "balanced-hosts", HOSTS, apart=5000),
    Case("culprit not given", "partial-dp", PLAIN, "outside", LOADING, given=0.5),
    Case("culprit not given", "partial-tp2dp4", TENSOR, "outside", LOADING, given=0.5),
    Case("others not given", "partial-others", PLAIN, "rank", LOADING, given=0.5),
    Case("clocks torn on a host", "torn", PLAIN, "rank", LOADING, torn=3000),
    Case("clocks torn on a host", "torn-balanced", PLAIN, torn=3000),
    Case("collectives lost", "lost-first", PLAIN, "rank", LOADING, lost="first"),
    Case("collectives lost", "lost-middle", PLAIN, "rank", LOADING, lost="middle"),
    Case("collectives lost", "lost-shifted", PLAIN, "rank", LOADING, lost="shifted"),
)  # fmt: skip


class Culprit(NamedTuple):
    """One of several ranks that are late. Times in ns per step, by the true clock.

    `planted` is its own delay. `charged` is what of it others wait for this rank, if
    what both make them wait is shared as docs/ranks.md defines it. `ordinary` is how
    long a step would take without the fault of this rank alone.
    """

    rank: int
    cause: str
    planted: float
    charged: float
    ordinary: float
    late_steps: Sequence[int]  # as in Truth
    longer: Sequence[float]
    held_up: Sequence[float]


class Truth(NamedTuple):
    """What was planted. Times in ns per step, by the true clock.

    `planted` is the own delay of a culprit: of a pause by how much it makes the job
    longer, since how much of it the work that was queued hides depends on the other
    ranks. `waited` is by how much longer the others (their mean) stand still in
    collectives than without it: less, as their own noise makes them wait as well.
    `noise` is how long the others wait without it. `longer` is by how much each step is
    longer; `held_up`, of a pause, how long the others (their mean) wait for it by the
    step in which it is. `step` and `ordinary` are how long a step takes, and would without the
    fault. `culprits` are the ranks that have it. `waits` is by rank how long it stands
    still in collectives for one that has not arrived, at least and at most (with
    transfers that lateness has pushed there where gradients are overlapped); `bubble`
    the share of a step in sends and receives.
    """

    case: str
    family: str
    seed: int
    expect: str
    culprits: list[int]
    planted: float
    waited: float
    step: float
    ordinary: float
    steps: int
    given: list[int]
    waits: list[tuple[float, float]]
    bubble: float
    cause: str
    apart_us: float
    # the numbers of the steps with the fault, () for all
    late_steps: Sequence[int] = ()
    noise: float = 0.0
    longer: Sequence[float] = ()
    held_up: Sequence[float] = ()
    several: Sequence[Culprit] = ()  # where several are to be named


def make(case: Case, seed: int, folder: Path) -> Truth:
    """Writes the files of one case, and tells what is in them."""
    shape, chance = case.shape, random.Random(f"{case.name} {seed}")
    number = chance.randrange(10_000)
    faults = _faults(case, chance)
    late = {rank: one.amount for rank, one in faults.items() if one.kind == "begin"}
    job = Job(programs(shape, number, faults), _hosts(shape), number, shape.gloo, late)
    whole = played(job)
    ordinary = played(job._replace(programs=programs(shape, number, {}), late={}))
    slices = _without(whole.slices, case.lost, chance.randrange(shape.ranks))
    write(job, slices, _recording(case, chance), folder)
    given = _given(case, sorted(faults), chance)
    for rank in set(range(shape.ranks)) - set(given):
        (folder / f"rank{rank}.json").unlink()
    step, without = _step(shape, whole.slices), _step(shape, ordinary.slices)
    is_pause = case.fault is not None and case.fault.kind == "gc"
    several = _several(job, shape, faults, ordinary) if case.second is not None else []
    return Truth(
        case.name,
        case.family,
        seed,
        case.expect,
        sorted(faults),
        step - without if is_pause else _planted(shape, number, faults),
        _waited(shape, whole, ordinary, set(faults)),
        step,
        without,
        shape.steps,
        given,
        _waits(shape, whole),
        1e3
        * sum(whole.bubble)
        / shape.ranks
        / shape.steps
        / _step(shape, whole.slices),
        case.fault.kind if case.fault else "",
        case.apart,
        [FIRST_STEP + step for step in case.fault.steps] if case.fault else [],
        1e3
        * _mean(
            [ordinary.waited[rank] for rank in set(range(shape.ranks)) - set(faults)]
        )
        / shape.steps,
        _longer(whole, ordinary),
        (
            _held_up(job, shape, min(faults), case.fault, ordinary)
            if is_pause and case.fault and len(faults) == 1
            else ()
        ),
        several,
    )


def _several(
    job: Job, shape: Shape, faults: dict[int, Fault], ordinary: Played
) -> list[Culprit]:
    """What each of two ranks that are late adds, and what others then wait for it."""
    without_both = _step(shape, ordinary.slices)
    found = []
    for rank, fault in faults.items():
        others = {other: one for other, one in faults.items() if other != rank}
        without = played(job._replace(programs=programs(shape, job.seed, others)))
        alone = played(job._replace(programs=programs(shape, job.seed, {rank: fault})))
        if fault.kind == "gc":
            planted = _step(shape, alone.slices) - without_both
        else:
            planted = _planted(shape, job.seed, {rank: fault})
        one = Culprit(
            rank=rank,
            cause=fault.kind,
            planted=planted,
            charged=planted,
            ordinary=_step(shape, without.slices),
            late_steps=[FIRST_STEP + step for step in fault.steps],
            longer=_longer(alone, ordinary),
            held_up=(
                _held_up(job, shape, rank, fault, ordinary)
                if fault.kind == "gc"
                else ()
            ),
        )
        found.append(one)
    first, second = sorted(found, key=lambda one: one.planted)
    if faults[first.rank].steps == faults[second.rank].steps:
        # Both are missing until the first one arrives: each is charged with half of
        # that.
        shared = first.planted / 2
        first = first._replace(charged=shared)
        second = second._replace(charged=second.planted - shared)
    return [first, second]


def _mean(us: Sequence[float]) -> float:
    return sum(us) / max(1, len(us))


def _longer(whole: Played, ordinary: Played) -> list[float]:
    """ns by which each step of the job lasts longer with the fault: until the last rank
    ends it."""
    ends, before = _ends_of_steps(whole), _ends_of_steps(ordinary)
    later = [1e3 * (end - was) for end, was in zip(ends, before, strict=True)]
    return [now - was for now, was in zip(later, [0.0, *later], strict=False)]


def _held_up(
    job: Job, shape: Shape, rank: int, fault: Fault, ordinary: Played
) -> list[float]:
    """ns that the mean of the others waits longer for what the fault does in each step,
    in whichever step it waits: with the fault in the steps up to this one, beside with
    it in those before."""
    waited = [0.0]
    for step in range(shape.steps):
        steps = tuple(one for one in fault.steps or range(shape.steps) if one <= step)
        faults = {rank: fault._replace(steps=steps)} if steps else {}
        so_far = played(job._replace(programs=programs(shape, job.seed, faults)))
        waited.append(shape.steps * _waited(shape, so_far, ordinary, {rank}))
    return [now - before for before, now in pairwise(waited)]


def _ends_of_steps(of: Played) -> list[float]:
    own = [[one.end for one in mine if one.kind == "step"] for mine in of.slices]
    return [max(ends) for ends in zip(*own, strict=True)]


def _hosts(shape: Shape) -> list[int]:
    each = -(-shape.ranks // shape.hosts)
    return [rank // each for rank in range(shape.ranks)]


def _faults(case: Case, chance: random.Random) -> dict[int, Fault]:
    if case.fault is None:
        return {}
    shape = case.shape
    if case.expect == "flips" and case.second is None:
        late = chance.sample(range(shape.ranks), shape.steps)
        return {
            rank: case.fault._replace(steps=(step,)) for step, rank in enumerate(late)
        }
    each = shape.dp * shape.tp
    # the first stage reads batches
    loads = each if case.fault.kind == "loading" else shape.ranks
    rank = chance.randrange(loads)
    if case.second is not None:
        other = chance.choice([one for one in range(shape.ranks) if one != rank])
        return {rank: case.fault, other: case.second}
    if case.expect == "stage":
        stage = rank // each
        return dict.fromkeys(range(stage * each, (stage + 1) * each), case.fault)
    return {rank: case.fault}


def _recording(case: Case, chance: random.Random) -> Recording:
    shape = case.shape
    torn = chance.randrange(shape.ranks)
    clocks = [
        Clock(
            host * case.apart + (case.torn if rank == torn else 0.0),
            host * case.drift,
        )
        for rank, host in enumerate(_hosts(shape))
    ]
    return Recording(shape.groups(), clocks, case.names, seq=not case.lost)


def _given(case: Case, culprits: Sequence[int], chance: random.Random) -> list[int]:
    every = list(range(case.shape.ranks))
    count = round(case.given * len(every))
    if count == len(every):
        return every
    rest = [rank for rank in every if rank not in culprits]
    kept = [] if case.expect == "outside" else list(culprits)
    return sorted(kept + chance.sample(rest, count - len(kept)))


def _without(slices: list[list[Slice]], lost: str, rank: int) -> list[list[Slice]]:
    """Collectives that the profiler did not record."""

    def kept(mine: list[Slice], place: int) -> list[Slice]:
        links = [one.link for one in mine if isinstance(one.what, Collective) and
                 one.kind == "kernel"]  # fmt: skip
        gone = links[place]
        return [one for one in mine if one.link != gone]

    if lost == "shifted":  # one begins a collective later, and ends one later
        return [
            kept(mine, 0 if number == rank else -1)
            for number, mine in enumerate(slices)
        ]
    if lost:
        place = 0 if lost == "first" else 7
        return [
            kept(mine, place) if number == rank else mine
            for number, mine in enumerate(slices)
        ]
    return slices


def _step(shape: Shape, slices: Sequence[Sequence[Slice]]) -> float:
    """ns."""
    ends = [max(one.end for one in mine) for mine in slices]
    return 1e3 * (max(ends) - min(mine[0].start for mine in slices)) / shape.steps


def _planted(shape: Shape, seed: int, faults: dict[int, Fault]) -> float:
    """ns per step by which the faults make a rank later, if it meets nobody. Ranks late
    in the same steps are one, those late in different steps add up."""
    late = [one.amount for one in faults.values() if one.kind == "begin"] or [
        _alone(shape, programs(shape, seed, faults)[rank])
        - _alone(shape, programs(shape, seed, {})[rank])
        for rank in faults
    ]
    together = len({fault.steps for fault in faults.values()})
    return 1e3 * sum(late) / max(1, len(late)) * together / shape.steps


def _alone(shape: Shape, program: Sequence[Op]) -> float:
    """us that a rank takes where others never let it wait."""
    own = [
        Kernel("c10d", "", op.us, ()) if isinstance(op, Collective | Exchange) else op
        for op in program
    ]
    (mine,) = played(Job([own], [0], 0, shape.gloo)).slices
    return max(one.end for one in mine) - min(one.start for one in mine)


def _waited(shape: Shape, whole: Played, ordinary: Played, late: set[int]) -> float:
    """ns per step that the mean of the others waits longer than without the fault."""
    pairs = zip(whole.waited, ordinary.waited, strict=True)
    others = [
        now - before for rank, (now, before) in enumerate(pairs) if rank not in late
    ]
    return 1e3 * sum(others) / max(1, len(others)) / shape.steps


def _waits(shape: Shape, whole: Played) -> list[tuple[float, float]]:
    """ns per step."""
    each = 1e3 / shape.steps
    most = whole.stood if shape.overlap else whole.waited
    return [(us * each, up * each) for us, up in zip(whole.waited, most, strict=True)]


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)
