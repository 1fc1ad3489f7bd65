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
from fusetui.trace.pftrace.index import EACH, PacketIndex, index
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

    If it is stopped, the result has a `prefix`; raises NothingReadError if that would
    be empty."""
    # the bar also tells of unpacking
    twice = 2 if stored.packing or stored.arriving else 1

    def grown(length: int, taken: int) -> None:
        callbacks.progress(taken * (twice - 1) // 2, stored.size)

    with closing(stored.room()) as room:
        source = unpacked(stored, room, grown, callbacks.stop)
        size = len(source.document)

        def scanned(at: int) -> bool:
            share = ((twice - 1) * size + at) / (twice * size)
            callbacks.progress(int(stored.size * share), stored.size)
            return callbacks.stop()

        found = index(source.document.part, scanned)
        changed = stored.has_changed()
    prefix = None
    if found.read < size and callbacks.stop():
        prefix = Prefix(found.read, size, exact=source.taken is None)
        if len(found.layout.bounds) == 1:
            raise NothingReadError
    return _raw(source, found, prefix, changed)


def text(path: str, file: OpenFile, state: State) -> Text:
    """The text of a file that had this state when it was read: it is scanned again when
    needed."""
    document = Filed(path, file, state)

    def writer() -> PacketWriter:
        found = index(document.part)
        return PacketWriter(found, columns_of(found), document.part)

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
        return "_writer" in self.__dict__ and self._document.at_hand

    def part(self, start: int, end: int) -> bytes:
        if end > start:
            return super().part(start, end)
        return bytes(self._writer.part(0, 0))  # scanned and at hand from now on


def _raw(
    source: Source, found: PacketIndex, prefix: Prefix | None, changed: bool
) -> Raw:
    columns = columns_of(found)
    document = text_of(source)
    writer = PacketWriter(found, columns, document.part)
    begins, stages, counters = found.begins, found.stages, found.counters
    kept = np.concatenate((found.layout.has_end, np.ones(len(stages.at), np.bool_)))
    order = np.concatenate(found.order[:2])[kept] + len(columns.labels)
    dur = np.concatenate((found.layout.dur, stages.dur))[kept]

    check_durations(source.path, dur)
    # torch writes them in this order already
    by_order = np.argsort(order, kind="stable")

    def of_slices(*parts: NDArray[Any]) -> Any:
        return np.concatenate(parts)[kept][by_order]

    flows, slices = len(found.layout.flows.source), len(order)
    noted = np.array([name == ANNOTATION for name in columns.categories] or [False])
    is_note = noted[columns.category[len(begins.at) :]]
    counts = Counter(M=len(columns.labels), X=slices, i=len(kept) - slices)
    counts.update(C=len(counters.at), s=flows, f=flows)
    cut = _cut_ends(stages, is_note)
    whole = source.cut is None and prefix is None and found.read == len(source.document)
    report = Report(
        path=source.path,
        bytes=source.size,
        events=counts.total() + found.lost_in_all,
        phases=+counts,
        unreadable=found.lost_in_all,
        skipped=found.lost,
        complete=whole,
        cut=source.cut,
        negative_durations=int((dur < 0).sum()),
        unfinished=counts["i"],
        unmatched_ends=found.unmatched,
        prefix=prefix,
        too_damaged=found.read if found.damaged else -1,
        changed=changed,
        format=NAME,
        remarks=(*_remarks(counts["i"], cut), *remarks_of_cut_names(columns.names)),
        cut_ends=cut,
    )
    return Raw(
        report=report,
        elements=Elements(
            Scanned(document, lambda: writer), _stretches(found, columns)
        ),
        names=columns.names,
        categories=columns.categories,
        threads=columns.threads,
        labels=columns.labels,
        start=of_slices(begins.time, stages.time) - found.tables.base,
        dur=np.maximum(dur, 0)[by_order],
        name=of_slices(columns.name),
        category=of_slices(columns.category),
        thread=of_slices(columns.thread),
        correlation=of_slices(
            begins.correlation, np.where(is_note, -1, stages.correlation)
        ),
        external_id=of_slices(begins.external_id, np.full(len(stages.at), -1)),
        order=order[by_order],
        keys={"baseTimeNanoseconds": found.tables.base, **found.tables.exporter},
        copies_named=True,
    )


def _remarks(endless: int, cut: int) -> Iterator[str]:
    """What has to be known of what was read, in sentences without the name of the
    file."""
    if endless:
        one = endless == 1
        yield f"{plural(endless, 'slice')} without {'its' if one else 'their'} end: not shown."
    if cut:
        yield (
            f"{plural(cut, 'GPU event')} may have lasted longer than shown, as torch ends each of "
            "a .pftrace where the next one on its stream begins; .json has all ends."
        )


def _cut_ends(stages: Stages, is_note: Flags) -> int:
    """Events that end where the next one of their lane begins, as torch cuts longer
    ones."""
    work = np.flatnonzero(~is_note)
    row = work[np.lexsort((stages.time[work], stages.queue[work], stages.gpu[work]))]
    here, after = row[:-1], row[1:]
    same = (stages.gpu[here] == stages.gpu[after]) & (
        stages.queue[here] == stages.queue[after]
    )
    return int(
        (same & (stages.time[here] + stages.dur[here] == stages.time[after])).sum()
    )


def _stretches(found: PacketIndex, columns: Columns) -> tuple[Stretch, ...]:
    """See Writer."""
    bounds = found.layout.bounds
    values = np.diff(np.searchsorted(found.order[2], bounds)).tolist()
    flows = len(found.layout.flows.source)
    arrows = [2 * min(EACH, flows - at) for at in range(0, flows, EACH)]
    events = np.diff(bounds).tolist()
    return stretches_of(
        [len(columns.labels), *events, *arrows], [0, *values, *(0 for _ in arrows)]
    )
