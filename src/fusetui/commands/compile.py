"""`compile`: what torch.compile generated for a program, from its trace, its log, or
both."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import TYPE_CHECKING

from fusetui.commands.errors import DONE
from fusetui.commands.loading import load
from fusetui.commands.sources import is_shipped
from fusetui.report.output import emit, emit_json, emit_json_of, emit_of, width

if TYPE_CHECKING:
    from fusetui.analysis.compiled.model import CompileAnswer


def run_compile(args: Namespace) -> int:
    """The compiled regions with their kernels and lines, graph breaks and compilations.
    Raises TraceError or CommandError if the file or the log cannot be read."""
    if _is_log(args.trace):
        return _log_alone(args)
    from fusetui.analysis.compiled.answer import compile_answer
    from fusetui.analysis.compiled.finding import compile_log_of

    loaded = load(args.trace, args.captured_by, args.compile_log)
    answer = compile_answer(loaded.trace, compile_log_of(loaded.trace))
    if args.json:
        from fusetui.report.compiled import compile_document

        emit_json_of(loaded.trace, compile_document(answer))
    else:
        emit_of(loaded.trace, _text(answer, args.top))
    return loaded.code


def _log_alone(args: Namespace) -> int:
    """The answer of a log without a trace."""
    from fusetui.analysis.compiled.answer import answer_of_log
    from fusetui.trace.compile_log.log import read_compile_log

    answer = answer_of_log(read_compile_log(args.trace))
    if args.json:
        from fusetui.report.compiled import compile_document

        emit_json(compile_document(answer))
    else:
        emit(_text(answer, args.top))
    return DONE


def _text(answer: CompileAnswer, top: int) -> str:
    from fusetui.report.compiled import compile_text

    return compile_text(answer, width(), top)


def _is_log(name: str) -> bool:
    """Whether a name is that of a log, or of a folder that holds logs and no traces."""
    if is_shipped(name):
        return False
    from fusetui.commands.sources import holds_traces
    from fusetui.trace.compile_log.files import files_of, looks_like_log

    if os.path.isdir(name):
        return not holds_traces(name) and not files_of(name).is_empty
    return os.path.isfile(name) and looks_like_log(name)
