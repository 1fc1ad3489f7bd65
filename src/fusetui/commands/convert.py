"""`convert`: writes a trace of any format as the JSON of torch.profiler."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator

from fusetui.commands.errors import DONE, UNUSABLE, say
from fusetui.commands.loading import remarks_of
from fusetui.commands.sources import one_trace
from fusetui.report.output import emit
from fusetui.report.progress import Bar
from fusetui.text.figures import plural
from fusetui.text.printable import printable
from fusetui.trace.convert import convert_file
from fusetui.trace.model.raw import Raw


def run_convert(args: Namespace) -> int:
    """Raises TraceError or CommandError; `out` is not written then."""
    with Bar(f"converting {args.trace}", sys.stderr) as bar:
        raw = convert_file(one_trace(args.trace), args.out, bar.update)
    for sentence in notices(raw):
        say(sentence)
    emit(f"{printable(args.out)}: {plural(raw.events - raw.unreadable, 'event')}.")
    return UNUSABLE if raw.cut else DONE


def notices(raw: Raw) -> Iterator[str]:
    """A sentence for each way in which the result is less than the trace."""
    path = printable(raw.path)
    if raw.cut:
        yield f"{path}: {raw.cut}, so it cannot be verified; what was unpacked is written."
    elif raw.too_damaged >= 0:
        yield f"{path} is too damaged to be read beyond byte {raw.too_damaged}."
    elif not raw.complete:
        yield f"{path} ends early: what could be read is written."
    yield from remarks_of(path, raw)
    if raw.skipped:
        first = raw.skipped[0]
        yield (
            f"{path}: {plural(raw.unreadable, 'event')} could not be read and "
            f"{'is' if raw.unreadable == 1 else 'are'} left out; the first is at byte "
            f"{first.byte} ({printable(first.reason)})."
        )
