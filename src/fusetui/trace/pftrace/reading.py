"""The door: from a file to its columns, and to the text of the events behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusetui.text.figures import plural
from fusetui.trace.model.arrays import Flags
from fusetui.trace.model.errors import NothingReadError
from fusetui.trace.model.events import Stretch, Text
from fusetui.trace.model.raw import Raw
from fusetui.trace.model.report import Prefix, Report
from fusetui.trace.pftrace.columns import Columns, columns_of
from fusetui.trace.pftrace.index import STRETCH_EVENTS, PacketIndex, index
from fusetui.trace.pftrace.render import PacketWriter
from fusetui.trace.pftrace.scan import Stages
from fusetui.trace.read.assemble import check_durations
from fusetui.trace.read.document import OpenFile
from fusetui.trace.read.document_text import (
    Filed,
    Rendered,
    remarks_of_cut_names,
    stretches_of,
    text_of,
)
from fusetui.trace.read.elements import Elements
from fusetui.trace.read.reading import Callbacks
from fusetui.trace.read.source import Source, State, Stored, unpacked

NAME = "pftrace"
ANNOTATION = "gpu_user_annotation"  # is launched by no call


def read(stored: Stored, callbacks: Callbacks) -> Raw:
    """Reads a trace file. Raises CannotReadError or NotATraceError with one plain
    sentence, or OSError.

    If it is stopped, the result has a `prefix`; raises NothingReadError if that would be
    empty.
    """
    # The bar shows the share of all steps: unpacking is one of two, if it is needed.
    is_unpacked_first = stored.packing or stored.arriving
    steps = 2 if is_unpacked_first else 1

    def show_unpacking(_unpacked_bytes: int, packed_bytes: int) -> None:
        callbacks.progress(packed_bytes * (steps - 1) // 2, stored.size)

    with closing(stored.room()) as room:
        source = unpacked(stored, room, show_unpacking, callbacks.stop)
        size = len(source.document)

        def show_scanning(scanned_bytes: int) -> bool:
            share = ((steps - 1) * size + scanned_bytes) / (steps * size)
            callbacks.progress(int(stored.size * share), stored.size)
            return callbacks.stop()

        scanned = index(source.document.part, show_scanning)
        changed = stored.has_changed()
    prefix = None
    if scanned.read < size and callbacks.stop():
        prefix = Prefix(scanned.read, size, exact=source.taken is None)
        has_no_event = len(scanned.layout.bounds) == 1
        if has_no_event:
            raise NothingReadError
    return _raw(source, scanned, prefix, changed)


def text(path: str, file: OpenFile, state: State) -> Text:
    """The text of a file that had this state when it was read: it is scanned again when
    needed."""
    document = Filed(path, file, state)

    def writer() -> PacketWriter:
        scanned = index(document.part)
        return PacketWriter(scanned, columns_of(scanned), document.part)

    return Scanned(document, writer)


class Scanned(Rendered):
    """The text of a document, which is scanned before its first use."""

    def __init__(self, document: Text, writer: Callable[[], PacketWriter]) -> None:
        super().__init__(lambda number: self._writer.write(number), document.problem)
        self._document = document
        self._scan = writer

    @cached_property
    def _writer(self) -> PacketWriter:
        return self._scan()

    @property
    def at_hand(self) -> bool:  # type: ignore[override]
        is_scanned = "_writer" in self.__dict__
        return is_scanned and self._document.at_hand

    def part(self, start: int, end: int) -> bytes:
        if end > start:
            return super().part(start, end)
        return bytes(self._writer.part(0, 0))  # scanned and at hand from now on


def _raw(
    source: Source, scanned: PacketIndex, prefix: Prefix | None, changed: bool
) -> Raw:
    columns = columns_of(scanned)
    document = text_of(source)
    writer = PacketWriter(scanned, columns, document.part)
    begins = scanned.begins
    stages = scanned.stages
    layout = scanned.layout

    # Begins with an end, and stages, are slices; other begins are instants.
    is_slice = np.concatenate((layout.has_end, np.ones(len(stages.at), np.bool_)))
    dur = np.concatenate((layout.dur, stages.dur))[is_slice]
    event_number = np.concatenate((scanned.order.begins, scanned.order.stages))
    order = len(columns.labels) + event_number[is_slice]  # the labels stand first
    check_durations(source.path, dur)
    # torch writes them in this order already
    by_order = np.argsort(order, kind="stable")

    def of_slices(*parts: NDArray[Any]) -> Any:
        """A column of the begins and stages, or one of each, as one of the slices."""
        return np.concatenate(parts)[is_slice][by_order]

    category_of_stage = columns.category[len(begins.at) :]
    is_note = _has_category(columns, ANNOTATION)[category_of_stage]
    stage_correlation = np.where(is_note, -1, stages.correlation)
    no_external_id = np.full(len(stages.at), -1)

    slice_count = len(order)
    instant_count = len(is_slice) - slice_count
    flow_count = len(layout.flows.source)
    phases = Counter(
        M=len(columns.labels),
        X=slice_count,
        i=instant_count,
        C=len(scanned.counters.at),
        s=flow_count,
        f=flow_count,
    )
    cut_ends = _cut_ends(stages, is_note)
    is_read_to_its_end = prefix is None and scanned.read == len(source.document)
    report = Report(
        path=source.path,
        bytes=source.size,
        events=phases.total() + scanned.lost_in_all,
        phases=+phases,
        unreadable=scanned.lost_in_all,
        skipped=scanned.lost,
        complete=source.cut is None and is_read_to_its_end,
        cut=source.cut,
        negative_durations=int((dur < 0).sum()),
        unfinished=instant_count,
        unmatched_ends=scanned.unmatched,
        prefix=prefix,
        too_damaged=scanned.read if scanned.damaged else -1,
        changed=changed,
        format=NAME,
        remarks=(
            *_remarks(instant_count, cut_ends),
            *remarks_of_cut_names(columns.names),
        ),
        cut_ends=cut_ends,
    )
    base = scanned.tables.base
    return Raw(
        report=report,
        elements=Elements(
            Scanned(document, lambda: writer), _stretches(scanned, columns)
        ),
        names=columns.names,
        categories=columns.categories,
        threads=columns.threads,
        labels=columns.labels,
        start=of_slices(begins.time, stages.time) - base,
        dur=np.maximum(dur, 0)[by_order],
        name=of_slices(columns.name),
        category=of_slices(columns.category),
        thread=of_slices(columns.thread),
        correlation=of_slices(begins.correlation, stage_correlation),
        external_id=of_slices(begins.external_id, no_external_id),
        order=order[by_order],
        keys={"baseTimeNanoseconds": base, **scanned.tables.exporter},
        copies_named=True,
    )


def _has_category(columns: Columns, category: str) -> Flags:
    """For the number of each category whether it is this one; the table may be empty,
    then there are no numbers."""
    return np.array([name == category for name in columns.categories] or [False])


def _remarks(instants: int, cut_ends: int) -> Iterator[str]:
    """What has to be known of what was read, in sentences without the name of the
    file."""
    if instants:
        their = "its" if instants == 1 else "their"
        yield f"{plural(instants, 'slice')} without {their} end: not shown."
    if cut_ends:
        yield (
            f"{plural(cut_ends, 'GPU event')} may have lasted longer than shown, as "
            "torch ends each of a .pftrace where the next one on its stream begins; "
            ".json has all ends."
        )


def _cut_ends(stages: Stages, is_note: Flags) -> int:
    """How many events other than annotations end where the next one of their lane
    begins, as torch cuts longer ones."""
    work = np.flatnonzero(~is_note)
    by_lane = np.lexsort((stages.time[work], stages.queue[work], stages.gpu[work]))
    here = work[by_lane][:-1]
    after = work[by_lane][1:]
    same_gpu = stages.gpu[here] == stages.gpu[after]
    same_queue = stages.queue[here] == stages.queue[after]
    end = stages.time[here] + stages.dur[here]
    is_cut = same_gpu & same_queue & (end == stages.time[after])
    return int(is_cut.sum())


def _stretches(scanned: PacketIndex, columns: Columns) -> tuple[Stretch, ...]:
    """The stretches that PacketWriter writes: the labels, the events, the flows."""
    layout = scanned.layout
    events = np.diff(layout.bounds).tolist()
    values = np.diff(np.searchsorted(scanned.order.values, layout.bounds)).tolist()
    flow_count = len(layout.flows.source)
    flow_ends = [
        2 * min(STRETCH_EVENTS, flow_count - at)
        for at in range(0, flow_count, STRETCH_EVENTS)
    ]
    no_values = [0] * len(flow_ends)
    return stretches_of(
        events=[len(columns.labels), *events, *flow_ends],
        samples=[0, *values, *no_values],
    )
