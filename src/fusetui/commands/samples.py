"""`samples`: the traces that ship with fusetui, recorded ones and lessons."""

from __future__ import annotations

from argparse import Namespace
from textwrap import wrap

from fusetui.commands.errors import DONE
from fusetui.commands.sources import LESSON, SAMPLE
from fusetui.report.documents import SampleDocument, SamplesDocument
from fusetui.report.output import emit, emit_json, width


def run(args: Namespace) -> int:
    from fusetui import sample_traces
    from fusetui.sample_traces import lessons

    samples = [(name, sample_traces.describe(name)) for name in sample_traces.names()]
    taught = [(name, lessons.describe(name)) for name in lessons.names()]
    if args.json:
        emit_json(
            SamplesDocument(
                samples=[SampleDocument(*one) for one in samples],
                lessons=[SampleDocument(*one) for one in taught],
            )
        )
    else:
        lines = [line for name, shows in samples for line in lines_about(SAMPLE + name, shows)]
        lines += [line for name, shows in taught for line in lines_about(LESSON + name, shows)]
        emit("\n".join(lines))
    return DONE


def lines_about(name: str, shows: str) -> list[str]:
    """A name, and what it shows below it."""
    indent = "    "
    return [name, *wrap(shows, width(), initial_indent=indent, subsequent_indent=indent)]
