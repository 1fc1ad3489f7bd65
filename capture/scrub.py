"""What is private goes out of a trace and of the record; how is told in `fusetui.trace.scrub`."""

from __future__ import annotations

import re
from pathlib import Path

from fusetui.trace.read.source import open_source
from fusetui.trace.scrub.document import Document
from fusetui.trace.scrub.file import this_machine
from fusetui.trace.scrub.texts import Texts

from .errors import CaptureError

_TRACE_NAME = re.compile(r'("traceName"\s*:\s*)"(?:[^"\\]|\\.)*"')


def scrubbed(trace: Path, trace_name: str) -> str:
    """The JSON text of a trace without what is private; `trace_name` replaces the path it tells.

    Raises CaptureError when some of it could not be read, and TraceError.
    """
    document = Document(open_source(str(trace)), this_machine(), trace_name)
    document.learn()
    text = b"".join(document.text()).decode()
    if document.lost or document.keys_lost or document.ends_early:
        raise CaptureError("the profiler wrote a damaged trace, which cannot be scrubbed.")
    return text


def set_trace_name(text: str, trace_name: str) -> str:
    """The trace's JSON with another `traceName`: the profiler writes the path of its output."""
    return _TRACE_NAME.sub(lambda match: f'{match[1]}"{trace_name}"', text)


def texts() -> Texts:
    """For the texts of one record: names of this machine are private in them."""
    found = Texts()
    found.expect(this_machine())
    return found
