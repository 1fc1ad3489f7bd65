"""What the rules need to know about GPU events: what each is, its origin, what ran
beside it, and how fast it could be at most.

A kernel's bound is the longer of FLOP / attainable rate and bytes / attainable
bandwidth, and never below MIN_BOUND_NS. What is at stake is its effective duration minus
that bound: an estimate, because an attainable rate is measured or assumed, and some
kernels exceed it. Only with the full rates of the data sheet is the sum the most that
better kernels could save. It says nothing about idle time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import communicates, effective_ns
from fusetui.analysis.why.model import Ceiling, ReducedDurations
from fusetui.analysis.why.warming import tried_launches
from fusetui.gpu.kernel_names import KernelName, short_name
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.gpu.roofline.many import (
    Jobs,
    blocks_of_each,
    jobs,
    peaks_of_devices,
    share_known,
)
from fusetui.gpu.roofline.peaks import Peak
from fusetui.gpu.roofline.row import KernelJob
from fusetui.text.patterns import MAX_SEARCHED_CHARS
from fusetui.text.printable import printable
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.layout.steps import OPTIMIZER
from fusetui.trace.model.arrays import Flags, Int64s, Rows, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Arguments
from fusetui.trace.model.intervals import Cover, union
from fusetui.trace.program.origin import Credit, Origins, origins


def by_text(
    trace: Trace, rows: Rows, ns: Int64s, text: Callable[[str], str]
) -> dict[str, tuple[int, int]]:
    """For each text that `text` makes of the name of a row: how many rows have it, and
    the exact sum of their `ns`."""
    names = trace.name[rows]
    rows_of_name = np.bincount(names)
    ns_of_name = summed(names, ns, len(rows_of_name))
    count_and_ns: dict[str, tuple[int, int]] = {}
    for name in np.flatnonzero(rows_of_name).tolist():
        key = text(trace.names[name])
        count, total_ns = count_and_ns.get(key, (0, 0))
        count += int(rows_of_name[name])
        total_ns += int(ns_of_name[name])
        count_and_ns[key] = (count, total_ns)
    return count_and_ns


MAX_ROWS: Final = 5
"""Rows of evidence for one finding."""


def heaviest_rows(
    rows: NDArray[np.integer], ns: Int64s, among: int = 1000
) -> tuple[int, ...]:
    """The MAX_ROWS rows with the most time, the largest first, each once; -1 means no
    row. `among`: so many entries with the most time are looked at, or all if these are
    too few rows."""
    is_part = among < len(ns)
    if is_part:
        least_ns = np.partition(ns, -among)[-among]
        candidates = np.flatnonzero(ns >= least_ns)
        longest = candidates[np.argsort(-ns[candidates], kind="stable")]
    else:
        longest = np.argsort(-ns, kind="stable")
    longest_rows = rows[longest]
    known_rows = longest_rows[longest_rows >= 0].tolist()
    heaviest = tuple(dict.fromkeys(known_rows))[:MAX_ROWS]
    if is_part and len(heaviest) < MAX_ROWS:
        return heaviest_rows(rows, ns, len(ns))
    return heaviest


MIN_BOUND_NS: Final = 2_000
"""No kernel is expected to take fewer nanoseconds than this."""


class Bounds(NamedTuple):
    """How fast kernels could be at most; arrays of shape [rows]."""

    bound_ns: Int64s
    """-1: not known."""
    at_stake_ns: Int64s
    """0 where the bound is not known."""
    least_ns: Int64s
    """By the data sheet; -1: not known."""
    assumed: Flags
    """Whether the attainable rate is assumed."""


MAX_SMS: Final = 1 << 20
"""More is no number of multiprocessors."""


def _family(name: str) -> str:
    """The family of a kernel by its name, "" for an unknown one."""
    kernel = role_of_kernel(name).decoded
    return kernel.family if kernel else ""


class Kernels:
    """GPU events of a trace; columns are of shape [rows]."""

    def __init__(self, trace: Trace, rows: Rows, begin_ns: int, end_ns: int) -> None:
        """`rows`: those of trace.gpu_rows that run in [begin_ns, end_ns), in their
        order, or some of them. The part of an event outside that time does not
        count."""
        self.trace = trace
        self.rows = rows
        self.start = np.maximum(trace.start[rows], begin_ns)
        self.end = np.minimum(trace.end[rows], end_ns)
        self.is_kernel: Flags = trace.role[rows] == Role.KERNEL
        """Neither a copy nor a set."""
        self.stream = trace.thread_of_track[trace.track[rows]]
        """A number for each stream of a device."""
        self.device = trace.process_of_track[trace.track[rows]]
        """A number for each device."""
        self.devices: list[int] = np.flatnonzero(np.bincount(self.device)).tolist()
        self._name = trace.name[rows]
        self._names: list[int] = np.flatnonzero(np.bincount(self._name)).tolist()

    def flags(self, matches: Callable[[KernelName], object]) -> Flags:
        """Which are kernels whose decoded name passes the test; it runs once per
        name."""
        passes = np.zeros(len(self.trace.names), dtype=np.bool_)
        for number in self._names:
            name = self.trace.names[number][:MAX_SEARCHED_CHARS]
            kernel = role_of_kernel(name).decoded
            if kernel is not None:
                passes[number] = bool(matches(kernel))
        return passes[self._name] & self.is_kernel

    def launched_by_ops(self, names: frozenset[str]) -> Flags:
        """Which were launched by an op with one of these names."""
        op = self.trace.op[self.rows]
        is_name = self.trace.named(names.__contains__)
        return (op >= 0) & is_name[self.trace.name[op]]

    @cached_property
    def effective_ns(self) -> Int64s:
        """How long each takes effectively within the time of these kernels (ns); see
        questions.busy."""
        is_of_these = np.isin(self.trace.gpu_rows, self.rows)
        whole_ns = effective_ns(self.trace)[is_of_these]
        # the effective time is the last part of an event
        begin = np.maximum(self.start, self.trace.end[self.rows] - whole_ns)
        inside_ns: Int64s = np.maximum(self.end - begin, 0)
        return inside_ns

    def total_ns(self, which: Flags | Rows) -> int:
        """The effective time of some of them."""
        return int(self.effective_ns[which].sum())

    @cached_property
    def busy_ns(self) -> int:
        """How long any of these events runs, added up over devices."""
        busy_ns = 0
        for device in self.devices:
            busy_ns += self.cover(self.device == device, device).ns
        return busy_ns

    @cached_property
    def family_ns(self) -> dict[str, int]:
        """How long the kernels of each family took, effectively, without zeros; "" is
        that of unknown names."""
        rows = self.rows[self.is_kernel]
        ns = self.effective_ns[self.is_kernel]
        by_family = by_text(self.trace, rows, ns, _family)
        return {family: ns for family, (_, ns) in by_family.items() if ns}

    @cached_property
    def _place(self) -> NDArray[np.int32]:
        """The place of each among the rows of the jobs, -1 for none."""
        place_of_row = np.full(len(self.trace), -1, dtype=np.int32)
        place_of_row[self.jobs.rows] = np.arange(len(self.jobs.rows))
        return place_of_row[self.rows]

    def _of(self, values: NDArray[Any], missing: float) -> NDArray[Any]:
        """The values of the rows of the jobs for these, in their order."""
        return np.append(values, values.dtype.type(missing))[self._place]

    @cached_property
    def stream_order(self) -> Rows:
        """Indices by stream and start, so that neighbors on a stream are adjacent."""
        return np.lexsort((self.start, self.stream))

    @cached_property
    def origins(self) -> Origins:
        """What launched each GPU event of the trace, and in which region."""
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
        is_optimizer = self.trace.named(lambda name: name.startswith(OPTIMIZER))
        name_of_module = self.trace.name[self.module]
        return (self.module >= 0) & is_optimizer[name_of_module]

    @cached_property
    def communicates(self) -> Flags:
        """Which are kernels that communicate with other devices."""
        return communicates(self.trace, self.rows)

    @cached_property
    def computes(self) -> Flags:
        """Which are kernels that do not communicate."""
        return self.is_kernel & ~self.communicates

    @cached_property
    def bounded(self) -> Bounds:
        """The bounds of these rows; unknown for what is not a kernel."""
        jobs = self.jobs
        is_known = share_known(self.trace, jobs)
        compute_ns = jobs.of_each(lambda job: job.attainable.compute_ns)
        memory_ns = jobs.of_each(lambda job: job.attainable.memory_ns)
        attainable_ns = np.fmax(np.fmax(compute_ns, memory_ns), MIN_BOUND_NS)
        attainable_ns = np.where(is_known, np.rint(attainable_ns), -1)
        bound_ns = self._of(attainable_ns.astype(np.int64), -1)
        beyond_bound_ns = np.maximum(self.effective_ns - bound_ns, 0)

        least_ns = np.nan_to_num(jobs.of_each(lambda job: job.limits.least_ns))
        least_ns = np.where(is_known, np.floor(least_ns), -1)
        is_assumed = jobs.of_each(lambda job: float(job.assumed)) == 1
        return Bounds(
            bound_ns=bound_ns,
            at_stake_ns=np.where(bound_ns >= 0, beyond_bound_ns, 0),
            least_ns=self._of(least_ns.astype(np.int64), -1),
            assumed=self._of(is_known & is_assumed, False),
        )

    @cached_property
    def ceiling(self) -> Ceiling:
        """What better kernels could save."""
        is_known = self.bounded.bound_ns >= 0
        beyond_least_ns = np.maximum(self.effective_ns - self.bounded.least_ns, 0)
        return Ceiling(
            known_ns=self.total_ns(is_known),
            unknown_ns=self.total_ns(self.is_kernel & ~is_known),
            at_stake_ns=int(self.bounded.at_stake_ns.sum()),
            assumed_ns=self.total_ns(is_known & self.bounded.assumed),
            at_most_ns=int(beyond_least_ns[is_known].sum()),
        )

    @cached_property
    def job_numbers(self) -> Int64s:
        """The number of the job of each, -1 for none."""
        return self._of(self.jobs.number.astype(np.int64), -1)

    @cached_property
    def jobs(self) -> Jobs:
        """What each kernel of the trace has to do; see roofline.many."""
        return jobs(self.trace)

    @cached_property
    def inputs(self) -> Arguments:
        """The inputs of the op of each row, for kernels only (see many.INPUTS)."""
        inputs = self.jobs.inputs
        return Arguments(self._of(inputs.number, -1), inputs.texts)

    @cached_property
    def blocks(self) -> Int64s:
        """How many blocks each was launched with, 0 where that is not known."""
        return self._of(blocks_of_each(self.trace, self.jobs), 0)

    @cached_property
    def sms(self) -> Int64s:
        """How many multiprocessors (compute units) the device of each has, 0 if
        unknown."""
        properties = device_properties(self.trace)
        sms_of_track = []
        for track in self.trace.tracks:
            sms = properties.get(track.pid, {}).get("numSms")
            is_number = type(sms) is int and sms < MAX_SMS
            sms_of_track.append(sms if is_number else 0)
        sms_or_none = np.array(sms_of_track or [0])
        return sms_or_none[self.trace.track[self.rows]]

    def figures_of_jobs(
        self, value: Callable[[KernelJob], float | None]
    ) -> NDArray[np.float64]:
        """A figure of each row by its job, nan for none."""
        return self._of(self.jobs.of_each(value), np.nan)

    @cached_property
    def peak(self) -> Peak | None:
        """The peak of the device, if all devices are the same and known."""
        peaks = [device.peak for device in peaks_of_devices(self.trace)]
        are_alike = bool(peaks) and all(peak == peaks[0] for peak in peaks)
        return peaks[0] if are_alike else None

    @cached_property
    def tried(self) -> Flags:
        """Which a search for algorithms ran to measure them: the program runs, of all
        these, the fastest one from then on."""
        tries = tried_launches(self.trace)
        if not len(tries):
            return np.zeros(len(self.rows), dtype=np.bool_)
        are_tried: Flags = np.isin(self.trace.launch[self.rows], tries)
        return are_tried

    def cover(self, which: Flags, device: int) -> Cover:
        """When any of some kernels runs on a device."""
        on_device = which & (self.device == device)
        return union(self.start[on_device], self.end[on_device])

    def overlap_ns(self, others: Flags) -> Int64s:
        """For how long any of the others runs on the same device while each runs."""
        beside_ns = np.zeros(len(self.rows), dtype=np.int64)
        for device in self.devices:
            is_of_device = self.device == device
            running = self.cover(others, device)
            beside_ns[is_of_device] = running.within(
                self.start[is_of_device], self.end[is_of_device]
            )
        return beside_ns

    @cached_property
    def alone(self) -> Flags:
        """Whether nothing else runs on the device at the same time."""
        is_alone = np.zeros(len(self.rows), dtype=np.bool_)
        for device in self.devices:
            of_device = np.flatnonzero(self.device == device)
            by_start = of_device[np.argsort(self.start[of_device], kind="stable")]
            start = self.start[by_start]
            end = self.end[by_start]
            latest_end = np.maximum.accumulate(end)
            starts_after_all = np.append(True, latest_end[:-1] <= start[1:])
            ends_before_next = np.append(end[:-1] <= start[1:], True)
            is_alone[by_start] = starts_after_all & ends_before_next
        return is_alone

    def dominant_name(self, which: Flags, ns: Int64s) -> tuple[str, Flags]:
        """The name with most of this time among these, in short, and those that have
        it."""
        number = int(np.bincount(self._name[which], ns[which]).argmax())
        name = printable(short_name(self.trace.names[number]))
        return name, which & (self._name == number)

    def removal_of(self, which: Flags | Rows) -> ReducedDurations:
        """The change that these events take no time."""
        return ReducedDurations(self.rows[which], self.effective_ns[which])

    def longest_rows(self, which: Flags) -> tuple[int, ...]:
        """The rows that took longest, as evidence."""
        lasts_ns = self.end - self.start
        return heaviest_rows(self.rows[which], lasts_ns[which])
