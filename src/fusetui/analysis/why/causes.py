"""Which slices of CPU threads the idle time of the devices is due to, also by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import by_text
from fusetui.analysis.why.model import COMPILER, LOADER
from fusetui.analysis.why.thread_activity import (
    LAYERS,
    Slices,
    ThreadActivity,
    Threads,
    merged_slices,
)
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Flags, Int64s, Rows, summed
from fusetui.trace.model.columns import Trace
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


def idle_causes(trace: Trace) -> tuple[Rows, Int64s] | None:
    """Rows of CPU threads, and how long (ns) a device waited for a launch while each of
    them was the innermost slice of the launching thread: a row may occur several times,
    and time in which only an annotation was recorded is left out. None if no launch
    call is known."""
    facts = Facts(Accounts(trace))
    if not facts.has_launches:
        return None
    all_gaps = np.ones(len(facts.idle), dtype=np.bool_)
    without_annotations = LAYERS[:-1]
    return slices_in_idle_time(facts, all_gaps, NOTHING, without_annotations)


def slices_in_idle_time(
    facts: Facts,
    which: Flags,
    leaving_out: Cover,
    layers: Sequence[tuple[ThreadActivity, ...]],
) -> tuple[Rows, Int64s]:
    """Rows of CPU threads, and how long (ns) each of them was the innermost slice of a
    launching thread in the host parts of the gaps of `which`, except during a cover (ns
    of the file). A slice of an earlier layer counts before one of a later layer. A row
    may occur several times."""
    idle = facts.idle
    rows = [np.empty(0, dtype=np.intp)]
    times_ns = [np.empty(0, dtype=np.int64)]
    with_host_part = which & (idle.call_begin > idle.begin)
    for threads, _, on_line in facts.gaps_by_thread_line(with_host_part):
        # for each of several devices
        waiting = counted(on_line(idle.begin), on_line(idle.call_begin))
        waiting = threads.parts(waiting, outside(leaving_out))
        for kinds in layers:
            innermost = _innermost_slices(threads, kinds, waiting)
            rows.append(innermost.rows)
            times_ns.append(waiting.within(innermost.start, innermost.end))
            explained = union(innermost.start, innermost.end)
            waiting = waiting.only(outside(explained))
    return np.concatenate(rows), np.concatenate(times_ns)


def _innermost_slices(
    threads: Threads, kinds: Sequence[ThreadActivity], waiting: Cover
) -> Slices:
    """When each slice of some kinds is the innermost one of these kinds, on the line of
    the threads; only slices that touch the waiting times."""
    touching = []
    for kind in kinds:
        slices = threads.slices(kind)
        touching.append(slices.touching(waiting.start, waiting.end))
    return merged_slices(touching).parts()


def idle_by_cause(
    trace: Trace, begin: Int64s, end: Int64s, idle_ns: int
) -> dict[str, int]:
    """How long no GPU event ran, by cause: means over some disjoint windows [begin,
    end) of the file (ns), with all devices as one. {} without a GPU event or a window.

    The causes are the reasons of the account. Of the time before a launch, what a
    launching thread spent fetching a batch or compiling counts as `data_loading` and
    `compilation` instead. `idle_ns` is the mean of all idle time, which these add up
    to.
    """
    if not len(trace.gpu_rows) or not len(begin):
        return {}
    accounts = Accounts(trace)
    as_one = accounts.as_one()
    total_ns: Counter[str] = Counter()
    first_device = np.zeros(len(begin), dtype=np.intp)
    for account in as_one.at(first_device, begin, end):
        total_ns.update(account.idle)
    all_windows = (int(begin.min()), int(end.max()))
    facts = Facts(accounts, (as_one,), all_windows)
    windows = union(begin, end)
    loading = common(facts.loading_cover, windows)
    compiling = without(common(facts.compiling_cover, windows), loading)
    _move_to_cause(total_ns, LOADER, facts.host_ns_during(loading))
    _move_to_cause(total_ns, COMPILER, facts.host_ns_during(compiling))
    return _means(total_ns, windows=len(begin), sum_ns=idle_ns)


def _move_to_cause(total_ns: Counter[str], cause: str, host_ns: Int64s) -> None:
    """Takes time from the reasons that begin with `host_`, and adds it to a cause, in
    place. `host_ns`: how much of each reason, [ThreadActivity, gaps]."""
    ns_of_activity = host_ns.sum(axis=1).tolist()
    for activity, ns in zip(ThreadActivity, ns_of_activity, strict=True):
        total_ns[f"host_{activity.name.lower()}"] -= ns
        total_ns[cause] += ns


def _means(total_ns: Counter[str], windows: int, sum_ns: int) -> dict[str, int]:
    """The mean of each total over the windows, rounded; zero totals are left out. The
    largest mean takes what rounding lost, so that they add up to `sum_ns`."""
    means = {}
    for cause, ns in total_ns.items():
        if ns:
            means[cause] = round(ns / windows)
    if means:
        largest = max(means, key=lambda cause: means[cause])
        means[largest] += sum_ns - sum(means.values())
    return means


FRAME: Final = lazy_pattern(r"(?:.*/)?([^/]+)\((\d+)\): (.+)", re.DOTALL)
BUILT_IN: Final = lazy_pattern(r"<built-in (?:method|function) (\S+)")
LONGEST_TEXT: Final = 60
"""Characters."""
MAX_FRAME_CHARACTERS: Final = 1000
"""What is read of the name of a frame."""


def frame_text(name: str, most: int = LONGEST_TEXT) -> str:
    """A frame as a user would name it, in `most` characters:
    `zoom (_interpolation.py:691)`, or `zoom_shift` for a built-in function. Any other
    text stays as it is."""
    name = name[:MAX_FRAME_CHARACTERS]
    built_in = BUILT_IN.match(name)
    frame = FRAME.fullmatch(name)
    if built_in:
        name = built_in[1].removesuffix(">")
    elif frame:
        file, line, function = frame.groups()
        name = f"{function} ({file}:{line})"
    return printable(clip(name, most))


def module_text(name: str, most: int = LONGEST_TEXT) -> str:
    """A module without its number, or an annotation: `Qwen2MLP`, `## forward ##`."""
    module = name.removeprefix(MODULE_PREFIX)
    return frame_text(NUMBER_OF_MODULE.sub("", module), most)


MAX_NAMES: Final = 2
"""Of one kind."""
_STEP_NUMBER: Final = lazy_pattern(r"#[0-9]{1,18}\Z")
LEAST_SHARE: Final = 0.02
"""Of all time; a name with less is not told."""


def longest_holding_names(
    trace: Trace, rows: Rows, ns: Int64s, text: Callable[[str], str], all_ns: int
) -> list[tuple[str, int]]:
    """The names that held launching threads longest, at most MAX_NAMES, the longest
    first: `aten::conv2d (265 x, 21.3 ms)`, and these ns. A row of `rows` held one for
    `ns`, and may occur several times; `text` makes a name of that of a slice; a name
    with less than LEAST_SHARE of `all_ns` is left out."""
    slices, place = np.unique(rows, return_inverse=True)
    ns_of_slice = summed(place, ns, len(slices))
    by_name = by_text(trace, slices, ns_of_slice, text)
    considerable = {}
    for name, (calls, held_ns) in by_name.items():
        if held_ns >= LEAST_SHARE * all_ns > 0:
            considerable[f"{name} ({count(calls)} x, {duration(held_ns)})"] = held_ns
    longest_first = sorted(considerable.items(), key=lambda item: -item[1])
    return longest_first[:MAX_NAMES]


def grouping_label(name: str) -> str:
    """The name under which slices count together: modules of one class have one, and
    so have all steps."""
    if is_module(name):
        return module_text(name)
    return frame_text(_STEP_NUMBER.sub("", name))
