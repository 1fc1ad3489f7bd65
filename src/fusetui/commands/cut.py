"""`cut`: a part of a trace as a trace of its own; `perfetto`: the same, to be opened
there; `convert`, `scrub`: a whole trace written anew, as the JSON of torch.profiler, or
as a copy that can be shared. They raise TraceError or CommandError; OUT is not written
then."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np

from fusetui.analysis.questions.note import CUT_FROM, Whole
from fusetui.commands.errors import DONE, UNUSABLE, CommandError, say
from fusetui.commands.loading import load, remarks_of, secret_notices
from fusetui.commands.sources import one_trace
from fusetui.report.output import Bar, emit
from fusetui.text.figures import count, plural, window
from fusetui.text.printable import printable
from fusetui.trace import Trace
from fusetui.trace.cut import Excerpt, part_of, texts_of
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.quantiles import lower_median_index
from fusetui.trace.scrub.document import check_target, save, scrub_file

Window = tuple[int, int]  # Begin and end in ns of the file


def run_cut(args: Namespace) -> int:
    check_target(args.out)
    trace, code = load(args.trace)
    begin, end = _window(trace, args)
    part = part_of(trace, begin, end)
    if not len(part.rows):
        raise CommandError(f"{args.trace} has nothing in that time.")
    name = "" if args.scrub else os.path.basename(trace.report.file)
    keys = {CUT_FROM: msgspec.to_builtins(_about(trace, part, name))}
    with Bar(f"writing {args.out}", sys.stderr) as bar:
        if args.scrub:
            with TemporaryDirectory(prefix="fusetui-") as folder:
                place = str(Path(folder) / "part.json")
                save(place, texts_of(trace, part, keys))
                scrub_file(place, args.out, bar.update)
        else:
            save(args.out, texts_of(trace, part, keys, bar.update))
    if not args.scrub:
        say(*secret_notices(trace))
    clipped = int(part.clipped.sum())
    emit(
        f"{printable(args.out)}: {count(len(part.rows))} of {plural(trace.recorded(), 'slice')}, "
        f"from {window(begin - trace.begin_ns, end - trace.begin_ns)}; {plural(clipped, 'slice')} "
        f"that {'reaches further is' if clipped == 1 else 'reach further are'} clipped."
    )
    return code


def run_perfetto(args: Namespace) -> int:
    code = run_cut(args)
    emit("Open it at https://ui.perfetto.dev: it stays in your browser.")
    return code


def _about(trace: Trace, part: Excerpt, name: str) -> Whole:
    """What the part says of the whole: where it lies, and what its own gaps may be too
    few for."""
    from fusetui.analysis.why.account import Accounts

    latencies = {
        str(device.pid): latency
        for line in Accounts(trace).lines
        for device, latency in zip(line.named, line.latency_ns.tolist(), strict=True)
    }
    begin, end, whole = (
        ns - trace.begin_ns for ns in (part.begin_ns, part.end_ns, trace.end_ns)
    )
    return Whole(name, begin, end, whole, latencies)


def _window(trace: Trace, args: Namespace) -> Window:
    """What is asked for. Raises CommandError or NoSuchSelectionError unless it is one
    thing that is there."""
    given = [args.step is not None, args.begin is not None or args.end is not None]
    given += [args.around is not None, args.steady]
    if sum(given) != 1:
        which = "Say one part only" if any(given) else "Say which part"
        raise CommandError(
            f"{which}: --step N, --from T --to T, --around ROW or --steady."
        )
    if (row := args.around) is not None:
        if row >= trace.recorded():
            raise CommandError(
                f"There is no row {row}: the rows are 0 to {trace.recorded() - 1}."
            )
        launched = trace.launch_index.rows[
            trace.launch_index.within(row, int(trace.end_row[row]))
        ]
        rows = np.append(launched, row)
        return int(trace.start[rows].min()), int(trace.end[rows].max())
    if args.steady:
        return _steady(trace, args.step_by)
    return part_asked(trace, args) or (trace.begin_ns, trace.end_ns)


def part_asked(trace: Trace, args: Namespace) -> Window | None:
    """That of --step, --from and --to; None: all of it. Raises CommandError or
    NoSuchSelectionError."""
    from fusetui.analysis.why.account import Accounts
    from fusetui.analysis.why.selection import asked
    from fusetui.commands.why import selection_of

    return asked(Accounts(trace), selection_of(args)).window


def _steady(trace: Trace, by: str | None) -> Window:
    """The step of median duration, the first left aside where there are others."""
    steps = steps_of(trace, by)
    if not len(steps):
        raise CommandError(
            "The trace has no steps: name them with --step-by, or use --from and --to."
        )
    later = np.arange(min(1, len(steps) - 1), len(steps))
    at = later[lower_median_index(steps.dur[later])]
    return int(steps.start[at]), int(steps.end[at])


KINDS = {
    **{"variable": "environment variable", "secret": "secret", "user": "user name"},
    **{
        "host": "host",
        "mail": "e-mail account",
        "command": "command line",
        "dir": "folder",
    },
}


def run_convert(args: Namespace) -> int:
    from fusetui.trace.convert import convert_file

    with Bar(f"converting {args.trace}", sys.stderr) as bar:
        raw = convert_file(one_trace(args.trace), args.out, bar.update).report
    path = printable(raw.path)
    if not raw.cut and raw.too_damaged >= 0:
        say(f"{path} is too damaged to be read beyond byte {raw.too_damaged}.")
    else:
        _say_where_it_ends(path, raw.cut, not raw.complete)
    say(*remarks_of(path, raw))
    if raw.skipped:
        _say_what_is_lost(
            path, raw.unreadable, raw.skipped[0].byte, raw.skipped[0].reason
        )
    if raw.damaged_keys and raw.complete:
        _say_keys_are_lost(path)
    emit(f"{printable(args.out)}: {plural(raw.events - raw.unreadable, 'event')}.")
    return UNUSABLE if raw.cut else DONE


def run_scrub(args: Namespace) -> int:
    with Bar(f"scrubbing {args.trace}", sys.stderr) as bar:
        scrubbed = scrub_file(one_trace(args.trace), args.out, bar.update)
    path = printable(scrubbed.source.path)
    _say_where_it_ends(path, scrubbed.source.cut, scrubbed.ends_early)
    if scrubbed.lost:
        _say_what_is_lost(path, scrubbed.lost_in_all, *scrubbed.lost[0])
    if scrubbed.keys_lost:
        _say_keys_are_lost(path)
    found = scrubbed.counts()
    counts = [(found.get(kind, 0), words) for kind, words in KINDS.items()]
    removed = (
        ", ".join(plural(number, words) for number, words in counts if number)
        or "nothing"
    )
    emit(
        f"{printable(args.out)}: {plural(scrubbed.events, 'event')}; removed: {removed}."
    )
    return UNUSABLE if scrubbed.source.cut else DONE


def _say_where_it_ends(path: str, cut: str | None, ends_early: bool) -> None:
    if cut:
        say(f"{path}: {cut}, so it cannot be verified; what was unpacked is written.")
    elif ends_early:
        say(f"{path} ends early: what could be read is written.")


def _say_keys_are_lost(path: str) -> None:
    say(f"{path}: some keys around its events could not be read and are left out.")


def _say_what_is_lost(path: str, events: int, byte: int, reason: str) -> None:
    say(
        f"{path}: {plural(events, 'event')} could not be read and "
        f"{'is' if events == 1 else 'are'} left out; the first is at byte "
        f"{byte} ({printable(reason)})."
    )
