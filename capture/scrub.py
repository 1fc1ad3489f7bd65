"""Removes private data from a trace and from the record, by means of `fusetui.trace.scrub`."""

from __future__ import annotations

import re
from pathlib import Path

from fusetui.trace.read.source import open_source
from fusetui.trace.scrub.document import ScrubbedDocument, this_machine
from fusetui.trace.scrub.texts import Texts

from .errors import CaptureError

_TRACE_NAME = re.compile(r'("traceName"\s*:\s*)"(?:[^"\\]|\\.)*"')


def scrubbed(trace: Path, trace_name: str) -> str:
    """The JSON text of a trace without private data; `trace_name` replaces the path in it.

    Raises CaptureError if part of the trace could not be read, and TraceError.
    """
    document = ScrubbedDocument(open_source(str(trace)), this_machine(), trace_name)
    document.learn()
    text = b"".join(document.text()).decode()
    if document.lost or document.keys_lost or document.ends_early:
        raise CaptureError("The profiler wrote a damaged trace, which cannot be scrubbed.")
    return text


def set_trace_name(text: str, trace_name: str) -> str:
    """The trace's JSON with another `traceName`, where the profiler wrote the path of its
    output."""
    return _TRACE_NAME.sub(lambda match: f'{match[1]}"{trace_name}"', text)


def texts() -> Texts:
    """A scrubber for the texts of one record: names of this machine are private in them."""
    found = Texts()
    found.expect(this_machine())
    return found
