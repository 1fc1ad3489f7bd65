"""What the rules need to know about GPU events: what each is, its origin, what ran
beside it, and how fast it could be at most.

A kernel's bound is the longer of FLOP / attainable rate and bytes / attainable
bandwidth, and never below SHORTEST. What is at stake is its effective duration minus
that bound: an estimate, because an attainable rate is measured or assumed, and some
kernels exceed it. Only with the full rates of the data sheet is the sum the most that
better kernels could save. It says nothing about idle time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import communicates, effective_ns
from fusetui.analysis.why.model import Ceiling, Shorter
from fusetui.analysis.why.warming import tried_launches
from fusetui.gpu.kernel_names import KernelName, decode, short_name
from fusetui.gpu.roofline.many import (
    Jobs,
    blocks_of_each,
    jobs,
    peaks_of_devices,
    share_known,
)
from fusetui.gpu.roofline.peaks import Peak
from fusetui.gpu.roofline.row import KernelJob
from fusetui.text.patterns import LONGEST_NAME
from fusetui.text.printable import printable
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.layout.steps import OPTIMIZER
from fusetui.trace.model.arrays import Flags, Int64s, Rows, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Arguments
from fusetui.trace.model.intervals import Cover, union
from fusetui.trace.model.memo import once
from fusetui.trace.program.origin import Credit, Origins, origins


def by_text(
    trace: Trace, rows: Rows, ns: Int64s, text: Callable[[str], str]
) -> dict[str, tuple[int, int]]:
    """How many rows have a name that is said like this, and their exact sum (ns)."""
    counts = np.bincount(trace.name[rows])
    found: dict[str, tuple[int, int]] = {}
    totals = summed(trace.name[rows], ns, len(counts))
    for number in np.flatnonzero(counts).tolist():
        said = text(trace.names[number])
        before = found.get(said, (0, 0))
        found[said] = before[0] + int(counts[number]), before[1] + int(totals[number])
    return found


MOST_ROWS = 5  # rows of evidence for one finding


def the_most(
    rows: NDArray[np.integer], ns: Int64s, among: int = 1000
) -> tuple[int, ...]:
    """The rows with the most time, each once; -1 means none."""
    few = (
        np.flatnonzero(ns >= np.partition(ns, -among)[-among])
        if among < len(ns)
        else slice(None)
    )
    found = rows[few][np.argsort(-ns[few], kind="stable")]
    most = tuple(dict.fromkeys(found[found >= 0].tolist()))[:MOST_ROWS]
    enough = len(most) == MOST_ROWS or among >= len(ns)
    return most if enough else the_most(rows, ns, len(ns))


SHORTEST = 2_000  # no kernel is expected to take fewer nanoseconds than this


class Bounds(NamedTuple):
    bound_ns: Int64s  # -1: not known
    at_stake_ns: Int64s  # 0 where the bound is not known
    least_ns: Int64s  # by the data sheet; -1: not known
    assumed: Flags


MANY_SMS = 1 << 20  # more is no number of multiprocessors


class Kernels:
    """GPU events of a trace; columns are of shape [rows]."""

    def __init__(self, trace: Trace, rows: Rows, begin_ns: int, end_ns: int) -> None:
        """`rows`: those of trace.gpu_rows that run in [begin_ns, end_ns), in their
        order, or some of them. The part of an event outside that time does not
        count."""
        self.trace, self.rows = trace, rows
        self.start = np.maximum(trace.start[rows], begin_ns)
        self.end = np.minimum(trace.end[rows], end_ns)
        # neither a copy nor a set
        self.is_kernel: Flags = trace.role[rows] == Role.KERNEL
        # a number per stream of a device
        self.stream = trace.thread_of_track[trace.track[rows]]
        self.device = trace.process_of_track[trace.track[rows]]  # a number per device
        self.devices: list[int] = np.flatnonzero(np.bincount(self.device)).tolist()
        self._name = trace.name[rows]
        self._names: list[int] = np.flatnonzero(np.bincount(self._name)).tolist()

    def flags(self, matches: Callable[[KernelName], object]) -> Flags:
        """Which are kernels whose decoded name passes the test; it runs once per
        name."""
        passes = np.zeros(len(self.trace.names), dtype=np.bool_)
        for number in self._names:
            kernel = decode(self.trace.names[number][:LONGEST_NAME])
            passes[number] = kernel is not None and bool(matches(kernel))
        return passes[self._name] & self.is_kernel

    def under(self, names: frozenset[str]) -> Flags:
        op = self.trace.op[self.rows]
        return (op >= 0) & self.trace.named(names.__contains__)[self.trace.name[op]]

    @cached_property
    def effective_ns(self) -> Int64s:
        """See questions.effective."""
        whole = effective_ns(self.trace)[np.isin(self.trace.gpu_rows, self.rows)]
        begin = np.maximum(self.start, self.trace.end[self.rows] - whole)
        found: Int64s = np.maximum(self.end - begin, 0)
        return found

    def ns(self, which: Flags | Rows) -> int:
        return int(self.effective_ns[which].sum())

    @cached_property
    def busy_ns(self) -> int:
        """How long any of these events runs, added up over devices."""
        return sum(
            self.cover(self.device == device, device).ns for device in self.devices
        )

    @cached_property
    def family_ns(self) -> dict[str, int]:
        """How long the kernels of each family took, effectively; "" is that of unknown
        names."""
        rows, ns = self.rows[self.is_kernel], self.effective_ns[self.is_kernel]
        found = by_text(
            self.trace, rows, ns, lambda name: getattr(decode(name), "family", "")
        )
        return {name: ns for name, (_, ns) in found.items() if ns}

    @cached_property
    def _place(self) -> NDArray[np.int32]:
        """The place of each among the rows of the jobs, -1 for none."""
        found = np.full(len(self.trace), -1, dtype=np.int32)
        found[self.jobs.rows] = np.arange(len(self.jobs.rows))
        return found[self.rows]

    def _of(self, values: NDArray[Any], missing: float) -> NDArray[Any]:
        """The values of the rows of the jobs for these, in their order."""
        return np.append(values, values.dtype.type(missing))[self._place]

    @cached_property
    def in_order(self) -> Rows:
        """Indices by stream and start, so that neighbors on a stream are adjacent."""
        return np.lexsort((self.start, self.stream))

    @cached_property
    def origins(self) -> Origins:
        return origins(self.trace)

    @cached_property
    def credit(self) -> Credit:
        """The module or annotation to which each belongs."""
        return self.origins.credit(self.origins.regions, self.rows)

    @cached_property
    def module(self) -> Rows:
        """The row of the module or annotation to which each belongs, -1 for none."""
        return self.origins.regions.rows_at(self.credit.place).astype(np.intp)

    @cached_property
    def in_optimizer(self) -> Flags:
        """Which belong to the step of an optimizer, as its annotation tells."""
        named = self.trace.named(lambda name: name.startswith(OPTIMIZER))
        return (self.module >= 0) & named[self.trace.name[self.module]]

    @cached_property
    def communicates(self) -> Flags:
        return communicates(self.trace, self.rows)

    @cached_property
    def computes(self) -> Flags:
        return self.is_kernel & ~self.communicates

    @cached_property
    def bounded(self) -> Bounds:
        """The bounds of these rows; unknown for what is not a kernel."""
        known, near = self.jobs, share_known(self.trace, self.jobs)
        compute = known.of_each(lambda job: job.attainable.compute_ns)
        memory = known.of_each(lambda job: job.attainable.memory_ns)
        bound = np.fmax(np.fmax(compute, memory), SHORTEST)
        least = np.nan_to_num(known.of_each(lambda job: job.limits.least_ns))
        bound_ns, least_ns = (
            self._of(np.where(near, ns, -1).astype(np.int64), -1)
            for ns in (np.rint(bound), np.floor(least))
        )
        return Bounds(
            bound_ns=bound_ns,
            at_stake_ns=np.where(
                bound_ns >= 0, np.maximum(self.effective_ns - bound_ns, 0), 0
            ),
            least_ns=least_ns,
            assumed=self._of(
                near & (known.of_each(lambda job: float(job.assumed)) == 1), False
            ),
        )

    @cached_property
    def ceiling(self) -> Ceiling:
        known, spared = (
            self.bounded.bound_ns >= 0,
            self.effective_ns - self.bounded.least_ns,
        )
        return Ceiling(
            known_ns=self.ns(known),
            unknown_ns=self.ns(self.is_kernel & ~known),
            at_stake_ns=int(self.bounded.at_stake_ns.sum()),
            assumed_ns=self.ns(known & self.bounded.assumed),
            at_most_ns=int(np.maximum(spared, 0)[known].sum()),
        )

    @cached_property
    def job_numbers(self) -> Int64s:
        """The number of the job of each, -1 for none."""
        return self._of(self.jobs.number.astype(np.int64), -1)

    @cached_property
    def jobs(self) -> Jobs:
        return jobs(self.trace)

    @cached_property
    def inputs(self) -> Arguments:
        """The inputs of the op of each row, for kernels only (see many.INPUTS)."""
        found = self.jobs.inputs
        return Arguments(self._of(found.number, -1), found.texts)

    @cached_property
    def blocks(self) -> Int64s:
        """How many blocks each was launched with, 0 where that is not known."""
        return self._of(blocks_of_each(self.trace, self.jobs), 0)

    @cached_property
    def sms(self) -> Int64s:
        """How many multiprocessors (compute units) the device of each has, 0 if
        unknown."""
        known = device_properties(self.trace)
        counts = [known.get(track.pid, {}).get("numSms") for track in self.trace.tracks]
        table = np.array(
            [n if type(n) is int and n < MANY_SMS else 0 for n in counts] or [0]
        )
        return table[self.trace.track[self.rows]]

    def of_jobs(
        self, value: Callable[[KernelJob], float | None]
    ) -> NDArray[np.float64]:
        """A figure of each row by its job, nan for none."""
        return self._of(self.jobs.of_each(value), np.nan)

    @cached_property
    def peak(self) -> Peak | None:
        """The peak of the device, if all devices are the same and known."""
        peaks = [found.peak for found in peaks_of_devices(self.trace)]
        alike = bool(peaks) and all(peak == peaks[0] for peak in peaks)
        return peaks[0] if alike else None

    @cached_property
    def tried(self) -> Flags:
        """Which a search for algorithms ran to measure them: the program runs, of all
        these, the fastest one from then on."""
        tries = once(self.trace, tried_launches)
        if not len(tries):
            return np.zeros(len(self.rows), dtype=np.bool_)
        found: Flags = np.isin(self.trace.launch[self.rows], tries)
        return found

    def cover(self, which: Flags, device: int) -> Cover:
        own = which & (self.device == device)
        return union(self.start[own], self.end[own])

    def during(self, others: Flags) -> Int64s:
        """For how long any of the others runs on the same device while each runs."""
        found = np.zeros(len(self.rows), dtype=np.int64)
        for device in self.devices:
            own, cover = self.device == device, self.cover(others, device)
            found[own] = cover.within(self.start[own], self.end[own])
        return found

    @cached_property
    def alone(self) -> Flags:
        """Whether nothing else runs on the device at the same time."""
        found = np.zeros(len(self.rows), dtype=np.bool_)
        start, end = self.start, self.end
        for device in self.devices:
            own = np.flatnonzero(self.device == device)
            order = own[np.argsort(start[own], kind="stable")]
            latest = np.maximum.accumulate(end[order])
            before = np.concatenate(([True], latest[:-1] <= start[order][1:]))
            after = np.concatenate((end[order][:-1] <= start[order][1:], [True]))
            found[order] = before & after
        return found

    def mainly(self, which: Flags, ns: Int64s) -> tuple[str, Flags]:
        """The name with most of this time among these, in short, and those that have
        it."""
        name = int(np.bincount(self._name[which], ns[which]).argmax())
        return printable(short_name(self.trace.names[name])), which & (
            self._name == name
        )

    def without(self, which: Flags | Rows) -> Shorter:
        """They take no time."""
        return Shorter(self.rows[which], self.effective_ns[which])

    def heaviest(self, which: Flags) -> tuple[int, ...]:
        """The rows that took longest, as evidence."""
        return the_most(self.rows[which], (self.end - self.start)[which])
