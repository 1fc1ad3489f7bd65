"""The account of each device: every ns of its span, of a step or of a window is in one class."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.insights.cover import Cover, cover_of, joined
from fusetui.trace.insights.gaps import (
    AFTER,
    IDLE,
    Cuts,
    Gaps,
    cuts_of,
    events_in_order,
    gap_before,
    gaps_between,
    one_after_another,
    reasons,
    usual_latency_ns,
)
from fusetui.trace.insights.host import Host, Threads, host_kinds, in_lines
from fusetui.trace.insights.model import DeviceAccount
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.questions.busy import communicates

Int64s = NDArray[np.int64]
Rows = NDArray[np.intp]


class Accounts:
    """The devices of a trace that ran kernels, copies or sets, in the order of their lanes."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def kinds(self) -> NDArray[np.int8]:
        """See host.host_kinds."""
        return host_kinds(self.trace)

    @cached_property
    def threads(self) -> tuple[Threads, ...]:
        """All CPU threads, on as many lines of time as they need."""
        tracks = np.zeros(len(self.trace.tracks), dtype=np.bool_)
        tracks[self.trace.track[self.kinds != Host.NOTHING]] = True
        return in_lines(self.trace, self.kinds, tracks)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        trace, rows = self.trace, self.trace.gpu_rows
        known, comm = device_properties(trace), communicates(trace, rows)
        process = trace.process_of_track[trace.track[rows]]
        by_device = np.argsort(process, kind="stable")
        cuts = np.flatnonzero(np.diff(process[by_device])) + 1
        found: list[Device] = []
        groups = np.split(by_device, cuts) if len(rows) else []
        for places in sorted(groups, key=lambda group: int(group[0])):
            pid = trace.track_of(int(rows[places[0]])).pid
            name = known.get(pid, {}).get("name")
            named = name if isinstance(name, str) else ""
            found.append(Device(self, pid, named, rows[places], comm[places]))
        return tuple(found)


class Device:
    """One device. Whatever is needed is computed once, for all steps and windows together."""

    def __init__(
        self, accounts: Accounts, pid: Id, name: str, rows: Rows, comm: NDArray[np.bool_]
    ) -> None:
        """`rows`: its GPU events, at least one; `comm`: which of them communicate."""
        self.accounts = accounts
        self.trace = accounts.trace
        self.pid = pid
        self.name = name
        self._rows = rows
        self._comm = comm
        self.begin_ns = int(self.trace.start[rows].min())
        self.end_ns = int(self.trace.end[rows].max())

    @cached_property
    def events(self) -> Rows:
        """Rows by start; of those that start together, the longest first."""
        return events_in_order(self.trace, self._rows)

    @cached_property
    def gaps(self) -> Gaps:
        return gaps_between(self.trace, self.events)

    @cached_property
    def latency_ns(self) -> int:
        """The usual delay from the start of a launch call to that of its event."""
        return usual_latency_ns(self.trace, self.gaps)

    @cached_property
    def cuts(self) -> Cuts:
        """Where the reasons of each gap change."""
        return cuts_of(self.trace, self.gaps, self.latency_ns)

    @cached_property
    def reasons(self) -> Int64s:
        """How long each gap lasted for which reason (ns); shape [IDLE, gaps]."""
        return self._reasons(self.gaps, self.cuts, np.arange(len(self.gaps)), self.gaps.end)

    def gaps_since(self, begin_ns: int) -> tuple[Gaps, Cuts]:
        """All gaps and their cuts; the time from `begin_ns` to the first event is one more."""
        lead = gap_before(self.trace, self.events, begin_ns)
        if not len(lead):
            return self.gaps, self.cuts
        lead_cuts = cuts_of(self.trace, lead, self.latency_ns)
        return one_after_another(lead, self.gaps), one_after_another(lead_cuts, self.cuts)

    def idle_in(self, window: tuple[int, int] | None) -> tuple[Gaps, Cuts, Int64s]:
        """The gaps, their cuts and how long each lasted for which reason (ns, shape [IDLE, gaps]);
        in a window [begin, end) (ns of the file) the parts that lie in it, and the time before the
        first event is a gap too."""
        if window is None:
            return self.gaps, self.cuts, self.reasons
        gaps, cuts = self.gaps_since(window[0])
        which = np.flatnonzero((gaps.begin < window[1]) & (gaps.end > window[0]))
        inside = gaps.within(which, *window)
        until = self._reasons(gaps, cuts, which, inside.end)
        lasted = until - self._reasons(gaps, cuts, which, inside.begin)
        return inside, cuts.within(which, inside), lasted

    @cached_property
    def span(self) -> DeviceAccount:
        """The account from the first start to the last end of its events."""
        begin, end = np.array([self.begin_ns]), np.array([self.end_ns])
        return self._account(self._busy(begin, end), self.reasons.sum(axis=1, keepdims=True))[0]

    def over(self, begin: Int64s, end: Int64s) -> list[DeviceAccount]:
        """The account of each window [begin, end) (ns of the file), where begin <= end."""
        idle = self._idle_until(end) - self._idle_until(begin)
        if len(begin) and begin.min() < self.begin_ns:
            idle += self._idle_before(begin, end)
        idle[AFTER] = np.maximum(end - np.maximum(begin, self.end_ns), 0)
        return self._account(self._busy(begin, end), idle)

    def _account(self, busy: Int64s, idle: Int64s) -> list[DeviceAccount]:
        """From the figures of `_busy` and the reasons for being idle, both of shape [n,
        windows]."""
        return [
            self._record(figures, {name: ns for name, ns in zip(IDLE, why, strict=True) if ns})
            for figures, why in zip(busy.T.tolist(), idle.T.tolist(), strict=True)
        ]

    def _record(self, figures: Sequence[int], idle: dict[str, int]) -> DeviceAccount:
        span, compute, comm, copy, rest, hidden_comm, hidden_copy = figures
        return DeviceAccount(
            device=exact_id(self.pid),
            name=self.name,
            span_ns=span,
            compute_ns=compute,
            exposed_comm_ns=comm,
            exposed_copy_ns=copy,
            idle_ns=rest,
            hidden_comm_ns=hidden_comm,
            hidden_copy_ns=hidden_copy,
            launch_latency_usual_ns=self.latency_ns,
            idle=idle,
        )

    def _busy(self, begin: Int64s, end: Int64s) -> Int64s:
        """The figures of DeviceAccount from span_ns to hidden_copy_ns; shape [7, windows]."""
        compute, comm, copy, both, every = (cover.within(begin, end) for cover in self._covers)
        span = end - begin
        return np.stack(
            (
                span,
                compute,
                both - compute,
                every - both,
                span - every,
                comm - (both - compute),
                copy - (every - both),
            )
        )

    @cached_property
    def _covers(self) -> tuple[Cover, ...]:
        """Compute; communication; copies; the first two; all three."""
        kernel = self.trace.role[self._rows] == Role.KERNEL
        compute, comm, copy = (
            cover_of(self.trace.start[rows], self.trace.end[rows])
            for rows in (
                self._rows[kernel & ~self._comm],
                self._rows[self._comm],
                self._rows[~kernel & ~self._comm],
            )
        )
        both = joined(compute, comm)
        return compute, comm, copy, both, joined(both, copy)

    def _idle_until(self, times: Int64s) -> Int64s:
        """How long it was idle for which reason before each time (ns); shape [IDLE, times]."""
        gaps, found = self.gaps, np.zeros((len(IDLE), len(times)), dtype=np.int64)
        at = np.searchsorted(gaps.begin, times, side="right") - 1
        started = np.flatnonzero(at >= 0)
        at, times = at[started], times[started]
        for reason, column in enumerate(self.reasons):
            found[reason, started] = (np.cumsum(column) - column)[at]
        found[:, started] += self._reasons(gaps, self.cuts, at, np.minimum(times, gaps.end[at]))
        return found

    def _idle_before(self, begin: Int64s, end: Int64s) -> Int64s:
        """Likewise, in each window, the time before its first event."""
        lead = gap_before(self.trace, self.events, int(begin.min()))
        edges = np.minimum(np.concatenate((begin, end)), self.begin_ns)
        cuts = cuts_of(self.trace, lead, self.latency_ns)
        until = self._reasons(lead, cuts, np.zeros(len(edges), dtype=np.intp), edges)
        idle: Int64s = until[:, len(begin) :] - until[:, : len(begin)]
        return idle

    def _reasons(self, gaps: Gaps, cuts: Cuts, which: Rows, until: Int64s) -> Int64s:
        return reasons(self.trace, self.accounts.threads, gaps, cuts, which, until)


def accounts(trace: Trace) -> Accounts:
    """What the devices of a trace did. Each part is computed when it is first needed."""
    return Accounts(trace)
