"""The entry point: from a file to its columns and to the text of its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property
from typing import Any

import numpy as np
from msgspec.structs import replace
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
    """Read a trace file into columns. Raises CannotReadError or NotATraceError with one
    plain sentence, or OSError.

    If the user stops it, the result has a `prefix`, which says how far the file was
    read. Raises NothingReadError if there would be no event in it.
    """
    # The bar shows the share of all steps: unpacking is one of two, if it is needed.
    is_unpacked_first = stored.packing or stored.arriving
    steps_before = 1 if is_unpacked_first else 0
    steps = steps_before + 1

    def show_unpacking(_unpacked_bytes: int, packed_bytes: int) -> None:
        callbacks.progress(packed_bytes * steps_before // 2, stored.size)

    with closing(stored.room()) as room:
        source = unpacked(stored, room, show_unpacking, callbacks.stop)
        size = len(source.document)

        def show_scanning(scanned_bytes: int) -> bool:
            share = (steps_before * size + scanned_bytes) / (steps * size)
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
    return _build_raw(source, scanned, prefix, changed)


def text(path: str, file: OpenFile, state: State) -> Text:
    """The JSON text of a .pftrace file that was read earlier and had this `state` then.
    The file is scanned again before the first use of the text."""
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
        """The writer of the text, made by scanning the document at its first use."""
        return self._scan()

    @property
    def at_hand(self) -> bool:  # type: ignore[override]
        """Whether a part of the text can be given without scanning the file first."""
        is_scanned = "_writer" in self.__dict__
        return is_scanned and self._document.at_hand

    def part(self, start: int, end: int) -> bytes:
        """The bytes [start, end) of the text. An empty range scans the file, so that
        later parts are at hand."""
        if end > start:
            return super().part(start, end)
        return bytes(self._writer.part(0, 0))  # scanned and at hand from now on


class _SliceRows:
    """Which begins and stages are slices, in which order: begins with an end, and
    stages, are; other begins are instants."""

    def __init__(self, scanned: PacketIndex, labels: int) -> None:
        """Find the slices among the begins and the GPU stages of a scanned file, and
        sort them by their place in the document. `labels` is the number of labels
        before the first event."""
        order = scanned.order
        stage_count = len(scanned.stages.at)
        is_stage_slice = np.ones(stage_count, np.bool_)
        self._is_slice = np.concatenate((scanned.layout.has_end, is_stage_slice))
        event_number = np.concatenate((order.begins, order.stages))
        place_of_slice = labels + event_number[self._is_slice]
        # torch writes them in this order already
        self._by_place = np.argsort(place_of_slice, kind="stable")
        self.order = place_of_slice[self._by_place]  # of traceEvents; shape [slices]
        self.instants = len(self._is_slice) - len(place_of_slice)

    def column(self, *parts: NDArray[Any]) -> Any:
        """A column of values for the slices, in the order of the document; shape
        [slices]. `parts` has the values of all begins and stages, in one array or in
        two."""
        return np.concatenate(parts)[self._is_slice][self._by_place]


def _build_raw(
    source: Source, scanned: PacketIndex, prefix: Prefix | None, changed: bool
) -> Raw:
    """The columns of a trace that was scanned.

    `prefix` says how far it was read if the user stopped it, else it is None. `changed`
    says whether the file changed meanwhile. Raises NotATraceError if the durations add
    up to too much.
    """
    columns = columns_of(scanned)
    document = text_of(source)
    writer = PacketWriter(scanned, columns, document.part)
    begins = scanned.begins
    stages = scanned.stages
    rows = _SliceRows(scanned, labels=len(columns.labels))
    dur = rows.column(scanned.layout.dur, stages.dur)
    check_durations(source.path, dur)

    is_note = _mark_annotations(scanned, columns)
    stage_correlation = np.where(is_note, -1, stages.correlation)
    no_external_id = np.full(len(stages.at), -1)
    report = replace(
        _count_events(source, scanned, prefix, columns, rows),
        negative_durations=int((dur < 0).sum()),
        changed=changed,
    )
    text_of_document = Scanned(document, lambda: writer)
    base = scanned.tables.base
    return Raw(
        report=report,
        elements=Elements(text_of_document, _list_stretches(scanned, columns)),
        names=columns.names,
        categories=columns.categories,
        threads=columns.threads,
        labels=columns.labels,
        start=rows.column(begins.time, stages.time) - base,
        dur=np.maximum(dur, 0),
        name=rows.column(columns.name),
        category=rows.column(columns.category),
        thread=rows.column(columns.thread),
        correlation=rows.column(begins.correlation, stage_correlation),
        external_id=rows.column(begins.external_id, no_external_id),
        order=rows.order,
        keys={"baseTimeNanoseconds": base, **scanned.tables.exporter},
        copies_named=True,
    )


def _count_events(
    source: Source,
    scanned: PacketIndex,
    prefix: Prefix | None,
    columns: Columns,
    rows: _SliceRows,
) -> Report:
    """The report of this reading: how many events of each phase there are, and what
    could not be read. The number of negative durations is added later."""
    flow_count = len(scanned.layout.flows.source)
    phases = Counter(
        M=len(columns.labels),
        X=len(rows.order),
        i=rows.instants,
        C=len(scanned.counters.at),
        s=flow_count,
        f=flow_count,
    )
    cut_ends = _count_cut_ends(scanned.stages, _mark_annotations(scanned, columns))
    remarks = [
        *_describe_losses(rows.instants, cut_ends),
        *remarks_of_cut_names(columns.names),
    ]
    is_read_to_its_end = prefix is None and scanned.read == len(source.document)
    return Report(
        path=source.path,
        bytes=source.size,
        events=phases.total() + scanned.lost_in_all,
        phases=+phases,  # without zeros
        unreadable=scanned.lost_in_all,
        skipped=scanned.lost,
        complete=source.cut is None and is_read_to_its_end,
        cut=source.cut,
        negative_durations=0,
        unfinished=rows.instants,
        unmatched_ends=scanned.unmatched,
        prefix=prefix,
        too_damaged=scanned.read if scanned.damaged else -1,
        format=NAME,
        remarks=tuple(remarks),
        cut_ends=cut_ends,
    )


def _mark_annotations(scanned: PacketIndex, columns: Columns) -> Flags:
    """A flag for each GPU stage: whether it is an annotation, which no call launched;
    shape [stages]."""
    category_of_stage = columns.category[len(scanned.begins.at) :]
    # without categories there are no stages either
    is_note = [category == ANNOTATION for category in columns.categories] or [False]
    return np.array(is_note)[category_of_stage]


def _describe_losses(instants: int, cut_ends: int) -> Iterator[str]:
    """Yield sentences about slices without an end and about cut GPU events, without the
    name of the file. Counts of 0 give no sentence."""
    if instants:
        their = "its" if instants == 1 else "their"
        yield f"{plural(instants, 'slice')} without {their} end: not shown."
    if cut_ends:
        yield (
            f"{plural(cut_ends, 'GPU event')} may have lasted longer than shown, as "
            "torch ends each of a .pftrace where the next one on its stream begins; "
            ".json has all ends."
        )


def _count_cut_ends(stages: Stages, is_note: Flags) -> int:
    """How many GPU events, other than annotations, end exactly where the next one of
    their stream begins.

    torch cuts a longer event there when it writes a .pftrace. `is_note` has a flag for
    each stage: whether it is an annotation.
    """
    work = np.flatnonzero(~is_note)
    by_lane = np.lexsort((stages.time[work], stages.queue[work], stages.gpu[work]))
    in_order = work[by_lane]
    gpu = stages.gpu[in_order]
    queue = stages.queue[in_order]
    start = stages.time[in_order]
    end = start + stages.dur[in_order]
    is_same_lane = (gpu[:-1] == gpu[1:]) & (queue[:-1] == queue[1:])
    is_cut = is_same_lane & (end[:-1] == start[1:])
    return int(is_cut.sum())


def _list_stretches(scanned: PacketIndex, columns: Columns) -> tuple[Stretch, ...]:
    """The stretches, or ranges of the document, in the order in which PacketWriter
    writes them: the labels, the events, the flow arrows. Each has its number of
    elements and of counter values."""
    layout = scanned.layout
    events = np.diff(layout.bounds).tolist()
    values_before = np.searchsorted(scanned.order.values, layout.bounds)
    values = np.diff(values_before).tolist()
    flow_count = len(layout.flows.source)
    flow_ends: list[int] = []  # two of each flow
    for first in range(0, flow_count, STRETCH_EVENTS):
        flows_of_stretch = min(STRETCH_EVENTS, flow_count - first)
        flow_ends.append(2 * flows_of_stretch)
    no_values = [0] * len(flow_ends)
    return stretches_of(
        events=[len(columns.labels), *events, *flow_ends],
        samples=[0, *values, *no_values],
    )
