"""`scrub`: writes a copy of a trace that can be shared."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator

from fusetui.commands.errors import DONE, UNUSABLE, say
from fusetui.commands.sources import one_trace
from fusetui.report.output import emit
from fusetui.report.progress import Bar
from fusetui.text.figures import plural
from fusetui.text.printable import printable
from fusetui.trace.scrub.document import ScrubbedDocument
from fusetui.trace.scrub.file import scrub_file

KINDS = (
    ("variable", "environment variable"),
    ("secret", "secret"),
    ("user", "user name"),
    ("host", "host"),
    ("mail", "e-mail account"),
    ("command", "command line"),
    ("dir", "folder"),
)


def run_scrub(args: Namespace) -> int:
    """Raises TraceError or CommandError; `out` is not written then."""
    name, out = args.trace, args.out
    with Bar(f"scrubbing {name}", sys.stderr) as bar:
        scrubbed = scrub_file(one_trace(name), out, bar.update)
    for sentence in notices(scrubbed):
        say(sentence)
    found = scrubbed.counts()
    counts = [(found.get(kind, 0), words) for kind, words in KINDS]
    removed = ", ".join(plural(number, words) for number, words in counts if number) or "nothing"
    emit(f"{printable(out)}: {plural(scrubbed.events, 'event')}; removed: {removed}.")
    return UNUSABLE if scrubbed.source.cut else DONE


def notices(scrubbed: ScrubbedDocument) -> Iterator[str]:
    """A sentence for each way in which the result is less than the trace."""
    path, cut = printable(scrubbed.source.path), scrubbed.source.cut
    if cut:
        yield f"{path}: {cut}, so it cannot be verified; what was unpacked is written."
    elif scrubbed.ends_early:
        yield f"{path} ends early: what could be read is written."
    if scrubbed.lost:
        byte, reason = scrubbed.lost[0]
        yield (
            f"{path}: {plural(scrubbed.lost_in_all, 'event')} could not be read and "
            f"{'is' if scrubbed.lost_in_all == 1 else 'are'} left out; the first is at byte "
            f"{byte} ({printable(reason)})."
        )
    if scrubbed.keys_lost:
        yield f"{path}: some keys around its events could not be read and are left out."
