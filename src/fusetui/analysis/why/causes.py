"""Find the slices of CPU threads that cause idle time of the devices, also by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.devices import HOST_REASONS
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import add_up_by_text
from fusetui.analysis.why.model import COMPILER, LOADER
from fusetui.analysis.why.thread_activity import (
    WORK_LAYERS,
    Slices,
    ThreadActivity,
    Threads,
    merge_slices,
)
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    heaviest_id,
)
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.intervals import (
    NOTHING,
    Cover,
    common,
    counted,
    outside,
    union,
    without,
)
from fusetui.trace.program.regions import MODULE_PREFIX, NUMBER_OF_MODULE, is_module


class SliceTimes(NamedTuple):
    """Slices and a time of each; arrays of one shape. A slice may occur several times."""

    rows: Rows
    """Rows of the trace."""
    ns: Int64s

    def select(self, is_selected: Flags) -> SliceTimes:
        """Return some of the slices, chosen by one flag each."""
        return SliceTimes(rows=self.rows[is_selected], ns=self.ns[is_selected])


def find_idle_causes(trace: Trace) -> SliceTimes | None:
    """Find for which slices the devices waited for a launch, and how long.

    Each moment counts for the innermost slice of the launching thread. Time in which
    only an annotation was recorded is left out. `fusetui.api` and the tables show it by
    function.

    Returns:
        None if no launch call is known.
    """
    facts = Facts(Accounts(trace))
    if not facts.has_launches:
        return None

    all_gaps = np.ones(len(facts.gaps), dtype=np.bool_)
    return find_slices_in_idle_time(facts, all_gaps, NOTHING, WORK_LAYERS)


def find_slices_in_idle_time(
    facts: Facts,
    is_counted: Flags,
    leaving_out: Cover,
    layers: Sequence[tuple[ThreadActivity, ...]],
) -> SliceTimes:
    """Find what launching threads did while the GPU waited for their next launch.

    That is the innermost slice at each moment from the begin of a gap to the begin of
    the call that launches the next event.

    Args:
        is_counted: True for the gaps that count; shape [gaps].
        leaving_out: The time that does not count, in ns of the file.
        layers: The activities whose slices count. A slice of an earlier layer counts
            before one of a later layer.

    Returns:
        How long each slice was the innermost one.
    """
    gaps = facts.gaps
    rows_of_parts = [np.empty(0, dtype=np.intp)]
    ns_of_parts = [np.empty(0, dtype=np.int64)]
    is_launched_late = is_counted & (gaps.call_begin > gaps.begin)

    for threads, _, on_axis in facts.group_gaps_by_axis(is_launched_late):
        # Counted, because several devices may wait for a thread at the same time.
        waiting = counted(on_axis(gaps.begin), on_axis(gaps.call_begin))
        waiting = threads.cut_intervals(waiting, outside(leaving_out))

        for activities in layers:
            parts = _cut_innermost_slices(threads, activities, waiting)
            rows_of_parts.append(parts.rows)
            ns_of_parts.append(waiting.within(parts.start, parts.end))
            explained = union(parts.start, parts.end)
            waiting = waiting.only(outside(explained))

    return SliceTimes(
        rows=np.concatenate(rows_of_parts), ns=np.concatenate(ns_of_parts)
    )


def _cut_innermost_slices(
    threads: Threads, kinds: Sequence[ThreadActivity], waiting: Cover
) -> Slices:
    """Cut slices of some kinds so that each part is the innermost one among these
    kinds.

    All times lie on the axis of the threads. Only slices that touch the waiting times
    are cut, to save time.

    Args:
        kinds: The activities whose slices count.
        waiting: When a device waits for a launch of these threads.
    """
    touching = []
    for kind in kinds:
        slices = threads.find_slices(kind)
        touching.append(slices.select_touching(waiting.start, waiting.end))

    return merge_slices(touching).cut_innermost_parts()


def measure_idle_by_cause(
    trace: Trace, begin: Int64s, end: Int64s, idle_ns: int
) -> dict[str, int]:
    """Measure how long no GPU event ran, by cause, on average over some windows.

    All devices count as one. The causes are the reasons of the account. Of the time
    before a launch, what a launching thread spent fetching a batch or compiling counts
    as `data_loading` and `compilation` instead.

    Args:
        begin: The begins of disjoint windows, in ns of the file.
        end: Their ends.
        idle_ns: The mean of all idle time, to which the result adds up.

    Returns:
        ns by cause; {} without a GPU event or a window.
    """
    if not len(trace.gpu_rows) or not len(begin):
        return {}

    accounts = Accounts(trace)
    all_as_one = accounts.merge_devices()

    total_ns: Counter[str] = Counter()
    first_device = np.zeros(len(begin), dtype=np.intp)
    for account in all_as_one.account_for_windows(first_device, begin, end):
        total_ns.update(account.idle)

    first_to_last = (int(begin.min()), int(end.max()))
    facts = Facts(accounts, (all_as_one,), first_to_last)
    windows = union(begin, end)
    loading = common(facts.loading_time, windows)
    compiling = without(common(facts.compiling_time, windows), loading)
    _move_to_cause(total_ns, LOADER, facts.measure_activities_during(loading))
    _move_to_cause(total_ns, COMPILER, facts.measure_activities_during(compiling))

    return _average_by_cause(total_ns, windows=len(begin), sum_ns=idle_ns)


def _move_to_cause(total_ns: Counter[str], cause: str, activity_ns: Int64s) -> None:
    """Move idle time before launches from its reasons to a cause, in place.

    Args:
        total_ns: The time of each reason and cause.
        cause: Where the time goes.
        activity_ns: How much of each of HOST_REASONS moves, of shape [ThreadActivity,
            gaps].
    """
    ns_of_activity = activity_ns.sum(axis=1).tolist()
    for reason, ns in zip(HOST_REASONS, ns_of_activity, strict=True):
        total_ns[reason] -= ns
        total_ns[cause] += ns


def _average_by_cause(
    total_ns: Counter[str], windows: int, sum_ns: int
) -> dict[str, int]:
    """Return the mean of each total over the windows, rounded, without zero totals.

    The largest mean takes what rounding lost, so that all add up to `sum_ns`.
    """
    means = {}
    for cause, ns in total_ns.items():
        if ns:
            means[cause] = round(ns / windows)

    if means:
        largest = max(means, key=lambda cause: means[cause])
        means[largest] += sum_ns - sum(means.values())
    return means


class CallAndOp(NamedTuple):
    """The names of a runtime call and of the op that it was made in."""

    name: str
    op: str | None
    """None if the call was made outside of all ops."""


def find_heaviest_call(trace: Trace, calls: Rows, amounts: Int64s) -> CallAndOp:
    """Find the name of calls with the largest sum of amounts, and their usual op.

    If cudaMemcpy has 3 of the time in aten::item and 2 outside of ops, and
    cudaFree has 4, it is (cudaMemcpy, aten::item).

    Args:
        calls: Rows of the trace; at least one.
        amounts: An amount for each call, such as a time.
    """
    name_of_call = trace.name[calls]
    name = heaviest_id(name_of_call, amounts)
    has_name = name_of_call == name

    # heaviest_id takes no negative ids, so -1 for a call outside of ops becomes 0.
    op_of_call = trace.op[calls[has_name]]
    op = heaviest_id(op_of_call + 1, amounts[has_name]) - 1
    op_name = trace.name_of(op) if op != NO_ROW else None
    return CallAndOp(name=trace.names[name], op=op_name)


FRAME: Final = lazy_pattern(r"(?:.*/)?([^/]+)\((\d+)\): (.+)", re.DOTALL)
BUILT_IN: Final = lazy_pattern(r"<built-in (?:method|function) (\S+)")
MAX_TEXT_CHARACTERS: Final = 60
"""How many characters of a name are shown."""
MAX_FRAME_CHARACTERS: Final = 1000
"""How many characters of the name of a frame are read."""


def format_frame(name: str, most: int = MAX_TEXT_CHARACTERS) -> str:
    """Format a frame as a user would name it, such as `zoom (_interpolation.py:691)`.

    A built-in function becomes its name alone. Any other text stays as it is.

    >>> format_frame("/lib/torch/nn/linear.py(125): forward")
    'forward (linear.py:125)'
    >>> format_frame("<built-in method run_backward of type object at 0x7f>")
    'run_backward'

    Args:
        name: The name of a slice, from the trace.
        most: How many characters the text may have.
    """
    name = name[:MAX_FRAME_CHARACTERS]
    built_in = BUILT_IN.match(name)
    frame = FRAME.fullmatch(name)
    if built_in:
        name = built_in[1].removesuffix(">")
    elif frame:
        file, line, function = frame.groups()
        name = f"{function} ({file}:{line})"

    return printable(clip(name, most))


def format_module(name: str, most: int = MAX_TEXT_CHARACTERS) -> str:
    """Format a module without its number, or an annotation.

    Examples are `Qwen2MLP` and `## forward ##`.
    """
    module = name.removeprefix(MODULE_PREFIX)
    return format_frame(NUMBER_OF_MODULE.sub("", module), most)


MAX_NAMES: Final = 2
"""How many names of one kind are reported."""
_STEP_NUMBER: Final = lazy_pattern(r"#[0-9]{1,18}\Z")
MIN_SHARE_TO_NAME: Final = 0.02
"""A name with a smaller share of all time is not reported."""


class Delay(NamedTuple):
    """What kept launching threads from launching, and how long."""

    text: str
    """Such as `aten::conv2d (265 x, 21.3 ms)`."""
    ns: int


def rank_delaying_names(
    trace: Trace, slices: SliceTimes, make_text: Callable[[str], str], all_ns: int
) -> list[Delay]:
    """List the names under which launching threads spent most of some time.

    Args:
        slices: How long each slice kept a launching thread.
        make_text: Makes the text for a name, under which slices count together.
        all_ns: A name with less than MIN_SHARE_TO_NAME of this time is left out.

    Returns:
        At most MAX_NAMES names, the longest first.
    """
    if all_ns <= 0:
        return []

    # Count each slice once, with the sum of its times.
    by_row = grouped(slices.rows)
    ns_of_slice = by_row.sums(slices.ns)

    delays = []
    by_name = add_up_by_text(trace, by_row.keys, ns_of_slice, make_text)
    for name, total in by_name.items():
        if total.ns >= MIN_SHARE_TO_NAME * all_ns:
            text = f"{name} ({count(total.occurrences)} x, {duration(total.ns)})"
            delays.append(Delay(text=text, ns=total.ns))

    delays.sort(key=lambda delay: -delay.ns)
    return delays[:MAX_NAMES]


def make_grouping_label(name: str) -> str:
    """Return the text under which slices are counted together, from the name of a
    slice.

    All modules of one class share a text, and so do all steps. A Python frame becomes
    `function (file:line)`.
    """
    if is_module(name):
        return format_module(name)
    return format_frame(_STEP_NUMBER.sub("", name))
