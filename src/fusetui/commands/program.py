"""`modules` and `lines`: what the parts of the program cost."""

from __future__ import annotations

import msgspec

from fusetui.commands.errors import say
from fusetui.commands.loading import load
from fusetui.render.output import emit, emit_json, width
from fusetui.render.program import functions_text, modules_text
from fusetui.trace.insights.functions import function_times
from fusetui.trace.insights.modules import module_times
from fusetui.trace.insights.origin import origins
from fusetui.trace.insights.phases import phases
from fusetui.trace.text.printable import printable


def modules(name: str, as_json: bool, top: int, expand: bool) -> int:
    loaded = load(name)
    found = origins(loaded.trace)
    times, by_phase = module_times(found, expand), phases(found)
    if as_json:
        emit_json({**msgspec.to_builtins(times), "phases": msgspec.to_builtins(by_phase)})
    else:
        emit(modules_text(times, by_phase, top, width()))
    return loaded.code


def lines(name: str, as_json: bool, top: int, file: str | None) -> int:
    loaded = load(name)
    times = function_times(origins(loaded.trace), file)
    if file is not None and not times.functions:
        say(f"No Python frame of this trace is in {printable(file)}.")
    if as_json:
        emit_json(msgspec.to_builtins(times))
    else:
        emit(functions_text(times, top, width()))
    return loaded.code
