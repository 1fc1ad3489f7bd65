"""`reproduce`: writes scripts that reproduce the calls of a trace."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fusetui.analysis.reproduce.generated import (
    GeneratedCode,
    NoGeneratedCodeError,
    find_generated_code,
)
from fusetui.analysis.reproduce.model import Call, CallKind
from fusetui.analysis.reproduce.select import (
    ModuleCalls,
    call_of_slice,
    calls_of_kernel,
    calls_of_module,
    calls_of_op,
    most_expensive_calls,
)
from fusetui.command_line.arguments import ROWS
from fusetui.commands.errors import CommandError, say
from fusetui.commands.loading import load
from fusetui.report.output import emit, emit_json_with_notes, emit_with_notes, width
from fusetui.report.reproduce.documents import (
    calls_text,
    file_name,
    reproduce_document,
)
from fusetui.report.reproduce.script import (
    RUN_ALL,
    ScriptSource,
    generated_path,
    generated_script,
    run_all_script,
    script,
    script_of,
)
from fusetui.report.reproduce.wording import (
    CODE_OF_LOG,
    name_of,
    recorded_text,
    why_not,
)
from fusetui.text.figures import plural, several
from fusetui.text.printable import printable
from fusetui.trace.model.columns import Trace
from fusetui.trace.new_file import check_new, new_file

SELECTIONS = ("op", "kernel", "row", "module")
"""Options that select what a single script is about; --top is about several."""

MAX_ROWS_NAMED = 5


def run_reproduce(args: Namespace) -> int:
    """Print or write scripts that repeat calls of a trace, or list the most expensive
    calls. Returns the exit code. Raises Error."""
    given_selections = [name for name in SELECTIONS if getattr(args, name) is not None]
    if args.top:
        given_selections.append("top")
    if len(given_selections) > 1:
        raise CommandError(
            f"Use one of --{' and --'.join(given_selections)}, not both."
        )
    if args.with_generated_code:
        _check_generated_options(args)
    if args.out and not args.json:
        check_new(args.out)
    loaded = load(args.trace, args.captured_by, args.compile_log)
    trace = loaded.trace
    if args.module is not None:
        _answer_module(trace, calls_of_module(trace, args.module), args)
        return loaded.code
    calls = _find_calls(trace, args)
    if args.json:
        emit_json_with_notes(trace, reproduce_document(calls))
    elif given_selections:
        _answer_calls(calls, trace, args)
    elif args.out:
        raise CommandError(
            "--out needs a selection of calls: --op, --kernel, --row, --module or "
            "--top."
        )
    else:
        emit_with_notes(trace, calls_text(calls, width()))
    return loaded.code


def _answer_calls(calls: Sequence[Call], trace: Trace, args: Namespace) -> None:
    """Print or write the script of the first of these calls. With --top, it is a list
    of calls or a folder of scripts. Raises Error."""
    if args.top and args.out:
        _write_folder(calls, trace, args.out, args.with_generated_code)
    elif args.top:
        emit_with_notes(trace, calls_text(calls, width()))
    elif args.with_generated_code:
        _answer_generated(calls, trace, args.out)
    else:
        _answer_call(calls, trace, args.out)


def _check_generated_options(args: Namespace) -> None:
    """Raise CommandError for options that cannot be combined with
    --with-generated-code, or if the second file exists already."""
    if args.json or args.module is not None:
        other = "--json" if args.json else "--module"
        raise CommandError(f"Use either --with-generated-code or {other}, not both.")
    if not args.out:
        raise CommandError(
            "--with-generated-code needs --out: it writes a second file beside the script."
        )
    if not args.top:
        check_new(generated_path(args.out))


def _find_calls(trace: Trace, args: Namespace) -> Sequence[Call]:
    """Return the calls that --op, --kernel, --row or --top select, the largest total
    time first. Raises NothingToReproduceError if there are none."""
    if args.op is not None:
        return calls_of_op(trace, args.op)
    if args.kernel is not None:
        return calls_of_kernel(trace, args.kernel)
    if args.row is not None:
        return [call_of_slice(trace, args.row)]
    return most_expensive_calls(trace, args.top or ROWS)


def _answer_call(calls: Sequence[Call], trace: Trace, out: str | None) -> None:
    """Print or write the script of the first call, and say on stderr which others there
    are. Raises CommandError if the call cannot be repeated."""
    call = calls[0]
    if call.kind is CallKind.NONE:
        raise CommandError(f"{name_of(call)} has no script: {why_not(call)}.")
    _mention_other_calls(calls)
    text = script_of(call, _file_name_of(trace))
    _write_script(text, out, f"{printable(name_of(call))}, {recorded_text(call)}")


def _mention_other_calls(calls: Sequence[Call]) -> None:
    """Say on stderr how to select the calls after the first one. Nothing is said if
    there is only one."""
    if len(calls) > 1:
        rows = several([str(other.row) for other in calls[1:]], MAX_ROWS_NAMED)
        say(
            f"Of {plural(len(calls), 'distinct call')}, this one took the most time "
            f"in total. For the others: --row {rows}."
        )


def _answer_generated(calls: Sequence[Call], trace: Trace, out: str) -> None:
    """Write the script that runs the generated code of the first call to `out`, and
    that code beside it. Raises NoGeneratedCodeError and CannotWriteError."""
    call = calls[0]
    generated = find_generated_code(trace, call)
    _mention_other_calls(calls)
    _write_generated(call, generated, _file_name_of(trace), out)
    name = printable(name_of(call))
    emit(f"{printable(out)}: {name}, {recorded_text(call)}.")


def _write_generated(
    call: Call, generated: GeneratedCode, trace_name: str, out: str
) -> None:
    """Write a script to `out` and the generated code that it runs beside it; both are
    written, or none. Says which log the code is from. Raises CannotWriteError."""
    code_path = generated_path(out)
    with new_file(out) as script_file, new_file(code_path) as code_file:
        script_file.write(generated_script(call, generated, trace_name).encode())
        code_file.write(generated.code)
    say(CODE_OF_LOG.format(printable(code_path), printable(generated.log)))


def _answer_module(trace: Trace, module: ModuleCalls, args: Namespace) -> None:
    """Print or write the script that repeats the ops of a module in order; with --json,
    its calls. Raises CommandError if none of them can be repeated."""
    if args.json:
        emit_json_with_notes(trace, reproduce_document(module.calls))
        return
    kinds = {call.kind for call in module.calls}
    if not kinds & {CallKind.OP, CallKind.BACKWARD}:
        reasons = {why_not(call): None for call in module.calls}
        raise CommandError(
            f"{args.module} has no script: {several([*reasons], MAX_ROWS_NAMED)}."
        )
    title = (
        f"The ops of {module.name} in order, as recorded in {_file_name_of(trace)} "
        f"(row {module.row})"
    )
    source = ScriptSource(title=title, calls=module.calls, order=module.order)
    _write_script(script(source), args.out, plural(len(module.order), "call"))


def _write_script(text: str, out: str | None, what: str) -> None:
    """Print a script if `out` is None, else write it to a new file and say so. `what`
    describes it. Raises CannotWriteError."""
    if out is None:
        emit(text.rstrip("\n"))
        return
    with new_file(out) as file:
        file.write(text.encode())
    emit(f"{printable(out)}: {what}.")


def _write_folder(
    calls: Sequence[Call], trace: Trace, out: str, with_generated_code: bool
) -> None:
    """Write a script for each call that can be repeated into a new folder, and one that
    runs them all. Calls without a script are reported. Raises CommandError if there is
    no script, and CannotWriteError."""
    calls_with_script = [call for call in calls if call.kind is not CallKind.NONE]
    if not calls_with_script:
        raise CommandError(f"None of these calls has a script: {why_not(calls[0])}.")
    try:
        os.makedirs(out)
    except OSError as error:
        raise CommandError(f"{out} cannot be created: {error.strerror}.") from None
    names = [
        file_name(call, number) for number, call in enumerate(calls_with_script, 1)
    ]
    for name, call in zip(names, calls_with_script, strict=True):
        path = str(Path(out, name))
        if with_generated_code and call.kind is CallKind.COMPILED:
            _write_compiled(call, trace, path)
        else:
            with new_file(path) as file:
                file.write(script_of(call, _file_name_of(trace)).encode())
    with new_file(str(Path(out, RUN_ALL))) as file:
        file.write(run_all_script(names, _file_name_of(trace)).encode())
    emit(
        f"{printable(out)}: {plural(len(calls_with_script), 'script')}; {RUN_ALL} runs them all and "
        "prints a table."
    )
    left_out = [call for call in calls if call.kind is CallKind.NONE]
    for call in left_out:
        say(f"Skipped: {name_of(call)}: {why_not(call)}.")


def _write_compiled(call: Call, trace: Trace, path: str) -> None:
    """Write the script of a compiled kernel, with the generated code that it runs. If
    the log lacks the code, the script only says what to record. Raises
    CannotWriteError."""
    try:
        generated = find_generated_code(trace, call)
    except NoGeneratedCodeError as error:
        say(str(error))
        with new_file(path) as file:
            file.write(script_of(call, _file_name_of(trace)).encode())
        return
    _write_generated(call, generated, _file_name_of(trace), path)


def _file_name_of(trace: Trace) -> str:
    """Return the name of the file of a trace, without its folder."""
    return os.path.basename(trace.report.file) or trace.report.file
