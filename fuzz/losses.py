"""Was anything lost that was not counted: a trace beside what Python's json finds in
its file."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
from fuzz.checks import check
from fuzz.oracle import Expected, Slice, expected, good_lines
from fuzz.packing import unpacked

from fusetui.trace import Trace
from fusetui.trace.layout.counters import MAX_SERIES, counters
from fusetui.trace.read.elements import TOO_DEEP

MAX_SLICES_WITH_ARGS = 100  # slices whose args are compared


def check_losses(trace: Trace, stored: bytes) -> str:
    """Exactly, where Python's json reads the whole; else what stands on lines of its
    own. Which of them it was is the result."""
    data = unpacked(stored)
    if data is None:
        check(trace.report.cut is not None, "damaged packing that nobody was told of")
        return "damaged packing"
    check(trace.report.cut is None, "undamaged packing", trace.report.cut)
    whole = expected(data)
    if whole is None:
        lines = good_lines(data, not trace.report.complete)
        check_lines(trace, lines, data)
        return "by lines" if lines else "damaged"
    report = trace.report
    counts = (report.events, report.unreadable, sum(report.phases.values()))
    wanted = (whole.events, whole.unreadable, sum(whole.phases.values()))
    check(
        counts == wanted,
        "events, unreadable, read",
        (counts, wanted, report.skipped[:3]),
    )
    check(report.complete, "a whole file that is called cut short")
    check_slices(trace, whole)
    check_keys(trace, data)
    check_samples(trace, whole)
    return "exactly"


def check_refused(sentence: str, stored: bytes) -> None:
    """It was said that this is no trace: then there is no event in it."""
    check(
        "\n" not in sentence and sentence.endswith((".", "?")), "no sentence", sentence
    )
    data = unpacked(stored)
    whole = expected(data) if data is not None else None
    if whole is None:
        return
    refused = "146 years" in sentence or (whole.is_list and not whole.phases)
    check(refused or not data, "a trace that was refused", sentence)


def check_slices(trace: Trace, whole: Expected) -> None:
    """The trace has the slices of the document, each with its values."""
    row_of_order = {int(order): row for row, order in enumerate(trace.order.tolist())}
    check(sorted(row_of_order) == [each.order for each in whole.slices], "slices")
    names_devices = any("device" in each.args for each in whole.slices)
    for number, expected_slice in enumerate(whole.slices):
        row = row_of_order[expected_slice.order]
        check_slice(trace, row, expected_slice, names_devices)
        if number < MAX_SLICES_WITH_ARGS:
            args = trace.args_of(row)
            same = _same(expected_slice.args, args)
            check(same, "args", (expected_slice, args))


def check_slice(trace: Trace, row: int, wanted: Slice, names_devices: bool) -> None:
    """A row has the times, the name, the category and the thread of a slice; where
    events name devices, these numbers take the place of pids."""
    start = int(trace.start[row])
    dur = int(trace.dur[row])
    name = trace.name_of(row)
    category = trace.category_of(row)
    track = trace.track_of(row)
    pid, tid = wanted.place or (track.pid, track.tid)
    check(start == wanted.start, "start", (wanted, start))
    check(wanted.dur in (None, dur), "dur", (wanted, dur))
    check(wanted.name in (None, name), "name", (wanted, name))
    check(wanted.category in (None, category), "category", (wanted, category))
    check(tid == track.tid, "thread", (wanted, track))
    check(pid == track.pid or names_devices, "process", (wanted, track))


def _same(wanted: Any, found: Any) -> bool:
    """Equal, but for what is nested too deeply."""
    if found == TOO_DEEP:
        return True
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(
            _same(wanted[k], found[k]) for k in wanted
        )
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_same, wanted, found))
    return bool(wanted == found) and type(wanted) is type(found)


def check_keys(trace: Trace, data: bytes) -> None:
    """The other keys of the document, where a strict reader takes it."""
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return
    keys = {} if isinstance(document, list) else document
    keys.pop("traceEvents", None)
    check(trace.keys == keys, "keys", (trace.keys, keys))


def check_samples(trace: Trace, whole: Expected) -> None:
    """Every finite value of a counter is a point of a curve."""
    if len(whole.series) > MAX_SERIES:
        return
    found = sum(len(one.time) for one in counters(trace) if one.group == "counters")
    check(found == whole.samples, "values of counters", (found, whole.samples))


def check_lines(trace: Trace, lines: list[Slice], data: bytes) -> None:
    """The slices of undamaged lines were read, or are counted among what was not."""
    report = trace.report
    if report.too_damaged >= 0 or any(
        "a second" in skip.reason for skip in report.skipped
    ):
        return  # that is one sentence, and what follows is not counted
    rests = [data[skip.byte :] for skip in report.skipped]
    if any(rest.startswith(b"[") or b'"traceEvents"' in rest for rest in rests):
        # a list or a document among the events is one element, whatever a lost bracket
        # adds
        return
    there = zip(trace.start.tolist(), trace.dur.tolist(), strict=True)
    begins = Counter(trace.start.tolist())
    whole = Counter(there)
    wanted = Counter((one.start, one.dur) for one in lines if one.dur is not None)
    lost = (wanted - whole).total()
    lost += (Counter(one.start for one in lines if one.dur is None) - begins).total()
    told = report.unreadable
    check(lost <= told, "lost and not counted", (lost, told, report.complete))
