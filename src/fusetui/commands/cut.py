"""`cut` and `perfetto` write a part of a trace to a new file; `convert` and `scrub`
write a whole trace, as the JSON of torch.profiler or as a copy without private data.
They raise TraceError or CommandError; OUT is not written then."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.note import CUT_FROM, WholeTrace
from fusetui.commands.errors import DONE, UNUSABLE, CommandError, say
from fusetui.commands.loading import describe_remarks, load, secret_notices
from fusetui.commands.sources import one_trace
from fusetui.report.output import Bar, emit
from fusetui.text.figures import count, plural, window
from fusetui.text.printable import printable
from fusetui.trace import Trace
from fusetui.trace.cut import Excerpt, part_of, texts_of
from fusetui.trace.layout.steps import step_wall, steps_of
from fusetui.trace.model.quantiles import lower_median_index
from fusetui.trace.model.report import Progress, silent
from fusetui.trace.scrub.document import check_target, save, scrub_file

KINDS = {
    "variable": "environment variable",
    "secret": "secret",
    "user": "user name",
    "host": "host",
    "mail": "e-mail account",
    "command": "command line",
    "dir": "folder",
}
"""What scrubbing removes, by the kind that it counts."""


class Window(NamedTuple):
    """A part of a trace, in ns of the file."""

    begin_ns: int
    end_ns: int


def run_cut(args: Namespace) -> int:
    """Write the part of a trace that the options select to `args.out`, as a trace of
    its own. Prints how many slices it has and how many are clipped. Returns the exit
    code; raises Error."""
    check_target(args.out)
    trace, code = load(args.trace)
    part_window = _find_window(trace, args)
    with Bar(f"writing {args.out}", sys.stderr) as bar:
        part = write_part(
            trace, part_window, args.out, scrub=args.scrub, progress=bar.update
        )
    if not args.scrub:
        say(*secret_notices(trace))
    slices = f"{count(len(part.rows))} of {plural(trace.recorded(), 'slice')}"
    times = window(
        part_window.begin_ns - trace.begin_ns, part_window.end_ns - trace.begin_ns
    )
    clipped = int(part.clipped.sum())
    reach = "reaches further is" if clipped == 1 else "reach further are"
    emit(
        f"{printable(args.out)}: {slices}, from {times}; "
        f"{plural(clipped, 'slice')} that {reach} clipped."
    )
    return code


def write_part(
    trace: Trace, asked: Window, out: str, *, scrub: bool, progress: Progress = silent
) -> Excerpt:
    """Write what lies in the window `asked` of a trace to `out`, as a trace of its own.
    Returns what it wrote.

    With `scrub`, private data is removed; `progress` is told how far it is. Raises
    CommandError if no event lies in the window, and CannotWriteError.
    """
    part = part_of(trace, asked.begin_ns, asked.end_ns)
    if not len(part.rows):
        raise CommandError(f"{trace.report.file} has no events in that time.")
    name = "" if scrub else os.path.basename(trace.report.file)
    keys = {CUT_FROM: msgspec.to_builtins(_describe_whole(trace, part, name))}
    if not scrub:
        save(out, texts_of(trace, part, keys, progress))
        return part
    with TemporaryDirectory(prefix="fusetui-") as folder:
        unscrubbed = str(Path(folder) / "part.json")
        save(unscrubbed, texts_of(trace, part, keys))
        scrub_file(unscrubbed, out, progress)
    return part


def run_perfetto(args: Namespace) -> int:
    """Write a part of a trace as `run_cut` does, and print where Perfetto can open it.
    Returns the exit code."""
    code = run_cut(args)
    emit("Open it at https://ui.perfetto.dev. The file stays in your browser.")
    return code


def _describe_whole(trace: Trace, part: Excerpt, name: str) -> WholeTrace:
    """Return what a part says of the trace that it was cut from: its name, and where
    the part lies in it, in ns.

    It also has the launch latency of each device, because a part may have too few idle
    times to show it.
    """
    from fusetui.analysis.why.account import Accounts

    latency_ns_of_device: dict[str, int] = {}
    for devices in Accounts(trace).devices_by_axis:
        for device, ns in zip(
            devices.identities, devices.latency_ns.tolist(), strict=True
        ):
            latency_ns_of_device[str(device.pid)] = ns
    return WholeTrace(
        name,
        part.begin_ns - trace.begin_ns,
        part.end_ns - trace.begin_ns,
        trace.end_ns - trace.begin_ns,
        latency_ns_of_device,
    )


def _find_window(trace: Trace, args: Namespace) -> Window:
    """Return the part of a trace that the options select: a step, a time, the
    surroundings of a row, or a steady step. Raises CommandError unless exactly one is
    asked for, and NoSuchSelectionError if it does not exist."""
    ways_given = [
        args.step is not None,
        args.begin is not None or args.end is not None,
        args.around is not None,
        args.steady,
    ]
    if sum(ways_given) != 1:
        which = "Specify only one part" if any(ways_given) else "Specify a part"
        raise CommandError(
            f"{which}: --step N, --from T --to T, --around ROW or --steady."
        )
    if args.around is not None:
        return _window_around(trace, args.around)
    if args.steady:
        return _steady_window(trace, args.step_by)
    part = window_of_options(trace, args)
    return Window(trace.begin_ns, trace.end_ns) if part is None else part


def _window_around(trace: Trace, row: int) -> Window:
    """Return the time of the slice at `row` and of all GPU events that it launched.
    Raises CommandError if there is no such row."""
    if row >= trace.recorded():
        raise CommandError(
            f"There is no row {row}: this trace has rows 0 to {trace.recorded() - 1}."
        )
    launches = trace.launch_index
    launched = launches.rows[launches.within(row, int(trace.end_row[row]))]
    rows = np.append(launched, row)
    return Window(int(trace.start[rows].min()), int(trace.end[rows].max()))


def window_of_options(trace: Trace, args: Namespace) -> Window | None:
    """Return the window that --step, --from and --to select, in ns; None if they select
    the whole trace. Raises CommandError or NoSuchSelectionError."""
    from fusetui.analysis.why.account import Accounts
    from fusetui.analysis.why.selection import resolve_selection
    from fusetui.commands.why import parse_selection

    window = resolve_selection(Accounts(trace), parse_selection(args)).window
    return None if window is None else Window(*window)


def _steady_window(trace: Trace, by: str | None) -> Window:
    """Return the window of the step with the median wall time (the lower one of two).
    The first step is left out if there are others, as it often warms up. Raises
    CommandError if there are no steps."""
    steps = steps_of(trace, by)
    if not len(steps):
        raise CommandError(
            "The trace has no steps: select annotations as steps with --step-by, or "
            "use --from and --to."
        )
    is_first_left_aside = len(steps) > 1
    counted = np.arange(int(is_first_left_aside), len(steps))
    median = counted[lower_median_index(step_wall(steps.start, steps.end)[counted])]
    return Window(int(steps.start[median]), int(steps.end[median]))


def run_convert(args: Namespace) -> int:
    """Write a whole trace as the JSON of torch.profiler, and say on stderr what could
    not be read. Returns UNUSABLE if the input is a damaged archive, else DONE."""
    from fusetui.trace.convert import convert_file

    with Bar(f"converting {args.trace}", sys.stderr) as bar:
        report = convert_file(one_trace(args.trace), args.out, bar.update).report
    path = printable(report.path)
    if not report.cut and report.too_damaged >= 0:
        say(f"{path} is too damaged to be read beyond byte {report.too_damaged}.")
    else:
        _say_where_it_ends(path, report.cut, not report.complete)
    say(*describe_remarks(path, report))
    if report.skipped:
        first = report.skipped[0]
        _say_what_is_lost(path, report.unreadable, first.byte, first.reason)
    if report.damaged_keys and report.complete:
        _say_keys_are_lost(path)
    written = plural(report.events - report.unreadable, "event")
    emit(f"{printable(args.out)}: {written}.")
    return UNUSABLE if report.cut else DONE


def run_scrub(args: Namespace) -> int:
    """Write a copy of a trace without private data, and print what was removed, by
    kind. Returns UNUSABLE if the input is a damaged archive, else DONE."""
    with Bar(f"scrubbing {args.trace}", sys.stderr) as bar:
        scrubbed = scrub_file(one_trace(args.trace), args.out, bar.update)
    path = printable(scrubbed.source.path)
    _say_where_it_ends(path, scrubbed.source.cut, scrubbed.ends_early)
    if scrubbed.lost:
        byte, reason = scrubbed.lost[0]
        _say_what_is_lost(path, scrubbed.lost_in_all, byte, reason)
    if scrubbed.keys_lost:
        _say_keys_are_lost(path)
    counts = scrubbed.counts()
    removed = [
        plural(counts[kind], words) for kind, words in KINDS.items() if counts.get(kind)
    ]
    emit(
        f"{printable(args.out)}: {plural(scrubbed.events, 'event')}; "
        f"removed: {', '.join(removed) or 'nothing'}."
    )
    return UNUSABLE if scrubbed.source.cut else DONE


def _say_where_it_ends(path: str, cut: str | None, ends_early: bool) -> None:
    """Say on stderr that a file was not read to its end: `cut` is why unpacking
    stopped. Nothing is said if it was read completely."""
    if cut:
        say(f"{path}: {cut}, so it cannot be verified; the unpacked part was written.")
    elif ends_early:
        say(f"{path} ends early: the readable part was written.")


def _say_keys_are_lost(path: str) -> None:
    say(f"{path}: some keys outside the events could not be read and are omitted.")


def _say_what_is_lost(path: str, events: int, byte: int, reason: str) -> None:
    """Say on stderr how many events could not be read, with the place (byte) of the
    first and the reason."""
    say(
        f"{path}: {plural(events, 'event')} could not be read and "
        f"{'is' if events == 1 else 'are'} left out; the first is at byte "
        f"{byte} ({printable(reason)})."
    )
