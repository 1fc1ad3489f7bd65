"""Compute the facts about GPU events that rules need.

For each event this is what launched it, what ran beside it, and how fast it could be.

A kernel's *bound* is the longer of FLOP / attainable rate and bytes / attainable
bandwidth, and never below MIN_BOUND_NS. What is at stake is its effective duration
minus that bound. This is an estimate, because an attainable rate is measured or
assumed, and some kernels exceed it. Only with the full rates of the data sheet is the
sum the most that better kernels could save. It says nothing about idle time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import communicates, measure_effective_ns
from fusetui.analysis.why.model import Ceiling, ReducedDurations
from fusetui.analysis.why.warming import find_tried_launches
from fusetui.gpu.kernel_names import KernelName, decode, short_name
from fusetui.gpu.roofline.many import (
    Jobs,
    count_blocks_of_each,
    find_peaks_of_devices,
    has_known_share,
    jobs,
)
from fusetui.gpu.roofline.peaks import Peak
from fusetui.gpu.roofline.row import KernelJob
from fusetui.text.patterns import MAX_SEARCHED_CHARS
from fusetui.text.printable import printable
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.layout.steps import OPTIMIZER
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Floats,
    Int64s,
    Rows,
    at,
    heaviest_id,
    summed,
    used_ids,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Arguments
from fusetui.trace.model.intervals import Cover, are_alone, union
from fusetui.trace.program.origin import Credit, Origins, origins


class Total(NamedTuple):
    """How many rows there are, and the sum of their times."""

    occurrences: int
    ns: int

    def add(self, occurrences: int, ns: int) -> Total:
        """Return the total with some more rows and their time."""
        return Total(occurrences=self.occurrences + occurrences, ns=self.ns + ns)


NO_TIME: Final = Total(occurrences=0, ns=0)


def add_up_by_text(
    trace: Trace, rows: Rows, ns: Int64s, make_text: Callable[[str], str]
) -> dict[str, Total]:
    """Count rows and add up their times by a text that is made of their names.

    Args:
        rows: Rows of the trace.
        ns: The time of each row.
        make_text: Makes the text for a name; it is called once per name.

    Returns:
        For each text how many rows have it, and the exact sum of their times.
    """
    names = trace.name[rows]
    rows_of_name = np.bincount(names)
    ns_of_name = summed(names, ns, len(rows_of_name))

    total_of_text: dict[str, Total] = {}
    for name in used_ids(names):
        text = make_text(trace.names[name])
        so_far = total_of_text.get(text, NO_TIME)
        total_of_text[text] = so_far.add(
            occurrences=int(rows_of_name[name]), ns=int(ns_of_name[name])
        )

    return total_of_text


MAX_ROWS: Final = 5
"""How many rows one finding shows as evidence."""
MAX_SORTED: Final = 1000
"""How many rows are sorted to find these, if they suffice: sorting a million is slow.
"""


def choose_heaviest_rows(rows: NDArray[np.integer], ns: Int64s) -> tuple[int, ...]:
    """Choose the MAX_ROWS rows with the most time, the largest first, each once.

    Findings show them as evidence.

    >>> choose_heaviest_rows(np.array([70, 80, 70, -1]), np.array([10, 20, 30, 90]))
    (70, 80)

    Args:
        rows: Rows of the trace, which may repeat; -1 for no row.
        ns: The time of each entry of `rows`.
    """
    if len(ns) > MAX_SORTED:
        least_ns = np.partition(ns, -MAX_SORTED)[-MAX_SORTED]
        is_among_longest = ns >= least_ns
        heaviest = _sort_rows(rows[is_among_longest], ns[is_among_longest])
        if len(heaviest) >= MAX_ROWS:
            return heaviest[:MAX_ROWS]

    return _sort_rows(rows, ns)[:MAX_ROWS]


def _sort_rows(rows: NDArray[np.integer], ns: Int64s) -> tuple[int, ...]:
    """Return the rows of the trace by their time, the largest first, each once."""
    longest_first = rows[np.argsort(-ns, kind="stable")]
    known_rows = longest_first[longest_first != NO_ROW].tolist()
    each_once = dict.fromkeys(known_rows)  # keeps the order
    return tuple(each_once)


MIN_BOUND_NS: Final = 2_000
"""No kernel is expected to take less time than this."""


UNKNOWN_NS: Final = -1


class Bounds(NamedTuple):
    """How fast kernels could be at most; arrays of shape [rows], times in ns."""

    bound_ns: Int64s
    """By the attainable rates; UNKNOWN_NS where it is not known."""
    excess_ns: Int64s
    """How much longer than that the kernel takes; 0 where the bound is not known."""
    least_ns: Int64s
    """By the full rates of the data sheet; UNKNOWN_NS where it is not known."""
    assumed: Flags
    """Whether the attainable rate is assumed, because nobody has measured it."""

    @property
    def is_known(self) -> Flags:
        """Tell for which kernels `bound_ns` is known."""
        is_known: Flags = self.bound_ns != UNKNOWN_NS
        return is_known


MAX_MULTIPROCESSORS: Final = 1 << 20
"""A number of multiprocessors above this is not believed."""


def _get_family(name: str) -> str:
    """Return the library of a kernel by its name, "" for an unknown kernel."""
    kernel = decode(name)
    return kernel.family if kernel else ""


class DominantName(NamedTuple):
    """The kernel name that takes the most time among some kernels."""

    short_name: str
    has_name: Flags
    """Which of all kernels are among the selected ones and have the name."""


class Kernels:
    """GPU events of a trace, with what is known about each.

    Columns have shape [rows]. "Index" means an index into them, unlike a row of the
    trace.
    """

    def __init__(self, trace: Trace, rows: Rows, begin_ns: int, end_ns: int) -> None:
        """Take over some GPU events; what else is known about them is computed on first
        use.

        Args:
            rows: Those of trace.gpu_rows that run in [begin_ns, end_ns), in their
                order, or some of them.
            begin_ns: In ns of the file. The part of an event before it does not count.
            end_ns: Likewise for the part after it.
        """
        self.trace = trace
        self.rows = rows
        self.start = np.maximum(trace.start[rows], begin_ns)
        self.end = np.minimum(trace.end[rows], end_ns)
        self.is_kernel: Flags = trace.role[rows] == Role.KERNEL
        """True for kernels, False for copies and sets."""
        self.stream = trace.thread_of(rows)
        """The index of the stream as a thread of the trace."""
        self.device = trace.process_of(rows)
        """The index of the device as a process of the trace."""
        self.devices = used_ids(self.device)
        self._name_index = trace.name[rows]
        self._name_indices = used_ids(self._name_index)

    def match_names(self, matches: Callable[[KernelName], object]) -> Flags:
        """Tell which are kernels whose decoded name passes a test.

        Args:
            matches: The test, which is called once per name.
        """
        passes = np.zeros(len(self.trace.names), dtype=np.bool_)
        for name_index in self._name_indices:
            name = self.trace.names[name_index][:MAX_SEARCHED_CHARS]
            kernel = decode(name)
            if kernel is not None:
                passes[name_index] = bool(matches(kernel))

        return passes[self._name_index] & self.is_kernel

    def mark_launched_by_ops(self, names: frozenset[str]) -> Flags:
        """Tell which events were launched by an op with one of some names."""
        op = self.trace.op[self.rows]
        has_op = op != NO_ROW
        is_wanted_name = self.trace.named(lambda name: name in names)
        was_launched: Flags = has_op & is_wanted_name[self.trace.name[op]]
        return was_launched

    @cached_property
    def effective_ns(self) -> Int64s:
        """Return the effective duration of each event in ns; see questions.busy.

        Only the part within the time of these kernels counts.
        """
        is_of_these = np.isin(self.trace.gpu_rows, self.rows)
        whole_ns = measure_effective_ns(self.trace)[is_of_these]

        # The effective time is the last part of an event.
        effective_begin = self.trace.end[self.rows] - whole_ns
        begin_inside = np.maximum(effective_begin, self.start)
        inside_ns: Int64s = np.maximum(self.end - begin_inside, 0)
        return inside_ns

    def add_up_ns(self, selected: Flags | Rows) -> int:
        """Add up the effective time of some events, in ns.

        Args:
            selected: One flag per event, or indices.
        """
        return int(self.effective_ns[selected].sum())

    @cached_property
    def busy_ns(self) -> int:
        """Return how long any of these events runs, added up over the devices."""
        busy_ns = 0
        for device in self.devices:
            busy_ns += self.cover_events(self.device == device, device).ns
        return busy_ns

    @cached_property
    def ns_of_family(self) -> dict[str, int]:
        """Return the effective time of the kernels of each library, without zeros.

        The key "" stands for unknown names.
        """
        rows = self.rows[self.is_kernel]
        ns = self.effective_ns[self.is_kernel]
        ns_of_family = {}
        for family, total in add_up_by_text(self.trace, rows, ns, _get_family).items():
            if total.ns:
                ns_of_family[family] = total.ns

        return ns_of_family

    @cached_property
    def _index_in_jobs(self) -> NDArray[np.int32]:
        """Return the index of each event among the rows of the jobs, -1 for none."""
        rows_with_job = self.jobs.rows
        index_of_row = np.full(len(self.trace), -1, dtype=np.int32)
        index_of_row[rows_with_job] = np.arange(len(rows_with_job))
        return index_of_row[self.rows]

    def _pick_from_jobs(self, values: NDArray[Any], missing: float) -> NDArray[Any]:
        """Return for each of these events the value of its job.

        A job is what a kernel has to do. The jobs cover the kernels of the whole trace,
        of which these events are a part.

        Args:
            values: One value for each row of the jobs.
            missing: The value of an event that is not among those rows.
        """
        missing_of_type = values.dtype.type(missing)  # so that the result has the type
        return at(values, self._index_in_jobs, missing=missing_of_type)

    @cached_property
    def stream_order(self) -> Rows:
        """Return the indices sorted by stream and start.

        Neighbors on a stream are adjacent.
        """
        return np.lexsort((self.start, self.stream))

    @cached_property
    def origins(self) -> Origins:
        """Return what launched each GPU event of the trace, and in which region."""
        return origins(self.trace)

    @cached_property
    def credit(self) -> Credit:
        """Return the module or annotation to which each event belongs."""
        return self.origins.credit(self.origins.regions, self.rows)

    @cached_property
    def module_row(self) -> Rows:
        """Return the module or annotation of each event, as a row; -1 for none."""
        return self.origins.regions.rows_at(self.credit.place).astype(np.intp)

    @cached_property
    def is_of_optimizer(self) -> Flags:
        """Tell which events belong to the step of an optimizer, by its annotation."""
        has_module = self.module_row != NO_ROW
        name_of_module = self.trace.name[self.module_row]
        is_optimizer_name = self.trace.named(lambda name: name.startswith(OPTIMIZER))
        in_optimizer: Flags = has_module & is_optimizer_name[name_of_module]
        return in_optimizer

    @cached_property
    def is_communication(self) -> Flags:
        """Tell which are kernels that communicate with other devices."""
        return communicates(self.trace, self.rows)

    @cached_property
    def is_compute(self) -> Flags:
        """Tell which are kernels that do not communicate."""
        return self.is_kernel & ~self.is_communication

    @cached_property
    def bounds(self) -> Bounds:
        """Return the bounds of these events; unknown for what is not a kernel.

        A product whose arithmetic takes 30 us at the attainable rate, and whose bytes
        take 10 us, is bound by 30 us; if it runs for 50 us, 20 us are at stake.
        """
        jobs = self.jobs  # what each kernel of the trace has to do
        is_known = has_known_share(self.trace, jobs)

        # The slower one of arithmetic and memory counts. np.fmax ignores nan, which
        # stands for a time that is not known.
        compute_ns = jobs.of_each(lambda job: job.attainable.compute_ns)
        memory_ns = jobs.of_each(lambda job: job.attainable.memory_ns)
        slower_ns = np.fmax(compute_ns, memory_ns)
        attainable_ns = np.rint(np.fmax(slower_ns, MIN_BOUND_NS))
        bound_ns = self._pick_times(attainable_ns, is_known)
        excess_ns = np.maximum(self.effective_ns - bound_ns, 0)

        data_sheet_ns = jobs.of_each(lambda job: job.limits.least_ns)
        least_ns = np.floor(np.nan_to_num(data_sheet_ns))
        is_assumed = jobs.of_each(lambda job: float(job.assumed)) == 1

        return Bounds(
            bound_ns=bound_ns,
            excess_ns=np.where(bound_ns != UNKNOWN_NS, excess_ns, 0),
            least_ns=self._pick_times(least_ns, is_known),
            assumed=self._pick_from_jobs(is_known & is_assumed, False),
        )

    def _pick_times(self, ns_of_jobs: Floats, is_known: Flags) -> Int64s:
        """Return for each of these events the time of its job, UNKNOWN_NS for none.

        Args:
            ns_of_jobs: Whole numbers of ns, one for each row of the jobs.
            is_known: Which of them are known.
        """
        known_ns = np.where(is_known, ns_of_jobs, UNKNOWN_NS).astype(np.int64)
        ns: Int64s = self._pick_from_jobs(known_ns, UNKNOWN_NS)
        return ns

    @cached_property
    def ceiling(self) -> Ceiling:
        """Return what better kernels could save."""
        bounds = self.bounds
        is_known = bounds.is_known
        beyond_data_sheet_ns = np.maximum(self.effective_ns - bounds.least_ns, 0)
        return Ceiling(
            known_ns=self.add_up_ns(is_known),
            unknown_ns=self.add_up_ns(self.is_kernel & ~is_known),
            at_stake_ns=int(bounds.excess_ns.sum()),
            assumed_ns=self.add_up_ns(is_known & bounds.assumed),
            at_most_ns=int(beyond_data_sheet_ns[is_known].sum()),
        )

    @cached_property
    def job_indices(self) -> Int64s:
        """Return the index of the job of each event in `jobs.distinct`, -1 for none."""
        return self._pick_from_jobs(self.jobs.number.astype(np.int64), -1)

    @cached_property
    def jobs(self) -> Jobs:
        """Return what each kernel of the trace has to do; see roofline.many."""
        return jobs(self.trace)

    @cached_property
    def inputs(self) -> Arguments:
        """Return the inputs of the op of each row, for kernels only (see many.INPUTS)."""
        inputs = self.jobs.inputs
        return Arguments(self._pick_from_jobs(inputs.number, -1), inputs.texts)

    @cached_property
    def blocks(self) -> Int64s:
        """Return how many blocks each was launched with, 0 where that is not known."""
        return self._pick_from_jobs(count_blocks_of_each(self.trace, self.jobs), 0)

    @cached_property
    def multiprocessors(self) -> Int64s:
        """Return the number of multiprocessors of the device of each event.

        AMD calls them compute units. The number is 0 where it is not recorded, or too
        large to be true.
        """
        properties = device_properties(self.trace)
        number_of_track = np.zeros(len(self.trace.tracks), dtype=np.int64)
        for index, track in enumerate(self.trace.tracks):
            number = properties.get(track.pid, {}).get("numSms")
            if type(number) is int and 0 < number < MAX_MULTIPROCESSORS:
                number_of_track[index] = number

        return number_of_track[self.trace.track[self.rows]]

    def compute_from_jobs(
        self, value: Callable[[KernelJob], float | None]
    ) -> NDArray[np.float64]:
        """Return a figure of the job of each event, nan for an event without a job.

        Args:
            value: Returns the figure of a job, None if the job has none.
        """
        return self._pick_from_jobs(self.jobs.of_each(value), np.nan)

    def match_jobs(self, matches: Callable[[KernelJob], bool]) -> Flags:
        """Tell which events have a job that passes a test.

        Args:
            matches: The test. A job is what a kernel has to do, by its op and shapes.
        """
        one_if_match = self.compute_from_jobs(lambda job: float(matches(job)))
        is_match: Flags = one_if_match == 1  # nan, for an event without a job, is not
        return is_match

    @cached_property
    def peak(self) -> Peak | None:
        """Return the peak rates of the device, if all devices are the same and known."""
        peaks = [device.peak for device in find_peaks_of_devices(self.trace)]
        if not peaks:
            return None

        first_peak = peaks[0]
        are_alike = all(peak == first_peak for peak in peaks)
        return first_peak if are_alike else None

    @cached_property
    def is_trial(self) -> Flags:
        """Tell which events ran only because a library measured them in a search for
        algorithms.

        After the search, the program runs the fastest one of them. So the slower ones
        do not slow the program down, and findings leave them out. One flag per event.
        """
        tries = find_tried_launches(self.trace)
        if not len(tries):
            return np.zeros(len(self.rows), dtype=np.bool_)

        are_tried: Flags = np.isin(self.trace.launch[self.rows], tries)
        return are_tried

    def cover_events(self, is_selected: Flags, device: int) -> Cover:
        """Return when any of the selected events runs on a device.

        Args:
            is_selected: True for the selected events.
            device: The index of the device; see `device`.
        """
        on_device = is_selected & (self.device == device)
        return union(self.start[on_device], self.end[on_device])

    def measure_overlap(self, others: Flags) -> Int64s:
        """Measure how long other events run on the same device while each event runs.

        Args:
            others: True for the events that count as others; one flag per event.

        Returns:
            ns for each event. Where several others run at once, the time counts once.
        """
        overlap_ns = np.zeros(len(self.rows), dtype=np.int64)
        for device in self.devices:
            is_of_device = self.device == device
            running = self.cover_events(others, device)
            overlap_ns[is_of_device] = running.within(
                self.start[is_of_device], self.end[is_of_device]
            )

        return overlap_ns

    @cached_property
    def runs_alone(self) -> Flags:
        """Tell which events have the device for themselves all the time."""
        is_alone = np.zeros(len(self.rows), dtype=np.bool_)
        for device in self.devices:
            of_device = np.flatnonzero(self.device == device)
            by_start = of_device[np.argsort(self.start[of_device], kind="stable")]
            is_alone[by_start] = are_alone(self.start[by_start], self.end[by_start])

        return is_alone

    def find_dominant_name(self, is_selected: Flags, ns: Int64s) -> DominantName:
        """Find the kernel name that takes the most time among the selected kernels.

        Findings about many kernels name one of them.

        Args:
            is_selected: True for the selected kernels.
            ns: The time to compare by; one per kernel.
        """
        heaviest = heaviest_id(self._name_index[is_selected], ns[is_selected])

        full_name = self.trace.names[heaviest]
        return DominantName(
            short_name=printable(short_name(full_name)),
            has_name=is_selected & (self._name_index == heaviest),
        )

    def make_removal(self, selected: Flags | Rows) -> ReducedDurations:
        """Return the change by which some events would take no time.

        A what-if analysis computes from it how much faster the program would be.

        Args:
            selected: One flag per event, or indices.
        """
        return ReducedDurations(self.rows[selected], self.effective_ns[selected])

    def choose_longest_rows(self, is_selected: Flags) -> tuple[int, ...]:
        """Choose the rows of the selected events that took longest, as evidence."""
        lasts_ns = self.end - self.start
        return choose_heaviest_rows(self.rows[is_selected], lasts_ns[is_selected])
