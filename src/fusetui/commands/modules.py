"""`modules`: what the modules of the program cost."""

from __future__ import annotations

from argparse import Namespace

from msgspec.structs import asdict

from fusetui.commands.loading import load
from fusetui.report.note import emit_json_of, emit_of
from fusetui.report.output import width


def run(args: Namespace) -> int:
    from fusetui.report.documents import ModulesDocument
    from fusetui.report.program import modules_text
    from fusetui.trace.model.categories import Role
    from fusetui.trace.program.modules import module_times
    from fusetui.trace.program.origin import origins
    from fusetui.trace.program.phases import phases

    loaded = load(args.trace, args.captured_by)
    found = origins(loaded.trace)
    times, by_phase = module_times(found, args.expand), phases(found)
    if args.json:
        emit_json_of(loaded.trace, ModulesDocument(**asdict(times), phases=by_phase))
    else:
        stacks = len(loaded.trace.rows_of(Role.PYTHON)) > 0
        form = loaded.trace.report.format
        shown = modules_text(times, by_phase, args.top, width(), stacks=stacks, form=form)
        emit_of(loaded.trace, shown)
    return loaded.code
