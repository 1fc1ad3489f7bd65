"""`samples`: the traces that ship with fusetui."""

from __future__ import annotations

from argparse import Namespace
from textwrap import wrap

from fusetui.commands.errors import DONE
from fusetui.commands.sources import SAMPLE
from fusetui.render.output import emit, emit_json, width


def run(args: Namespace) -> int:
    from fusetui import sample_traces

    found = [(name, sample_traces.describe(name)) for name in sample_traces.names()]
    if args.json:
        emit_json({"samples": [{"name": name, "shows": shows} for name, shows in found]})
    else:
        emit("\n".join(line for name, shows in found for line in _sample_lines(name, shows)))
    return DONE


def _sample_lines(name: str, shows: str) -> list[str]:
    indent = "    "
    lines = wrap(shows, width(), initial_indent=indent, subsequent_indent=indent)
    return [f"{SAMPLE}{name}", *lines]
