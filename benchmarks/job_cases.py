"""The planted jobs: the shape of each, what is planted into it, and what an answer must
say. `make` writes the traces of one."""

from __future__ import annotations

import random
from collections.abc import Sequence
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
    play_job,
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
    """A planted job.

    `expect` is what an answer must say:

    - rank: the culprit is named
    - ranks: both culprits are named
    - stage: nobody else than the ranks of the slow stage is named
    - nobody: nobody is named
    - flips: nobody is named, and the total of the waiting is given
    - outside: nobody is named, as the culprit is not given

    `fault` is planted into one rank, or into all of a stage; `second` into another
    rank. The clock of host n is ahead by `n * apart` us, and by `n * drift` of the time
    that passes. `names`: the traces have the names of hosts. `given` is the share of
    the ranks whose traces are given. `torn`: the clock of one rank is ahead of its own
    host's by so many us. `lost`: which collective of one rank was not recorded, see
    `_drop_lost`.
    """

    family: str
    name: str
    shape: Shape
    expect: str = "nobody"
    fault: Fault | None = None
    apart: float = 0.0
    drift: float = 0.0
    names: bool = True
    given: float = 1.0
    torn: float = 0.0
    lost: str = ""
    second: Fault | None = None

    @property
    def is_pause(self) -> bool:
        return self.fault is not None and self.fault.kind == "gc"


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
    long a step would take without the fault of this rank alone. `late_steps`, `longer`
    and `held_up` are as in Truth.
    """

    rank: int
    cause: str
    planted: float
    charged: float
    ordinary: float
    late_steps: Sequence[int]
    longer: Sequence[float]
    held_up: Sequence[float]


class Truth(NamedTuple):
    """What was planted. Times in ns per step, by the true clock.

    - `culprits`: the ranks with the fault.
    - `planted`: the own delay of a culprit; of a pause, by how much it makes the job
      longer, since it depends on the other ranks how much of it queued work hides.
    - `waited`: by how much longer the others (their mean) stand still in collectives
      than without the fault: less than `planted`, as their own noise makes them wait as
      well.
    - `step` and `ordinary`: how long a step takes, and would take without the fault.
    - `given`: the ranks whose traces are given.
    - `waits`: for each rank, how long it stands still in collectives for one that has
      not arrived: at least, and at most (with transfers that lateness has pushed there
      where gradients are overlapped).
    - `bubble`: the share of a step in sends and receives.
    - `late_steps`: the numbers of the steps with the fault, () for all.
    - `noise`: how long the others wait without the fault.
    - `longer`: by how much each step is longer.
    - `held_up`: of a pause, how long the others (their mean) wait for it, by the step
      in which it is.
    - `several`: the culprits where two are to be named.
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
    late_steps: Sequence[int] = ()
    noise: float = 0.0
    longer: Sequence[float] = ()
    held_up: Sequence[float] = ()
    several: Sequence[Culprit] = ()


def make(case: Case, seed: int, folder: Path) -> Truth:
    """Write the traces of a case into a folder, and return what is planted into them.
    The seed decides which ranks are late, and the noise."""
    shape = case.shape
    generator = random.Random(f"{case.name} {seed}")
    job_seed = generator.randrange(10_000)
    faults = _choose_faults(case, generator)
    late_us = {
        rank: fault.amount for rank, fault in faults.items() if fault.kind == "begin"
    }
    job = Job(
        programs=programs(shape, job_seed, faults),
        hosts=_assign_hosts(shape),
        seed=job_seed,
        gloo=shape.gloo,
        late=late_us,
    )
    played_with_faults = play_job(job)
    played_without_faults = play_job(
        job._replace(programs=programs(shape, job_seed, {}), late={})
    )
    lossy_rank = generator.randrange(shape.ranks)
    slices = _drop_lost(played_with_faults.slices, case.lost, lossy_rank)
    write(job, slices, _make_recording(case, generator), folder)

    given = _choose_given_ranks(case, sorted(faults), generator)
    for rank in range(shape.ranks):
        if rank not in given:
            (folder / f"rank{rank}.json").unlink()

    step_ns = _mean_step_ns(shape, played_with_faults)
    ordinary_ns = _mean_step_ns(shape, played_without_faults)
    if case.is_pause:
        planted_ns = step_ns - ordinary_ns
    else:
        planted_ns = _compute_planted_ns(shape, job_seed, faults)

    noises_us = [
        played_without_faults.waited[rank]
        for rank in range(shape.ranks)
        if rank not in faults
    ]

    held_up: Sequence[float] = ()
    if case.fault is not None and case.is_pause and len(faults) == 1:
        held_up = _list_held_up_ns(
            job, shape, min(faults), case.fault, played_without_faults
        )

    several: Sequence[Culprit] = ()
    if case.second is not None:
        several = _make_two_culprits(job, shape, faults, played_without_faults)

    return Truth(
        case=case.name,
        family=case.family,
        seed=seed,
        expect=case.expect,
        culprits=sorted(faults),
        planted=planted_ns,
        waited=_mean_extra_wait_ns(
            shape, played_with_faults, played_without_faults, set(faults)
        ),
        step=step_ns,
        ordinary=ordinary_ns,
        steps=shape.steps,
        given=given,
        waits=_list_waits_ns(shape, played_with_faults),
        bubble=1e3
        * sum(played_with_faults.bubble)
        / shape.ranks
        / shape.steps
        / step_ns,
        cause=case.fault.kind if case.fault else "",
        apart_us=case.apart,
        late_steps=_number_steps(case.fault.steps) if case.fault else [],
        noise=_average_ns(noises_us) / shape.steps,
        longer=_list_step_growth_ns(played_with_faults, played_without_faults),
        held_up=held_up,
        several=several,
    )


def case_of(name: str) -> Case:
    """Return the case of that name. Raises StopIteration if there is none."""
    return next(case for case in CASES if case.name == name)


def _choose_faults(case: Case, generator: random.Random) -> dict[int, Fault]:
    """Return the fault of each rank that has one. Which ranks these are is drawn, and
    depends on what the case is about."""
    if case.fault is None:
        return {}

    shape = case.shape
    if case.expect == "flips" and case.second is None:  # another rank in each step
        ranks = generator.sample(range(shape.ranks), shape.steps)
        return {
            rank: case.fault._replace(steps=(step,)) for step, rank in enumerate(ranks)
        }

    ranks_of_stage = shape.dp * shape.tp
    is_loading = case.fault.kind == "loading"

    # only the first stage loads batches
    rank = generator.randrange(ranks_of_stage if is_loading else shape.ranks)
    if case.second is not None:
        others = [other for other in range(shape.ranks) if other != rank]
        return {rank: case.fault, generator.choice(others): case.second}

    if case.expect == "stage":
        first = rank // ranks_of_stage * ranks_of_stage
        return dict.fromkeys(range(first, first + ranks_of_stage), case.fault)

    return {rank: case.fault}


def _assign_hosts(shape: Shape) -> list[int]:
    """Return the host of each rank; each host has equally many consecutive ranks."""
    ranks_per_host = -(-shape.ranks // shape.hosts)
    return [rank // ranks_per_host for rank in range(shape.ranks)]


def _make_recording(case: Case, generator: random.Random) -> Recording:
    """Return how a case is recorded: the clock of each host, and that of the one rank
    whose clock is torn from its host."""
    shape = case.shape

    torn_rank = generator.randrange(shape.ranks)
    clocks = []
    for rank, host in enumerate(_assign_hosts(shape)):
        offset_us = host * case.apart
        if rank == torn_rank:
            offset_us += case.torn
        clocks.append(Clock(offset_us=offset_us, drift=host * case.drift))

    return Recording(
        groups=shape.groups(), clocks=clocks, names=case.names, seq=not case.lost
    )


def _choose_given_ranks(
    case: Case, culprits: Sequence[int], generator: random.Random
) -> list[int]:
    """Return the ranks whose traces are given: all, or a part by chance. The culprits
    are among them, unless the case is about a culprit that is not given."""
    ranks = list(range(case.shape.ranks))
    count = round(case.given * len(ranks))
    if count == len(ranks):
        return ranks
    innocent = [rank for rank in ranks if rank not in culprits]
    given = [] if case.expect == "outside" else list(culprits)
    given += generator.sample(innocent, count - len(given))
    return sorted(given)


def _drop_lost(
    slices: list[list[Slice]], lost: str, lossy_rank: int
) -> list[list[Slice]]:
    """Return the slices of each rank without the collectives that the profiler did not
    record.

    For "first" and "middle" one collective of the lossy rank is lost. For "shifted",
    the recording of that rank begins and ends a collective later than those of the
    others.
    """
    kept = list(slices)
    if lost == "first":
        kept[lossy_rank] = _drop_collective(slices[lossy_rank], 0)
    elif lost == "middle":
        kept[lossy_rank] = _drop_collective(slices[lossy_rank], 7)
    elif lost == "shifted":
        for rank, slices_of_rank in enumerate(slices):
            position = 0 if rank == lossy_rank else -1
            kept[rank] = _drop_collective(slices_of_rank, position)

    return kept


def _drop_collective(slices: list[Slice], position: int) -> list[Slice]:
    """Return the slices of a rank without those of one collective. `position` is its
    index among all collectives, and may be negative."""
    links = [
        item.link
        for item in slices
        if isinstance(item.what, Collective) and item.kind == "kernel"
    ]
    return [item for item in slices if item.link != links[position]]


def _mean_step_ns(shape: Shape, job: Played) -> float:
    """Return how long a step of the job takes in ns, on average."""
    begin = min(slices[0].start for slices in job.slices)
    end = max(item.end for slices in job.slices for item in slices)
    return 1e3 * (end - begin) / shape.steps


def _compute_planted_ns(shape: Shape, seed: int, faults: dict[int, Fault]) -> float:
    """Return by how many ns per step the faults make a rank later, if it meets nobody.
    Ranks that are late in the same steps count as one; those late in different steps
    add up."""
    delays_us = [fault.amount for fault in faults.values() if fault.kind == "begin"]
    if not delays_us:
        for rank in faults:
            with_fault = programs(shape, seed, faults)[rank]
            without = programs(shape, seed, {})[rank]
            delays_us.append(
                _play_alone_us(shape, with_fault) - _play_alone_us(shape, without)
            )

    distinct = len({fault.steps for fault in faults.values()})
    return _average_ns(delays_us) * distinct / shape.steps


def _play_alone_us(shape: Shape, program: Sequence[Op]) -> float:
    """Return how many us the program of a rank takes if others never let it wait.
    Collectives are replaced by kernels of equal length."""
    alone = [
        Kernel("c10d", "", op.us, ()) if isinstance(op, Collective | Exchange) else op
        for op in program
    ]
    job = Job(programs=[alone], hosts=[0], seed=0, gloo=shape.gloo)
    (slices,) = play_job(job).slices
    begin = min(item.start for item in slices)
    return max(item.end for item in slices) - begin


def _mean_extra_wait_ns(
    shape: Shape, whole: Played, ordinary: Played, culprits: set[int]
) -> float:
    """Return how much longer the other ranks wait per step than without the fault, in
    ns, on average."""
    longer_us = [
        whole.waited[rank] - ordinary.waited[rank]
        for rank in range(shape.ranks)
        if rank not in culprits
    ]
    return _average_ns(longer_us) / shape.steps


def _list_waits_ns(shape: Shape, whole: Played) -> list[tuple[float, float]]:
    """Return how long each rank waits per step in ns: at least, and at most. They
    differ where gradients are reduced during the backward pass."""
    ns_per_step = 1e3 / shape.steps
    at_most = whole.stood if shape.overlap else whole.waited
    return [
        (least_us * ns_per_step, most_us * ns_per_step)
        for least_us, most_us in zip(whole.waited, at_most, strict=True)
    ]


def _list_step_growth_ns(whole: Played, ordinary: Played) -> list[float]:
    """Return by how many ns each step of the job lasts longer with the fault, until its
    last rank ends it."""
    longer = []
    previous_delay_ns = 0.0
    for end, ordinary_end in zip(
        _list_step_ends(whole), _list_step_ends(ordinary), strict=True
    ):
        total_delay_ns = 1e3 * (end - ordinary_end)
        longer.append(total_delay_ns - previous_delay_ns)
        previous_delay_ns = total_delay_ns
    return longer


def _list_step_ends(job: Played) -> list[float]:
    """Return when the last rank ends each step, in us of the true clock."""
    ends_of_ranks = [
        [item.end for item in slices if item.kind == "step"] for slices in job.slices
    ]
    return [max(ends) for ends in zip(*ends_of_ranks, strict=True)]


def _list_held_up_ns(
    job: Job, shape: Shape, rank: int, fault: Fault, ordinary: Played
) -> list[float]:
    """Return how many ns longer the others wait, on average, for what the fault does in
    each step.

    It does not matter in which step they wait. The job is played with the fault up to
    each step, and the waits of the step before are subtracted.
    """
    held_up = []
    waited_so_far = 0.0
    for last_step in range(shape.steps):
        steps = tuple(
            step for step in fault.steps or range(shape.steps) if step <= last_step
        )
        faults = {rank: fault._replace(steps=steps)} if steps else {}
        so_far = play_job(job._replace(programs=programs(shape, job.seed, faults)))
        waited = shape.steps * _mean_extra_wait_ns(shape, so_far, ordinary, {rank})
        held_up.append(waited - waited_so_far)
        waited_so_far = waited

    return held_up


def _make_two_culprits(
    job: Job, shape: Shape, faults: dict[int, Fault], ordinary: Played
) -> list[Culprit]:
    """Return the two ranks that are late, the one that is less late first. If both are
    late in the same steps, each is charged with half of the delay that they share."""
    culprits = [_make_culprit(job, shape, faults, rank, ordinary) for rank in faults]
    first, second = sorted(culprits, key=lambda culprit: culprit.planted)
    if faults[first.rank].steps == faults[second.rank].steps:
        # Both are missing until the first one arrives: each is charged with half of
        # that.
        shared = first.planted / 2
        first = first._replace(charged=shared)
        second = second._replace(charged=second.planted - shared)
    return [first, second]


def _make_culprit(
    job: Job, shape: Shape, faults: dict[int, Fault], rank: int, ordinary: Played
) -> Culprit:
    """Return what the fault of one rank adds, charged as if no other rank were late."""
    fault = faults[rank]
    other_faults = {other: faults[other] for other in faults if other != rank}
    played_without_fault = play_job(
        job._replace(programs=programs(shape, job.seed, other_faults))
    )

    played_with_fault_alone = play_job(
        job._replace(programs=programs(shape, job.seed, {rank: fault}))
    )
    held_up: Sequence[float] = ()
    if fault.kind == "gc":
        planted_ns = _mean_step_ns(shape, played_with_fault_alone) - _mean_step_ns(
            shape, ordinary
        )
        held_up = _list_held_up_ns(job, shape, rank, fault, ordinary)
    else:
        planted_ns = _compute_planted_ns(shape, job.seed, {rank: fault})

    return Culprit(
        rank=rank,
        cause=fault.kind,
        planted=planted_ns,
        charged=planted_ns,
        ordinary=_mean_step_ns(shape, played_without_fault),
        late_steps=_number_steps(fault.steps),
        longer=_list_step_growth_ns(played_with_fault_alone, ordinary),
        held_up=held_up,
    )


def _number_steps(steps: Sequence[int]) -> list[int]:
    """Return the numbers of steps in the traces, for steps that are counted from 0."""
    return [FIRST_STEP + step for step in steps]


def _average_ns(times_us: Sequence[float]) -> float:
    """Return the mean of times in us as ns; 0 for no times."""
    return 1e3 * sum(times_us) / max(1, len(times_us))
