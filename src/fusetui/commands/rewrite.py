"""`convert` and `scrub`: write a whole trace anew, as the JSON of torch.profiler, or as a copy that
can be shared. They raise TraceError or CommandError; `out` is not written then."""

from __future__ import annotations

import sys
from argparse import Namespace

from fusetui.commands.errors import DONE, UNUSABLE, say
from fusetui.commands.loading import remarks_of
from fusetui.commands.sources import one_trace
from fusetui.report.output import Bar, emit
from fusetui.text.figures import plural
from fusetui.text.printable import printable

KINDS = (
    ("variable", "environment variable"),
    ("secret", "secret"),
    ("user", "user name"),
    ("host", "host"),
    ("mail", "e-mail account"),
    ("command", "command line"),
    ("dir", "folder"),
)


def run_convert(args: Namespace) -> int:
    from fusetui.trace.convert import convert_file

    with Bar(f"converting {args.trace}", sys.stderr) as bar:
        raw = convert_file(one_trace(args.trace), args.out, bar.update).report
    path = printable(raw.path)
    if not raw.cut and raw.too_damaged >= 0:
        say(f"{path} is too damaged to be read beyond byte {raw.too_damaged}.")
    else:
        _say_where_it_ends(path, raw.cut, not raw.complete)
    for sentence in remarks_of(path, raw):
        say(sentence)
    if raw.skipped:
        _say_what_is_lost(path, raw.unreadable, raw.skipped[0].byte, raw.skipped[0].reason)
    emit(f"{printable(args.out)}: {plural(raw.events - raw.unreadable, 'event')}.")
    return UNUSABLE if raw.cut else DONE


def run_scrub(args: Namespace) -> int:
    from fusetui.trace.scrub.document import scrub_file

    with Bar(f"scrubbing {args.trace}", sys.stderr) as bar:
        scrubbed = scrub_file(one_trace(args.trace), args.out, bar.update)
    path = printable(scrubbed.source.path)
    _say_where_it_ends(path, scrubbed.source.cut, scrubbed.ends_early)
    if scrubbed.lost:
        _say_what_is_lost(path, scrubbed.lost_in_all, *scrubbed.lost[0])
    if scrubbed.keys_lost:
        say(f"{path}: some keys around its events could not be read and are left out.")
    found = scrubbed.counts()
    counts = [(found.get(kind, 0), words) for kind, words in KINDS]
    removed = ", ".join(plural(number, words) for number, words in counts if number) or "nothing"
    emit(f"{printable(args.out)}: {plural(scrubbed.events, 'event')}; removed: {removed}.")
    return UNUSABLE if scrubbed.source.cut else DONE


def _say_where_it_ends(path: str, cut: str | None, ends_early: bool) -> None:
    if cut:
        say(f"{path}: {cut}, so it cannot be verified; what was unpacked is written.")
    elif ends_early:
        say(f"{path} ends early: what could be read is written.")


def _say_what_is_lost(path: str, events: int, byte: int, reason: str) -> None:
    say(
        f"{path}: {plural(events, 'event')} could not be read and "
        f"{'is' if events == 1 else 'are'} left out; the first is at byte "
        f"{byte} ({printable(reason)})."
    )
