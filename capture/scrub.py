"""Takes host names, user names and paths out of a trace, and touches nothing else.

It works on the text, so that every number keeps the digits it was written with.
"""

from __future__ import annotations

import re

_PRIVATE_KEYS = r"host_name|username|user|hostname|PT_PROFILER_\w+|tw_\w+|mast_\w+"
_PRIVATE = re.compile(rf'("(?:{_PRIVATE_KEYS})"\s*:\s*)("(?:[^"\\]|\\.)*"|\d+)')
_TRACE_NAME = re.compile(r'("traceName"\s*:\s*)"(?:[^"\\]|\\.)*"')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')

# An absolute path: a slash, perhaps behind a drive letter, that does not follow a word; then
# folders, then a name. JSON may write a slash as \/ and writes a backslash as \\.
_SEPARATOR = r"(?:\\?/|\\\\)"
_PART = r"[\w.+@~=-]+"
_START = r"(?:(?<![\w.)>\]])|(?<=\\[nrt]))(?<!http:/)(?<!https:/)(?:[A-Za-z]:)?"
_PATH = re.compile(rf"{_START}{_SEPARATOR}(?:{_PART}(?: +{_PART})*{_SEPARATOR})*(?:{_PART})")
_LIBRARY = re.compile(
    rf"^.*{_SEPARATOR}(?:(?:site|dist)-packages|lib(?:64)?{_SEPARATOR}python\d[\d.]*){_SEPARATOR}"
)
_HOME = re.compile(rf"(?:{_SEPARATOR}(?:home|Users){_SEPARATOR}{_PART}|{_SEPARATOR}root)$")


def scrub(text: str, trace_name: str) -> str:
    """The trace's JSON without private data; `trace_name` replaces the path it was written to.

    Paths of installed packages keep what is inside the package (`torch/nn/modules/linear.py`),
    other absolute paths their last part, and a home folder becomes `~`.
    """
    text = _PRIVATE.sub(r'\1"scrubbed"', text)
    text = _STRING.sub(lambda match: _PATH.sub(_shorten, match[0]), text)
    return set_trace_name(text, trace_name)


def set_trace_name(text: str, trace_name: str) -> str:
    """The trace's JSON with another `traceName`: the profiler writes the path of its output."""
    return _TRACE_NAME.sub(lambda match: f'{match[1]}"{trace_name}"', text)


def shorten_paths(text: str) -> str:
    """A plain text in which absolute paths are shortened as in a trace."""
    return _PATH.sub(_shorten, text)


def _shorten(match: re.Match[str]) -> str:
    path = match[0]
    inside = _LIBRARY.sub("", path)
    if inside != path:
        return inside
    if _HOME.search(path):
        return "~"
    return re.split(_SEPARATOR, path)[-1]
