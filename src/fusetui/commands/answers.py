"""The commands that answer a question about a trace with a table: `summary`, `kernels`,
...

Each imports what it needs when it runs.
"""

from __future__ import annotations

import math
import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING, Literal

from fusetui.commands.errors import DONE, NO, UNUSABLE, CommandError, say
from fusetui.commands.loading import LoadedTrace, load, secret_notices
from fusetui.report.output import emit_json_with_notes, emit_with_notes, width
from fusetui.text.figures import plural, several
from fusetui.text.printable import markdown, printable

if TYPE_CHECKING:
    from fusetui.analysis.compiled.line_times import CompiledLines
    from fusetui.analysis.compiled.model import SourceLine
    from fusetui.analysis.questions.computing import Tallies
    from fusetui.analysis.questions.summary import Summary
    from fusetui.capture.record import Guess
    from fusetui.gpu.roofline.many import Jobs
    from fusetui.report.groups import KernelsDocument
    from fusetui.trace import Trace
    from fusetui.trace.program.functions import Functions

LONG_GAP_SHARE = 0.02
"""Of the span: a longer gap changes what the share of busy time means."""

MIN_PEAK_PER_SECOND = 1e9
"""A smaller peak is taken for TFLOP/s or TB/s without the exponent, and rejected."""

ON_CPU = "CPU ops that compute (the trace has no GPU events)"


def shown(
    args: Namespace,
    loaded: LoadedTrace,
    document: Callable[[], object],
    text: Callable[[int], str],
) -> int:
    """Print an answer, as JSON with --json or else as text of the width of the
    terminal. Only the one of `document` and `text` that is needed is called. Returns
    the exit code of reading the trace."""
    if args.json:
        emit_json_with_notes(loaded.trace, document())
    else:
        emit_with_notes(loaded.trace, text(width()))
    return loaded.code


def run_summary(args: Namespace) -> int:
    """Print the key figures of a whole trace, and return the exit code. Warnings about
    secrets in the trace go to stderr."""
    from fusetui.analysis.questions.summary import summary

    loaded = load(args.trace, args.captured_by)
    trace = loaded.trace
    say(*secret_notices(trace))
    figures = summary(trace)

    # imports the decoders of kernel names, which --json does not need
    def text(columns: int) -> str:
        from fusetui.analysis.questions.totals import (
            sum_kernels_by_name,
            sum_ops_by_name,
        )
        from fusetui.report.summary import format_summary

        kernels = sum_kernels_by_name(trace)
        ops = sum_ops_by_name(trace)
        return format_summary(
            figures, kernels, ops, columns, _finishes_earlier_work(trace, figures)
        )

    return shown(args, loaded, lambda: figures, text)


def _finishes_earlier_work(trace: Trace, figures: Summary) -> bool:
    """Return whether the GPU probably finishes work from before the recording in a long
    idle time, as `why` says.

    `why` is only asked if some stream has its first event right after a gap of over
    LONG_GAP_SHARE of the GPU span.
    """
    import numpy as np

    by_start = np.argsort(trace.start[trace.gpu_rows], kind="stable")
    rows = trace.gpu_rows[by_start]
    later_rows = rows[1:]
    busy_until_ns = np.maximum.accumulate(trace.end[rows])[:-1]
    gaps_ns = trace.start[later_rows] - busy_until_ns
    rows_after_gaps = later_rows[gaps_ns > LONG_GAP_SHARE * figures.gpu_span_ns]
    _, first_of_streams = np.unique(trace.track[rows], return_index=True)
    if not np.isin(rows_after_gaps, rows[first_of_streams]).any():
        return False
    from fusetui.analysis.why.answer import why
    from fusetui.report.why_answer import find_cut_off

    return bool(find_cut_off(why(trace)))


def run_kernels(args: Namespace) -> int:
    """Print the kernels of a trace, grouped by name, op, shape and so on (`args.by`).
    Returns the exit code. The lines of Python behind compiled kernels are added if a
    compile log tells them."""
    from fusetui.analysis.questions.groups import group_kernels
    from fusetui.analysis.questions.search import explain_missing_kernels
    from fusetui.gpu.roofline.many import find_peaks_of_devices, jobs
    from fusetui.report.groups import format_kernels, make_kernels_document

    peaks_by_kind = parse_peaks(args.peak)
    loaded = load(args.trace, args.captured_by, args.compile_log)
    trace = set_device_name(loaded.trace, args.device)
    work = jobs(trace, overrides=peaks_by_kind)
    groups = group_kernels(trace, work, args.by)

    def text(columns: int) -> str:
        if not groups:
            return "\n".join(wrap(explain_missing_kernels(trace), columns))
        remarks = peak_notices(trace, work, peaks_by_kind)
        table = format_kernels(groups, args.by, args.top, columns, remarks)
        return _append_source_lines(
            table, _find_source_lines(trace, "kernels"), columns, args.top
        )

    def document() -> KernelsDocument:
        kernels = make_kernels_document(
            groups, args.by, find_peaks_of_devices(trace, peaks_by_kind)
        )
        lines = _find_source_lines(trace, "kernels")
        if not lines:
            return kernels
        from fusetui.report import printed
        from fusetui.report.compiled import LinedKernelsDocument

        return printed(kernels, LinedKernelsDocument, source_lines=lines)

    return shown(args, loaded, document, text)


def run_ops(args: Namespace) -> int:
    """Print the CPU ops of a trace, grouped by name or shape (`args.by`). Returns the
    exit code. The lines of Python behind compiled ops are added if a compile log tells
    them."""
    from fusetui.analysis.questions.groups import group_ops
    from fusetui.report.groups import OpsDocument, format_ops

    loaded = load(args.trace, args.captured_by, args.compile_log)
    trace = loaded.trace
    groups = group_ops(trace, args.by)

    def text(columns: int) -> str:
        table = format_ops(groups, args.by, args.top, columns)
        return _append_source_lines(
            table, _find_source_lines(trace, "ops"), columns, args.top
        )

    def document() -> OpsDocument:
        ops = OpsDocument(args.by, groups)
        lines = _find_source_lines(trace, "ops")
        if not lines:
            return ops
        from fusetui.report import printed
        from fusetui.report.compiled import LinedOpsDocument

        return printed(ops, LinedOpsDocument, source_lines=lines)

    return shown(args, loaded, document, text)


LinesOfNames = Mapping[str, "tuple[SourceLine, ...]"]


def _find_source_lines(trace: Trace, of: Literal["kernels", "ops"]) -> LinesOfNames:
    """Return the lines of Python behind compiled kernels or ops, by name, from the log
    of torch.compile. Empty if the trace has no compiled code, or no log. Raises
    TraceError if a log that the user named cannot be read."""
    from fusetui.trace.model.op_names import is_compiler

    if not any(map(is_compiler, trace.names)):
        return {}
    from fusetui.analysis.compiled.by_name import (
        find_lines_of_kernel_names,
        find_lines_of_op_names,
    )
    from fusetui.analysis.compiled.finding import find_compile_log

    log = find_compile_log(trace)
    if of == "kernels":
        return find_lines_of_kernel_names(trace, log)
    return find_lines_of_op_names(trace, log)


def _append_source_lines(
    table: str, lines: LinesOfNames, columns: int, top: int
) -> str:
    """Return a table with the lines of Python of its names below it. Without any lines,
    it is the table alone. At most `top` names are listed, in texts of `columns` cells.
    """
    if not lines:
        return table
    from fusetui.report.compiled import format_source_lines

    return f"{table}\n\n{format_source_lines(lines, columns, top)}"


def run_modules(args: Namespace) -> int:
    """Print what the modules of the program (torch.nn.Module, or annotations) cost in
    time, as a tree. Returns the exit code."""
    from msgspec.structs import asdict

    from fusetui.report.documents import ModulesDocument
    from fusetui.report.program import format_modules
    from fusetui.trace.model.categories import Role
    from fusetui.trace.program.modules import module_times
    from fusetui.trace.program.origin import origins, phases

    loaded = load(args.trace, args.captured_by)
    trace = loaded.trace
    origins_of_kernels = origins(trace)
    times = module_times(origins_of_kernels, args.expand)
    times_of_phases = phases(origins_of_kernels)
    text = partial(
        format_modules,
        times,
        times_of_phases,
        args.top,
        stacks=len(trace.rows_of(Role.PYTHON)) > 0,
        form=trace.report.format,
    )

    def document() -> ModulesDocument:
        return ModulesDocument(**asdict(times), phases=times_of_phases)

    return shown(args, loaded, document, text)


def run_lines(args: Namespace) -> int:
    """Print what the user's own Python functions cost in time, or the calling lines
    with `--by line`. Lines of compiled kernels come first, if a compile log tells them.
    Returns the exit code; raises CommandError if lines were not recorded."""
    from fusetui.analysis.why.causes import find_idle_causes
    from fusetui.report.program import format_functions
    from fusetui.trace.program.functions import function_times
    from fusetui.trace.program.origin import origins

    loaded = load(args.trace, args.captured_by, args.compile_log)
    trace = loaded.trace
    by_line = args.by == "line"
    times = function_times(origins(trace), args.file, find_idle_causes(trace), by_line)
    compiled = find_compiled_lines(trace, args.file)
    if not compiled:
        say_why_no_lines(trace, args, bool(times.functions))

    def text(columns: int) -> str:
        functions = format_functions(times, args.top, columns, form=trace.report.format)
        if compiled is None:
            return functions
        from fusetui.report.compiled import format_line_times

        return f"{format_line_times(compiled, columns, args.top)}\n\n{functions}"

    def document() -> Functions:
        if compiled is None:
            return times
        from fusetui.report import printed
        from fusetui.report.compiled import LinesDocument

        return printed(times, LinesDocument, compiled=compiled)

    return shown(args, loaded, document, text)


def find_compiled_lines(trace: Trace, file: str | None) -> CompiledLines | None:
    """Return the times of the lines of Python behind compiled kernels, by the log of
    torch.compile. None if there are none. `file` limits them to one source file. Raises
    TraceError if a log that the user named cannot be read."""
    from fusetui.trace.model.op_names import is_compiler

    if not any(map(is_compiler, trace.names)):
        return None
    from fusetui.analysis.compiled.finding import find_compile_log
    from fusetui.analysis.compiled.line_times import sum_times_by_line

    times = sum_times_by_line(trace, find_compile_log(trace), file)
    return times if times.lines else None


def say_why_no_lines(trace: Trace, args: Namespace, found: bool) -> None:
    """Say on stderr that no Python frame of `args.file` exists, where `found` is False.
    Raises CommandError if lines are asked for, but the trace did not record them."""
    from fusetui.trace.model.report import recorded_with
    from fusetui.trace.program.functions import has_lines

    if args.by == "line" and not has_lines(trace):
        stacks = recorded_with("with_stack=True", trace.report.format)
        raise CommandError(
            f"The calling lines were not recorded; {stacks} records them (torch 2.14)."
        )
    if args.file is not None and not found:
        say(f"This trace has no Python frames in {printable(args.file)}.")


def run_launches(args: Namespace) -> int:
    """Print what launching GPU work cost each CPU thread, and how long the launch
    queues were. Returns the exit code."""
    from fusetui.analysis.questions.launches import (
        list_graph_replays,
        measure_queues,
        summarize_launches_by_thread,
        summarize_queue,
    )
    from fusetui.report.documents import LaunchesDocument
    from fusetui.report.launches import format_launches

    loaded = load(args.trace, args.captured_by)
    trace = loaded.trace
    threads = summarize_launches_by_thread(trace)
    graphs = list_graph_replays(trace)
    lengths = tuple(summarize_queue(queue) for queue in measure_queues(trace))

    def document() -> LaunchesDocument:
        return LaunchesDocument(str(trace.begin_ns), threads, graphs, lengths)

    text = partial(format_launches, threads, graphs, lengths)
    return shown(args, loaded, document, text)


def run_serving(args: Namespace) -> int:
    """Print the steps of an inference server, and the least time that each can take.
    Returns the exit code. Raises NoConfigError if the configuration of the model cannot
    be used."""
    from fusetui.analysis.serving.answer import serving
    from fusetui.analysis.serving.config import read_config
    from fusetui.report.serving import format_serving, make_serving_document

    peaks_by_kind = parse_peaks(args.peak)
    config = read_config(args.model_config) if args.model_config else None
    loaded = load(args.trace, args.captured_by)
    answer = serving(set_device_name(loaded.trace, args.device), config, peaks_by_kind)
    text = partial(format_serving, answer)
    return shown(args, loaded, lambda: make_serving_document(answer), text)


def run_check(args: Namespace) -> int:
    """Compare guesses about the numbers of kernels with a trace, such as `gemm=3`.
    Returns NO if a guess is wrong, UNUSABLE if the trace is incomplete, else DONE."""
    from fusetui.analysis.questions.computing import count_kinds_by_step
    from fusetui.capture.record import compare_guess, parse_guess
    from fusetui.report.documents import CheckDocument, GuessDocument

    expected = parse_guess(args.expect)
    loaded = load(args.trace)
    counted = count_kinds_by_step(loaded.trace)
    guesses = compare_guess(expected, counted)
    is_right = all(guess.right for guess in guesses)

    def document() -> CheckDocument:
        return CheckDocument(
            per="step" if counted.steps else "trace",
            steps=list(counted.steps),
            counted="kernels" if counted.on_gpu else "cpu_ops",
            right=is_right,
            guesses=[
                GuessDocument(guess.kind, guess.expected, guess.found, guess.right)
                for guess in guesses
            ],
        )

    what_counts = _describe_counted(counted)

    def text(_: int) -> str:
        return _format_guesses(guesses, what_counts)

    code = shown(args, loaded, document, text)
    if args.github or args.junit is not None:
        return _report_guesses(args, loaded, guesses, what_counts)
    if not loaded.trace.report.whole:
        return UNUSABLE
    return max(code, DONE if is_right else NO)


def _describe_counted(counted: Tallies) -> str:
    """Return a phrase about what is counted and where, such as "kernels in each of 3
    steps"."""
    counted_noun = "kernels" if counted.on_gpu else ON_CPU
    if counted.steps:
        return f"{counted_noun} in each of {plural(len(counted.steps), 'step')}"
    return f"{counted_noun} in the whole trace, which has no steps"


def _format_guesses(guesses: Sequence[Guess], what_counts: str) -> str:
    """Return a text with a line per guess: the expected number and the counted one. `=`
    marks a right guess, `!` a wrong one. There must be a guess."""
    kind_width = max(len(guess.kind) for guess in guesses)
    lines = [f"Counted {what_counts}:"]
    for guess in guesses:
        mark = "=" if guess.right else "!"
        lines.append(
            f"  {mark} {guess.kind:{kind_width}}  expected {guess.expected:>4}   "
            f"found {guess.found_text}"
        )
    return "\n".join(lines)


def _report_guesses(
    args: Namespace, loaded: LoadedTrace, guesses: Iterable[Guess], what_counts: str
) -> int:
    """Report the guesses to a pipeline, as GitHub annotations or a JUnit file, and
    return the exit code. A trace that is incomplete is a failed case of its own."""
    from fusetui.commands.verdicts import Case, Outcome, reported_path, told, unread
    from fusetui.report.output import notes_of

    trace = loaded.trace
    name = trace.report.file
    cases = []
    for guess in guesses:
        term = f"{guess.kind}={guess.expected}"
        cases.append(
            Case(
                name=term,
                outcome=Outcome.PASSED if guess.right else Outcome.FAILED,
                said=f"{name}: expected {term}, found {guess.found_text} (counted {what_counts}).",
                file=reported_path(trace),
            )
        )
    if not trace.report.whole:
        cases.append(unread(name))
    return told(args, cases, [f"* {markdown(note)}" for note in notes_of(trace)])


def parse_peaks(texts: Iterable[str]) -> dict[str, float]:
    """Return peak rates by kind, in FLOP/s, or bytes/s for bandwidth. Raises
    CommandError for an unknown kind, or a rate that is no plausible number.

        ["bf16=800e12"] -> {"bf16": 800e12}
    """
    from fusetui.gpu.roofline.peaks import BANDWIDTH, KINDS

    peaks: dict[str, float] = {}
    for text in texts:
        kind, _, figure = text.partition("=")
        if kind not in (*KINDS, BANDWIDTH):
            kinds = f"{', '.join(KINDS)} and {BANDWIDTH}"
            raise CommandError(f"--peak {text}: the kind must be one of {kinds}.")
        try:
            peak = float(figure)
        except ValueError:
            peak = math.nan
        # a comparison with NaN is false too, so text that is no number is rejected here
        if not MIN_PEAK_PER_SECOND <= peak < math.inf:
            is_bandwidth = kind == BANDWIDTH
            unit = "bytes" if is_bandwidth else "FLOP"
            example = "3.35e12" if is_bandwidth else "989e12"
            raise CommandError(
                f"--peak {text}: use a number of {unit} per second, as in "
                f"{kind}={example}."
            )
        peaks[kind] = peak
    return peaks


def set_device_name(trace: Trace, name: str | None) -> Trace:
    """Return the trace with all its devices taken to be of the model `name`; None
    leaves it as it is. Raises CommandError if the model is unknown, or if the trace
    itself names its devices."""
    if name is None:
        return trace
    from msgspec.structs import replace

    from fusetui.gpu.roofline.peaks import PEAKS
    from fusetui.trace.layout.devices import device_ids, device_names

    recorded = device_names(trace)
    if recorded:
        raise CommandError(
            f"--device {name}: the trace was recorded on {several(recorded, 3)}. To "
            "set rates, use --peak."
        )
    for peak in PEAKS:
        # the first model that fits gives the number of multiprocessors
        if re.search(peak.pattern, name):
            break
    else:
        raise CommandError(
            f"--device {name}: unknown device. Use the name that the driver reports, "
            "such as 'H100 80GB HBM3', or set its rates with --peak."
        )
    properties = [
        {"id": device, "name": name, "numSms": peak.sms} for device in device_ids(trace)
    ]
    return replace(trace, keys={**trace.keys, "deviceProperties": properties})


def peak_notices(trace: Trace, work: Jobs, given: dict[str, float]) -> Iterator[str]:
    """Yield sentences that say why FLOP, bytes or shares of the peak rates are missing.
    None if all are known."""
    from fusetui.gpu.roofline.many import find_peaks_of_devices
    from fusetui.trace.model.ids import device_label
    from fusetui.trace.model.report import recorded_with

    if not work.inputs.distinct:
        option = recorded_with("record_shapes=True", trace.report.format)
        yield f"FLOP and bytes are unknown, because no shapes were recorded (record them with {option})."
        return
    devices_without_peaks = []
    for device in find_peaks_of_devices(trace, given):
        if device.peak is not None:
            continue
        label = device.name or device_label(device.device)
        # With an article, unless it is named or a number tells which device it is.
        is_unique = device.name or label[-1:].isdigit()
        devices_without_peaks.append(label if is_unique else f"the {label}")
    if devices_without_peaks:
        yield (
            f"The peak rates of {several(list(dict.fromkeys(devices_without_peaks)), 3)} are unknown. "
            "Set these rates with, for example, --peak bf16=989e12 --peak bandwidth=3.35e12."
        )
