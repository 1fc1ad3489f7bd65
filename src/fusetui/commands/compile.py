"""`compile`: what torch.compile generated for a program, from its trace, its log, or
both."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import TYPE_CHECKING

from fusetui.commands.errors import DONE
from fusetui.commands.loading import load
from fusetui.commands.sources import is_shipped
from fusetui.report.output import (
    emit,
    emit_json,
    emit_json_with_notes,
    emit_with_notes,
    width,
)

if TYPE_CHECKING:
    from fusetui.analysis.compiled.model import CompileAnswer


def run_compile(args: Namespace) -> int:
    """Print what torch.compile generated: compiled regions with their kernels and
    lines, graph breaks and compilations. `args.trace` is a trace or a compile log.
    Returns the exit code; raises TraceError or CommandError if it cannot be read."""
    if _is_log(args.trace):
        return _print_log_answer(args)
    from fusetui.analysis.compiled.answer import report_compilation
    from fusetui.analysis.compiled.finding import find_compile_log

    loaded = load(args.trace, args.captured_by, args.compile_log)
    answer = report_compilation(loaded.trace, find_compile_log(loaded.trace))
    if args.json:
        from fusetui.report.compiled import compile_document

        emit_json_with_notes(loaded.trace, compile_document(answer))
    else:
        emit_with_notes(loaded.trace, _text(answer, args.top))
    return loaded.code


def _print_log_answer(args: Namespace) -> int:
    """Print what a compile log alone tells, without a trace, and return the exit code.
    Raises TraceError if it cannot be read."""
    from fusetui.analysis.compiled.answer import report_compile_log
    from fusetui.trace.compile_log.log import read_compile_log

    answer = report_compile_log(read_compile_log(args.trace))
    if args.json:
        from fusetui.report.compiled import compile_document

        emit_json(compile_document(answer))
    else:
        emit(_text(answer, args.top))
    return DONE


def _text(answer: CompileAnswer, top: int) -> str:
    from fusetui.report.compiled import format_compile_answer

    return format_compile_answer(answer, width(), top)


def _is_log(name: str) -> bool:
    """Return whether `name` is a compile log, or a folder that holds compile logs and
    no traces."""
    if is_shipped(name):
        return False
    from fusetui.commands.sources import holds_traces
    from fusetui.trace.compile_log.files import find_log_files, looks_like_log

    if os.path.isdir(name):
        return not holds_traces(name) and not find_log_files(name).is_empty
    return os.path.isfile(name) and looks_like_log(name)
